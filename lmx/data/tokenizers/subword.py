"""Subword tokenizers around models of the `tokenizers` library (lmx/data/tokenizers/subword_models.py)."""

from __future__ import annotations

import functools
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers as hf

from lmx.data.tokenizers import subword_models, word_cache, words
from lmx.data.tokenizers.base import Tokenizer
from lmx.errors import InputError, InputWarning

_BYTE = re.compile('<0x([0-9A-F]{2})>')
_SPECIAL = b'\xff'  # never occurs in UTF-8
_MANY = 100_000  # characters of a batch that is encoded by words


class _Subwords(Tokenizer):
  """A `tokenizers` tokenizer; lone surrogates in a text are encoded as U+FFFD.

  Args:
    model: model of the library.
    special: role -> name of the special tokens whose names differ from the kind's defaults, such as {'pad': '<pad>'}.
    special_in_text: special tokens in a text are special tokens, as in transformers; else they are text.
  """

  def __init__(self, model: hf.Tokenizer, special: Mapping[str, str] | None = None, *, special_in_text: bool = False):
    self._model = model
    self.special, self.special_in_text = dict(special or {}), special_in_text
    self._model.encode_special_tokens = not special_in_text
    self._model.no_padding()
    self._model.no_truncation()
    self.vocab_size = 1 + max(model.get_vocab(with_added_tokens=True).values(), default=-1)  # some ids may be unused
    cleaned = model.normalizer.normalize_str('x') if model.normalizer else 'x'
    self.space_first = cleaned[:1] in (' ', subword_models.SPACE)

  def encode(self, text: str) -> np.ndarray:
    return np.asarray(self._model.encode(_replace_surrogates(text), add_special_tokens=False).ids, np.int32)

  def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
    encodings = self._model.encode_batch_fast([_replace_surrogates(text) for text in texts], add_special_tokens=False)
    return [np.asarray(e.ids, np.int32) for e in encodings]

  def encode_spans(self, text: str) -> tuple[np.ndarray, np.ndarray]:
    encoding = self._model.encode(_replace_surrogates(text), add_special_tokens=False)
    return np.asarray(encoding.ids, np.int32), np.asarray(encoding.offsets, np.int32).reshape(-1, 2)

  def decode(self, ids: Iterable[int]) -> str:
    return self._model.decode(self._check_ids(ids), skip_special_tokens=False)

  def id_to_token(self, index: int) -> str:
    return self._model.id_to_token(index) or ''  # an id that the vocabulary skips

  @property
  def post_processor(self) -> Any:
    """The post-processor of the model's file, which `encode` does not apply; None if there is none."""
    return self._model.post_processor

  def token_id(self, name: str) -> int | None:
    """Return the id of a token, None if it is not in the vocabulary."""
    return self._model.token_to_id(name)

  def spellings(self) -> list[bytes]:
    """Return the bytes that spell each token; no two tokens have the same.

    A space before or after a subword is the byte 32, whatever its symbol (`Ġ`, `▁`, `</w>`). WordPiece's `##` is two
    bytes. A special token is the byte 255, which is not in UTF-8, and its name.
    """
    special = _special(self._model)
    texts = [self.id_to_token(i) for i in range(self.vocab_size)]
    return [_SPECIAL + text.encode() if text in special else self._spelling(text) for text in texts]

  def _spelling(self, token: str) -> bytes:
    """Return the bytes of an ordinary token."""
    return token.encode()

  def with_model(self, model: hf.Tokenizer) -> Tokenizer:
    """Return the tokenizer of another model, with its other settings."""
    return type(self)(model, self.special, special_in_text=self.special_in_text)

  def content(self) -> dict[str, Any]:
    content: dict[str, Any] = {'kind': self.kind, 'model': json.loads(self._model.to_str())}
    content |= {'special': self.special} if self.special else {}
    content |= {'templates': self.templates} if self.templates else {}
    return content | ({'special_in_text': True} if self.special_in_text else {})


def _replace_surrogates(text: str) -> str:
  """Return the text with lone surrogates replaced, which UTF-8 cannot encode."""
  return subword_models.SURROGATE.sub('\ufffd', text)


def with_special(tokenizer: Tokenizer, names: Sequence[str]) -> Tokenizer:
  """Return the tokenizer with further special tokens after its own tokens; those that it already has keep their ids.

  Raises:
    InputError: the tokenizer has no subwords, or a name is already an ordinary token.
  """
  if not isinstance(tokenizer, _Subwords):
    raise InputError(f'data.special_tokens: got data.tokenizer "{tokenizer.kind}"; expected a subword tokenizer')
  model = hf.Tokenizer.from_str(tokenizer._model.to_str())
  special = _special(model)
  taken = [name for name in names if model.token_to_id(name) is not None and name not in special]
  if taken or len(set(names)) < len(names):
    raise InputError(
      f'data.special_tokens: got {", ".join(taken or names)}; expected names that are not in the vocabulary'
    )
  model.add_special_tokens(list(names))
  return tokenizer.with_model(model).with_rows_of(tokenizer)


def _special(model: hf.Tokenizer) -> set[str]:
  """Return the names of a model's special tokens."""
  return {token.content for token in model.get_added_tokens_decoder().values() if token.special}


def _end_of_text(model: hf.Tokenizer, name: str = subword_models.END_OF_TEXT) -> int:
  """Return the id of a BPE's end-of-text token."""
  index = model.token_to_id(name)
  if index is None:
    raise InputError(f'the BPE vocabulary has no {name}')
  return index


class Bpe(_Subwords):
  """GPT-2's byte-level BPE; `<|endoftext|>` ends a document and also starts a text to generate.

  A byte that is not UTF-8, such as where a byte stream is split inside a character, is a surrogate in the text, as with
  Python's `surrogateescape`. It is a separate token. A vocabulary that prepends a space to a text (`space_first`) also
  adds one after such a byte. `<pad>`, `<cls>`, `<sep>` and `<mask>` of `data.special_tokens` have these roles.
  """

  kind = 'bpe'

  def __init__(self, model: hf.Tokenizer, special: Mapping[str, str] | None = None, *, special_in_text: bool = False):
    super().__init__(model, special, special_in_text=special_in_text)
    self.eos_id, self.bos_id = (
      _end_of_text(model, self.special.get(role, subword_models.END_OF_TEXT)) for role in ('eos', 'bos')
    )
    self.pad_id, self.cls_id, self.sep_id, self.mask_id = (
      model.token_to_id(self.special.get(role, f'<{role}>')) for role in ('pad', 'cls', 'sep', 'mask')
    )
    if model.pre_tokenizer and not self.space_first:
      self.space_first = model.pre_tokenizer.pre_tokenize_str('x')[0][0] == 'Ġx'

  def encode(self, text: str) -> np.ndarray:
    return self.encode_batch([text])[0]

  def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
    if sum(map(len, texts)) < _MANY or self._words is None:
      return self._encode_by_library(texts)
    by_words = [self._words.knows(text) for text in texts]
    of_words = iter(self._words.encode([text for text, known in zip(texts, by_words, strict=True) if known]))
    others = iter(self._encode_by_library([text for text, known in zip(texts, by_words, strict=True) if not known]))
    return [next(of_words if known else others) for known in by_words]

  @functools.cached_property
  def _words(self) -> word_cache.WordCache | None:
    """The encoder by words; None if the model does more than GPT-2's, such as lower-casing."""
    default = hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    splits = [json.loads(one.__getstate__()) for one in (self._model.pre_tokenizer, default) if one]
    added = self._model.get_added_tokens_decoder().values()
    plain = len(splits) == 2 and splits[0] == splits[1] and not self._model.normalizer
    if not plain or self.special_in_text or not all(token.special for token in added):
      return None
    encode = lambda found: [e.ids for e in self._model.encode_batch_fast(found, add_special_tokens=False)]
    return word_cache.WordCache(*word_cache.byte_level(), encode)

  def _encode_by_library(self, texts: Sequence[str]) -> list[np.ndarray]:
    parts = [subword_models.LONE_BYTE.split(text) for text in texts]
    whole = iter(super().encode_batch([part for text in parts for part in text[::2]]))
    ids_by_text = [[next(whole) if n % 2 == 0 else self._byte(part) for n, part in enumerate(text)] for text in parts]
    return [ids[0] if len(ids) == 1 else np.concatenate(ids) for ids in ids_by_text]

  def _spelling(self, token: str) -> bytes:
    return b''.join(self._bytes.get(character) or character.encode() for character in token)

  @functools.cached_property
  def _bytes(self) -> dict[str, bytes]:
    """The byte of each of GPT-2's printable forms."""
    others = {subword_models.printable(byte): bytes([byte]) for byte in range(128, 256)}
    return {chr(byte if byte > 32 else 256 + byte): bytes([byte]) for byte in range(127)} | {'ġ': b'\x7f'} | others

  def _byte(self, lone: str) -> np.ndarray:
    return np.asarray([self._model.token_to_id(subword_models.printable(ord(lone) - 0xDC00))], np.int32)

  @functools.cached_property
  def _word_tables(self) -> tuple[np.ndarray, np.ndarray]:
    spaces = {*'ĠĊĉč'}  # GPT-2's printable forms of space, line feed, tab, carriage return
    texts = [self.id_to_token(i) for i in range(self.vocab_size)]
    begins = [i == self.eos_id or text[:1] in spaces for i, text in enumerate(texts)]
    ends = [i == self.eos_id or text[-1:] in spaces for i, text in enumerate(texts)]
    return np.asarray(begins), np.asarray(ends)


class GptBpe(_Subwords):
  """GPT's BPE (Radford et al. 2018, section 4.1): characters merged within words; the last subword ends with `</w>`.

  Text is lower-cased and split at white space and punctuation, so decoding returns words separated by spaces.
  Characters that no subword covers are `<unk>`. There is no end-of-text token.
  """

  kind = 'gpt_bpe'

  def __init__(self, model: hf.Tokenizer, special: Mapping[str, str] | None = None, *, special_in_text: bool = False):
    super().__init__(model, special, special_in_text=special_in_text)
    self.unk_id = model.token_to_id('<unk>')
    if self.unk_id is None:
      raise InputError(f'the vocabulary of {self.kind} has no <unk>')

  def _spelling(self, token: str) -> bytes:
    word = token.removesuffix(subword_models.WORD_END)
    return word.encode() + b' ' * (word != token)

  @functools.cached_property
  def _word_tables(self) -> tuple[np.ndarray, np.ndarray]:
    texts = [self.id_to_token(i) for i in range(self.vocab_size)]
    alone = np.asarray([i == self.eos_id for i in range(self.vocab_size)])
    return alone, alone | np.asarray([text.endswith(subword_models.WORD_END) for text in texts])


class WordBpe(GptBpe):
  """BPE of machine translation (Sennrich et al. 2016, section 3.2): characters merged within words and punctuation.

  A word's last subword ends with `</w>`. So the end of a compound is the same subword as the word on its own, unlike
  with marked word starts (`Bpe`). Decoding writes prose. Characters that no subword covers are `<unk>`;
  `<|endoftext|>` ends a text.
  """

  kind = 'word_bpe'

  def __init__(self, model: hf.Tokenizer, special: Mapping[str, str] | None = None, *, special_in_text: bool = False):
    super().__init__(model, special, special_in_text=special_in_text)
    self.eos_id = self.bos_id = _end_of_text(model)

  def decode(self, ids: Iterable[int]) -> str:
    return words.join(super().decode(ids).split(' '))


class Unigram(_Subwords):
  """SentencePiece's Unigram model, trained by lmx or read from XLNet.

  A vocabulary trained by lmx encodes characters that no subword covers as bytes. Decoding then returns the text, except
  U+2581, which represents a space. Its end of text is `<|endoftext|>`, or `<eod>` if it has XLNet's special tokens. A
  vocabulary of XLNet's authors or of transformers has its own normalization.

  Args:
    model: see `_Subwords`.
    special: see `_Subwords`.
    split_commas: encode a subword of a number with its comma again without it (zihangdai/xlnet, prepro_utils.py).
    special_in_text: see `_Subwords`.
  """

  kind = 'unigram'

  def __init__(
    self,
    model: hf.Tokenizer,
    special: Mapping[str, str] | None = None,
    split_commas: bool = False,
    *,
    special_in_text: bool = False,
  ):
    super().__init__(model, special, special_in_text=special_in_text)
    self.split_commas = split_commas
    self._special_names = _special(model)
    special_id = lambda name: model.token_to_id(name) if name in self._special_names else None
    unknown = model.token_to_id('<unk>')
    ends = (special_id(name) for name in (subword_models.END_OF_TEXT, '<eod>'))
    self.eos_id = self.bos_id = next((i for i in ends if i is not None), None)
    if self.eos_id is None or unknown is None:
      raise InputError(
        f'the Unigram vocabulary has no special token {subword_models.END_OF_TEXT} or <eod>, or no <unk>'
      )
    self.unk_id: int = unknown
    self.cls_id, self.sep_id, self.pad_id, self.mask_id, self.eop_id = map(
      special_id, ('<cls>', '<sep>', '<pad>', '<mask>', '<eop>')
    )

  def with_model(self, model: hf.Tokenizer) -> Tokenizer:
    return type(self)(model, self.special, self.split_commas, special_in_text=self.special_in_text)

  def content(self) -> dict[str, Any]:
    return super().content() | ({'split_commas': True} if self.split_commas else {})

  def encode(self, text: str) -> np.ndarray:
    return self._without_commas(super().encode(text))[0]

  def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
    return [self._without_commas(ids)[0] for ids in super().encode_batch(texts)]

  def _without_commas(self, ids: np.ndarray, spans_T2: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids and offsets with commas split off numbers."""
    spans_T2 = np.zeros((len(ids), 2), np.int32) if spans_T2 is None else spans_T2
    places = [i for i, token in enumerate(ids.tolist()) if token in self._parts] if self._parts else []
    for i in reversed(places):
      parts, widths = self._parts[int(ids[i])]
      start, end = spans_T2[i]
      edges = start + np.cumsum([0, *widths]) if end - start == sum(widths) else np.full(len(parts) + 1, start)
      spans = np.stack([edges[:-1], edges[1:] if edges[-1] > start else np.full(len(parts), end)], axis=1)
      spans[0, 1] = max(spans[0, 1], min(start + 1, end))  # the symbol of a space has the first character's offsets
      ids = np.concatenate([ids[:i], np.asarray(parts, np.int32), ids[i + 1 :]])
      spans_T2 = np.concatenate([spans_T2[:i], spans.astype(np.int32), spans_T2[i + 1 :]])
    return ids, spans_T2

  @functools.cached_property
  def _parts(self) -> dict[int, tuple[list[int], list[int]]]:
    """Return (ids of its parts, their lengths in characters) for each subword of a number with a comma."""
    found: dict[int, tuple[list[int], list[int]]] = {}
    for index in range(self.vocab_size) if self.split_commas else ():
      subword = self.id_to_token(index)
      if len(subword) < 2 or subword[-1] != ',' or not subword[-2].isdigit():
        continue
      number = super().encode(subword[:-1].replace(subword_models.SPACE, ''))
      parts = [self.id_to_token(i) for i in number.tolist()]
      if subword[0] != subword_models.SPACE and parts[0][0] == subword_models.SPACE:
        parts = parts[1:] if parts[0] == subword_models.SPACE else [parts[0][1:], *parts[1:]]
      ids = [self._model.token_to_id(part) for part in [*parts, ',']]
      widths = [len(part.replace(subword_models.SPACE, '')) for part in [*parts, ',']]
      found[index] = ([self.unk_id if i is None else i for i in ids], widths)
    return found

  def encode_spans(self, text: str) -> tuple[np.ndarray, np.ndarray]:
    ids, spans_T2 = self._without_commas(*super().encode_spans(text))
    bytes_T = self._bytes[ids]
    # The library gives each byte in a run of uncovered characters the offsets of the whole run.
    changes = np.any(spans_T2[1:] != spans_T2[:-1], axis=1) | (bytes_T[1:] < 0) | (bytes_T[:-1] < 0)
    edges = [0, *(np.flatnonzero(changes) + 1), len(ids)]
    for first, last in zip(edges[:-1], edges[1:], strict=True):
      start, end = spans_T2[first] if last - first > 1 else (0, 0)
      if end - start > 1:
        run = bytes(bytes_T[first:last].tolist())
        at_T = start + self._characters_of(run, _replace_surrogates(text)[start:end])
        spans_T2[first:last] = np.stack([at_T, at_T + 1], axis=1) if len(at_T) else spans_T2[first:last]
    return ids, spans_T2

  def _characters_of(self, run: bytes, text: str) -> np.ndarray:
    """Return for each byte of a run the index of its character in `text`; the run covers all of its characters.

    The first and the last character may be partly in other tokens: a lower-cased `İ` is the subword `i` and two bytes.
    If the tokenizer normalises characters in context the array is empty, with a warning.
    """
    parts = [self._normalized(character).encode() for character in text]
    whole = b''.join(parts)
    start = whole.find(run)
    if not 0 <= start < len(parts[0]) or start + len(run) <= len(whole) - len(parts[-1]):
      warnings.warn(
        'the tokenizer normalises characters in context, so bytes have the offsets of a run of characters '
        f'and answers in such runs are too long: "{text}"',
        InputWarning,
        stacklevel=4,
      )
      return np.zeros(0, np.int64)
    return np.repeat(np.arange(len(parts)), list(map(len, parts)))[start : start + len(run)]

  def _normalized(self, character: str) -> str:
    """Return a character's normalised form away from the start of the text."""
    normalize = self._model.normalizer.normalize_str if self._model.normalizer else str
    return normalize('x' + character).removeprefix(normalize('x'))

  def _spelling(self, token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    return _SPECIAL + bytes([int(byte[1], 16)]) if byte else token.replace(subword_models.SPACE, ' ').encode()

  @functools.cached_property
  def _bytes(self) -> np.ndarray:
    """Return the byte of each id, -1 for other tokens."""
    matches = (_BYTE.fullmatch(self.id_to_token(i)) for i in range(self.vocab_size))
    return np.asarray([int(byte[1], 16) if byte else -1 for byte in matches])

  @functools.cached_property
  def _word_tables(self) -> tuple[np.ndarray, np.ndarray]:
    alone = {*self._special_names, '<0x0A>', '<0x09>', '<0x0D>'}  # line feed, tab, carriage return
    texts = [self.id_to_token(i) for i in range(self.vocab_size)]
    ends = np.asarray([text in alone for text in texts])
    return ends | [text[:1] == subword_models.SPACE for text in texts], ends


class WordPiece(_Subwords):
  """BERT's WordPiece with [PAD] [UNK] [CLS] [SEP] [MASK]."""

  kind = 'wordpiece'

  def __init__(self, model: hf.Tokenizer, special: Mapping[str, str] | None = None, *, special_in_text: bool = False):
    super().__init__(model, special, special_in_text=special_in_text)
    names = [self.special.get(name[1:-1].lower(), name) for name in subword_models.BERT_SPECIALS]
    ids = [model.token_to_id(name) for name in names]
    missing = [name for name, i in zip(names, ids, strict=True) if i is None]
    if missing:
      raise InputError(f'the WordPiece vocabulary has no {", ".join(missing)}')
    self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = ids

  @functools.cached_property
  def _word_tables(self) -> tuple[np.ndarray, np.ndarray]:
    texts = [self.id_to_token(i) for i in range(self.vocab_size)]
    return np.asarray([not t.startswith('##') for t in texts]), np.zeros(self.vocab_size, bool)


CLASSES = {'bpe': Bpe, 'word_bpe': WordBpe, 'gpt_bpe': GptBpe, 'wordpiece': WordPiece, 'unigram': Unigram}
