"""Bilinear interpolation against numbers of PyTorch 2.13, and against PyTorch where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.layers import interpolation

MAP_YX = np.array([[1.0, 4.0, 2.0], [3.0, 0.0, 5.0]], np.float32)
THIRD = 5 / 3
PRINTED = {  # torch.nn.functional.interpolate(mode='bilinear')
  (True, (3, 5)): [1, 2.5, 4, 3, 2, 2, 2, 2, 2.75, 3.5, 3, 1.5, 0, 2.5, 5],
  (True, (1, 2)): [1, 2],
  (True, (4, 3)): [1, 4, 2, THIRD, 8 / 3, 3, 7 / 3, 4 / 3, 4, 3, 0, 5],
  (False, (3, 5)): [1, 2.2, 4, 2.8, 2, 2, 2, 2, 2.9, 3.5, 3, 1.8, 0, 3, 5],
  (False, (1, 2)): [2, 3.125],
  (False, (4, 3)): [1, 4, 2, 1.5, 3, 2.75, 2.5, 1, 4.25, 3, 0, 5],
}


@pytest.mark.parametrize('align_corners,size', PRINTED)
def test_interpolation_matches_torch(align_corners, size):
  found = interpolation.bilinear(MAP_YX[None, :, :, None], size, align_corners=align_corners)
  np.testing.assert_allclose(np.ravel(found), PRINTED[align_corners, size], rtol=1e-6)


def test_interpolation_to_the_same_size_is_identity():
  x_BYXC = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
  found = interpolation.bilinear(x_BYXC, (7, 9), align_corners=True)
  one = interpolation.bilinear(x_BYXC[1:, ..., 2:3], (7, 9), align_corners=True)
  np.testing.assert_allclose(found[1:, ..., 2:3], one, rtol=1e-6)
  assert found.shape == (2, 7, 9, 5) and interpolation.bilinear(x_BYXC, (3, 4), align_corners=True) is x_BYXC


@pytest.mark.peer
@pytest.mark.parametrize('align_corners', [True, False])
def test_outputs_match_torch(align_corners):
  torch = pytest.importorskip('torch')
  x_BYXC = np.random.default_rng(1).normal(size=(2, 12, 7, 3)).astype(np.float32)
  for size in ((96, 50), (12, 3), (5, 13), (1, 1)):
    expected = torch.nn.functional.interpolate(
      torch.from_numpy(x_BYXC).permute(0, 3, 1, 2), size=size, mode='bilinear', align_corners=align_corners
    )
    found = interpolation.bilinear(x_BYXC, size, align_corners=align_corners)
    np.testing.assert_allclose(found, expected.permute(0, 2, 3, 1).numpy(), atol=1e-5)
