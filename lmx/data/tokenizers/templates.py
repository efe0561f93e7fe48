"""Rows of one text and of two that `tokenizer(text)` and `tokenizer(text, pair)` of transformers make.

The post-processor of a tokenizer.json adds special tokens and token types. Versions 4 and 5 of transformers both read
it with the classes of GPT and GPT-2 and with PreTrainedTokenizerFast. With the classes of BERT and XLNet, version 5 has
their own rows whatever the file says, so a folder that differs is an error. Folders without tokenizer.json have the
rows of their class; `add_bos_token` of GPT-2 adds a start token.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import tokenizers as hf

from lmx.data.tokenizers import settings as settings_lib
from lmx.data.tokenizers.base import RowTemplate, Tokenizer, row_template
from lmx.errors import InputError

FILE = 'tokenizer.json'
Templates = tuple[RowTemplate, ...]
PLAIN: Templates = (row_template([(), ()]), row_template([(), (), ()], last=1))
_WORD = 'x'


def of_kind(tokenizer: Tokenizer) -> Templates:
  """Return the rows of a kind's class in transformers: BERT's, XLNet's, or only the texts."""
  cls, sep = tokenizer.cls_id, tokenizer.sep_id
  if tokenizer.kind not in ('wordpiece', 'unigram') or cls is None or sep is None:
    return PLAIN
  if tokenizer.kind == 'wordpiece':
    return row_template([(cls,), (sep,)]), row_template([(cls,), (sep,), (sep,)], [[0], [0], [1]], 1)
  one = row_template([(), (sep, cls)], [[], [0, 2]])
  return one, row_template([(), (sep,), (sep, cls)], [[], [0], [1, 2]], 1)


def read(directory: Any, tokenizer: Any, settings: settings_lib.Settings) -> Templates:
  """Return the rows that transformers makes with the tokenizer of a folder.

  Raises:
    InputError: a row has a text twice, not at all or in another order; versions of transformers differ; or a special
      token is outside the vocabulary.
  """
  path, own = pathlib.Path(directory) / FILE, of_kind(tokenizer)
  if not path.exists():
    if not settings.adds_bos:
      return own
    return (row_template([(tokenizer.bos_id,), ()]),)  # versions differ in pairs
  found = probe(tokenizer.post_processor, str(path))
  if tokenizer.kind in ('wordpiece', 'unigram') and not settings.any_class and found != own:
    name = 'BertTokenizer' if tokenizer.kind == 'wordpiece' else 'XLNetTokenizer'
    raise InputError(
      f'{path}: post_processor: got {show(found, tokenizer)}; expected {show(own, tokenizer)}, because {name} of '
      f'transformers 5 makes these rows whatever the file says; set tokenizer_class to "PreTrainedTokenizerFast" in '
      f'{settings_lib.FILE} to read the rows of the file in every version'
    )
  for i in sorted({i for one in found for group in one.ids for i in group}):
    if not 0 <= i < tokenizer.vocab_size:
      raise InputError(f'{path}: post_processor: got id {i}; expected below {tokenizer.vocab_size}, the vocabulary')
  return found


def probe(processor: Any, where: str) -> Templates:
  """Return the rows that a post-processor makes; raise InputError if they do not have each text once, in order."""
  tokenizer = hf.Tokenizer(hf.models.WordLevel({_WORD: 0}, unk_token=_WORD))
  if processor is not None:
    tokenizer.post_processor = processor
  return _template(tokenizer.encode(_WORD), 1, where), _template(tokenizer.encode(_WORD, _WORD), 2, where)


def _template(encoding: Any, texts: int, where: str) -> RowTemplate:
  parts = list(zip(encoding.sequence_ids, encoding.ids, encoding.type_ids, strict=True))
  places = [n for n, (text, _, _) in enumerate(parts) if text is not None]
  if [parts[n][0] for n in places] != list(range(texts)):
    got = ' '.join('AB'[text] if text is not None else str(i) for text, i, _ in parts)
    raise InputError(f'{where}: post_processor: got rows of {texts} texts {got}; expected each text once, A before B')
  edges = [-1, *places, len(parts)]
  groups = [parts[a + 1 : b] for a, b in zip(edges, edges[1:], strict=False)]
  ids, types = ([tuple(part[n] for part in group) for group in groups] for n in (1, 2))
  return RowTemplate(tuple(ids), tuple(types), tuple(parts[n][2] for n in places))


def without_types(templates: Templates) -> Templates:
  """Return the rows with token types 0."""
  return tuple(row_template(one.ids) for one in templates)


def have_types(templates: Templates) -> bool:
  """Return True if a token type is not 0."""
  return any(any(one.texts) or any(map(any, one.types)) for one in templates)


def show(templates: Templates, tokenizer: Any) -> str:
  """Return rows for a message, such as "[CLS] A [SEP] (types 0 0 0)"."""
  return ' and '.join(_show(one, tokenizer) for one in templates)


def _show(one: RowTemplate, tokenizer: Any) -> str:
  special = [(tokenizer.id_to_token(i) if 0 <= i < tokenizer.vocab_size else str(i)) for i in sum(one.ids, ())]
  tokens, types, names, kinds = [], [], iter(special), iter(sum(one.types, ()))
  for n, group in enumerate(one.ids):
    tokens += [next(names) for _ in group] + ['AB'[n : n + 1]] * (n < len(one.texts))
    types += [next(kinds) for _ in group] + list(one.texts[n : n + 1])
  return f'{" ".join(tokens)} (types {" ".join(map(str, types))})'


def processor(templates: Sequence[RowTemplate], tokenizer: Any) -> Any:
  """Return the post-processor that makes rows; a single template also makes rows of two texts."""
  one = templates[0]
  two = templates[1] if len(templates) > 1 else row_template([one.ids[0], (), one.ids[1]], last=1)
  names = {i: tokenizer.id_to_token(i) for template in (one, two) for i in sum(template.ids, ())}
  state = json.loads(hf.Tokenizer(hf.models.WordLevel({_WORD: 0}, unk_token=_WORD)).to_str())
  state['post_processor'] = {
    'type': 'TemplateProcessing',
    'single': _pieces(one, names),
    'pair': _pieces(two, names),
    'special_tokens': {name: {'id': name, 'ids': [i], 'tokens': [name]} for i, name in names.items()},
  }
  return hf.Tokenizer.from_str(json.dumps(state)).post_processor


def _pieces(template: RowTemplate, names: dict[int, str]) -> list[dict[str, Any]]:
  pieces: list[dict[str, Any]] = []
  for n, group in enumerate(zip(template.ids, template.types, strict=True)):
    pieces += [{'SpecialToken': {'id': names[i], 'type_id': kind}} for i, kind in zip(*group, strict=True)]
    pieces += [{'Sequence': {'id': 'AB'[n], 'type_id': template.texts[n]}}] if n < len(template.texts) else []
  return pieces
