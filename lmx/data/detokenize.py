"""Invertible detokenization: plain text from a data set's tokens, and the tokens from that text.

GPT-2 is evaluated on texts tokenized for older models, with `@-@` for a hyphen and a space before every
comma. Such artifacts are "removed with invertible de-tokenizers" before encoding (Radford et al. 2019, section 3.1).
Because nothing is lost, the plain text has the original's probability, and perplexity is per original word. The paper's
rules were not published; these are ours.

`detokenize` joins tokens and `tokenize` splits them; for every line of tokens `tokenize(rules, detokenize(rules,
line))` is that line. This holds by construction. Adjacent tokens without a blank form a chunk, which is written only if
`_tokenize_chunk` recovers its tokens. Otherwise it is written as smaller chunks. A single token that cannot be
recovered is written verbatim after two blanks instead of one.

A line has tokens separated by blanks; leading and trailing blanks are not preserved.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence

from lmx.data.sentences import ABBREVIATIONS

_CHUNKS = re.compile(r'( *)([^ ]+)')
Pairs = tuple[tuple[str, str], ...]
_MEMORY = 1 << 16  # cached chunks
_ENGLISH = r"n't|'(?:s|re|ve|ll|d|m)"  # clitics that the Penn Treebank splits off a word
_MOSES = r"'[^\W\d_]\w*"  # clitics that the Moses tokenizer splits off a word


@dataclasses.dataclass(frozen=True, eq=False)
class Rules:
  """Rules by which a data set was tokenized.

  Attributes:
    openers: tokens joined to the next one, and their written form.
    closers: tokens joined to the one before, and their written form.
    quotes: tokens joined alternately to the next one and the one before.
    infixes: tokens joined to both neighbours, their written form, and the class of the adjacent characters.
    clitics: pattern of tokens that were split off the end of a word and are joined to it.
    runs: single-character tokens joined to equal neighbours.
    stops: True if `.` is a token at the end of a sentence, but part of an abbreviation.
    inside: substrings within words, and their written form.
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
    """Return (token, written form) of the tokens that may start a chunk."""
    return (*((quote, quote) for quote in self.quotes), *self.openers)

  @functools.cached_property
  def _last(self) -> Pairs:
    """Return (token, written form) of the tokens that may end a chunk, including the apostrophe of plural genitives."""
    return (*((quote, quote) for quote in self.quotes), *self.closers, *((("'", "'"),) if self.clitics else ()))

  @functools.cached_property
  def _forms(self) -> dict[str, str]:
    """Return {opener or closer: its written form}."""
    return {**dict(self.openers), **dict(self.closers)}

  @functools.cached_property
  def _between(self) -> dict[str, str]:
    """Return {infix: its written form}."""
    return {token: form for token, form, _ in self.infixes}

  @functools.cached_property
  def _clitic(self) -> re.Pattern[str]:
    """Return the pattern of a clitic; `<unk>` is a word."""
    return re.compile(f'(.*[\\w>.])?({self.clitics or "$^"})', re.I)


def _unchanged(text: str) -> Pairs:
  return tuple((token, token) for token in text.split())


_POINTS = _unchanged(', ; : ! ? % )') + _unchanged(']')
RULES: Mapping[str, Rules] = {
  'wikitext': Rules(  # Merity et al. 2016, section 4.2: the Moses tokenizer, and symbols where it splits inside a word
    openers=_unchanged('( [ $ £ € ¥ ₹'),
    closers=(*_POINTS, ('.', '.')),
    quotes=('"',),
    clitics=_MOSES,
    runs=('=',),
    stops=True,
    infixes=(('@-@', '-', r'\w'), ('@,@', ',', r'\d'), ('@.@', '.', r'\d')),
  ),
  'ptb': Rules(  # Mikolov et al. 2010: lower case, without punctuation
    openers=_unchanged('$ # c$ us$ a$ hk$'),
    clitics=_ENGLISH,
    inside=(('\\/', '/'), ('\\*', '*')),
  ),
  'penn': Rules(  # the Penn Treebank's own way, as of the Stanford tools
    openers=(('``', '"'), ('`', "'"), ('-LRB-', '('), ('-LSB-', '['), *_unchanged('$ £')),
    stops=True,
    clitics=_ENGLISH,
    closers=(("''", '"'), ('-RRB-', ')'), ('-RSB-', ']'), *_unchanged(', ; : ! ? % .')),
  ),
  'lm1b': Rules(  # Chelba et al. 2013: as Moses splits, with straight quotes and unsplit hyphens
    openers=_unchanged('( [ $ £'),
    closers=(*_POINTS, ('.', '.')),
    quotes=('"',),
    clitics=_MOSES,
    stops=True,
  ),
}


def detokenize(rules: Rules, text: str) -> str:
  """Return the lines of `text`, tokens separated by blanks, in their written form."""
  return '\n'.join(''.join(token_texts(rules, line.split(' '))) for line in text.split('\n'))


def tokenize(rules: Rules, text: str) -> str:
  """Return the lines written by `detokenize` as tokens separated by one blank."""
  return '\n'.join(' '.join(_tokenize_line(rules, line)) for line in text.split('\n'))


def token_texts(rules: Rules, line: Sequence[str]) -> list[str]:
  """Return the text of each token in a line, with the blanks before it; empty tokens are skipped."""
  line = [token for token in line if token]
  texts: list[str] = []
  start = 0
  is_joined = _is_joined(rules, line)
  for end in range(1, len(line) + 1):
    if end == len(line) or not is_joined[end]:
      texts += _shortest_form(rules, tuple(line[start:end]))
      start = end
  if texts and texts[0].startswith(' ') and not texts[0].startswith('  '):
    texts[0] = texts[0][1:]
  return texts


def _tokenize_line(rules: Rules, line: str) -> list[str]:
  """Return the tokens of a line."""
  line_tokens: list[str] = []
  for blanks, chunk in _CHUNKS.findall(line):
    line_tokens += (chunk,) if len(blanks) > 1 else _tokenize_chunk(rules, chunk)
  return line_tokens


def _is_joined(rules: Rules, line: Sequence[str]) -> list[bool]:
  """Return True for each token that is joined to the one before it."""
  joined = [False] * (len(line) + 1)
  opened: set[str] = set()
  for i, token in enumerate(line):
    kind = _kind(rules, token)
    if kind == 'word':
      continue
    if kind == 'quote':
      joined[i + (token not in opened)] = True
      opened ^= {token}
    elif kind == 'infix':
      joined[i] = joined[i + 1] = 0 < i < len(line) - 1
    elif kind == 'opener':
      joined[i + 1] = True
    elif kind == 'closer' or i and (token == line[i - 1] if kind == 'run' else line[i - 1].endswith('s')):
      joined[i] = True
  joined[0] = False
  return joined


@functools.lru_cache(_MEMORY)
def _kind(rules: Rules, token: str) -> str:
  """Return the rule that determines whether a token is joined to others."""
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
def _shortest_form(rules: Rules, chunk: tuple[str, ...]) -> tuple[str, ...]:
  """Return the shortest text from which the tokens of a chunk can be recovered, with a blank before each part."""
  best: list[tuple[int, tuple[str, ...]]] = [(0, ())]
  for end in range(1, len(chunk) + 1):
    candidates = []
    for start in range(end):
      part = chunk[start:end]
      forms = _forms(rules, part)
      if _tokenize_chunk(rules, ''.join(forms)) == part:
        candidates.append((best[start][0] + 1, (*best[start][1], ' ' + forms[0], *forms[1:])))
    whole = best[end - 1]
    candidates.append((whole[0] + len(chunk) + 1, (*whole[1], '  ' + chunk[end - 1])))  # costs more than any other
    best.append(min(candidates, key=lambda candidate: candidate[0]))
  return best[-1][1]


def _forms(rules: Rules, part: Sequence[str]) -> list[str]:
  """Return the text of joined tokens, without blanks."""
  texts = []
  for i, token in enumerate(part):
    form = rules._between.get(token, token) if 0 < i < len(part) - 1 else token
    form = rules._forms.get(token, form)
    for token_part, written in rules.inside:
      form = form.replace(token_part, written)
    texts.append(form)
  return texts


@functools.lru_cache(_MEMORY)
def _tokenize_chunk(rules: Rules, chunk: str) -> tuple[str, ...]:
  """Return a chunk's tokens, which depend only on the chunk."""
  if len(set(chunk)) == 1 and chunk[0] in rules.runs:
    return tuple(chunk)
  first: list[str] = []
  last: list[str] = []
  while match := _longest_match(chunk, rules._first, str.startswith):
    first, chunk = [*first, match[0]], chunk[len(match[1]) :]
  while match := _longest_match(chunk, rules._last, str.endswith):
    if match[0] == '.' and rules.stops and _is_abbreviation(chunk[:-1]):
      break
    last, chunk = [match[0], *last], chunk[: -len(match[1])]
  alone = {form: token for token, form in rules.closers}
  return (*first, *([alone[chunk]] if chunk in alone else _tokenize_core(rules, chunk)), *last)


def _longest_match(chunk: str, pairs: Pairs, has_end: Callable[[str, str], bool]) -> tuple[str, str] | None:
  """Return (token, written form) of the longest match at an end of a chunk that has more text."""
  matches = [pair for pair in pairs if len(chunk) > len(pair[1]) and has_end(chunk, pair[1])]
  return max(matches, key=lambda pair: len(pair[1]), default=None)


def _is_abbreviation(stem: str) -> bool:
  """Return True if `stem` with `.` is an abbreviation or an initial: Mr, U.S."""
  bare = stem.lower()
  return bare in ABBREVIATIONS or bool(re.fullmatch(r'[^\W\d_](\.[^\W\d_])*', stem)) or bare.endswith('.')


def _tokenize_core(rules: Rules, core: str) -> list[str]:
  """Return the tokens of a chunk without openers and closers: split at infixes, then each part at its clitics."""
  parts_of_core = [core]
  for token, form, side in rules.infixes:
    parts = [re.split(f'(?<=[{side}>]){re.escape(form)}(?=[{side}<])', part) for part in parts_of_core]
    parts_of_core = [x for part in parts for i, word in enumerate(part) for x in ((token, word) if i else (word,))]
  for token_part, written in rules.inside:
    parts_of_core = [part.replace(written, token_part) for part in parts_of_core]
  return [token for part in parts_of_core for token in _split_clitics(rules, part)]


def _split_clitics(rules: Rules, word: str) -> list[str]:
  """Return a word and the clitics split off its end, in order."""
  clitics: list[str] = []
  while (match := rules._clitic.fullmatch(word)) and match[1]:
    word, clitics = match[1], [match[2], *clitics]
  return [word, *clitics]
