"""Generated scenes: what their parts are, what can be known from each of them, and draws by number."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy import ndimage

from lmx.data import pipeline
from lmx.data.batching import scenes
from lmx.errors import InputError

SIDE, COUNT = 96, 400
LAND, SEA, WATER, BOAT, DUCK = range(5)


def batches(split: str = 'train', *, train: bool = True, seed: int = 3, rows: int = 8, length: int = SIDE, **fields):
  cfg = pipeline.Config(
    dataset='generated', batch_size=rows, length=length, batching={'name': 'scenes', 'examples': COUNT, **fields}
  )
  return pipeline.batches(cfg, pipeline.load(cfg), split, seed, train=train)


@functools.cache
def drawn(**fields) -> list[scenes.Scene]:
  made = batches(**fields)
  return [made.draw(0, i) for i in range(COUNT)]


def parts(scene: scenes.Scene) -> list[tuple[np.ndarray, int, int]]:
  """(pixels, class of the area, class of its object) of each area, found from the labels alone."""
  area_YX, number = ndimage.label(scene.labels != LAND)
  sizes = ndimage.sum_labels(np.ones_like(area_YX), area_YX, range(1, number + 1))
  found = []
  for i in 1 + np.argsort(-sizes)[:2]:
    classes = set(np.unique(scene.labels[area_YX == i]).tolist())
    (area,), (thing,) = classes & {SEA, WATER}, classes & {BOAT, DUCK}
    found.append((area_YX == i, area, thing))
  return found


def test_each_area_has_one_object_that_sets_its_class():
  seen = set()
  for scene in drawn()[:60]:
    pairs = parts(scene)
    for _, area, thing in pairs:
      assert (area, thing) in ((SEA, BOAT), (WATER, DUCK))
    assert sorted(area for _, area, _ in pairs) == sorted(scene.areas)
    assert ndimage.label(scene.labels >= BOAT)[1] == 2  # two objects, each whole
    seen.add(scene.areas)
  assert seen == {(SEA, SEA), (SEA, WATER), (WATER, SEA), (WATER, WATER)}


def test_shuffled_objects_carry_no_information():
  equal = [(area - SEA) == (thing - BOAT) for scene in drawn(shuffled=True) for _, area, thing in parts(scene)]
  assert abs(np.mean(equal) - 0.5) < 0.06  # four standard errors of 800
  image = lambda scene: scene.image.tobytes()
  assert len({image(scene) for scene in (*drawn()[:20], *drawn(shuffled=True)[:20])}) == 40


def test_distances_are_to_the_nearest_object():
  scene = drawn()[7]
  objects = np.argwhere(scene.labels >= BOAT)
  for y, x in np.ndindex(SIDE, SIDE):
    ambiguous = scene.labels[y, x] in (SEA, WATER)
    nearest = np.min(np.hypot(*(objects - [y, x]).T)) if ambiguous else -1
    assert scene.distance[y, x] == pytest.approx(nearest, rel=1e-6)
  distances = np.stack([scene.distance for scene in drawn()])
  ambiguous = np.mean(distances >= 0)
  assert 0.85 < ambiguous < 0.92 and 0.45 < np.mean(distances > 24) / ambiguous < 0.6


def right(scene: scenes.Scene, chance: dict[int, float]) -> np.ndarray:
  """(expected number right, number) of pixels over 24 px from objects, by the chance of water given the object."""
  found = np.zeros(2)
  for area_YX, area, thing in parts(scene):
    pixels = np.sum(area_YX & (scene.distance > 24))
    p = chance[thing]
    found += pixels * (p if area == WATER else 1 - p), pixels
  return found


def test_object_set_predicts_three_quarters_of_pixels():
  """At best: where both objects are of a kind, the class is known, and else a coin is tossed."""
  total = np.zeros(2)
  for scene in drawn():
    things = set(scene.objects)
    total += right(scene, {thing: float(thing == DUCK) if len(things) == 1 else 0.5 for thing in things})
  assert total[0] / total[1] == pytest.approx(0.75, abs=0.04)
  shuffled = np.zeros(2)
  for scene in drawn(shuffled=True):
    shuffled += right(scene, {BOAT: 0.0, DUCK: 1.0})  # the area's own object
  assert shuffled[0] / shuffled[1] == pytest.approx(0.5, abs=0.06)


def colour(scene: scenes.Scene, where_YX: np.ndarray) -> np.ndarray:
  return scene.image[where_YX].astype(float).mean(axis=0)


def test_object_texture_matches_its_distant_area():
  """By colour alone, of a window of 7 x 7 pixels."""
  total = np.zeros(2)
  for scene in drawn()[:40]:
    blobs, _ = ndimage.label(scene.labels >= BOAT)
    water_YX = (scene.labels == SEA) | (scene.labels == WATER)
    around = []
    for i in (1, 2):
      ring_YX = ndimage.binary_dilation(blobs == i, iterations=4) & water_YX
      around.append((colour(scene, ring_YX), scene.labels[blobs == i][0]))
    smooth_YXC = ndimage.uniform_filter(scene.image.astype(float), (7, 7, 0))
    for y, x in np.argwhere((scene.distance > 24) & ndimage.binary_erosion(water_YX, iterations=4))[::37]:
      _, thing = min(around, key=lambda pair: np.sum((pair[0] - smooth_YXC[y, x]) ** 2))
      total += (thing - BOAT) == (scene.labels[y, x] - SEA), 1
  assert total[1] > 500 and total[0] / total[1] > 0.99


def test_texture_of_an_area_does_not_depend_on_its_class():
  hues = {SEA: [], WATER: []}
  for scene in drawn():
    for area_YX, area, _ in parts(scene):
      hues[area].append(colour(scene, area_YX & (scene.labels < BOAT)))
  for c in range(3):
    sea, water = (np.array(hues[area])[:, c] for area in (SEA, WATER))
    error = np.hypot(sea.std() / len(sea) ** 0.5, water.std() / len(water) ** 0.5)
    assert abs(sea.mean() - water.mean()) < 3.5 * error and sea.std() == pytest.approx(water.std(), rel=0.15)


def test_image_depends_only_on_seed_split_epoch_and_index():
  made = batches(rows=4, examples=12)
  whole, part = made(1), made(1, slice(1, 3))
  for key, array in whole.items():
    np.testing.assert_array_equal(array[1:3], part[key])
  wider = batches(rows=6, examples=12)  # the same pictures in other batches
  np.testing.assert_array_equal(whole['images_BYXC'][2:], wider(1)['images_BYXC'][:2])
  images = lambda made, step: made(step)['images_BYXC'].tobytes()
  different = [
    images(made, 1),
    images(made, 4),  # the same rows of the next epoch
    images(batches(rows=4, seed=4, examples=12), 1),
    images(batches('valid', rows=4, train=False, eval_examples=12), 1),
    images(batches('test', rows=4, train=False, eval_examples=12), 1),
  ]
  assert len(set(different)) == len(different)


def test_padding_rows_have_no_labels():
  made = batches('test', train=False, rows=4, eval_examples=6)
  last = made(1)
  assert (
    made.steps == 2 and last['row_weights_B'].tolist() == [1, 1, 0, 0] and last['index_B'].tolist() == [4, 5, -1, -1]
  )
  assert (last['labels_BYX'][2:] == -1).all() and (last['distance_BYX'][2:] == -1).all()
  assert last['images_BYXC'].shape == (4, SIDE, SIDE, 3) and last['images_BYXC'].dtype == np.uint8
  assert made.positions() == 8 * SIDE**2 and pipeline.describe(made)['tokens_per_epoch'] == 6 * SIDE**2
  assert made.unit == 'pixels' and pipeline.load(pipeline.Config(dataset='generated', batching='scenes')).manifest[
    'label_names'
  ] == ['land', 'sea', 'water', 'boat', 'duck']


def test_small_images_have_small_objects():
  scene = batches(length=32, size=8, rows=1)
  for i in range(30):
    assert {area for _, area, _ in parts(scene.draw(0, i))} <= {SEA, WATER}
  for fields, message in (
    ({'length': 50}, 'data.length: got'),
    ({'examples': 7}, 'data.batching.examples: got 7'),
    ({'size': 3}, 'data.batching.size: got 3'),
  ):
    with pytest.raises(InputError, match=message):
      batches(**fields)
