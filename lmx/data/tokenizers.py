"""Tokenizers: bytes, characters, words, byte-level BPE, BPE of words, GPT's BPE, WordPiece and Unigram.

Words follow the rules of the data set: Penn Treebank, WikiText, Brown and 1B words are split at white space and each
line ends with a counted `<eos>` (Mikolov's rule); text8 is split at white space; plain prose is split into words,
punctuation and line ends. Vocabularies are sorted by falling frequency, as adaptive and hierarchical softmaxes need.
Byte-level BPE (GPT-2's, Radford et al. 2019, section 2.2), WordPiece (BERT's, Devlin et al. 2018) and Unigram (Kudo
2018) are the `tokenizers` library's. BPE of words (Sennrich et al. 2016) and GPT's BPE (Radford et al. 2018) are of
characters in words. Special tokens written out in a text are ordinary text.
"""

from __future__ import annotations

import collections
import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tokenizers as hf

from lmx.data import spiece, subwords, tokenizer_settings
from lmx.data import words as word_rules
from lmx.data.subword_tokenizers import Bpe, GptBpe, Unigram, WordBpe, WordPiece
from lmx.data.tokenizer import FILE, Tokenizer
from lmx.errors import InputError, check_choice, nearest

MARKS = {'': (subwords.END_OF_TEXT, '<unk>'), 'xlnet': subwords.XLNET_SPECIALS}
KINDS = ('bytes', 'characters', 'words', 'bpe', 'word_bpe', 'gpt_bpe', 'wordpiece', 'unigram')


class Bytes(Tokenizer):
  """UTF-8 bytes: ids 0-255, and 256 ends a document where the data set has documents."""

  kind = 'bytes'

  def __init__(self, *, eos: bool = False):
    self.vocab_size = 256 + eos
    self.eos_id = 256 if eos else None

  def encode(self, text: str) -> np.ndarray:
    # surrogateescape: a split of a byte stream may cut a character; its bytes come through unchanged.
    return np.frombuffer(text.encode('utf-8', 'surrogateescape'), np.uint8).astype(np.int32)

  def decode(self, ids: Iterable[int]) -> str:
    runs = bytes(10 if i == self.eos_id else i for i in self._checked(ids))
    return runs.decode('utf-8', 'replace')

  def id_to_token(self, index: int) -> str:
    return '<eos>' if index == self.eos_id else chr(index) if index < 128 else f'<0x{index:02x}>'

  def content(self) -> dict[str, Any]:
    return {'kind': self.kind, 'eos': self.eos_id is not None}


class Characters(Tokenizer):
  """Unicode code points seen in training; `<unk>` exists only where some text of the data set needs it."""

  kind = 'characters'

  def __init__(self, tokens: Sequence[str]):
    self.tokens = list(tokens)
    self.vocab_size = len(self.tokens)
    self._ids = {token: i for i, token in enumerate(self.tokens)}
    self.unk_id, self.eos_id = self._ids.get('<unk>'), self._ids.get('<eos>')

  def encode(self, text: str) -> np.ndarray:
    ids = self._ids
    if self.unk_id is None:
      try:
        return np.fromiter((ids[c] for c in text), np.int32, len(text))
      except KeyError as error:
        raise InputError(
          f'character {error.args[0]!r} is not in the vocabulary of {self.vocab_size} characters'
        ) from None
    return np.fromiter((ids.get(c, self.unk_id) for c in text), np.int32, len(text))

  def decode(self, ids: Iterable[int]) -> str:
    return ''.join('\n' if i == self.eos_id else self.tokens[i] for i in self._checked(ids))

  def id_to_token(self, index: int) -> str:
    return self.tokens[index]

  def content(self) -> dict[str, Any]:
    return {'kind': self.kind, 'tokens': self.tokens}


class Words(Tokenizer):
  """Words with `<unk>`.

  Args:
    tokens: the vocabulary, by falling frequency.
    rule: 'lines': white space splits, a line end is `<eos>`; 'space': white space splits; 'prose': words,
      punctuation and line ends, and `<eos>` ends a document.
    lower_case: lower the text first.
    known: how many of the tokens are the vocabulary proper, the others being there to be spelled; 0: all.
  """

  kind = 'words'

  def __init__(self, tokens: Sequence[str], rule: str, *, lower_case: bool = False, known: int = 0):
    self.tokens, self.rule, self.lower_case = list(tokens), rule, lower_case
    self.vocab_size = len(self.tokens)
    self.known = known or self.vocab_size
    self._ids = {token: i for i, token in enumerate(self.tokens)}
    if '<unk>' not in self._ids:
      raise InputError('a vocabulary of words must hold <unk>')
    self.unk_id, self.eos_id = self._ids['<unk>'], self._ids.get('<eos>')

  def encode(self, text: str) -> np.ndarray:
    words = word_rules.split(text, self.rule, self.lower_case)
    get, unk = self._ids.get, self.unk_id
    return np.fromiter((get(word, unk) for word in words), np.int32, len(words))

  def decode(self, ids: Iterable[int]) -> str:
    words = [self.tokens[i] for i in self._checked(ids)]
    if self.rule == 'prose':
      return word_rules.join(words)
    return re.sub(r' ?\n ?', '\n', ' '.join('\n' if word == '<eos>' else word for word in words))

  def id_to_token(self, index: int) -> str:
    return self.tokens[index]

  def starts_word(self, ids: np.ndarray) -> np.ndarray:
    return np.ones(len(self._checked(ids)), bool)

  def content(self) -> dict[str, Any]:
    content = {'kind': self.kind, 'rule': self.rule, 'lower_case': self.lower_case, 'tokens': self.tokens}
    return content if self.known == self.vocab_size else content | {'known': self.known}


class Missing(InputError):
  """A folder without the files of a tokenizer."""


class Absent(Tokenizer):
  """Stand-in for the tokenizer of a model that was imported without one: it has a size alone."""

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


def with_all_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Words:
  """The tokenizer with the other words of `texts` behind its own, by falling frequency; InputError if not of words."""
  if not isinstance(tokenizer, Words):
    raise InputError(f'data.characters needs data.tokenizer "words"; it is "{tokenizer.kind}"')
  counts: collections.Counter[str] = collections.Counter()
  for text in texts:
    counts.update(word_rules.split(text, tokenizer.rule, tokenizer.lower_case))
  known = set(tokenizer.tokens)
  others = [word for word in _ranked(counts) if word not in known]
  return Words(tokenizer.tokens + others, tokenizer.rule, lower_case=tokenizer.lower_case, known=tokenizer.known)


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
  """Learns a tokenizer; the result depends on the arguments alone.

  Args:
    kind: one of KINDS.
    texts: documents to learn from.
    vocab_size: the most entries, special tokens included; 0: no limit (words, characters), 8192 (subwords).
    min_count: rarer words or characters become `<unk>`; for bpe and wordpiece the least count of a merged pair.
    lower_case: words and subwords.
    rule: see `Words`.
    document_eos: give bytes, characters and words of rule 'prose' an `<eos>` that ends a document.
    others: characters only: texts not learned from that must be encodable; `<unk>` is added if they need it.
    marks: unigram only: the special tokens that the first ids are of, one of MARKS.
    prefix_space: bpe only: a word has the same pieces at the beginning of a text as within it.
  """
  check_options(kind, marks, prefix_space)
  if kind == 'bytes':
    return Bytes(eos=document_eos)
  if kind == 'characters':
    return _train_characters(texts, vocab_size, min_count, document_eos, others)
  if kind == 'words':
    return _train_words(texts, vocab_size, min_count, lower_case, rule, document_eos)
  if kind == 'bpe':
    return Bpe(subwords.train_bpe(texts, vocab_size or 8192, min_count, lower_case, prefix_space))
  if kind == 'word_bpe':
    return WordBpe(subwords.train_word_bpe(texts, vocab_size or 8192, min_count, lower_case))
  if kind == 'gpt_bpe':
    return GptBpe(subwords.train_gpt_bpe(texts, vocab_size or 8192, min_count))
  if kind == 'unigram':
    return Unigram(subwords.train_unigram(texts, vocab_size or 8192, lower_case, MARKS[marks]))
  if kind == 'wordpiece':
    return WordPiece(subwords.train_wordpiece(texts, vocab_size or 8192, min_count, lower_case))
  raise InputError(f'unknown tokenizer "{kind}"{nearest(kind, KINDS)}')


def check_options(kind: str, marks: str, prefix_space: bool) -> None:
  """InputError unless a trained tokenizer of this kind can have these marks and this prefix."""
  check_choice('data.marks', marks, tuple(MARKS))
  if marks and kind != 'unigram':
    raise InputError(f'data.marks "{marks}" goes with data.tokenizer "unigram", not "{kind}"')
  if prefix_space and kind != 'bpe':
    raise InputError(f'data.prefix_space goes with data.tokenizer "bpe", not "{kind}"; set it to False')


def _ranked(counts: collections.Counter[str]) -> list[str]:
  return [token for token, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _train_characters(texts: Any, vocab_size: int, min_count: int, document_eos: bool, others: Any) -> Characters:
  counts: collections.Counter[str] = collections.Counter()
  for text in texts:
    counts.update(text)
  kept = [c for c in _ranked(counts) if counts[c] >= min_count]
  limit = vocab_size - document_eos if vocab_size else len(kept)
  unknown = len(kept) < len(counts) or limit < len(kept) or _has_others(others, set(kept))
  if unknown and vocab_size:
    limit -= 1
  special = ['<eos>'] * document_eos + ['<unk>'] * unknown
  if limit < 1:
    raise InputError(f'vocab_size {vocab_size} leaves no room for characters')
  return Characters(special + kept[:limit])


def _has_others(texts: Iterable[str], known: set[str]) -> bool:
  return any(not known.issuperset(text) for text in texts)


def _train_words(texts: Any, vocab_size: int, min_count: int, lower_case: bool, rule: Any, document_eos: bool) -> Words:
  counts: collections.Counter[str] = collections.Counter()
  documents = 0
  for text in texts:
    counts.update(word_rules.split(text, rule, lower_case))
    documents += 1
  special = {'<unk>'}
  if rule == 'lines' or rule == 'prose' and document_eos:
    special.add('<eos>')
  if rule == 'prose' and document_eos:
    counts['<eos>'] += documents
  words = [word for word in _ranked(counts) if word not in special and counts[word] >= min_count]
  if vocab_size:
    if vocab_size <= len(special):
      raise InputError(f'vocab_size {vocab_size} leaves no room for words')
    words = words[: vocab_size - len(special)]
  kept = set(words)
  counts['<unk>'] += sum(n for word, n in counts.items() if word not in kept and word not in special)
  tokens = _ranked(collections.Counter({word: counts[word] for word in (*words, *special)}))
  return Words(tokens, rule, lower_case=lower_case)


# Files of a vocabulary -> of its merges: as Hugging Face has them, GPT-2's and GPT's as released.
_MERGES = {'vocab.json': 'merges.txt', 'encoder.json': 'vocab.bpe', 'encoder_bpe_40000.json': 'vocab_40000.bpe'}
# Kinds whose files others write, and how these are called where they are not vocabularies with merges.
_READ = {'bpe': Bpe, 'word_bpe': WordBpe, 'gpt_bpe': GptBpe, 'wordpiece': WordPiece, 'unigram': Unigram}
_FILES = {'wordpiece': ('tokenizer.json', 'vocab.txt'), 'unigram': ('tokenizer.json', spiece.FILE)}


def read(kind: str, path: str, *, lower_case: bool = False) -> Tokenizer:
  """Read a tokenizer of another library.

  Args:
    kind: 'bpe', 'word_bpe', 'gpt_bpe': a tokenizer.json, or a directory with one or with vocab.json and merges.txt, or
      the same under the names of OpenAI's releases; 'wordpiece': a tokenizer.json, a vocab.txt, or a directory with
      either; 'unigram': the same with a spiece.model; other kinds: a directory written by `save`.
    path: file or directory; of a directory the settings of transformers are read too (tokenizer_settings.py).
    lower_case: for a vocab.txt or spiece.model.

  Raises:
    InputError: no such tokenizer, a damaged file, or settings that lmx does not compute with or that name the other
      case.
  """
  if kind not in KINDS:
    raise InputError(f'unknown tokenizer "{kind}"{nearest(kind, KINDS)}')
  directory, settings = path, tokenizer_settings.Settings()
  if os.path.isdir(path):
    if os.path.exists(os.path.join(path, FILE)):
      tokenizer = load(path)
      if tokenizer.kind != kind:
        raise InputError(f'{path} holds a tokenizer of kind {tokenizer.kind}, not {kind}')
      return tokenizer
    names = _FILES[kind] if kind in _FILES else ('tokenizer.json', *_MERGES)
    path = next((p for p in (os.path.join(path, name) for name in names) if os.path.exists(p)), path)
    settings = tokenizer_settings.read(directory, kind)
  if kind not in _READ or not os.path.isfile(path):
    raise Missing(f'{path}: no tokenizer of kind {kind} there')
  if os.path.basename(path) in ('vocab.txt', spiece.FILE) and settings.lower_case not in (None, lower_case):
    raise InputError(
      f'data.lower_case: got {lower_case}; expected {settings.lower_case}, because {directory} has '
      f'do_lower_case {str(settings.lower_case).lower()} in {tokenizer_settings.FILE}; set '
      f'data.lower_case={settings.lower_case}'
    )
  try:
    model = tokenizer_settings.apply(_model(kind, path, lower_case, settings), settings, directory)
    return _READ[kind](model, settings.special)
  except InputError:
    raise
  except Exception as error:  # the library raises bare Exception for a bad file
    raise InputError(f'{path}: not a {kind} tokenizer: {error}') from error


def _model(kind: str, path: str, lower_case: bool, settings: tokenizer_settings.Settings) -> hf.Tokenizer:
  """Return the model in a file."""
  if os.path.basename(path) == 'tokenizer.json':
    model = hf.Tokenizer.from_file(path)
    return subwords.marks_apart(model) if kind == 'unigram' else model
  if kind == 'wordpiece':
    unknown = settings.special.get('unk', '[UNK]')
    return subwords.wordpiece(hf.models.WordPiece.from_file(path, unk_token=unknown), lower_case)
  if kind == 'unigram':
    found = spiece.tokenizer(spiece.read(path), lower_case=lower_case, keep_accents=settings.keep_accents)
    return subwords.marks_apart(found)
  merges = os.path.join(os.path.dirname(path), _MERGES.get(os.path.basename(path), 'merges.txt'))
  around = {'bpe': subwords.bpe, 'word_bpe': subwords.word_bpe, 'gpt_bpe': subwords.gpt_bpe}[kind]
  model = around(subwords.read_bpe(path, merges, kind))
  if kind in ('bpe', 'word_bpe'):
    model.add_special_tokens([settings.special.get('eos', subwords.END_OF_TEXT)])
  return model


def load(directory: str) -> Tokenizer:
  """Reads what `save` wrote."""
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
    if kind == Absent.kind:
      return Absent(content['vocab_size'])
    model = hf.Tokenizer.from_str(json.dumps(content['model']))
    return _READ[kind](model, content.get('special'))
  except InputError:
    raise
  except Exception as error:  # the library raises bare Exception for a bad file
    raise InputError(f'{path}: not a tokenizer of lmx: {error}') from error
