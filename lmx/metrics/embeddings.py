"""Metrics of word vectors: nearest words, similarity judgements, analogies.

Analogies: Mikolov et al. 2013 (arXiv 1301.3781, section 4.1) by the rule of word2vec's compute-accuracy and of gensim.
The answer is the word nearest to b - a + c, of unit vectors, among the most frequent ones except the three, ignoring
case. Questions with a word outside these are skipped. Similarity: Spearman's rank correlation between human ratings
and cosines (ties get their mean rank); pairs with an unknown word are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lmx import documents
from lmx.errors import InputError, nearest
from lmx.metrics import correlation

_NUMBER = re.compile(r'\d|[+-]?(?:nan|inf(?:inity)?)$', re.IGNORECASE)  # in the cell of a rating
_QUESTIONS = 256  # scored in one batch


class Analogies(NamedTuple):
  """Accuracy on analogies.

  Attributes:
    sections: name -> (correct, total).
    skipped: questions with a word that is unknown or not frequent enough.
  """

  sections: dict[str, tuple[int, int]]
  skipped: int

  def accuracy(self, kind: str = 'total') -> float:
    """Return the accuracy of 'semantic', 'syntactic' (sections that begin with "gram") or 'total'; NaN if none."""
    is_syntactic = {'total': (True, False), 'syntactic': (True,), 'semantic': (False,)}[kind]
    counts = [pair for name, pair in self.sections.items() if name.startswith('gram') in is_syntactic]
    total = sum(n for _, n in counts)
    return sum(right for right, _ in counts) / total if total else float('nan')


class Similarity(NamedTuple):
  """Spearman's correlation with human ratings, number of pairs used, and of pairs skipped."""

  spearman: float
  pairs: int
  skipped: int


class Vectors:
  """Words with their vectors, most frequent first.

  Attributes:
    words: the vocabulary.
    raw_VD: float32 vectors as learned.
    table_VD: the vectors normalised to unit length.
  """

  def __init__(self, words: Sequence[str], table_VD: np.ndarray):
    if len(words) != len(table_VD):
      raise InputError(f'{len(words)} words, but {len(table_VD)} vectors')
    self.words, self.raw_VD = list(words), np.asarray(table_VD, np.float32)
    norm_V1 = np.linalg.norm(table_VD, axis=1, keepdims=True)
    self.table_VD = (table_VD / np.maximum(norm_V1, 1e-12)).astype(np.float32)
    self._index = {word: i for i, word in reversed(list(enumerate(words)))}
    self._cases: dict[str, list[int]] = {}
    for i, word in enumerate(words):
      self._cases.setdefault(word.upper(), []).append(i)

  def index(self, word: str) -> int:
    """Return the word's row; raise InputError with the nearest word if it has none."""
    if word not in self._index:
      raise InputError(f'"{word}" has no vector{nearest(word, self.words[:20_000])}')
    return self._index[word]

  def nearest(self, word: str, count: int = 10) -> list[tuple[str, float]]:
    """Return the `count` words of largest cosine, with it."""
    return self._near(self.table_VD[self.index(word)], [self.index(word)], count)

  def analogy(self, a: str, b: str, c: str, count: int = 10) -> list[tuple[str, float]]:
    """Return the `count` words, except the three, of largest cosine with b - a + c: a is to b as c is to them."""
    rows = [self.index(word) for word in (a, b, c)]
    query_D = self.table_VD[rows[1]] - self.table_VD[rows[0]] + self.table_VD[rows[2]]
    return self._near(query_D / max(float(np.linalg.norm(query_D)), 1e-12), rows, count)

  def _near(self, query_D: np.ndarray, excluded: list[int], count: int) -> list[tuple[str, float]]:
    score_V = self.table_VD @ query_D
    score_V[excluded] = -np.inf
    best = np.argsort(-score_V)[: max(0, min(count, len(score_V) - len(set(excluded))))]
    return [(self.words[i], float(score_V[i])) for i in best]

  def similarity(self, pairs: Iterable[tuple[str, str, float]], restrict: int = 300_000, where: str = '') -> Similarity:
    """Return the correlation of cosines with human ratings, NaN with a warning where it is undefined.

    Args:
      pairs: (word, word, rating).
      restrict: number of most frequent words that are known.
      where: beginning of the warning, such as 'file: '.
    """
    cosines, ratings, skipped = [], [], 0
    for a, b, score in pairs:
      rows = [self._first(word, restrict) for word in (a, b)]
      if -1 in rows:
        skipped += 1
        continue
      cosines.append(self.table_VD[rows[0]] @ self.table_VD[rows[1]])
      ratings.append(score)
    names = 'cosines of known pairs', 'ratings of known pairs'
    return Similarity(correlation.correlations(cosines, ratings, names, where)['spearman'], len(cosines), skipped)

  def analogies(self, questions: Iterable[tuple[str, Sequence[str]]], restrict: int = 30_000) -> Analogies:
    """Answer the questions "a is to b as c is to ?".

    Args:
      questions: (section, (a, b, c, answer)).
      restrict: number of most frequent words that are known and can be answers.
    """
    sections: dict[str, tuple[int, int]] = {}
    known, skipped = [], 0
    for section, words in questions:
      sections.setdefault(section, (0, 0))
      rows = [self._first(word, restrict) for word in words]
      if -1 in rows:
        skipped += 1
      else:
        known.append((section, rows))
    for start in range(0, len(known), _QUESTIONS):
      part = known[start : start + _QUESTIONS]
      answer = self._answers(np.array([rows for _, rows in part]), restrict)
      for (section, rows), predicted in zip(part, answer, strict=True):
        right, total = sections[section]
        same = int(self.words[predicted].upper() == self.words[rows[3]].upper())
        sections[section] = (right + same, total + 1)
    return Analogies(sections, skipped)

  def _first(self, word: str, restrict: int) -> int:
    """Return the most frequent word that equals this one ignoring case; -1 if it is not among the first `restrict`."""
    rows = self._cases.get(word.upper())
    return rows[0] if rows and rows[0] < restrict else -1

  def _answers(self, rows_Q4: np.ndarray, restrict: int) -> np.ndarray:
    a, b, c = (self.table_VD[rows_Q4[:, i]] for i in range(3))
    score_QV = (b - a + c) @ self.table_VD[:restrict].T
    for q, rows in enumerate(rows_Q4[:, :3]):
      for row in rows:
        same = self._cases[self.words[row].upper()]
        score_QV[q, [i for i in same if i < restrict]] = -np.inf
    return np.argmax(score_QV, axis=1)


def project(table_ND: np.ndarray) -> np.ndarray:
  """Return the two principal components of some vectors, (N, 2), as in figure 2 of arXiv 1310.4546."""
  centred_ND = table_ND - table_ND.mean(0)
  u_NK, s_K, _ = np.linalg.svd(centred_ND, full_matrices=False)
  components_N2 = np.zeros((len(table_ND), 2))
  components_N2[:, : min(2, len(s_K))] = (u_NK * s_K)[:, :2]
  return components_N2


def read_questions(path: str) -> Iterator[tuple[str, list[str]]]:
  """Yield (section, [a, b, c, answer]) of a file like questions-words.txt, which may be gzipped. Raises InputError."""
  section = ''
  for number, line in enumerate(documents.read_lines(path), 1):
    words = line.split()
    if line.startswith(':'):
      section = line[1:].strip()
    elif len(words) == 4:
      yield section, words
    elif words:
      raise InputError(f'{path}, line {number}: got {len(words)} words; expected a question of four')


def read_judgements(path: str) -> Iterator[tuple[str, str, float]]:
  """Yield (word, word, rating) of lines split by tabs, semicolons, commas or spaces; # lines are skipped.

  A first line without a number is a header. Further cells, such as the ratings of each person, are skipped; in lines
  split by commas or semicolons only below a header that names them, since they may be decimals.

  Raises:
    InputError: no such file, or a line of another form.
  """
  width = 0  # cells of the first line
  for number, line in enumerate(documents.read_lines(path), 1):
    cells = _split(line)
    if not line.strip() or line.startswith('#'):
      continue
    if len(cells) < 3 or width and len(cells) != width:
      wanted = f'{width} cells, as in the first line' if width else 'two words and a number'
      raise InputError(f'{path}, line {number}: got {documents.show(line.strip())}; expected {wanted}')
    is_header = not width and not _NUMBER.search(cells[2])
    if not width and not is_header and len(cells) > 3 and '\t' not in line and {',', ';'} & {*line}:
      raise InputError(
        f'{path}, line {number}: got {len(cells)} cells; expected two words and a number, with a decimal point; name '
        'further cells in a header'
      )
    width = len(cells)
    if not is_header:
      yield cells[0], cells[1], documents.parse_number(cells[2], f'{path}, line {number}, cell 3')


def _split(line: str) -> list[str]:
  """Return the cells of a line, split by the first of tab, semicolon and comma that gives three, else by spaces."""
  for mark in ('\t', ';', ','):
    if line.count(mark) >= 2:
      return [cell.strip() for cell in line.split(mark)]
  return line.split()
