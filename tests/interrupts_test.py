"""Signals ask a training to save and end; a second Ctrl-C ends it at any moment."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys

import pytest

import lmx
from lmx import interrupts, signals

# Stands for a compilation: a call of C that lets other threads run and does not return, and so no signal handler runs.
BLOCKED = """
import ctypes, signal, sys
from lmx import interrupts, signals
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a script
with eval(sys.argv[1]):
  mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
  libc.pthread_mutex_lock(mutex)
  while True:
    try:
      print('ready', flush=True)
      libc.pthread_mutex_lock(mutex)
    except (signals.Stopped, KeyboardInterrupt):  # raised before the call
      pass
"""


def blocked(handler: str) -> subprocess.Popen:
  """A process within `handler` that runs no handlers of Python."""
  return subprocess.Popen(
    [sys.executable, '-c', BLOCKED, handler],
    cwd=os.path.dirname(lmx.__path__[0]),
    text=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  )


def test_second_ctrl_c_ends_native_code_at_once():
  process = blocked("interrupts.Stop(lambda: 'step 7 is saved')")
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
def test_first_signal_requests_a_stop_and_decides_the_exit_code(number, code, request):
  before = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
  request.addfinalizer(functools.partial(signal.signal, number, signal.signal(number, before)))
  with interrupts.Stop(lambda: '') as told:
    assert not told.requested(1)
    os.kill(os.getpid(), number)
    assert told.requested(2)
    os.kill(os.getpid(), signal.SIGTERM)
  assert told.code == code
  assert signal.getsignal(number) is before and signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize(('number', 'error'), [(signal.SIGTERM, signals.Stopped), (signal.SIGINT, KeyboardInterrupt)])
@pytest.mark.parametrize('early', [True, False])
def test_signal_raises_after_the_save(number, error, early):
  with pytest.raises(error), interrupts.Stop() as told:
    if early:
      os.kill(os.getpid(), number)
    told.saved()
    os.kill(os.getpid(), number)


def test_second_ctrl_c_within_another_program_raises():
  with pytest.raises(KeyboardInterrupt), interrupts.Stop() as told:
    os.kill(os.getpid(), signal.SIGINT)
    assert told.requested(1)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize('number', [signal.SIGHUP, signal.SIGINT])
def test_ignored_signal_stays_ignored(number):
  """SIGHUP is ignored under nohup, SIGINT by commands in the background of a script."""
  before = signal.signal(number, signal.SIG_IGN)
  try:
    with signals.StartUp(), interrupts.Stop() as told:
      os.kill(os.getpid(), number)
      assert not told.requested(1) and signal.getsignal(number) == signal.SIG_IGN
  finally:
    signal.signal(number, before)


@pytest.mark.parametrize(
  ('number', 'code', 'message'), [(signal.SIGTERM, 75, signals.STOPPED), (signal.SIGINT, 130, 'interrupted')]
)
def test_signal_before_the_training_ends_a_process_that_runs_no_handler(number, code, message):
  process = blocked('signals.StartUp(seconds=0.1)')
  try:
    assert process.stdout.readline() == 'ready\n'
    process.send_signal(number)
    _, text = process.communicate(timeout=30)
  finally:
    process.kill()
  assert process.returncode == code and text.endswith(f'lmx: {message}\n')


def test_second_signal_before_the_training_ends_the_process_at_once(monkeypatch):
  monkeypatch.setattr(os, '_exit', sys.exit)
  with signals.StartUp(seconds=60) as start_up:
    start_up._received(signal.SIGCHLD)
    start_up._received(signal.SIGTERM)
    with pytest.raises(SystemExit, match='75'):
      start_up._received(signal.SIGTERM)


@pytest.mark.parametrize(('number', 'error'), [(signal.SIGTERM, signals.Stopped), (signal.SIGINT, KeyboardInterrupt)])
def test_signal_before_the_training_raises(number, error):
  before = signal.getsignal(number)
  with pytest.raises(error), signals.StartUp():
    try:
      os.kill(os.getpid(), number)
    except error as stopped:
      raise ImportError('of a library') from stopped
  assert signal.getsignal(number) is before and signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize(('number', 'code'), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_signal_that_a_callback_has_lost_is_handled_by_the_training(number, code):
  with signals.StartUp():
    with contextlib.suppress(signals.Stopped, KeyboardInterrupt):
      os.kill(os.getpid(), number)
    with interrupts.Stop(lambda: '') as told:
      assert told.requested(1) and told.code == code


def test_signal_during_startup_exits_with_75(tmp_path):
  (tmp_path / 'slow.py').write_text("import time\nprint('reading', flush=True)\ntime.sleep(60)\n")
  command = [sys.executable, '-m', 'lmx.cli.main', 'train', f'--config={tmp_path}/slow.py', f'--workdir={tmp_path}/run']
  process = subprocess.Popen(
    command, cwd=os.path.dirname(lmx.__path__[0]), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
  )
  try:
    assert process.stdout.readline() == 'reading\n'
    process.send_signal(signal.SIGTERM)
    _, text = process.communicate(timeout=30)
  finally:
    process.kill()
  assert process.returncode == 75 and 'Traceback' not in text and 'stopped before the first update' in text
  assert not (tmp_path / 'run').exists()
