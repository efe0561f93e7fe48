"""Semantic segmentation: the class of every pixel of an image, as trained by Zhang, Zhang, Wang and Xie 2019.

A 1x1 convolution classifies the feature map, and its logits are interpolated to the image size. The loss is the
cross-entropy of the labelled pixels plus `auxiliary` times the loss of a second classifier on an earlier layer, used
only in training (0.2 in the released recipe). Pixels with label -1 and rows of weight 0 are ignored. The weight counts
pixels.

Metrics use exact pixel counts per class and image, see lmx/metrics/segmentation.py.

An evaluation reads images at several `scales`, also mirrored (`flip`), in one of two forms. With `window` it is the
release's (zhanghang1989/PyTorch-Encoding, MultiEvalModule): lmx/layers/sliding_windows.py. It needs images with their
own pixels (evaluation.images 'windows'); other batches, as of validations, are then read once, as they are.
Without `window` the whole row is read at every scale, relative to its side: logits are averaged with those of the
mirrored image and interpolated back, and the probabilities are averaged. In padded rows, pooling and attention then see
the padding.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers import sliding_windows, softmax
from lmx.layers.interpolation import bilinear
from lmx.metrics import segmentation
from lmx.metrics.by_class import MACRO_F1
from lmx.metrics.metric import Metric
from lmx.objectives import mean, row_objective
from lmx.objectives.row_objective import MOST_BY_CLASS
from lmx.types import Array, Batch, Features, Model, Output, Params, State

METRICS = (
  Metric('miou', True, headline=',.3f'),
  MACRO_F1,
  Metric('pixel_accuracy', True, '.1%'),
  Metric('pixel_accuracy_miou', True, shown=False),
  Metric('miou_with_background', True),
  Metric('accuracy_beyond_*', True),
  Metric('iou_class_*', True, shown=False),
)
PREDICTION, SAMPLES, ROWS = 'segmentation', 'segmentations', 'totals'
UNIT = 'pixels'  # unit of the loss's weight
ACROSS_ROWS = True  # batch normalisation: `loss` takes `axis`
_LARGEST = 8192  # pixels of a side
_EXCLUDED = -1e9  # logit of an excluded class
terms, labels = row_objective.terms, row_objective.labels


@dataclasses.dataclass(frozen=True)
class Config(row_objective.Terms):
  """Options of the objective, in addition to those of `objectives.Config`.

  Attributes:
    classes: number of classes; 0 takes it from the data set's labels.
    auxiliary: weight of the loss of the model's auxiliary features; 0 is without.
    align_corners: corner pixels of the feature map and of the image coincide in the interpolation (released); else
      their outer edges do.
    background: 'in', or 'out': pixels of class 0 are neither trained on, predicted nor measured. The report then adds
      `miou_with_background`, whose IoU of class 0 is 0, for papers that count it.
    scales: image sizes at evaluation, relative to its own size, or to `base` with `window`.
    flip: also evaluate the mirrored image.
    window: side in pixels of the windows of an evaluation of images with their own pixels (evaluation.images
      'windows'); 0 is data.length there.
    base: longer side in pixels of these images at scale 1; 0 is the base size of the training, 13/12 of data.length.
    distances: also report the accuracy of ambiguous pixels farther than each distance from any object, in pixels.
  """

  classes: int = 0
  auxiliary: float = 0.2
  align_corners: bool = True
  background: str = 'in'
  scales: tuple[float, ...] = (1.0,)
  flip: bool = False
  window: int = 0
  base: int = 0
  distances: tuple[float, ...] = ()

  reductions: ClassVar[tuple[str, ...]] = ('tokens', 'rows', 'sum')  # rows are images

  @property
  def auxiliary_terms(self) -> tuple[str, ...]:
    """The term of the auxiliary classifier, if it has a weight."""
    return ('auxiliary',) if self.auxiliary else ()

  def __post_init__(self) -> None:
    super().__post_init__()
    check_least('objective', self, classes=0, auxiliary=0, window=0, base=0)
    for name in ('window', 'base'):
      check_range(f'objective.{name}', getattr(self, name), 0, _LARGEST + 1)
    check_choice('objective.background', self.background, ('in', 'out'))
    if not self.scales:
      raise InputError('objective.scales: got none; expected at least one, such as 1.0')
    for scale in self.scales:
      if not 0.05 <= scale <= 20:
        raise InputError(f'objective.scales: got {scale}; expected sizes of 0.05 to 20 times the image')
    if self.window and self.sampling.longest > _LARGEST:
      raise InputError(
        f'objective.scales: got {max(self.scales)} of images with {self.sampling.base} pixels (objective.base), which '
        f'is {self.sampling.longest} pixels; expected at most {_LARGEST}; set a smaller scale or base'
      )
    for distance in self.distances:
      check_range('objective.distances: one', distance, 0)

  @property
  def sampling(self) -> sliding_windows.Sampling:
    """Settings of an evaluation with `window`."""
    return sliding_windows.Sampling(self.window, self.base, self.scales, self.flip, self.align_corners)


def resolve(cfg: Config, manifest: Any) -> Config:
  """Return the config with the number of classes of a data set.

  Raises:
    InputError: the data set has fewer than two classes, or another number than the config.
  """
  advice = '; set data.batching to one of labelled images'
  names = row_objective.resolve_classes(cfg, manifest, 'segment', advice)
  return dataclasses.replace(cfg, classes=len(names))


def init(cfg: Config, model: Model, model_cfg: Any, key: Array) -> Params:
  """Initialise classifier and, with an auxiliary loss, auxiliary: {'kernel' (D, C), 'bias' (C,)} as in PyTorch."""
  classes = row_objective.check_classes(cfg)
  features = _feature_shapes(model, model_cfg)
  widths = {'classifier': features.last_BTD.shape[-1]}
  if cfg.auxiliary:
    if features.auxiliary_BTD is None:
      raise InputError(
        f'objective.auxiliary: got {cfg.auxiliary}, but the model has no auxiliary features; set objective.auxiliary=0'
      )
    widths['auxiliary'] = features.auxiliary_BTD.shape[-1]
  params = {}
  for (name, width), one_key in zip(widths.items(), jax.random.split(key, len(widths)), strict=True):
    kernel_key, bias_key = jax.random.split(one_key)
    half = width**-0.5
    params[name] = {
      'kernel': jax.random.uniform(kernel_key, (width, classes), jnp.float32, -half, half),
      'bias': jax.random.uniform(bias_key, (classes,), jnp.float32, -half, half),
    }
  return params


def _feature_shapes(model: Model, model_cfg: Any) -> Features:
  """Return the shapes of the features of one small image."""
  images = {'images_BYXC': jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.uint8)}
  run = lambda key, batch: model.apply(model_cfg, model.init(model_cfg, key), batch, ())[0]
  features: Features = jax.eval_shape(run, jax.eval_shape(lambda: jax.random.key(0)), images)
  return features


def labelled(cfg: Config) -> dict[str, tuple[int, ...]]:
  """Return the leaves of the head with an axis over labels -> these axes."""
  names = ('classifier', *cfg.auxiliary_terms)
  return {f'{name}/{leaf}': axes for name in names for leaf, axes in (('kernel', (1,)), ('bias', (0,)))}


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return the number of labelled pixels for each term."""
  count = jnp.sum(_labels(cfg, batch) >= 0, dtype=jnp.float32)
  return dict.fromkeys(terms(cfg), count)


def _labels(cfg: Config, batch: Batch) -> Array:
  """Return the class of each pixel, (B, Y, X); -1 marks ignored pixels."""
  labels_BYX = jnp.where(batch['row_weights_B'][:, None, None] > 0, batch['labels_BYX'], -1)
  return jnp.where(labels_BYX == 0, -1, labels_BYX) if cfg.background == 'out' else labels_BYX


def _class_logits(
  cfg: Config, model: Model, model_cfg: Any, params: Params, name: str, x_BTD: Array, size: tuple[int, int]
) -> Array:
  """Return one classifier's logits at image size, (B, Y, X, C) float32; without background, class 0 gets about minus
  infinity."""
  head, dtype = params['objective'][name], model_cfg.dtype
  logits_BTC = jnp.matmul(x_BTD.astype(dtype), head['kernel'].astype(dtype), preferred_element_type=jnp.float32)
  y, x = (model.auxiliary_grid if name == 'auxiliary' else model.grid)(model_cfg, *size)
  logits_BYXC = bilinear(
    (logits_BTC + head['bias']).reshape(-1, y, x, cfg.classes), size, align_corners=cfg.align_corners
  )
  if cfg.background == 'out':
    logits_BYXC = jnp.where(jnp.arange(cfg.classes) == 0, _EXCLUDED, logits_BYXC)
  return logits_BYXC


def _read(
  cfg: Config,
  model: Model,
  model_cfg: Any,
  params: Params,
  images_BYXC: Array,
  row_weights_B: Array,
  key: Array | None,
  axis: str | None,
) -> tuple[dict[str, Array], Features]:
  """Return (logits of each term at the size of the images, features)."""
  apply: Any = model.apply  # of an image model, which takes `axis`
  batch = {'images_BYXC': images_BYXC, 'row_weights_B': row_weights_B}
  features, _ = apply(model_cfg, params['model'], batch, (), key, axis=axis)
  _, *size, _ = images_BYXC.shape
  logits = lambda name, x_BTD: _class_logits(cfg, model, model_cfg, params, name, x_BTD, (size[0], size[1]))
  by_term = {'nll': logits('classifier', features.last_BTD)}
  if cfg.auxiliary:
    by_term['auxiliary'] = logits('auxiliary', features.auxiliary_BTD)
  return by_term, features


def _scores(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch) -> dict[str, Array]:
  """Return the log-probabilities of the classes by term at evaluation, over all scales, (B, Y, X, C)."""
  images_BYXC, weights_B, totals = batch['images_BYXC'], batch['row_weights_B'], dict[str, Array]()
  _, Y, X, _ = images_BYXC.shape
  scales, flip = ((1.0,), False) if cfg.window else (cfg.scales, cfg.flip)
  if 'sizes_B2' in batch:
    read_windows = lambda x_BWVC: _read(cfg, model, model_cfg, params, x_BWVC, jnp.ones(len(x_BWVC)), None, None)[0]
    found = sliding_windows.log_scores(cfg.sampling, read_windows, images_BYXC, batch['sizes_B2'])
    return {name: jax.nn.log_softmax(x_BYXC) for name, x_BYXC in found.items()}
  back = lambda x_BYXC: bilinear(x_BYXC, (Y, X), align_corners=cfg.align_corners)
  for scale in scales:
    scaled, resized_BYXC = (math.ceil(Y * scale), math.ceil(X * scale)), images_BYXC
    if scaled != (Y, X):
      resized_BYXC = bilinear(images_BYXC.astype(jnp.float32), scaled, align_corners=cfg.align_corners)
    read = lambda x_BYXC: _read(cfg, model, model_cfg, params, x_BYXC, weights_B, None, None)[0]
    logits = read(resized_BYXC)
    if flip:
      logits = jax.tree.map(lambda x, y: (x + y[:, :, ::-1]) / 2, logits, read(resized_BYXC[:, :, ::-1]))
    shares = {name: jax.nn.log_softmax(back(x_BYXC)) for name, x_BYXC in logits.items()}
    totals = {name: jnp.logaddexp(totals[name], x) for name, x in shares.items()} if totals else shares
  return {name: x_BYXC - math.log(len(scales)) for name, x_BYXC in totals.items()}


def loss(
  cfg: Config,
  model: Model,
  model_cfg: Any,
  params: Params,
  batch: Batch,
  state: State,
  key: Array | None = None,
  *,
  axis: str | None = None,
) -> Output:
  """Return the cross-entropy of the labelled pixels in nats.

  Args:
    params: {'model': ..., 'objective': the classifiers}.
    batch: images_BYXC, labels_BYX, row_weights_B; for `distances` distance_BYX; sizes_B2 of images with their own
      pixels.
    state: passed through.
    key: PRNG key of dropout; None at evaluation, when batch normalisation uses the running statistics.
    axis: `pmap` axis over which the rows are sharded, for batch normalisation.

  Returns:
    Output with sums 'nll' and, if it has a weight, 'auxiliary', weighted; as metrics the same and 'pixel_accuracy', at
    evaluation 'areas_BC3' (pixels of each image and class: intersection, predicted, true) and, with `distances`,
    'distant_BK2' (pixels of each image farther than each distance: right, all).
  """
  if key is None:
    logits, features = _scores(cfg, model, model_cfg, params, batch), None
  else:
    images_BYXC, row_weights_B = batch['images_BYXC'], batch['row_weights_B']
    logits, features = _read(cfg, model, model_cfg, params, images_BYXC, row_weights_B, key, axis)
  labels_BYX, sums = _labels(cfg, batch), {}
  is_labelled_BYX = labels_BYX >= 0
  for name, logits_BYXC in logits.items():
    nll_BYX = softmax.cross_entropy(logits_BYXC, jnp.maximum(labels_BYX, 0))
    total = jnp.sum(jnp.where(is_labelled_BYX, nll_BYX, 0), dtype=jnp.float32)
    sums[name] = cfg.auxiliary * total if name == 'auxiliary' else total
  count = jnp.sum(is_labelled_BYX, dtype=jnp.float32)
  metrics: dict[str, Any] = {name: (total, count) for name, total in sums.items()}
  best_BYX = jnp.argmax(logits['nll'], axis=-1)
  if features is None:
    return Output(sums, metrics | _areas(cfg, best_BYX, labels_BYX, batch), state)
  metrics['pixel_accuracy'] = (jnp.sum(best_BYX == labels_BYX, dtype=jnp.float32), count)
  statistics = None if features.statistics is None else {'model': features.statistics}
  return Output(sums, metrics, state, statistics, features)


def _areas(cfg: Config, best_BYX: Array, labels_BYX: Array, batch: Batch) -> dict[str, Array]:
  """Return 'areas_BC3' and, with `distances`, 'distant_BK2' of predictions and labels, see `loss`."""
  count = lambda is_BYXC: jnp.sum(is_BYXC, axis=(1, 2), dtype=jnp.int32)
  is_best_BYXC, is_true_BYXC = (x_BYX[..., None] == jnp.arange(cfg.classes) for x_BYX in (best_BYX, labels_BYX))
  is_labelled_BYX1 = labels_BYX[..., None] >= 0
  parts = is_best_BYXC & is_true_BYXC, is_best_BYXC & is_labelled_BYX1, is_true_BYXC
  areas = {'areas_BC3': jnp.stack([count(x_BYXC) for x_BYXC in parts], axis=-1)}
  if cfg.distances:
    is_far_BYXK = (batch['distance_BYX'][..., None] > jnp.asarray(cfg.distances)) & is_labelled_BYX1
    is_right_BYXK = is_far_BYXK & (best_BYX == labels_BYX)[..., None]
    areas['distant_BK2'] = jnp.stack([count(is_right_BYXK), count(is_far_BYXK)], axis=-1)
  return areas


def probabilities(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch) -> Array:
  """Return the probabilities of the classes at evaluation, over all scales, (B, Y, X, C)."""
  return jnp.exp(_class_scores(cfg, model, model_cfg, params, batch))


def _class_scores(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch) -> Array:
  """Return `_scores` of the classifier, without those of the auxiliary one."""
  return _scores(dataclasses.replace(cfg, auxiliary=0.0), model, model_cfg, params, batch)['nll']


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return ({'classes_BYX': the most probable class of each pixel, int32, 'probability_BYX': its probability}, state).

  `row_weights_B` may be absent.
  """
  batch = {'row_weights_B': jnp.ones(len(batch['images_BYXC'])), **batch}
  scores_BYXC = _class_scores(cfg, model, model_cfg, params, batch)
  classes_BYX = jnp.argmax(scores_BYXC, axis=-1).astype(jnp.int32)
  return {'classes_BYX': classes_BYX, 'probability_BYX': jnp.exp(jnp.max(scores_BYXC, axis=-1))}, state


def report(cfg: Config, totals: Mapping[str, Any], counts: Any) -> dict[str, float]:
  """Return {'loss', 'miou', 'pixel_accuracy', 'iou_class_<i>' of up to 50 classes that the split or a prediction has}.

  'pixel_accuracy_miou' is the mean of the two, by which the released code selects its best model. Without background
  also 'miou_with_background'; for each of `distances` 'accuracy_beyond_<distance>'. All but the loss are fractions.
  """
  del counts
  areas_C3 = totals['areas_BC3'].sum(axis=0)
  iou_C = segmentation.iou(areas_C3)
  metrics = {
    'loss': sum(mean(totals[term]) for term in terms(cfg)),
    'miou': segmentation.mean_iou(areas_C3),
    'pixel_accuracy': segmentation.pixel_accuracy(areas_C3),
  }
  metrics['pixel_accuracy_miou'] = (metrics['pixel_accuracy'] + metrics['miou']) / 2
  if cfg.background == 'out':
    present = int(np.sum(~np.isnan(iou_C)))
    metrics['miou_with_background'] = metrics['miou'] * present / (present + 1)
  if cfg.distances:
    for distance, (right, pixels) in zip(cfg.distances, totals['distant_BK2'].sum(axis=0), strict=True):
      metrics[f'accuracy_beyond_{distance:g}'] = mean((right, pixels))
  if cfg.classes <= MOST_BY_CLASS:
    metrics |= {f'iou_class_{c}': float(iou_C[c]) for c in np.flatnonzero(~np.isnan(iou_C))}
  return metrics


def by_class(cfg: Config, totals: Mapping[str, Any], names: Sequence[str] | None) -> dict[str, list[float]]:
  """Return {class: (right, predicted, true)} in pixels, of the classes that are measured."""
  areas_C3 = totals['areas_BC3'].sum(axis=0)
  counts = row_objective.named(areas_C3.tolist(), names)
  return dict(list(counts.items())[int(cfg.background == 'out') :])


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: scales, mirrored images and the background."""
  del batches
  words, background = [], ['without background'] * (cfg.background == 'out')
  if cfg.window:
    if getattr(data.batching, 'evaluation', '') != 'windows':
      return background
    words = [f'windows of {cfg.window} pixels at a longer side of {cfg.sampling.base} pixels']
  words += [f'scales {", ".join(f"{scale:g}" for scale in cfg.scales)}'] if cfg.scales != (1.0,) else []
  return words + ['mirrored too'] * cfg.flip + background


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch of images of `length` x `length` pixels."""
  leaf = lambda dtype, *sizes: jax.ShapeDtypeStruct((batch_size, *sizes), dtype)
  distance = {'distance_BYX': leaf(jnp.float32, length, length)} if cfg.distances else {}
  return {
    'images_BYXC': leaf(jnp.uint8, length, length, 3),
    'labels_BYX': leaf(jnp.int32, length, length),
    'row_weights_B': leaf(jnp.float32),
  } | distance
