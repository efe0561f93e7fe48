"""Attention on a TPU by the splash kernel of JAX (jax.experimental.pallas.ops.tpu.splash_attention).

It stores no (T, S) array: scores are computed block by block, and blocks without an unmasked score are skipped (Dao et
al. 2022, arXiv 2205.14135). Groups of `AttentionMask` are its segment ids, and its pattern is computed in the kernel.
Lengths are padded to whole blocks; padding keys are a separate group or outside the pattern. Under `shard_map` each
device runs it on its own rows and heads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as splash_mask
from jax.sharding import PartitionSpec

from lmx import placement
from lmx.kernels import patterns
from lmx.kernels.score_rows import LANES, pad_group
from lmx.ops.patterns import Pattern
from lmx.types import Array

BLOCK = 512
BACKWARD_BLOCK = 1024
FUSED = 4  # key blocks per kernel, which stores one partial query gradient for each
CAUSAL = 'causal_attention'  # name of the calls


def attention(
  q_BTHK: Array,
  k_BSHK: Array,
  v_BSHK: Array,
  mask: Any,
  *,
  causal: bool,
  interpret: bool = False,
) -> Array:
  """Return `lmx.ops.attention.attend` without dropout.

  Args:
    q_BTHK: queries, at positions 0 .. T-1.
    k_BSHK: keys, at positions 0 .. S-1.
    v_BSHK: values.
    mask: groups and pattern, see `lmx.ops.masks.AttentionMask`.
    causal: mask keys after the query.
    interpret: run on any platform, slowly.
  """
  (B, T, _, K), S = q_BTHK.shape, k_BSHK.shape[1]
  q_block, k_block = _block(T), _block(S)
  q_more, k_more = -T % q_block, -S % k_block
  query_group_BT, key_group_BS, pattern = mask.query_group_BT, mask.key_group_BS, mask.pattern if causal else None
  is_padding_visible = k_more and not causal or T != S and pattern is None and (q_more or k_more)
  if query_group_BT is None and is_padding_visible:
    query_group_BT, key_group_BS = jnp.zeros((1, T), jnp.int32), jnp.zeros((1, S), jnp.int32)
  groups: tuple[Array, ...] = ()
  if query_group_BT is not None and key_group_BS is not None:
    groups = pad_group(query_group_BT, B, q_more), pad_group(key_group_BS, B, k_more)
  heads_first = lambda x, n: jnp.pad(x, ((0, 0), (0, n), (0, 0), (0, 0))).swapaxes(1, 2)
  arrays = (heads_first(q_BTHK * K**-0.5, q_more), heads_first(k_BSHK, k_more), heads_first(v_BSHK, k_more))
  o_BHTK = _sharded(functools.partial(_kernel, causal, pattern, (q_block, k_block), interpret), arrays, groups)
  return o_BHTK.swapaxes(1, 2)[:, :T]


def _block(length: int) -> int:
  """Return the number of positions of a block."""
  return min(BLOCK, -(-length // LANES) * LANES)


def _backward_block(length: int, block: int) -> int:
  """Return the backward pass's key block size, a divisor of the length.

  It writes the queries' gradient once for each such block and then sums them, so the block is as large as fits.
  """
  return max(n for n in range(block, min(BACKWARD_BLOCK, length) + 1, block) if length % n == 0)


class PatternMask(splash_mask.Mask):
  """A `Pattern` as a mask that the kernel computes, of positions 0 .. T-1 and S keys."""

  def __init__(self, pattern: Pattern, shape: tuple[int, int]):
    self.mask_function, self._shape = pattern, shape
    self.q_sequence = np.arange(shape[0], dtype=np.int32)

  @property
  def shape(self) -> tuple[int, ...]:
    """(T, S)."""
    return self._shape

  def __getitem__(self, slices: Any) -> np.ndarray:
    queries, keys = (np.arange(n, dtype=np.int32)[part] for n, part in zip(self._shape, slices, strict=True))
    return np.asarray(self.mask_function(queries[:, None], keys[None]))

  def __eq__(self, other: object) -> bool:
    return isinstance(other, PatternMask) and hash(self) == hash(other)

  def __hash__(self) -> int:
    return hash((patterns.name(self.mask_function), self._shape))


def _kernel(
  causal: bool,
  pattern: Pattern | None,
  blocks: tuple[int, int],
  interpret: bool,
  arrays: tuple[Array, ...],
  groups: tuple[Array, ...],
) -> Array:
  """Return one device's output, (B, H, T, K)."""
  q_BHTK, k_BHSK, _ = arrays
  shape = q_BHTK.shape[2], k_BHSK.shape[2]
  mask: splash_mask.Mask = splash_mask.CausalMask(shape) if causal else splash_mask.FullMask(shape)
  if pattern is not None:
    mask = PatternMask(pattern, shape)
  q_block, k_block = blocks
  # Positions are the minor axis of its operands, so heads narrower than the lanes are not padded.
  layout = splash.QKVLayout.SEQ_MINOR
  backward_block = _backward_block(shape[1], k_block)
  fused = shape[1] <= FUSED * backward_block
  kernel = splash.make_splash_mha_single_device(
    mask=splash_mask.MultiHeadMask([mask] * q_BHTK.shape[1]),
    block_sizes=splash.BlockSizes(
      block_q=q_block,
      block_kv=k_block,
      block_q_dkv=q_block,
      block_kv_dkv=backward_block,
      block_kv_dkv_compute=k_block,
      block_q_dq=None if fused else q_block,
      block_kv_dq=None if fused else k_block,
      use_fused_bwd_kernel=fused,
      q_layout=layout,
      k_layout=layout,
      v_layout=layout,
    ),
    residual_checkpoint_name='BTHK',  # so that a policy that saves the output also saves its gradient's residuals
    interpret=interpret,
  )
  run = lambda arrays, groups: kernel(*arrays, splash.SegmentIds(*groups) if groups else None)
  scope = CAUSAL if causal else 'full_attention'
  with jax.named_scope(scope if pattern is None else patterns.name(pattern)):
    return jax.vmap(run)(arrays, groups)


def operations(op_name: str, shapes: Sequence[tuple[int, ...]]) -> float:
  """Return the operations of one kernel call, over the blocks that it computes.

  Args:
    op_name: name of the call in a compiled program, with those of the functions around it.
    shapes: shapes of its operands of floating point, first queries and keys (B, H, K, T), without B if it is 1.
  """
  (*heads, K, T), (*_, S) = shapes[:2]
  q_block, k_block = _block(T), _block(S)
  backward_block = _backward_block(S, k_block)
  products = 2  # of a score, forward: q k, p v; backward q k, dp, and those of the gradients that the kernel computes
  if 'splash_mha_dkv' in op_name:
    products, k_block = 5 if S <= FUSED * backward_block else 4, backward_block
  elif 'splash_mha_dq' in op_name:
    products = 3
  pattern: Any = patterns.parse(op_name)
  blocks = _blocks(pattern, CAUSAL in op_name, (T, S), (q_block, k_block))
  return 2.0 * products * math.prod(heads) * K * blocks * q_block * k_block


@functools.cache
def _blocks(pattern: Any, causal: bool, shape: tuple[int, int], block: tuple[int, int]) -> int:
  """Return the number of blocks with an unmasked score."""
  starts = [(q, k) for q in range(0, shape[0], block[0]) for k in range(0, shape[1], block[1])]
  if pattern is None:
    return sum(k < q + block[0] or not causal for q, k in starts)
  mask = PatternMask(pattern, shape)
  return sum(bool(mask[q : q + block[0], k : k + block[1]].any()) for q, k in starts)


def _sharded(function: Any, arrays: tuple[Array, ...], groups: tuple[Array, ...]) -> Array:
  """Run `function(arrays, groups)` on each device's shard of rows and heads."""
  where = placement.current()
  if where is None or where.mapped or where.devices == 1:
    return function(arrays, groups)
  spec = where.spec(arrays[0].shape, 'BH')
  specs = (spec,) * 3, tuple(PartitionSpec(spec[0]) for _ in groups)
  return jax.shard_map(function, mesh=where.mesh, in_specs=specs, out_specs=spec, check_vma=False)(arrays, groups)
