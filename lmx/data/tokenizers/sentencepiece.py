"""SentencePiece files (Kudo & Richardson 2018, arXiv 1808.06226), and XLNet's tokenizer, read by SentencePiece itself.

XLNet's release (zihangdai/xlnet, prepro_utils.py) cleans a text before SentencePiece encodes it: white space, quotes,
NFKD, accents and case (`clean`). It splits the comma off a number's subword as its own token and encodes the rest again
(`encode_pieces`). Ids equal the release's.

`convert` writes the same vocabulary as a model of the `tokenizers` library, for tokenizer.json. Its ids differ on few
texts: the library's Unicode tables are older than Python's, it sums scores in another precision, and it cannot split
off a number's comma.
"""

from __future__ import annotations

import base64
import functools
import itertools
import pathlib
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece as library
import tokenizers as hf
from google.protobuf import message
from sentencepiece import sentencepiece_model_pb2

from lmx.data.tokenizers import subword_models
from lmx.data.tokenizers.subword import Unigram
from lmx.data.tokenizers.subword_models import SPACE, XLNET_SPECIALS
from lmx.errors import InputError, explain

FILE = 'spiece.model'
UNIGRAM = 1  # TrainerSpec.ModelType
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4  # SentencePiece.Type
# White space of Python's str.split; the tokenizers library and the character map know other characters.
_WHITE = r'[\x09-\x0d\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]'
_SYLLABLE = '\u1112\u1161'  # two letters that a map to NFKC composes
_CASED = r'[\p{Lu}\p{Ll}\p{Lt}]'
_FINAL_SIGMA = rf"(?<={_CASED})\u03a3(?!['.:\u00b7\u2019]*{_CASED})"  # Python's lower(), not the library's
_TRAINER = {'treat_whitespace_as_suffix': False, 'byte_fallback': False}  # options with which XLNet reads text
_NORMALIZER = dict.fromkeys(('add_dummy_prefix', 'remove_extra_whitespaces', 'escape_whitespaces'), True)


def parse(content: bytes, path: Any) -> Any:
  """Return the `ModelProto` in a file of name `path`; raise InputError if it is damaged or not a Unigram model."""
  proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # made when it is imported
  try:
    proto.ParseFromString(content)
  except (message.DecodeError, UnicodeDecodeError) as error:
    raise InputError(f'{path} is not a SentencePiece model, or damaged or truncated ({error})') from None
  unknown = proto.trainer_spec.unk_id
  if not proto.pieces or not 0 <= unknown < len(proto.pieces):
    raise InputError(f'{path} is not a SentencePiece model, or damaged: {len(proto.pieces)} subwords, unk_id {unknown}')
  if proto.trainer_spec.model_type != UNIGRAM:
    raise InputError(f'{path}: model_type: got {proto.trainer_spec.model_type}; expected {UNIGRAM}, Unigram')
  return proto


class File:
  """SentencePiece file, parsed once.

  Args:
    content: its content.
    path: its name in messages.

  Attributes:
    content: its content.
    proto: its `ModelProto`.

  Raises:
    InputError: it is damaged.
  """

  def __init__(self, content: bytes, path: Any = FILE):
    self.content, self.proto, self._path = content, parse(content, path), path

  @functools.cached_property
  def processor(self) -> Any:
    """Return SentencePiece's processor; raise InputError if the file is damaged."""
    try:
      return library.SentencePieceProcessor(model_proto=self.content)
    except (RuntimeError, OSError) as error:
      raise InputError(f'{self._path}: not a SentencePiece model ({explain(error)})') from None


def read(path: Any) -> File:
  """Read XLNet's file; raise InputError if it is missing, damaged or has other options."""
  try:
    content = pathlib.Path(path).read_bytes()
  except OSError as error:
    raise InputError(f'{path} cannot be read ({explain(error)})') from None
  file = File(content, path)
  specs = (file.proto.trainer_spec, _TRAINER), (file.proto.normalizer_spec, _NORMALIZER)
  for spec, options in specs:
    for name, expected in options.items():
      if (got := getattr(spec, name)) != expected:
        raise InputError(f'{path}: {name}: got {got}; expected {expected}, as in the release of XLNet')
  return file


def has_capitals(path: Any) -> bool:
  """Return True if a vocabulary is for text with capitals: some ordinary subword has one."""
  pieces = read(path).proto.pieces
  ordinary = (piece.piece for piece in pieces if piece.type not in (UNKNOWN, CONTROL, USER_DEFINED))
  return any(character.isupper() for subword in ordinary for character in subword)


def clean(text: str, lower_case: bool, keep_accents: bool) -> str:
  """Clean a text as XLNet's release does (`preprocess_text` of prepro_utils.py)."""
  text = ' '.join(text.split()).replace('``', '"').replace("''", '"')
  if not keep_accents:
    text = _without_accents(text)
  return text.lower() if lower_case else text


def _without_accents(text: str) -> str:
  return ''.join(c for c in unicodedata.normalize('NFKD', text) if not unicodedata.combining(c))


def clean_spans(text: str, lower_case: bool, keep_accents: bool) -> tuple[str, np.ndarray]:
  """Return `clean(text)` with offsets.

  Returns:
    (cleaned text, each character's start and end in `text`, (T, 2)).
  """
  words = [(match.start(), match.group()) for match in re.finditer(r'\S+', text)]
  split = [(start + i, character) for start, word in words for i, character in enumerate(f'{word} ')][:-1]
  joined, spans_T2 = ''.join(character for _, character in split), np.asarray([(i, i + 1) for i, _ in split], np.int64)
  spans_T2 = spans_T2.reshape(-1, 2)
  for quotes in ('``', "''"):
    first = np.asarray([match.start() for match in re.finditer(quotes, joined)], np.int64)
    spans_T2[first, 1] = spans_T2[first + 1, 1]
    joined, spans_T2 = joined.replace(quotes, '"'), np.delete(spans_T2, first + 1, axis=0)
  if not keep_accents:
    bare = [_without_accents(character) for character in joined]
    joined, spans_T2 = ''.join(bare), np.repeat(spans_T2, list(map(len, bare)), axis=0)
  if lower_case:
    spans_T2 = np.repeat(spans_T2, [len(character.lower()) for character in joined], axis=0)
    joined = joined.lower()
  return joined, spans_T2


class SentencePiece(Unigram):
  """XLNet's tokenizer around SentencePiece's processor.

  The model of the `tokenizers` library has the same ids; it decodes, and is written to tokenizer.json.

  Args:
    model: the vocabulary for the `tokenizers` library (`convert`), with its special tokens.
    special: see `Unigram`.
    file: the SentencePiece file.
    lower_case: lower-case the text, as for an uncased vocabulary.
    keep_accents: keep accents and composed characters.
    special_in_text: see `Unigram`.

  Raises:
    InputError: a token to be found in a text is a single word only.
  """

  def __init__(
    self,
    model: hf.Tokenizer,
    special: Mapping[str, str] | None = None,
    *,
    file: File,
    lower_case: bool = False,
    keep_accents: bool = False,
    special_in_text: bool = False,
  ):
    super().__init__(model, special, split_commas=True, special_in_text=special_in_text)
    self._file, self._options = file, {'lower_case': lower_case, 'keep_accents': keep_accents}
    self._processor = file.processor
    found = [t for t in model.get_added_tokens_decoder().values() if special_in_text or not t.special]
    if words := [token.content for token in found if token.single_word]:
      raise InputError(f'added token "{words[0]}": single_word: got true; expected false')
    names = sorted((token.content for token in found), key=len, reverse=True)
    self._split = re.compile(f'({"|".join(map(re.escape, names))})') if names else None
    spaced = [piece.piece for piece in file.proto.pieces if piece.type == USER_DEFINED and ' ' in piece.piece]
    self._spaced = re.compile('|'.join(map(re.escape, sorted(spaced, key=len, reverse=True)))) if spaced else None

  def with_model(self, model: hf.Tokenizer) -> SentencePiece:
    whole = self.special_in_text
    return SentencePiece(model, self.special, file=self._file, **self._options, special_in_text=whole)

  def content(self) -> dict[str, Any]:
    return super().content() | self._options | {'sentencepiece': base64.b64encode(self._file.content).decode()}

  def encode(self, text: str) -> np.ndarray:
    return self.encode_batch([text])[0]

  def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
    if self._split:
      return [self.encode_spans(text)[0] for text in texts]
    cleaned = [clean(subword_models.SURROGATE.sub('\ufffd', text), **self._options) for text in texts]
    rows = self._processor.EncodeAsIds(cleaned)
    return [
      self.encode_spans(text)[0] if self._changed.intersection(ids) else np.asarray(ids, np.int32)
      for text, ids in zip(texts, rows, strict=True)
    ]

  def encode_spans(self, text: str) -> tuple[np.ndarray, np.ndarray]:
    ids: list[int] = []
    spans: list[tuple[int, int]] = []
    offset = 0
    for i, part in enumerate(self._split.split(text) if self._split else [text]):
      found = [(self.token_id(part), (0, len(part)))] if i % 2 else self._encode_part(part)
      ids += [token for token, _ in found]  # type: ignore[misc]  # added tokens have ids
      spans += [(offset + start, offset + end) for _, (start, end) in found]
      offset += len(part)
    return np.asarray(ids, np.int32), np.asarray(spans, np.int32).reshape(-1, 2)

  def _encode_part(self, text: str) -> list[tuple[int, tuple[int, int]]]:
    """Return the ids of a text without added tokens, and their offsets (`encode_pieces` of prepro_utils.py).

    A subword of a number with its comma is encoded again without the comma. The symbol of a space has no width: it has
    the offsets of the character after the space.
    """
    cleaned, spans_T2 = clean_spans(subword_models.SURROGATE.sub('\ufffd', text), **self._options)
    spans_T2 = np.repeat(spans_T2, [len(character.encode()) for character in cleaned], axis=0)  # of each byte
    found: list[tuple[int, tuple[int, int]]] = []
    content, pieces = cleaned.encode(), self._processor.EncodeAsProto(cleaned).pieces
    for piece, (begin, end) in zip(pieces, self._bounds(cleaned, pieces), strict=True):
      start = end if piece.piece == SPACE else begin + content[begin:end].startswith(b' ')
      parts = self._parts_of(piece.piece) if _is_number_with_comma(piece.piece) else [piece.piece]
      widths = [len(part.replace(SPACE, '').encode()) for part in parts]
      is_aligned = len(parts) > 1 and sum(widths) == end - start
      for part, width in zip(parts, widths, strict=True):
        first = min(start, len(spans_T2) - 1)
        last = max(start + width if is_aligned else end, first + 1) - 1
        found.append((self._processor.PieceToId(part), (int(spans_T2[first, 0]), int(spans_T2[last, 1]))))
        start += width if is_aligned else 0
    return found

  def _bounds(self, text: str, pieces: Iterable[Any]) -> list[tuple[int, int]]:
    """Return each subword's first and end byte in a text.

    SentencePiece gives every character of a user symbol with a space the position of the first. Such a symbol is never
    a token, but its characters are not normalised.
    """
    symbols = list(self._spaced.finditer(text)) if self._spaced else []
    if not symbols:
      return [(piece.begin, piece.end) for piece in pieces]
    _, positions = self._processor.Normalize(text, with_offsets=True)
    for symbol in symbols:
      same = [i for i, position in enumerate(positions) if position == symbol.start()][-len(symbol[0]) :]
      if len(same) == len(symbol[0]):
        positions[same[0] : same[-1] + 1] = range(*symbol.span())
    ends = np.cumsum([0, *(len(piece.piece) for piece in pieces)])
    byte = np.cumsum([0, *(len(character.encode()) for character in text)])
    return [(int(byte[positions[a]]), int(byte[positions[b]])) for a, b in itertools.pairwise(ends)]

  @functools.lru_cache(maxsize=4096)  # noqa: B019, of few numbers
  def _parts_of(self, subword: str) -> list[str]:
    parts = self._processor.EncodeAsPieces(subword[:-1].replace(SPACE, ''))
    if subword[0] != SPACE and parts[0][0] == SPACE:
      parts = parts[1:] if parts[0] == SPACE else [parts[0][1:], *parts[1:]]
    return [*parts, subword[-1]]

  @functools.cached_property
  def _changed(self) -> frozenset[int]:
    """Ids of subwords that may be encoded again, depending on their text."""
    numbers = (i for i in range(self._processor.GetPieceSize()) if _is_number_with_comma(self._processor.IdToPiece(i)))
    return frozenset(numbers) | {self.unk_id}


def _is_number_with_comma(subword: str) -> bool:
  return len(subword) > 1 and subword[-1] == ',' and subword[-2].isdigit()


def convert(file: File, *, lower_case: bool = False, keep_accents: bool = False) -> hf.Tokenizer:
  """Return a file's vocabulary as a `tokenizers` model, with XLNet's special tokens marked as such.

  Args:
    file: the file.
    lower_case: lower-case the text first, as for an uncased vocabulary.
    keep_accents: keep accents and composed characters.

  Raises:
    InputError: the character map changes the case, or composes characters whose accents are kept.
  """
  proto = file.proto
  vocabulary = [(piece.piece, piece.score) for piece in proto.pieces]
  model = hf.Tokenizer(hf.models.Unigram(vocabulary, unk_id=proto.trainer_spec.unk_id, byte_fallback=False))
  replace = lambda pattern, text: hf.normalizers.Replace(hf.Regex(pattern), text)
  steps: list[Any] = [replace(_WHITE, ' ')]
  steps += [hf.normalizers.Replace(quotes, '"') for quotes in ('``', "''")]
  if not keep_accents:
    steps += [hf.normalizers.NFKD(), replace(_combining(), '')]
  if lower_case:
    steps += [replace(_FINAL_SIGMA, '\u03c2'), hf.normalizers.Lowercase()]
  if proto.normalizer_spec.precompiled_charsmap:
    steps += _character_map(file, keep_accents)
  model.normalizer = hf.normalizers.Sequence(steps)
  model.pre_tokenizer = hf.pre_tokenizers.Sequence(
    [hf.pre_tokenizers.WhitespaceSplit(), hf.pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme='always')]
  )
  model.decoder = hf.decoders.Metaspace(replacement=SPACE, prepend_scheme='always')
  subwords = {subword for subword, _ in vocabulary}
  model.add_special_tokens([name for name in XLNET_SPECIALS if name in subwords])
  split = subword_models.split_special_tokens(model)
  return hf.Tokenizer.from_str(split.to_str())  # the library reads some scores back with another last digit


@functools.cache
def _combining() -> str:
  """Return a pattern for combining characters, which the release removes."""
  return _class(code for code in range(sys.maxunicode + 1) if unicodedata.combining(chr(code)))


def _class(codes: Iterable[int]) -> str:
  """Return a pattern for one of these characters."""
  return '[' + ''.join(f'\\x{{{code:x}}}' for code in codes) + ']'


def _character_map(file: File, keep_accents: bool) -> list[Any]:
  """Return the steps that apply a character map to text in NFKD without accents.

  The library's own step has only the rules of single characters, so characters are composed before it. It shifts the
  offsets after a character that it removes, so these are removed before it too.
  """
  single = hf.normalizers.Precompiled(file.proto.normalizer_spec.precompiled_charsmap)
  normalize = file.processor.Normalize
  composes = normalize(_SYLLABLE).lstrip(SPACE) != _SYLLABLE
  if single.normalize_str('A') != 'A' or composes and keep_accents:
    problem = 'keep_accents: got true' if keep_accents else 'normalization_rule_name: got one that changes the case'
    raise InputError(f'{FILE}: {problem}; expected nmt_nfkc, as in the release of XLNet, without accents')
  codes = [code for code in range(0x10000) if unicodedata.category(chr(code)) in ('Cc', 'Cf')]
  removed = [code for code in codes if normalize(f'a{chr(code)}a').lstrip(SPACE) == 'aa']
  steps = [hf.normalizers.Replace(hf.Regex(_class(removed)), '')] if removed else []
  return steps + [hf.normalizers.NFC()] * composes + [single]
