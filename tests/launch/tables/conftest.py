"""A program in place of lmx for the tests of launch/tables."""

from __future__ import annotations

import pytest

from launch import local
from launch.tables import report
from tests.launch.tables.runs import STAND_IN


@pytest.fixture(autouse=True)
def no_pictures(request, monkeypatch):
  """Draws the picture of a table, which takes longer than the rest of it, only in slow tests and those of `report`."""
  is_slow = request.node.get_closest_marker('slow') is not None
  if not is_slow and request.module.__name__.rpartition('.')[2] != 'report_test':
    monkeypatch.setattr(report, 'draw', lambda *_: None)


@pytest.fixture
def program(tmp_path, monkeypatch, root):
  """Puts the stand-in in lmx's place; returns what says which commands it was given."""
  calls = tmp_path / 'calls'
  monkeypatch.setattr(local, 'PROGRAM', STAND_IN)
  monkeypatch.setenv('CALLS', str(calls))
  monkeypatch.setenv('PYTHONPATH', str(root))
  return lambda: calls.read_text().splitlines() if calls.exists() else []
