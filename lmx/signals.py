"""Signals before the first update of a training, when there is nothing to save; `lmx.interrupts` handles later ones.

Python runs no signal handlers while a library computes or compiles. A thread therefore reads the signals from the
wake-up descriptor. A signal that the process ignores since its start stays ignored: SIGHUP under nohup, SIGINT in the
background of a script. No module that imports JAX is imported here, which itself takes a second.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

PREEMPTED = 75  # exit code: stopped by SIGTERM or SIGHUP; start the same command again
INTERRUPTED = 130  # exit code: stopped by Ctrl-C
STOPPED = 'stopped before the first update; the same command starts it again'
TERMINATE = (signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
  """SIGTERM or SIGHUP arrived when nothing was left to save, or a process that the training needs has ended."""


def tell(message: str) -> None:
  """Print a message to standard error, which may be gone."""
  with contextlib.suppress(OSError, ValueError):  # standard error is gone or closed
    print(message, file=sys.stderr, flush=True)


def heeded(*numbers: int) -> list[int]:
  """Return the signals that this process does not ignore."""
  return [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]


def in_main_thread() -> bool:
  """Return True in the thread that runs the handlers of signals."""
  return threading.current_thread() is threading.main_thread()


class Wakeups:
  """Thread that calls `received` with the number of each signal, also while Python runs no handlers."""

  def __init__(self, received: Callable[[int], None]):
    ours, self._writer = socket.socketpair()
    self._writer.setblocking(False)
    self._before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=self._watch, args=(ours, received), daemon=True).start()

  def _watch(self, ours: socket.socket, received: Callable[[int], None]) -> None:
    with ours:
      while number := ours.recv(1):
        received(number[0])

  def close(self) -> None:
    signal.set_wakeup_fd(self._before)
    self._writer.close()  # ends the thread


class StartUp:
  """Context of a command, in which signals end the process outside `Stop`: Ctrl-C with code 130, others with 75.

  The first raises KeyboardInterrupt or Stopped. The process exits at the second, and if the first is without effect
  after some seconds: during a compilation, or because a callback of a library has lost the exception.
  """

  def __init__(self, numbers: Iterable[int] = (*TERMINATE, signal.SIGINT), seconds: float = 10.0):
    """Create the handler; entering the context installs it.

    Args:
      numbers: signals to handle; a command that is no training leaves SIGTERM and SIGHUP as they are.
      seconds: time after the first signal at which the process exits.
    """
    self._numbers = heeded(*numbers)
    self._signal, self._before = 0, dict[int, Any]()
    self._timer = threading.Timer(seconds, self._exit)
    self._timer.daemon = True

  def __enter__(self) -> StartUp:
    if in_main_thread():
      self._before = {number: signal.signal(number, self._handle) for number in self._numbers}
      self._wakeups = Wakeups(self._received)
    return self

  def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
    if in_main_thread():
      self._wakeups.close()
    self._timer.cancel()
    for number, handler in self._before.items():
      signal.signal(number, handler)
    if self._signal and error is not None and not isinstance(error, (Stopped, KeyboardInterrupt)):
      raise self._exception() from error  # a library has replaced it by its own error

  def _exception(self) -> BaseException:
    return KeyboardInterrupt() if self._signal == signal.SIGINT else Stopped()

  def _handle(self, number: int, frame: Any) -> None:
    self._signal = number
    while frame is not None:
      if frame.f_code.co_filename.startswith('<frozen importlib'):
        self._exit()  # C modules print or lose an exception during their import
      frame = frame.f_back
    raise self._exception()

  def _received(self, number: int) -> None:
    if number not in self._numbers:
      return
    if self._timer.ident is not None:
      self._exit()
    self._signal = self._signal or number
    self._timer.start()

  def _exit(self) -> None:
    if self._signal == signal.SIGINT:
      tell('\nlmx: interrupted')
      os._exit(INTERRUPTED)
    tell(f'\nlmx: {STOPPED}')
    os._exit(PREEMPTED)

  def hand_over(self) -> int:
    """Return the signal whose exception a callback has lost, 0 without one; `Stop` now handles it."""
    self._timer.cancel()
    number, self._signal = self._signal, 0
    return number
