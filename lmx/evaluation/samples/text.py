"""Generated texts of each prompt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from lmx.config import schema
from lmx.decoding import generate as generator
from lmx.evaluation.samples import Trained
from lmx.models import registry

PROMPTS = True


def check(run: schema.Run, corpus: Any) -> None:
  """Raise InputError if the samples are too many or too long."""
  del corpus
  generator.check_positions('samples.count, samples.tokens', run.samples.count, run.samples.tokens)


def check_prompt(run: schema.Run, corpus: Any, prompt: str) -> None:
  """Raise InputError if the model cannot continue a prompt."""
  start_T = generator.prompt_ids(corpus.tokenizer, prompt)
  rules = generator.Constraints(forbidden=generator.forbidden_ids(corpus.tokenizer, run.model.V))
  generator.check(registry.get(run.model_name), run.model, start_T[None], np.array([len(start_T)]), rules)


def generate(trained: Trained) -> Iterator[str]:
  """Yield generated texts for each prompt."""
  run, corpus, params, *_, prompts = trained
  tokenizer, options = corpus.tokenizer, run.samples
  sampler = generator.Sampler(
    temperature=options.temperature,
    top_k=options.top_k,
    top_p=options.top_p,
    forbidden=generator.forbidden_ids(tokenizer, run.model.V),
  )
  for number, prompt in enumerate(prompts):
    start_T = generator.prompt_ids(tokenizer, prompt)
    generated = generator.generate(
      registry.get(run.model_name),
      run.model,
      params['model'],
      np.tile(start_T, (options.count, 1)),
      steps=options.tokens,
      key=jax.random.fold_in(jax.random.key(run.seed), number),
      sampler=sampler,
    )
    for row_T, count in zip(*generated, strict=True):
      yield tokenizer.decode(np.concatenate([start_T, row_T[:count]])).strip()
