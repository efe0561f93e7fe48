"""word2vec updates compiled by Numba (lmx/kernels/native), for one CPU, with the extra `lmx[numba]`.

XLA runs an update as about 90 operations of a few microseconds each. Here all updates of a batch are one operation,
whose threads share the rows of an update. Losses and gradients are as in lmx/objectives/skipgram.py, and
updates as in lmx/engine/sparse_step.py; the tests compare both.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError
from lmx.kernels import devices, native
from lmx.types import Array, Batch

_LANES = 16  # float32 values in a processor's widest vector
_ARRAYS = {
  False: ('tokens_BJS', 'documents_BJS', 'window_BJT', 'negatives_BJM', 'weights_BJM'),
  True: ('tokens_BJS', 'documents_BJS', 'window_BJT', 'top_BJTR', 'path_BJM', 'owner_BJM', 'sign_BJM'),
}


def settle(cfg: Any) -> Any:
  """Return a Config with `update_kernel` resolved: 'numba' if this machine has it, else 'xla'."""
  kernel = 'numba' if native.is_installed() else 'xla'
  return dataclasses.replace(cfg, update_kernel=kernel) if cfg.update_kernel == 'auto' else cfg


def choose(cfg: Any, batch: Batch) -> Callable[..., Any] | None:
  """Return `apply` if this machine can compute a batch's updates with it, else None.

  It needs one CPU, float32, and shared noise words or a tree.

  Raises:
    InputError: it is configured, and Numba is missing.
  """
  is_possible = devices.is_one_device('cpu') and cfg.dtype == 'float32' and 'pair_negatives_BJTWK' not in batch
  if settle(cfg).update_kernel == 'xla' or not is_possible:
    return None
  if not native.is_installed():
    raise InputError(
      'model.update_kernel: got "numba"; expected Numba to be installed; pip install "lmx[numba]", or, for other '
      'rounding from here on, set model.update_kernel=xla'
    )
  return apply


@functools.cache
def _register(tree: bool) -> str:
  from lmx.kernels.native import frame

  module = frame.operations('hierarchical_softmax' if tree else 'negative_sampling')
  frame.register(module.SYMBOL, module.operation)
  return str(module.SYMBOL)


def apply(cfg: Any, tables: dict[str, Array], batch: Batch, lr: Array) -> tuple[dict[str, Array], dict[str, Array]]:
  """Apply a batch's updates in order, up to the first with a non-finite loss.

  Args:
    cfg: the model's Config.
    tables: 'embed/table' and 'output/table', (V, D), updated in place where XLA can.
    batch: arrays of lmx/data/batching/skipgrams.py.
    lr: the rate.

  Returns:
    (tables, {'loss': sum of the losses, 'uses': number of pairs or centres, 'norm': of the gradient of the first
    update's rows, 'finite': True if all losses were}).
  """
  is_tree = 'top_BJTR' in batch
  inputs = [batch[name] for name in _ARRAYS[is_tree]]
  B, D = inputs[0].shape[0], tables['embed/table'].shape[-1]
  is_cbow = cfg.architecture == 'cbow'
  # A CBOW centre has few scores: with a tree, two threads were no faster, and slower while batches are built.
  threads = 1 if is_cbow and is_tree else native.count_threads(B)
  flags = jnp.array([is_cbow, cfg.cbow_gradient == 'mean', threads], jnp.int32)
  shapes = [jax.ShapeDtypeStruct(table.shape, table.dtype) for table in tables.values()]
  shapes += [jax.ShapeDtypeStruct((B, 5), jnp.float32), *_memory(batch, -(-D // _LANES) * _LANES)]
  call = jax.ffi.ffi_call(_register(is_tree), shapes, input_output_aliases={0: 0, 1: 1})
  embed, output, sums_B5, *_ = call(
    tables['embed/table'], tables['output/table'], *inputs, flags, jnp.reshape(lr, (1,))
  )
  _, loss, uses, squares, finite = jnp.sum(sums_B5, axis=0)
  sums = {'loss': loss, 'uses': uses, 'norm': jnp.sqrt(squares), 'finite': finite > 0}
  return {'embed/table': embed, 'output/table': output}, sums


def _memory(batch: Batch, W: int) -> list[jax.ShapeDtypeStruct]:
  """Return the shapes of the workspace that an update's threads share, which XLA allocates."""
  B, _, S = batch['tokens_BJS'].shape
  T = batch['window_BJT'].shape[-1]
  sizes: list[tuple[int, ...]]
  if 'top_BJTR' in batch:
    L = T * batch['top_BJTR'].shape[-1] + batch['path_BJM'].shape[-1]
    sizes, numbers = [(B, S, W), (B, S, W), (B, L * (S - T + 1) + 3)], [(B, L), (B, T), (2 * B, T)]
  else:
    sizes, numbers = [(B, S, W), (B, T, W), (B, batch['negatives_BJM'].shape[-1], W)], []
  return [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes] + [
    jax.ShapeDtypeStruct(size, jnp.int32) for size in numbers
  ]
