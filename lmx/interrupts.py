"""Signals that end training: the first lets the current update finish and the run save, a second Ctrl-C exits at once.

SIGTERM (a scheduler, `kill`) and SIGHUP (a closed terminal, a lost ssh) are handled alike.

Before the first update `lmx.signals` handles them. The first Ctrl-C gets a message, and the second takes effect, at any
moment, also while XLA compiles.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import jax
from jax.experimental import multihost_utils

from lmx import signals


def _pass_on(*_: Any) -> None:
  os.kill(os.getpid(), signal.SIGTERM)


class Stop:
  """Context manager in which SIGTERM, SIGHUP and Ctrl-C request that training save and end.

  With several processes JAX's own service handles SIGTERM, as which SIGHUP is passed on, and Ctrl-C keeps its usual
  meaning.
  """

  def __init__(self, describe_checkpoint: Callable[[], str] | None = None):
    """Create the handler; entering the context installs it.

    Args:
      describe_checkpoint: returns a sentence on the newest checkpoint, shown when a second Ctrl-C ends the process.
        None if the process is not lmx's own, such as a notebook: a second Ctrl-C then raises KeyboardInterrupt.
    """
    self._describe_checkpoint, self._signal, self._saved = describe_checkpoint, 0, False
    self._before: dict[int, Any] = {}
    self._wakeups: signals.Wakeups | None = None
    self._count = 0  # of Ctrl-C

  def __enter__(self) -> Stop:
    if not signals.in_main_thread():
      return self
    if jax.process_count() > 1:
      self._before = {number: signal.signal(number, _pass_on) for number in signals.heeded(signal.SIGHUP)}
      return self
    owners = [getattr(signal.getsignal(number), '__self__', None) for number in (*signals.TERMINATE, signal.SIGINT)]
    heeded = signals.heeded(*signals.TERMINATE, signal.SIGINT)
    self._before = {number: signal.signal(number, self._handle) for number in heeded}
    if self._describe_checkpoint is not None:
      self._wakeups = signals.Wakeups(self._received)
    for start_up in owners:
      if isinstance(start_up, signals.StartUp):
        self._signal = self._signal or start_up.hand_over()
    return self

  def __exit__(self, *_: Any) -> None:
    if self._wakeups is not None:
      self._wakeups.close()
      self._wakeups = None
    for number, handler in self._before.items():
      signal.signal(number, handler)
    self._before = {}

  def _handle(self, number: int, *_: Any) -> None:
    if self._saved or number == self._signal == signal.SIGINT:
      raise KeyboardInterrupt if number == signal.SIGINT else signals.Stopped
    self._signal = self._signal or number

  def saved(self) -> None:
    """Mark the run as saved: any signal, including one already received, now raises KeyboardInterrupt or Stopped."""
    self._saved = True
    if self._signal:
      self._handle(self._signal)

  def _received(self, number: int) -> None:
    """Print a message at the first Ctrl-C and exit at the second."""
    self._count += number == signal.SIGINT
    if self._count > 1 and self._describe_checkpoint is not None:
      signals.tell(f'\nlmx: interrupted; {self._describe_checkpoint()}')
      os._exit(signals.INTERRUPTED)
    if number == signal.SIGINT and not self._saved:
      signals.tell('\nlmx: saving after the current update; Ctrl-C again exits at once')

  def requested(self, done: int) -> bool:
    """Return True once a signal has arrived; several processes agree on a step that all of them reach."""
    if jax.process_count() > 1:
      return multihost_utils.reached_preemption_sync_point(done)
    return bool(self._signal)

  @property
  def code(self) -> int:
    """Exit code of a run that was stopped by a signal and has saved."""
    return signals.INTERRUPTED if self._signal == signal.SIGINT else signals.PREEMPTED
