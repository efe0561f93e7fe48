"""Utilisation of a run's devices over the intervals of its log.

Model FLOPs are three times the operations of the forward pass, without recomputation and padding rows (Chowdhery et al.
2022, PaLM, appendix B), as in `lmx bench`. Counting them traces the loss, and a CPU's peak is measured. Both take up to
two seconds, so a session does it once its steps have taken `AFTER` seconds, and short runs do not pay for it.
"""

from __future__ import annotations

import collections
import functools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax

from lmx import host
from lmx.records import Record

AFTER = 10.0
Part = tuple[int, int]  # rows, and positions of a row (the side of an image), that a step computes together
_MOST = ('step_seconds_p99', 'peak_memory_bytes')  # of several records, the largest counts; of other values the median


class Meter:
  """Times and operations of the steps since the last record of a log.

  A step's time is that from its dispatch to the next one's, in which the host waits for the previous step. Steps that
  compile, validate, sample or save have none.
  """

  def __init__(
    self,
    parts: Callable[[Mapping[str, Any]], Iterable[Part]],
    work: Callable[[Part], float],
    peak: Callable[[], float | None],
    chips: int,
  ) -> None:
    """Arrange the counting.

    Args:
      parts: function of a batch on the host to the parts of the step.
      work: function of a part to its model FLOPs.
      peak: function to the FLOP/s of all devices, None if unknown.
      chips: number of chips.
    """
    self.chips = chips
    self._parts, self._work, self._find_peak = parts, functools.cache(work), peak
    self._peak: float | None = None
    self._is_counting = False
    self._seconds: list[float] = []
    self._done: collections.Counter[Part] = collections.Counter()
    self._dispatched: Iterable[Part] = ()
    self._last: float | None = None
    self._trained = 0.0  # seconds of all steps

  def read(self, batch: Mapping[str, Any]) -> None:
    """Take the batch of the step that is dispatched next."""
    self._dispatched = self._parts(batch)

  def step(self, now: float) -> None:
    """Count the dispatched step."""
    if self._last is not None:
      self._seconds.append(now - self._last)
      self._trained += now - self._last
    self._last = now
    self._done.update(self._dispatched)

  def pause(self) -> None:
    """Do not time the step during which this is called."""
    self._last = None

  def restart(self) -> None:
    """Begin the next interval."""
    self._seconds.clear()
    self._done.clear()

  def is_due(self) -> bool:
    """Return whether to call `count`."""
    return not self._is_counting and self._trained >= AFTER

  def count(self) -> None:
    """Find the peak, and count model FLOPs from now on; nothing else may compute."""
    self._is_counting, self._peak = True, self._find_peak()
    for part in self._done:
      self._work(part)

  def values(self, unit: str, rate: float, seconds: float) -> Record:
    """Return the utilisation of the interval.

    Args:
      unit: unit of a position, such as 'tokens'.
      rate: positions a second.
      seconds: length of the interval, without compilation and validation.
    """
    values: Record = {f'{unit}_per_second_per_chip': rate / self.chips, 'peak_memory_bytes': peak_memory()}
    if self._seconds:
      values['step_seconds'] = statistics.fmean(self._seconds)
      values['step_seconds_p99'] = percentile(self._seconds, 0.99)
    if self._is_counting:
      work = sum(steps * self._work(part) for part, steps in self._done.items())
      values['model_flops_per_second'] = work / seconds
      if self._peak:
        values['mfu'] = work / seconds / self._peak
    return values


def percentile(values: Sequence[float], share: float) -> float:
  """Return a percentile, between the two nearest values, as NumPy's, which takes longer for a few of them."""
  ordered, place = sorted(values), share * (len(values) - 1)
  low = int(place)
  return ordered[low] + (place - low) * (ordered[min(low + 1, len(values) - 1)] - ordered[low])


def count_chips(devices: Iterable[Any]) -> int:
  """Return the number of chips of some devices: a TPU chip may have two; the CPUs of a process are one."""
  place = lambda one: (getattr(one, 'slice_index', 0), *one.coords) if one.platform == 'tpu' else one.id
  return len({one.process_index if one.platform == 'cpu' else place(one) for one in devices})


def peak_memory() -> int:
  """Return the peak bytes in use of a local device, the fullest; on a CPU this process's peak."""
  statistics_of = [device.memory_stats() or {} for device in jax.local_devices()]
  peaks = [found['peak_bytes_in_use'] for found in statistics_of if 'peak_bytes_in_use' in found]
  return max(peaks) if peaks else host.process_peak()


def summarize(records: Sequence[Record]) -> Record:
  """Return the utilisation of a run from the records of its log.

  Values are medians of the records that have model FLOPs, of all if none has, so that rate and MFU are of the same
  steps; of 99th percentiles and of peak memory the largest of all.
  """
  training = [record for record in records if record['split'] == 'train']
  counted = [record for record in training if 'model_flops_per_second' in record] or training
  names = [name for name in dict.fromkeys(name for record in training for name in record) if is_rate(name)]
  values = lambda name, of: [record[name] for record in of if name in record]
  middle = lambda name: statistics.median(values(name, counted) or values(name, training))
  return {name: max(values(name, training)) if name in _MOST else middle(name) for name in names}


def is_rate(name: str) -> bool:
  """Return whether a metric of a log's training records is one of utilisation."""
  return name.endswith(('_per_second', '_per_second_per_chip')) or name in ('mfu', 'step_seconds', 'wait_share', *_MOST)
