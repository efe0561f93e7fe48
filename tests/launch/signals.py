"""Signals of a process under test, which a process under nohup or in the background of a shell would ignore."""

from __future__ import annotations

import signal

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def handle() -> None:
  """Let the process handle the signals; a `preexec_fn`."""
  for number in HANDLED:
    signal.signal(number, signal.SIG_DFL)


def ignore() -> None:
  """Let the process ignore Ctrl-C and a closed terminal; a `preexec_fn`."""
  for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
