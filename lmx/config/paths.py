"""Paths in a config: checked as given, and resolved from another directory or by another user.

config.json has each path as it was given, because the digest of a config depends on some of them. paths.json has it
with its absolute path. A run whose path is not in the current directory reads the absolute one.
"""

from __future__ import annotations

import glob
import json
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from lmx import documents, records, storage
from lmx.data.sources import OWN
from lmx.errors import InputError, InputWarning

PATHS = 'paths.json'  # of a work directory
# Key -> FILE or FOLDER if it must be one; '' for either.
KINDS = {
  'data.manual_dir': '',
  'data.cache_dir': storage.FOLDER,
  'data.tokenizer_path': '',
  'data.vectors': '',
  'train.init_from': '',
  'evaluation.dictionary': storage.FILE,
  'log.mlflow_uri': '',
}


def check(config: Mapping[str, Any], keys: Iterable[str]) -> None:
  """Raise InputError unless each of `keys` that is a path can be one, see `storage.path`."""
  for key, value in _values(config).items():
    for text in _split(key, value) if key in keys else ():
      storage.check_path(key, text, KINDS[key])


def check_exist(config: Mapping[str, Any]) -> None:
  """Raise InputError for a missing file or folder that a new run reads: the user's data, vectors and first weights."""
  is_own = 'data' in config and config['data'].get('dataset') in OWN
  keys = ('data.vectors', 'train.init_from', *['data.manual_dir'] * is_own)
  for key, value in _values(config).items():
    for text in _split(key, value) if key in keys and value else ():
      elsewhere = storage.is_remote(text) or text.startswith(storage.HUB)
      if not (elsewhere or os.path.lexists(path := storage.expand(text)) or glob.glob(path)):
        raise InputError(f'{key}: got {text}; there is no such file or folder; check the path')


def locate(config: dict[str, Any], workdir: Any = None) -> dict[str, Any]:
  """Return a plain config with `~` expanded in its paths.

  Args:
    config: sections by name.
    workdir: work directory of the run; a path that is missing here is taken from its paths.json.

  Raises:
    InputError: paths.json is damaged.
  """
  recorded = _read(workdir) if workdir is not None else {}
  located = {name: dict(section) if isinstance(section, Mapping) else section for name, section in config.items()}
  for key, value in _values(config).items():
    section, _, name = key.partition('.')
    here = ','.join(map(storage.expand, _split(key, value)))
    given, absolute = recorded.get(key, ('', ''))
    own = _own_tokenizer(workdir) if key == 'data.tokenizer_path' and not _exist(key, here) else ''
    if own and not (absolute and _exist(key, absolute)):
      located[section][name] = own
    else:
      located[section][name] = _choose(key, here, absolute) if given == value else here
  return located


def _own_tokenizer(workdir: Any) -> str:
  """Return the folder of a run's own copy of its tokenizer, '' if there is none."""
  folder = '' if workdir is None else os.path.join(os.fspath(workdir), 'tokenizer')
  return folder if folder and not storage.is_remote(folder) and os.path.isdir(folder) else ''


def write(workdir: Any, config: Mapping[str, Any], at: Any = None, *, only_existing: bool = False) -> None:
  """Write paths.json, if the config has paths.

  Args:
    workdir: directory to write to.
    config: config of the run.
    at: where the directory will be; None for `workdir`.
    only_existing: omit paths missing in the current directory, which need not be where the run started.
  """
  absolute = lambda text: text if storage.is_remote(text) else os.path.abspath(storage.expand(text))
  found = {
    key: {'given': value, 'absolute': ','.join(map(absolute, _split(key, value)))}
    for key, value in _values(config).items()
    if not only_existing or _exist(key, storage.expand(value))
  }
  if found:
    where = os.fspath(workdir if at is None else at)
    content = {'workdir': where if storage.is_remote(where) else os.path.abspath(where), 'paths': found}
    (workdir / PATHS).write_text(json.dumps(content, indent=1) + '\n', encoding='utf-8')


def _values(config: Mapping[str, Any]) -> dict[str, str]:
  """Return {key: value} of a config's local paths."""
  found = {}
  for key in KINDS:
    section, _, name = key.partition('.')
    value = config[section].get(name) if isinstance(config.get(section), Mapping) else None
    is_address = key == 'log.mlflow_uri' and ':' in str(value)
    if value and isinstance(value, str) and not is_address:
      found[key] = value
  return found


def _split(key: str, value: str) -> list[str]:
  """Return the paths in a value; only data.manual_dir has several, with commas between."""
  return value.split(',') if key == 'data.manual_dir' and not os.path.exists(value) else [value]


def _read(workdir: Any) -> dict[str, tuple[str, str]]:
  """Return {key: (given, absolute)} of a run; {} for one of an earlier version. Raises InputError if it is damaged."""
  path = storage.path('--workdir', workdir) / PATHS
  if not path.exists():
    return {}
  content, where = records.read(path), str(path)
  before = documents.field(content, 'workdir', str, where)
  found = {}
  for key, record in documents.field(content, 'paths', dict, where).items():
    given, absolute = (documents.field(record, name, str, f'{where}: {key}') for name in ('given', 'absolute'))
    inside = os.path.relpath(absolute, before)
    moved = os.path.normpath(os.path.join(os.path.abspath(path.parent), inside))
    is_inside = not inside.startswith(os.pardir)  # of the work directory, which may have been moved without its data
    if not storage.is_remote(path) and (is_inside or not _exist(key, absolute) and _exist(key, moved)):
      absolute = moved
    found[key] = given, absolute
  return found


def _choose(key: str, here: str, recorded: str) -> str:
  """Return the path `here`, or the recorded one if only that exists."""
  if storage.is_remote(here) or here == recorded:
    return here
  if recorded and not _exist(key, recorded):
    if not _exist(key, here) and key != 'train.init_from':  # whose parameters a run has from its start
      note = (
        f'{key}: got {here}, which is not in the current directory; the run was made with {recorded}, which is gone'
      )
      warnings.warn(note, InputWarning, stacklevel=2)
    return here
  if not _exist(key, here):
    return recorded
  if os.path.abspath(here) != recorded and not (os.path.exists(recorded) and os.path.samefile(here, recorded)):
    note = f'{key}: got {here}, read from the current directory; the run was made with {recorded}'
    warnings.warn(note, InputWarning, stacklevel=2)
  return here


def _exist(key: str, value: str) -> bool:
  return all(os.path.exists(text) or glob.glob(text) for text in _split(key, value))
