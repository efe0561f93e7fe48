"""Evaluation of a run on a split, its baselines, and the output files of a finished run."""

from __future__ import annotations

import dataclasses
import fnmatch
import importlib
from collections.abc import Mapping
from typing import Any

from lmx import objectives
from lmx.config import resolve, schema
from lmx.data import labels
from lmx.data.corpus import Corpus
from lmx.engine import precision, sharding
from lmx.evaluation import evaluate, parts, samples
from lmx.evaluation.parts import Evaluation
from lmx.metrics import by_class, language, metric
from lmx.reporting import loss_curve, run_log, waiting
from lmx.runs import training
from lmx.runs.restore import RestoredRun
from lmx.types import Objective, Params


@precision.run_scope
def evaluate_run(
  run: schema.Run,
  corpus: Corpus,
  params: Params,
  engine: sharding.Engine,
  split: str,
  *,
  validation_baselines: bool = False,
) -> Evaluation:
  """Evaluate parameters on a whole split by the `evaluation` section of a run.

  Args:
    run: the run.
    corpus: its data.
    params: {'model': ..., 'objective': ...} as the engine has placed them.
    engine: the run's engine.
    split: name of the split.
    validation_baselines: evaluate the baselines, if any, on the split 'valid' too.

  Raises:
    InputError: there is no such split, or it cannot be evaluated.
    NonFiniteLoss: the loss of the split is NaN or infinite.
  """
  objective = objectives.get(run.objective_name)
  parts.check_options(run, objective)
  batches = evaluate.final_batches(run, corpus, split)
  evaluate.check(run, batches)
  totals = evaluate.compute_totals(run, params, batches, engine, title=split)
  evaluate.check_finite(run, totals, params, f'split {split}')
  metrics = evaluate.compute_results(run, corpus, split, totals)
  subject = parts.Subject(run, corpus, params, engine, split, validation_baselines)
  outputs: list[Any] = []
  for part in parts.select(objective, vars(run.evaluation)):
    added = part.measure(subject)
    metrics |= added.metrics
    metrics |= {'protocol': f'{metrics["protocol"]}; {added.protocol}'} if added.protocol else {}
    outputs += added.outputs
  evaluation = Evaluation(metrics, objective, outputs)
  return _rows().add(evaluation, subject) if run.evaluation.save_rows else evaluation


@precision.run_scope
def validation_scores(
  run: schema.Run, corpus: Corpus, params: Params, engine: sharding.Engine, name: str
) -> dict[str, float]:
  """Return the scores of the validation split that the final evaluation computes from predictions; {} without `name`.

  Args:
    run: the run.
    corpus: its data.
    params: {'model': ..., 'objective': ...} as the engine has placed them.
    engine: the run's engine.
    name: the score that selects checkpoints, see `evaluate.score_name`.
  """
  part = parts.get(objectives.get(run.objective_name).EVALUATION)
  if name not in part.SCORES:
    return {}
  metrics = part.measure(parts.Subject(run, corpus, params, engine, 'valid')).metrics
  return {score: metrics[score] for score in part.SCORES if score in metrics}


def _rows() -> Any:
  """Return lmx.evaluation.rows, which few runs need."""
  return importlib.import_module('lmx.evaluation.rows')


def evaluate_restored(loaded: RestoredRun, split: str) -> Evaluation:
  """Evaluate a run that `lmx.load` returned, on the data of its config; see `evaluate_run`.

  Raises:
    InputError: another tokenizer than the run's made the data, or the data has labels unknown to the run.
  """
  run = loaded.run
  engine = training.make_engine(run)
  corpus = loaded.corpus()
  corpus = labels.renumber(corpus, loaded.labels) if loaded.labels else corpus
  # As in training: labels in an override are known and indexed.
  run = dataclasses.replace(run, objective=loaded.objective.resolve(run.objective, corpus.manifest))
  evaluation = evaluate_run(run, corpus, engine.place(loaded.params), engine, split)
  checkpoint = {'step': loaded.step, 'config_hash': resolve.digest(loaded.config)}
  averaged = {'averaged_steps': list(loaded.averaged)} if loaded.averaged else {}
  return evaluation._replace(metrics={**evaluation.metrics, **checkpoint, **averaged})


def write(
  run: schema.Run,
  corpus: Corpus,
  params: Params,
  engine: sharding.Engine,
  evaluation: Evaluation,
  logger: run_log.Logger,
) -> None:
  """Write the files of a finished run: its pictures, translations or answers, and samples.

  `results.json` comes last, so a run killed before that repeats its evaluation.

  Args:
    run: the run.
    corpus: its data.
    params: the evaluated parameters, as the engine has placed them.
    engine: the run's engine.
    evaluation: evaluation of `evaluation.split`, with the metrics to write.
    logger: logger of the work directory.
  """
  metrics, objective, outputs, rows = evaluation
  logger.plot(metrics)
  if logger.primary:
    if rows:
      _rows().write(logger.workdir, rows)
    parts.get(objective.EVALUATION).write(logger.workdir, metrics, outputs)
  logger.note(summary(metrics, objective))
  if run.samples.count:
    if text := samples.generate_samples(run, corpus, engine.to_one_device(params), outputs, logger.workdir):
      logger.samples(text)
      logger.note('\n' + text)
  logger.results(metrics)
  steps, seconds = (metrics.get(name, 0) for name in ('steps', 'training_seconds'))
  done = f'\n{metrics["name"]}: {steps:,} updates in {waiting.duration(seconds)}'
  logger.note('\n'.join([done, *logger.files()]))


def check(run: schema.Run, corpus: Any, batches: Any) -> list[str]:
  """Check the settings of the final evaluation; return notes on the samples.

  Args:
    run: the run.
    corpus: its data.
    batches: batches of the final evaluation.

  Raises:
    InputError: a setting that is read only after the last update would fail then.
  """
  evaluate.check(run, batches)
  objective = objectives.get(run.objective_name)
  parts.check_options(run, objective)
  for part in parts.select(objective, vars(run.evaluation)):
    part.check(run, corpus, batches)
  return samples.select_prompts(run, corpus)[1]


def summary(metrics: Mapping[str, Any], objective: Objective) -> str:
  """Return an objective's main metrics as lines of text, with the baselines' metrics."""
  selected, headline = parts.select(objective, metrics), metrics['metric']
  declared = metric.find(objective.METRICS, headline) or metric.Metric(headline, None)
  rows = [(metrics['model'], f'{metrics[headline]:12{declared.headline}}')]
  if 'cache' in metrics:
    window, value = metrics['cache']['window'], metrics['cache'][headline]
    rows.append((f'with a cache of {window}', f'{value:12{declared.headline}}'))
  for name, label in loss_curve.BASELINES.items():
    other = metrics.get('baselines', {}).get(name, {})
    if 'skipped' in other:
      rows.append((label.format(**other), f'  {other["skipped"]}'))
    elif headline in other:
      rows.append((label.format(**other), f'{other[headline]:12{declared.headline}}'))
  counted = f'{metrics["tokens_counted"]:,} {metrics["unit"]}'
  title = f'{_caption(headline, metrics)} on {metrics["dataset"]}/{metrics["split"]} ({counted})'
  named = [(one, name) for one in objective.METRICS if one.shown for name in fnmatch.filter(metrics, one.name)]
  shown = [(_caption(name, metrics), f'{metrics[name]:12{one.format}}') for one, name in named if name != headline]
  width = max(24, *(len(label) for label, _ in (*rows, *shown)))
  lines = [title, *(f'  {label:{width}} {value}' for label, value in rows)]
  if 'interval' in metrics:
    low, high = (f'{bound:{declared.headline}}' for bound in metrics['interval'])
    about = '{count:,} {unit}'.format(**metrics['rows'])
    lines.append(f'  {"95% interval":{width}} {low:>12} to {high} (bootstrap over {about})')
  lines += [f'  {label:{width}} {value}' for label, value in shown]
  lines += [line for part in selected for line in part.lines(metrics)]
  lines += by_class.lines(metrics['classes']) if 'classes' in metrics else []
  lines.append(f'  ({metrics["protocol"]})')
  if 'words_counted' in metrics:
    lines.append(f'  (perplexity per word counts {metrics["words_counted"]:,} {metrics["word_rule"]})')
  if uncharged := language.describe_uncharged(metrics, headline):
    lines.append(f'  ({uncharged}{"; metrics with spelling charge them" * ("unknown_words" in metrics)})')
  if 'averaged_steps' in metrics:
    steps = metrics['averaged_steps']
    lines.append(f'  (mean of {len(steps)} checkpoints: {", ".join(map(str, steps))})')
  return '\n'.join([*lines, *(note for part in selected for note in part.notes(metrics))])


def _caption(name: str, metrics: Mapping[str, Any]) -> str:
  of_class = f' of {metrics["positive"]}' if name == 'f1' and 'positive' in metrics else ''
  return name.replace('_', ' ') + of_class
