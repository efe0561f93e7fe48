"""Pixel accuracy and intersection over union of semantic segmentation, from pixel counts.

Numbers of a class c over a whole split: intersection (predicted c and c in truth), predicted and true, all of labelled
pixels only. IoU_c = intersection / (predicted + true - intersection); mIoU is its mean over the classes that are in the
truth or predicted.

Deviation: the code released with the paper (zhanghang1989/PyTorch-Encoding, utils/metrics.py) takes a class that is
neither as an IoU of 0. The data sets' validation splits have every class.
"""

from __future__ import annotations

import math

import numpy as np


def pixel_accuracy(areas_C3: np.ndarray) -> float:
  """Return the share of labelled pixels that are predicted right; NaN without labelled pixels.

  Args:
    areas_C3: pixels of each class in the intersection, predicted and true.
  """
  right, _, true = np.asarray(areas_C3, np.float64).sum(axis=0)
  return float(right / true) if true else math.nan


def iou(areas_C3: np.ndarray) -> np.ndarray:
  """Return the intersection over union of each class, (C,) float64; NaN where a class is neither true nor predicted."""
  intersection_C, predicted_C, true_C = np.asarray(areas_C3, np.float64).T
  union_C = predicted_C + true_C - intersection_C
  return np.where(union_C > 0, intersection_C / np.maximum(union_C, 1), math.nan)


def mean_iou(areas_C3: np.ndarray) -> float:
  """Return the mean of `iou` over the classes that have one; NaN if none has."""
  iou_C = iou(areas_C3)
  present_C = ~np.isnan(iou_C)
  return float(iou_C[present_C].mean()) if present_C.any() else math.nan
