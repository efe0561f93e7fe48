"""Left-to-right language models: their further parts, and ensembles."""

from __future__ import annotations

from typing import Any

import numpy as np

from lmx import objectives
from lmx.config.schema import Run
from lmx.errors import InputError
from lmx.evaluation import evaluate, members
from lmx.evaluation.parts import Evaluation, Members
from lmx.metrics import language

OPTIONS = {'baselines': 'ngrams', 'cache': 'cache', 'mixture': 'mixture'}


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
  scores = language.report(*totals['nll'], evaluate.text_counts(corpus, split, loaded.run.data))
  metrics = evaluate.compute_results(loaded.run, corpus, split, totals, scores)
  metrics = members.complete(metrics, 'language models', 'probabilities', loaded, split, each)
  return Evaluation(metrics, objectives.get(loaded.run.objective_name))
