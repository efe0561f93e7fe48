"""Vocabularies of TransfoXLTokenizer (transformers before 5), in kimiyoung/transformer-xl's format.

A folder has a pickled state of the tokenizer or of the authors' `Vocab` (vocab.pkl, vocab.bin), or a text file with one
symbol per line (vocab.txt, vocabulary). lmx/interop/torch_file.py reads the pickle without running it.

It becomes a `words` tokenizer with the file's ids. Text is split at white space and a line ends with `<eos>`, as in the
authors' code for its tokenised data sets. TransfoXLTokenizer also normalises punctuation and applies Moses' rules; lmx
does not, and warns about it on import. `lower_case` is honoured.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lmx import documents
from lmx.errors import InputError, explain
from lmx.interop import torch_file
from lmx.interop.huggingface.entry import ONLY, show

PICKLES, TEXTS = ('vocab.pkl', 'vocab.bin'), ('vocab.txt', 'vocabulary')
NAMES = (*PICKLES, *TEXTS)
FILE = 'tokenizer_config.json'
_LOWERS = ('lower_case', 'do_lower_case')
NOTE = (
  'text is split at white space alone, as WikiText-103 is tokenised; TransfoXLTokenizer also splits by the rules of '
  'Moses: tokenise other text first'
)


class Vocabulary(NamedTuple):
  """A list of words in the order of their ids, and how text is split; see lmx/data/tokenizers/library_files.py."""

  tokens: list[str]
  rule: str
  lower_case: bool = False


def read(directory: Any) -> Vocabulary | None:
  """Return a folder's vocabulary, or None if it has no vocabulary file.

  Raises:
    InputError: a file is damaged, two files differ, or a tokenizer option is not supported.
  """
  directory = pathlib.Path(directory)
  settings = documents.convert(
    documents.read_json(directory / FILE) if (directory / FILE).exists() else {}, dict, str(directory / FILE)
  )
  lower_case = _lower_case(settings, directory / FILE)
  tokens: list[str] = []
  source: pathlib.Path | None = None
  for path in (directory / name for name in NAMES):
    if not path.exists():
      continue
    read_here, lowers = pickled(path) if path.name in PICKLES else (_lines(path), None)
    if source and read_here != tokens:
      raise InputError(f'{path}: got other symbols than {source.name}; expected the same; remove one of the two')
    if None not in (lowers, lower_case) and lowers != lower_case:
      raise InputError(f'{path}: lower_case: got {lowers}; expected {lower_case}, which is in {FILE}')
    lower_case = lowers if lower_case is None else lower_case
    tokens, source = read_here, path
  if source is None:
    return None
  _check(settings, tokens, directory / FILE, source)
  return Vocabulary(tokens, _rule(tokens), bool(lower_case))


def _rule(tokens: Sequence[str]) -> str:
  return 'lines' if '<eos>' in tokens else 'space'


def _lower_case(settings: Mapping[str, Any], where: pathlib.Path) -> bool | None:
  values = {
    documents.convert(settings[key], bool, f'{where}: {key}') for key in _LOWERS if settings.get(key) is not None
  }
  if len(values) > 1:
    raise InputError(f'{where}: lower_case and do_lower_case differ; expected one value')
  return values.pop() if values else None


def _check(settings: Mapping[str, Any], tokens: Sequence[str], where: pathlib.Path, source: pathlib.Path) -> None:
  """Raise InputError for duplicates and for settings that change the ids of a text."""
  if len(set(tokens)) < len(tokens):
    raise InputError(f'{source}: got a symbol twice; expected different ones')
  if '<unk>' not in tokens:
    raise InputError(f'{source}: got no <unk>; expected one; lmx supports no other symbol of unknown words; rename it')
  fixed = {'delimiter': (None,), 'unk_token': ('<unk>',), 'eos_token': ('<eos>',)}
  for key, values in fixed.items():
    value = settings.get(key)
    name = value.get('content') if isinstance(value, dict) else value
    if name is not None and name not in values:
      raise InputError(f'{where}: {key}: got {show(value)}; expected {values[0]!r}; {ONLY}')
  for key, token in (settings.get('added_tokens_decoder') or {}).items():
    name = token.get('content') if isinstance(token, dict) else token
    if str(key).isdecimal() and int(key) < len(tokens) and tokens[int(key)] != name:
      raise InputError(f'{where}: added_tokens_decoder: {key}: got {show(name)}; expected {tokens[int(key)]!r}')


def _lines(path: pathlib.Path) -> list[str]:
  """Return the first words of the lines."""
  try:
    lines = path.read_text('utf-8').removesuffix('\n').split('\n')
  except (OSError, UnicodeDecodeError) as error:
    raise InputError(f'{path}: cannot be read: {explain(error)}') from None
  symbols = [line.split()[:1] for line in lines]
  if [] in symbols:
    raise InputError(f'{path}: line {symbols.index([]) + 1} is empty; expected a symbol')
  return [symbol for (symbol,) in symbols]


def checked(tokens: list[str], rule: str, lower_case: bool, source: pathlib.Path) -> Vocabulary:
  """Return a word vocabulary; `rule` '' infers it. Raises InputError for duplicates or without <unk>."""
  _check({}, tokens, source, source)
  return Vocabulary(tokens, rule or _rule(tokens), lower_case)


def pickled(path: pathlib.Path) -> tuple[list[str], bool | None]:
  """Return (symbols, lower_case) of a pickle: a TransfoXLTokenizer, the authors' Vocab, or their Corpus, which has one.

  Raises:
    InputError: the file is damaged, or its vocabulary is not built or splits at something else than white space.
  """
  state = torch_file.read(path)
  for name in ('vocab', ''):
    if isinstance(state, torch_file.Foreign):
      state = state.state
    if isinstance(state, dict):
      state = state.get(name, state)
  if not isinstance(state, dict) or not {'idx2sym', 'counter'} & {*state}:
    raise InputError(f'{path}: got a {type(state).__name__}; expected the state of a TransfoXLTokenizer, with idx2sym')
  if state.get('delimiter') is not None:
    raise InputError(f'{path}: delimiter: got {show(state["delimiter"])}; expected None; lmx splits at white space')
  symbols = state.get('idx2sym') or _counted(state)
  if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
    raise InputError(f'{path}: idx2sym: got {show(symbols)}; expected a list of symbols')
  ids = state.get('sym2idx') or {}
  if ids and ids != {symbol: i for i, symbol in enumerate(symbols)}:
    raise InputError(f'{path}: sym2idx: got ids that differ from the positions in idx2sym; expected the same')
  unknown = state.get('unk_idx')
  if unknown is not None and symbols[unknown : unknown + 1] != ['<unk>']:
    raise InputError(f'{path}: unk_idx: got {unknown}, which is not <unk>; lmx supports no other; rename that word')
  lowers = state.get('lower_case')
  return symbols, lowers if isinstance(lowers, bool) else None


def _counted(state: Mapping[str, Any]) -> list[str]:
  """Return the symbols of a state without a built vocabulary: special symbols, then the others by decreasing count."""
  counter = state.get('counter') or {}
  counted = sorted(counter, key=lambda symbol: -counter[symbol])[: state.get('max_size')]
  special = list(dict.fromkeys(state.get('special') or ()))
  return special + [s for s in counted if counter[s] >= (state.get('min_freq') or 0) and s not in special]


def write(directory: pathlib.Path, tokenizer: Mapping[str, Any]) -> dict[str, Any] | None:
  """Write vocab.txt; return settings for tokenizer_config.json, or None if the format has no such tokenizer.

  Args:
    directory: the folder.
    tokenizer: content of a tokenizer `words`.
  """
  tokens = tokenizer['tokens']
  if tokenizer['rule'] != _rule(tokens) or any(token.split() != [token] for token in tokens):
    return None
  (directory / TEXTS[0]).write_text(''.join(f'{token}\n' for token in tokens), 'utf-8')
  return {
    'tokenizer_class': 'TransfoXLTokenizer',
    'lower_case': tokenizer['lower_case'],
    'unk_token': '<unk>',
    'eos_token': '<eos>',
  }
