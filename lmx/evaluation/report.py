"""What stands at the end of a run: the exact measurement, the baselines beside it, a picture, and some text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lmx import objectives
from lmx.config import resolve, schema
from lmx.data import labels, pipeline
from lmx.engine import precision, sharding, step
from lmx.evaluation import continuous_cache, evaluate, ngram_mixture, samples, translation
from lmx.models import registry
from lmx.prediction import classification, question_answering
from lmx.reporting import plots, run_log

_CORRELATIONS = ('f1', 'matthews', 'pearson', 'spearman')  # metrics of at most 1
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
  'perplexity_of_last_word',
  'f1',
  'matthews',
  'pearson',
  'spearman',
)


@precision.of_run
def finish(session, checkpoints, logger: run_log.Logger, command: Sequence[str]) -> dict[str, Any]:
  """Measures the best (or last) parameters on `evaluation.split` and leaves loss.png, samples.txt and what else the run
  asks for. results.json comes last: a run killed before it is there finishes anew."""
  run, corpus, split = session.run, session.corpus, session.run.evaluation.split
  about = {
    'seed': run.seed,
    'config_hash': session.config_hash,
    'steps': session.done,
    'command': list(command),
    'training_seconds': session.progress.seconds,
    'skipped_updates': session.progress.skipped,
    **({} if session.progress.best is None else {'validation_loss': session.progress.best}),
    **({} if run.optim.asgd == 'off' else {'trigger_step': session.progress.trigger}),
  }
  session.restore(checkpoints, run.evaluation.which)
  totals = session.evaluate(final=True)
  evaluate.check_finite(run, totals, session.measured(), f'split {split}')
  found = evaluate.figures(run, corpus, split, totals) | {'step': session.done} | about
  found |= {'averaged_steps': list(session.averaged)} if session.averaged else {}
  found |= _beside(run, corpus, found, session.measured(), session.engine, run.evaluation.baselines, curve=True)
  translations = _translated(run, corpus, found, session.measured(), session.engine)
  given = _answered(run, corpus, found, session.measured(), session.engine)
  logger.plot(found)
  if given and logger.primary:
    question_answering.keep(logger.workdir, given)
  if 'confusion' in found and logger.primary:
    plots.confusion(logger.workdir / 'confusion.png', found['confusion'], found['labels'])
  if translations and logger.primary:
    translation.keep(logger.workdir, found, translations)
  logger.note(summary(found))
  if run.samples.count and session.objective.SAMPLES != 'none':
    if text := samples.write(session, translations):
      logger.samples(text)
      logger.note('\n' + text)
  logger.results(found)
  return found


def check(run: schema.Run, corpus, batches) -> list[str]:
  """Returns notes on the samples that a run leaves at its end.

  Args:
    run: the run.
    corpus: its data.
    batches: of the measurement at its end.

  Raises:
    InputError: a setting that is read only after the last update could not be followed then.
  """
  chosen = run.evaluation
  evaluate.check(run, batches)
  if chosen.cache:
    continuous_cache.check(run, batches)
  if chosen.mixture:
    ngram_mixture.check(run)
  sampled = run.samples.count and objectives.get(run.objective_name).SAMPLES == 'translations'
  if chosen.beam or sampled:
    translation.check(run, corpus)
  return samples.prompts(run, corpus)[1]


@precision.of_run
def of_run(loaded, split: str, *, with_baselines: bool = True, translations: Any = None) -> dict[str, Any]:
  """Measures a run given back by `lmx.load` on a whole split; returns what `results.json` has.

  Args:
    loaded: the run.
    split: name of the split.
    with_baselines: also measure the n-gram models of `evaluation.baselines`, if the objective is compared with them.
    translations: file that the translations of the split are written to, where `evaluation.beam` asks for them.

  Raises:
    InputError: the data is tokenised by another tokenizer than the run's, has labels that the run does not know, or
      there is no such split; `translations` cannot be written, which is said before anything is measured.
    NonFiniteLoss: the loss of the split is NaN or infinite.
  """
  run = loaded.run
  if translations:
    translation.write(translations, (), 'a')  # whether it can be written is said first, and what is there is kept
  engine = sharding.Engine(run.parallel, matmul_precision=run.matmul_precision)
  corpus = loaded.corpus()
  corpus = labels.renumbered(corpus, loaded.labels) if loaded.labels else corpus
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  eval_step = engine.compile_eval(step.make_eval_step(model, run.measured, objective, run.objective))
  batches = pipeline.batches(evaluate.final_data(run), corpus, split, pipeline.EVAL_SEED, train=False)
  evaluate.check(run, batches)
  begin = lambda rows: model.init_state(run.measured, rows)
  params = engine.build(lambda p: p, loaded.params)
  totals = evaluate.measure(eval_step, params, begin, batches, engine, title=split)
  evaluate.check_finite(run, totals, params, f'split {split}')
  found = evaluate.figures(run, corpus, split, totals) | {
    'step': loaded.step,
    'config_hash': resolve.digest(loaded.config),
    **({'averaged_steps': list(loaded.averaged)} if loaded.averaged else {}),
  }
  found |= _beside(run, corpus, found, params, engine, with_baselines)
  made = _translated(run, corpus, found, params, engine)
  _answered(run, corpus, found, params, engine)
  if translations:
    translation.write(translations, made)
  return found


def _beside(
  run: schema.Run,
  corpus,
  found: Mapping[str, Any],
  params,
  engine: sharding.Engine,
  with_baselines: bool,
  *,
  curve: bool = False,
) -> dict[str, Any]:
  """What `evaluation` asks for beside the metrics: n-gram models (for the `curve` of validation losses also on that
  split), the model with a cache, and mixed with an n-gram model."""
  more: dict[str, Any] = {}
  split = found['split']
  if with_baselines and 'perplexity_per_word' in found:
    both = evaluate.baselines(corpus, {split, 'valid'} if curve else {split}, run.evaluation.order)
    more['baselines'] = both[split]
    more |= {'validation_baselines': both['valid']} if curve else {}
  if run.evaluation.cache:
    more['cache'] = continuous_cache.measure(run, corpus, params, split, engine)
  if run.evaluation.mixture:
    more['mixture'] = ngram_mixture.measure(run, corpus, engine.on_one(params), split)
  objective = objectives.get(run.objective_name)
  if hasattr(objective, 'judge'):
    more |= objective.judge(run.objective, classification.outputs(run, corpus, engine.on_one(params), split))
  if 'majority_class' in more:
    more['labels'] = list(corpus.manifest['label_names'])  # of majority_class, accuracy_class_<i> and the confusions
  return more


def _translated(
  run: schema.Run, corpus, found: dict[str, Any], params, engine: sharding.Engine
) -> list[translation.Translated]:
  """Translates the split where `evaluation.beam` says so: adds the figures to `found` and returns the translations."""
  if not run.evaluation.beam:
    return []
  made = translation.pairs(run, corpus, engine.on_one(params), found['split'], title=f'{found["split"]} by beam')
  found |= translation.figures(run, corpus, made)
  found['protocol'] += f'; translated with {found["decoding"]}'
  return made


def _answered(
  run: schema.Run, corpus, found: dict[str, Any], params, engine: sharding.Engine
) -> list[question_answering.Answer]:
  """Answers the questions of the split where the run does so: adds the figures to `found` and returns the answers."""
  if run.objective_name != 'span':
    return []
  given = question_answering.answer(run, corpus, engine.on_one(params), found['split'])
  found |= question_answering.figures(run, given)
  return given


def summary(found: Mapping[str, Any]) -> str:
  """The figures a reader looks for first, one under another, the baselines beside them."""
  metric = found['metric']
  rows = [(found['model'], found[metric])]
  if 'cache' in found:
    rows.append(('with a cache of {window}'.format(**found['cache']), found['cache'][metric]))
  for name, label in (('kneser_ney', 'Kneser-Ney {order}-gram'), ('unigram', 'unigram')):
    other = found.get('baselines', {}).get(name, {})
    if metric in other:
      rows.append((label.format(**other), other[metric]))
  counted = f'{found["tokens_counted"]:,} {found["unit"]}'
  title = f'{metric.replace("_", " ")} on {found["dataset"]}/{found["split"]} ({counted})'
  fraction = metric == 'bits_per_character' or metric in _CORRELATIONS and 'questions' not in found
  form = '12.2%' if metric == 'accuracy' else '12,.3f' if fraction else '12,.2f'
  lines = [title, *(f'  {label:24} {value:{form}}' for label, value in rows)]
  for name in (*_SHOWN, *(name for name in found if '_per_sequence_at_' in name or name.startswith('optimal_'))):
    if name in found and name != metric:
      text = f'{found[name]:12.1%}' if name.endswith('accuracy') else f'{found[name]:12,.3f}'
      lines.append(f'  {name.replace("_", " "):24} {text}')
  lines += translation.summary(found) if 'bleu' in found else []
  answered = [name for name in _ANSWERS if name in found and 'questions' in found]
  lines += [f'  {name.replace("_", " "):24} {found[name]:12.2f}' for name in answered]
  lines.append(f'  ({found["protocol"]})')
  if 'averaged_steps' in found:
    steps = found['averaged_steps']
    lines.append(f'  (mean of {len(steps)} checkpoints: {", ".join(map(str, steps))})')
  if 'mixture' in found:
    lines.append('  ' + ngram_mixture.label(found['mixture']))
  if 'majority_accuracy' in found and found['accuracy'] <= (majority := found['majority_accuracy']) < 1:
    constant = f'always predicting "{found["labels"][found["majority_class"]]}" has {majority:.1%}'
    lines.append(f'  warning: accuracy: got {found["accuracy"]:.1%}; {constant}; train longer, or change optim.lr')
  return '\n'.join(lines)
