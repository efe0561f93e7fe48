"""Files of SentencePiece, and conversion of XLNet's spiece.model to a model of the `tokenizers` library.

Such a file is a Protocol Buffers message, `ModelProto` of google/sentencepiece (src/sentencepiece_model.proto); the
fields below are read. Text is normalised as in the release (zihangdai/xlnet, prepro_utils.py: white space, quotes,
NFKD, accents, case) and then by the character map in the file. A subword of a number with its comma is encoded again
without it, and the comma is a token of its own (`encode_pieces` of the release; subword.py).

Ids are those of the release, which calls SentencePiece. The classes of transformers on the `tokenizers` library differ
from it, and versions 4 and 5 from each other: they remove vowel signs of Indic scripts with the accents, do not compose
Hangul again, and keep a number with its comma; version 5 begins the text after a symbol of `user_defined_symbols` with
a space.

Deviations: 73 characters of Unicode 12 to 14, such as U+32FF, are not decomposed, for the library's tables are older
than Python's. Where the parts of a word have one probability in any order, as in a long repetition, SentencePiece
decides by the rounding of float32. Without a character map, U+2581 that begins a word is that of the word. The
library's step for the map drops a mark after a character with a rule of its own if both are less than six bytes; after
the steps before it only U+2581 with a rare mark is such a pair.
"""

from __future__ import annotations

import functools
import pathlib
import sys
import unicodedata
from collections.abc import Iterable
from typing import Any, NamedTuple

import tokenizers as hf
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from lmx.data.tokenizers.character_map import CharacterMap
from lmx.data.tokenizers.subword_models import SPACE, XLNET_SPECIALS
from lmx.errors import InputError, explain

FILE = 'spiece.model'
UNIGRAM = 1  # TrainerSpec.ModelType
ORDINARY, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5  # SentencePiece.Type
# White space of Python's str.split; the library and the map know other characters.
_WHITE = r'[\x09-\x0d\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]'
_SYLLABLE = '\u1112\u1161'  # two letters that a map to NFKC composes
_CASED = r'[\p{Lu}\p{Ll}\p{Lt}]'
_FINAL_SIGMA = rf"(?<={_CASED})\u03a3(?!['.:\u00b7\u2019]*{_CASED})"  # Python's lower(), not the library's
_TYPE = descriptor_pb2.FieldDescriptorProto
_STRING, _BYTES, _FLOAT, _INT = _TYPE.TYPE_STRING, _TYPE.TYPE_BYTES, _TYPE.TYPE_FLOAT, _TYPE.TYPE_INT32
_BOOL = _TYPE.TYPE_BOOL
# Message -> name of a field, its number, its type, and its default unless 0.
_FIELDS = {
  'Piece': (('piece', 1, _STRING, ''), ('score', 2, _FLOAT, ''), ('type', 3, _INT, '1')),
  'Trainer': (
    ('model_type', 3, _INT, '1'),
    ('treat_whitespace_as_suffix', 24, _BOOL, ''),
    ('byte_fallback', 35, _BOOL, ''),
    ('unk_id', 40, _INT, ''),
  ),
  'Normalizer': (
    ('precompiled_charsmap', 2, _BYTES, ''),
    ('add_dummy_prefix', 3, _BOOL, 'true'),
    ('remove_extra_whitespaces', 4, _BOOL, 'true'),
    ('escape_whitespaces', 5, _BOOL, 'true'),
  ),
}
# Options with which text is read here.
_OPTIONS = {'treat_whitespace_as_suffix': False, 'byte_fallback': False} | dict.fromkeys(
  ('add_dummy_prefix', 'remove_extra_whitespaces', 'escape_whitespaces'), True
)
_PARTS = (
  ('pieces', 1, 'Piece'),
  ('trainer_spec', 2, 'Trainer'),
  ('normalizer_spec', 3, 'Normalizer'),
  ('denormalizer_spec', 5, 'Normalizer'),
)


class SpieceModel(NamedTuple):
  """Contents of a file.

  Attributes:
    subwords: (subword, its log probability, its type) by id.
    unk_id: id of text that no subword covers.
    characters: SentencePiece's compiled character map, b'' if there is none: a trie and the texts that its leaves name.
  """

  subwords: tuple[tuple[str, float, int], ...]
  unk_id: int
  characters: bytes


@functools.cache
def model_proto() -> Any:
  """Return the class of the message."""
  file = descriptor_pb2.FileDescriptorProto(name='lmx/spiece.proto', package='lmx.spiece', syntax='proto2')
  for name, fields in _FIELDS.items():
    kind = file.message_type.add(name=name)
    for field, number, scalar, default in fields:
      added = kind.field.add(name=field, number=number, type=scalar, label=_TYPE.LABEL_OPTIONAL)
      if default:
        added.default_value = default
  whole = file.message_type.add(name='Model')
  for field, number, name in _PARTS:
    label = _TYPE.LABEL_REPEATED if field == 'pieces' else _TYPE.LABEL_OPTIONAL
    message_type = f'.lmx.spiece.{name}'
    whole.field.add(name=field, number=number, type=_TYPE.TYPE_MESSAGE, type_name=message_type, label=label)
  pool = descriptor_pool.DescriptorPool()
  pool.Add(file)
  return message_factory.GetMessageClass(pool.FindMessageTypeByName('lmx.spiece.Model'))


def read(path: Any) -> SpieceModel:
  """Read a file; raise InputError if it is missing, damaged, not a Unigram model, or has options of another text."""
  try:
    content = pathlib.Path(path).read_bytes()
  except OSError as error:
    raise InputError(f'{path} cannot be read ({explain(error)})') from None
  proto = parse(content, path)
  for name, value in _OPTIONS.items():
    given = getattr(proto.trainer_spec if hasattr(proto.trainer_spec, name) else proto.normalizer_spec, name)
    if given != value:
      raise InputError(f'{path}: {name}: got {given}; expected {value}, as in the release of XLNet')
  subwords = tuple((piece.piece, piece.score, piece.type) for piece in proto.pieces)
  return SpieceModel(subwords, proto.trainer_spec.unk_id, proto.normalizer_spec.precompiled_charsmap)


def parse(content: bytes, path: Any) -> Any:
  """Return the message in a file of name `path`; raise InputError if it is damaged or not a Unigram model."""
  proto = model_proto()()
  try:
    proto.ParseFromString(content)
  except (message.DecodeError, UnicodeDecodeError) as error:
    raise InputError(f'{path} is not a model of SentencePiece, or damaged or truncated ({error})') from None
  trainer = proto.trainer_spec
  if not proto.pieces or not 0 <= trainer.unk_id < len(proto.pieces):
    raise InputError(
      f'{path} is not a model of SentencePiece, or damaged: {len(proto.pieces)} subwords, and id {trainer.unk_id} for '
      'unknown ones'
    )
  if trainer.model_type != UNIGRAM:
    raise InputError(f'{path} is a model of SentencePiece of type {trainer.model_type}; only Unigram, 1, is read')
  return proto


def has_capitals(path: Any) -> bool:
  """Return True if a vocabulary is for text with capitals: some ordinary subword has one."""
  ordinary = (subword for subword, _, kind in read(path).subwords if kind not in (UNKNOWN, CONTROL, USER_DEFINED))
  return any(character.isupper() for subword in ordinary for character in subword)


def build_tokenizer(contents: SpieceModel, *, lower_case: bool = False, keep_accents: bool = False) -> hf.Tokenizer:
  """Return XLNet's tokenizer from a file's contents; its special tokens are marked as such.

  Args:
    contents: contents of the file.
    lower_case: lower-case the text first, as for an uncased vocabulary.
    keep_accents: keep accents and composed characters.

  Raises:
    InputError: the character map changes the case, or composes characters whose accents are kept.
  """
  vocabulary = [(subword, score) for subword, score, _ in contents.subwords]
  model = hf.Tokenizer(hf.models.Unigram(vocabulary, unk_id=contents.unk_id, byte_fallback=False))
  replace = lambda pattern, text: hf.normalizers.Replace(hf.Regex(pattern), text)
  steps: list[Any] = [replace(_WHITE, ' ')]
  steps += [hf.normalizers.Replace(quotes, '"') for quotes in ('``', "''")]
  if not keep_accents:
    steps += [hf.normalizers.NFKD(), replace(_combining(), '')]
  if lower_case:
    steps += [replace(_FINAL_SIGMA, '\u03c2'), hf.normalizers.Lowercase()]
  if contents.characters:
    steps += _character_map(contents.characters, keep_accents)
  model.normalizer = hf.normalizers.Sequence(steps)
  model.pre_tokenizer = hf.pre_tokenizers.Sequence(
    [hf.pre_tokenizers.WhitespaceSplit(), hf.pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme='always')]
  )
  model.decoder = hf.decoders.Metaspace(replacement=SPACE, prepend_scheme='always')
  subwords = {subword for subword, _, _ in contents.subwords}
  model.add_special_tokens([name for name in XLNET_SPECIALS if name in subwords])
  return model


@functools.cache
def _combining() -> str:
  """Return a pattern for the characters that the release removes: those of a combining class."""
  return _class(code for code in range(sys.maxunicode + 1) if unicodedata.combining(chr(code)))


def _class(codes: Iterable[int]) -> str:
  """Return a pattern for one of these characters."""
  return '[' + ''.join(f'\\x{{{code:x}}}' for code in codes) + ']'


def _character_map(compiled: bytes, keep_accents: bool) -> list[Any]:
  """Return the steps that apply a character map to text in NFKD without accents.

  The library's own step has only the rules of single characters, so characters are composed before it. It shifts the
  offsets after a character that it removes, so these are removed before it too.
  """
  alone, rules = hf.normalizers.Precompiled(compiled), CharacterMap(compiled)
  composes = rules.longest(_SYLLABLE.encode(), 0) is not None
  if alone.normalize_str('A') != 'A' or composes and keep_accents:
    problem = 'keep_accents: got true' if keep_accents else 'normalization_rule_name: got one that changes the case'
    raise InputError(f'spiece.model: {problem}; expected nmt_nfkc, as in the release of XLNet, without accents')
  removed = [code for code in range(0x10000) if unicodedata.category(chr(code)) in ('Cc', 'Cf')]
  removed = [code for code in removed if (rules.longest(chr(code).encode(), 0) or [None])[0] == '']
  steps = [hf.normalizers.Replace(hf.Regex(_class(removed)), '')] if removed else []
  return steps + [hf.normalizers.NFC()] * composes + [alone]
