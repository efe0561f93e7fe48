"""Tokenizers of UTF-8 bytes and of Unicode code points."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lmx.data.tokenizers.base import Tokenizer, by_frequency
from lmx.errors import InputError


class Bytes(Tokenizer):
  """UTF-8 bytes: ids 0-255, and 256 ends a document if the data set has documents."""

  kind = 'bytes'

  def __init__(self, *, eos: bool = False):
    self.vocab_size = 256 + eos
    self.eos_id = 256 if eos else None

  def encode(self, text: str) -> np.ndarray:
    # surrogateescape: a byte stream may be split inside a character; its bytes round-trip unchanged.
    return np.frombuffer(text.encode('utf-8', 'surrogateescape'), np.uint8).astype(np.int32)

  def encode_spans(self, text: str) -> tuple[np.ndarray, np.ndarray]:
    ids = self.encode(text)
    first_T = np.repeat(np.arange(len(text)), [len(c.encode('utf-8', 'surrogateescape')) for c in text])
    return ids, np.stack([first_T, first_T + 1], axis=1).astype(np.int32)

  def decode(self, ids: Iterable[int]) -> str:
    runs = bytes(10 if i == self.eos_id else i for i in self._check_ids(ids))
    return runs.decode('utf-8', 'replace')

  def id_to_token(self, index: int) -> str:
    return '<eos>' if index == self.eos_id else chr(index) if index < 128 else f'<0x{index:02x}>'

  def content(self) -> dict[str, Any]:
    return {'kind': self.kind, 'eos': self.eos_id is not None}


class Characters(Tokenizer):
  """Unicode code points of the training text; `<unk>` exists only if some text of the data set needs it."""

  kind = 'characters'

  def __init__(self, tokens: Sequence[str]):
    self.tokens = list(tokens)
    self.vocab_size = len(self.tokens)
    self._ids = {token: i for i, token in enumerate(self.tokens)}
    self.unk_id, self.eos_id = self._ids.get('<unk>'), self._ids.get('<eos>')

  def encode(self, text: str) -> np.ndarray:
    ids = self._ids
    if self.unk_id is None:
      try:
        return np.fromiter((ids[c] for c in text), np.int32, len(text))
      except KeyError as error:
        raise InputError(
          f'text: got the character {error.args[0]!r}; expected one of the {self.vocab_size:,} in the vocabulary'
        ) from None
    return np.fromiter((ids.get(c, self.unk_id) for c in text), np.int32, len(text))

  def encode_spans(self, text: str) -> tuple[np.ndarray, np.ndarray]:
    first_T = np.arange(len(text), dtype=np.int32)
    return self.encode(text), np.stack([first_T, first_T + 1], axis=1)

  def decode(self, ids: Iterable[int]) -> str:
    return ''.join('\n' if i == self.eos_id else self.tokens[i] for i in self._check_ids(ids))

  def id_to_token(self, index: int) -> str:
    return self.tokens[index]

  def content(self) -> dict[str, Any]:
    return {'kind': self.kind, 'tokens': self.tokens}


def train(
  texts: Iterable[str], vocab_size: int, min_count: int, document_eos: bool, others: Iterable[str]
) -> Characters:
  """Train a character tokenizer; see `lmx.data.tokenizers.build.train`."""
  counts: collections.Counter[str] = collections.Counter()
  for text in texts:
    counts.update(text)
  frequent = [c for c in by_frequency(counts) if counts[c] >= min_count]
  limit = vocab_size - document_eos if vocab_size else len(frequent)
  unknown = len(frequent) < len(counts) or limit < len(frequent) or _has_others(others, set(frequent))
  if unknown and vocab_size:
    limit -= 1
  special = ['<eos>'] * document_eos + ['<unk>'] * unknown
  if limit < 1:
    raise InputError(f'data.vocab_size: got {vocab_size}, which has no room for characters; increase it')
  return Characters(special + frequent[:limit])


def _has_others(texts: Iterable[str], characters: set[str]) -> bool:
  return any(not characters.issuperset(text) for text in texts)
