"""Progress of long work, in a terminal and elsewhere."""

from __future__ import annotations

import contextlib
import os
import re
import time

import numpy as np
import pytest

from lmx.reporting import waiting


@pytest.fixture
def clock(monkeypatch):
  """Seconds that `time.monotonic` gives, set by the test."""
  now = [100.0]
  monkeypatch.setattr(time, 'monotonic', lambda: now[0])
  return now


def test_durations():
  assert [waiting.duration(s) for s in (0.4, 59.6, 3599, 3600, 36_061)] == [
    '0:00',
    '1:00',
    '59:59',
    '1:00:00',
    '10:01:01',
  ]


def test_time_left_excludes_the_first_update(clock, capsys):
  with waiting.Bar(50, 'valid', ' batches', terminal=False) as bar:
    clock[0] += 60  # compiles
    bar.update(1)
    for _ in range(4):
      clock[0] += 3
      bar.update(1)
  assert capsys.readouterr().err.splitlines() == [
    'valid: 1 of 50 batches',
    'valid: 5 of 50 batches  2:15 left',  # 45 at 3 seconds each
  ]


def test_short_work_and_work_without_a_title_are_not_shown(clock, capsys):
  with waiting.Bar(2, '', terminal=False) as silent, waiting.Bar(2, 'valid', terminal=False) as short:
    clock[0] += 1
    short.update(2)
    clock[0] += 100
    silent.update(1)
  assert capsys.readouterr() == ('', '')


def test_progress_bar_shows_the_time_left(capsys):
  with waiting.Bar(3, 'valid', terminal=True) as bar:
    bar.update(1)
    time.sleep(0.2)
    bar.update(1)
    bar._bar.refresh()
    shown = capsys.readouterr().err
  assert re.search(r'valid:  67%\|.*\| 2/3 \[00:00, 0:00 left\]', shown)


def test_items_are_yielded_in_order():
  assert list(waiting.bar(iter('abc'), '', 3)) == ['a', 'b', 'c']


def test_long_wait_is_reported_and_a_short_one_is_not(monkeypatch, capsys):
  monkeypatch.setattr(waiting, 'DELAY', 0.05)
  with waiting.waiting('compiling (step 1 of 9)'):
    time.sleep(0.3)
  first, last = capsys.readouterr().err.splitlines()
  assert first == 'compiling (step 1 of 9) ...' and re.fullmatch(r'compiling \(step 1 of 9\): took 0.[3-9] s', last)
  monkeypatch.setattr(waiting, 'DELAY', 60.0)
  with waiting.waiting('compiling'):
    pass
  assert capsys.readouterr().err == ''


def test_terminal_wait_message_is_cleared_after_errors():
  shown = []
  with pytest.raises(KeyError), waiting.waiting('compiling', shown.append):
    time.sleep(0.05)
    raise KeyError
  assert shown == ['compiling, 0 s', '']


def test_first_call_on_each_shape_shows_that_it_compiles(monkeypatch):
  said = []
  monkeypatch.setattr(waiting, 'waiting', lambda text, show: said.append(text) or contextlib.nullcontext())
  one, other = (lambda: 1), (lambda: 2)
  batches = [{'tokens_BT': np.zeros((2, T)), 'labels_B': np.zeros(2)} for T in (8, 16, 8)]
  for step, title in ((one, 'valid'), (one, 'test'), (other, ''), (other, 'test')):
    with waiting.Bar(3, title, terminal=False) as bar:
      for batch in batches:
        with bar.compiling(step, batch):
          pass
  shapes = ['compiling batches of 2 x 8', 'compiling batches of 2 x 16']
  assert said == [f'{title}: {shape}' for title in ('valid', 'test') for shape in shapes]


def test_terminal_without_a_column_gets_lines(monkeypatch):
  monkeypatch.setattr(waiting.sys.stderr, 'isatty', lambda: True)
  monkeypatch.setattr(waiting.sys.stderr, 'fileno', lambda: 2)
  for columns in (0, 80):
    monkeypatch.setattr(waiting.os, 'get_terminal_size', lambda fd, columns=columns: os.terminal_size((columns, 24)))
    assert waiting.is_terminal() == (columns > 0)
