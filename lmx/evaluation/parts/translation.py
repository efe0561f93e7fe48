"""Translation of a split by beam search, if `evaluation.beam` is set, and ensembles that share one search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lmx import objectives
from lmx.config.schema import Run
from lmx.decoding import translate
from lmx.engine import precision
from lmx.errors import InputError
from lmx.evaluation import members, translation
from lmx.evaluation.parts import Added, Evaluation, Members, Subject
from lmx.metrics.translation import METRICS

SCORES = tuple(one.name for one in METRICS)


def check(run: Run, corpus: Any, batches: Any) -> None:
  """Raise InputError if the split could not be translated."""
  del batches
  if run.train.best_by in SCORES and not run.evaluation.beam:
    raise InputError(
      f'train.best_by: got {run.train.best_by} without a translation; set evaluation.beam, such as 12, or choose '
      'another metric'
    )
  if run.evaluation.beam:
    translation.check(run, corpus)


def measure(subject: Subject) -> Added:
  """Return the metrics of the translations of a split, and the translations."""
  run, corpus, params, engine, split, _ = subject
  if not run.evaluation.beam:
    return Added({})
  translator = translate.build_translator(run, engine.to_one_device(params)['model'], corpus.tokenizer)
  translations = translation.translate_split(run, corpus, translator, split, title=f'{split} by beam')
  metrics = translation.compute_metrics(run, corpus, translations)
  return Added(metrics, translations, f'translated with {metrics["decoding"]}')


def write(workdir: Any, metrics: Mapping[str, Any], outputs: Sequence[Any]) -> None:
  """Write translations.txt and bleu_by_length.png."""
  if outputs:
    translation.write_files(workdir, metrics, outputs)


def lines(metrics: Mapping[str, Any]) -> list[str]:
  """Return the lines of BLEU and the other metrics of translations, each with its signature."""
  return translation.summary(metrics) if 'bleu' in metrics else []


def check_ensemble(run: Run) -> None:
  """Raise InputError without a beam."""
  if not run.evaluation.beam:
    raise InputError('evaluation.beam: an ensemble translates by beam search; add --config.evaluation.beam=12')


def ensemble(runs: Members, split: str) -> Evaluation:
  """Translate with one beam search."""
  loaded = list(runs)
  corpus, run = loaded[0].corpus(), loaded[0].run
  translator = translate.combine(
    [translate.build_translator(one.run, one.params['model'], corpus.tokenizer) for one in loaded]
  )
  with precision.scope(run.matmul_precision):
    pairs = translation.translate_split(run, corpus, translator, split, title=f'{split} by beam')
  metrics = translation.compute_metrics(run, corpus, pairs)
  metrics |= {'tokens_counted': len(pairs), 'unit': 'sentences', 'protocol': f'translated with {metrics["decoding"]}'}
  each = [members.describe(one) for one in loaded]
  metrics = members.complete(metrics, 'models', 'probabilities', loaded[0], split, each)
  return Evaluation(metrics, objectives.get(run.objective_name), pairs)
