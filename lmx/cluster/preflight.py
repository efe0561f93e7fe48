"""Checks of the hosts before training: processes, versions, config, work directory, data, devices, an all-reduce.

The first five need no device: the processes exchange records over sockets (`lmx.cluster.rendezvous`). Errors name
the missing process or the version that differs. A libtpu that differs between hosts hangs at the first device
(jax-ml/jax#10218). With LMX_COORDINATOR=auto (TPU pods, Slurm with one GPU per task) only JAX knows the processes. They
then join JAX, discover their devices first and exchange records through them. A hang ends after `timeout` with a hint.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import lmx
from lmx import storage
from lmx.cluster.rendezvous import Meeting, Record, Rendezvous
from lmx.config import resolve as config_lib
from lmx.config import run_files, schema
from lmx.data import pipeline
from lmx.engine import distributed
from lmx.errors import InputError, explain

ELEMENTS = 1 << 20  # float32 values of each device in the all-reduce: 4 MiB
PREPARING = 48 * 3600.0  # seconds within which a data set must be prepared
FIXES = {
  'python': 'use one Python on all hosts',
  'libtpu': 'install the same libtpu on all hosts, or JAX hangs',
  'source': "copy one commit's code to all hosts",
  'lmx': "copy one commit's code to all hosts",
  'config': 'give the same command and the same experiment file on all hosts',
}


@dataclasses.dataclass(frozen=True)
class Setup:
  """Expected setup of a training.

  Attributes:
    config: experiment file with its variant.
    overrides: `section.key=value` texts.
    workdir: the work directory.
    processes: expected number; 0 takes LMX_NUM_PROCESSES or JAX's cluster size.
    devices: accelerators of each process; 0 accepts any number.
    timeout: seconds to wait for a process.
    prepare: prepare the data set if it is missing.
  """

  config: str
  overrides: Sequence[str]
  workdir: str
  processes: int = 0
  devices: int = 0
  timeout: float = 60.0
  prepare: bool = False


def check(setup: Setup, report: Callable[[str], None]) -> None:
  """Run all checks, in every process; in process 0 `report` receives a line for each check that passes.

  Raises:
    InputError: a check fails; names the hosts and the fix.
  """
  started = time.monotonic()
  host, names, identity = socket.gethostname(), _host_names(), distributed.read_settings()
  if identity is None:
    _local_devices(setup, f'host {host}')
    identity = '', jax.process_count(), jax.process_index()
  address, processes, process = identity
  if setup.processes and processes != setup.processes:
    raise InputError(
      f'--processes: got {setup.processes}, but host {host} has {processes}; start lmx '
      'by a launcher, or set LMX_COORDINATOR, LMX_NUM_PROCESSES and LMX_PROCESS_ID on every host'
    )
  meeting: Meeting
  if address or processes == 1:
    meeting = Rendezvous(address, processes, process, host, setup.timeout, names)
  else:
    meeting = DeviceMeeting(host, setup.timeout)
  report = report if process == 0 else lambda text: None
  try:
    count = len(set(meeting.hosts.values()))
    report(f'{processes} process(es) on {count} host(s) after {time.monotonic() - started:.1f} s')
    run = _check_versions(meeting, setup, report)
    _check_workdir(meeting, setup, report)
    _check_data(meeting, setup, run, report)
  finally:
    meeting.close()
  _check_devices(meeting, setup, report)


class DeviceMeeting(Meeting):
  """Exchange of records over the devices of processes that have joined JAX."""

  def __init__(self, host: str, timeout: float):
    self.process = jax.process_index()
    self.hosts = {self.process: host}
    self.hosts = {i: record['host'] for i, record in enumerate(self.all({'host': host}, timeout))}

  def all(self, record: Record, timeout: float) -> list[Record]:
    content = np.frombuffer(json.dumps(record).encode(), np.uint8)
    with _TimeLimit(timeout, f'{self.name(self.process)}: the processes did not exchange their records'):
      sizes = multihost_utils.process_allgather(np.int32(content.size))
      padded = np.zeros(sizes.max(), np.uint8)
      padded[: content.size] = content
      rows = multihost_utils.process_allgather(padded)
    return [json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]

  def close(self) -> None:
    """Do nothing: the training uses the connections."""


def _host_names() -> list[str]:
  """Return the host of each process, by process number, if a launcher or the TPU's environment names them."""
  text = os.environ.get('LMX_HOSTS') or os.environ.get('TPU_WORKER_HOSTNAMES') or ''
  return [name for name in text.split(',') if name]


def _exchange(meeting: Meeting, local_record: Callable[[], Record], timeout: float) -> list[Record]:
  """Return the record of each process; an InputError in one is raised in all, with the name of its host."""
  try:
    record = local_record()
  except InputError as error:
    record = {'error': str(error)}
  records = meeting.all(record, timeout)
  _raise_problems(
    meeting, [f'{meeting.name(i)}: {found["error"]}' for i, found in enumerate(records) if 'error' in found]
  )
  return records


def _raise_problems(meeting: Meeting, problems: Sequence[str]) -> None:
  """Raise InputError if there are problems; the message of process 0 lists them."""
  if problems and meeting.process:
    raise InputError(f'the hosts are not ready; see the output of {meeting.name(0)}')
  if problems:
    raise InputError('\n  '.join(['the hosts are not ready:', *problems]))


def versions() -> dict[str, str]:
  """Return the versions that must be equal on all hosts, by name; '' for a package that is not installed."""
  texts = {'python': platform.python_version(), 'lmx': lmx.__version__, 'source': _source()}
  for name in ('jax', 'jaxlib', 'libtpu'):
    try:
      texts[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      texts[name] = ''
  return texts


def _source() -> str:
  """Return a digest of lmx's source, because code may change under one version number."""
  folder, digest = pathlib.Path(lmx.__file__).parent, hashlib.sha256()
  for path in sorted(folder.rglob('*.py')):
    digest.update(str(path.relative_to(folder)).encode() + b'\0' + path.read_bytes())
  return digest.hexdigest()[:12]


def _check_versions(meeting: Meeting, setup: Setup, report: Callable[[str], None]) -> schema.Run:
  config: Any = None

  def local_record() -> Record:
    nonlocal config
    config = config_lib.load(setup.config, setup.overrides)
    return {**versions(), 'config': config_lib.digest(config)}

  records = _exchange(meeting, local_record, setup.timeout)
  problems = []
  for name in records[0]:
    usual = collections.Counter(record[name] for record in records).most_common(1)[0][0]
    reference = next(i for i, record in enumerate(records) if record[name] == usual)
    for process, record in enumerate(records):
      if record[name] != usual:
        fix = FIXES.get(name, f'install the same {name} on all hosts')
        problems.append(
          f'{meeting.name(process)}: {name} is {record[name] or "missing"}, but {usual or "missing"} on '
          f'{meeting.name(reference)}: {fix}'
        )
  _raise_problems(meeting, problems)
  report(', '.join(f'{name} {text}' for name, text in records[0].items() if text) + ': the same everywhere')
  return config_lib.to_run(config)


def _check_workdir(meeting: Meeting, setup: Setup, report: Callable[[str], None]) -> None:
  """Check that each process reads the files that all others write in the work directory."""
  folder = functools.partial(storage.path, '--workdir', f'{setup.workdir}/.preflight', storage.FOLDER)
  token = os.urandom(8).hex()
  advice = 'check the rights, the quota and that it is mounted'

  def write() -> Record:
    storage.check_path('--workdir', setup.workdir, storage.FOLDER)
    try:
      folder().mkdir(parents=True, exist_ok=True)
      (folder() / str(meeting.process)).write_text(token, encoding='utf-8')
    except Exception as error:  # a bucket's client library has its own errors
      raise InputError(f'work directory {setup.workdir} cannot be written ({explain(error)}); {advice}') from None
    return {'token': token}

  tokens = _exchange(meeting, write, setup.timeout)

  def read() -> Record:
    unseen = []
    for process, record in enumerate(tokens):
      try:
        content = (folder() / str(process)).read_text(encoding='utf-8')
      except Exception as error:
        content = str(error)
      if content != record['token']:
        unseen.append(meeting.name(process))
    if unseen:
      raise InputError(
        f'cannot read in work directory {setup.workdir} the files of {", ".join(unseen)}; expected one directory for '
        'all hosts, on a shared file system or a bucket (gs://...)'
      )
    return {}

  try:
    _exchange(meeting, read, setup.timeout)
    if meeting.process == 0:  # all have read all
      folder().rmtree(missing_ok=True)
  except OSError as error:
    report(f'could not delete {folder()} ({explain(error)}), which is no longer needed')
  report(f'work directory {setup.workdir} is read and written by all')


def _check_data(meeting: Meeting, setup: Setup, run: schema.Run, report: Callable[[str], None]) -> None:
  """Check the data's hash; with `setup.prepare` prepare the data first, in process 0, then on hosts without a shared
  cache.
  """

  def local_record() -> Record:
    data = run_files.with_own_words(run.data, setup.workdir)
    directory = pipeline.directory(data)
    manifest = 'manifest.json' if pipeline.has_texts(data.dataset) else 'sizes.json'
    if directory and not setup.prepare and not os.path.isfile(os.path.join(directory, manifest)):
      raise InputError(
        f'there is no data manifest in {directory}: run `lmx prepare --config={setup.config}` with the same settings '
        'there, or this check with --prepare'
      )
    return {'hash': pipeline.load(data).hash}

  # Process 0 begins, so that a shared cache is written once.
  first = _exchange(meeting, local_record if meeting.process == 0 else dict, PREPARING)[0]
  records = [first, *_exchange(meeting, local_record if meeting.process else dict, PREPARING)[1:]]
  others = [i for i, record in enumerate(records) if record['hash'] != first['hash']]
  _raise_problems(
    meeting,
    [
      f'{meeting.name(i)}: other data (hash {records[i]["hash"][:12]}) than on {meeting.name(0)} '
      f'({first["hash"][:12]}): give all hosts the same files, and delete the cache where it is old'
      for i in others
    ],
  )
  report(f'data {run.data.dataset}, hash {first["hash"][:12]}, is available')


def _local_devices(setup: Setup, host: str) -> list[jax.Device]:
  """Join JAX and return this process's devices; end the process if their number is not the expected one."""
  advice = ', and whether libtpu is the same on all hosts' if distributed.read_settings() is None else ''
  with _TimeLimit(setup.timeout, f'{host}: got no devices', advice):
    distributed.initialize(timeout=int(max(1, setup.timeout)))
    local = jax.local_devices()
  if setup.devices and len(local) != setup.devices:
    kind = f'{len(local)} x {local[0].device_kind} ({local[0].platform})'
    _exit(f'{host}: expected {setup.devices} devices, but JAX has {kind}: {_device_advice(local)}')
  return local


def _check_devices(meeting: Meeting, setup: Setup, report: Callable[[str], None]) -> None:
  """Find the devices of each process and check an all-reduce over all of them."""
  host = meeting.name(meeting.process)
  local = _local_devices(setup, host)
  mesh = Mesh(jax.devices(), ('data',), axis_types=(AxisType.Auto,))
  rows = NamedSharding(mesh, PartitionSpec('data'))
  total = len(jax.devices())
  make = jax.jit(
    lambda: jnp.broadcast_to(jnp.arange(total, dtype=jnp.float32)[:, None], (total, ELEMENTS)), out_shardings=rows
  )
  add = jax.jit(lambda x: x.sum(0), out_shardings=NamedSharding(mesh, PartitionSpec()))
  with _TimeLimit(setup.timeout, f'{host}: the all-reduce did not end'):
    x = make()
    add(x).block_until_ready()  # compiles, and opens the connections
    started = time.monotonic()
    y = add(x).block_until_ready()
    seconds = time.monotonic() - started
  if float(y.addressable_data(0)[-1]) != total * (total - 1) / 2:
    _exit(f'{host}: the all-reduce gave a wrong sum; a device or a link of it is broken')
  report(f'{total} devices ({local[0].device_kind}), {len(local)} in each process')
  report(f'all-reduce of {ELEMENTS * 4 >> 20} MiB per device in {1000 * seconds:.1f} ms')


def _device_advice(devices: Sequence[jax.Device]) -> str:
  if devices[0].platform == 'cpu':
    return 'install lmx with the extra tpu or cuda12, and see whether JAX_PLATFORMS is set'
  return 'see whether another process holds the missing ones, and whether the job requested as many'


def _exit(problem: str) -> None:
  """End this process at once: the others wait for it in a collective, and JAX would wait for them."""
  print(f'lmx: the hosts are not ready:\n  {problem}', file=sys.stderr, flush=True)
  sys.stdout.flush()
  os._exit(2)


class _TimeLimit:
  """Time limit of a block; past it the process ends with a message, because nothing interrupts a hang in a library."""

  def __init__(self, seconds: float, what: str, more: str = ''):
    advice = f'see whether another process holds the device, whether all hosts are up, and what the others print{more}'
    self._timer = threading.Timer(seconds, lambda: _exit(f'{what} within {seconds:g} s: {advice}'))
    self._timer.daemon = True

  def __enter__(self) -> None:
    self._timer.start()

  def __exit__(self, *_: Any) -> None:
    self._timer.cancel()
