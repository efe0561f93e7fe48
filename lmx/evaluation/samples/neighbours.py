"""Nearest words of each prompt by their vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmx.config import schema
from lmx.errors import InputError, nearest
from lmx.evaluation.samples import Trained
from lmx.prediction import word_vectors

PROMPTS = True


def check_prompt(run: schema.Run, corpus: Any, prompt: str) -> None:
  """Raise InputError unless a prompt is a word of the training text."""
  words = word_vectors.words(corpus, run.data)
  if prompt not in words:
    raise InputError(f'not a word of the training text{nearest(prompt, words[:20_000])}')


def generate(trained: Trained) -> Iterator[str]:
  """Yield the nearest words of each prompt, or of some frequent words without a prompt."""
  run, corpus, params, *_, prompts = trained
  vectors = word_vectors.from_tables(corpus, run.data, params['model'])
  frequent = vectors.words[50:] or vectors.words
  for word in prompts or frequent[: 50 * run.samples.count : 50]:
    yield f'{word}: ' + ', '.join(f'{near} {score:.2f}' for near, score in vectors.nearest(word))
