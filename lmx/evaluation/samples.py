"""Samples of a finished run: text, masked tokens, nearest words, translations, figures of a memory or of images."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from lmx import objectives
from lmx.config import schema
from lmx.data import pipeline
from lmx.data.corpus import Corpus
from lmx.decoding import generate, translate
from lmx.engine import precision
from lmx.errors import InputError, nearest
from lmx.evaluation import evaluate, translation
from lmx.models import registry
from lmx.prediction import word_vectors
from lmx.reporting import plots
from lmx.types import Params


def select_prompts(run: schema.Run, corpus: Any) -> tuple[list[str], list[str]]:
  """Return the prompts that are in a run's vocabulary, and a note on default ones that are not.

  Raises:
    InputError: one of `samples.prompts` is not in the vocabulary, or the samples are too many or too long.
  """
  check = {'text': _check_text, 'neighbours': _check_word}.get(objectives.get(run.objective_name).SAMPLES)
  if check is _check_text:
    generate.check_positions('samples.count, samples.tokens', run.samples.count, run.samples.tokens)
  if not run.samples.count or check is None:
    return [], []
  possible, refused = [], []
  for prompt in run.samples.prompts or run.samples.default_prompts:
    try:
      check(run, corpus, prompt)
      possible.append(prompt)
    except InputError as error:
      if run.samples.prompts:
        raise InputError(f'samples.prompts: got "{prompt}"; {error}') from None
      refused.append(prompt)
  names = ', '.join(f'"{prompt}"' if prompt else 'end-of-text token to begin after' for prompt in refused)
  return possible, [f'samples: the vocabulary has no {names}; choose others with samples.prompts'] if refused else []


def _check_text(run: schema.Run, corpus: Any, prompt: str) -> None:
  start_T, forbidden = (
    generate.prompt_ids(corpus.tokenizer, prompt),
    generate.forbidden_ids(corpus.tokenizer, run.model.V),
  )
  generate.check(registry.get(run.model_name), run.model, start_T[None], np.array([len(start_T)]), forbidden)


def _check_word(run: schema.Run, corpus: Any, prompt: str) -> None:
  words = word_vectors.words(corpus, run.data)
  if prompt not in words:
    raise InputError(f'not a word of the training text{nearest(prompt, words[:20_000])}')


@precision.run_scope
def generate_samples(
  run: schema.Run,
  corpus: Corpus,
  params: Params,
  translations: Sequence[translation.TranslatedPair],
  workdir: epath.Path,
) -> str:
  """Return the samples of a run as text; figures, of a memory or of images, are in its work directory.

  Args:
    run: the run.
    corpus: its data.
    params: {'model': ..., 'objective': ...}, unsharded on one device.
    translations: translations of the evaluated split; () translates its first pairs.
    workdir: work directory of the run.
  """
  kind = objectives.get(run.objective_name).SAMPLES
  if kind == 'translations':
    parts = _translations(run, corpus, params, translations)
  elif kind in ('memory', 'segmentations'):
    parts = {'memory': _memory, 'segmentations': _segmentations}[kind](run, corpus, params, workdir)
  else:
    parts = {'text': _texts, 'gaps': _gaps, 'neighbours': _neighbours}[kind](run, corpus, params)
  return '\n\n----\n\n'.join(parts)


def _texts(run: schema.Run, corpus: Corpus, params: Params) -> Iterator[str]:
  """Yield generated texts for each prompt."""
  tokenizer, options = corpus.tokenizer, run.samples
  sampler = generate.Sampler(
    temperature=options.temperature,
    top_k=options.top_k,
    top_p=options.top_p,
    forbidden=generate.forbidden_ids(tokenizer, run.model.V),
  )
  for number, prompt in enumerate(select_prompts(run, corpus)[0]):
    start_T = generate.prompt_ids(tokenizer, prompt)
    generated = generate.generate(
      registry.get(run.model_name),
      run.model,
      params['model'],
      np.tile(start_T, (options.count, 1)),
      steps=options.tokens,
      key=jax.random.fold_in(jax.random.key(run.seed), number),
      sampler=sampler,
    )
    for row_T, count in zip(*generated, strict=True):
      yield tokenizer.decode(np.concatenate([start_T, row_T[:count]])).strip()


def _translations(
  run: schema.Run, corpus: Corpus, params: Params, translations: Sequence[translation.TranslatedPair]
) -> Iterator[str]:
  """Yield the first pairs of the evaluated split with their translations."""
  count, split = run.samples.count, run.evaluation.split
  if not translations:
    translator = translate.build_translator(run, params['model'], corpus.tokenizer)
    translations = translation.translate_split(run, corpus, translator, split, count)
  for one in translations[:count]:
    yield f'source       {one.source}\ntranslation  {one.translation}\nreference    {one.reference}'


def _gaps(run: schema.Run, corpus: Corpus, params: Params) -> Iterator[str]:
  """Yield rows of the evaluated split with every masked token shown as [prediction|token]."""
  model, objective, tokenizer = registry.get(run.model_name), objectives.get(run.objective_name), corpus.tokenizer
  batches = pipeline.batches(run.data, corpus, run.evaluation.split, pipeline.EVAL_SEED, train=False)
  batch = batches(0, slice(0, min(run.samples.count, batches.batch_size)))
  predict = jax.jit(objective.predict, static_argnums=(0, 1, 2))
  predicted, _ = predict(run.objective, model, run.model, params, batch, ())
  guess_BP, valid_BT = np.argmax(predicted['logits_BPV'], -1), batch.get('valid_BT')
  for row, tokens_T in enumerate(batch['tokens_BT']):
    words = [tokenizer.id_to_token(int(i)) for i in (tokens_T[valid_BT[row]] if valid_BT is not None else tokens_T)]
    for p, position in enumerate(batch['positions_BP'][row]):
      if batch['weights_BP'][row, p]:
        truth = tokenizer.id_to_token(int(batch['targets_BP'][row, p]))
        words[position] = f'[{tokenizer.id_to_token(int(guess_BP[row, p]))}|{truth}]'
    yield ' '.join(words).replace(' ##', '')


def _neighbours(run: schema.Run, corpus: Corpus, params: Params) -> Iterator[str]:
  """Yield the nearest words of each prompt, or of some frequent words without a prompt."""
  vectors = word_vectors.from_tables(corpus, run.data, params['model'])
  frequent = vectors.words[50:] or vectors.words
  for word in select_prompts(run, corpus)[0] or frequent[: 50 * run.samples.count : 50]:
    yield f'{word}: ' + ', '.join(f'{near} {score:.2f}' for near, score in vectors.nearest(word))


def _memory(run: schema.Run, corpus: Corpus, params: Params, workdir: epath.Path) -> Iterator[str]:
  """Plot episodes of the evaluated split, one for each length, as memory_<length>.png; yield a line on each."""
  data, split = evaluate.final_data(run), run.evaluation.split
  batches = pipeline.batches(data, corpus, split, pipeline.EVAL_SEED, train=False)
  trace = jax.jit(registry.get(run.model_name).trace, static_argnums=0)
  for episode in plots.episodes(batches, run.samples.count):
    memory = jax.device_get(trace(run.model, params['model'], episode))
    wrong = (memory['logits_BTO'] > 0) != (episode['target_bits_BTO'] > 0.5)
    wrong, path = wrong[episode['weights_BT'] > 0], workdir / f'memory_{int(episode["size_B"][0])}.png'
    if jax.process_index() == 0:
      plots.memory(path, episode, memory)
    yield f'{path.name}: {int(episode["size_B"][0])} items, {wrong.sum():,} of {wrong.size:,} bits wrong'


def _segmentations(run: schema.Run, corpus: Corpus, params: Params, workdir: epath.Path) -> Iterator[str]:
  """Draw images of the evaluated split as segmentations.png; yield a line on each."""
  pictures = segment_images(run, corpus, params, run.samples.count)
  names, path = corpus.manifest['label_names'], workdir / 'segmentations.png'
  if jax.process_index() == 0:
    plots.segmentations(path, pictures, names, corpus.manifest['palette'])
  for number, picture in enumerate(pictures):
    truth_YX = picture.masks['truth']
    right_YX = (picture.masks['prediction'] == truth_YX) & (truth_YX >= 0)
    yield f'{path.name}, row {number + 1}: {right_YX.sum() / max((truth_YX >= 0).sum(), 1):.1%} of its pixels right'


def segment_images(run: schema.Run, corpus: Corpus, params: Params, count: int) -> list[plots.Picture]:
  """Return the first images of the evaluated split with truth, prediction and, from a head with attention, the weights
  of one pixel, averaged over heads.

  The pixel is the one that is farthest from any object if the batch has `distance_BYX`, else the middle one.
  """
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  batches = pipeline.batches(evaluate.final_data(run), corpus, run.evaluation.split, pipeline.EVAL_SEED, train=False)
  batch = batches(0, slice(0, min(count, batches.batch_size, batches.examples)))
  predict = jax.jit(objective.predict, static_argnums=(0, 1, 2))
  attend = jax.jit(model.attention, static_argnums=0) if model.attention is not None else None
  pictures = []
  for b, image_YXC in enumerate(batch['images_BYXC']):
    one = {name: x[b : b + 1] for name, x in batch.items()}  # the attention of several large images needs much memory
    predicted, _ = jax.device_get(predict(run.objective, model, run.measured, params, one, ()))
    masks = {'truth': batch['labels_BYX'][b], 'prediction': predicted['classes_BYX'][0]}
    Y, X, _ = image_YXC.shape
    pixel, attention_YX = (Y // 2, X // 2), None
    if 'distance_BYX' in batch:
      row, column = np.unravel_index(np.argmax(batch['distance_BYX'][b]), (Y, X))
      pixel = int(row), int(column)
    if attend is not None:
      with contextlib.suppress(InputError):  # a head without attention
        a_TS = np.asarray(attend(run.measured, params['model'], one)[0].mean(axis=0))
        place = pixel[0] / max(Y - 1, 1), pixel[1] / max(X - 1, 1)
        attention_YX = _attention_of(a_TS, model.grid(run.measured, Y, X), place)
    pictures.append(plots.Picture(image_YXC, masks, attention_YX, pixel))
  return pictures


def _attention_of(a_TS: np.ndarray, grid: tuple[int, int], place: tuple[float, float]) -> np.ndarray:
  """Return the attention weights of the position nearest to a place, given as shares of the side, as a map.

  The keys are the positions of the grid, or every second row and column of them.
  """
  row, column = (round(share * (size - 1)) for share, size in zip(place, grid, strict=True))
  weights_S = a_TS[row * grid[1] + column]
  halves = ((grid[0] + 1) // 2, (grid[1] + 1) // 2)
  return weights_S.reshape(grid if weights_S.size == grid[0] * grid[1] else halves)
