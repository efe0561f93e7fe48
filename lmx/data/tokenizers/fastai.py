"""fastai 2's word tokenizer (fastai/text/core.py): rules on the text, then spaCy's English tokenizer.

The rules mark what lower-casing loses by special tokens before a word: xxmaj (a capital), xxup (capitals), xxrep N (a
character N times), xxwrep N (a word N times). Two special tokens have other names here: xxunk is `<unk>`; xxbos, which
begins a document, is `<eos>`, which ends one. Between documents they are equivalent.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Sequence
from typing import Any

from lmx.errors import InputError

SPECIAL = ('xxunk', 'xxpad', 'xxbos', 'xxeos', 'xxfld', 'xxrep', 'xxwrep', 'xxup', 'xxmaj')
_OURS = {'xxunk': '<unk>', 'xxbos': '<eos>'}
_FILLER = 'xxfake'  # makes the number of words a multiple of 8
_MARKUP = (
  ('#39;', "'"),
  ('amp;', '&'),
  ('#146;', "'"),
  ('nbsp;', ' '),
  ('#36;', '$'),
  ('\\n', '\n'),
  ('quot;', "'"),
  ('<br />', '\n'),
  ('\\"', '"'),
  ('<unk>', 'xxunk'),
  (' @.@ ', '.'),
  (' @-@ ', '-'),
  ('...', ' …'),
)


def vocabulary(itos: Sequence[str]) -> list[str]:
  """Return fastai's word list under lmx's names, each once.

  Raises:
    InputError: the list is from fast.ai 0.7, or a word is repeated.
  """
  if 'xxunk' not in itos:
    raise InputError('got words without xxunk; expected fastai 1 or 2; --tokenizer=none imports only the model')
  tokens = [f'{_FILLER} {i}' if word == _FILLER else _OURS.get(word, word) for i, word in enumerate(itos)]
  if len(set(tokens)) < len(tokens):
    twice = next(word for word in tokens if tokens.count(word) > 1)
    raise InputError(f'got the word "{twice}" twice; expected each once; --tokenizer=none imports only the model')
  return tokens


def itos(tokens: Sequence[str]) -> list[str]:
  """Return fastai's word list for a tokenizer with rule 'fastai', the inverse of `vocabulary`."""
  theirs = {ours: word for word, ours in _OURS.items()}
  return [_FILLER if token == f'{_FILLER} {i}' else theirs.get(token, token) for i, token in enumerate(tokens)]


def split(text: str) -> list[str]:
  """Return the words of a text; raise InputError without spaCy."""
  words = [token.text.replace(' ', '▁') for token in _spacy()(prepare(text))]
  return [_OURS.get(word, word) for word in words]


def prepare(text: str) -> str:
  """Return a text after the rules, without the first xxbos."""
  for old, new in _MARKUP:
    text = text.replace(old, new)
  text = html.unescape(text)
  text = re.sub(r'(\S)(\1{2,})', lambda m: f' xxrep {len(m[2]) + 1} {m[1]} ', text)
  text = re.sub(r'(?:\s|^)(\w+)\s+((?:\1\s+)+)\1(\s|\W|$)', _repeated, text)
  text = re.sub(r'([/#\\])', r' \1 ', text)
  text = re.sub(' {2,}', ' ', text)
  text = re.sub(r'(\s|^)([A-Z]+[^a-z\s]*)(?=(\s|$))', functools.partial(_lowered, 'xxup'), text)
  text = re.sub(r'(\s|^)([A-Z][^A-Z\s]*)(?=(\s|$))', functools.partial(_lowered, 'xxmaj'), text)
  return text.lower().strip()


def _repeated(match: re.Match[str]) -> str:
  return f' xxwrep {len(match[2].split()) + 2} {match[1]} {match[3]}'


def _lowered(mark: str, match: re.Match[str]) -> str:
  return f'{match[1]}{f"{mark} " if len(match[2]) > 1 else ""}{match[2].lower()}'


def spelled(words: Sequence[str]) -> list[str]:
  """Return words with the special tokens carried out: capitals and repeats (at most 100).

  fastai's own `decode_spec_tokens` differs: it repeats every word after the first xxrep.
  """
  result: list[str] = []
  mark, count = '', 0
  for word in words:
    if word in ('xxmaj', 'xxup', 'xxrep', 'xxwrep'):
      mark, count = word, 0
    elif mark in ('xxrep', 'xxwrep') and not count and word.isdecimal():
      count = int(word)
    else:
      spelling = {'xxmaj': str.capitalize, 'xxup': str.upper}.get(mark, str)(word)
      result += [word] * min(count, 100) if mark == 'xxwrep' and count else [spelling * max(min(count, 100), 1)]
      mark, count = '', 0
  return result


@functools.cache
def _spacy() -> Any:
  try:
    import spacy
  except ImportError:
    raise InputError("fastai's words are split by spaCy, which is not installed; pip install spacy") from None
  tokenizer = spacy.blank('en').tokenizer
  for word in SPECIAL:
    tokenizer.add_special_case(word, [{'ORTH': word}])
  return tokenizer
