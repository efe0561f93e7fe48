"""Evaluation of a run on a split, its baselines, and the output files of a finished run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from lmx import objectives
from lmx.config import resolve, schema
from lmx.data import labels, pipeline
from lmx.data.corpus import Corpus
from lmx.decoding import translate
from lmx.engine import precision, sharding
from lmx.evaluation import continuous_cache, evaluate, ngram_mixture, samples, translation
from lmx.metrics import by_class
from lmx.prediction import classification, question_answering
from lmx.reporting import plots, run_log, waiting
from lmx.runs import training
from lmx.runs.restore import RestoredRun
from lmx.types import Params

_CORRELATIONS = ('f1', 'matthews', 'pearson', 'spearman', 'miou')  # metrics of at most 1
_ANSWERS = ('exact_match', 'best_f1', 'best_f1_threshold', 'answered_f1', 'unanswered_f1')
_SHOWN = (
  'perplexity_per_token',
  'bits_per_character',
  'bits_per_byte',
  'mlm_accuracy',
  'nsp_accuracy',
  'token_accuracy',
  'accuracy',
  'filtered_accuracy',
  'macro_f1',
  'perplexity_of_last_word',
  'f1',
  'matthews',
  'pearson',
  'spearman',
  'pixel_accuracy',
  'miou_with_background',
)
_SERIES = ('optimal_', 'accuracy_beyond_')  # beginnings of names


class Evaluation(NamedTuple):
  """Evaluation of a split.

  Attributes:
    metrics: metrics as in `results.json`, with the number of scored tokens and the protocol.
    translations: translations of the split, if `evaluation.beam` is set.
    answers: answers to the questions of the split, for the objective 'span'.
  """

  metrics: dict[str, Any]
  translations: list[translation.TranslatedPair]
  answers: list[question_answering.Answer]


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
  batches = pipeline.batches(evaluate.final_data(run), corpus, split, pipeline.EVAL_SEED, train=False)
  evaluate.check(run, batches)
  totals = evaluate.compute_totals(run, params, batches, engine, title=split)
  evaluate.check_finite(run, totals, params, f'split {split}')
  metrics = evaluate.compute_results(run, corpus, split, totals)
  objective = objectives.get(run.objective_name)
  if run.evaluation.baselines and objective.score is not None:
    splits = {split, 'valid'} if validation_baselines else {split}
    baselines = evaluate.baselines(corpus, splits, run.evaluation.order)
    metrics['baselines'] = baselines[split]
    metrics |= {'validation_baselines': baselines['valid']} if validation_baselines else {}
  if run.evaluation.cache:
    metrics['cache'] = continuous_cache.measure(run, corpus, params, split, engine)
  if run.evaluation.mixture:
    metrics['mixture'] = ngram_mixture.measure(run, corpus, engine.to_one_device(params), split)
  if objective.summarize is not None:
    outputs = classification.compute_outputs(run, corpus, engine.to_one_device(params), split)
    metrics |= objective.summarize(run.objective, outputs)
  if 'majority_class' in metrics:  # and accuracy_class_<i>, and the confusion matrix
    metrics['labels'] = list(corpus.manifest['label_names'])
  translations: list[translation.TranslatedPair] = []
  if run.evaluation.beam:
    translator = translate.build_translator(run, engine.to_one_device(params)['model'], corpus.tokenizer)
    translations = translation.translate_split(run, corpus, translator, split, title=f'{split} by beam')
    metrics |= translation.compute_metrics(run, corpus, translations)
    metrics['protocol'] += f'; translated with {metrics["decoding"]}'
  answers: list[question_answering.Answer] = []
  if run.objective_name == 'span':
    answers = question_answering.answer(run, corpus, engine.to_one_device(params), split)
    metrics |= question_answering.compute_metrics(run, answers)
  return Evaluation(metrics, translations, answers)


def evaluate_restored(loaded: RestoredRun, split: str) -> Evaluation:
  """Evaluate a run that `lmx.load` returned, on the data of its config; see `evaluate_run`.

  Raises:
    InputError: another tokenizer than the run's made the data, or the data has labels unknown to the run.
  """
  run = loaded.run
  engine = training.make_engine(run)
  corpus = loaded.corpus()
  corpus = labels.renumber(corpus, loaded.labels) if loaded.labels else corpus
  # As in training: labels that an override names are known, and numbered.
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
  """Write the files of a finished run: its figures, translations, answers and samples.

  `results.json` comes last, so a run killed before that repeats its evaluation.

  Args:
    run: the run.
    corpus: its data.
    params: the evaluated parameters, as the engine has placed them.
    engine: the run's engine.
    evaluation: evaluation of `evaluation.split`, with the metrics to write.
    logger: logger of the work directory.
  """
  metrics, translations, answers = evaluation
  logger.plot(metrics)
  if answers and logger.primary:
    question_answering.write_files(logger.workdir, answers)
  if 'confusion' in metrics and logger.primary:
    plots.confusion(logger.workdir / 'confusion.png', metrics['confusion'], metrics['labels'])
  if translations and logger.primary:
    translation.write_files(logger.workdir, metrics, translations)
  logger.note(summary(metrics))
  if run.samples.count and objectives.get(run.objective_name).SAMPLES != 'none':
    if text := samples.generate_samples(run, corpus, engine.to_one_device(params), translations, logger.workdir):
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
  options = run.evaluation
  evaluate.check(run, batches)
  if options.cache:
    continuous_cache.check(run, batches)
  if options.mixture:
    ngram_mixture.check(run)
  sampled = run.samples.count and objectives.get(run.objective_name).SAMPLES == 'translations'
  if options.beam or sampled:
    translation.check(run, corpus)
  return samples.select_prompts(run, corpus)[1]


def summary(metrics: Mapping[str, Any]) -> str:
  """Return the main metrics as lines of text, with those of the baselines."""
  metric = metrics['metric']
  rows = [(metrics['model'], metrics[metric])]
  if 'cache' in metrics:
    rows.append(('with a cache of {window}'.format(**metrics['cache']), metrics['cache'][metric]))
  for name, label in (('kneser_ney', 'Kneser-Ney {order}-gram'), ('unigram', 'unigram')):
    other = metrics.get('baselines', {}).get(name, {})
    if metric in other:
      rows.append((label.format(**other), other[metric]))
  counted = f'{metrics["tokens_counted"]:,} {metrics["unit"]}'
  of_class = {'f1': f' of {metrics["positive"]}'} if 'positive' in metrics else {}
  title = f'{metric.replace("_", " ")}{of_class.get(metric, "")} on {metrics["dataset"]}/{metrics["split"]} ({counted})'
  fraction = metric == 'bits_per_character' or metric in _CORRELATIONS and 'questions' not in metrics
  form = '12.2%' if metric == 'accuracy' else '12,.3f' if fraction else '12,.2f'
  lines = [title, *(f'  {label:24} {value:{form}}' for label, value in rows)]
  for name in (*_SHOWN, *(name for name in metrics if '_per_sequence_at_' in name or name.startswith(_SERIES))):
    if name in metrics and name != metric:
      text = f'{metrics[name]:12.1%}' if name.endswith('accuracy') else f'{metrics[name]:12,.3f}'
      lines.append(f'  {name.replace("_", " ") + of_class.get(name, ""):24} {text}')
  lines += translation.summary(metrics) if 'bleu' in metrics else []
  lines += by_class.lines(metrics['classes']) if 'classes' in metrics else []
  answered = [name for name in _ANSWERS if name in metrics and 'questions' in metrics]
  lines += [f'  {name.replace("_", " "):24} {metrics[name]:12.2f}' for name in answered]
  lines.append(f'  ({metrics["protocol"]})')
  if 'averaged_steps' in metrics:
    steps = metrics['averaged_steps']
    lines.append(f'  (mean of {len(steps)} checkpoints: {", ".join(map(str, steps))})')
  if 'mixture' in metrics:
    lines.append('  ' + ngram_mixture.describe(metrics['mixture']))
  if 'majority_accuracy' in metrics and metrics['accuracy'] <= (majority := metrics['majority_accuracy']) < 1:
    constant = f'always predicting "{metrics["labels"][metrics["majority_class"]]}" has {majority:.1%}'
    lines.append(f'  warning: accuracy: got {metrics["accuracy"]:.1%}; {constant}; train longer, or change optim.lr')
  return '\n'.join(lines)
