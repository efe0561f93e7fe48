"""n-gram models on a run's data, beside the run and mixed with it (Bengio et al. 2003, section 4.2).

An n-gram model is named 'trigram' (interpolated: interpolated_trigram.py, its weights estimated on the validation
split), 'kn3' (back-off Kneser-Ney of that order, modified, n-grams from order 3 on counted at least twice, which are
the defaults of the toolkit that the paper used, SRILM), 'ikn3' (interpolated Kneser-Ney with all n-grams) or
'class3_500' (back-off Kneser-Ney of order 3 over 500 classes of words: lmx/metrics/class_ngram.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx.config.schema import Run
from lmx.errors import InputError
from lmx.evaluation import evaluate
from lmx.metrics import class_ngram, interpolated_trigram, language, ngram

_NAME = re.compile(r'trigram|(i?)kn([1-9])|class([1-9])_([0-9]+)')


def ngrams(corpus: Any, splits: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
  """Measures n-gram models: a record {'model', 'split', 'tokens_counted', 'perplexity_per_token', ...} for each."""
  found: list[dict[str, Any]] = []
  memory: dict[int, Any] = {}
  for name in names:
    scores = _scorer(corpus, name, memory)
    for split in splits:
      data = corpus.split(split)
      nll, _ = scores(np.asarray(data.tokens))
      about = {'model': name, 'split': split, 'tokens_counted': len(data.tokens), 'data_hash': corpus.hash}
      found.append({**about, **language.report(nll, len(data.tokens), data.counts)})
  return found


def check(run: Run) -> None:
  """Raise InputError where `run.evaluation` names a mixture that `measure` could not measure."""
  evaluate.check_scored(run)
  _parsed(_name(run))


def _name(run: Run) -> str:
  options = run.evaluation
  return f'ikn{options.order}' if options.mixture == 'kneser_ney' else options.mixture


def measure(run: Run, corpus: Any, params: Any, split: str) -> dict[str, Any]:
  """Measures the mixture that `run.evaluation` names, on every token that the run predicts.

  p = weight p_run + (1 - weight) p_ngram, the mean of the two for the weight 0.5.

  Returns:
    {'name', 'weight', the figures of the mixture, 'parts': {'run': ..., name: ...}} with the perplexities per token of
    its parts on the same tokens.
  """
  options = run.evaluation
  name = _name(run)
  data = corpus.split(split)
  own = evaluate.token_nll(run, corpus, params, split)
  _, other = _scorer(corpus, name, {})(np.asarray(data.tokens))
  there = ~np.isnan(own)
  mixed = mix(own[there], other[there], options.mixture_weight)
  parts = {'run': own[there], name: other[there]}
  count = int(there.sum())
  return {
    'name': name,
    'weight': options.mixture_weight,
    'tokens_counted': count,
    **language.report(float(mixed.sum()), count, data.counts),
    'parts': {key: language.perplexity(float(nll.sum()), count) for key, nll in parts.items()},
  }


def mix(own: np.ndarray, other: np.ndarray, weight: float) -> np.ndarray:
  """-log(weight exp(-own) + (1 - weight) exp(-other)) of negative log-likelihoods in nats."""
  with np.errstate(divide='ignore'):
    return -np.logaddexp(np.log(weight) - own, np.log1p(-weight) - other)


def label(found: Mapping[str, Any]) -> str:
  """A line on a mixture for the summary of a run."""
  parts = ', '.join(f'{name} {value:,.2f}' for name, value in found['parts'].items())
  return (
    f'mixed with {found["name"]}, weight {found["weight"]:g}: perplexity per token '
    f'{found["perplexity_per_token"]:,.2f} ({parts})'
  )


def _parsed(name: str) -> re.Match[str]:
  """Return the parts of the name of an n-gram model. Raises InputError."""
  parsed = _NAME.fullmatch(name)
  if parsed is None:
    raise InputError(
      f'unknown n-gram model "{name}"; known: trigram, kn3 (back-off), ikn3 (interpolated), class3_500 (500 classes), '
      'each with any order from 1 to 9'
    )
  return parsed


def _scorer(corpus: Any, name: str, memory: dict[int, Any]) -> Any:
  """Count the model on the training split; returns tokens -> (total, of each) negative log-likelihood.

  `memory` keeps the classes of words that were found, by their number.
  """
  V, train = corpus.tokenizer.vocab_size, np.asarray(corpus.splits['train'].tokens)
  parsed = _parsed(name)
  if name == 'trigram':
    trigram = interpolated_trigram.fit(train, np.asarray(corpus.split('valid').tokens), V)
    return lambda tokens: interpolated_trigram.score(trigram, tokens)
  if parsed[3]:
    size = int(parsed[4])
    if size not in memory:
      memory[size] = class_ngram.exchange(train, V, size)
    by_class = class_ngram.fit(train, memory[size], int(parsed[3]))
    return lambda tokens: class_ngram.score(by_class, tokens)
  form: dict[str, Any] = {} if parsed[1] else {'backoff': True, 'minimum': 2}
  model = ngram.kneser_ney(train, V, order=int(parsed[2]), **form)
  return lambda tokens: ngram.score(model, tokens)
