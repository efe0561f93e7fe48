"""Output of launchers."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def unread():
  """A file whose reader has gone."""
  read, write = os.pipe()
  os.close(read)
  with open(write, 'w') as file:
    yield file
