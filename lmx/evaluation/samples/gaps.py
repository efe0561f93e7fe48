"""Rows of the evaluated split with every masked token shown as [prediction|token]."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from lmx import objectives
from lmx.data import pipeline
from lmx.evaluation.samples import Trained
from lmx.models import registry


def generate(trained: Trained) -> Iterator[str]:
  """Yield rows of the evaluated split with every masked token shown as [prediction|token]."""
  run, corpus, params, *_ = trained
  model, objective, tokenizer = registry.get(run.model_name), objectives.get(run.objective_name), corpus.tokenizer
  batches = pipeline.batches(run.data, corpus, run.evaluation.split, pipeline.EVAL_SEED, train=False)
  batch = batches(0, slice(0, min(run.samples.count, batches.batch_size)))
  predict = jax.jit(objective.predict, static_argnums=(0, 1, 2))
  predicted, _ = predict(run.objective, model, run.model, params, batch, ())
  guess_BP, valid_BT = np.argmax(predicted['logits_BPV'], -1), batch.get('valid_BT')
  for row, tokens_T in enumerate(batch['tokens_BT']):
    words = [tokenizer.id_to_token(int(i)) for i in (tokens_T[valid_BT[row]] if valid_BT is not None else tokens_T)]
    for p, position in enumerate(batch['positions_BP'][row]):
      if batch['weights_BP'][row, p]:
        truth = tokenizer.id_to_token(int(batch['targets_BP'][row, p]))
        words[position] = f'[{tokenizer.id_to_token(int(guess_BP[row, p]))}|{truth}]'
    yield ' '.join(words).replace(' ##', '')
