"""Patterns of keys against the sets that they stand for, and their names."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.kernels import patterns


@pytest.mark.parametrize('stride,summary,start', [(8, 4, 2), (6, 3, 3), (8, 1, 7)])
def test_summaries_are_the_columns_of_every_block(stride, summary, start):
  T, blocks = 4 * stride, 4  # noqa: N806
  column = np.array([j * stride + start + i for j in range(blocks) for i in range(summary)])
  query, key = np.arange(T)[:, None], np.arange(blocks * summary)[None]
  found = patterns.Summaries(stride, summary, start)(query, key)
  np.testing.assert_array_equal(found[start:], (column <= query)[start:])
  np.testing.assert_array_equal(found[:start], np.broadcast_to(key == 0, found.shape)[:start])
  merged = patterns.BlockAndSummaries(stride, summary, blocks)(query, np.arange(blocks * summary + T)[None])
  position = np.arange(T)[None]
  own = (position // stride == query // stride) & (position <= query)
  earlier = column // stride < query // stride
  np.testing.assert_array_equal(merged, np.concatenate([earlier, own], axis=1))


@pytest.mark.parametrize(
  'pattern', [patterns.Compressed(3), patterns.Summaries(8, 4, 2), patterns.BlockAndSummaries(6, 3, 4)]
)
def test_named_patterns_are_complete_and_causal(pattern):
  assert patterns.parse(f'jit(step)/{patterns.name(pattern)}/splash_mha_fwd') == pattern
  assert patterns.parse('jit(step)/causal_attention/splash_mha_fwd') is None
  seen = pattern(np.arange(24)[:, None], np.arange(60)[None])
  for end in (1, 7, 24):
    assert not seen[:end, pattern.keys(end) :].any()
