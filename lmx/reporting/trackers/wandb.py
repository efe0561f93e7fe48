"""Weights & Biases: offline unless WANDB_MODE says otherwise; `wandb sync` uploads the run later.

Offline, each session writes its own folder below `wandb` in the work directory, all under one id. A W&B process writes
it up to a second late, and a kill loses its buffer. So the next session reads the last step from these files and
continues there. Online, it asks the server.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lmx.reporting import trackers

_BLOCK, _FILE_HEADER, _HEADER = 32768, 7, struct.Struct('<IHB')  # checksum, length, kind
_FLUSH = 1.0  # seconds between writes of an offline file; a kill loses the buffer
_PATIENCE = 20.0  # seconds to wait for the last write
_WHOLE, _LAST = 1, 4  # kinds of a chunk that end a record


def _is_offline() -> bool:
  return os.environ.get('WANDB_MODE', 'offline') in ('offline', 'dryrun')


def needs_server(cfg: trackers.Config) -> str:
  """Return the setting that names a server, if the runs would be in the work directory."""
  return 'set WANDB_MODE=online' if _is_offline() else ''


def read_records(path: pathlib.Path) -> Iterator[Any]:
  """Yield the records (`wandb_internal_pb2.Record`) of a .wandb file, up to one truncated by a kill.

  The format is LevelDB's log: chunks with a header of 7 bytes, none across a block boundary of 32 KiB.
  """
  from wandb.proto import wandb_internal_pb2

  data, position, body = path.read_bytes(), _FILE_HEADER, b''
  while position + _HEADER.size <= len(data):
    if (rest := _BLOCK - position % _BLOCK) < _HEADER.size:
      position += rest
      continue
    checksum, length, kind = _HEADER.unpack_from(data, position)
    position += _HEADER.size
    chunk = data[position : position + length]
    position += length
    if zlib.crc32(chunk, zlib.crc32(bytes([kind]))) != checksum:
      return
    body += chunk
    if kind in (_WHOLE, _LAST):
      record = wandb_internal_pb2.Record()
      record.ParseFromString(body)
      yield record
      body = b''


def remove_empty(workdir: pathlib.Path, run_id: str) -> None:
  """Remove the offline folders of sessions killed before W&B wrote anything: `wandb sync` refuses all with them."""
  for path in offline_files(workdir, run_id):
    if not any(record.HasField('run') for record in read_records(path)):
      shutil.rmtree(path.parent)


def offline_files(workdir: pathlib.Path, run_id: str) -> list[pathlib.Path]:
  """Return the offline files of a run, one per session."""
  return sorted(workdir.glob(f'wandb/offline-run-*/run-{run_id}.wandb'))


def last_step(workdir: pathlib.Path, run_id: str) -> int:
  """Return the last step in a run's offline files; -1 without one."""
  steps = [-1]
  for path in offline_files(workdir, run_id):
    steps += [record.history.step.num for record in read_records(path) if record.HasField('history')]
  return max(steps)


class Tracker:
  """Run of W&B."""

  def __init__(self, run: trackers.Run) -> None:
    if _is_offline():
      os.environ.setdefault('WANDB_ERROR_REPORTING', 'false')
    import wandb

    self._wandb, self._run, self._offline = wandb, run, _is_offline()
    remove_empty(run.workdir, run.id)
    self._tracked = wandb.init(
      dir=str(run.workdir),
      id=run.id,
      mode='offline' if self._offline else None,
      resume='allow',  # offline too: `wandb sync` then appends a session to the ones before it
      project=run.cfg.project,
      name=run.name,
      group=run.cfg.group or None,
      tags=list(run.cfg.tags) or None,
      config={**run.settings, **{f'about.{key}': value for key, value in run.about.items()}},
      settings=wandb.Settings(console='off', silent=True, x_transaction_log_flush_interval=_FLUSH),
    )
    if self._offline:
      self._last = self._save_last_step()
      self.where = f'run {run.id}, offline; upload it with `wandb sync {run.workdir / "wandb"}/offline-run-*-{run.id}`'
    else:
      self._last = self._tracked.step - 1 if self._tracked.resumed else -1
      self.where = f'run {run.id}, {self._tracked.url}'

  def _save_last_step(self) -> int:
    """Return the last step of the offline files; the next session finds it even if they are uploaded and deleted."""
    state = self._run.state
    state['step'] = max(state.get('step', -1), last_step(self._run.workdir, self._run.id))
    return state['step']

  def log(self, rows: Iterable[trackers.Row]) -> None:
    """Add one history row per step, without steps that W&B has."""
    for step, values in rows:
      if step > self._last:
        self._tracked.log(values, step=step, commit=True)
        self._last = step

  def finish(self, results: Mapping[str, Any], files: Sequence[pathlib.Path]) -> None:
    """Add the results and pictures to the summary, and save the other files."""
    self._tracked.summary.update(trackers.scalars(results))
    for path in files:
      if path.suffix == '.png':
        self._tracked.summary[f'images/{path.stem}'] = self._wandb.Image(str(path))
      else:
        self._tracked.save(str(path), base_path=str(self._run.workdir), policy='now')

  def close(self, state: str) -> None:
    """End the session, and wait until all is written.

    Raises:
      TimeoutError: the file is still incomplete after `_PATIENCE` seconds.
    """
    path = pathlib.Path(self._tracked.dir).parent / f'run-{self._run.id}.wandb'
    self._tracked.finish(exit_code=int(state == 'failed'))
    if not self._offline:
      return
    start = time.monotonic()
    while not any(record.HasField('exit') for record in read_records(path)):  # `finish` may return before
      if time.monotonic() - start > _PATIENCE:
        raise TimeoutError(f'{path} is incomplete')
      time.sleep(0.1)
    self._save_last_step()
