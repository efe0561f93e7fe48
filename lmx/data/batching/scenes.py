"""Generated pictures for semantic segmentation whose classes depend on a distant object.

They illustrate co-occurrent features: sea and water look alike, and only the boat or duck on them tells them apart
(Zhang, Zhang, Wang and Xie 2019, "Co-occurrent Features in Semantic Segmentation"). A row is one picture, generated
from (seed, split, epoch, index), so training never repeats one and evaluations are always the same. `data.length` is
its side in pixels.

A winding strip of land divides a picture into two areas, each with one whole object at a random position. An area is
'sea' if its object is a boat and 'water' if it is a duck. The two are sampled independently, so half of the pictures
have one of each. There the set of objects, which is all that global pooling can give, does not determine a pixel's
class. An estimator that only knows this set is right at 3 of 4 pixels (1 where both objects are equal, 1/2 where they
differ).

Both areas' textures have the same distribution, independent of the class: waves of any direction in a uniformly random
hue. The two hues of a picture are at least a quarter of the circle apart. So a pixel far from its area's object can
find it only by the texture around it.

`shuffled` samples the objects independently of the classes. No estimator is then better than 1/2 at an ambiguous pixel.

The pixels of both areas are the ambiguous ones. `distance_BYX` is their Euclidean distance in pixels to the nearest
pixel of any object.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from lmx.data import noise
from lmx.data.batching.base import Batches, sizes
from lmx.data.corpus import Corpus, manifest_hash
from lmx.data.tokenizers import build as tokenizers
from lmx.errors import InputError, check_least

CLASSES = ('land', 'sea', 'water', 'boat', 'duck')
PALETTE = ('#c8bea0', '#2850b4', '#78d2e6', '#6e281e', '#f0dc3c')  # of the classes in pictures
LAND, SEA, BOAT = (CLASSES.index(name) for name in ('land', 'sea', 'boat'))  # water is SEA + 1, duck BOAT + 1
VERSION = 1  # of the random draws; increase it when the same seed gives other pictures
_STRIP = 3.0, 5.0  # half the width of the strip of land, in pixels
_WAVELENGTH = 5.0, 9.0  # wavelength of a texture, in pixels
_GRAIN = 16  # largest noise of a colour value, of 255
_HUE_APART = 0.25  # minimum hue difference between the two areas, as a share of the circle


@dataclasses.dataclass(frozen=True)
class Config:
  """Generated pictures with two areas and their objects.

  Attributes:
    size: side in pixels of the square that an object fits in.
    shuffled: sample the objects independently of their areas' classes.
    examples: pictures per training epoch.
    eval_examples: pictures in splits 'valid' and 'test'.
  """

  name: str = 'scenes'
  size: int = 14
  shuffled: bool = False
  examples: int = 10_000
  eval_examples: int = 1000

  def __post_init__(self) -> None:
    check_least('data.batching', self, size=6, examples=1, eval_examples=1)


class Scene(NamedTuple):
  """Image (Y, X, 3) uint8, labels (Y, X) int32, distance (Y, X) float32, classes of the two areas and objects."""

  image: np.ndarray
  labels: np.ndarray
  distance: np.ndarray
  areas: tuple[int, int]
  objects: tuple[int, int]


def draw_scene(cfg: Config, rng: np.random.Generator, side: int) -> Scene:
  """Draw one picture of `side` x `side` pixels."""
  from scipy import ndimage  # takes a moment, which other batchings do not need

  waters = rng.integers(0, 2, 2)
  kinds = rng.integers(0, 2, 2) if cfg.shuffled else waters
  offset_YX, strip = _divide(rng, side)
  hue = rng.random()
  hues = hue, hue + rng.uniform(_HUE_APART, 1 - _HUE_APART)
  image = np.full((side, side, 3), 205, np.int16)
  labels = np.full((side, side), LAND, np.int32)
  for area, sign in enumerate((1, -1)):
    inside_YX = sign * offset_YX > strip
    image[inside_YX] = _texture(rng, side, hues[area])[inside_YX]
    labels[inside_YX] = SEA + waters[area]
  for area, sign in enumerate((1, -1)):
    y, x = _place(rng, sign * offset_YX - strip, cfg.size)
    for part_YX, colour in _draw_object(kinds[area], cfg.size, bool(rng.integers(2))):
      image[y : y + cfg.size, x : x + cfg.size][part_YX] = colour
      labels[y : y + cfg.size, x : x + cfg.size][part_YX] = BOAT + kinds[area]
  image += rng.integers(-_GRAIN, _GRAIN + 1, image.shape, np.int8)
  is_area_YX = (labels == SEA) | (labels == SEA + 1)
  distance = np.where(is_area_YX, ndimage.distance_transform_edt(labels < BOAT), -1)
  both = lambda first, pair: (int(first + pair[0]), int(first + pair[1]))
  image = np.clip(image, 0, 255).astype(np.uint8)
  return Scene(image, labels, distance.astype(np.float32), both(SEA, waters), both(BOAT, kinds))


def _divide(rng: np.random.Generator, side: int) -> tuple[np.ndarray, float]:
  """Return (signed distance of each pixel to a winding line near the centre, half the width of the land there)."""
  y_YX, x_YX = _coordinates(side)
  angle, phase = rng.uniform(0, 2 * np.pi, 2)
  across_YX = np.cos(angle) * x_YX + np.sin(angle) * y_YX
  along_YX = np.cos(angle) * y_YX - np.sin(angle) * x_YX
  bend_YX = side / 32 * np.sin(2 * np.pi / 0.6 * along_YX / side + phase)
  return across_YX + bend_YX + rng.uniform(-1, 1) * side / 16, rng.uniform(*_STRIP) * min(1, side / 64)


def _coordinates(side: int) -> tuple[np.ndarray, np.ndarray]:
  """Return the row and the column of each pixel from the centre, (side, 1) and (1, side) float32."""
  line = np.arange(side, dtype=np.float32) - (side - 1) / 2
  return line[:, None], line[None]


def _texture(rng: np.random.Generator, side: int, hue: float) -> np.ndarray:
  """Return waves of one direction, length and hue, (Y, X, 3) int16."""
  y_YX, x_YX = _coordinates(side)
  angle, phase = rng.uniform(0, 2 * np.pi, 2)
  length = rng.uniform(*_WAVELENGTH)
  y, x = 2 * np.pi / length * np.sin(angle), 2 * np.pi / length * np.cos(angle)
  wave_YX = 20 * np.sin(np.float32(y) * y_YX + np.float32(x) * x_YX + np.float32(phase))
  tint_C = 110 + 45 * np.cos(2 * np.pi * (hue - np.arange(3) / 3))
  return wave_YX.astype(np.int16)[..., None] + tint_C.astype(np.int16)


def _place(rng: np.random.Generator, depth_YX: np.ndarray, size: int) -> tuple[int, int]:
  """Return an object's upper left corner, within the picture and, if there is room, within its area.

  Args:
    rng: generator.
    depth_YX: each pixel's distance to the area's border, negative outside.
    size: side of the object's square.
  """
  centre = depth_YX[size // 2 :, size // 2 :][: len(depth_YX) - size + 1, : len(depth_YX) - size + 1]
  room = np.flatnonzero(centre > 0.75 * size)
  at = int(rng.choice(room)) if room.size else int(np.argmax(centre))
  return divmod(at, centre.shape[1])


def _draw_object(kind: int, size: int, mirrored: bool) -> list[tuple[np.ndarray, tuple[int, int, int]]]:
  """Return the parts of a boat (0) or a duck (1), each a mask (size, size) and a colour, the uppermost last."""
  v, u = (np.mgrid[:size, :size] + 0.5) / size  # down and to the right, from 0 to 1
  u = 1 - u if mirrored else u
  if kind == 0:
    hull = (v > 0.68) & (np.abs(u - 0.5) < 0.5 - 0.6 * (v - 0.68))
    sail = (v <= 0.64) & (u > 0.34) & (u - 0.34 < 0.85 * v)
    mast = (v <= 0.68) & (np.abs(u - 0.3) < 0.06)
    return [(hull, (60, 30, 25)), (mast, (60, 30, 25)), (sail, (250, 250, 250))]
  body = ((u - 0.45) / 0.44) ** 2 + ((v - 0.68) / 0.3) ** 2 < 1
  head = (u - 0.7) ** 2 + (v - 0.27) ** 2 < 0.21**2
  beak = (u > 0.86) & (np.abs(v - 0.3) < 0.08)
  return [(body, (245, 215, 40)), (head, (20, 90, 50)), (beak, (250, 120, 20))]


def corpus() -> Corpus:
  """Return a placeholder corpus with the names of the classes: three splits that contain only their names."""
  placeholder = Corpus.from_texts({name: [name] for name in ('train', 'valid', 'test')}, tokenizers.train('bytes', ()))
  dataset = {'name': 'generated', 'version': VERSION}
  manifest = {**placeholder.manifest, 'dataset': dataset, 'label_names': list(CLASSES), 'palette': list(PALETTE)}
  return dataclasses.replace(placeholder, manifest=manifest, hash=manifest_hash(manifest))


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Scenes:
  """Return the batches of a split according to the `data` section."""
  return Scenes(corpus.splits[split], *sizes(data, train), data.batching, seed=seed, train=train)


class Scenes(Batches):
  """Batches with images_BYXC, labels_BYX, distance_BYX, row_weights_B and index_B.

  Args:
    split: only its name is used.
    batch_size: rows of the global batch.
    side: side of the pictures in pixels.
    cfg: the `data.batching` section.
    seed: seed of the draws.
    train: new pictures in every epoch; else one pass.
  """

  unit = 'pixels'

  def __init__(self, split: Any, batch_size: int, side: int, cfg: Config, *, seed: int, train: bool):
    if side < 4 * cfg.size:
      raise InputError(
        f'data.length: got pictures of {side} pixels with objects of {cfg.size} (data.batching.size); expected at '
        f'least {4 * cfg.size} pixels'
      )
    self._cfg = cfg
    super().__init__(split, batch_size, side, vocab_size=1, seed=seed, train=train, shuffle=False)
    examples = cfg.examples if train else cfg.eval_examples
    if train and examples < batch_size:
      raise InputError(f'data.batching.examples: got {examples}; expected at least the {batch_size} rows of a batch')
    self._set_size(examples, examples * side**2, '1')

  def positions(self) -> int:
    """Return the number of pixels in an epoch."""
    return self.steps * self.batch_size * self.length**2

  def draw(self, epoch: int, example: int) -> Scene:
    """Return one picture of the split."""
    cfg = self._cfg
    return draw_scene(cfg, noise.generator(self._seed, f'scenes {self._split}', epoch, example), self.length)

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    B, Y, X = len(example_B), self.length, self.length
    batch: dict[str, np.ndarray] = dict(
      images_BYXC=np.zeros((B, Y, X, 3), np.uint8),
      labels_BYX=np.full((B, Y, X), -1, np.int32),
      distance_BYX=np.full((B, Y, X), -1, np.float32),
      row_weights_B=live_B.astype(np.float32),
    )
    for b in np.flatnonzero(live_B):
      scene = self.draw(epoch, int(example_B[b]))
      batch['images_BYXC'][b], batch['labels_BYX'][b], batch['distance_BYX'][b] = scene[:3]
    return batch
