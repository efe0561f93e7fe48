"""Small rule-based data sets, mostly from the embedded corpus, for trying models; they need no files."""

from __future__ import annotations

import collections
import random
import re
from collections.abc import Iterator
from typing import Any

from lmx.data import noise
from lmx.data import sentences as sentence_rules
from lmx.data.builders import propositions, prose, questions
from lmx.data.builders.files import Document
from lmx.data.tokenizers import words as word_rules

LEAST = 60  # minimum number of documents per package
_EDGES = (('valid', 0.1), ('test', 0.2), ('train', 1.0))


def topics(split: str, paths: Any, source: Any) -> Iterator[Document]:
  """Yield the documents of the large packages, ordered by a hash of their name; the label is the package."""
  del paths, source
  count = collections.Counter(label for _, _, label in prose.documents())
  for document in sorted(prose.documents(), key=lambda document: prose.digest(document[0])):
    if count[document[2]] >= LEAST and _topic_split(document[0]) == split:
      yield document


def _topic_split(name: str) -> str:
  share = int.from_bytes(prose.digest(f'topic:{name}')[:8], 'big') / 2**64
  return next(split for split, edge in _EDGES if share < edge)


# Pairs: are the words of the second text in the first?
LABELS = ('contained', 'not_contained')
WORDS = 5  # of a second text
MOST_PAIRS = {'train': 3_000, 'valid': 300, 'test': 300}


def pairs(split: str, paths: Any, source: Any) -> Iterator[Document]:
  """Yield pairs of texts, the first with the label."""
  del paths, source
  for number, (first, second, label) in enumerate(generate_pairs(split)):
    yield f'{split}-{number}.0', first, label
    yield f'{split}-{number}.1', second, ''


def generate_pairs(split: str) -> list[tuple[str, str, str]]:
  """Return (sentence, words, label) for each pair in a split, deterministically; both labels are equally frequent.

  The words are consecutive words of the sentence, or of the sentence that follows it.
  """
  neighbours: list[tuple[list[str], list[str]]] = []
  for _, text, _ in prose.of_split(split):
    texts = [words for sentence in sentence_rules.split(text, 'prose') if 8 <= len(words := sentence.split()) <= 25]
    neighbours += zip(texts[::2], texts[1::2], strict=False)
  draw, found = random.Random(split), []
  for number, neighbour in enumerate(neighbours[: MOST_PAIRS[split] // 2 * 2]):
    words = neighbour[number % 2]
    at = draw.randrange(len(words) - WORDS + 1)
    found.append((' '.join(neighbour[0]), ' '.join(words[at : at + WORDS]), LABELS[number % 2]))
  return found


# Questions: the missing words of a sentence of the passage.
PASSAGE = 3  # sentences
EVERY = 4  # one question in this many has no answer
MOST_QUESTIONS = {'train': 2_000, 'valid': 300, 'test': 300}


def passages(split: str, paths: Any, source: Any) -> Iterator[Document]:
  """Yield passages and questions, with the labels of `question_builder`."""
  del paths, source
  for question in generate_questions(split):
    yield f'{question.id}.0', question.context, question.span
    yield f'{question.id}.1', question.question, question.label


def generate_questions(split: str) -> list[questions.Question]:
  """Return the questions of a split, the same each time."""
  parts: list[list[str]] = []
  for _, text, _ in prose.of_split(split):
    texts = [' '.join(s.split()) for s in sentence_rules.split(text, 'prose') if 6 <= len(s.split()) <= 30]
    parts += [texts[i : i + PASSAGE] for i in range(0, len(texts) - PASSAGE + 1, PASSAGE)]
  draw, split_questions = random.Random(split), []
  for number, passage in enumerate(parts[: MOST_QUESTIONS[split]]):
    context = ' '.join(passage)
    none = number % EVERY == EVERY - 1
    words = draw.choice(parts[number - 1] if none else passage).split()
    at, count = draw.randrange(1, len(words) - 2), draw.choice((1, 2))
    answer = ' '.join(words[at : at + count])
    question = ' '.join([*words[:at], '...', *words[at + count :], '?'])
    begin = context.find(' '.join(words)) + len(' '.join(words[:at])) + 1
    answers = () if none else ((answer, begin),)
    split_questions.append(questions.Question(f'{split}-{number}', context, question, answers))
  return split_questions


# Tags: identifiers of programs.
_NAME = re.compile(r'\w+_\w*|_\w+|\w+\.\w[\w.]*|[a-z]+[A-Z]\w*|(?:[A-Z]+[a-z]+){2,}')
LONGEST = 64  # words; longer sentences are skipped


def tags(split: str, paths: Any, source: Any) -> Iterator[Document]:
  """Yield sentences: words as text, and their labels as label, separated by spaces."""
  del paths, source
  for name, tokens in sentences(split):
    yield name, ' '.join(tokens), ' '.join(tags_of(tokens))


def sentences(split: str) -> Iterator[tuple[str, list[str]]]:
  """Yield (id, words) for the sentences in an embedded corpus split with 2 to LONGEST words."""
  for name, text, _ in prose.of_split(split):
    for number, sentence in enumerate(sentence_rules.split(text, 'prose')):
      tokens = [word for word in word_rules.split(sentence, 'prose') if word.strip()]
      if 1 < len(tokens) <= LONGEST:
        yield f'{name}#{number}', tokens


def tags_of(tokens: list[str]) -> list[str]:
  """Return O, B-name or I-name for each word."""
  names = [bool(_NAME.fullmatch(word)) for word in tokens]
  befores = [False, *names[:-1]]
  return [('I-name' if before else 'B-name') if name else 'O' for name, before in zip(names, befores, strict=True)]


# Roles of a few verbs.
VERBS = frozenset('contains creates has returns takes uses'.split())
LONGEST_WITH_ROLES = 24  # words; longer sentences are skipped


def roles(split: str, paths: Any, source: Any) -> Iterator[Document]:
  """Yield sentences, once for each of their verbs."""
  del paths, source
  rows = []
  for _, text in sentences(split):
    if len(text) <= LONGEST_WITH_ROLES:
      rows += [(i, text, roles_of(text, i)) for i, word in enumerate(text) if word in VERBS]
  return propositions.rows(split, rows)


def roles_of(words: list[str], predicate: int) -> list[str]:
  """Return the roles of a verb: A0 are the words before it and A1 those after it, up to a word without letters."""
  before, after = predicate, predicate + 1
  while before and words[before - 1].isalpha():
    before -= 1
  while after < len(words) and words[after].isalpha():
    after += 1
  span = lambda role, count: [f'B-{role}', *[f'I-{role}'] * (count - 1)][:count]
  inside = [*span('A0', predicate - before), 'B-V', *span('A1', after - predicate - 1)]
  return ['O'] * before + inside + ['O'] * (len(words) - after)


# Numbers in English words and in digits: both directions of translation can be learned in a minute.
SIZES = {'train': 20_000, 'valid': 500, 'test': 500}
DIGITS = 6  # largest number of digits
_ONES = (
  'zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen '
  'eighteen nineteen'
).split()
_TENS = 'twenty thirty forty fifty sixty seventy eighty ninety'.split()


def numbers(split: str, paths: Any, source: Any) -> Iterator[Document]:
  """Yield pairs of words and digits; every number is in one split only."""
  del paths
  for number in draw_numbers(split):
    forms = {'words': spell(number), 'digits': ' '.join(str(number))}
    for side in source.sides:
      yield f'{number}.{side}', forms[side], ''


def draw_numbers(split: str) -> list[int]:
  """Return a split's distinct numbers in random order; lengths from 1 to DIGITS are equally likely."""
  draw = noise.generator(0, 'numbers')
  length = draw.integers(1, DIGITS, 4 * sum(SIZES.values()), endpoint=True)
  low = 10 ** (length - 1)
  candidates = draw.integers(low - (length == 1), 10 * low).tolist()  # one digit includes zero
  distinct = list(dict.fromkeys(candidates))[: sum(SIZES.values())]
  distinct = [distinct[i] for i in draw.permutation(len(distinct))]
  held_out = SIZES['valid'] + SIZES['test']
  parts = {
    'valid': distinct[: SIZES['valid']],
    'test': distinct[SIZES['valid'] : held_out],
    'train': distinct[held_out:],
  }
  return parts[split]


def spell(number: int) -> str:
  """Return a number from 0 to 999,999 in English words: 312 is 'three hundred and twelve'."""
  thousands, rest = divmod(number, 1000)
  if not thousands:
    return _below_thousand(rest)
  joint = ' ' if rest >= 100 else ' and '
  return _below_thousand(thousands) + ' thousand' + (joint + _below_thousand(rest) if rest else '')


def _below_thousand(number: int) -> str:
  hundreds, rest = divmod(number, 100)
  tens, ones = divmod(rest, 10)
  small = _ONES[rest] if rest < 20 else _TENS[tens - 2] + (f' {_ONES[ones]}' if ones else '')
  if not hundreds:
    return small
  return f'{_ONES[hundreds]} hundred' + (f' and {small}' if rest else '')
