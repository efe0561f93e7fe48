"""Exact evaluation: every token of a split counts once, the state goes from batch to batch, and division is last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from lmx import objectives, parallel, step
from lmx.config import Run, digest
from lmx.data import pipeline
from lmx.errors import InputError
from lmx.metrics import ngram
from lmx.models import registry

Totals = dict[str, tuple[float, float]]  # name -> (sum, weight)
SEED = 0  # of the masks and pairs of an evaluation: the same for runs of any seed, so that they can be compared


def measure(eval_step, params, model_state, batches, engine: parallel.Engine, *, title: str = '') -> Totals:
  """Runs `eval_step` over all of `batches`.

  Args:
    eval_step: compiled, (params, model_state, batch) -> (metrics {name: (sum, weight)}, model_state).
    params: parameters to measure.
    model_state: state of the batch's rows at the start.
    batches: an evaluation `Batches`.
    engine: places batches on the devices.
    title: text of the progress bar, none if empty.

  Returns:
    The sums and weights over the whole split, in float64.
  """
  totals: dict[str, np.ndarray] = {}
  rows = engine.process_rows(batches.batch_size)
  waiting = None
  with pipeline.prefetch(batches, 0, batches.steps, rows) as stream:
    for _, batch in tqdm(stream, title, batches.steps, leave=False, disable=None if title else True):
      metrics, model_state = eval_step(params, model_state, engine.put_batch(batch))
      _add(totals, waiting)  # of the batch before, while this one is computed
      waiting = metrics
  _add(totals, waiting)
  return {name: (float(pair[0]), float(pair[1])) for name, pair in totals.items()}


def _add(totals: dict[str, np.ndarray], metrics: Mapping[str, Any] | None) -> None:
  for name, pair in (jax.device_get(metrics) or {}).items():
    totals[name] = totals.get(name, np.zeros(2)) + np.asarray(pair, np.float64)


def loss(run: Run, totals: Totals) -> float:
  """The loss that training minimises, over the whole split: the sum of the means of its terms."""
  terms = objectives.get(run.objective_name).terms(run.objective)
  return sum(_mean(totals[term]) for term in terms)


def _mean(pair: tuple[float, float]) -> float:
  return pair[0] / pair[1] if pair[1] else math.nan


def report(run: Run, counts: Mapping[str, int], totals: Totals) -> dict[str, float]:
  """Turns totals into the figures of `results.json`, as the objective names them."""
  return objectives.get(run.objective_name).report(run.objective, totals, counts)


def figures(run: Run, corpus, split: str, totals: Totals) -> dict[str, Any]:
  """The record of one measurement: the figures, what they were counted over, and how."""
  batches = pipeline.batches(run.data, corpus, split, SEED, train=False)
  objective = objectives.get(run.objective_name)
  first = objective.terms(run.objective)[0]
  return {
    'name': run.name, 'model': f'{run.model_name}:{run.variant}', 'dataset': run.data.dataset, 'split': split,
    'metric': objective.headline(run.objective),
    **report(run, corpus.splits[split].counts, totals),
    'tokens_counted': int(totals[first][1]), 'protocol': protocol(run, batches), 'data_hash': corpus.hash,
  }  # fmt: skip


def baselines(corpus, split: str, order: int) -> dict[str, Any]:
  """Unigram and interpolated Kneser-Ney perplexities on the same split, tokens and vocabulary."""
  train, test = corpus.splits['train'], corpus.splits[split]
  return ngram.baselines(
    np.asarray(train.tokens), np.asarray(test.tokens), corpus.tokenizer.vocab_size, test.counts['words'], order=order
  )


def of_run(loaded, split: str, *, with_baselines: bool = True) -> dict[str, Any]:
  """Measures a run given back by `lmx.load` on a whole split; returns what `figures` does, with the baselines."""
  run = loaded.run
  engine = parallel.Engine(run.parallel)
  corpus = pipeline.load(run.data)
  if corpus.tokenizer.hash != loaded.tokenizer.hash:
    raise InputError(f'the data is tokenised by another tokenizer than the run\'s ({loaded.workdir}/tokenizer)')
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  eval_step = engine.compile_eval(step.make_eval_step(model, run.model, objective, run.objective))
  batches = pipeline.batches(run.data, corpus, split, SEED, train=False)
  rows = engine.build_rows(lambda: model.init_state(run.model, batches.batch_size), batches.batch_size)
  totals = measure(eval_step, engine.build(lambda p: p, loaded.params), rows, batches, engine, title=split)
  found = figures(run, corpus, split, totals) | {'step': loaded.step, 'config_hash': digest(loaded.config)}
  if with_baselines and 'perplexity_per_word' in found:
    found['baselines'] = baselines(corpus, split, run.evaluation.order)
  return found


def summary(found: Mapping[str, Any]) -> str:
  """The figures a reader looks for first, one under another, the baselines beside them."""
  metric = found['metric']
  rows = [(found['model'], found[metric])]
  for name, label in (('kneser_ney', 'Kneser-Ney {order}-gram'), ('unigram', 'unigram')):
    other = found.get('baselines', {}).get(name, {})
    if metric in other:
      rows.append((label.format(**other), other[metric]))
  title = f'{metric.replace("_", " ")} on {found["dataset"]}/{found["split"]} ({found["tokens_counted"]:,} tokens)'
  lines = [title, *(f'  {label:24} {value:12,.2f}' for label, value in rows)]
  for name in ('perplexity_per_token', 'bits_per_character', 'bits_per_byte', 'mlm_accuracy', 'nsp_accuracy'):
    if name in found:
      text = f'{found[name]:12.1%}' if name.endswith('accuracy') else f'{found[name]:12,.3f}'
      lines.append(f'  {name.replace("_", " "):24} {text}')
  return '\n'.join([*lines, f'  ({found["protocol"]})'])


def protocol(run: Run, batches) -> str:
  """How a figure was measured, in words: what has to be equal for two figures to be compared."""
  words = [f'{run.data.batching}, batch {batches.batch_size}, length {batches.length}']
  return '; '.join(words + objectives.get(run.objective_name).protocol(run.objective, run.data, batches))
