"""Samples of a run on images: truth, prediction, and the attention of the pixel that is farthest from any object."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from lmx.data import pipeline
from lmx.evaluation.samples import Trained, segmentations
from lmx.models import registry
from lmx.objectives import segment
from lmx.registry import complete
from lmx.types import Model
from tests import drawn, small_images, tiny_segmenter, untrained

tiny = complete(Model, tiny_segmenter)


def run_and_params():
  data = ('batching.size=8', 'batching.eval_examples=3', 'length=32', 'eval_batch_size=8')
  options = 'samples.count=2', *(f'data.{text}' for text in data)
  run = untrained.load('experiments/cfnet/quickstart.py:tiny', *options).run
  run = dataclasses.replace(run, measured=tiny.Config(), objective=segment.Config(classes=5))
  init = lambda cfg, key: {'model': tiny.init(cfg, key), 'objective': segment.init(run.objective, tiny, cfg, key)}
  return run, pipeline.load(run.data), drawn.params(init, run.measured)


@pytest.mark.parametrize('has_attention', [True, False])
def test_segmentation_samples_show_one_pixels_attention(tmp_path, monkeypatch, has_attention):
  model = complete(Model, tiny_segmenter)
  if has_attention:  # two heads, of 64 positions to every second row and column; T sees S only where S is T / 4
    model.attention = lambda cfg, params, batch: (
      jax.numpy.ones((len(batch['images_BYXC']), 2, 1, 1)) * jax.numpy.eye(16).repeat(4, axis=0)
    )
  run, corpus, params = run_and_params()
  monkeypatch.setattr(registry, 'get', lambda name: model)
  pictures = segmentations.segment_images(run, corpus, params, 9)
  batch = pipeline.batches(run.data, corpus, 'test', 0, train=False)(0)
  assert len(pictures) == 3  # all that there are
  for b, picture in enumerate(pictures):
    np.testing.assert_array_equal(picture.image, batch['images_BYXC'][b])
    np.testing.assert_array_equal(picture.masks['truth'], batch['labels_BYX'][b])
    assert picture.masks['prediction'].shape == (32, 32)
    assert batch['distance_BYX'][b][picture.pixel] == batch['distance_BYX'][b].max()
    if has_attention:
      row, column = (round(x / 31 * 7) for x in picture.pixel)
      assert picture.attention.shape == (4, 4) and np.argmax(picture.attention) == (row * 8 + column) // 4
    else:
      assert picture.attention is None
  lines = list(segmentations.generate(Trained(run, corpus, params, (), tmp_path)))
  right = np.mean(pictures[1].masks['prediction'] == pictures[1].masks['truth'])
  assert lines[1] == f'segmentations.png, row 2: {right:.1%} of its pixels right' and len(lines) == 2
  assert (tmp_path / 'segmentations.png').stat().st_size > 1000


def test_samples_of_images_with_their_own_pixels_have_their_size(monkeypatch):
  model, attended = complete(Model, tiny_segmenter), []
  model.attention = lambda cfg, params, batch: (
    attended.append(batch['images_BYXC'].shape) or jax.numpy.ones((1, 1, 1, 1))
  )
  run, _, params = run_and_params()
  batching = {'name': 'images', 'evaluation': 'windows'}
  data = pipeline.Config(dataset='segmentation_files', batching=batching, length=8, batch_size=2)
  objective = segment.Config(classes=5, window=8, base=9)
  run = dataclasses.replace(run, data=data, objective=objective)
  monkeypatch.setattr(registry, 'get', lambda name: model)
  some = small_images.corpus(size=(30, 12))
  monkeypatch.setattr(segmentations, '_attention_of', lambda a_TS, grid, place: (grid, place))
  picture, _ = segmentations.segment_images(run, some, params, 2)
  np.testing.assert_array_equal(picture.image, np.asarray(some.images[8].image))
  np.testing.assert_array_equal(picture.masks['truth'], some.images[8].labels_YX)
  assert picture.masks['prediction'].shape == (12, 30) and picture.pixel == (6, 15)
  assert attended == [(1, 4, 9, 3)] and picture.attention == ((1, 3), (6 / 11, 15 / 29))
