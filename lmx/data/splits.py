"""One split of a tokenized data set: its arrays, and their writer."""

from __future__ import annotations

import array
import dataclasses
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import numpy as np

from lmx.data import token_file
from lmx.data.tokenizers import base
from lmx.errors import InputError


@dataclasses.dataclass(frozen=True)
class Split:
  """One part of a corpus (train, valid, test).

  Attributes:
    name: the split's name, or the path of a user's file.
    tokens: 1-D array of token ids, the documents concatenated (uint8, uint16 or uint32; a
      `TokenFile` when read from the cache). Convert before arithmetic: the type is unsigned.
    offsets: int64, length documents + 1: document d is tokens[offsets[d]:offsets[d + 1]]; if
      the tokenizer has an end-of-text id, that id ends each of them.
    sentences: int64 starts of the sentences and the end of the last one, or None if the data set
      has none. Every document that is not empty starts a sentence; a document's last sentence includes
      its end-of-text id.
    labels: int32, one per document, indices of manifest['label_names'], -1 for none; for scores float32, NaN for none;
      for passages the first and for their questions the last token of the answer in the passage, -1 for none; for
      words with roles the index of their predicate; or None if no document has one.
    counts: 'tokens', 'words', 'characters', 'bytes', 'documents' of the split.
    token_labels: int32, one per token, indices of manifest['token_label_names'], -1 for subwords that do not start a
      word and for the end of a text; or None if words have no labels.
  """

  name: str
  tokens: np.ndarray
  offsets: np.ndarray
  sentences: np.ndarray | None
  labels: np.ndarray | None
  counts: Mapping[str, int]
  token_labels: np.ndarray | None = None

  @property
  def title(self) -> str:
    """Return the name for a message: 'split train', or only the path of a user's file, which has a suffix."""
    return f'split {self.name}' if self.name.isidentifier() else self.name

  def is_labelled(self, texts: int = 1) -> bool:
    """Return True if every row of `texts` documents, of which the first has the label, has a label or score."""
    if self.labels is None:
      return False
    labels = np.asarray(self.labels)[::texts]
    return bool((np.isfinite(labels) if labels.dtype.kind == 'f' else labels >= 0).all())


class Writer:
  """Writer of a split's tokens, from its documents in order."""

  def __init__(
    self,
    name: str,
    file: BinaryIO,
    tokenizer: base.Tokenizer,
    sentences: bool,
    *,
    line_words: bool,
    token_labels: bool = False,
    predicates: bool = False,
  ):
    self.dtype = np.min_scalar_type(tokenizer.id_bound - 1).newbyteorder('<')
    self.sums = token_file.Checksums()
    self.labels: list[str] = []
    self.token_labels: list[str] | None = [] if token_labels else None
    self._predicates = predicates
    self._lengths: list[int] = []  # tokens of each word of the document, if words have labels and are subwords
    self._name, self._file, self._tokenizer, self._line_words = name, file, tokenizer, line_words
    self._offsets = array.array('q', [0])
    self._sentences = array.array('q') if sentences else None
    self._size, self._last = 0, -1
    self._counts = dict.fromkeys(('words', 'characters', 'bytes'), 0)

  def add(self, text: str, sentence_ids: Sequence[np.ndarray]) -> None:
    """Add a document, or a part of one: its text and the ids of its sentences."""
    self._lengths = [ids.size for ids in sentence_ids]
    for ids in sentence_ids:
      if ids.size:
        if self._sentences is not None:
          self._sentences.append(self._size)
        self._write(ids)
    self._counts['words'] += len(text.split()) + (text.count('\n') if self._line_words else 0)
    self._counts['characters'] += len(text)
    self._counts['bytes'] += len(text.encode('utf-8', 'surrogateescape'))

  def end_document(self, label: str) -> None:
    """Close the document with the end-of-text id, unless it already ends with it.

    Args:
      label: label of the document; if words have labels, those of its words separated by spaces, after the index of
        their predicate if they are its roles.
    """
    if self.token_labels is not None:
      words = label.split()
      label = words.pop(0) if self._predicates else ''
      count = self._size - self._offsets[-1] if self._tokenizer.kind == 'words' else len(self._lengths)
      if len(words) != count:
        raise InputError(f'split {self._name}, document {len(self.labels)}: {len(words)} labels for {count} words')
      if self._tokenizer.kind != 'words':  # the first subword has the label of its word
        words = [
          token_label for word, n in zip(words, self._lengths, strict=True) for token_label in (word, *[''] * (n - 1))
        ]
      self.token_labels += words
    eos = self._tokenizer.eos_id
    if eos is not None and (self._last != eos or self._offsets[-1] == self._size):
      if self._sentences is not None and self._offsets[-1] == self._size:
        self._sentences.append(self._size)
      self._write(np.asarray([eos]))
      if self.token_labels is not None:
        self.token_labels.append('')
    self._offsets.append(self._size)
    self.labels.append(label)

  def split(self, tokens: np.ndarray, labels: np.ndarray | None, token_labels: np.ndarray | None = None) -> Split:
    """Return the finished split with its tokens and labels as arrays."""
    offsets = np.frombuffer(self._offsets, np.int64)
    starts = None
    if self._sentences is not None:
      starts = np.frombuffer(array.array('q', [*self._sentences, self._size]), np.int64)
    words = self._size if self._tokenizer.kind == 'words' else self._counts['words']
    counts = {'tokens': self._size, **self._counts, 'words': words, 'documents': len(offsets) - 1}
    return Split(self._name, tokens, offsets, starts, labels, counts, token_labels)

  def _write(self, ids: np.ndarray) -> None:
    if ids.max() >= self._tokenizer.id_bound or ids.min() < 0:
      raise InputError(
        f'split {self._name}: token id {ids.max()} in the data, but the vocabulary has '
        f'{self._tokenizer.id_bound} tokens'
      )
    block = ids.astype(self.dtype).tobytes()
    self._file.write(block)
    self.sums.update(block)
    self._size += ids.size
    self._last = int(ids[-1])
