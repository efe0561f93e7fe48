"""Pixel accuracy and mIoU against their definition on sets of pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lmx.metrics import segmentation


def areas(predicted, truth, classes: int) -> np.ndarray:
  """Numbers of pixels of each class in the intersection, predicted and true, by loops over pixels."""
  found = np.zeros((classes, 3))
  for p, t in zip(np.ravel(predicted), np.ravel(truth), strict=True):
    if t >= 0:
      found[p, 1] += 1
      found[t, 2] += 1
      found[t, 0] += p == t
  return found


def test_metrics_match_sets_of_pixels():
  rng = np.random.default_rng(0)
  predicted, truth = rng.integers(0, 4, 500), rng.integers(-1, 4, 500)
  counted = areas(predicted, truth, 4)
  labelled = truth >= 0
  assert segmentation.pixel_accuracy(counted) == pytest.approx(np.mean((predicted == truth)[labelled]))
  expected = []
  for c in range(4):
    a, b = (set(np.flatnonzero(labelled & (x == c))) for x in (predicted, truth))
    expected.append(len(a & b) / len(a | b))
  np.testing.assert_allclose(segmentation.iou(counted), expected)
  assert segmentation.mean_iou(counted) == pytest.approx(np.mean(expected))


def test_miou_skips_absent_classes_only():
  counted = areas([0, 0, 1, 3], [0, 0, 0, -1], 4)
  np.testing.assert_allclose(segmentation.iou(counted), [2 / 3, 0, math.nan, math.nan])
  assert segmentation.mean_iou(counted) == pytest.approx(1 / 3)
  nothing = np.zeros((4, 3))
  assert math.isnan(segmentation.mean_iou(nothing)) and math.isnan(segmentation.pixel_accuracy(nothing))
