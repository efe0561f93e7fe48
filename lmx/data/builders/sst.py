"""Forms of the Stanford Sentiment Treebank (Socher et al. 2013), SST-2 and SST-5.

SST-2 is read from tables with columns `label` (1 is positive) and `sentence`, SST-5 from the treebank's own files, one
tree per line: `(3 (2 It) (4 (2 's) (4 good)))`, where numbers are phrase labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lmx import documents
from lmx.data.builders import files, labelled
from lmx.data.builders.files import Document
from lmx.errors import InputError

_CLASSES = {'0': 'negative', '1': 'positive'}
FIVE = ('very negative', 'negative', 'neutral', 'positive', 'very positive')  # labels 0 to 4 of the trees
SENTENCES = {'train': 8_544, 'valid': 1_101, 'test': 2_210}
_PARTS = re.compile(r'[()]|[^()\t\n\r ]+')  # a word may have a no-break space


def rows(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the rows of SST-2. GLUE's own test file has no labels and is rejected; the treebank's has."""
  del source
  for index, (number, row) in enumerate(labelled.read_table(paths[split], ('label', 'sentence'))):
    if row['label'] not in _CLASSES:
      raise InputError(f'{paths[split]}, line {number}: label: got "{row["label"]}"; expected 0 or 1')
    yield f'{split}-{index}', row['sentence'], _CLASSES[row['label']]


def sentences(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the whole sentences of SST-5."""
  return _trees(split, paths, source, len_of_phrases=0)


def phrases(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield every phrase of the training trees, words included; the other splits are whole sentences."""
  return _trees(split, paths, source, len_of_phrases=1)


def long_phrases(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield training sentences and their phrases of four or more words (McCann et al. 2017; Peters et al. 2018)."""
  return _trees(split, paths, source, len_of_phrases=4)


def _trees(split: str, paths: dict[str, str], source: Any, len_of_phrases: int) -> Iterator[Document]:
  """Yield whole sentences, and the phrases of training sentences; repeated phrases are kept.

  Args:
    split: the split.
    paths: its file by split.
    source: the data set.
    len_of_phrases: minimum number of words in a training phrase; 0 for only whole sentences, which are always read.
  """
  count = 0
  for tree in read_trees(paths[split]):
    for n, (label, words) in enumerate(tree):
      if n == 0 or (split == 'train' and 0 < len_of_phrases <= len(words)):
        yield f'{split}-{count}-{n}', ' '.join(words), FIVE[label]
    count += 1
  if source.check_sizes:
    files.check_size(source.dataset, split, 'sentences', count, SENTENCES[split], [paths[split]])


def read_trees(path: str) -> Iterator[list[tuple[int, list[str]]]]:
  """Yield the phrases of each tree, (label, words), in the order of their opening brackets: first the sentence."""
  for number, line in enumerate(documents.read_lines(path), 1):
    if line.strip():
      yield _phrases(line, f'{path}, line {number}')


def _phrases(line: str, place: str) -> list[tuple[int, list[str]]]:
  """Return the phrases of a tree. Raises InputError unless each node is a label and one word, or a label and nodes."""
  words: list[str] = []
  phrases: list[list[int]] = []  # label, first word, one past the last
  opened: list[int] = []  # phrases without their closing bracket

  def malformed(got: str, expected: str) -> InputError:
    return InputError(f'{place}: got {got}; expected {expected}, as in (3 (2 It) (4 works))')

  parts = iter(_PARTS.findall(line))
  for part in parts:
    if part == '(' and (opened or not phrases):
      label = next(parts, 'the end')
      if label not in tuple(map(str, range(len(FIVE)))):
        raise malformed(f'"{label}" after "("', 'a label from 0 to 4')
      opened.append(len(phrases))
      phrases.append([int(label), len(words), 0])
    elif not opened:
      raise malformed(f'"{part}" outside of a tree', 'one tree a line')
    elif part == ')':
      phrase = phrases[opened.pop()]
      phrase[2] = len(words)
      if phrase[1] == phrase[2]:
        raise malformed('a node without a word', 'a word or nodes after a label')
    else:
      if phrases[opened[-1]][1] != len(words) or next(parts, '') != ')':
        raise malformed(f'more than "{part}" in a node', 'one word or nodes after a label')
      words.append(part)
      phrases[opened.pop()][2] = len(words)
  if opened:
    raise malformed(f'{len(opened)} brackets without their ")"', 'a whole tree')
  return [(label, words[begin:end]) for label, begin, end in phrases]
