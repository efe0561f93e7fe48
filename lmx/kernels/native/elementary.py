"""Elementary functions without a processor instruction, and the compiler options of loops.

Sums may be reordered and products contracted; NaN and infinities keep their meaning.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from lmx.kernels.native.frame import ENTRY, OPTIONS

COMPILED = ENTRY | {'fastmath': {'contract', 'reassoc', 'nsz'}}  # of cfunc
# Of njit. A separately named function would be compiled twice, alone and inlined in its caller. Their summation orders
# may differ, and which one runs would depend on Numba's cache.
FAST = COMPILED | OPTIONS | {'inline': 'always'}
# Of njit, for elementwise functions: without a sum to reorder, they give the same bits wherever they are compiled.
SINGLE: dict[str, Any] = OPTIONS | {'fastmath': {'contract', 'nsz'}}


@njit(**FAST)
def exp(x: Any) -> Any:
  """Return e^x of x from -87 to 0, to 1e-7: 2^n times a polynomial (Cephes's expf)."""
  n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
  r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
  p = np.float32(1.9875691500e-4)
  p = p * r + np.float32(1.3981999507e-3)
  p = p * r + np.float32(8.3334519073e-3)
  p = p * r + np.float32(4.1665795894e-2)
  p = p * r + np.float32(1.6666665459e-1)
  p = p * r + np.float32(5.0000001201e-1)
  return (p * r * r + r + np.float32(1)) * np.int32((np.int32(n) + 127) << 23).view(np.float32)


@njit(**FAST)
def sigmoid(x: Any) -> Any:
  """Return 1 / (1 + e^-x), and NaN of NaN."""
  size = abs(x)
  e = exp(-min(size, np.float32(87))) if size < np.float32(87) else np.float32(0)
  share = np.float32(1) / (np.float32(1) + e)
  return share if x >= 0 else (e * share if x < 0 else x)


@njit(**FAST)
def tanh(x: Any) -> Any:
  """Return the hyperbolic tangent, to 1e-7 of itself: an odd polynomial near 0 (Cephes's tanhf), else by e^(-2 |x|).

  NaN of NaN.
  """
  size = abs(x)
  e = exp(-min(size + size, np.float32(87)))
  far = (np.float32(1) - e) / (np.float32(1) + e)
  q = x * x
  p = np.float32(-5.70498872745e-3)
  p = p * q + np.float32(2.06390887954e-2)
  p = p * q + np.float32(-5.37397155531e-2)
  p = p * q + np.float32(1.33314422036e-1)
  p = p * q + np.float32(-3.33332819422e-1)
  return x + x * q * p if size < np.float32(0.625) else (far if x > 0 else (-far if x < 0 else x))
