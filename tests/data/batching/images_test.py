"""Crops of images and masks: functions of (seed, epoch, example), padded with black and -1."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from PIL import Image

from lmx.data import image_corpus, labels, noise, pipeline
from lmx.data.batching import images
from lmx.errors import InputError
from tests.small_images import CLASSES, corpus, row


def data(length=8, batch_size=2, **fields):
  batching = fields.pop('batching', {})
  cfg = pipeline.Config(
    dataset='segmentation_files',
    batching={'name': 'images', **batching},
    length=length,
    batch_size=batch_size,
    **fields,
  )
  return cfg


def batches(cfg, some=None, *, train=True, seed=0):
  return pipeline.batches(cfg, some or corpus(), 'train' if train else 'valid', seed, train=train)


def test_batch_depends_only_on_seed_step_and_row():
  stream, other = batches(data()), batches(data())
  for step in (0, 3, 7):
    whole, rows = stream(step), other(step, slice(1, 2))
    assert whole['images_BYXC'].dtype == np.uint8 and whole['images_BYXC'].shape == (2, 8, 8, 3)
    assert whole['labels_BYX'].dtype == np.int32 and whole['row_weights_B'].tolist() == [1, 1]
    for key, x in rows.items():
      np.testing.assert_array_equal(x, whole[key][1:2])
  assert not np.array_equal(stream(0)['images_BYXC'], batches(data(), seed=1)(0)['images_BYXC'])
  seen = [stream(step)['index_B'].tolist() for step in range(2)]
  assert len({*np.concatenate(seen).tolist()}) == 4


def test_labels_are_transformed_with_the_pixels():
  """The mask says of every pixel whether it is dark; where both are interpolated, only borders may differ."""
  stream = batches(data(length=8, batching={'scales': (1.0, 1.0), 'base': 12}))
  for step in range(6):
    batch = stream(step)
    bright_BYX, label_BYX = batch['images_BYXC'][..., 0] > 50, batch['labels_BYX']
    np.testing.assert_array_equal(bright_BYX, label_BYX == 1)


def test_images_smaller_than_the_crop_are_padded_with_black_and_no_label():
  stream = batches(data(length=16, batching={'scales': (1.0, 1.0), 'base': 12}))
  batch = stream(0)
  assert (batch['labels_BYX'][:, 8:] == -1).all() and (batch['labels_BYX'][:, :, 12:] == -1).all()
  assert (batch['labels_BYX'][:, :8, :12] >= 0).all()
  assert (batch['images_BYXC'][:, 8:] == 0).all() and (batch['images_BYXC'][:, :, 12:] == 0).all()


def test_scales_flips_and_crops_have_the_released_distributions():
  cfg = images.Config(base=100)
  image = Image.new('RGB', (50, 25))
  image.paste((255, 255, 255), (0, 0, 10, 25))
  sizes, mirrored = [], 0
  for i in range(300):
    rng = noise.generator(0, 'test', 0, i)
    out, _ = images.augment(cfg, image, Image.new('L', (50, 25)), 1000, rng)
    sizes.append(out.size)
    mirrored += out.getpixel((0, 0)) == (0, 0, 0)
  widths = np.array(sizes)[:, 0]
  assert widths.min() >= 50 and widths.max() <= 200 and 115 < widths.mean() < 135
  assert all(height == int(width / 2 + 0.5) for width, height in sizes)
  assert 120 < mirrored < 180
  assert images.base_size(images.Config(), 480) == 520
  unflipped = [
    images.augment(images.Config(base=100, flip=False), image, image.convert('L'), 8, noise.generator(0, 'test', 0, i))
    for i in range(200)
  ]
  bright = [out.getpixel((0, 0)) == (255, 255, 255) for out, _ in unflipped]
  assert 5 < sum(bright) < 80  # crops begin anywhere


def test_blur_leaves_masks_unchanged():
  some = corpus()
  plain, blurred = (batches(data(batching={'blur': blur}), some) for blur in (False, True))
  changed = 0
  for step in range(8):
    one, other = plain(step), blurred(step)
    np.testing.assert_array_equal(one['labels_BYX'], other['labels_BYX'])
    changed += not np.array_equal(one['images_BYXC'], other['images_BYXC'])
  assert 0 < changed


def test_evaluation_reads_the_central_crop():
  stream = batches(data(length=8, eval_length=4), train=False)
  assert stream.steps == 2 and stream.protocol == ('central crops of 4 pixels of images with that shorter side',)
  batch = stream(1)
  assert batch['index_B'].tolist() == [2, -1] and batch['row_weights_B'].tolist() == [1, 0]
  assert (batch['labels_BYX'][1] == -1).all()
  # 12 x 8 becomes 6 x 4, of which columns 1 to 4 are read; the left third has class 0
  assert batch['labels_BYX'][0].tolist() == [[0, 1, 1, 1]] * 4


def test_whole_images_are_padded():
  stream = batches(data(length=8, eval_length=6, batching={'evaluation': 'whole'}), train=False)
  assert stream.protocol == ('whole images with a longer side of 6 pixels',)
  labels_YX = stream(0)['labels_BYX'][0]
  assert labels_YX.tolist() == [[0, 0, 1, 1, 1, 1]] * 4 + [[-1] * 6] * 2
  tall = batches(data(length=6, batching={'evaluation': 'whole'}), corpus(size=(4, 8)), train=False)
  assert (tall(0)['labels_BYX'][0][:, 3:] == -1).all()


def test_images_with_their_own_pixels_share_a_canvas_in_each_batch():
  rows = [row('small', (12, 8)), row('wide', (300, 8)), row('tall', (8, 500))]
  some = image_corpus.build({'train': rows, 'valid': rows}, CLASSES, {'name': 'small_images'})
  stream = batches(data(batching={'evaluation': 'windows'}), some, train=False)
  assert stream.protocol == ('images and masks with their own pixels',)
  for step, shown in enumerate(([0, 1], [2])):
    batch, side = stream(step), (384, 512)[step]
    assert batch['images_BYXC'].shape == (2, side, side, 3) and batch['labels_BYX'].shape == (2, side, side)
    assert batch['index_B'].tolist() == (shown + [-1])[:2] and batch['sizes_B2'].min() > 0
    for b, number in enumerate(shown):
      example = some.images[number]
      width, height = example.image.size
      assert batch['sizes_B2'][b].tolist() == [height, width]
      np.testing.assert_array_equal(batch['images_BYXC'][b, :height, :width], np.asarray(example.image))
      np.testing.assert_array_equal(batch['labels_BYX'][b, :height, :width], example.labels_YX)
      assert (batch['labels_BYX'][b, height:] == -1).all() and not batch['images_BYXC'][b, :, width:].any()
  one_host = stream(0, slice(0, 1))
  assert one_host['images_BYXC'].shape == (1, 384, 384, 3)  # the other host's image is the larger one
  assert 'sizes_B2' not in batches(data(batching={'evaluation': 'windows'}), some)(0)
  rows[0] = row('long', (8200, 1))
  some = image_corpus.build({'train': rows, 'valid': rows}, CLASSES, {'name': 'small_images'})
  with pytest.raises(InputError, match='long: got 8200 x 1 pixels'):
    batches(data(batching={'evaluation': 'windows'}), some, train=False)(0)


def test_label_ids_match_the_run():
  renumbered = labels.renumber(corpus(), ['other', 'right', 'left'])
  batch = batches(data(batching={'evaluation': 'whole'}), renumbered, train=False)(0)
  assert batch['labels_BYX'][0, 0].tolist() == [2] * 3 + [1] * 5
  with pytest.raises(InputError, match='got labels left'):
    labels.renumber(corpus(), ['right'])


def test_sizes_match_pixels():
  stream = batches(data())
  about = pipeline.describe(stream)
  assert about['examples_per_epoch'] == 5 and about['steps_per_epoch'] == 2
  assert about['tokens_per_epoch'] == 4 * 64 and about['padding'] == 0
  with pytest.raises(InputError, match='data.batch_size: got 8'):
    batches(data(batch_size=8))


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'evaluation': 'half'}, 'data.batching.evaluation: unknown "half"'),
    ({'scales': (2.0, 0.5)}, 'data.batching.scales: got'),
    ({'base': -1}, 'data.batching'),
  ],
)
def test_invalid_settings_are_rejected(fields, message):
  with pytest.raises(InputError, match=message):
    images.Config(**fields)


@pytest.mark.parametrize(
  ('length', 'batching', 'message'),
  [
    (40, {'base': 100_000}, 'data.batching.base: got 100000'),
    (480, {'scales': (1.0, 16.0)}, 'data.batching.base: got 520'),
  ],
)
def test_oversized_scaling_is_rejected(length, batching, message):
  with pytest.raises(InputError, match=message):
    data(length=length, batching=batching)
  assert data(length=480, batching={'base': 4096}).batching.base == 4096


@pytest.mark.parametrize('size', [(1, 9_000), (9_000, 1), (3, 20_001)])
def test_only_the_crop_of_a_long_image_is_scaled(size, monkeypatch):
  rng = np.random.default_rng(0)
  image = Image.fromarray(rng.integers(0, 256, (*size[::-1], 3), np.uint8))
  mask = Image.fromarray(rng.integers(0, 9, size[::-1], np.uint8))
  scaled = []
  resize = Image.Image.resize
  monkeypatch.setattr(Image.Image, 'resize', lambda self, to, *args: scaled.append(to) or resize(self, to, *args))
  parts = images.evaluate(images.Config(), image, mask, 8)
  assert {*scaled} == {(8, 8)}
  monkeypatch.setattr(images, '_LONGEST', 1 << 30)
  wholes = images.evaluate(images.Config(), image, mask, 8)
  assert max(scaled[-1]) > 50_000
  np.testing.assert_allclose(*(np.asarray(x[0], np.int32) for x in (parts, wholes)), atol=1)
  np.testing.assert_array_equal(*(np.asarray(x[1]) for x in (parts, wholes)))


def test_workers_decode_the_same_batches():
  stream = batches(data())
  with pipeline.prefetch(stream, 0, 6, buffer=4, workers=3) as threads:
    for step, batch in threads:
      for key, x in stream(step).items():
        np.testing.assert_array_equal(x, batch[key])


def test_unshuffled_epochs_have_the_order_of_the_data():
  stream = batches(dataclasses.replace(data(), shuffle=False))
  assert [stream(step)['index_B'].tolist() for step in range(2)] == [[0, 1], [2, 3]]
