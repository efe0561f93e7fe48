"""Interface of all tokenizers: text to ids and back."""

from __future__ import annotations

import abc
import collections
import copy
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx.errors import InputError

FILE = 'vocabulary.json'
_SPACES = (' ', 'Ġ')  # printed forms of a token that is a space


def digest(content: Any) -> str:
  """Return the SHA-256 (hex) of the canonical JSON of a tokenizer's content."""
  return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class RowTemplate(NamedTuple):
  """Special tokens and token types of a row of texts.

  Attributes:
    ids: ids of the special tokens before the first text, between two texts and after the last: one tuple more than
      texts.
    types: token types of these special tokens.
    texts: token type of each text.
  """

  ids: tuple[tuple[int, ...], ...]
  types: tuple[tuple[int, ...], ...]
  texts: tuple[int, ...]

  @property
  def special(self) -> int:
    """Number of special tokens of a row."""
    return sum(map(len, self.ids))

  def row(self, *texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of a row and their token types, int32."""
    ids, types = [*map(np.asarray, self.ids[:1])], [*self.types[0]]
    for text, kind, after, after_types in zip(texts, self.texts, self.ids[1:], self.types[1:], strict=True):
      ids += [text, np.asarray(after)]
      types += [*[kind] * len(text), *after_types]
    return np.concatenate(ids).astype(np.int32), np.asarray(types, np.int32)


def row_template(ids: Sequence[tuple[int, ...]], types: Sequence[Sequence[int]] = (), last: int = 0) -> RowTemplate:
  """Return a template; `types` default to 0, and `last` is the type of the second text."""
  types = types or [[0] * len(group) for group in ids]
  return RowTemplate(tuple(ids), tuple(map(tuple, types)), (0, last)[: len(ids) - 1] + (0,) * (len(ids) - 3))


class Tokenizer(abc.ABC):
  """Conversion of text to ids and back.

  Attributes:
    kind: one of KINDS.
    vocab_size: ids are 0 .. vocab_size - 1.
    pad_id, unk_id, eos_id, bos_id, cls_id, sep_id, mask_id, eop_id: ids of the special tokens, None if absent.
      eos_id ends a document (XLNet's <eod>), eop_id a paragraph.
    space_first: a text is encoded as if a space preceded it, so its first word is encoded like any other.
    ends_lines: a line end is encoded as EOS.
    has_spans: `encode_spans` has the offsets of its tokens.
    is_separate: source and target ids are of two vocabularies, so this is the source's tokenizer.
    templates: rows of one text and of two that imported weights read; () if the model and the data determine them.
    of_folder: read from a folder of transformers, so a text may itself end with EOS.
  """

  kind: str
  vocab_size: int
  pad_id: int | None = None
  unk_id: int | None = None
  eos_id: int | None = None
  bos_id: int | None = None
  cls_id: int | None = None
  sep_id: int | None = None
  mask_id: int | None = None
  eop_id: int | None = None
  space_first: bool = False
  ends_lines: bool = False
  has_spans: bool = True
  templates: tuple[RowTemplate, ...] = ()
  of_folder: bool = False
  _target: Tokenizer | None = None

  @abc.abstractmethod
  def encode(self, text: str) -> np.ndarray:
    """Return the ids of `text`, int32, without special tokens, except `<eos>` at line ends under that rule."""

  @abc.abstractmethod
  def decode(self, ids: Iterable[int]) -> str:
    """Return the text of `ids`. Raises InputError for an id outside the vocabulary."""

  @abc.abstractmethod
  def id_to_token(self, index: int) -> str:
    """Return the printable form of one token."""

  def spellings(self) -> list[bytes]:
    """Return the bytes that spell each token, for models that read characters (data.characters).

    Raises:
      InputError: tokens of this kind have no characters.
    """
    raise InputError(
      f'data.tokenizer: got "{self.kind}" with data.characters; expected "words" or subwords, such as "bpe"'
    )

  @abc.abstractmethod
  def content(self) -> dict[str, Any]:
    """Return everything that determines encode and decode, JSON-serialisable."""

  def encode_spans(self, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of `text` and each token's (start, end) offsets: int32 (T,) and (T, 2), in code points.

    Raises:
      InputError: tokenizers of this kind have no offsets.
    """
    raise InputError(f'data.tokenizer: got "{self.kind}", which has no offsets; expected "words", "wordpiece" or "bpe"')

  def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
    """Return `encode` of each text."""
    return [self.encode(text) for text in texts]

  def encode_pairs(self, texts: Sequence[str]) -> list[np.ndarray]:
    """Return the ids of each text; every second text translates the previous one."""
    ids: list[Any] = [None] * len(texts)
    ids[::2], ids[1::2] = self.encode_batch(texts[::2]), self.target.encode_batch(texts[1::2])
    return ids

  def ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
    """Return `id_to_token` of each id."""
    return [self.id_to_token(i) for i in self._check_ids(ids)]

  def starts_word(self, ids: np.ndarray, *, joins_space: bool = False) -> np.ndarray:
    """Return for each of `ids` (1-D) whether the token starts a word, as bool; a special token is a word.

    A token that is only a space, such as a lone `Ġ`, is a word too; with `joins_space` it begins the word after it.
    """
    row = np.asarray(ids, np.int64)
    if row.size and (row.min() < 0 or row.max() >= self.vocab_size):
      self._check_ids(row.tolist())
    begins, ends = self._word_tables
    starts, follows = begins[row], ends[row[:-1]]
    if joins_space:
      follows &= ~self._space_table[row[:-1]]
    starts[1:] |= follows
    starts[:1] = True
    return starts

  @property
  def target(self) -> Tokenizer:
    """The target tokenizer, if it differs from the source's (`with_target`, `marian.Marian`)."""
    return self._target or self

  @property
  def is_separate(self) -> bool:
    return self._target is not None

  def with_target(self, target: Tokenizer) -> Tokenizer:
    """Return this tokenizer as the source's, with another vocabulary for the target."""
    source = copy.copy(self)
    source.__dict__.pop('hash', None)
    source._target = target
    return source

  def with_templates(self, templates: tuple[RowTemplate, ...]) -> Tokenizer:
    """Return this tokenizer with the rows of imported weights."""
    other = copy.copy(self)
    other.__dict__.pop('hash', None)
    other.templates = templates
    return other

  def from_folder(self) -> Tokenizer:
    """Return this tokenizer with `of_folder`."""
    other = copy.copy(self)
    other.__dict__.pop('hash', None)
    other.of_folder = True
    return other

  def with_rows_of(self, source: Tokenizer) -> Tokenizer:
    """Return this tokenizer with `templates` and `of_folder` of another."""
    other = self.with_templates(source.templates)
    return other.from_folder() if source.of_folder else other

  def template(self, texts: int) -> RowTemplate:
    """Return the imported row of `texts` texts; raise InputError if the weights read no such row."""
    if not self.templates:
      raise InputError(
        'data.batching.form: got "template"; expected the tokenizer of imported weights with its own rows'
      )
    if texts > len(self.templates):
      reason = 'versions 4 and 5 of transformers add other tokens to two by add_bos_token in tokenizer_config.json'
      raise InputError(f'data.texts: got rows of {texts} texts; expected {len(self.templates)}, because {reason}')
    return self.templates[texts - 1]

  def around(self, default: tuple[Mapping[str, int], Mapping[str, int]]) -> RowTemplate:
    """Return the row of one text as a model reads it in pre-training, or as imported weights read it.

    Args:
      default: attributes of the special tokens before and after a text, with their types (`SPECIAL_TOKENS` of a model).
    """
    if self.templates:
      return self.templates[0]
    known = [[(i, kind) for name, kind in side.items() if (i := getattr(self, name)) is not None] for side in default]
    return row_template([tuple(i for i, _ in side) for side in known], [[kind for _, kind in side] for side in known])

  @property
  def start_id(self) -> int | None:
    """Id of the token with which a decoder begins a translation."""
    return self.target.eos_id

  @property
  def id_bound(self) -> int:
    """Exclusive upper bound of all source and target ids."""
    return max(self.vocab_size, self.target.vocab_size)

  @property
  def proper(self) -> Tokenizer:
    """The tokenizer of only the vocabulary, if further words only have characters (`words.Words`)."""
    return self

  @functools.cached_property
  def hash(self) -> str:
    """Digest of everything that determines encode and decode."""
    return digest(self._record())

  def _record(self) -> dict[str, Any]:
    """Return the content of the tokenizer's file: `content`, `of_folder`, and another vocabulary's as `target`."""
    content = self.content() | ({'of_folder': True} if self.of_folder else {})
    return content | ({'target': self._target.content()} if self._target else {})

  def save(self, directory: str) -> list[str]:
    """Write the tokenizer's files and return their names."""
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, FILE), 'w', encoding='utf-8') as file:
      json.dump(self._record(), file, sort_keys=True)
    return [FILE]

  @functools.cached_property
  def _word_tables(self) -> tuple[np.ndarray, np.ndarray]:
    """Return bool tables indexed by id: the token starts a word; the next token starts a word."""
    special = {i for i in (self.unk_id, self.eos_id) if i is not None}
    texts = [self.id_to_token(i) for i in range(self.vocab_size)]
    begins = [i in special or text[:1].isspace() for i, text in enumerate(texts)]
    ends = [i in special or text[-1:].isspace() for i, text in enumerate(texts)]
    return np.asarray(begins), np.asarray(ends)

  @functools.cached_property
  def _space_table(self) -> np.ndarray:
    """Return a bool table indexed by id: the token is only a space."""
    return np.asarray([self.id_to_token(i) in _SPACES for i in range(self.vocab_size)])

  def _check_ids(self, ids: Iterable[int]) -> list[int]:
    ids = [int(i) for i in ids]
    for i in ids:
      if not 0 <= i < self.vocab_size:
        raise InputError(
          f'token id: got {i}; expected below {self.vocab_size}, the size of the vocabulary of {self.kind}'
        )
    return ids


class Absent(Tokenizer):
  """Placeholder for the tokenizer of a model that was imported without one; it has only a size."""

  kind = 'none'

  def __init__(self, vocab_size: int):
    self.vocab_size = vocab_size

  def encode(self, text: str) -> np.ndarray:
    raise self._error()

  def decode(self, ids: Iterable[int]) -> str:
    raise self._error()

  def id_to_token(self, index: int) -> str:
    raise self._error()

  def content(self) -> dict[str, Any]:
    return {'kind': self.kind, 'vocab_size': self.vocab_size}

  def _error(self) -> InputError:
    return InputError(
      'this model was imported with --tokenizer=none, so it reads and writes no text; import it from a '
      'folder with the files of its tokenizer'
    )


def by_frequency(counts: collections.Counter[str]) -> list[str]:
  """Return the tokens by decreasing frequency, ties by code points."""
  return [token for token, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
