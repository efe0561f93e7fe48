"""Readers of other libraries' tokenizers: BPE, WordPiece, Unigram, Marian and Moses."""

from __future__ import annotations

import os
from collections.abc import Sequence

import tokenizers as hf

from lmx.data.tokenizers import build, fastai, sentencepiece, subword_models
from lmx.data.tokenizers import settings as settings_lib
from lmx.data.tokenizers.base import FILE, Tokenizer
from lmx.data.tokenizers.characters import Bytes, Characters
from lmx.data.tokenizers.subword import CLASSES
from lmx.data.tokenizers.words import Words
from lmx.errors import InputError, explain, nearest

# Vocabulary file -> merges file: names of Hugging Face, then of GPT-2's and GPT's releases.
_MERGES = {'vocab.json': 'merges.txt', 'encoder.json': 'vocab.bpe', 'encoder_bpe_40000.json': 'vocab_40000.bpe'}
_FILES = {'wordpiece': ('tokenizer.json', 'vocab.txt'), 'unigram': ('tokenizer.json', sentencepiece.FILE)}


class MissingTokenizer(InputError):
  """A folder has no files of a tokenizer."""


def of_words(tokens: Sequence[str], rule: str, lower_case: bool = False) -> Tokenizer:
  """Return the tokenizer for a word list in id order.

  Args:
    tokens: the words.
    rule: a rule of `Words`; 'characters' if the words are letters; 'bytes' for bytes in their order, without a list.
    lower_case: lower-case the text; words only.
  """
  if rule in ('characters', 'bytes'):
    return Characters(tokens) if rule == 'characters' else Bytes()
  return Words(fastai.vocabulary(tokens) if rule == 'fastai' else tokens, rule, lower_case=lower_case)


def read(kind: str, path: str, *, lower_case: bool = False, special_in_text: bool = False) -> Tokenizer:
  """Read another library's tokenizer.

  Args:
    kind: 'bpe', 'word_bpe', 'gpt_bpe': a tokenizer.json, or a directory with one or with vocab.json and merges.txt, or
      the same under the names of OpenAI's releases; 'wordpiece': a tokenizer.json, a vocab.txt, or a directory with
      either; 'unigram': the same with a spiece.model; other kinds: a directory written by `save`.
    path: file or directory; for a directory the settings of transformers are read too (settings.py).
    lower_case: case of a vocab.txt or spiece.model.
    special_in_text: as in an import, special tokens in a text are special tokens, unless the settings split them.

  Raises:
    InputError: there is no such tokenizer, a file is damaged, a vocabulary is empty or lacks a required token, or
      settings are not supported or contradict `lower_case`.
  """
  if kind not in build.KINDS:
    raise InputError(f'data.tokenizer: unknown "{kind}"{nearest(kind, build.KINDS)}')
  directory, settings = path, settings_lib.Settings()
  if os.path.isdir(path):
    if os.path.exists(os.path.join(path, FILE)):
      tokenizer = build.load(path)
      if tokenizer.kind != kind:
        raise InputError(f'{path}: got a tokenizer of kind {tokenizer.kind}; expected {kind}')
      return tokenizer
    if kind in build.SIDES:
      module = build.module(kind)
      for name in (files := module.FILES):
        if not os.path.exists(os.path.join(path, name)):
          raise MissingTokenizer(f'{os.path.join(path, name)}: missing; expected {", ".join(files)}')
      settings = settings_lib.read(path, kind)
      return module.read(path, settings, special_in_text=special_in_text and not settings.split_special)
    path = os.path.join(directory, vocabulary_file(kind, directory))
    settings = settings_lib.read(directory, kind)
  if kind not in CLASSES or not os.path.isfile(path):
    raise MissingTokenizer(f'{path}: got no tokenizer of kind {kind}')
  if os.path.basename(path) in ('vocab.txt', sentencepiece.FILE) and settings.lower_case not in (None, lower_case):
    raise InputError(
      f'data.lower_case: got {lower_case}; expected {settings.lower_case}, because {directory} has '
      f'do_lower_case {str(settings.lower_case).lower()} in {settings_lib.FILE}; set '
      f'data.lower_case={settings.lower_case}'
    )
  whole = special_in_text and not settings.split_special
  try:
    file = sentencepiece.read(path) if os.path.basename(path) == sentencepiece.FILE else None
    case = {'lower_case': lower_case, 'keep_accents': settings.keep_accents}
    model = sentencepiece.convert(file, **case) if file else _model(kind, path, lower_case, settings)
    _check_vocabulary(kind, model, path)
    by_class = special_in_text and os.path.basename(path) == 'tokenizer.json'
    model = settings_lib.apply(model, settings, directory, special_in_text=whole, by_class=by_class)
    if file:
      return sentencepiece.SentencePiece(model, settings.special, file=file, **case, special_in_text=whole)
    return CLASSES[kind](model, settings.special, special_in_text=whole)
  except InputError:
    raise
  except Exception as error:  # the library raises bare Exception for a bad file
    raise InputError(f'{path}: not a {kind} tokenizer: {explain(error)}') from error


def vocabulary_file(kind: str, directory: str) -> str:
  """Return the name of the vocabulary file in a directory, '' if there is none."""
  names = (
    _FILES[kind] if kind in _FILES else ('tokenizer.json', *_MERGES) if kind in CLASSES else ('vocab.json', 'vocab.txt')
  )
  return next((name for name in names if os.path.exists(os.path.join(directory, name))), '')


def _check_vocabulary(kind: str, model: hf.Tokenizer, path: str) -> None:
  """Raise InputError if a model has no ordinary tokens, or lacks the unknown token."""
  tokens = model.get_vocab(with_added_tokens=False)
  special = {token.content for token in model.get_added_tokens_decoder().values() if token.special}
  if not tokens.keys() - special:
    raise InputError(f"{path}: got a vocabulary without tokens; expected the model's tokens; the file may be truncated")
  subwords = model.model
  unknown = getattr(subwords, 'unk_token', None) if kind in ('wordpiece', 'gpt_bpe', 'word_bpe') else None
  unknown = '<unk>' if kind == 'unigram' else unknown
  if unknown is not None and unknown not in tokens:
    raise InputError(
      f'{path}: got {len(tokens):,} tokens without {unknown}; expected that token for unknown text; the file may be '
      'truncated'
    )


def _model(kind: str, path: str, lower_case: bool, settings: settings_lib.Settings) -> hf.Tokenizer:
  """Return the model of a file."""
  if os.path.basename(path) == 'tokenizer.json':
    model = hf.Tokenizer.from_file(path)
    subwords = model.model
    if dropout := getattr(subwords, 'dropout', None):
      raise InputError(
        f'{path}: model.dropout: got {dropout:g}, with which the tokens of a text are random; expected null; set it to '
        'that'
      )
    return subword_models.split_special_tokens(model) if kind == 'unigram' else model
  if kind == 'wordpiece':
    unknown = settings.special.get('unk', '[UNK]')
    return subword_models.wordpiece(hf.models.WordPiece.from_file(path, unk_token=unknown), lower_case)
  merges = os.path.join(os.path.dirname(path), _MERGES.get(os.path.basename(path), 'merges.txt'))
  builder = {'bpe': subword_models.bpe, 'word_bpe': subword_models.word_bpe, 'gpt_bpe': subword_models.gpt_bpe}[kind]
  model = builder(subword_models.read_bpe(path, merges, kind))
  if kind in ('bpe', 'word_bpe'):
    model.add_special_tokens([settings.special.get('eos', subword_models.END_OF_TEXT)])
  return model
