"""Profiles of a training by `jax.profiler`, in the folder `profile` of the work directory.

XProf and TensorBoard's profiler open this folder, Perfetto (ui.perfetto.dev) a HOST.trace.json.gz in it. Beside a
host's trace are its record HOST.json and the compiled programs that it ran, HOST.NAME.ID.hlo.gz, whose metadata map
each instruction to its layer. `lmx profile` reads all three. Python's own calls are not traced, because that slows a
step down.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from jax.extend import backend

from lmx import storage
from lmx.engine import peaks
from lmx.reporting import run_log
from lmx.reporting.profile_schedule import Span, parse

FOLDER = 'profile/plugins/profile'  # below the work directory; XProf expects the last two names


class Profiler:
  """Context manager that profiles updates of a training on this host."""

  def __init__(
    self, text: str, hosts: Sequence[int], workdir: Any, wait: Callable[[], Any], logger: run_log.Logger
  ) -> None:
    """Arrange profiles; nothing starts before the first update to profile.

    Args:
      text: `train.profile`.
      hosts: `train.profile_hosts`, () for all.
      workdir: the work directory.
      wait: function that waits for all dispatched updates.
      logger: prints a line for each profile; its rates exclude starting and writing.
    """
    self._host = jax.process_index()
    self._schedule = parse(text) if text and (not hosts or self._host in hosts) else None
    self._workdir, self._wait, self._logger = workdir, wait, logger
    self._span: Span | None = None  # of the running trace
    self._files: tempfile.TemporaryDirectory[str] | None = None
    self._started = 0.0

  def __enter__(self) -> Profiler:
    return self

  def __exit__(self, kind: Any, *_: Any) -> None:
    self.end(write=kind is None)  # the training ends or stops before the last update to profile

  def end(self, *, write: bool = True) -> None:
    """End a running trace before what is no update, such as a validation; the next update begins another."""
    if self._span is not None:
      with self._logger.ledger.during('profile'), self._logger.paused():
        self._stop(write=write)

  @contextlib.contextmanager
  def update(self, number: int) -> Iterator[None]:
    """Dispatch an update in the block, by its number from 1; it is traced if it is to be profiled."""
    span = self._schedule.find(number) if self._schedule else None
    if span is None:
      yield
      return
    if self._span is None:
      with self._logger.ledger.during('profile'), self._logger.paused():
        self._start(number, span.last)
    with jax.profiler.StepTraceAnnotation('train', step_num=number):
      yield
    self._span = Span(self._span.first if self._span else number, number)
    if number == span.last:
      self.end()

  def _start(self, first: int, last: int) -> None:
    self._wait()
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    self._files, self._span = tempfile.TemporaryDirectory(prefix='lmx-profile-'), Span(first, last)
    jax.profiler.start_trace(self._files.name, profiler_options=options)
    self._started = time.monotonic()

  def _stop(self, *, write: bool) -> None:
    """End the trace, and write it with the programs that ran."""
    assert self._files is not None and self._span is not None
    span, self._span = self._span, None
    if write:
      self._wait()
    seconds = time.monotonic() - self._started
    jax.profiler.stop_trace()
    with self._files as name:
      if write:
        folder, host = self._workdir / FOLDER / span.folder, f'host-{self._host:03d}'
        for file in pathlib.Path(name).rglob('*.*'):
          if file.is_file():
            storage.copy(file, folder / f'{host}.{file.name.partition(".")[2]}')
        traced = b''.join(file.read_bytes() for file in pathlib.Path(name).rglob('*.xplane.pb'))
        for program, text in _programs(traced).items():
          (folder / f'{host}.{program}.hlo.gz').write_bytes(gzip.compress(text.encode(), 6))
        (folder / f'{host}.json').write_text(json.dumps(_record(span, seconds), indent=1) + '\n', encoding='utf-8')
        self._logger.note(f'profile of updates {span.first:,} to {span.last:,}: {folder}; `lmx profile` shows it')


def _programs(traced: bytes) -> Mapping[str, str]:
  """Return {name and number: HLO text} of the compiled programs in memory that a trace, as stored, names."""
  programs = {}
  for executable in backend.get_backend().live_executables():
    for module in executable.hlo_modules():
      if module.name.encode() in traced:
        programs[f'{module.name}.{_number(module.as_serialized_hlo_module_proto())}'] = module.to_string()
  return programs


def _number(proto: bytes) -> int:
  """Return the number of a module, field 5 of its `HloModuleProto`, which a trace names too."""
  file = descriptor_pb2.FileDescriptorProto(name='lmx_hlo_number.proto', package='lmx')
  field = file.message_type.add(name='Module').field.add(name='id', number=5)
  field.type, field.label = field.TYPE_INT64, field.LABEL_OPTIONAL
  pool = descriptor_pool.DescriptorPool()
  pool.Add(file)
  message = message_factory.GetMessageClass(pool.FindMessageTypeByName('lmx.Module'))()
  message.ParseFromString(proto)
  return int(message.id)


def _record(span: Span, seconds: float) -> dict[str, Any]:
  """Return the record of a profile: its updates, their time, the devices, and a CPU's measured limits."""
  first = jax.local_devices()[0]
  record = {
    'first': span.first,
    'last': span.last,
    'seconds': seconds,
    'process': jax.process_index(),
    'processes': jax.process_count(),
    'platform': first.platform,
    'device': first.device_kind,
  }
  measured = {'peak': peaks.product_rate(), 'bandwidth': peaks.copy_rate()} if first.platform == 'cpu' else {}
  return record | measured
