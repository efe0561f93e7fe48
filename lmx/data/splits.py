"""One split of a tokenized data set: its arrays, and their writer."""

from __future__ import annotations

import array
import dataclasses
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

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
    file_documents: int32, one per document, if documents are labelled sentences: the number of the document in the file
      that the sentence is part of, in ascending order; or None if it is not kept.
  """

  name: str
  tokens: np.ndarray
  offsets: np.ndarray
  sentences: np.ndarray | None
  labels: np.ndarray | None
  counts: Mapping[str, int]
  token_labels: np.ndarray | None = None
  file_documents: np.ndarray | None = None

  @property
  def title(self) -> str:
    """Return the name for a message: 'split train', or only the path of a user's file, which has a suffix."""
    return f'split {self.name}' if self.name.isidentifier() else self.name

  def is_labelled(self, texts: int = 1) -> bool:
    """Return True if every row has a label or score; a row is `texts` documents, and the first has the label."""
    return self.labels is not None and bool(self._is_labelled(texts).all())

  def has_labels(self, texts: int = 1) -> bool:
    """Return True if some row of `texts` documents has a label or score."""
    return self.labels is not None and bool(self._is_labelled(texts).any())

  def _is_labelled(self, texts: int) -> np.ndarray:
    """Return whether each row has a label or score, bool `(rows,)`."""
    labels = np.asarray(self.labels)[::texts]
    return np.isfinite(labels) if labels.dtype.kind == 'f' else labels >= 0


class Positions:
  """Ascending int64 positions, kept in a file once there are many, as for the sentences of 100 GB of text.

  Attributes:
    last: the last one.
  """

  _MANY = 1 << 20

  def __init__(self, directory: str | None, *first: int):
    self._buffer, self._directory = array.array('q', first), directory
    self._file: Any = None
    self.last = first[-1] if first else -1

  def extend(self, positions: Iterable[int]) -> None:
    """Add positions."""
    self._buffer.extend(positions)
    if self._buffer:
      self.last = self._buffer[-1]
    if len(self._buffer) >= self._MANY:
      self._spill()

  def _spill(self) -> None:
    self._file = self._file or tempfile.TemporaryFile(dir=self._directory)
    self._buffer.tofile(self._file)
    self._buffer = array.array('q')

  def array(self) -> np.ndarray:
    """Return all positions, of a file as a memory map."""
    if not self._file:
      return np.frombuffer(self._buffer, np.int64) if self._buffer else np.zeros(0, np.int64)
    self._spill()
    self._file.flush()
    return np.memmap(self._file, np.int64, 'r')


class Labels(Sequence[str]):
  """Document labels; without labels they take no memory."""

  def __init__(self) -> None:
    self._labels: list[str] = []
    self._unlabelled = 0  # documents before the first with a label

  def append(self, label: str) -> None:
    """Add the next document's label, '' for none."""
    if label or self._labels:
      self._labels.append(label)
    else:
      self._unlabelled += 1

  def __len__(self) -> int:
    return self._unlabelled + len(self._labels)

  def __getitem__(self, index: Any) -> Any:
    return [*itertools.repeat('', self._unlabelled), *self._labels][index]

  def __iter__(self) -> Iterator[str]:
    return itertools.chain(itertools.repeat('', self._unlabelled), self._labels)

  def labelled(self) -> tuple[int, list[str]]:
    """Return (number of documents before the first with a label, the labels from there on)."""
    return self._unlabelled, self._labels


class Writer:
  """Writer of a split's tokens, from its documents in order.

  With a tokenizer of a folder of transformers, a document of `rows` or with a label also gets the end-of-text id if its
  text itself ends with that token, because the batchings of rows remove one.
  """

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
    rows: bool = False,
  ):
    self.dtype = np.min_scalar_type(tokenizer.id_bound - 1).newbyteorder('<')
    self.sums = token_file.Checksums()
    self.labels = Labels()
    self.token_labels: list[str] | None = [] if token_labels else None
    self._predicates = predicates
    self._lengths: list[int] = []  # tokens per word of the document, if words have labels and are split into subwords
    self._name, self._file, self._tokenizer, self._line_words = name, file, tokenizer, line_words
    folder = os.path.dirname(file.name) if isinstance(getattr(file, 'name', None), str) else None
    self._offsets = Positions(folder, 0)
    self._sentences = Positions(folder) if sentences else None
    self._size, self._last = 0, -1
    self._rows, self._may_repeat = rows, tokenizer.of_folder and not tokenizer.ends_lines
    self._counts = dict.fromkeys(('words', 'characters', 'bytes'), 0)

  def add(self, text: str, sentence_ids: Sequence[np.ndarray]) -> None:
    """Add a document, or a part of one: its text and the ids of its sentences."""
    self._lengths = [ids.size for ids in sentence_ids]
    filled = [ids for ids in sentence_ids if ids.size]
    if filled:
      if self._sentences is not None:
        self._sentences.extend(itertools.accumulate((ids.size for ids in filled[:-1]), initial=self._size))
      self._write(np.concatenate(filled))
    self._counts['words'] += len(text.split()) + (text.count('\n') if self._line_words else 0)
    self._counts['characters'] += len(text)
    self._counts['bytes'] += len(text.encode('utf-8', 'surrogateescape'))

  def end_document(self, label: str) -> None:
    """Close the document with the end-of-text id, unless it already ends with it (but see `Writer`).

    Args:
      label: label of the document; for word labels, the labels separated by spaces, after the predicate's index for
        semantic roles.
    """
    if self.token_labels is not None:
      words = label.split()
      label = words.pop(0) if self._predicates else ''
      count = self._size - self._offsets.last if self._tokenizer.kind == 'words' else len(self._lengths)
      if len(words) != count:
        raise InputError(
          f'split {self._name}, document {len(self.labels)}: got {len(words)} labels; expected {count}, '
          'one for each word'
        )
      if self._tokenizer.kind != 'words':  # the first subword has the label of its word
        words = [
          token_label for word, n in zip(words, self._lengths, strict=True) for token_label in (word, *[''] * (n - 1))
        ]
      self.token_labels += words
    side = self._tokenizer.target if len(self.labels) % 2 else self._tokenizer  # of pairs
    eos = side.eos_id
    repeats = self._may_repeat and (self._rows or label)
    if eos is not None and (repeats or self._last != eos or self._offsets.last == self._size):
      if self._sentences is not None and self._offsets.last == self._size:
        self._sentences.extend([self._size])
      self._write(np.asarray([eos]))
      if self.token_labels is not None:
        self.token_labels.append('')
    self._offsets.extend([self._size])
    self.labels.append(label)

  def arrays(self, *, without_first_sentence: bool = False) -> dict[str, np.ndarray]:
    """Return a split part's arrays for `join`, except its tokens."""
    sentences = self._sentences.array() if self._sentences else np.zeros(0, np.int64)
    unlabelled, labels = self.labels.labelled()
    return {
      'offsets': self._offsets.array()[1:],
      'sentences': sentences[1:] if without_first_sentence and sentences.size else sentences,
      'unlabelled': np.asarray(unlabelled),
      'labels': np.asarray(labels, np.str_),
      'counts': np.asarray(list(self._counts.values())),
    }

  def join(self, tokens: str, part: Mapping[str, np.ndarray]) -> None:
    """Add a part that another writer wrote: the path of its tokens, and its `arrays`."""
    base = self._size
    with open(tokens, 'rb') as file:
      while block := file.read(token_file.BLOCK):
        self._file.write(block)
        self.sums.update(block)
        self._size += len(block) // self.dtype.itemsize
        self._last = int(np.frombuffer(block[-self.dtype.itemsize :], self.dtype)[0])
    self._offsets.extend((part['offsets'] + base).tolist())
    if self._sentences is not None:
      self._sentences.extend((part['sentences'] + base).tolist())
    for label in itertools.chain(itertools.repeat('', int(part['unlabelled'])), part['labels'].tolist()):
      self.labels.append(label)
    for name, count in zip(self._counts, part['counts'].tolist(), strict=True):
      self._counts[name] += count

  def split(self, tokens: np.ndarray, labels: np.ndarray | None, token_labels: np.ndarray | None = None) -> Split:
    """Return the finished split with its tokens and labels as arrays."""
    offsets, starts = self._offsets.array(), None
    if self._sentences is not None:
      self._sentences.extend([self._size])
      starts = self._sentences.array()
    words = self._size if self._tokenizer.kind == 'words' else self._counts['words']
    counts = {'tokens': self._size, **self._counts, 'words': words, 'documents': len(offsets) - 1}
    return Split(self._name, tokens, offsets, starts, labels, counts, token_labels)

  def _write(self, ids: np.ndarray) -> None:
    if ids.max() >= self._tokenizer.id_bound or ids.min() < 0:
      raise InputError(
        f'split {self._name}: got token id {ids.max()}; expected ids below {self._tokenizer.id_bound}, '
        'the size of the vocabulary'
      )
    block = ids.astype(self.dtype).tobytes()
    self._file.write(block)
    self.sums.update(block)
    self._size += ids.size
    self._last = int(ids[-1])
