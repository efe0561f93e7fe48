"""Left-to-right language models: n-gram baselines, a continuous cache, and mixtures with n-gram models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lmx import objectives
from lmx.config.schema import Run
from lmx.errors import InputError
from lmx.evaluation import continuous_cache, evaluate, members, ngram_mixture
from lmx.evaluation.parts import Added, Evaluation, Members, Subject
from lmx.metrics import language

OPTIONS = ('cache', 'mixture')


def check(run: Run, corpus: Any, batches: Any) -> None:
  """Raise InputError if the cache or the mixture of `evaluation` could not be measured."""
  del corpus
  if run.evaluation.cache:
    continuous_cache.check(run, batches)
  if run.evaluation.mixture:
    ngram_mixture.check(run)


def measure(subject: Subject) -> Added:
  """Return 'baselines', 'validation_baselines', 'cache' and 'mixture', as the options say."""
  run, corpus, params, engine, split, validation_baselines = subject
  metrics: dict[str, Any] = {}
  if run.evaluation.baselines:
    splits = {split, 'valid'} if validation_baselines else {split}
    baselines = evaluate.baselines(corpus, splits, run.evaluation.order)
    metrics['baselines'] = baselines[split]
    metrics |= {'validation_baselines': baselines['valid']} if validation_baselines else {}
  if run.evaluation.cache:
    metrics['cache'] = continuous_cache.measure(run, corpus, params, split, engine)
  if run.evaluation.mixture:
    metrics['mixture'] = ngram_mixture.measure(run, corpus, engine.to_one_device(params), split)
  return Added(metrics)


def notes(metrics: Mapping[str, Any]) -> list[str]:
  """Return the line that describes the mixture with an n-gram model, if there is one."""
  return ['  ' + ngram_mixture.describe(metrics['mixture'])] if 'mixture' in metrics else []


def check_ensemble(run: Run) -> None:
  """Accept every language model."""
  del run


def ensemble(runs: Members, split: str) -> Evaluation:
  """Sum the probability of each token over the members, in the order of the text."""
  each: list[dict[str, Any]] = []
  for loaded in runs:
    corpus = loaded.corpus()
    nll = evaluate.token_nll(loaded.run, corpus, loaded.params, split)
    scored = ~np.isnan(nll)
    if not each:
      first, scored_first, log_sum = corpus, scored, -nll[scored]
    else:
      members.check_text(first, corpus, split, loaded.workdir)
      if not np.array_equal(scored, scored_first):
        raise InputError(
          f'--ensemble: {loaded.workdir} predicts other tokens of split {split} than the first run; give all runs the '
          'same data.batching and data.eval_batch_size'
        )
      log_sum = np.logaddexp(log_sum, -nll[scored])
    count = int(scored.sum())
    each.append(members.describe(loaded, perplexity_per_token=float(np.exp(nll[scored].mean()))))
  total = float((np.log(len(each)) - log_sum).sum())
  totals = {'nll': (total, float(count))}
  evaluate.check_finite(loaded.run, totals, loaded.params, f'split {split}')
  scores = language.report(*totals['nll'], evaluate.text_counts(corpus, split))
  metrics = evaluate.compute_results(loaded.run, corpus, split, totals, scores)
  metrics = members.complete(metrics, 'language models', 'probabilities', loaded, split, each)
  return Evaluation(metrics, objectives.get(loaded.run.objective_name))
