"""Exchange of records between the processes of a run over sockets, before JAX connects them.

JAX does not name the missing processes, and ends the process (jax-ml/jax#22436). So process 0 first listens at the
address of JAX's coordinator, and the others connect with their number and the name of their host.
"""

from __future__ import annotations

import abc
import json
import socket
import time
from collections.abc import Sequence
from typing import Any

from lmx.errors import InputError, explain

_LONGEST = 1 << 20  # bytes of one record
Record = dict[str, Any]


class Meeting(abc.ABC):
  """Connection between all processes of a run, which must make the same calls in the same order.

  Attributes:
    process: number of this process.
    hosts: process number -> name of its host.
  """

  process: int
  hosts: dict[int, str]

  def name(self, process: int) -> str:
    """Return the name of a process in messages: its host and number."""
    host = self.hosts.get(process)
    return f'host {host} (process {process})' if host else f'process {process}'

  @abc.abstractmethod
  def all(self, record: Record, timeout: float) -> list[Record]:
    """Send `record` to all processes and return everyone's records, by process number."""

  @abc.abstractmethod
  def close(self) -> None:
    """End all connections."""


class Rendezvous(Meeting):
  """Exchange of records over sockets."""

  def __init__(self, address: str, processes: int, process: int, host: str, timeout: float, names: Sequence[str] = ()):
    """Wait until all processes have connected.

    Args:
      address: host:port of process 0; unused if there is one process.
      processes: number of processes.
      process: number of this process.
      host: name of its host.
      timeout: seconds to wait.
      names: hosts of the processes if they are known, to name the missing ones.

    Raises:
      InputError: a process did not connect in time, or two have the same number.
    """
    self.process, self.hosts = process, {process: host}
    self._processes, self._address, self._names = processes, address, names
    self._lines: dict[int, Any] = {}
    self._sockets: list[socket.socket] = []
    deadline = time.monotonic() + timeout
    hello = {'process': process, 'host': host, 'processes': processes}
    try:
      if process == 0:
        self._gather(deadline, timeout)
      else:
        self._connect(hello, deadline, timeout)
      records = self.all(hello, max(1.0, deadline - time.monotonic()) + 10 * (process != 0))
    except BaseException:
      self.close()
      raise
    self.hosts = {record['process']: record['host'] for record in records}

  def name(self, process: int) -> str:
    named = process not in self.hosts and process < len(self._names) and self._names[process]
    return f'host {named} (process {process})' if named else super().name(process)

  def all(self, record: Record, timeout: float) -> list[Record]:
    """Send `record` to all processes and return everyone's records, by process number.

    Raises:
      InputError: a process sent nothing in time, or has ended.
    """
    if self._processes == 1:
      return [json.loads(json.dumps(record))]
    deadline = time.monotonic() + timeout
    if self.process:
      self._send(0, record)
      reply = self._receive(0, deadline + 10, timeout)  # process 0 names the missing ones
      if 'missing' in reply:
        raise InputError(reply['missing'])
      return reply['all']
    records = {0: json.loads(json.dumps(record))}
    try:
      for process in sorted(self._lines):
        records[process] = self._receive(process, deadline, timeout)
    except InputError as error:
      self._broadcast({'missing': str(error)})
      raise
    self._broadcast({'all': [records[process] for process in range(self._processes)]})
    return [records[process] for process in range(self._processes)]

  def close(self) -> None:
    """End all connections and free the port for JAX."""
    for file in self._lines.values():
      file.close()
    for each in self._sockets:
      each.close()
    self._lines, self._sockets = {}, []

  def _gather(self, deadline: float, timeout: float) -> None:
    if self._processes == 1:
      return
    port = int(self._address.rpartition(':')[2])
    listening = socket.create_server(('', port), backlog=self._processes)
    self._sockets.append(listening)
    while len(self._lines) < self._processes - 1 and (left := deadline - time.monotonic()) > 0:
      listening.settimeout(left)
      try:
        other, _ = listening.accept()
      except TimeoutError:
        break
      self._sockets.append(other)
      self._accept(other, deadline)
    missing = sorted(set(range(1, self._processes)) - self._lines.keys())
    if missing:
      text = (
        f'{len(self._lines) + 1} of {self._processes} processes connected within {timeout:g} s; missing: '
        + ', '.join(map(self.name, missing))
        + '. Start the same command on every host, and see whether these hosts are up and reach '
        + f'{self._address} (a firewall?)'
      )
      self._broadcast({'missing': text})
      raise InputError(text)

  def _accept(self, other: socket.socket, deadline: float) -> None:
    """Register a process that has connected. Raises InputError if its number or its count of processes is wrong."""
    other.settimeout(max(0.1, deadline - time.monotonic()))
    file = other.makefile('rwb')
    try:
      hello = json.loads(file.readline(_LONGEST))
      process, host, processes = int(hello['process']), str(hello['host']), int(hello['processes'])
    except (OSError, ValueError, KeyError, TypeError):
      file.close()  # another program tried the port
      return
    problem = ''
    if processes != self._processes:
      problem = f'host {host} expects {processes} processes, and process 0 expects {self._processes}'
    elif process in self._lines or not 0 < process < processes:
      problem = f'{self.name(process)} and host {host} both are process {process}; give each its own LMX_PROCESS_ID'
    self._lines[process], self.hosts[process] = file, host
    if problem:
      self._broadcast({'missing': problem})
      raise InputError(problem)

  def _connect(self, hello: Record, deadline: float, timeout: float) -> None:
    host, _, port = self._address.rpartition(':')
    problem: OSError | None = None
    while time.monotonic() < deadline:
      try:
        connection = socket.create_connection((host.strip('[]'), int(port)), max(0.1, deadline - time.monotonic()))
      except OSError as error:  # not there yet
        problem = error
        time.sleep(0.1)
        continue
      self._sockets.append(connection)
      self._lines[0] = connection.makefile('rwb')
      self._send(0, hello)
      return
    raise InputError(
      f'host {hello["host"]} (process {self.process}) did not reach process 0 at {self._address} within {timeout:g} s '
      f'({problem}). Start the same command on every host, and see whether that address is right and its port open'
    )

  def _send(self, process: int, record: Record) -> None:
    file = self._lines[process]
    try:
      file.write(json.dumps(record).encode() + b'\n')
      file.flush()
    except OSError as error:
      raise InputError(f'{self.name(process)} has ended ({explain(error)}); see its output') from None

  def _broadcast(self, record: Record) -> None:
    """Send `record` to all connected processes; skip those that have ended."""
    for process in list(self._lines):
      try:
        self._send(process, record)
      except InputError:
        continue

  def _receive(self, process: int, deadline: float, timeout: float) -> Record:
    connection = self._lines[process]
    for each in self._sockets:
      each.settimeout(max(0.1, deadline - time.monotonic()))
    try:
      line = connection.readline()
    except OSError:
      raise InputError(f'{self.name(process)} sent nothing for {timeout:g} s; see its output') from None
    if not line:
      raise InputError(f'{self.name(process)} has ended; see its output')
    return json.loads(line)
