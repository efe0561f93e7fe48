"""Unigram and interpolated Kneser-Ney models of a run's data, as baselines of a language model."""

from __future__ import annotations

import numpy as np

from lmx.evaluation import evaluate
from lmx.evaluation.parts import Added, Subject
from lmx.metrics import ngram


def measure(subject: Subject) -> Added:
  """Return 'baselines' and 'validation_baselines': their metrics on the split, and on the split 'valid'."""
  run, corpus, _, _, split, validation_baselines = subject
  texts = {
    name: (np.asarray(corpus.splits[name].tokens), evaluate.text_counts(corpus, name, run.data))
    for name in {split, *(['valid'] if validation_baselines else [])}
  }
  train = np.asarray(corpus.splits['train'].tokens)
  found = ngram.baselines(train, corpus.tokenizer.vocab_size, texts, order=run.evaluation.order)
  return Added(
    {'baselines': found[split], **({'validation_baselines': found['valid']} if validation_baselines else {})}
  )
