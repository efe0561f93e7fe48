"""Shared by the tests of data: a small share of the embedded prose."""

from __future__ import annotations

import functools

import pytest

from lmx.data.builders import prose

files = functools.cache(lambda: sorted({prose.TOPICS, *prose.source_files()[::8]}))
documents = functools.cache(prose.documents.__wrapped__)


@pytest.fixture
def little_prose(monkeypatch):
  """Embedded data sets of the topics and of every eighth module, which are made in a fraction of the time."""
  few = files()
  monkeypatch.setattr(prose, 'source_files', lambda: few)
  monkeypatch.setattr(prose, 'documents', documents)
