"""Softmax over a vocabulary whose output matrix is the embedding (Press & Wolf 2017, arXiv 1608.05859).

Logits and loss are float32: products are in the compute type, accumulated in float32. A vocabulary of V tokens may be
stored with more rows (lmx/layout.py). lmx/kernels/softmax_loss.py computes the loss of many tokens in chunks.
"""

from __future__ import annotations

import jax.numpy as jnp

from lmx.ops import softmax_loss
from lmx.ops.table import product
from lmx.placement import constrain
from lmx.types import Array, Table


def tied_logits(x_BTD: Array, table_VD: Table, bias_V: Array | None = None, *, size: int = 0) -> Array:
  """Return logits x · table + bias, (B, T, V) float32; -inf for padding, the rows of the table from `size` on."""
  y_BTV = constrain(product(constrain(x_BTD, 'B'), table_VD), 'B' + 'T' * (x_BTD.ndim - 2) + 'V')
  if bias_V is not None:
    y_BTV = y_BTV + bias_V.reshape((1,) * (y_BTV.ndim - 1) + (-1,))
  if 0 < size < y_BTV.shape[-1]:
    y_BTV = jnp.where(jnp.arange(y_BTV.shape[-1]) < size, y_BTV, -jnp.inf)
  return y_BTV


def cross_entropy(logits_BTV: Array, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  return softmax_loss.log_normalizer(logits_BTV) - softmax_loss.target_logits(logits_BTV, targets_BT)


def tied_nll(x_BTD: Array, table_VD: Table, targets_BT: Array, bias_V: Array | None = None, *, size: int = 0) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32; `size` as in `tied_logits`."""
  score = lambda x_BMD, targets_BM: cross_entropy(tied_logits(x_BMD, table_VD, bias_V, size=size), targets_BM)
  return softmax_loss.token_losses(score, x_BTD, targets_BT)
