"""Next-sentence prediction: head and loss shared by the objectives on rows of two segments.

Devlin et al. 2019, arXiv 1810.04805, section 3.1, task 2. Label 0: B follows A; label 1: B is a random segment,
as in the released code of BERT.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.metrics.metric import Metric
from lmx.types import Array, Batch, Params

ACCURACY = Metric('nsp_accuracy', True, '.1%')
SHAPES = {'next_B': jnp.int32, 'row_weights_B': jnp.float32}  # batch keys that it reads


def init(D: int, std: float, key: Array) -> Params:
  """Initialise the head: 'kernel' (D, 2), normal with `std`, truncated at two deviations, and 'bias' (2,), zeros."""
  kernel = std * jax.random.truncated_normal(key, -2.0, 2.0, (D, 2), jnp.float32)
  return {'kernel': kernel, 'bias': jnp.zeros(2, jnp.float32)}


def weight(batch: Batch) -> Array:
  """Return the number of rows."""
  return jnp.sum(batch['row_weights_B'], dtype=jnp.float32)


def logits(head: Params, x_BD: Array) -> Array:
  """Return the logits, (B, 2) float32, from a vector for each row."""
  return x_BD.astype(jnp.float32) @ head['kernel'] + head['bias']


def loss(logits_B2: Array, batch: Batch, *, measure: bool) -> tuple[Array, dict[str, tuple[Array, Array]]]:
  """Return (summed negative log-likelihood of the labels in nats, metrics 'nsp' and with `measure` 'nsp_accuracy')."""
  rows, count = batch['row_weights_B'], weight(batch)
  log_p_B = jnp.take_along_axis(jax.nn.log_softmax(logits_B2), batch['next_B'][:, None], 1)[:, 0]
  total = -jnp.sum(log_p_B * rows, dtype=jnp.float32)
  metrics = {'nsp': (total, count)}
  if measure:
    metrics['nsp_accuracy'] = (jnp.sum((jnp.argmax(logits_B2, -1) == batch['next_B']) * rows), count)
  return total, metrics
