"""Baselines of a language model on its data: unigram, interpolated Kneser-Ney, and the mixture of model and Kneser-Ney.

The mixture interpolates both probabilities of a token linearly, with one weight for all tokens:

    P(x_t | x_1 .. x_t-1) = w P_model(x_t | x_1 .. x_t-1) + (1 - w) P_KN(x_t | x_t-n+1 .. x_t-1)

w minimises the perplexity of the split 'valid'. The model's probabilities follow its own protocol (windows, carried
state) and are over the tokens of its tokenizer, `<unk>` included. A token that the model does not predict, such as the
first of a stream, is not counted.

The mixture reads the split and the split 'valid' once more, on one device. So it is not computed with several
processes, with parameters sharded over devices, or for more than `MOST` positions; `skipped` is then the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from lmx import objectives
from lmx.data import pipeline
from lmx.evaluation import evaluate
from lmx.evaluation.parts import Added, Subject
from lmx.metrics import language, ngram

MOST = 1_000_000


def measure(subject: Subject) -> Added:
  """Return 'baselines' and 'validation_baselines': their metrics on the split, and on the split 'valid'."""
  run, corpus, _, _, split, validation_baselines = subject
  chosen = [split, *(['valid'] if validation_baselines and split != 'valid' else [])]
  skipped = _reason(subject)
  read = chosen if skipped or 'valid' in chosen else [*chosen, 'valid']
  texts = {
    name: (np.asarray(corpus.splits[name].tokens), evaluate.text_counts(corpus, name, run.data)) for name in read
  }
  train = np.asarray(corpus.splits['train'].tokens)
  found, ngram_nll = ngram.baselines(train, corpus.tokenizer.vocab_size, texts, order=run.evaluation.order)
  counts_of = {name: texts[name][1] for name in chosen}
  mixed = {name: {'skipped': skipped} for name in chosen} if skipped else _mix(subject, counts_of, ngram_nll)
  each = {name: {**found[name], 'mixture': mixed[name]} for name in chosen}
  return Added({'baselines': each[split], **({'validation_baselines': each['valid']} if validation_baselines else {})})


def _reason(subject: Subject) -> str:
  """Return the reason for which the mixture is not computed, '' if it is."""
  run, corpus, _, engine, split, _ = subject
  if objectives.get(run.objective_name).score is None:
    return 'the model does not predict each token from those before it'
  if 'valid' not in corpus.splits:
    return 'no split valid to choose the weight'
  if jax.process_count() > 1:
    return 'several processes'
  if engine.mesh.shape['fsdp'] * engine.mesh.shape['tensor'] > 1:
    return 'parameters sharded over devices'
  data = evaluate.final_data(run)
  batches = [pipeline.batches(data, corpus, name, pipeline.EVAL_SEED, train=False) for name in {split, 'valid'}]
  positions = sum(each.steps * each.batch_size * each.length for each in batches)
  return f'{positions:,} positions to read again, more than {MOST:,}' if positions > MOST else ''


def _mix(
  subject: Subject, counts_of: Mapping[str, Mapping[str, int]], ngram_nll: Mapping[str, np.ndarray]
) -> dict[str, dict[str, Any]]:
  """Return the mixture's metrics on each split of `counts_of`, from its counts of words, characters and bytes."""
  run, corpus, params, engine, _, _ = subject
  params = engine.to_one_device(params)
  pairs = {}
  for name in ngram_nll:
    run_nll = evaluate.token_nll(run, corpus, params, name)
    scored = ~np.isnan(run_nll)
    pairs[name] = run_nll[scored], ngram_nll[name][scored]
  weight = best_weight(*pairs['valid'])
  metrics = {}
  for name, counts in counts_of.items():
    nll = mix(*pairs[name], weight)
    about = {'order': run.evaluation.order, 'weight': weight, 'tokens_counted': len(nll)}
    metrics[name] = {**about, **language.report(float(nll.sum()), len(nll), counts)}
  return metrics


def mix(run_nll: np.ndarray, ngram_nll: np.ndarray, weight: float) -> np.ndarray:
  """Return -log(weight exp(-run_nll) + (1 - weight) exp(-ngram_nll)) of negative log-likelihoods in nats."""
  with np.errstate(divide='ignore'):
    return -np.logaddexp(np.log(weight) - run_nll, np.log1p(-weight) - ngram_nll)


def best_weight(run_nll: np.ndarray, ngram_nll: np.ndarray) -> float:
  """Return the model's weight w in the mixture of least perplexity, to 4 digits; the log-likelihood is concave in w."""
  from scipy import optimize  # imported here, because it takes half a second

  total = lambda weight: float(mix(run_nll, ngram_nll, weight).sum())
  found = optimize.minimize_scalar(total, bounds=(0, 1), method='bounded', options={'xatol': 1e-5})
  return round(float(found.x), 4)


def notes(metrics: Mapping[str, Any]) -> list[str]:
  """Return the line on the mixture's weight in the summary of a run."""
  weight = metrics['baselines'].get('mixture', {}).get('weight')
  measured = ', the measured split' * (metrics['split'] == 'valid')
  return [] if weight is None else [f'  (mixed with weight {weight:.2f} of the model, chosen on valid{measured})']
