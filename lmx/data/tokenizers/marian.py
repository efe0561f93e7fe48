"""Tokenizer of Marian folders, such as opus-mt: one SentencePiece Unigram model per language.

A folder has source.spm, target.spm and vocab.json, which gives the ids of both languages' subwords; with
`separate_vocabs` in tokenizer_config.json the target's are in target_vocab.json. `>>fra<<` at the start of a text, the
target language, is one token. A subword without an id is `<unk>`. Punctuation is not normalised: neither transformers
4.57 nor 5 does so unless a program calls `MarianTokenizer.normalize` first.

Special tokens in a text are special tokens, as in MarianTokenizer; in work directories imported by earlier versions
they are ordinary text.
"""

from __future__ import annotations

import base64
import binascii
import functools
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lmx import documents
from lmx.data.tokenizers import sentencepiece, subword_models
from lmx.data.tokenizers import settings as settings_lib
from lmx.data.tokenizers.base import Tokenizer
from lmx.errors import InputError

SOURCE, TARGET, VOCABULARY, TARGET_VOCABULARY = 'source.spm', 'target.spm', 'vocab.json', 'target_vocab.json'
FILES = (SOURCE, TARGET, VOCABULARY)
_END, _UNKNOWN, _PAD = SPECIAL = ('</s>', '<unk>', '<pad>')
# Replaced in this order by `clean_up_tokenization_spaces`.
_CLEANED = (' .', ' ?', ' !', ' ,', " ' ", " n't", " 'm", " 's", " 've", " 're")


class Marian(Tokenizer):
  """Subwords of two languages; `encode` reads the source, and `target` is the target's tokenizer.

  Decoding skips `<unk>`, `<pad>` and `</s>`, as pipelines of transformers do.

  Args:
    content: `models` (source.spm and target.spm in base 64), `vocabularies` (subword -> id for source and target, or
      for both), `start_id`, `clean_up` (the option clean_up_tokenization_spaces), optionally `special_in_text` (special
      tokens in a text are special tokens).
    side: 0 for the source, 1 for the target.

  Raises:
    InputError: a model is damaged, or a vocabulary lacks a special token.
  """

  kind = 'marian'
  space_first = True

  def __init__(self, content: Mapping[str, Any], side: int = 0):
    self._content, self._side = dict(content), side
    self._ids: dict[str, int] = content['vocabularies'][side if len(content['vocabularies']) > 1 else 0]
    self._tokens = {i: token for token, i in self._ids.items()}
    self.vocab_size = max(self._tokens) + 1
    missing = [token for token in SPECIAL if token not in self._ids]
    if missing or len(self._tokens) < len(self._ids) or min(self._tokens) < 0:
      got = f'no {", ".join(missing)}' if missing else 'an id twice or below 0'
      raise InputError(f'the vocabulary has {got}; expected an id from 0 on for each subword, and {", ".join(SPECIAL)}')
    self.eos_id, self.unk_id, self.pad_id = (self._ids[token] for token in SPECIAL)
    try:
      model = base64.b64decode(content['models'][side], validate=True)
    except binascii.Error as error:
      raise InputError(f'the SentencePiece model is damaged ({error})') from None
    self._processor = sentencepiece.File(model, (SOURCE, TARGET)[side]).processor
    pieces = range(self._processor.GetPieceSize())
    self._control = {self._processor.IdToPiece(i) for i in pieces if self._processor.IsControl(i)}

  @property
  def start_id(self) -> int:
    return self._content['start_id']

  @functools.cached_property
  def target(self) -> Marian:
    return self if self._side else Marian(self._content, 1)

  @property
  def is_separate(self) -> bool:
    return len(self._content['vocabularies']) > 1

  def encode(self, text: str) -> np.ndarray:
    text = subword_models.SURROGATE.sub('\ufffd', text)
    tokens: list[str] = []
    special = SPECIAL if self._content.get('special_in_text') else ()
    for part in split_special(text, special):
      tokens += [part] if part in special else self._encode_part(part)
    return np.asarray([self._ids.get(token, self.unk_id) for token in tokens], np.int32)

  def _encode_part(self, text: str) -> Any:
    """Return the subwords of a text without special tokens."""
    end = text.find('<<')
    if text.startswith('>>') and end >= 0:
      return [text[: end + 2], *self._processor.EncodeAsPieces(text[end + 2 :])]
    return self._processor.EncodeAsPieces(text)

  def decode(self, ids: Iterable[int]) -> str:
    tokens = [self._tokens.get(i, _UNKNOWN) for i in self._check_ids(ids)]
    written = (token for token in tokens if token not in SPECIAL and token not in self._control)
    text = ''.join(written).replace(subword_models.SPACE, ' ').strip()
    return clean_up(text) if self._content['clean_up'] else text

  def id_to_token(self, index: int) -> str:
    return self._tokens.get(index, '')  # an id that the vocabulary skips

  def content(self) -> dict[str, Any]:
    return {'kind': self.kind, **self._content}

  @functools.cached_property
  def _word_tables(self) -> tuple[np.ndarray, np.ndarray]:
    texts = [self.id_to_token(i) for i in range(self.vocab_size)]
    ends = np.asarray([text in SPECIAL or text.endswith('<<') for text in texts])
    return ends | [text[:1] == subword_models.SPACE for text in texts], ends


def split_special(text: str, special: Sequence[str]) -> list[str]:
  """Split a text into its special tokens and the text between them, without empty parts."""
  return [part for part in re.split(f'({"|".join(map(re.escape, special))})', text) if part] if special else [text]


def clean_up(text: str) -> str:
  """Return a text without the blanks that `clean_up_tokenization_spaces` removes."""
  for old in _CLEANED:
    text = text.replace(old, old.strip())
  return text


def read(directory: Any, settings: settings_lib.Settings, *, special_in_text: bool = False) -> Marian:
  """Read a folder; raise InputError if a file is missing or damaged, or a setting is not supported."""
  directory = pathlib.Path(directory)
  config = read_optional(directory / settings_lib.FILE)
  where = str(directory / settings_lib.FILE)
  separate = documents.field(config, 'separate_vocabs', bool, where, False)
  names = [VOCABULARY, TARGET_VOCABULARY] if separate else [VOCABULARY]
  vocabularies = [read_vocabulary(directory / name, SPECIAL) for name in names]
  check_special(settings, vocabularies, where, SPECIAL, (_END, _UNKNOWN), names)
  content = {
    'models': [base64.b64encode(documents.read_bytes(directory / name)).decode() for name in (SOURCE, TARGET)],
    'vocabularies': vocabularies,
    'start_id': _start(directory, vocabularies[-1]),
    'clean_up': documents.field(config, 'clean_up_tokenization_spaces', bool, where, False),
    **({'special_in_text': True} if special_in_text else {}),
  }
  tokenizer = Marian(content)
  tokenizer.target  # noqa: B018, reads target.spm
  return tokenizer


def read_optional(path: pathlib.Path) -> dict[str, Any]:
  """Return the object in a JSON file, {} without the file."""
  return documents.convert(documents.read_json(path), dict, str(path)) if path.exists() else {}


def read_vocabulary(path: pathlib.Path, special: Sequence[str]) -> dict[str, int]:
  """Return a vocabulary's ids; raise InputError unless ids are unique integers and special tokens have ids."""
  vocabulary = documents.convert(documents.read_json(path), dict, str(path))
  ids = {token: documents.convert(i, int, f'{path}: {documents.show(token)}') for token, i in vocabulary.items()}
  missing = [token for token in special if token not in ids]
  if missing:
    raise InputError(f'{path}: got no {", ".join(missing)}; expected {", ".join(special)} among the subwords')
  if len(set(ids.values())) < len(ids) or min(ids.values()) < 0 or max(ids.values()) >= 2**31:
    raise InputError(f'{path}: got an id twice, or one out of range; expected different ids from 0 to 2^31 - 1')
  return ids


def check_special(
  settings: settings_lib.Settings,
  vocabularies: Sequence[Mapping[str, int]],
  where: str,
  special: Sequence[str],
  equal: Sequence[str],
  files: Sequence[str],
) -> None:
  """Raise InputError for added tokens, and for vocabularies with other special tokens.

  Args:
    settings: settings of the folder.
    vocabularies: subword ids of source and target, or of both.
    where: file of the settings.
    special: the special tokens.
    equal: special tokens with the same id in each vocabulary.
    files: file of each vocabulary.
  """
  added = {token.content for token in (*settings.tokens, *(token for _, token in settings.added))}
  if others := sorted(added - {*special}):
    raise InputError(
      f'{where}: got the added tokens {", ".join(others)}; expected only {", ".join(special)}; lmx supports no '
      'others; remove them if no text has them'
    )
  for token in (*settings.tokens, *(token for _, token in settings.added)):
    if wrong := [name for name in ('single_word', 'lstrip', 'rstrip') if getattr(token, name)]:
      raise InputError(f'{where}: added token "{token.content}": {wrong[0]}: got true; expected false')
  for number, token in settings.added:
    if number != vocabularies[0][token.content]:
      raise InputError(
        f'{where}: added token "{token.content}": got id {number}; expected {vocabularies[0][token.content]}, as in '
        f'{files[0]}'
      )
  for name in equal:
    ids = [vocabulary[name] for vocabulary in vocabularies]
    if len(set(ids)) > 1:
      raise InputError(f'{files[1]}: {name}: got id {ids[1]}; expected {ids[0]}, as in {files[0]}')


def _start(directory: pathlib.Path, vocabulary: Mapping[str, int]) -> int:
  """Return the id of the token with which the decoder begins, by default `<pad>`."""
  for name in ('generation_config.json', 'config.json'):
    value = read_optional(directory / name).get('decoder_start_token_id')
    if value is not None:
      where = f'{directory / name}: decoder_start_token_id'
      start, most = documents.convert(value, int, where), max(vocabulary.values())
      if not 0 <= start <= most:
        raise InputError(f'{where}: got {start}; expected an id of the vocabulary, 0 to {most}')
      return start
  return vocabulary[_PAD]
