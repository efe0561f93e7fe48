"""What stands at the end of a run: the exact measurement, the baselines beside it, a picture, and some text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lmx import (
  answers,
  config,
  decode,
  evaluate,
  log,
  mixture,
  objectives,
  parallel,
  pictures,
  pointer,
  predictions,
  step,
  translated,
  wordvectors,
)  # fmt: skip
from lmx.data import labels, pipeline
from lmx.models import registry

_CORRELATIONS = ('f1', 'matthews', 'pearson', 'spearman')  # metrics of at most 1
_ANSWERS = ('exact_match', 'best_f1', 'best_f1_threshold', 'answered_f1', 'unanswered_f1')
_SHOWN = (
  'perplexity_per_token', 'bits_per_character', 'bits_per_byte', 'mlm_accuracy', 'nsp_accuracy', 'token_accuracy',
  'accuracy', 'filtered_accuracy', 'perplexity_of_last_word', 'f1', 'matthews', 'pearson', 'spearman',
)  # fmt: skip


def finish(session, checkpoints, logger: log.Logger, command: Sequence[str]) -> dict[str, Any]:
  """Measures the best (or last) parameters on `evaluation.split` and leaves loss.png, samples.txt and what else the run
  asks for. results.json comes last: a run killed before it is there finishes anew."""
  run, corpus, split = session.run, session.corpus, session.run.evaluation.split
  about = {
    'seed': run.seed, 'config_hash': session.config_hash, 'steps': session.done, 'command': list(command),
    'training_seconds': session.progress.seconds, 'skipped_updates': session.progress.skipped,
    **({} if session.progress.best is None else {'validation_loss': session.progress.best}),
    **({} if run.optim.asgd == 'off' else {'trigger_step': session.progress.trigger}),
  }  # fmt: skip
  session.restore(checkpoints, run.evaluation.which)
  found = evaluate.figures(run, corpus, split, session.evaluate(final=True)) | {'step': session.done} | about
  found |= {'averaged_steps': list(session.averaged)} if session.averaged else {}
  found |= _beside(run, corpus, found, session.measured(), session.engine, run.evaluation.baselines)
  translations = _translated(run, corpus, found, session.measured(), session.engine)
  given = _answered(run, corpus, found, session.measured(), session.engine)
  logger.plot(found)
  if given and logger.primary:
    answers.keep(logger.workdir, given)
  if 'confusion' in found and logger.primary:
    pictures.confusion(logger.workdir / 'confusion.png', found['confusion'], found['labels'])
  if translations and logger.primary:
    translated.keep(logger.workdir, found, translations)
  logger.note(summary(found))
  if run.samples.count and session.objective.SAMPLES != 'none':
    write: dict[str, Callable[..., Iterator[str]]] = {
      'text': _written, 'gaps': _filled_in, 'neighbours': _neighbours, 'memory': _pictures,
      'translations': functools.partial(_some_translations, translations),
    }  # fmt: skip
    parts = write[session.objective.SAMPLES](session)
    text = '\n\n----\n\n'.join(parts)
    logger.samples(text)
    logger.note('\n' + text)
  logger.results(found)
  return found


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
  """
  run = loaded.run
  if translations:
    translated.write(translations, (), 'a')  # whether it can be written is said first, and what is there is kept
  engine = parallel.Engine(run.parallel)
  corpus = loaded.corpus()
  corpus = labels.renumbered(corpus, loaded.labels) if loaded.labels else corpus
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  eval_step = engine.compile_eval(step.make_eval_step(model, run.measured, objective, run.objective))
  batches = pipeline.batches(evaluate.final_data(run), corpus, split, evaluate.SEED, train=False)
  begin = lambda rows: model.init_state(run.measured, rows)
  params = engine.build(lambda p: p, loaded.params)
  totals = evaluate.measure(eval_step, params, begin, batches, engine, title=split)
  found = evaluate.figures(run, corpus, split, totals) | {
    'step': loaded.step, 'config_hash': config.digest(loaded.config),
    **({'averaged_steps': list(loaded.averaged)} if loaded.averaged else {}),
  }  # fmt: skip
  found |= _beside(run, corpus, found, params, engine, with_baselines)
  made = _translated(run, corpus, found, params, engine)
  _answered(run, corpus, found, params, engine)
  if translations:
    translated.write(translations, made)
  return found


def _beside(
  run: config.Run, corpus, found: Mapping[str, Any], params, engine: parallel.Engine, with_baselines: bool
) -> dict[str, Any]:
  """What `evaluation` asks for beside the figures: n-gram models, the model with a cache, and mixed with an n-gram
  model."""
  more: dict[str, Any] = {}
  split = found['split']
  if with_baselines and 'perplexity_per_word' in found:
    more['baselines'] = evaluate.baselines(corpus, split, run.evaluation.order)
  if run.evaluation.cache:
    more['cache'] = pointer.measure(run, corpus, params, split, engine)
  if run.evaluation.mixture:
    more['mixture'] = mixture.measure(run, corpus, engine.on_one(params), split)
  objective = objectives.get(run.objective_name)
  if hasattr(objective, 'judge'):
    more |= objective.judge(run.objective, predictions.outputs(run, corpus, engine.on_one(params), split))
  if 'confusion' in more:
    more['labels'] = list(corpus.manifest['label_names'])  # what its rows and accuracy_class_<i> are of
  return more


def _translated(
  run: config.Run, corpus, found: dict[str, Any], params, engine: parallel.Engine
) -> list[translated.Translated]:
  """Translates the split where `evaluation.beam` says so: adds the figures to `found` and returns the translations."""
  if not run.evaluation.beam:
    return []
  made = translated.pairs(run, corpus, engine.on_one(params), found['split'], title=f'{found["split"]} by beam')
  found |= translated.figures(run, corpus, made)
  found['protocol'] += f'; translated with {found["decoding"]}'
  return made


def _answered(run: config.Run, corpus, found: dict[str, Any], params, engine: parallel.Engine) -> list[answers.Answer]:
  """Answers the questions of the split where the run does so: adds the figures to `found` and returns the answers."""
  if run.objective_name != 'span':
    return []
  given = answers.answer(run, corpus, engine.on_one(params), found['split'])
  found |= answers.figures(run, given)
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
  lines += translated.summary(found) if 'bleu' in found else []
  answered = [name for name in _ANSWERS if name in found and 'questions' in found]
  lines += [f'  {name.replace("_", " "):24} {found[name]:12.2f}' for name in answered]
  lines.append(f'  ({found["protocol"]})')
  if 'averaged_steps' in found:
    steps = found['averaged_steps']
    lines.append(f'  (mean of {len(steps)} checkpoints: {", ".join(map(str, steps))})')
  if 'mixture' in found:
    lines.append('  ' + mixture.label(found['mixture']))
  return '\n'.join(lines)


def _written(session) -> Iterator[str]:
  """Text that the model writes after each prompt of the config."""
  run, tokenizer, options = session.run, session.corpus.tokenizer, session.run.samples
  sampler = decode.Sampler(
    temperature=options.temperature, top_k=options.top_k, top_p=options.top_p,
    forbidden=decode.unwritable(tokenizer, run.model.V),
  )  # fmt: skip
  params = session.host_params()['model']
  for number, prompt in enumerate(options.prompts):
    start_T = decode.prompt_ids(tokenizer, prompt)
    found = decode.generate(
      session.model, run.model, params, np.tile(start_T, (options.count, 1)), steps=options.tokens,
      key=jax.random.fold_in(jax.random.key(run.seed), number), sampler=sampler,
    )  # fmt: skip
    for row_T, count in zip(*found, strict=True):
      yield tokenizer.decode(np.concatenate([start_T, row_T[:count]])).strip()


def _some_translations(made: Sequence[translated.Translated], session) -> Iterator[str]:
  """The first pairs of the evaluated split, of those that are translated already where there are any."""
  run = session.run
  count, split = run.samples.count, run.evaluation.split
  for one in made[:count] or translated.pairs(run, session.corpus, session.host_params(), split, count):
    yield f'source       {one.source}\ntranslation  {one.translation}\nreference    {one.reference}'


def _filled_in(session) -> Iterator[str]:
  """Rows of the evaluated split with every hidden token shown as [what the model reads|what stood there]."""
  run, tokenizer = session.run, session.corpus.tokenizer
  batches = pipeline.batches(run.data, session.corpus, run.evaluation.split, evaluate.SEED, train=False)
  batch = batches(0, slice(0, min(run.samples.count, batches.batch_size)))
  predict = jax.jit(session.objective.predict, static_argnums=(0, 1, 2))
  found, _ = predict(run.objective, session.model, run.model, session.host_params(), batch, ())
  guess_BP, valid_BT = np.argmax(found['logits_BPV'], -1), batch.get('valid_BT')
  for row, tokens_T in enumerate(batch['tokens_BT']):
    words = [tokenizer.id_to_token(int(i)) for i in (tokens_T[valid_BT[row]] if valid_BT is not None else tokens_T)]
    for p, position in enumerate(batch['positions_BP'][row]):
      if batch['weights_BP'][row, p]:
        truth = tokenizer.id_to_token(int(batch['targets_BP'][row, p]))
        words[position] = f'[{tokenizer.id_to_token(int(guess_BP[row, p]))}|{truth}]'
    yield ' '.join(words).replace(' ##', '')


def _neighbours(session) -> Iterator[str]:
  """The nearest words of each word among the prompts, or of some frequent ones where there is none."""
  options = session.run.samples
  vectors = wordvectors.of_tables(session.corpus, session.run.data, session.host_params()['model'])
  words = [word for word in options.prompts if word] or vectors.words[50 : 50 + 50 * options.count : 50]
  for word in words:
    yield f'{word}: ' + ', '.join(f'{near} {score:.2f}' for near, score in vectors.nearest(word))


def _pictures(session) -> Iterator[str]:
  """Draws what happens in episodes of the evaluated split, one of each length: memory_<length>.png."""
  run = session.run
  batches = pipeline.batches(evaluate.final_data(run), session.corpus, run.evaluation.split, evaluate.SEED, train=False)
  params, trace = session.host_params()['model'], jax.jit(session.model.trace, static_argnums=0)
  for episode in pictures.episodes(batches, run.samples.count):
    seen = jax.device_get(trace(run.model, params, episode))
    wrong = (seen['logits_BTO'] > 0) != (episode['target_bits_BTO'] > 0.5)
    wrong, path = wrong[episode['weights_BT'] > 0], session.workdir / f'memory_{int(episode["size_B"][0])}.png'
    if jax.process_index() == 0:
      pictures.memory(path, episode, seen)
    yield f'{path.name}: {int(episode["size_B"][0])} items, {wrong.sum():,} of {wrong.size:,} bits wrong'
