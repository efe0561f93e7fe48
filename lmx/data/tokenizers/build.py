"""Trains, reads and loads tokenizers: bytes, characters, words, BPE, word BPE, GPT's BPE, WordPiece and Unigram.

Words follow the rules of the data set. Penn Treebank, WikiText, Brown and 1B words are split at white space, and each
line ends with a counted `<eos>` (Mikolov's rule). text8 is split at white space. Plain prose is split into words,
punctuation and line ends. Vocabularies are sorted by decreasing frequency, as adaptive and hierarchical softmaxes need.
Byte-level BPE (GPT-2's, Radford et al. 2019, section 2.2), WordPiece (BERT's, Devlin et al. 2018) and Unigram (Kudo
2018) come from the `tokenizers` library. Word BPE (Sennrich et al. 2016) and GPT's BPE (Radford et al. 2018) merge
characters within words. Special tokens written out in a text are ordinary text, but special tokens to the tokenizer of
imported weights that transformers saved.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import tokenizers as hf

from lmx.data.tokenizers import characters, fastai, marian, moses, sentencepiece, subword_models, words
from lmx.data.tokenizers import settings as settings_lib
from lmx.data.tokenizers.base import FILE, Absent, Tokenizer
from lmx.data.tokenizers.characters import Bytes, Characters
from lmx.data.tokenizers.subword import Bpe, GptBpe, Unigram, WordBpe, WordPiece
from lmx.data.tokenizers.words import Words
from lmx.errors import InputError, check_choice, explain, nearest

_SIDES = {'marian': marian.Marian, 'moses': moses.Moses}  # of imported weights, with two languages
_FOLDERS: dict[str, ModuleType] = {'marian': marian, 'moses': moses}
MARKS = {'': (subword_models.END_OF_TEXT, '<unk>'), 'xlnet': subword_models.XLNET_SPECIALS}
KINDS = ('bytes', 'characters', 'words', 'bpe', 'word_bpe', 'gpt_bpe', 'wordpiece', 'unigram', 'marian', 'moses')


class MissingTokenizer(InputError):
  """A folder has no files of a tokenizer."""


def train(
  kind: str,
  texts: Iterable[str],
  *,
  vocab_size: int = 0,
  min_count: int = 1,
  lower_case: bool = False,
  rule: str = 'prose',
  document_eos: bool = True,
  others: Iterable[str] = (),
  marks: str = '',
  prefix_space: bool = False,
) -> Tokenizer:
  """Train a tokenizer; the result depends only on the arguments.

  Args:
    kind: one of KINDS.
    texts: training documents.
    vocab_size: maximum number of tokens, special tokens included; 0: no limit (words, characters), 8192 (subwords).
    min_count: rarer words or characters become `<unk>`; for bpe and wordpiece the smallest count of a merged pair.
    lower_case: lower-case the text; words and subwords only.
    rule: see `Words`.
    document_eos: give bytes, characters and words of rule 'prose' an `<eos>` that ends a document.
    others: characters only: further texts that must be encodable; `<unk>` is added if they need it.
    marks: unigram: the special tokens that get the first ids, one of MARKS; words: 'double' for that rule of `Words`.
    prefix_space: bpe only: a word has the same subwords at the start of a text as within it.
  """
  check_options(kind, marks, prefix_space)
  if kind == 'bytes':
    return Bytes(eos=document_eos)
  if kind == 'characters':
    return characters.train(texts, vocab_size, min_count, document_eos, others)
  if kind == 'words':
    return words.train(texts, vocab_size, min_count, lower_case, marks or rule, document_eos)
  if kind == 'bpe':
    return Bpe(subword_models.train_bpe(texts, vocab_size or 8192, min_count, lower_case, prefix_space))
  if kind == 'word_bpe':
    return WordBpe(subword_models.train_word_bpe(texts, vocab_size or 8192, min_count, lower_case))
  if kind == 'gpt_bpe':
    return GptBpe(subword_models.train_gpt_bpe(texts, vocab_size or 8192, min_count))
  if kind == 'unigram':
    return Unigram(subword_models.train_unigram(texts, vocab_size or 8192, lower_case, MARKS[marks]))
  if kind == 'wordpiece':
    return WordPiece(subword_models.train_wordpiece(texts, vocab_size or 8192, min_count, lower_case))
  if kind in _SIDES:
    raise InputError(f'data.tokenizer: got "{kind}", which is read alone; set data.tokenizer_path to that of an import')
  raise InputError(f'unknown tokenizer "{kind}"{nearest(kind, KINDS)}')


def check_options(kind: str, marks: str, prefix_space: bool) -> None:
  """Raise InputError unless a trained tokenizer of this kind supports these special tokens and this prefix space."""
  check_choice('data.marks', marks, (*MARKS, 'double'))
  if marks and kind != (expected := 'words' if marks == 'double' else 'unigram'):
    raise InputError(f'data.marks: got "{marks}" with data.tokenizer "{kind}"; expected "{expected}"')
  if prefix_space and kind != 'bpe':
    raise InputError(f'data.prefix_space: got True with data.tokenizer "{kind}"; expected "bpe"; set it to False')


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


def of_content(content: Mapping[str, Any]) -> Tokenizer:
  """Return the tokenizer of imported weights from its content, `kind` among it."""
  return _SIDES[content['kind']]({key: value for key, value in content.items() if key != 'kind'})


# Vocabulary file -> merges file: names of Hugging Face, then of GPT-2's and GPT's releases.
_MERGES = {'vocab.json': 'merges.txt', 'encoder.json': 'vocab.bpe', 'encoder_bpe_40000.json': 'vocab_40000.bpe'}
# Kinds that other libraries write too, and their file names unless these are vocabularies with merges.
_READ = {'bpe': Bpe, 'word_bpe': WordBpe, 'gpt_bpe': GptBpe, 'wordpiece': WordPiece, 'unigram': Unigram}
_FILES = {'wordpiece': ('tokenizer.json', 'vocab.txt'), 'unigram': ('tokenizer.json', sentencepiece.FILE)}


def read(kind: str, path: str, *, lower_case: bool = False, special_in_text: bool = False) -> Tokenizer:
  """Read another library's tokenizer.

  Args:
    kind: 'bpe', 'word_bpe', 'gpt_bpe': a tokenizer.json, or a directory with one or with vocab.json and merges.txt, or
      the same under the names of OpenAI's releases; 'wordpiece': a tokenizer.json, a vocab.txt, or a directory with
      either; 'unigram': the same with a spiece.model; other kinds: a directory written by `save`.
    path: file or directory; for a directory the settings of transformers are read too (settings.py).
    lower_case: case of a vocab.txt or spiece.model.
    special_in_text: special tokens in a text are special tokens, unless the settings split them.

  Raises:
    InputError: there is no such tokenizer, a file is damaged, a vocabulary is empty or lacks a required token, or
      settings are not supported or contradict `lower_case`.
  """
  if kind not in KINDS:
    raise InputError(f'unknown tokenizer "{kind}"{nearest(kind, KINDS)}')
  directory, settings = path, settings_lib.Settings()
  if os.path.isdir(path):
    if os.path.exists(os.path.join(path, FILE)):
      tokenizer = load(path)
      if tokenizer.kind != kind:
        raise InputError(f'{path}: got a tokenizer of kind {tokenizer.kind}; expected {kind}')
      return tokenizer
    if kind in _FOLDERS:
      for name in (files := _FOLDERS[kind].FILES):
        if not os.path.exists(os.path.join(path, name)):
          raise MissingTokenizer(f'{os.path.join(path, name)}: missing; expected {", ".join(files)}')
      settings = settings_lib.read(path, kind)
      return _FOLDERS[kind].read(path, settings, special_in_text=special_in_text and not settings.split_special)
    path = os.path.join(directory, vocabulary_file(kind, directory))
    settings = settings_lib.read(directory, kind)
  if kind not in _READ or not os.path.isfile(path):
    raise MissingTokenizer(f'{path}: got no tokenizer of kind {kind}')
  if os.path.basename(path) in ('vocab.txt', sentencepiece.FILE) and settings.lower_case not in (None, lower_case):
    raise InputError(
      f'data.lower_case: got {lower_case}; expected {settings.lower_case}, because {directory} has '
      f'do_lower_case {str(settings.lower_case).lower()} in {settings_lib.FILE}; set '
      f'data.lower_case={settings.lower_case}'
    )
  whole = special_in_text and not settings.split_special
  try:
    model = _model(kind, path, lower_case, settings)
    _check_vocabulary(kind, model, path)
    model = settings_lib.apply(model, settings, directory, special_in_text=whole)
    if os.path.basename(path) == sentencepiece.FILE:
      options = {'lower_case': lower_case, 'keep_accents': settings.keep_accents, 'special_in_text': whole}
      return sentencepiece.SentencePiece(model, settings.special, content=sentencepiece.read(path), **options)
    return _READ[kind](model, settings.special, special_in_text=whole)
  except InputError:
    raise
  except Exception as error:  # the library raises bare Exception for a bad file
    raise InputError(f'{path}: not a {kind} tokenizer: {explain(error)}') from error


def vocabulary_file(kind: str, directory: str) -> str:
  """Return the name of the vocabulary file in a directory, '' if there is none."""
  names = (
    _FILES[kind] if kind in _FILES else ('tokenizer.json', *_MERGES) if kind in _READ else ('vocab.json', 'vocab.txt')
  )
  return next((name for name in names if os.path.exists(os.path.join(directory, name))), '')


def _check_vocabulary(kind: str, model: hf.Tokenizer, path: str) -> None:
  """Raise InputError if a model has no ordinary tokens, or lacks the unknown token."""
  tokens = model.get_vocab(with_added_tokens=False)
  special = {token.content for token in model.get_added_tokens_decoder().values() if token.special}
  if not tokens.keys() - special:
    raise InputError(f'{path}: got a vocabulary without tokens; expected those of the model; the file may be truncated')
  subwords = model.model
  unknown = getattr(subwords, 'unk_token', None) if kind in ('wordpiece', 'gpt_bpe', 'word_bpe') else None
  unknown = '<unk>' if kind == 'unigram' else unknown
  if unknown is not None and unknown not in tokens:
    raise InputError(
      f'{path}: got {len(tokens):,} tokens without {unknown}; expected that token, because text that no other covers '
      'is read as it; the file may be truncated'
    )


def _model(kind: str, path: str, lower_case: bool, settings: settings_lib.Settings) -> hf.Tokenizer:
  """Return the model of a file."""
  if os.path.basename(path) == 'tokenizer.json':
    model = hf.Tokenizer.from_file(path)
    return subword_models.split_special_tokens(model) if kind == 'unigram' else model
  if kind == 'wordpiece':
    unknown = settings.special.get('unk', '[UNK]')
    return subword_models.wordpiece(hf.models.WordPiece.from_file(path, unk_token=unknown), lower_case)
  if kind == 'unigram':
    return sentencepiece.convert(sentencepiece.read(path), lower_case=lower_case, keep_accents=settings.keep_accents)
  merges = os.path.join(os.path.dirname(path), _MERGES.get(os.path.basename(path), 'merges.txt'))
  builder = {'bpe': subword_models.bpe, 'word_bpe': subword_models.word_bpe, 'gpt_bpe': subword_models.gpt_bpe}[kind]
  model = builder(subword_models.read_bpe(path, merges, kind))
  if kind in ('bpe', 'word_bpe'):
    model.add_special_tokens([settings.special.get('eos', subword_models.END_OF_TEXT)])
  return model


def load(directory: str) -> Tokenizer:
  """Load a tokenizer written by `save`."""
  path = os.path.join(directory, FILE)
  try:
    with open(path, encoding='utf-8') as file:
      content = json.load(file)
    kind = content['kind']
    if kind == 'bytes':
      return Bytes(eos=content['eos'])
    if kind == 'characters':
      return Characters(content['tokens'])
    if kind == 'words':
      known = int(content['known']) if 'known' in content else 0
      return Words(content['tokens'], content['rule'], lower_case=content['lower_case'], known=known)
    if kind in _SIDES:
      return of_content(content)
    if kind == Absent.kind:
      return Absent(content['vocab_size'])
    model = hf.Tokenizer.from_str(json.dumps(content['model']))
    whole = content.get('special_in_text', False)  # absent in earlier versions
    if 'sentencepiece' in content:
      options = {name: content[name] for name in ('lower_case', 'keep_accents')}
      model_file = base64.b64decode(content['sentencepiece'], validate=True)
      return sentencepiece.SentencePiece(
        model, content.get('special'), content=model_file, **options, special_in_text=whole
      )
    if kind == 'unigram':
      return Unigram(model, content.get('special'), content.get('split_commas', False), special_in_text=whole)
    return _READ[kind](model, content.get('special'), special_in_text=whole)
  except InputError:
    raise
  except Exception as error:  # the library raises bare Exception for a bad file
    raise InputError(f'{path}: not a tokenizer of lmx: {explain(error)}') from error
