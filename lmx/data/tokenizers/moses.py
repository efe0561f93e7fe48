"""Tokenizer of fairseq's releases and FSMT: Moses, then byte-pair encoding (Sennrich et al. 2016).

Moses' rules follow sacremoses, with aggressive hyphens ('well @-@ known') and escaped characters ('&apos;'). Decoding
joins subwords and undoes Moses' rules. There are two forms:
- 'fairseq', the original (fairseq/data/encoders: moses_tokenizer.py, fastbpe.py line 28): a subword that is not the
  last of its word ends with '@@'. Punctuation is not normalised.
- 'fsmt', as FSMTTokenizer of transformers: the last subword of a word ends with '</w>'. Punctuation is normalised, East
Asian punctuation first, and characters in Unicode category C are removed. Decoding skips `<unk>` too.

A folder of FSMT has vocab-src.json, vocab-tgt.json, merges.txt, and the languages in tokenizer_config.json.

Special tokens in a text are special tokens, as in FSMTTokenizer; in fairseq's form, and in work directories imported by
earlier versions, they are ordinary text.

Deviations from FSMTTokenizer: target texts are encoded with the target's vocabulary, where the class always uses the
source's. With `lower_case` a final capital sigma becomes a final sigma, and `<UNK>` is ordinary text, as in
transformers 5; version 4 differs in both.
"""

from __future__ import annotations

import functools
import pathlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lmx import documents
from lmx.data.tokenizers import marian, subword_models
from lmx.data.tokenizers import settings as settings_lib
from lmx.data.tokenizers.base import Tokenizer
from lmx.errors import InputError

_END, _JOINT = '</w>', '@@'
_SPECIAL = {'fairseq': ('<s>', '<pad>', '<eos>', '<unk>'), 'fsmt': ('<s>', '<pad>', '</s>', '<unk>')}
SOURCE, TARGET, MERGES = FILES = ('vocab-src.json', 'vocab-tgt.json', 'merges.txt')
_LANGUAGES = 'langs'
# Characters that FSMTTokenizer replaces before Moses' own normalisation; the two full stops lose the space after them.
_REPLACED = str.maketrans(
  dict(zip('，、”“∶：？《》）！（；」「～’━〈〉【】％', ',,""::?"")!(;""~\'-<>[]%', strict=True))
  | dict(zip('０１２３４５６７８９', '0123456789', strict=True))
  | {'…': '...'}
)
_STOPS = re.compile(r'[。．]\s*')


class Moses(Tokenizer):
  """Subwords of two languages; `encode` reads the source, and `target` is the target's tokenizer.

  Args:
    content: `languages` (source and target), `codes` (symbol pairs in merge order; a word's last character ends with
      `</w>`), `vocabularies` (source and target subwords in id order, or one shared list), optionally `rules`
      ('fairseq' or 'fsmt'), `lower_case`, `clean_up` and `special_in_text` (see `marian.Marian`).
    side: 0 for the source, 1 for the target.
  """

  kind = 'moses'

  def __init__(self, content: Mapping[str, Any], side: int = 0):
    self._content, self._side = dict(content), side
    self._tokens: Sequence[str] = content['vocabularies'][side if len(content['vocabularies']) > 1 else 0]
    self._ids = {token: i for i, token in enumerate(self._tokens)}
    self._fsmt = content.get('rules', 'fairseq') == 'fsmt'
    self._special = _SPECIAL['fsmt' if self._fsmt else 'fairseq']
    if missing := [token for token in self._special if token not in self._ids]:
      raise InputError(f'the vocabulary has no {", ".join(missing)}')
    self.lower_case = bool(content.get('lower_case'))
    self.vocab_size = len(self._tokens)
    self.pad_id, self.eos_id, self.unk_id = (self._ids[token] for token in self._special[1:])
    self._ranks = {(first, second): i for i, (first, second) in reversed([*enumerate(content['codes'])])}
    self._language = content['languages'][side]
    self._subwords = functools.lru_cache(maxsize=1 << 16)(self._encode_word)

  @functools.cached_property
  def target(self) -> Moses:
    return self if self._side else Moses(self._content, 1)

  @property
  def is_separate(self) -> bool:
    return len(self._content['vocabularies']) > 1

  @functools.cached_property
  def _rules(self) -> tuple[Any, Any, Any]:
    """Moses' tokenizer, detokenizer and normalisation, which take a second to import."""
    import sacremoses

    kinds = sacremoses.MosesTokenizer, sacremoses.MosesDetokenizer, sacremoses.MosesPunctNormalizer
    return tuple(kind(self._language) for kind in kinds)

  def split(self, text: str) -> list[str]:
    """Return the words of a text, special characters escaped."""
    text = self._normalise(text) if self._fsmt else subword_models.SURROGATE.sub('\ufffd', text)
    return self._rules[0].tokenize(text, aggressive_dash_splits=True, return_str=False, escape=True)

  def _normalise(self, text: str) -> str:
    """Return the text as FSMTTokenizer prepares it for Moses' tokenizer."""
    text = text.lower() if self.lower_case else text
    text = self._rules[2].normalize(_STOPS.sub('. ', text.translate(_REPLACED)))
    return ''.join(character for character in text if not unicodedata.category(character).startswith('C'))

  def encode(self, text: str) -> np.ndarray:
    special = self._special if self._content.get('special_in_text') else ()
    subwords: list[str] = []
    for part in marian.split_special(text, special):
      own = (subword for word in self.split(part) for subword in self._subwords(word))  # read unless it is special
      subwords += [part] if part in special else own
    return np.asarray([self._ids.get(subword, self.unk_id) for subword in subwords], np.int32)

  def _encode_word(self, word: str) -> list[str]:
    """Return a word's subwords: repeatedly merge the pair with the lowest rank."""
    symbols = [*word[:-1], word[-1] + _END]
    while len(symbols) > 1:
      pairs = [*zip(symbols, symbols[1:], strict=False)]
      best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
      if best not in self._ranks:
        break
      merged: list[str] = []
      i = 0
      while i < len(symbols):
        joins = tuple(symbols[i : i + 2]) == best
        merged.append(''.join(symbols[i : i + 1 + joins]))
        i += 1 + joins
      symbols = merged
    if self._fsmt:
      return symbols
    symbols[-1] = symbols[-1].removesuffix(_END)
    return [symbol + _JOINT for symbol in symbols[:-1]] + symbols[-1:]

  def decode(self, ids: Iterable[int]) -> str:
    tokens = [self._tokens[i] for i in self._check_ids(ids)]
    tokens = [token for token in tokens if token not in self._special[: 4 if self._fsmt else 3]]
    joined = ''.join(tokens).replace(_END, ' ') if self._fsmt else f'{" ".join(tokens)} '.replace(f'{_JOINT} ', '')
    text = self._rules[1].detokenize(joined.split())
    return marian.clean_up(text) if self._content.get('clean_up') else text

  def id_to_token(self, index: int) -> str:
    return self._tokens[index]

  def content(self) -> dict[str, Any]:
    return {'kind': self.kind, **self._content}

  @functools.cached_property
  def _word_tables(self) -> tuple[np.ndarray, np.ndarray]:
    is_last = lambda token: token.endswith(_END) if self._fsmt else not token.endswith(_JOINT)
    ends = np.asarray([is_last(token) or token in self._special for token in self._tokens])
    return np.zeros(self.vocab_size, bool), ends


def read(directory: Any, settings: settings_lib.Settings, *, special_in_text: bool = False) -> Moses:
  """Read a folder of FSMT; raise InputError if a file is missing or damaged, or a setting is not supported."""
  directory, special = pathlib.Path(directory), _SPECIAL['fsmt']
  config, where = marian.read_optional(directory / settings_lib.FILE), str(directory / settings_lib.FILE)
  ids = [marian.read_vocabulary(directory / name, special) for name in (SOURCE, TARGET)]
  for name, vocabulary in zip((SOURCE, TARGET), ids, strict=True):
    if max(vocabulary.values()) >= len(vocabulary):
      raise InputError(f'{directory / name}: got ids with gaps; expected 0 to {len(vocabulary) - 1}')
  marian.check_special(settings, ids, where, special, special, (SOURCE, TARGET))
  vocabularies = [sorted(vocabulary, key=vocabulary.__getitem__) for vocabulary in ids]
  content = {
    'rules': 'fsmt',
    'languages': _languages(config, directory),
    'codes': _codes(directory / MERGES),
    'vocabularies': vocabularies[: 1 + (vocabularies[0] != vocabularies[1])],
    'lower_case': bool(settings.lower_case),
    'clean_up': documents.field(config, 'clean_up_tokenization_spaces', bool, where, False),
    **({'special_in_text': True} if special_in_text else {}),
  }
  return Moses(content)


def _languages(config: Mapping[str, Any], directory: pathlib.Path) -> list[str]:
  """Return the source and target languages from tokenizer_config.json, else from config.json."""
  languages = config.get(_LANGUAGES)
  if languages is None:
    languages = marian.read_optional(directory / 'config.json').get(_LANGUAGES)
  if not isinstance(languages, list) or len(languages) != 2 or not all(isinstance(name, str) for name in languages):
    raise InputError(
      f'{directory / settings_lib.FILE}: {_LANGUAGES}: got {documents.show(languages)}; expected the languages of '
      'source and target, such as ["en", "de"]'
    )
  return languages


def _codes(path: pathlib.Path) -> list[list[str]]:
  """Return the symbol pairs in merges.txt; for a repeated pair the later position counts, as in FSMT."""
  codes: dict[tuple[str, ...], None] = {}
  if not documents.read_bytes(path).endswith(b'\n'):
    raise InputError(f'{path}: got a last line without its end; expected a line feed, because the file looks truncated')
  for number, line in enumerate(documents.read_lines(path), 1):
    pair = tuple(line.split()[:2])
    if number == 1 and line.startswith('#version:'):
      continue
    if len(pair) < 2:
      raise InputError(f'{path}, line {number}: got {documents.show(line)}; expected two symbols')
    codes.pop(pair, None)
    codes[pair] = None
  return [[*pair] for pair in codes]
