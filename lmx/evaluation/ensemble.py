"""Evaluation of an ensemble: the mean of the predictions of several runs on one split.

The objective decides what is averaged:

  language models  probabilities of the next token, each member with its own carried state (Zaremba et al. 2014, arXiv
                   1409.2329, section 4.1)
  classifiers      probabilities of the classes (Howard and Ruder 2018, arXiv 1801.06146, section 3.4)
  answers          start and end logits of BERT's head, which its spans are ranked by over all windows of a passage;
                   Devlin et al. 2019 do not state the form of their ensemble
  translation      probabilities of the next token in one beam search (lmx/decoding/ensemble.py)

Members are loaded one after another, for translation together.
"""

from __future__ import annotations

import itertools
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lmx.data import labels
from lmx.data.corpus import Corpus
from lmx.decoding import translate
from lmx.engine import precision, state
from lmx.errors import InputError, InputWarning
from lmx.evaluation import evaluate as single
from lmx.evaluation import translation
from lmx.evaluation.report import Evaluation
from lmx.prediction import batched, classification, question_answering
from lmx.runs import restore
from lmx.runs.restore import RestoredRun

Members = Iterator[RestoredRun]


def evaluate(
  workdirs: Sequence[Any], split: str, which: str | int = 'best', overrides: Sequence[str] = ()
) -> Evaluation:
  """Evaluate the mean of the predictions of several runs.

  Args:
    workdirs: their work directories. All have the same objective, data and tokenizer.
    split: split to evaluate.
    which: see `lmx.runs.restore.load`.
    overrides: overrides of each run, see there.

  Returns:
    Metrics as in `evaluate.compute_results`, with those of each run under 'members'; translations; answers.

  Raises:
    InputError: the runs do not predict the same tokens, labels or answers, or there is no ensemble of their objective.
    NonFiniteLoss: a probability is NaN.
  """
  first = restore.load(workdirs[0], which, overrides)
  measure = _measures(first)
  return measure(itertools.chain([first], load_others(first, workdirs[1:], which, overrides)), split)


def load_others(
  first: RestoredRun, workdirs: Sequence[Any], which: str | int = 'best', overrides: Sequence[str] = ()
) -> Members:
  """Load the further members of an ensemble one by one; InputError if one has another objective or tokenizer."""
  places = [pathlib.Path(workdir).resolve() for workdir in (first.workdir, *workdirs)]
  for place in dict.fromkeys(place for place in places if places.count(place) > 1):
    warnings.warn(
      InputWarning(f'--ensemble: {place} is given {places.count(place)} times, and counts as often'), stacklevel=2
    )
  for workdir in workdirs:
    if not str(workdir):
      raise InputError('--ensemble: got an empty name between commas; expected work directories')
    loaded = restore.load(workdir, which, overrides)
    _check_alike(first, loaded)
    yield loaded


def _measures(first: RestoredRun) -> Any:
  """Return the function for the objective of a run."""
  run = first.run
  if run.evaluation.cache or run.evaluation.mixture:
    raise InputError(
      'evaluation.cache, evaluation.mixture: an ensemble is evaluated without them; omit --cache and --mixture, or add '
      '--config.evaluation.cache=() --config.evaluation.mixture='
    )
  if run.objective_name in ('classify', 'multiple_choice'):
    return _classifiers
  if first.objective.score is not None:
    return _language_models
  if run.objective_name == 'span' and run.objective.head == 'bert':
    return _answers
  if run.objective_name == 'translation':
    if not run.evaluation.beam:
      raise InputError('evaluation.beam: an ensemble translates by beam search; add --config.evaluation.beam=12')
    return _translations
  head = f' with the head "{run.objective.head}"' if run.objective_name == 'span' else ''
  raise InputError(
    f'--ensemble: got runs of the objective "{run.objective_name}"{head}; expected left-to-right language models '
    '("causal_lm"), classifiers ("classify", "multiple_choice"), answers with BERT\'s head ("span") or "translation"'
  )


def _check_alike(first: RestoredRun, other: RestoredRun) -> None:
  """Raise InputError if two runs have other objectives, heads or tokenizers."""
  for name, one, two in (
    ('objective', first.run.objective_name, other.run.objective_name),
    ('head', *(getattr(loaded.run.objective, 'head', '') for loaded in (first, other))),
    ('vocabulary', first.tokenizer.hash[:12], other.tokenizer.hash[:12]),
  ):
    if one != two:
      raise InputError(
        f'--ensemble: {other.workdir} has the {name} {two} and {first.workdir} {one}; expected runs with the same '
        f'{name}, so omit one of them'
      )


def _check_text(first: Corpus, other: Corpus, split: str, workdir: Any) -> None:
  """Raise InputError if the tokens of a split differ."""
  if first is not other and not np.array_equal(first.split(split).tokens, other.split(split).tokens):
    raise InputError(
      f'--ensemble: {workdir} reads other tokens of split {split} than the first run; give runs of the same data, in '
      'the same direction'
    )


def _finish(
  metrics: dict[str, Any], what: str, averaged: str, loaded: RestoredRun, split: str, members: list[dict[str, Any]]
) -> dict[str, Any]:
  """Return the metrics of an ensemble with the fields that say what it is."""
  protocol = '; '.join(filter(None, (metrics.get('protocol'), f'mean of the {averaged} of {len(members)} runs')))
  about = {
    'name': 'ensemble',
    'model': f'mean of {len(members)} {what}',
    'dataset': loaded.run.data.dataset,
    'split': split,
    'protocol': protocol,
  }
  return {**metrics, **about, 'members': members}


def _member(loaded: RestoredRun, **metrics: float) -> dict[str, Any]:
  return {'workdir': str(loaded.workdir), **metrics, 'step': loaded.step}


def _language_models(members: Members, split: str) -> Evaluation:
  """Sum the probability of each token over the members, in the order of the text."""
  each: list[dict[str, Any]] = []
  for loaded in members:
    corpus = loaded.corpus()
    nll = single.token_nll(loaded.run, corpus, loaded.params, split)
    scored = ~np.isnan(nll)
    if not each:
      first, scored_first, log_sum = corpus, scored, -nll[scored]
    else:
      _check_text(first, corpus, split, loaded.workdir)
      if not np.array_equal(scored, scored_first):
        raise InputError(
          f'--ensemble: {loaded.workdir} predicts other tokens of split {split} than the first run; give all runs the '
          'same data.batching and data.eval_batch_size'
        )
      log_sum = np.logaddexp(log_sum, -nll[scored])
    count = int(scored.sum())
    each.append(_member(loaded, perplexity_per_token=float(np.exp(nll[scored].mean()))))
  total = float((np.log(len(each)) - log_sum).sum())
  totals = {'nll': (total, float(count))}
  single.check_finite(loaded.run, totals, loaded.params, f'split {split}')
  metrics = single.compute_results(loaded.run, corpus, split, totals)
  return Evaluation(_finish(metrics, 'language models', 'probabilities', loaded, split, each), [], [])


def _classifiers(members: Members, split: str) -> Evaluation:
  """Sum the probabilities of the classes, in the first member's order of the labels."""
  names: list[str] = []
  each: list[dict[str, Any]] = []
  sums, truth = np.zeros(()), np.zeros(0)
  for loaded in members:
    own = classification.label_names(loaded)
    corpus = loaded.corpus()
    names = names or own
    same = sorted(own) == sorted(names)
    if same:
      corpus = labels.renumber(corpus, names) if loaded.labels else corpus
      p_IC, labels_I = classification.compute_probabilities(loaded, corpus, split)
      p_IC = p_IC[:, [own.index(name) for name in names]]
    if not same or each and not np.array_equal(labels_I, truth):
      raise InputError(f'{loaded.workdir} does not classify the same documents into the same labels as the first run')
    truth, sums = labels_I, sums + p_IC
    each.append(_member(loaded, error_percent=_error(p_IC, labels_I)))
  mean_IC = sums / len(each)
  metrics = {
    'metric': 'error_percent',
    'error_percent': _error(mean_IC, truth),
    'accuracy': 1 - _error(mean_IC, truth) / 100,
    'loss': float(-np.mean(np.log(np.maximum(mean_IC[np.arange(len(truth)), truth], 1e-300)))),
    'tokens_counted': len(truth),
    'unit': 'documents',
  }
  return Evaluation(_finish(metrics, 'classifiers', 'probabilities', loaded, split, each), [], [])


def _error(p_IC: np.ndarray, labels_I: np.ndarray) -> float:
  return float(100 * np.mean(np.argmax(p_IC, axis=1) != labels_I))


def _answers(members: Members, split: str) -> Evaluation:
  """Sum the scores of start and end in each window of each passage."""
  each: list[dict[str, Any]] = []
  sums: list[np.ndarray] = []
  for loaded in members:
    corpus, run = loaded.corpus(), loaded.run
    batches = batched.batches(run, corpus, split)
    layout = run.data.batching, run.data.length, run.data.eval_batch_size
    scores = [predictions['scores_BT2'] for _, predictions in batched.predict(run, batches, loaded.params)]
    if not each:
      first, first_layout, sums = corpus, layout, scores
    else:
      _check_text(first, corpus, split, loaded.workdir)
      if layout != first_layout:
        raise InputError(
          f'--ensemble: {loaded.workdir} has other windows than the first run; give all runs the same data.batching, '
          'data.length and data.eval_batch_size'
        )
      sums = [one + other for one, other in zip(sums, scores, strict=True)]
    alone = _choose(loaded, corpus, split, batches, scores)
    metrics = question_answering.compute_metrics(run, alone)
    each.append(_member(loaded, exact_match=metrics['exact_match'], f1=metrics['f1']))
    if not all(np.isfinite(x).all() for x in scores):
      raise state.nonfinite_error(f'the scores of {loaded.workdir} on split {split} are', loaded.params)
  answers = _choose(loaded, corpus, split, batches, [x_BT2 / len(each) for x_BT2 in sums])
  metrics = question_answering.compute_metrics(run, answers)
  metrics |= {'tokens_counted': len(answers), 'unit': 'questions'}
  return Evaluation(_finish(metrics, 'models', 'start and end logits', loaded, split, each), [], answers)


def _choose(
  loaded: RestoredRun, corpus: Corpus, split: str, batches: Any, scores: Sequence[np.ndarray]
) -> list[question_answering.Answer]:
  pairs = ((batches(i), {'scores_BT2': x_BT2}) for i, x_BT2 in enumerate(scores))
  return question_answering.choose(loaded.run, corpus, split, batches, pairs)


def _translations(members: Members, split: str) -> Evaluation:
  """Translate with one beam search."""
  loaded = list(members)
  corpus, run = loaded[0].corpus(), loaded[0].run
  translator = translate.combine(
    [translate.build_translator(one.run, one.params['model'], corpus.tokenizer) for one in loaded]
  )
  with precision.scope(run.matmul_precision):
    pairs = translation.translate_split(run, corpus, translator, split, title=f'{split} by beam')
  metrics = translation.compute_metrics(run, corpus, pairs)
  metrics |= {'tokens_counted': len(pairs), 'unit': 'sentences', 'protocol': f'translated with {metrics["decoding"]}'}
  each = [_member(one) for one in loaded]
  return Evaluation(_finish(metrics, 'models', 'probabilities', loaded[0], split, each), pairs, [])
