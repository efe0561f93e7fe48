"""Signals that end training: the first lets the current update finish and the run save, a second Ctrl-C exits at once.

SIGTERM (a scheduler, `kill`) and SIGHUP (a closed terminal, a lost ssh) are the same; under nohup SIGHUP is ignored.

Python runs no signal handlers while XLA compiles or computes. A thread therefore reads the signals from the wake-up
descriptor, so that the first Ctrl-C gets a message, and the second takes effect, at any moment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import jax
from jax.experimental import multihost_utils

PREEMPTED = 75  # exit code: stopped by SIGTERM or SIGHUP after saving; start the same command again
INTERRUPTED = 130  # exit code: stopped by Ctrl-C
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
  """SIGTERM or SIGHUP arrived when nothing was left to save."""


def _tell(message: str) -> None:
  with contextlib.suppress(OSError, ValueError):  # standard error is gone or closed
    print(message, file=sys.stderr, flush=True)


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

  def __enter__(self) -> Stop:
    if threading.current_thread() is not threading.main_thread():
      return self
    hangup = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)  # ignored under nohup
    if jax.process_count() > 1:
      self._before = {number: signal.signal(number, _pass_on) for number in hangup}
      return self
    self._before = {number: signal.signal(number, self._handle) for number in (*_SIGNALS, *hangup)}
    if self._describe_checkpoint is not None:
      ours, self._writer = socket.socketpair()
      self._writer.setblocking(False)
      self._descriptor = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
      threading.Thread(target=self._watch, args=(ours, self._describe_checkpoint), daemon=True).start()
    return self

  def __exit__(self, *_: Any) -> None:
    if signal.SIGTERM in self._before and self._describe_checkpoint is not None:
      signal.set_wakeup_fd(self._descriptor)
      self._writer.close()  # ends the thread
    for number, handler in self._before.items():
      signal.signal(number, handler)
    self._before = {}

  def _handle(self, number: int, *_: Any) -> None:
    if self._saved or number == self._signal == signal.SIGINT:
      raise KeyboardInterrupt if number == signal.SIGINT else Stopped
    self._signal = self._signal or number

  def saved(self) -> None:
    """Mark the run as saved: any signal, including one already received, now raises KeyboardInterrupt or Stopped."""
    self._saved = True
    if self._signal:
      self._handle(self._signal)

  def _watch(self, ours: socket.socket, describe_checkpoint: Callable[[], str]) -> None:
    """Print a message at the first Ctrl-C and exit at the second."""
    count = 0
    with ours:
      while number := ours.recv(1):
        count += number[0] == signal.SIGINT
        if count > 1:
          _tell(f'\nlmx: interrupted; {describe_checkpoint()}')
          os._exit(INTERRUPTED)
        if number[0] == signal.SIGINT and not self._saved:
          _tell('\nlmx: saving after the current update; Ctrl-C again exits at once')

  def requested(self, done: int) -> bool:
    """Return True once a signal has arrived; several processes agree on a step that all of them reach."""
    if jax.process_count() > 1:
      return multihost_utils.reached_preemption_sync_point(done)
    return bool(self._signal)

  @property
  def code(self) -> int:
    """Exit code of a run that was stopped by a signal and has saved."""
    return INTERRUPTED if self._signal == signal.SIGINT else PREEMPTED
