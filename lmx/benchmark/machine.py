"""Machine limits for comparison with other rows: a plain matrix product, and a memory copy.

`product` multiplies two matrices of 2,048 x 2,048 in float32. A training step cannot exceed its rate, so a step's
GFLOP/s divided by this row's is the share of the machine that it uses. `copy` adds 1 to 256 MB; bytes read and written
both count. It limits work that reads all parameters for a few tokens, such as generation. XLA and PyTorch alternate;
PyTorch reuses its output array.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from lmx import host
from lmx.benchmark import row
from lmx.benchmark.peer import Peer

PACKAGES = ('torch',)
PRESETS = {'product': 2048, 'copy': 64_000_000}  # width; elements
_REPEATS = 5  # repetitions per round, whose median counts


def work(name: str) -> float:
  """Return the operations of a product, or the bytes that a copy reads and writes, in units of 1e9."""
  size = PRESETS[name]
  return 2 * size**3 / 1e9 if name == 'product' else 2 * 4 * size / 1e9


def measure(name: str, rounds: int, python: str | None) -> list[row.Row]:
  """Return the row of a preset, in GFLOP/s or GB/s."""
  ours: list[float] = []
  theirs: list[float] = []
  with contextlib.ExitStack() as stack:
    peer = stack.enter_context(Peer(python)) if python else None
    about = peer.send({'kind': name, 'D': PRESETS[name], 'threads': host.cores()}) if peer else None
    run = _xla(name)
    for _ in range(2):  # not counted
      run()
      if peer:
        peer.send({'steps': 1})
    for _ in range(rounds):
      ours.append(work(name) / _median([run() for _ in range(_REPEATS)]))
      if peer:
        theirs.append(work(name) / _median(peer.send({'steps': _REPEATS})['seconds']))
    peaks = host.process_peak(), peer.peak_bytes if peer else None
  unit = 'GFLOP/s' if name == 'product' else 'GB/s'
  return [row.make(name, unit, ours, theirs, peaks=peaks, peer=about)]


def _median(values: list[float]) -> float:
  return row.spread(values)['median']


def _xla(name: str) -> Callable[[], float]:
  """Return a function that does it once and returns the seconds."""
  from lmx.engine import peaks

  size = PRESETS[name]
  if name == 'product':
    return peaks.timed(lambda x: x @ x, (size, size))
  return peaks.timed(lambda x: x + 1.0, (size,))
