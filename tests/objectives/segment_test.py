"""Segmentation: the loss and every number of pixels against loops over pixels, for any division of the rows."""

from __future__ import annotations

import functools
import math

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import interpolation
from lmx.metrics import segmentation
from lmx.objectives import segment
from lmx.registry import complete
from lmx.types import Model
from tests import drawn, tiny_segmenter
from tests.reference import sliding_windows as reference

tiny = complete(Model, tiny_segmenter)

B, Y, X, C = 4, 9, 12, 3
CFG = segment.Config(classes=C, distances=(2.0, 5.5))


def batch(**more):
  rng = np.random.default_rng(0)
  return {
    'images_BYXC': rng.integers(0, 256, (B, Y, X, 3)).astype(np.uint8),
    'labels_BYX': rng.integers(-1, C, (B, Y, X)).astype(np.int32),
    'distance_BYX': rng.choice([-1, 2, 3, 7], (B, Y, X)).astype(np.float32),
    'row_weights_B': np.array([1, 1, 1, 0], np.float32),
    **more,
  }


@functools.cache
def params(cfg=CFG):
  model_cfg = tiny.Config()
  init = lambda _, key: {'model': tiny.init(model_cfg, key), 'objective': segment.init(cfg, tiny, model_cfg, key)}
  return drawn.params(init, None)


@functools.partial(jax.jit, static_argnums=0)
def measured(cfg, params, batch):
  out = segment.loss(cfg, tiny, tiny.Config(), params, batch, ())
  return out.sums, out.metrics


def totals(cfg, *batches) -> dict:
  """The sums of several batches as `lmx.evaluation.evaluate` adds them."""
  found = [measured(cfg, params(cfg), one)[1] for one in batches]
  join = lambda name: [np.asarray(one[name], np.float64) for one in found]
  return {name: np.concatenate(join(name)) if '_B' in name else tuple(np.sum(join(name), axis=0)) for name in found[0]}


def logits(cfg, images, name='classifier', row='last_BTD') -> np.ndarray:
  """The logits at the size of the image, by matrices of weights."""
  features, _ = tiny.apply(tiny.Config(), params(cfg)['model'], {'images_BYXC': images})
  head = params(cfg)['objective'][name]
  y, x = (tiny.auxiliary_grid if name == 'auxiliary' else tiny.grid)(tiny.Config(), *images.shape[1:3])
  small = (getattr(features, row) @ head['kernel'] + head['bias']).reshape(len(images), y, x, C)
  rows, columns = (
    interpolation.weights(a, b, align_corners=cfg.align_corners) for a, b in zip((y, x), images.shape[1:3], strict=True)
  )
  return np.einsum('Yy,Xx,byxc->bYXc', rows, columns, np.asarray(small, np.float64))


def log_softmax(scores) -> np.ndarray:
  return scores - np.log(np.sum(np.exp(scores), -1, keepdims=True))


@pytest.mark.parametrize('background', ['in', 'out'])
def test_metrics_equal_loops_over_pixels(background):
  cfg = segment.Config(classes=C, distances=CFG.distances, background=background, auxiliary=0.3, align_corners=False)
  one = batch()
  first = int(background == 'out')
  sums = {'nll': 0.0, 'auxiliary': 0.0}
  areas, far, count = np.zeros((C, 3)), np.zeros((2, 2)), 0
  by_term = {
    'nll': log_softmax(logits(cfg, one['images_BYXC'])[..., first:]),
    'auxiliary': log_softmax(logits(cfg, one['images_BYXC'], 'auxiliary', 'auxiliary_BTD')[..., first:]),
  }
  for b, y, x in np.ndindex(3, Y, X):
    truth = one['labels_BYX'][b, y, x]
    if truth < first:
      continue
    count += 1
    sums['nll'] -= by_term['nll'][b, y, x, truth - first]
    sums['auxiliary'] -= 0.3 * by_term['auxiliary'][b, y, x, truth - first]
    guess = first + int(np.argmax(by_term['nll'][b, y, x]))
    areas[guess, 1] += 1
    areas[truth, 2] += 1
    areas[truth, 0] += guess == truth
    for k, distance in enumerate(cfg.distances):
      if one['distance_BYX'][b, y, x] > distance:
        far[k] += guess == truth, 1
  found = totals(cfg, one)
  np.testing.assert_array_equal(found['areas_BC3'].sum(axis=0), areas)
  np.testing.assert_array_equal(found['distant_BK2'].sum(axis=0), far)
  assert not found['areas_BC3'][3].any() and segment.weights(cfg, one) == {'nll': count, 'auxiliary': count}
  report = segment.report(cfg, found, {})
  present = ~np.isnan(segmentation.iou(areas))
  expected = {
    'loss': sum(sums.values()) / count,
    'miou': segmentation.mean_iou(areas),
    'pixel_accuracy': areas[:, 0].sum() / count,
    'accuracy_beyond_2': far[0, 0] / far[0, 1],
    'accuracy_beyond_5.5': far[1, 0] / far[1, 1],
    **{f'iou_class_{c}': segmentation.iou(areas)[c] for c in np.flatnonzero(present)},
  }
  expected['pixel_accuracy_miou'] = (expected['pixel_accuracy'] + expected['miou']) / 2
  if first:
    expected['miou_with_background'] = expected['miou'] * 2 / 3
  assert report.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_allclose(report[name], value, rtol=1e-5, err_msg=name)
  names = ['a', 'b', 'c']
  assert segment.by_class(cfg, found, names) == {name: areas[c].tolist() for c, name in enumerate(names) if c >= first}


def test_pixel_counts_do_not_depend_on_batching():
  one, whole = batch(), totals(CFG, batch())
  rows = lambda *picked: {key: x[list(picked)] for key, x in one.items()}
  parts = totals(CFG, rows(0, 3, 3), rows(1, 2, 3))
  for name in ('areas_BC3', 'distant_BK2'):
    np.testing.assert_array_equal(parts[name].sum(axis=0), whole[name].sum(axis=0))
  assert parts['nll'][1] == whole['nll'][1] and parts['nll'][0] == pytest.approx(whole['nll'][0], rel=1e-5)


def test_training_measures_the_loss_and_passes_statistics_on():
  def run(key):
    out = segment.loss(CFG, tiny, tiny.Config(), params(), batch(), ('kept',), key)
    assert out.state == ('kept',) and out.features is not None
    return out.sums, out.metrics, out.statistics

  sums, metrics, statistics = jax.eval_shape(run, jax.random.key(0))
  assert set(sums) == {'nll', 'auxiliary'} == set(segment.terms(CFG))
  assert set(metrics) == {'nll', 'auxiliary', 'pixel_accuracy'} and set(statistics) == {'model'}
  without = segment.Config(classes=C, auxiliary=0.0)
  assert set(segment.init(without, tiny, tiny.Config(), jax.random.key(0))) == {'classifier'}
  assert segment.terms(without) == ('nll',) and set(segment.labelled(without)) == {
    'classifier/kernel',
    'classifier/bias',
  }


def test_scales_and_mirrored_images_are_averaged():
  cfg = segment.Config(classes=C, scales=(1.0, 0.5), flip=True)
  one = batch()
  images, shares = one['images_BYXC'].astype(np.float32), 0.0
  for scaled in ((Y, X), (5, 6)):
    resized = np.asarray(interpolation.bilinear(images, scaled, align_corners=True))
    both = (logits(cfg, resized) + logits(cfg, resized[:, :, ::-1])[:, :, ::-1]) / 2
    back = interpolation.bilinear(both.astype(np.float32), (Y, X), align_corners=True)
    shares += np.exp(log_softmax(np.asarray(back))) / 2
  predict = jax.jit(lambda params, batch: segment.predict(cfg, tiny, tiny.Config(), params, batch, ())[0])
  found = predict(params(cfg), {'images_BYXC': one['images_BYXC']})
  np.testing.assert_array_equal(found['classes_BYX'], np.argmax(shares, -1))
  np.testing.assert_allclose(found['probability_BYX'], np.max(shares, -1), rtol=1e-4)
  mirrored = predict(params(cfg), {'images_BYXC': one['images_BYXC'][:, :, ::-1]})
  np.testing.assert_allclose(mirrored['probability_BYX'][:, :, ::-1], found['probability_BYX'], rtol=1e-4)
  labels = np.where(one['row_weights_B'][:, None, None] > 0, one['labels_BYX'], -1)
  nll = -np.log(np.take_along_axis(shares, np.maximum(labels, 0)[..., None], -1)[..., 0])[labels >= 0].sum()
  assert float(measured(cfg, params(cfg), one)[0]['nll']) == pytest.approx(nll, rel=1e-4)


def test_images_with_their_own_pixels_are_read_by_windows():
  """Every pixel counts; a restatement of the released evaluation, and the same with the auxiliary classifier."""
  cfg = segment.Config(classes=C, background='out', window=8, base=10, scales=(0.5, 1.0, 1.5), flip=True)
  sizes = np.array([(9, 12), (9, 5), (4, 12), (1, 1)], np.int32)
  one = batch(sizes_B2=sizes)
  for b, (y, x) in enumerate(sizes):
    one['images_BYXC'][b, y:], one['images_BYXC'][b, :, x:] = 0, 0
    one['labels_BYX'][b, y:], one['labels_BYX'][b, :, x:] = -1, -1
  areas, nll = np.zeros((C, 3)), {'nll': 0.0, 'auxiliary': 0.0}
  for b, (y, x) in enumerate(sizes[:3]):
    for term, name in (('nll', ('classifier', 'last_BTD')), ('auxiliary', ('auxiliary', 'auxiliary_BTD'))):
      network = lambda window_YXC, name=name: logits(cfg, window_YXC[None].astype(np.float32), *name)[0, ..., 1:]
      image_YXC = one['images_BYXC'][b, :y, :x]
      scores = reference.scores(network, image_YXC, window=8, base=10, scales=cfg.scales, flip=True)
      shares, labels = scores / scores.sum(axis=-1, keepdims=True), one['labels_BYX'][b, :y, :x]
      for place in np.argwhere(labels > 0):
        nll[term] -= np.log(shares[(*place, labels[tuple(place)] - 1)])
        if term == 'nll':
          guess, truth = 1 + int(np.argmax(shares[tuple(place)])), labels[tuple(place)]
          areas[guess, 1], areas[truth, 2] = areas[guess, 1] + 1, areas[truth, 2] + 1
          areas[truth, 0] += guess == truth
  found = totals(cfg, one)
  np.testing.assert_array_equal(found['areas_BC3'].sum(axis=0), areas)
  assert found['nll'][0] == pytest.approx(nll['nll'], rel=1e-5)
  assert found['auxiliary'][0] == pytest.approx(cfg.auxiliary * nll['auxiliary'], rel=1e-5)
  own, validation = {key: x for key, x in one.items() if key != 'sizes_B2'}, segment.Config(classes=C, background='out')
  for name, value in totals(validation, own).items():  # other batches are read once, as they are
    np.testing.assert_array_equal(totals(cfg, own)[name], value)


@pytest.mark.parametrize(
  'fields,message',
  [
    ({'background': 'none'}, 'objective.background: unknown "none"'),
    ({'scales': ()}, 'objective.scales: got none'),
    ({'scales': (1.0, 0.0)}, 'objective.scales: got 0.0'),
    ({'window': 8, 'base': 8000, 'scales': (1.0, 1.5)}, 'objective.scales: got 1.5 .* is 12000 pixels'),
    ({'base': -1}, 'objective.base: got -1'),
    ({'distances': (-1.0,)}, 'objective.distances: one: got -1.0'),
    ({'auxiliary': -0.1}, 'objective.auxiliary: got'),
  ],
)
def test_invalid_options_are_rejected(fields, message):
  with pytest.raises(InputError, match=message):
    segment.Config(**fields)


def test_classes_come_from_the_data():
  manifest = {'dataset': {'name': 'made up'}, 'label_names': ['a', 'b', 'c']}
  assert segment.resolve(segment.Config(), manifest).classes == 3
  with pytest.raises(InputError, match='objective.classes: got 2'):
    segment.resolve(segment.Config(classes=2), manifest)
  with pytest.raises(InputError, match='got 0 labels'):
    segment.resolve(segment.Config(), manifest | {'label_names': []})
  with pytest.raises(InputError, match='objective.auxiliary: got 0.2'):
    segment.init(CFG, tiny, tiny.Config(has_auxiliary=False), jax.random.key(0))
  assert math.isnan(segment.report(CFG, totals(CFG, batch(labels_BYX=np.full((B, Y, X), -1))), {})['miou'])
