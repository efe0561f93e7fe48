"""Text as people write it, from the tokens of a data set, and the tokens back from that text.

GPT-2 is measured on texts that were cut into words for older models, with `@-@` for a hyphen and a space before every
comma. Such marks are "removed with invertible de-tokenizers" before it reads them (Radford et al. 2019, section 3.1);
since nothing is lost, what it says of the written text it says of the original, and its perplexity is that of the
original's words. Which rules were used was not published, so these are our own.

`write` puts tokens together and `tokens` takes them apart; for every line of tokens `tokens(rules, write(rules, line))`
is that line. It is so by construction: tokens that touch are a chunk, and a chunk is left only if `_cut` makes its
tokens of it. A chunk of which it makes others is written as fewer tokens that touch; a single token that does not come
back is written as it is after two blanks instead of one, which mark it as whole.

What a line is: tokens with blanks between them; blanks at its ends are not kept.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence

from lmx.data.sentences import ABBREVIATIONS

_CHUNKS = re.compile(r'( *)([^ ]+)')
Pairs = tuple[tuple[str, str], ...]
_MEMORY = 1 << 16  # chunks that are remembered
_ENGLISH = r"n't|'(?:s|re|ve|ll|d|m)"  # what the Penn Treebank cuts off a word
_MOSES = r"'[^\W\d_]\w*"  # what the Moses tokenizer cuts off a word


@dataclasses.dataclass(frozen=True, eq=False)
class Rules:
  """Rules by which a data set was tokenised.

  Attributes:
    openers: token that touches the next one, and how it is written.
    closers: token that touches the one before, and how it is written.
    quotes: tokens that touch the next one and the one before in turn.
    infixes: token between two that touch it, how it is written, and the class of the characters beside it.
    clitics: pattern of tokens that are cut off the end of a word and touch it.
    runs: tokens of one character that touch their like.
    stops: whether `.` is a token at the end of a sentence, while that of an abbreviation is a part of it.
    inside: mark inside words, and how it is written.
  """

  openers: Pairs = ()
  closers: Pairs = ()
  quotes: tuple[str, ...] = ()
  infixes: tuple[tuple[str, str, str], ...] = ()
  clitics: str = ''
  runs: tuple[str, ...] = ()
  stops: bool = False
  inside: Pairs = ()

  @functools.cached_property
  def _first(self) -> Pairs:
    """Return the texts that a chunk may begin with."""
    return (*((quote, quote) for quote in self.quotes), *self.openers)

  @functools.cached_property
  def _last(self) -> Pairs:
    """Return the texts that a chunk may end with, including the mark of a plural's genitive."""
    return (*((quote, quote) for quote in self.quotes), *self.closers, *((("'", "'"),) if self.clitics else ()))

  @functools.cached_property
  def _forms(self) -> dict[str, str]:
    """Opener or closer -> how it is written."""
    return {**dict(self.openers), **dict(self.closers)}

  @functools.cached_property
  def _between(self) -> dict[str, str]:
    """Infix -> how it is written."""
    return {token: form for token, form, _ in self.infixes}

  @functools.cached_property
  def _clitic(self) -> re.Pattern[str]:
    """A clitic; `<unk>` is a word."""
    return re.compile(f'(.*[\\w>.])?({self.clitics or "$^"})', re.I)


def _same(text: str) -> Pairs:
  return tuple((token, token) for token in text.split())


_POINTS = _same(', ; : ! ? % )') + _same(']')
RULES: Mapping[str, Rules] = {
  'wikitext': Rules(  # Merity et al. 2016, section 4.2: the Moses tokenizer, and marks where it cut inside a word
    openers=_same('( [ $ £ € ¥ ₹'),
    closers=(*_POINTS, ('.', '.')),
    quotes=('"',),
    clitics=_MOSES,
    runs=('=',),
    stops=True,
    infixes=(('@-@', '-', r'\w'), ('@,@', ',', r'\d'), ('@.@', '.', r'\d')),
  ),
  'ptb': Rules(  # Mikolov et al. 2010: lower case, without punctuation
    openers=_same('$ # c$ us$ a$ hk$'),
    clitics=_ENGLISH,
    inside=(('\\/', '/'), ('\\*', '*')),
  ),
  'penn': Rules(  # the Penn Treebank's own way, as of the Stanford tools
    openers=(('``', '"'), ('`', "'"), ('-LRB-', '('), ('-LSB-', '['), *_same('$ £')),
    stops=True,
    clitics=_ENGLISH,
    closers=(("''", '"'), ('-RRB-', ')'), ('-RSB-', ']'), *_same(', ; : ! ? % .')),
  ),
  'lm1b': Rules(  # Chelba et al. 2013: as Moses cuts, with straight quotes and hyphens left alone
    openers=_same('( [ $ £'),
    closers=(*_POINTS, ('.', '.')),
    quotes=('"',),
    clitics=_MOSES,
    stops=True,
  ),
}


def write(rules: Rules, text: str) -> str:
  """The lines of `text`, tokens with blanks between them, as they are written."""
  return '\n'.join(''.join(pieces(rules, line.split(' '))) for line in text.split('\n'))


def tokens(rules: Rules, text: str) -> str:
  """The lines of what `write` made, as tokens with one blank between them."""
  return '\n'.join(' '.join(_line(rules, line)) for line in text.split('\n'))


def pieces(rules: Rules, line: Sequence[str]) -> list[str]:
  """Return the text of each token of a line, with the blanks before it; empty tokens are skipped."""
  line = [token for token in line if token]
  found: list[str] = []
  start = 0
  touching = _touching(rules, line)
  for end in range(1, len(line) + 1):
    if end == len(line) or not touching[end]:
      found += _written(rules, tuple(line[start:end]))
      start = end
  if found and found[0].startswith(' ') and not found[0].startswith('  '):
    found[0] = found[0][1:]
  return found


def _line(rules: Rules, line: str) -> list[str]:
  """The tokens of a line."""
  found: list[str] = []
  for blanks, chunk in _CHUNKS.findall(line):
    found += (chunk,) if len(blanks) > 1 else _cut(rules, chunk)
  return found


def _touching(rules: Rules, line: Sequence[str]) -> list[bool]:
  """Return True for each token that touches the one before it."""
  touches = [False] * (len(line) + 1)
  opened: set[str] = set()
  for i, token in enumerate(line):
    kind = _kind(rules, token)
    if kind == 'word':
      continue
    if kind == 'quote':
      touches[i + (token not in opened)] = True
      opened ^= {token}
    elif kind == 'infix':
      touches[i] = touches[i + 1] = 0 < i < len(line) - 1
    elif kind == 'opener':
      touches[i + 1] = True
    elif kind == 'closer' or i and (token == line[i - 1] if kind == 'run' else line[i - 1].endswith('s')):
      touches[i] = True
  touches[0] = False
  return touches


@functools.lru_cache(_MEMORY)
def _kind(rules: Rules, token: str) -> str:
  """Return the rule that decides whether a token touches others."""
  if token in rules.quotes:
    return 'quote'
  if token in rules._between:
    return 'infix'
  if token in dict(rules.openers):
    return 'opener'
  clitic = rules._clitic.fullmatch(token)
  if token in rules._forms or clitic and not clitic[1]:
    return 'closer'
  if token in rules.runs:
    return 'run'
  return 'genitive' if rules.clitics and token == "'" else 'word'


@functools.lru_cache(_MEMORY)
def _written(rules: Rules, chunk: tuple[str, ...]) -> tuple[str, ...]:
  """Return the shortest text from which the tokens of a chunk can be read again, a blank before each part."""
  best: list[tuple[int, tuple[str, ...]]] = [(0, ())]
  for end in range(1, len(chunk) + 1):
    ways = []
    for start in range(end):
      part = chunk[start:end]
      forms = _forms(rules, part)
      if _cut(rules, ''.join(forms)) == part:
        ways.append((best[start][0] + 1, (*best[start][1], ' ' + forms[0], *forms[1:])))
    whole = best[end - 1]
    ways.append((whole[0] + len(chunk) + 1, (*whole[1], '  ' + chunk[end - 1])))  # dearer than any way without it
    best.append(min(ways, key=lambda way: way[0]))
  return best[-1][1]


def _forms(rules: Rules, part: Sequence[str]) -> list[str]:
  """Return the text of tokens that touch, without blanks."""
  found = []
  for i, token in enumerate(part):
    form = rules._between.get(token, token) if 0 < i < len(part) - 1 else token
    form = rules._forms.get(token, form)
    for mark, written in rules.inside:
      form = form.replace(mark, written)
    found.append(form)
  return found


@functools.lru_cache(_MEMORY)
def _cut(rules: Rules, chunk: str) -> tuple[str, ...]:
  """The tokens of a chunk, by the chunk alone."""
  if len(set(chunk)) == 1 and chunk[0] in rules.runs:
    return tuple(chunk)
  first: list[str] = []
  last: list[str] = []
  while mark := _mark(chunk, rules._first, str.startswith):
    first, chunk = [*first, mark[0]], chunk[len(mark[1]) :]
  while mark := _mark(chunk, rules._last, str.endswith):
    if mark[0] == '.' and rules.stops and _abbreviation(chunk[:-1]):
      break
    last, chunk = [mark[0], *last], chunk[: -len(mark[1])]
  alone = {form: token for token, form in rules.closers}
  return (*first, *([alone[chunk]] if chunk in alone else _inner(rules, chunk)), *last)


def _mark(chunk: str, marks: Pairs, stands: Callable[[str, str], bool]) -> tuple[str, str] | None:
  """The longest of the marks that stands at an end of a chunk with more in it; (token, how it is written)."""
  found = [mark for mark in marks if len(chunk) > len(mark[1]) and stands(chunk, mark[1])]
  return max(found, key=lambda mark: len(mark[1]), default=None)


def _abbreviation(stem: str) -> bool:
  """Is a word without the `.` at its end one that has it of its own: Mr, U.S, an initial?"""
  bare = stem.lower()
  return bare in ABBREVIATIONS or bool(re.fullmatch(r'[^\W\d_](\.[^\W\d_])*', stem)) or bare.endswith('.')


def _inner(rules: Rules, core: str) -> list[str]:
  """The tokens of a chunk without marks at its ends: cut at infixes, and each part at its clitics."""
  found = [core]
  for token, form, side in rules.infixes:
    parts = [re.split(f'(?<=[{side}>]){re.escape(form)}(?=[{side}<])', part) for part in found]
    found = [x for part in parts for i, word in enumerate(part) for x in ((token, word) if i else (word,))]
  for mark, written in rules.inside:
    found = [part.replace(written, mark) for part in found]
  return [token for part in found for token in _off(rules, part)]


def _off(rules: Rules, word: str) -> list[str]:
  """A word and what is cut off its end, one after another."""
  cut: list[str] = []
  while (match := rules._clitic.fullmatch(word)) and match[1]:
    word, cut = match[1], [match[2], *cut]
  return [word, *cut]
