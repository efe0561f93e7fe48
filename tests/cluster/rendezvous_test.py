"""Processes, here threads, find each other, and who is missing is named."""

from __future__ import annotations

import threading
import time

import pytest

from launch.local import free_port
from lmx.cluster.rendezvous import Rendezvous
from lmx.errors import InputError


def together(count, act, *, processes=None, timeout=20.0, names=(), present=None):
  """What `act(meeting)` returns or raises, by process."""
  address, found = f'localhost:{free_port()}', {}

  def one(process):
    try:
      meeting = Rendezvous(address, processes or count, process, f'h{process}', timeout, names)
      try:
        found[process] = act(meeting)
      finally:
        meeting.close()
    except InputError as error:
      found[process] = error

  threads = [threading.Thread(target=one, args=(p,)) for p in (range(count) if present is None else present)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(60)
  return found


@pytest.mark.parametrize('count', [1, 2, 5])
def test_hosts_exchange_their_records(count):
  found = together(count, lambda m: [m.hosts, *(m.all({'n': m.process + i, 'text': 'a\n"é'}, 20) for i in range(2))])
  wanted = [{p: f'h{p}' for p in range(count)}]
  wanted += [[{'n': p + i, 'text': 'a\n"é'} for p in range(count)] for i in range(2)]
  assert all(found[p] == wanted for p in range(count))


def test_missing_processes_are_reported():
  found = together(4, lambda m: None, present=(0, 2), timeout=1.0, names=('h0', 'far', 'h2'))
  assert set(found) == {0, 2}
  for error in found.values():
    assert '2 of 4 processes connected within 1 s; missing: host far (process 1), process 3.' in str(error)
    assert 'Start the same command on every host' in str(error)


def test_process_0_missing_is_named_with_its_address():
  start = time.monotonic()
  error = together(2, lambda m: None, present=(1,), timeout=0.5)[1]
  assert 'host h1 (process 1) did not reach process 0 at localhost:' in str(error)
  assert time.monotonic() - start < 10


def test_duplicate_process_ids_are_reported():
  found = together(3, lambda m: None, present=(0, 1, 1), timeout=5.0)
  assert 'host h1 (process 1) and host h1 both are process 1' in str(found[0])


def test_mismatched_process_counts_are_reported():
  address, errors = f'localhost:{free_port()}', []

  def one(process, processes):
    try:
      Rendezvous(address, processes, process, f'h{process}', 5.0)
    except InputError as error:
      errors.append(str(error))

  threads = [threading.Thread(target=one, args=given) for given in ((0, 2), (1, 3))]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(30)
  assert errors == ['host h1 expects 3 processes, and process 0 expects 2'] * 2


def test_exited_or_silent_process_is_reported():
  def ends(meeting):
    if meeting.process == 1:
      return None
    return meeting.all({}, 20)

  found = together(3, ends)
  assert all('host h1 (process 1) has ended' in str(found[p]) for p in (0, 2))

  def silent(meeting):
    if meeting.process == 1:
      time.sleep(3)
      return None
    return meeting.all({}, 0.5)

  found = together(3, silent)
  assert all('host h1 (process 1) sent nothing for 0.5 s' in str(found[p]) for p in (0, 2))


def test_unknown_clients_of_the_port_are_ignored():
  import socket

  port, found = free_port(), {}
  main = threading.Thread(target=lambda: found.update(m=Rendezvous(f'localhost:{port}', 2, 0, 'h0', 20.0)))
  main.start()
  for text in (b'GET / HTTP/1.1\r\n', b'[]\n', b'{"process": "x"}\n'):
    for _ in range(100):
      try:
        with socket.create_connection(('localhost', port)) as other:
          other.sendall(text + b'\n')
        break
      except OSError:
        time.sleep(0.05)
  second = Rendezvous(f'localhost:{port}', 2, 1, 'h1', 20.0)
  main.join(20)
  assert found['m'].hosts == second.hosts == {0: 'h0', 1: 'h1'}
  second.close()
  found['m'].close()
