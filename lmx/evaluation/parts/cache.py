"""Evaluation with a continuous cache (lmx/metrics/continuous_cache.py) over the outputs of a language model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lmx import objectives
from lmx.config.schema import Run
from lmx.errors import InputError
from lmx.evaluation import evaluate
from lmx.evaluation.parts import Added, Subject
from lmx.metrics import continuous_cache, language
from lmx.models import registry


def make_step(run: Run, cfg: continuous_cache.Config) -> Any:
  """Return an evaluation step whose state is (the model's, the cache's); its metric is {'nll': (sum, weight)}.

  `reset_B` empties the cache of the rows that begin a new document.
  """
  model, score = registry.get(run.model_name), objectives.get(run.objective_name).score
  assert score is not None  # `check` has rejected others

  def step(params: Any, state: Any, batch: Any, *, axis: Any = None) -> Any:
    rows, cache = state
    if 'reset_B' in batch:
      cache = cache._replace(used_B=jnp.where(batch['reset_B'], 0, cache.used_B))
    nll_BT, features, rows = score(run.objective, model, run.measured, params, batch, rows)
    nll_BT, cache = continuous_cache.mix(cfg, cache, features.last_BTD, batch['targets_BT'], nll_BT)
    weights_BT = batch['weights_BT']
    pair = jnp.sum(nll_BT * weights_BT), jnp.sum(weights_BT)
    return {'nll': pair if axis is None else jax.lax.psum(pair, axis)}, (rows, cache)

  return step


def check(run: Run, corpus: Any, batches: Any) -> None:
  """Raise InputError unless the run is a language model on streams."""
  del corpus
  if objectives.get(run.objective_name).score is None or not batches.stateful:
    raise InputError('evaluation.cache needs a language model that reads streams (data.batching "streams")')


def measure(subject: Subject) -> Added:
  """Evaluate a split with the cache of `evaluation.cache`.

  Returns:
    'cache': the objective's metrics, and 'window', 'lambda' and 'theta'.

  Raises:
    InputError: the run is no language model on streams.
  """
  run, corpus, params, engine, split, _ = subject
  cfg = continuous_cache.config(run.evaluation.cache)
  assert cfg is not None  # a part is selected by its option
  model = registry.get(run.model_name)
  batches = evaluate.final_batches(run, corpus, split)
  check(run, corpus, batches)
  # A stream has `steps * length` outputs, so a larger window would only waste memory.
  cache_cfg = cfg._replace(window=min(cfg.window, batches.steps * batches.length))

  def begin(count: int) -> Any:
    rows, empty = model.init_state(run.measured, count), {'tokens_BT': jnp.zeros((count, 1), jnp.int32)}
    shape = jax.eval_shape(lambda p, r: model.apply(run.measured, p, empty, r)[0].last_BTD, params['model'], rows).shape
    return rows, continuous_cache.init(cache_cfg, count, shape[-1])

  eval_step = engine.compile_eval(make_step(run, cache_cfg))
  totals = evaluate.measure(eval_step, params, begin, batches, engine, title=f'{split} with cache')
  total, count = totals['nll']
  metrics = language.report(total, count, evaluate.text_counts(corpus, split, run.data))
  return Added({'cache': {**metrics, 'window': cfg.window, 'lambda': cfg.lam, 'theta': cfg.theta}})
