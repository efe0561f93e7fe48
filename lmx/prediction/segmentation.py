"""Predictions of a segmentation model: the class of every pixel of images of any size.

With `objective.window` an image is read by windows, as in an evaluation of images with their own pixels
(lmx/layers/sliding_windows.py). Without it, an image is read at the size of the run's evaluation: with
data.batching.evaluation 'crop' its shorter side has `data.eval_length` pixels (or `data.length`), with 'whole' its
longer side; images of other batchings keep their size.

It is padded with black on the right and below to one of a few sizes, so that one program serves many images. A square
of `data.eval_length` is not padded, because an evaluation reads the same pixels and both give the same metrics.
Probabilities are interpolated to the original size, only for classes that are the most probable one at some pixel. The
prediction is the most probable class per pixel.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from lmx import documents, objectives
from lmx.config import run_files, schema
from lmx.data import image_corpus, image_files, labels, pipeline
from lmx.data.batching import images
from lmx.data.batching.base import round_up
from lmx.data.image_files import IGNORED, Classes
from lmx.engine import precision
from lmx.errors import InputError, writing
from lmx.metrics import segmentation
from lmx.models import registry
from lmx.prediction import batched
from lmx.prediction.batched import Inputs
from lmx.reporting import waiting
from lmx.runs.restore import RestoredRun

IMAGES = True
LEGEND, ROWS = 'legend', 'predictions.jsonl'
_LONGEST = 4  # maximum side of an input image, relative to the run's length
_NUMBERS = 1 << 27  # probabilities in memory at once
_WINDOW = 4  # batches read ahead, to group images of equal size


class Item(NamedTuple):
  """An image to predict.

  Attributes:
    name: its name in outputs and messages.
    read: function that returns (image as RGB, its mask or None); it raises InputError, or MaskError if only the mask is
      bad.
  """

  name: str
  read: Callable[[], tuple[Image.Image, np.ndarray | None]]


class MaskError(InputError):
  """The true mask of a readable image is unreadable or has another size."""

  def __init__(self, message: str, image: Image.Image):
    """Keep the image, which can still be predicted."""
    super().__init__(message)
    self.image = image


class Broken(NamedTuple):
  """Skipped files.

  Attributes:
    images: name -> message of images that cannot be read, which have no prediction.
    masks: name -> message of images whose true mask cannot be used; they are predicted and not scored.
  """

  images: dict[str, str]
  masks: dict[str, str]


class Predicted(NamedTuple):
  """A prediction.

  Attributes:
    name: name of the image.
    mask_YX: uint8 index of the class of each pixel.
    areas_C3: pixels of each class in the intersection, predicted and true, at labelled pixels; None without a mask.
  """

  name: str
  mask_YX: np.ndarray
  areas_C3: np.ndarray | None


def classes_of(loaded: RestoredRun) -> Classes:
  """Return a run's classes in label order, with its data's colours, or VOC's by default."""
  data, names = run_files.read_data(loaded.workdir), loaded.labels
  palette = data.get('palette') or [image_files.format_colour(c) for c in image_files.colour_map(len(names))]
  colours = [image_files.parse_colour(str(text), f'{loaded.workdir}/data.json: palette') for text in palette]
  return Classes(tuple(names), np.array(colours, np.uint8), int(data['dataset'].get('first', 0)))


def read_file(loaded: RestoredRun, path: str, masks: str = '') -> Inputs:
  """Return a folder's images (not recursively), or a single file; `masks` is the folder of their masks.

  Raises:
    InputError: there is no image, two have one name, or an image has no mask.
  """
  paths, others = [path], 0
  if os.path.isdir(path):
    entries = [os.path.join(path, name) for name in documents.list_names(path)]
    is_file = lambda entry: os.path.isfile(entry) or not os.path.exists(entry)  # a dangling link is unreadable
    paths = [entry for entry in entries if entry.lower().endswith(image_files.IMAGES) and is_file(entry)]
    others = len(entries) - len(paths)
  elif not os.path.isfile(path):
    raise InputError(f'{path}: cannot be read (there is no such file or folder)')
  elif not path.lower().endswith(image_files.IMAGES):
    raise InputError(
      f'{path}: got an unknown format; images are read from files whose names end in {", ".join(image_files.IMAGES)}'
    )
  if not paths:
    raise InputError(f'{path}: got a folder without images; expected {", ".join(image_files.IMAGES)}')
  notes = (f'{others:,} files and folders of {path} are no images and are not read',) if others else ()
  classes = classes_of(loaded)
  return _inputs([_file_item(classes, one, masks) for one in paths], notes)


def read_inputs(loaded: RestoredRun, given: Any) -> Inputs:
  """Return images given in Python: an array (Y, X, 3) or (Y, X) of uint8, a path, or a list of these."""
  if isinstance(given, (str, os.PathLike)):
    return read_file(loaded, os.fspath(given))
  items: list[Item] = []
  for number, one in enumerate(given if isinstance(given, (list, tuple)) else [given]):
    if isinstance(one, (str, os.PathLike)):
      items += read_file(loaded, os.fspath(one)).items
      continue
    pixels = np.asarray(one)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)) or not pixels.size:
      raise InputError(
        f'inputs, image {number}: got an array {pixels.shape} of {pixels.dtype}; expected (rows, columns, 3) of uint8'
      )
    items.append(Item(str(number), functools.partial(_from_array, pixels)))
  if not items:
    raise InputError('inputs: got an empty list; expected at least one image')
  return _inputs(items)


def _from_array(pixels: np.ndarray) -> tuple[Image.Image, None]:
  return Image.fromarray(pixels).convert('RGB'), None


def read_split(loaded: RestoredRun, split: str) -> Inputs:
  """Return the images of a split of the run's own data, with their masks."""
  corpus = labels.renumber(loaded.corpus(), loaded.labels)
  corpus.split(split)
  if isinstance(corpus, image_corpus.ImageCorpus):
    label_V = image_corpus.numbers(corpus.images.classes.names, loaded.labels)
    items = [_corpus_item(corpus.images, int(number), label_V) for number in corpus.splits[split].tokens]
  else:
    items = list(_generated(loaded, corpus, split))
  return _inputs(items)


def _inputs(items: Sequence[Item], notes: tuple[str, ...] = ()) -> Inputs:
  stems: dict[str, str] = {}
  for item in items:
    stem = os.path.splitext(item.name)[0]
    if stem in stems:
      raise InputError(
        f'images: got both {stems[stem]} and {item.name}; expected different names, because masks are matched by name'
      )
    stems[stem] = item.name
  return Inputs(None, '', items, notes)


def _file_item(classes: Classes, path: str, masks: str) -> Item:
  mask = os.path.join(masks, os.path.splitext(os.path.basename(path))[0] + '.png') if masks else ''
  if mask and not os.path.isfile(mask):
    raise InputError(f'{mask}: no such file; expected the mask of {path}, because --masks names its folder')

  def read() -> tuple[Image.Image, np.ndarray | None]:
    image = image_files.open_image(path, path)
    if not mask:
      return image, None
    try:
      labels_YX = image_files.open_mask(mask, mask, classes)
    except InputError as error:
      raise MaskError(str(error), image) from None
    if labels_YX.shape != image.size[::-1]:
      raise MaskError(
        f'{mask}: got {labels_YX.shape[1]} x {labels_YX.shape[0]} pixels; expected {image.width} x {image.height}, '
        f'the size of {path}',
        image,
      )
    return image, labels_YX

  return Item(os.path.basename(path), read)


def _corpus_item(examples: image_corpus.Images, number: int, label_V: np.ndarray) -> Item:
  def read() -> tuple[Image.Image, np.ndarray]:
    example = examples[number]
    return example.image, _to_mask(label_V[example.labels_YX])

  return Item(examples.name(number), read)


def _generated(loaded: RestoredRun, corpus: Any, split: str) -> Iterator[Item]:
  """Yield the images of a generated data set."""
  batches = batched.batches(loaded.run, corpus, split)
  make = functools.lru_cache(1)(batches)
  for number in range(batches.examples):
    step, row = divmod(number, batches.batch_size)

    def read(step: int = step, row: int = row) -> tuple[Image.Image, np.ndarray]:
      batch = make(step)
      return Image.fromarray(batch['images_BYXC'][row]), _to_mask(batch['labels_BYX'][row])

    yield Item(f'{split}_{number:06d}', read)


def _to_mask(labels_YX: np.ndarray) -> np.ndarray:
  return np.where(labels_YX < 0, IGNORED, labels_YX).astype(np.uint8)


def sizes(
  data: pipeline.Config, size: tuple[int, int], *, windows: bool = False
) -> tuple[tuple[int, int], tuple[int, int]]:
  """Return ((width, height) to which an image of `size` is resized, the same with padding).

  Args:
    data: the run's `data` section.
    size: (width, height).
    windows: images are read with their own pixels, if these are no more than in an evaluation.
  """
  length = data.eval_length or data.length
  if windows:
    read = size if max(size) <= images.LARGEST else images.long_side(size, images.LARGEST)
    return read, (images.canvas(read),) * 2
  evaluation = getattr(data.batching, 'evaluation', '')
  if evaluation == 'whole':
    return images.long_side(size, length), (length, length)
  read = images.short_side(size, length) if evaluation == 'crop' else size
  if max(read) > _LONGEST * length:
    read = images.long_side(size, _LONGEST * length)
  if read == (length, length):
    return read, read
  step = max(8, length // 4)
  width, height = (round_up(side, step) for side in read)
  return read, (width, height)


def predictions(loaded: RestoredRun, items: Sequence[Item], broken: Broken | None = None) -> Iterator[Predicted]:
  """Yield the prediction of each image, in order; at most a few batches of images are in memory.

  Args:
    loaded: the run.
    items: the images.
    broken: receives the files that cannot be used; None raises at the first one.
  """
  run = loaded.run
  rows = run.data.eval_batch_size or run.data.batch_size
  scores = _program(run)
  for start in range(0, len(items), rows * _WINDOW):
    window: list[tuple[Item, Image.Image, np.ndarray | None]] = []
    for item in items[start : start + rows * _WINDOW]:
      try:
        window.append((item, *item.read()))
      except InputError as error:
        if broken is None:
          raise
        if isinstance(error, MaskError):
          broken.masks[item.name] = str(error)
          window.append((item, error.image, None))
        else:
          broken.images[item.name] = str(error)
    by_size: dict[tuple[int, int], list[int]] = {}
    for i, (_, image, _) in enumerate(window):
      by_size.setdefault(_sizes(run, image)[1], []).append(i)
    masks: dict[int, np.ndarray] = {}
    for padded, members in by_size.items():
      most = max(1, min(rows, _NUMBERS // (padded[0] * padded[1] * run.objective.classes)))
      for first in range(0, len(members), most):
        some = members[first : first + most]
        scores_BYXC = scores(loaded.params, _batch(run, [window[i][1] for i in some], padded, most))
        masks |= {i: _enlarge(x_YXC, run, window[i][1]) for i, x_YXC in zip(some, scores_BYXC, strict=False)}
    for i, (item, _, labels_YX) in enumerate(window):
      yield Predicted(item.name, masks[i], None if labels_YX is None else _areas(run, labels_YX, masks[i]))


def _batch(run: schema.Run, some: Sequence[Image.Image], padded: tuple[int, int], rows: int) -> dict[str, np.ndarray]:
  """Return a batch of images, padded to a power of two, so that few programs are compiled."""
  count = min(rows, 1 << (len(some) - 1).bit_length())
  images_BYXC, sizes_B2 = np.zeros((count, padded[1], padded[0], 3), np.uint8), np.ones((count, 2), np.int32)
  for b, image in enumerate(some):
    width, height = _sizes(run, image)[0]
    images_BYXC[b, :height, :width] = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
    sizes_B2[b] = height, width
  batch: dict[str, np.ndarray] = {'images_BYXC': images_BYXC}
  batch['row_weights_B'] = (np.arange(count) < len(some)).astype(np.float32)
  if run.objective.window:
    batch['sizes_B2'] = sizes_B2
  return batch


def _sizes(run: schema.Run, image: Image.Image) -> tuple[tuple[int, int], tuple[int, int]]:
  """Return the `sizes` of an image in the run's predictions."""
  return sizes(run.data, image.size, windows=run.objective.window > 0)


def _program(run: schema.Run) -> Callable[..., np.ndarray]:
  """Return the function (parameters, batch) -> probabilities of the classes (B, Y, X, C)."""
  objective, model = objectives.get(run.objective_name), registry.get(run.model_name)
  compute = functools.partial(objective.probabilities, run.objective, model, run.measured)
  program = jax.jit(precision.wrap(run.matmul_precision, compute))
  return lambda params, batch: np.asarray(program(params, batch))


def _enlarge(p_YXC: np.ndarray, run: schema.Run, image: Image.Image) -> np.ndarray:
  """Return the most probable class of each pixel of an image, uint8.

  Args:
    p_YXC: probabilities of the padded image, at the size at which it was read.
    run: the run.
    image: the image at its own size.
  """
  size, (width, height) = image.size, _sizes(run, image)[0]
  p_YXC = p_YXC[:height, :width]
  best_YX = p_YXC.argmax(axis=-1).astype(np.uint8)
  if (width, height) == size:
    return best_YX
  present = np.unique(best_YX)
  highest_YX, mask_YX = np.full(size[::-1], -1, np.float32), np.zeros(size[::-1], np.uint8)
  for c in present:
    channel = Image.fromarray(np.ascontiguousarray(p_YXC[..., c], np.float32))
    p_YX = np.asarray(channel.resize(size, Image.Resampling.BILINEAR))
    mask_YX[p_YX > highest_YX] = c
    highest_YX = np.maximum(highest_YX, p_YX)
  return mask_YX


def _areas(run: schema.Run, labels_YX: np.ndarray, mask_YX: np.ndarray) -> np.ndarray:
  """Return the pixels of each class in the intersection, predicted and true (C, 3), at labelled pixels."""
  classes = run.objective.classes
  is_labelled_YX = labels_YX != IGNORED
  if run.objective.background == 'out':
    is_labelled_YX &= labels_YX != 0
  true, predicted = labels_YX[is_labelled_YX], mask_YX[is_labelled_YX]
  count = lambda x: np.bincount(x, minlength=classes)
  return np.stack([count(true[true == predicted]), count(predicted), count(true)], axis=1)


def row(predicted: Predicted, names: Sequence[str]) -> dict[str, Any]:
  """Return a prediction as an object for a line of JSON: the image, its size, and the share of each class it has."""
  count_C = np.bincount(predicted.mask_YX.ravel(), minlength=len(names))
  shares = {names[c]: float(count_C[c] / predicted.mask_YX.size) for c in np.argsort(-count_C, kind='stable')}
  height, width = predicted.mask_YX.shape
  return {
    'image': predicted.name,
    'width': width,
    'height': height,
    'shares': {name: share for name, share in shares.items() if share},
  }


def predict(loaded: RestoredRun, inputs: Inputs) -> list[dict[str, Any]]:
  """Return for each image {'image', 'width', 'height', 'shares', 'mask': (Y, X) uint8 indices of classes}."""
  names, found = loaded.labels, []
  for one in predictions(loaded, inputs.items):
    found.append(row(one, names) | {'mask': one.mask_YX} | ({} if one.areas_C3 is None else {'areas': one.areas_C3}))
  return found


def score(loaded: RestoredRun, inputs: Inputs, rows: Sequence[Mapping[str, Any]]) -> str:
  """Return a sentence with the metrics over the images whose masks are known."""
  del loaded, inputs
  return describe_score([one['areas'] for one in rows if 'areas' in one])


def describe_score(areas: Sequence[np.ndarray]) -> str:
  """Return a sentence with the metrics over images, from each image's areas; '' if there are no images."""
  if not areas:
    return ''
  areas_C3 = np.sum(areas, axis=0)
  return (
    f'mIoU {segmentation.mean_iou(areas_C3):.4f}, {segmentation.pixel_accuracy(areas_C3):.2%} of '
    f'{int(areas_C3[:, 2].sum()):,} labelled pixels in {len(areas):,} images are right, at the size of the images'
  )


def write(loaded: RestoredRun, inputs: Inputs, folder: str) -> tuple[str, Broken]:
  """Write a mask for each image, predictions.jsonl, legend.json and legend.png.

  Args:
    loaded: the run.
    inputs: the images.
    folder: folder to write, missing or empty.

  Returns:
    (a sentence with the metrics, '' without masks; the images and masks that cannot be used).

  Raises:
    InputError: the folder has files, cannot be written, or an image has the name of the legend.
  """
  if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
    raise InputError(f'--output: {folder} exists already; expected a missing or empty folder; choose another')
  stems = [os.path.splitext(item.name)[0] for item in inputs.items]
  if LEGEND in stems:
    raise InputError(f'images: got one named "{LEGEND}"; expected another name, because {LEGEND}.png is the legend')
  classes, areas = classes_of(loaded), []
  broken = Broken({}, {})
  pixels_C = np.zeros(len(classes.names), np.int64)
  with writing(folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ROWS), 'w', encoding='utf-8') as lines:
      for one in waiting.bar(predictions(loaded, inputs.items, broken), 'predict', len(inputs.items)):
        mask = os.path.splitext(one.name)[0] + '.png'
        _write_bytes(os.path.join(folder, mask), image_files.encode_mask(one.mask_YX, classes.colours_C3))
        lines.write(json.dumps(row(one, classes.names) | {'mask': mask}, ensure_ascii=False) + '\n')
        pixels_C += np.bincount(one.mask_YX.ravel(), minlength=len(pixels_C))
        areas += [] if one.areas_C3 is None else [one.areas_C3]
    legend = [
      {'index': c, 'name': name, 'colour': image_files.format_colour(classes.colours_C3[c]), 'share': share}
      for c, (name, share) in enumerate(zip(classes.names, (pixels_C / max(pixels_C.sum(), 1)).tolist(), strict=True))
    ]
    with open(os.path.join(folder, f'{LEGEND}.json'), 'w', encoding='utf-8') as file:
      json.dump(legend, file, indent=1, ensure_ascii=False)
    draw_legend(legend).save(os.path.join(folder, f'{LEGEND}.png'))
  return describe_score(areas), broken


def print_rows(loaded: RestoredRun, inputs: Inputs) -> tuple[str, Broken]:
  """Print a line of JSON for each image; return what `write` returns."""
  broken = Broken({}, {})
  areas = []
  for one in predictions(loaded, inputs.items, broken):
    with writing('standard output'):
      print(json.dumps(row(one, loaded.labels), ensure_ascii=False), flush=True)
    areas += [] if one.areas_C3 is None else [one.areas_C3]
  return describe_score(areas), broken


def draw_legend(legend: Sequence[Mapping[str, Any]]) -> Image.Image:
  """Return an image of the legend: colour, index, name and pixel share of each class."""
  font, height = ImageFont.load_default(14), 22
  texts = [f'{entry["index"]}  {entry["name"]}  {entry["share"]:.1%}' for entry in legend]
  width = 48 + max(int(font.getlength(text)) for text in texts)
  picture = Image.new('RGB', (width, height * len(texts) + 4), 'white')
  draw = ImageDraw.Draw(picture)
  for i, (entry, text) in enumerate(zip(legend, texts, strict=True)):
    top = 4 + height * i
    draw.rectangle((6, top, 30, top + 15), fill=entry['colour'], outline='black')
    draw.text((38, top), text, fill='black', font=font)
  return picture


def _write_bytes(path: str, content: bytes) -> None:
  with open(path, 'wb') as file:
    file.write(content)
