"""Images with masks: random scale, crop and flip in training; one crop, or the whole image, in evaluation.

As the code released with CFNet (Zhang et al. 2019; PyTorch-Encoding, datasets/base.py): the longer side has a random
length in whole pixels between the `scales` of the base size. The image is interpolated linearly and the mask takes the
nearest pixel. Both are padded on the right and below, and a random square of `data.length` is read. An image is
mirrored with probability 1/2, and blurred with probability 1/2 if `blur` is set; the release has the blur in a comment.
The base size is 13/12 of the crop by default: 520 for 480.

Every draw is a function of (seed, epoch, example). Deviation: padding has label -1 in every data set. In the release it
is background in PASCAL VOC, because the mask is padded with its index 0.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from lmx.data import image_corpus, noise
from lmx.data.batching.base import Batches, sizes
from lmx.errors import InputError, check_choice, check_least, check_range

IMAGES = True
EVALUATIONS = ('crop', 'whole', 'windows')
LARGEST = 8192  # pixels of a side
_CANVASES = sorted(side for k in range(8, 14) for side in (2**k, 3 * 2 ** (k - 1)) if side <= LARGEST)  # each a program
_LONGEST = 4 * LARGEST  # longer side in pixels of an image that is scaled before it is cropped


@dataclasses.dataclass(frozen=True)
class Config:
  """Images with masks.

  Attributes:
    base: size, in pixels, that `scales` multiply, at most to 8,192; 0 is 13/12 of `data.length`.
    scales: smallest and largest factor of the longer side in training.
    flip: mirror a training image with probability 1/2.
    blur: blur a training image with probability 1/2, by a Gaussian of a random radius below one pixel.
    evaluation: 'crop' scales the shorter side to `data.eval_length` and reads the central square (the validation of the
      released code); 'whole' scales the longer side to it and pads the image to a square; 'windows' keeps the pixels of
      image and mask, for windows of the objective (the test of the released code).
  """

  name: str = 'images'
  base: int = 0
  scales: tuple[float, float] = (0.5, 2.0)
  flip: bool = True
  blur: bool = False
  evaluation: str = 'crop'

  def __post_init__(self) -> None:
    check_choice('data.batching.evaluation', self.evaluation, EVALUATIONS)
    check_least('data.batching', self, base=0)
    if len(self.scales) != 2 or not 0 < self.scales[0] <= self.scales[1] <= 16:
      raise InputError(
        f'data.batching.scales: got {self.scales}; expected the smallest and the largest factor, above 0 and at most 16'
      )


def check(data: Any) -> None:
  """Raise InputError if a batch would have more pixels than memory."""
  for name in ('length', 'eval_length'):
    check_range(f'data.{name}', getattr(data, name), 0, LARGEST + 1)
  base, scale = base_size(data.batching, data.length), data.batching.scales[1]
  if base * scale > LARGEST:
    raise InputError(
      f'data.batching.base: got {base}{"" if data.batching.base else ", 13/12 of data.length"}, which is '
      f'{base * scale:g} pixels at the largest of data.batching.scales, {scale:g}; expected at most {LARGEST}; set a '
      'smaller base or scale'
    )


def base_size(cfg: Config, length: int) -> int:
  """Return the base size for the scales, for crops of `length`."""
  return cfg.base or max(1, length * 13 // 12)


def augment(
  cfg: Config, image: Image.Image, mask: Image.Image, length: int, rng: np.random.Generator
) -> tuple[Image.Image, Image.Image]:
  """Return a random crop of an image and its mask, each at most (length, length); the caller pads them."""
  mirrored = rng.random() < 0.5 and cfg.flip
  if mirrored:
    image, mask = (x.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for x in (image, mask))
  base = base_size(cfg, length)
  low, high = (max(1, int(base * scale)) for scale in cfg.scales)
  image, mask = scale_to(image, mask, long_side(image.size, int(rng.integers(low, high, endpoint=True))))
  left, top = (int(rng.integers(max(side - length, 0), endpoint=True)) for side in image.size)
  box = (left, top, min(left + length, image.width), min(top + length, image.height))
  image, mask = image.crop(box), mask.crop(box)
  chosen, radius = rng.random(2).tolist()
  if cfg.blur and chosen < 0.5:
    image = image.filter(ImageFilter.GaussianBlur(radius))
  return image, mask


def evaluate(cfg: Config, image: Image.Image, mask: Image.Image, length: int) -> tuple[Image.Image, Image.Image]:
  """Return an image's and its mask's crop for evaluation, each at most (length, length)."""
  if cfg.evaluation == 'whole':
    return scale_to(image, mask, long_side(image.size, length))
  size = short_side(image.size, length)
  left, top = (round((side - length) / 2) for side in size)
  box = (left, top, left + length, top + length)
  if max(size) > _LONGEST:  # as a whole it would need too much memory
    return _scale_part(image, mask, size, box)
  image, mask = scale_to(image, mask, size)
  return image.crop(box), mask.crop(box)


def canvas(size: tuple[int, int]) -> int:
  """Return the side of the square on which an image of `size` is evaluated with its own pixels; 0 if it is too large.

  The sides are 256, 384, 512, 768, 1,024 and so on, so that few programs are compiled.
  """
  return next((side for side in _CANVASES if side >= max(size)), 0)


def long_side(size: tuple[int, int], length: int) -> tuple[int, int]:
  """Return (width, height) scaled so that the longer one is `length`."""
  longest = max(size)
  width, height = (length if side == longest else max(1, int(side * length / longest + 0.5)) for side in size)
  return width, height


def short_side(size: tuple[int, int], length: int) -> tuple[int, int]:
  """Return (width, height) scaled so that the shorter one is `length`; the other is rounded down."""
  shortest = min(size)
  width, height = (length if side == shortest else side * length // shortest for side in size)
  return width, height


def scale_to(image: Image.Image, mask: Image.Image, size: tuple[int, int]) -> tuple[Image.Image, Image.Image]:
  """Return an image and its mask at another size."""
  return image.resize(size, Image.Resampling.BILINEAR), mask.resize(size, Image.Resampling.NEAREST)


def _scale_part(
  image: Image.Image, mask: Image.Image, size: tuple[int, int], box: tuple[int, int, int, int]
) -> tuple[Image.Image, Image.Image]:
  """Return the part `box` of an image and its mask at another size, interpolating no other pixels."""
  part = (box[2] - box[0], box[3] - box[1])
  own = tuple(min(edge * side / scaled, side) for edge, side, scaled in zip(box, image.size * 2, size * 2, strict=True))
  return image.resize(part, Image.Resampling.BILINEAR, own), mask.resize(part, Image.Resampling.NEAREST, own)


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> ImageBatches:
  """Return the batches of a split according to the `data` section."""
  return ImageBatches(corpus, split, *sizes(data, train), data.batching, seed=seed, train=train, shuffle=data.shuffle)


class ImageBatches(Batches):
  """Batches with images_BYXC (uint8), labels_BYX (int32, -1 for pixels to ignore), row_weights_B and index_B.

  Args:
    corpus: see `lmx.data.image_corpus`.
    split: name of the split.
    batch_size: rows of the global batch.
    length: side of a row in pixels, except with evaluation 'windows'.
    cfg: the `data.batching` section.
    seed: seed of the order and the random crops.
    train: endless epochs of random crops; else one pass.
    shuffle: shuffle each epoch.
  """

  LEAST = 1
  unit = 'pixels'

  def __init__(
    self, corpus: Any, split: str, batch_size: int, length: int, cfg: Config, *, seed: int, train: bool, shuffle: bool
  ):
    data = corpus.splits[split]
    super().__init__(data, batch_size, length, vocab_size=len(corpus.images), seed=seed, train=train, shuffle=shuffle)
    self._cfg, self._images = cfg, corpus.images
    self._own_pixels = not train and cfg.evaluation == 'windows'
    self._label_V = image_corpus.numbers(corpus.images.classes.names, corpus.manifest['label_names'])
    examples = len(self._tokens)
    if train and examples < batch_size:
      raise InputError(f'data.batch_size: got {batch_size}; expected at most {examples}, the images of {data.title}')
    self._set_size(examples, examples * length * length, '1')
    self.protocol = () if train else (_describe(cfg, length),)

  def positions(self) -> int:
    return super().positions() * self.length

  def __call__(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
    """Return the given rows of the batch at `step`; images with their own pixels are on one canvas for the batch."""
    if not self._own_pixels:
      return super().__call__(step, rows)
    example_B, live_B = self._row_examples(step)
    sized = copy.copy(self)
    sized.length = max((self._canvas(int(i)) for i in example_B[live_B]), default=1)  # of the rows on all hosts
    return super(ImageBatches, sized).__call__(step, rows)

  def _canvas(self, number: int) -> int:
    name, size = self._images.size(int(self._tokens[number]))
    if not (side := canvas(size)):
      raise InputError(
        f'{name}: got {size[0]} x {size[1]} pixels with data.batching.evaluation "windows"; expected at most {LARGEST} '
        'on a side; scale the image and its mask'
      )
    return side

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    B, side = len(example_B), self.length
    images_BYXC = np.zeros((B, side, side, 3), np.uint8)
    labels_BYX = np.full((B, side, side), -1, np.int32)
    sizes_B2 = np.ones((B, 2), np.int32)
    for b in np.flatnonzero(live_B):
      image, labels_YX = self._read_row(epoch, int(example_B[b]))
      images_BYXC[b, : image.height, : image.width] = np.asarray(image)
      labels_BYX[b, : image.height, : image.width] = labels_YX
      sizes_B2[b] = labels_YX.shape
    batch: dict[str, np.ndarray] = dict(images_BYXC=images_BYXC, labels_BYX=labels_BYX)
    batch['row_weights_B'] = live_B.astype(np.float32)
    if self._own_pixels:
      batch['sizes_B2'] = sizes_B2
    return batch

  def _read_row(self, epoch: int, number: int) -> tuple[Image.Image, np.ndarray]:
    example = self._images[int(self._tokens[number])]
    image, mask = example.image, Image.fromarray(example.labels_YX)
    if self._train:
      rng = noise.generator(self._seed, f'images {self._split}', epoch, number)
      image, mask = augment(self._cfg, image, mask, self.length, rng)
    elif not self._own_pixels:
      image, mask = evaluate(self._cfg, image, mask, self.length)
    return image, self._label_V[np.asarray(mask)]


def _describe(cfg: Config, length: int) -> str:
  if cfg.evaluation == 'crop':
    return f'central crops of {length} pixels of images with that shorter side'
  if cfg.evaluation == 'windows':
    return 'images and masks with their own pixels'
  return f'whole images with a longer side of {length} pixels'
