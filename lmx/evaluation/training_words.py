"""Number of training words that a run has read after a number of updates."""

from __future__ import annotations

from collections.abc import Iterable

from lmx.checkpoint import manager
from lmx.data import pipeline
from lmx.runs.restore import RestoredRun


def at_steps(loaded: RestoredRun, steps: Iterable[int]) -> dict[int, int]:
  """Return {updates: training words} of a run; {} if the words of its training split are not counted.

  The words of every epoch count, spread evenly over its updates. A checkpoint that `checkpoint.at_words` keeps has the
  number given there.

  Raises:
    InputError: the data of the run cannot be read.
  """
  run, corpus = loaded.run, loaded.corpus()
  words = corpus.split('train').counts.get('words', 0)
  if not words or run.data.fraction < 1 or run.data.train_documents:
    return {}
  batches = pipeline.batches(run.data, corpus, 'train', run.seed, train=True)
  per_epoch = words * batches.passes
  return {step: round(per_epoch * step / batches.steps) for step in steps} | dict(manager.kept(loaded.workdir))
