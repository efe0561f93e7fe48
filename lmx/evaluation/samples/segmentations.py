"""Images of the evaluated split with their true and predicted classes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax
import numpy as np
from PIL import Image

from lmx import objectives
from lmx.config import schema
from lmx.data.batching import images
from lmx.data.corpus import Corpus
from lmx.errors import InputError
from lmx.evaluation import evaluate
from lmx.evaluation.samples import Trained
from lmx.models import registry
from lmx.reporting import plots
from lmx.types import Params


def generate(trained: Trained) -> Iterator[str]:
  """Draw images of the evaluated split as segmentations.png; yield a line on each."""
  run, corpus, params, _, workdir, _ = trained
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

  The pixel is the one that is farthest from any object if the batch has `distance_BYX`, else the middle one. For the
  attention, images with their own pixels are scaled to `objective.base`.
  """
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  batches = evaluate.final_batches(run, corpus, run.evaluation.split)
  batch = batches(0, slice(0, min(count, batches.batch_size, batches.examples)))
  predict = jax.jit(objective.predict, static_argnums=(0, 1, 2))
  attend = jax.jit(model.attention, static_argnums=0) if model.attention is not None else None
  pictures = []
  for b, image_YXC in enumerate(batch['images_BYXC']):
    one = {name: x[b : b + 1] for name, x in batch.items()}  # attention on several large images needs much memory
    predicted, _ = jax.device_get(predict(run.objective, model, run.measured, params, one, ()))
    Y, X = batch['sizes_B2'][b].tolist() if 'sizes_B2' in batch else image_YXC.shape[:2]
    image_YXC = image_YXC[:Y, :X]
    masks = {'truth': batch['labels_BYX'][b, :Y, :X], 'prediction': predicted['classes_BYX'][0, :Y, :X]}
    pixel, attention_YX = (Y // 2, X // 2), None
    if 'distance_BYX' in batch:
      row, column = np.unravel_index(np.argmax(batch['distance_BYX'][b]), (Y, X))
      pixel = int(row), int(column)
    if attend is not None:
      with contextlib.suppress(InputError):  # a head without attention
        attended = _at_scale_1(run, image_YXC) if 'sizes_B2' in batch else image_YXC
        a_TS = np.asarray(attend(run.measured, params['model'], one | {'images_BYXC': attended[None]})[0].mean(axis=0))
        place = pixel[0] / max(Y - 1, 1), pixel[1] / max(X - 1, 1)
        attention_YX = _attention_of(a_TS, model.grid(run.measured, *attended.shape[:2]), place)
    pictures.append(plots.Picture(image_YXC, masks, attention_YX, pixel))
  return pictures


def _at_scale_1(run: schema.Run, image_YXC: np.ndarray) -> np.ndarray:
  """Return the image at scale 1 of `objective.base`, because attention at its own size may need much memory."""
  image = Image.fromarray(image_YXC)
  return np.asarray(image.resize(images.long_side(image.size, run.objective.sampling.base), Image.Resampling.BILINEAR))


def _attention_of(a_TS: np.ndarray, grid: tuple[int, int], place: tuple[float, float]) -> np.ndarray:
  """Return the attention map of the position nearest to a point, given as fractions of the sides.

  The keys are the positions of the grid, or every second row and column of them.
  """
  row, column = (round(share * (size - 1)) for share, size in zip(place, grid, strict=True))
  weights_S = a_TS[row * grid[1] + column]
  halves = ((grid[0] + 1) // 2, (grid[1] + 1) // 2)
  return weights_S.reshape(grid if weights_S.size == grid[0] * grid[1] else halves)
