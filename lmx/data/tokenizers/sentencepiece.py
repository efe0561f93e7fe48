"""Files of SentencePiece, and conversion of XLNet's spiece.model to a model of the `tokenizers` library.

Such a file is a Protocol Buffers message, `ModelProto` of google/sentencepiece (src/sentencepiece_model.proto); the
fields below are read. Text is normalised as in the release (zihangdai/xlnet, prepro_utils.py: quotes, NFKD,
accents, case, white space) and then by the character map in the file. A subword of a number with its comma is not
used, so that the comma is a token of its own.

Deviations: accents are all characters of Unicode's category Mark, as in transformers' fast tokenizer, and Hangul stays
decomposed after NFKD. The release keeps vowel signs of Indic scripts, and recomposes Hangul. A comma after a digit is
never in one subword with it; the release splits it off and encodes the rest again separately. transformers splits a
text at `user_defined_symbols` of a spiece.model before encoding, so the text after one begins with a space; the release
and this module do not.
"""

from __future__ import annotations

import functools
import pathlib
import re
from typing import Any, NamedTuple

import tokenizers as hf
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from lmx.data.tokenizers.subword_models import SPACE, XLNET_SPECIALS
from lmx.errors import InputError

FILE = 'spiece.model'
UNIGRAM = 1  # TrainerSpec.ModelType
ORDINARY, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5  # SentencePiece.Type
_COMMA = -100.0  # added to a subword's log probability
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
    characters: SentencePiece's compiled character map, b'' if there is none.
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
  """Read a file; raise InputError if it is missing, damaged or not a Unigram model."""
  try:
    content = pathlib.Path(path).read_bytes()
  except OSError as error:
    raise InputError(f'{path} cannot be read ({error.strerror})') from None
  proto = parse(content, path)
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
  """
  reduced = lambda subword, score: score + _COMMA if re.search(r'\d,$', subword) else score
  vocabulary = [(subword, reduced(subword, score)) for subword, score, _ in contents.subwords]
  model = hf.Tokenizer(hf.models.Unigram(vocabulary, unk_id=contents.unk_id, byte_fallback=False))
  steps: list[Any] = [hf.normalizers.Replace(quotes, '"') for quotes in ('``', "''")]
  if not keep_accents:
    steps += [hf.normalizers.NFKD(), hf.normalizers.StripAccents()]
  if lower_case:
    steps.append(hf.normalizers.Lowercase())
  if contents.characters:
    steps.append(hf.normalizers.Precompiled(contents.characters))
  model.normalizer = hf.normalizers.Sequence(steps)
  model.pre_tokenizer = hf.pre_tokenizers.Sequence(
    [hf.pre_tokenizers.WhitespaceSplit(), hf.pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme='always')]
  )
  model.decoder = hf.decoders.Metaspace(replacement=SPACE, prepend_scheme='always')
  subwords = {subword for subword, _, _ in contents.subwords}
  model.add_special_tokens([name for name in XLNET_SPECIALS if name in subwords])
  return model
