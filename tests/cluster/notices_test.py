"""A notice of preemption by Compute Engine's metadata server asks a training to save and end."""

from __future__ import annotations

import threading
import time

import pytest

from lmx import interrupts
from lmx.cluster import notices


def requested(stop, seconds):
  deadline = time.monotonic() + seconds
  while not stop.requested(1) and time.monotonic() < deadline:
    time.sleep(0.01)
  return stop.requested(1)


@pytest.mark.parametrize('early', [True, False])
def test_notice_requests_a_stop(metadata_server, monkeypatch, early):
  monkeypatch.setenv(notices.VARIABLE, metadata_server.address)
  if early:
    metadata_server.preempt()
  lines = []
  with interrupts.Stop() as stop, notices.Notice(lines.append):
    if not early:
      assert not requested(stop, 0.1)
      metadata_server.preempt()
    assert requested(stop, 30) and stop.code == 75
  assert len(lines) == 1 and 'preempts this host' in lines[0]


def test_server_that_does_not_answer_is_asked_again(metadata_server, monkeypatch):
  monkeypatch.setattr(notices, '_AGAIN', 0.01)
  monkeypatch.setenv(notices.VARIABLE, metadata_server.address)
  metadata_server.broken.set()
  metadata_server.preempt()
  with interrupts.Stop() as stop, notices.Notice(print):
    assert not requested(stop, 0.1)
    metadata_server.broken.clear()
    assert requested(stop, 30)


def test_server_that_answers_at_once_is_not_asked_in_a_loop(metadata_server, monkeypatch):
  monkeypatch.setattr(notices, '_PAUSE', 0.1)
  monkeypatch.setenv(notices.VARIABLE, metadata_server.address)
  metadata_server.hasty.set()
  with interrupts.Stop() as stop, notices.Notice(print):
    assert not requested(stop, 0.5)
    assert 1 <= metadata_server.requests <= 6
    metadata_server.preempt()
    assert requested(stop, 30)


def test_server_without_notices_is_asked_once(metadata_server, monkeypatch, caplog):
  monkeypatch.setattr(notices, '_URL', '/elsewhere')
  monkeypatch.setattr(notices, '_AGAIN', 0.01)
  monkeypatch.setenv(notices.VARIABLE, metadata_server.address)
  with caplog.at_level('INFO', 'lmx.host'), notices.Notice(print):
    deadline = time.monotonic() + 30
    while any(thread.name == 'lmx-notice' for thread in threading.enumerate()) and time.monotonic() < deadline:
      time.sleep(0.01)
  assert [record.getMessage() for record in caplog.records] == [
    f'no notices of preemption: {metadata_server.address} answers status 403'
  ]


def test_no_server_is_asked_outside_compute_engine(tmp_path, monkeypatch):
  monkeypatch.delenv(notices.VARIABLE, raising=False)
  product = tmp_path / 'product_name'
  monkeypatch.setattr(notices, '_PRODUCT', product)
  assert notices.server() == ''
  product.write_text('Google Compute Engine\n')
  assert notices.server() == 'metadata.google.internal'
  product.write_text('OpenStack Nova\n')
  with notices.Notice(print):
    assert not any(thread.name == 'lmx-notice' for thread in threading.enumerate())
