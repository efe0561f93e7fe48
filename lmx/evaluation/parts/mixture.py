"""n-gram models on a run's data, by themselves and mixed with the run's model (Bengio et al. 2003, section 4.2).

Names of n-gram models:
- 'trigram': interpolated (interpolated_trigram.py), its weights estimated on the validation split;
- 'kn3': modified back-off Kneser-Ney of order 3, whose n-grams from order 3 on are counted at least twice. These are
  the defaults of SRILM, the toolkit of the paper;
- 'ikn3': interpolated Kneser-Ney of order 3 with all n-grams;
- 'class3_500': back-off Kneser-Ney of order 3 over 500 classes of words (lmx/metrics/class_ngram.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx.config.schema import Run
from lmx.data import pipeline
from lmx.errors import InputError
from lmx.evaluation import evaluate
from lmx.evaluation.parts import Added, Subject
from lmx.evaluation.parts.ngrams import mix
from lmx.metrics import class_ngram, interpolated_trigram, language, ngram

_NAME = re.compile(r'trigram|(i?)kn([1-9])|class([1-9])_([0-9]+)')


BOUNDARIES = ('stream', 'document')


def evaluate_ngrams(
  corpus: Any,
  splits: Sequence[str],
  names: Sequence[str],
  boundaries: str = 'stream',
  models: Mapping[str, ngram.KneserNey] | None = None,
  cfg: pipeline.Config | None = None,
) -> list[dict[str, Any]]:
  """Evaluate n-gram models.

  Args:
    corpus: the data.
    splits: splits to evaluate.
    names: names of models.
    boundaries: one of BOUNDARIES: 'document' counts and predicts each document from its start.
    models: models of `estimate` that are already counted.
    cfg: the `data` section, to count unknown words.

  Returns:
    A record {'model', 'dataset', 'split', 'tokens_counted', 'perplexity_per_token', ...} for each model and split, with
    the tokens and words of the training split.

  Raises:
    InputError: there is no such model or split, or the model reads only streams.
  """
  counted = {f'train_{unit}': corpus.split('train').counts.get(unit) for unit in ('tokens', 'words')}
  of_data = {'dataset': corpus.manifest.get('dataset', {}).get('name', ''), 'data_hash': corpus.hash, **counted}
  records: list[dict[str, Any]] = []
  memory: dict[int, Any] = {}
  for name in names:
    if boundaries == 'stream' and not (models and name in models):
      scores = _scorer(corpus, name, memory)
      by_split = lambda data, scores=scores: scores(np.asarray(data.tokens))
    else:
      model = models[name] if models and name in models else estimate(corpus, name, boundaries)
      by_split = lambda data, model=model: ngram.score(
        model, np.asarray(data.tokens), boundaries=boundaries, offsets=data.offsets
      )
    for split in splits:
      data = corpus.split(split)
      nll, _ = by_split(data)
      about = {'model': name, 'split': split, 'tokens_counted': len(data.tokens), **of_data}
      counts = evaluate.text_counts(corpus, split, cfg)
      scores = language.report(nll, len(data.tokens), counts)
      records.append({**about, **evaluate.words_counted(corpus, scores, counts), **scores})
  return records


def estimate(corpus: Any, name: str, boundaries: str = 'stream') -> ngram.KneserNey:
  """Count a Kneser-Ney model on the training split.

  Args:
    corpus: the data.
    name: kn and an order for the back-off form, ikn for the interpolated one.
    boundaries: one of BOUNDARIES.

  Raises:
    InputError: `name` is another model.
  """
  parsed = _parse(name)
  if not parsed[2]:
    raise InputError(
      f'--models: got {name}, which reads one stream and is not saved; expected kn or ikn and an order, such as ikn5'
    )
  data, V = corpus.split('train'), corpus.tokenizer.vocab_size
  form: dict[str, Any] = {} if parsed[1] else {'backoff': True, 'minimum': 2}
  where = {'boundaries': boundaries, 'offsets': data.offsets}
  return ngram.kneser_ney(np.asarray(data.tokens), V, order=int(parsed[2]), **where, **form)


def check(run: Run, corpus: Any, batches: Any) -> None:
  """Raise InputError if `measure` could not evaluate the mixture of `run.evaluation`."""
  del corpus, batches
  evaluate.check_scored(run)
  _parse(_name(run))


def _name(run: Run) -> str:
  options = run.evaluation
  return f'ikn{options.order}' if options.mixture == 'kneser_ney' else options.mixture


def measure(subject: Subject) -> Added:
  """Evaluate the mixture that `run.evaluation` names, on every token that the run predicts.

  p = weight p_run + (1 - weight) p_ngram, the mean of the two for the weight 0.5.

  Returns:
    'mixture': {'name', 'weight', metrics of the mixture, 'parts': {'run': ..., name: ...}} with the perplexities per
    token of its parts on the same tokens.
  """
  run, corpus, params, engine, split, _ = subject
  options = run.evaluation
  name = _name(run)
  data = corpus.split(split)
  run_nll = evaluate.token_nll(run, corpus, engine.to_one_device(params), split)
  _, ngram_nll = _scorer(corpus, name, {})(np.asarray(data.tokens))
  scored = ~np.isnan(run_nll)
  mixed = mix(run_nll[scored], ngram_nll[scored], options.mixture_weight)
  parts = {'run': run_nll[scored], name: ngram_nll[scored]}
  count = int(scored.sum())
  mixture = {
    'name': name,
    'weight': options.mixture_weight,
    'tokens_counted': count,
    **language.report(float(mixed.sum()), count, evaluate.text_counts(corpus, split, run.data)),
    'parts': {key: language.perplexity(float(nll.sum()), count) for key, nll in parts.items()},
  }
  return Added({'mixture': mixture})


def notes(metrics: Mapping[str, Any]) -> list[str]:
  """Return the line on the mixture in the summary of a run."""
  mixture = metrics['mixture']
  parts = ', '.join(f'{name} {value:,.2f}' for name, value in mixture['parts'].items())
  return [
    f'  mixed with {mixture["name"]}, weight {mixture["weight"]:g}: perplexity per token '
    f'{mixture["perplexity_per_token"]:,.2f} ({parts})'
  ]


def _parse(name: str) -> re.Match[str]:
  """Parse the name of an n-gram model. Raises InputError."""
  parsed = _NAME.fullmatch(name)
  if parsed is None:
    raise InputError(
      f'unknown n-gram model "{name}"; known: trigram, kn3 (back-off), ikn3 (interpolated), class3_500 (500 classes), '
      'each with any order from 1 to 9'
    )
  return parsed


def _scorer(corpus: Any, name: str, memory: dict[int, Any]) -> Any:
  """Count the model on the training split; return tokens -> (total, per token) negative log-likelihood.

  `memory` caches word classes: number of classes -> classes.
  """
  V, train = corpus.tokenizer.vocab_size, np.asarray(corpus.splits['train'].tokens)
  parsed = _parse(name)
  if name == 'trigram':
    trigram = interpolated_trigram.fit(train, np.asarray(corpus.split('valid').tokens), V)
    return lambda tokens: interpolated_trigram.score(trigram, tokens)
  if parsed[3]:
    size = int(parsed[4])
    if size not in memory:
      memory[size] = class_ngram.exchange(train, V, size)
    by_class = class_ngram.fit(train, memory[size], int(parsed[3]))
    return lambda tokens: class_ngram.score(by_class, tokens)
  model = estimate(corpus, name)
  return lambda tokens: ngram.score(model, tokens)
