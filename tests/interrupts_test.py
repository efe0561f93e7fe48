"""Signals ask a training to save and end; a second Ctrl-C ends it at any moment."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys

import pytest

import lmx
from lmx import interrupts

# Stands for a compilation: a call of C that lets other threads run and does not return, and so no signal handler runs.
BLOCKED = """
import ctypes
from lmx import interrupts
with interrupts.Stop(lambda: 'step 7 is saved'):
  mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
  libc.pthread_mutex_lock(mutex)
  print('ready', flush=True)
  libc.pthread_mutex_lock(mutex)
"""


def test_ctrl_c_is_answered_and_a_second_one_ends_at_once_while_python_runs_no_handler():
  root = os.path.dirname(lmx.__path__[0])
  process = subprocess.Popen(
    [sys.executable, '-c', BLOCKED], cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
  )
  try:
    assert process.stdout.readline() == 'ready\n'
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == '\n'
    assert 'Ctrl-C again exits at once' in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=30)
  finally:
    process.kill()
  assert process.returncode == 130 and 'interrupted; step 7 is saved' in text


@pytest.mark.parametrize(('number', 'code'), [(signal.SIGTERM, 75), (signal.SIGHUP, 75), (signal.SIGINT, 130)])
def test_the_first_signal_asks_and_decides_the_exit_code(number, code, request):
  before = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
  request.addfinalizer(functools.partial(signal.signal, number, signal.signal(number, before)))  # nohup ignores SIGHUP
  with interrupts.Stop(lambda: '') as told:
    assert not told.requested(1)
    os.kill(os.getpid(), number)
    assert told.requested(2)
    os.kill(os.getpid(), signal.SIGTERM)
  assert told.code == code
  assert signal.getsignal(number) is before and signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize(
  ('number', 'error'), [(signal.SIGTERM, interrupts.Stopped), (signal.SIGINT, KeyboardInterrupt)]
)
@pytest.mark.parametrize('early', [True, False])
def test_a_signal_raises_once_all_is_saved(number, error, early):
  with pytest.raises(error), interrupts.Stop() as told:
    if early:
      os.kill(os.getpid(), number)
    told.saved()
    os.kill(os.getpid(), number)


def test_a_second_ctrl_c_within_another_program_raises():
  with pytest.raises(KeyboardInterrupt), interrupts.Stop() as told:
    os.kill(os.getpid(), signal.SIGINT)
    assert told.requested(1)
    os.kill(os.getpid(), signal.SIGINT)


def test_sighup_stays_ignored_under_nohup():
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
  try:
    with interrupts.Stop() as told:
      os.kill(os.getpid(), signal.SIGHUP)
      assert not told.requested(1) and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
  finally:
    signal.signal(signal.SIGHUP, before)
