"""Plots of the memory over an episode's steps, one per length."""

from __future__ import annotations

from collections.abc import Iterator

import jax

from lmx.data import pipeline
from lmx.evaluation import evaluate
from lmx.evaluation.samples import Trained
from lmx.models import registry
from lmx.reporting import plots


def generate(trained: Trained) -> Iterator[str]:
  """Plot episodes of the evaluated split, one for each length, as memory_<length>.png; yield a line on each."""
  run, corpus, params, _, workdir, _ = trained
  data, split = evaluate.final_data(run), run.evaluation.split
  batches = pipeline.batches(data, corpus, split, pipeline.EVAL_SEED, train=False)
  trace = jax.jit(registry.get(run.model_name).trace, static_argnums=0)
  for episode in plots.episodes(batches, run.samples.count):
    memory = jax.device_get(trace(run.model, params['model'], episode))
    wrong = (memory['logits_BTO'] > 0) != (episode['target_bits_BTO'] > 0.5)
    wrong, path = wrong[episode['weights_BT'] > 0], workdir / f'memory_{int(episode["size_B"][0])}.png'
    if jax.process_index() == 0:
      plots.memory(path, episode, memory)
    yield f'{path.name}: {int(episode["size_B"][0])} items, {wrong.sum():,} of {wrong.size:,} bits wrong'
