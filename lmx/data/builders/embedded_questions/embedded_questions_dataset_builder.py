"""Questions generated from the embedded corpus: the missing words of a sentence of the passage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets.public_api as tfds

from lmx.data import sentences
from lmx.data.builders import base, questions
from lmx.data.builders.embedded import prose

PASSAGE = 3  # sentences
EVERY = 4  # one question in this many has no answer
MOST = {'train': 2_000, 'valid': 300, 'test': 300}


class Builder(base.TextBuilder):
  """An example is a passage and a question; the labels are those of `question_builder`."""

  BUILDER_CONFIGS = [base.TextConfig(name='default')]

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    for question in generate(split):
      yield f'{question.id}.0', question.context, question.span
      yield f'{question.id}.1', question.question, question.label

  def sizes(self, text: Any) -> dict[str, int]:
    return {}

  def _paths(self, dl_manager: tfds.download.DownloadManager) -> dict[str, str]:
    return {}


def generate(split: str) -> list[questions.Question]:
  """Return the questions of a split, the same each time."""
  chosen = [document for document in prose.documents() if prose.split_of(document[0]) == split]
  passages = []
  for _, text, _ in sorted(chosen, key=lambda document: prose.digest(document[0])):
    texts = [' '.join(s.split()) for s in sentences.split(text, 'prose') if 6 <= len(s.split()) <= 30]
    passages += [texts[i : i + PASSAGE] for i in range(0, len(texts) - PASSAGE + 1, PASSAGE)]
  draw, split_questions = random.Random(split), []
  for number, passage in enumerate(passages[: MOST[split]]):
    context = ' '.join(passage)
    none = number % EVERY == EVERY - 1
    words = draw.choice(passages[number - 1] if none else passage).split()
    at, count = draw.randrange(1, len(words) - 2), draw.choice((1, 2))
    answer = ' '.join(words[at : at + count])
    question = ' '.join([*words[:at], '...', *words[at + count :], '?'])
    begin = context.find(' '.join(words)) + len(' '.join(words[:at])) + 1
    answers = () if none else ((answer, begin),)
    split_questions.append(questions.Question(f'{split}-{number}', context, question, answers))
  return split_questions
