"""Word tokenizer: splits text into words and punctuation, and joins them as prose."""

from __future__ import annotations

import collections
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from lmx.data.tokenizers import fastai
from lmx.data.tokenizers.base import Tokenizer, by_frequency
from lmx.errors import InputError

_JOINERS = '\u200c\u200d'
# Combining characters, such as vowel signs of Hindi and separate accents; beyond the basic plane they would slow `re`.
_MARKS = ''.join(c for c in map(chr, range(0x300, 0x10000)) if unicodedata.category(c)[0] == 'M')


def _rule(inside: str, hanging: bool = False) -> str:
  """Return the pattern of a word or a sign; `inside` are non-letters allowed within words."""
  letters = rf'\w+(?:[{inside}]+\w*)*'
  word = rf"{letters}(?:[-.'’]{letters})*"
  if hanging:
    word = rf'(?:(?<![\w-])-)?{word}(?:-(?![\w-]))?'
  return rf'\n|<unk>|(?:[A-Za-z]\.){{2,}}|{word}|\.{{3}}|--+|[^\w\s]'


_PROSE = re.compile(_rule(_MARKS + _JOINERS))
# A hanging hyphen belongs to its word, as for Moses' tokenizer: German `Obst- und Gemüse`. For Oniguruma, which
# counts combining characters as letters.
HANGING = _rule(_JOINERS, hanging=True)
# Pattern of the words of a text, by rule. 'double' has none: it adds words that are not in the text.
_PLACED = {'prose': _PROSE, 'space': re.compile(r'\S+'), 'lines': re.compile(r'\n|\S+')}
_CLOSING = frozenset('. , ; : ! ? ) ] } % ... ’'.split())
_OPENING = frozenset('( [ { $ # @ \\'.split())
_QUOTES = {'"': '"', "'": "'", '`': '`', '„': '“”', '“': '”', '”': '”'}  # closing quotes: German, English, Swedish


def split(text: str, rule: str, lower_case: bool = False) -> list[str]:
  """Return the words of `text` under a rule of `Words`."""
  if lower_case:
    text = text.lower()
  if rule == 'prose':
    return _PROSE.findall(text)
  if rule == 'fastai':
    return fastai.split(text)
  if rule == 'double':
    *lines, begun = text.split('\n')
    marked = [f'<eos> {line} <eos>' for line in lines] + [f'<eos> {begun}'] * bool(begun.strip())
    return ' '.join(marked).split()
  return (text.replace('\n', ' <eos> ') if rule == 'lines' else text).split()


def join(words: Sequence[str]) -> str:
  """Return words and punctuation as prose: no space before a comma, none inside brackets and quotes."""
  parts: list[str] = []
  opened: list[str] = []
  glue = True  # no space before the next word
  for word in words:
    if word in ('\n', '<eos>'):
      parts.append('\n' if word == '\n' else '\n\n')
      glue, opened = True, []
      continue
    opening = next((quote for quote in opened[::-1] if word in _QUOTES[quote]), '')
    parts.append(word if glue or opening or word in _CLOSING else ' ' + word)
    glue = word in _OPENING or word in _QUOTES and not opening
    if opening:
      opened.remove(opening)
    elif word in _QUOTES:
      opened.append(word)
  return ''.join(parts)


class Words(Tokenizer):
  """Words with `<unk>`.

  Args:
    tokens: the vocabulary, by decreasing frequency.
    rule: 'lines': white space splits, a line end is `<eos>`; 'double': the same with another `<eos>` at the start of
      each line (Transformer-XL's One Billion Word, Dai et al. 2019); 'space': white space splits; 'prose': words,
      punctuation and line ends, and `<eos>` ends a document; 'fastai': see fastai.py.
    lower_case: lower-case the text first.
    known: number of tokens of the vocabulary proper; the others only have characters; 0: all.
  """

  kind = 'words'

  def __init__(self, tokens: Sequence[str], rule: str, *, lower_case: bool = False, known: int = 0):
    self.tokens, self.rule, self.lower_case = list(tokens), rule, lower_case
    self.has_spans, self.ends_lines = rule in _PLACED, rule in ('lines', 'double')
    self.vocab_size = len(self.tokens)
    self.known = known or self.vocab_size
    self._ids = {token: i for i, token in enumerate(self.tokens)}
    if '<unk>' not in self._ids:
      raise InputError('vocabulary: got words without <unk>; expected it for unknown words')
    self.unk_id, self.eos_id = self._ids['<unk>'], self._ids.get('<eos>')

  @property
  def proper(self) -> Words:
    """The tokenizer of the `known` words."""
    return Words(self.tokens[: self.known], self.rule, lower_case=self.lower_case)

  def encode(self, text: str) -> np.ndarray:
    words = self.split(text)
    get, unk = self._ids.get, self.unk_id
    return np.fromiter((get(word, unk) for word in words), np.int32, len(words))

  def encode_spans(self, text: str) -> tuple[np.ndarray, np.ndarray]:
    if not self.has_spans:
      raise InputError(
        f'got "{self.rule}", whose words have no offsets; expected a tokenizer of rule {", ".join(_PLACED)}'
      )
    read = text.lower() if self.lower_case else text
    spans_T2 = np.asarray([word.span() for word in _PLACED[self.rule].finditer(read)], np.int32).reshape(-1, 2)
    if len(read) != len(text):  # a letter may be two in lower case, such as U+0130
      of_read = np.repeat(np.arange(len(text), dtype=np.int32), [len(letter.lower()) for letter in text])
      spans_T2 = np.stack([of_read[spans_T2[:, 0]], of_read[spans_T2[:, 1] - 1] + 1], axis=1)
    return self.encode(text), spans_T2

  def split(self, text: str) -> list[str]:
    """Return the words of `text`, one for each id of `encode`."""
    return split(text, self.rule, self.lower_case)

  def decode(self, ids: Iterable[int]) -> str:
    return self.join([self.tokens[i] for i in self._check_ids(ids)])

  def join(self, words: Sequence[str]) -> str:
    """Return the text of words, which may be outside the vocabulary."""
    if self.rule in ('prose', 'fastai'):
      return join(fastai.spelled(words) if self.rule == 'fastai' else words)
    text = re.sub(r' ?\n ?', '\n', ' '.join('\n' if word == '<eos>' else word for word in words))
    return text.removeprefix('\n').replace('\n\n', '\n') if self.rule == 'double' else text

  def id_to_token(self, index: int) -> str:
    return self.tokens[index]

  def spellings(self) -> list[bytes]:
    return [token.encode('utf-8', 'replace') for token in self.tokens]

  def starts_word(self, ids: np.ndarray, *, joins_space: bool = False) -> np.ndarray:
    del joins_space
    return np.ones(len(self._check_ids(ids)), bool)

  def content(self) -> dict[str, Any]:
    content = {'kind': self.kind, 'rule': self.rule, 'lower_case': self.lower_case, 'tokens': self.tokens}
    return content if self.known == self.vocab_size else content | {'known': self.known}


def with_all_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Words:
  """Append the other words of `texts` by decreasing frequency; raise InputError unless it is a word tokenizer."""
  if not isinstance(tokenizer, Words):
    raise InputError(f'data.tokenizer: got "{tokenizer.kind}" with data.characters; expected "words"')
  tokens = tokenizer.tokens + _other_words(tokenizer, texts)
  return Words(tokens, tokenizer.rule, lower_case=tokenizer.lower_case, known=tokenizer.known)


def with_more_words(tokenizer: Words, texts: Iterable[str], select: Callable[[list[str]], list[str]]) -> Words:
  """Append the further words in `texts` that `select` returns to the vocabulary."""
  proper = tokenizer.proper
  tokens = proper.tokens + select(_other_words(proper, texts))
  return Words(tokens, proper.rule, lower_case=proper.lower_case)


def _other_words(tokenizer: Words, texts: Iterable[str]) -> list[str]:
  """Return the words of `texts` without an id, by decreasing frequency."""
  counts: collections.Counter[str] = collections.Counter()
  for text in texts:
    counts.update(split(text, tokenizer.rule, tokenizer.lower_case))
  known = set(tokenizer.tokens)
  return [word for word in by_frequency(counts) if word not in known]


def train(
  texts: Iterable[str], vocab_size: int, min_count: int, lower_case: bool, rule: str, document_eos: bool
) -> Words:
  """Train a word tokenizer; see `lmx.data.tokenizers.build.train`."""
  counts: collections.Counter[str] = collections.Counter()
  documents = 0
  for text in texts:
    counts.update(split(text, rule, lower_case))
    documents += 1
  special = {'<unk>'}
  if rule in ('lines', 'double') or rule == 'prose' and document_eos:
    special.add('<eos>')
  if rule == 'prose' and document_eos:
    counts['<eos>'] += documents
  words = [word for word in by_frequency(counts) if word not in special and counts[word] >= min_count]
  if vocab_size:
    if vocab_size <= len(special):
      raise InputError(f'data.vocab_size: got {vocab_size}, which has no room for words; increase it')
    words = words[: vocab_size - len(special)]
  vocabulary = set(words)
  counts['<unk>'] += sum(n for word, n in counts.items() if word not in vocabulary and word not in special)
  tokens = by_frequency(collections.Counter({word: counts[word] for word in (*words, *special)}))
  return Words(tokens, rule, lower_case=lower_case)
