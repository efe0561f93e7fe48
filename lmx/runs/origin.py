"""Origin of a run: the runs that it started from, or an ensemble's members, in origin.json.

It stores each run's identity, which depends on the settings and data that determine its parameters, and on its origin.
So a pipeline detects a stage that started from a run that has since been retrained.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from lmx import documents, records, storage
from lmx.config import resolve as config_lib
from lmx.config import run_files

_ORIGIN = 'origin.json'


def identify(workdir: Any) -> str:
  """Return the identity of a run, '' for imported weights, a file of word vectors, or none. Raises InputError."""
  path = storage.path('--workdir', workdir)
  if not path.is_dir() or not run_files.exists(path) or not (data := run_files.read_data(path)['hash']):
    return ''
  about = [config_lib.digest(run_files.read_config(path)), data, *_read(path)]
  return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


def write(workdir: Any, sources: Sequence[Any]) -> None:
  """Write the identities of the runs in the directories `sources`. Raises OSError."""
  path = storage.path('--workdir', workdir, storage.FOLDER)
  path.mkdir(parents=True, exist_ok=True)
  (path / _ORIGIN).unlink(missing_ok=True)
  if sources:
    runs = [{'workdir': str(source), 'identity': identify(source)} for source in sources]
    (path / _ORIGIN).write_text(json.dumps({'runs': runs}, indent=1) + '\n', encoding='utf-8')


def changed(workdir: Any, sources: Sequence[Any]) -> list[str]:
  """Return the `sources` that have changed since `workdir` started; unknown identities count as unchanged.

  Raises InputError if a record is damaged.
  """
  before = _read(storage.path('--workdir', workdir, storage.FOLDER))
  now = [(str(source), identify(source)) for source in sources]
  return [name for (name, new), old in zip(now, before, strict=False) if old and new and old != new]


def _read(path: Any) -> list[str]:
  """Return the recorded identities; [] for a run of an earlier version or without an origin."""
  runs = documents.field(records.read_if_exists(path / _ORIGIN), 'runs', list, str(path / _ORIGIN), [])
  return [documents.field(one, 'identity', str, str(path / _ORIGIN)) for one in runs]
