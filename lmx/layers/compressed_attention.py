"""Causal self-attention for long texts (Liu et al. 2018, arXiv 1801.10198, section 4.2.3).

Both modules replace a `block.Block`'s self-attention (`attention=...`), with the same
arguments.

- `LocalAttention`: the text is divided into blocks of `window` tokens, and a token attends to earlier tokens of its own
  block. Time and memory are linear in the length of the text, not quadratic.
- `CompressedAttention`: a convolution of width and stride `stride` compresses the keys and values of each block of
  tokens into one. The first token is also a key uncompressed, so that every query has a key. Token t attends to it
  and to every block that ends before t (tensor2tensor: the last token of a block does not attend to the block).
  Incomplete blocks have no key.

The convolution is linear, so a block's cache entry is a sum to which each token adds its term.
"""

from __future__ import annotations

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx.layers.kv_cache import Cache, write
from lmx.layers.transformer import SelfAttention
from lmx.ops import attention
from lmx.ops.masks import AttentionMask
from lmx.ops.patterns import Compressed
from lmx.types import Array, record_attention


class LocalAttention(SelfAttention):
  """Causal attention inside blocks of `window` tokens; the cache is (keys, values), each (B, length, H, K)."""

  window: int = 256

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: AttentionMask, cache: Cache | None, position_BT: Array | None, key: Array | None
  ) -> tuple[Array, Cache | None]:
    B, T, D = x_BTD.shape
    H, K, W = self.heads, D // self.heads, self.window
    q_BTHK, k_BSHK, v_BSHK = self.project_qkv(x_BTD)
    attend = functools.partial(attention.attend, causal=self.causal, backend=self.backend, rate=self.rate, key=key)
    if cache is not None and position_BT is not None:
      cache = write(cache, k_BSHK, v_BSHK, position_BT)
      block_BS = jnp.broadcast_to(jnp.arange(cache[0].shape[1], dtype=jnp.int32) // W, (B, cache[0].shape[1]))
      mask = AttentionMask(position_BT, position_BT // W, block_BS)
      o_BTHK = attend(q_BTHK, *cache, mask)
    else:  # padding is on the right, so no real token attends to it
      block_1T = jnp.arange(T)[None] // W
      block_mask = AttentionMask(None, block_1T, block_1T)
      record_attention('self', lambda: attention.probabilities(q_BTHK, k_BSHK, block_mask, self.causal))
      blocks = -(-T // W)
      width = T if blocks == 1 else W
      pad = lambda x_BTHK: jnp.pad(x_BTHK, ((0, 0), (0, blocks * width - T), (0, 0), (0, 0)))
      q, k, v = (pad(x_BTHK).reshape(B * blocks, width, H, K) for x_BTHK in (q_BTHK, k_BSHK, v_BSHK))
      o_BTHK = attend(q, k, v, AttentionMask()).reshape(B, blocks * width, H, K)[:, :T]
    return self.project((H, K), (D,), residual=True, name='out')(o_BTHK), cache


class CompressedAttention(SelfAttention):
  """Attention to compressed keys and values; the cache has both, each (B, `slots(length, stride)`, H, K).

  Attributes:
    stride: number of tokens compressed into one.
    compress: 'keys' compresses keys and values, each with its own kernel (paper); 'input' compresses their common
      input, with one kernel (tensor2tensor).
  """

  stride: int = 3
  compress: str = 'keys'

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: AttentionMask, cache: Cache | None, position_BT: Array | None, key: Array | None
  ) -> tuple[Array, Cache | None]:
    del mask  # padding is on the right, so no real token attends to it
    B, T, D = x_BTD.shape
    H, K, R = self.heads, D // self.heads, self.stride
    q_BTHK = self.project((D,), (H, K), name='q')(x_BTD)
    project_kv = self.project((D,), (2, H, K), fused=2, name='kv')
    to_kv = lambda x: jnp.stack(project_kv(x), axis=2)
    parts = 2 if self.compress == 'keys' else 1
    kernel_CRDE = self.param('kernel', self._draw, (parts, R, D, D)).astype(x_BTD.dtype)
    bias_CE = self.param('bias', nn.initializers.zeros, (parts, D)).astype(x_BTD.dtype)

    def finish(y_BJCE: Array) -> Array:
      """Return the keys and values (B, J, 2, H, K) from the output of the convolution."""
      return y_BJCE.reshape(*y_BJCE.shape[:2], 2, H, K) if self.compress == 'keys' else to_kv(y_BJCE[:, :, 0])

    kv_BTCHK = to_kv(x_BTD)
    in_BTCD = kv_BTCHK.reshape(B, T, 2, D) if self.compress == 'keys' else x_BTD[:, :, None]
    if cache is not None and position_BT is not None:
      every_BTRCE = jnp.einsum('BTCD,CRDE->BTRCE', in_BTCD, kernel_CRDE)
      place_BT111 = (position_BT % R)[..., None, None, None]
      part_BTCE = jnp.take_along_axis(every_BTRCE, place_BT111, axis=2)[:, :, 0]
      part_BTCHK = finish(part_BTCE) - finish(jnp.zeros_like(part_BTCE))  # without the biases
      cache = _add(cache, part_BTCHK, position_BT // R + 1)
      cache = _add(cache, kv_BTCHK, jnp.where(position_BT == 0, 0, cache[0].shape[1]))
      constant_CHK = finish(bias_CE[None, None])[0, 0]  # the bias term of every block
      is_block_1S11 = (jnp.arange(cache[0].shape[1]) > 0)[None, :, None, None]
      k_BSHK, v_BSHK = (x + jnp.where(is_block_1S11, constant_CHK[c], 0) for c, x in enumerate(cache))
    else:
      n_blocks = T // R  # incomplete blocks are not attended to
      in_BJRCD = in_BTCD[:, : n_blocks * R].reshape(B, n_blocks, R, parts, D)
      y_BJCE = jnp.einsum('BJRCD,CRDE->BJCE', in_BJRCD, kernel_CRDE) + bias_CE[None, None]
      kv_BSCHK = jnp.concatenate([kv_BTCHK[:, :1], finish(y_BJCE)], axis=1)
      k_BSHK, v_BSHK = kv_BSCHK[:, :, 0], kv_BSCHK[:, :, 1]
    # Block j - 1 is in slot j; it ends before t if j R <= t.
    mask = AttentionMask(position_BT if cache is not None else None, pattern=Compressed(R))
    record_attention('self', lambda: attention.probabilities(q_BTHK, k_BSHK, mask, causal=True))
    o_BTHK = attention.attend(q_BTHK, k_BSHK, v_BSHK, mask, causal=True, backend=self.backend, rate=self.rate, key=key)
    return self.project((H, K), (D,), residual=True, name='out')(o_BTHK), cache

  def _draw(self, key: Array, shape: tuple[int, ...]) -> Array:
    """Sample Glorot-uniform weights of shape (parts, R, D, E), with fan-in R D and fan-out R E."""
    limit = math.sqrt(6 / (shape[1] * (shape[2] + shape[3])))
    return jax.random.uniform(key, shape, jnp.float32, -limit, limit)


def slots(length: int, stride: int) -> int:
  """Return the cache length for `length` tokens: the first token, and one slot per `stride`; the last may be
  partial."""
  return 1 + -(-length // stride)


def _add(cache: Cache, kv_BTCHK: Array, slot_BT: Array) -> Cache:
  """Add to keys and values at their slots; slots beyond the end are dropped."""
  b_B1 = jnp.arange(slot_BT.shape[0])[:, None]
  put = lambda old, new: old.at[b_B1, slot_BT].add(new.astype(old.dtype), mode='drop')
  return put(cache[0], kv_BTCHK[:, :, 0]), put(cache[1], kv_BTCHK[:, :, 1])
