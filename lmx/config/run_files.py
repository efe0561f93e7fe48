"""Files of a work directory that identify its run: config.json, data.json and the tokenizer, with their checksums.

checksums.json has the SHA-256 of each. If an earlier lmx wrote none, data.json is verified by its hash, and the
tokenizer by the hash in data.json. The data.json of an imported run has no hash, so its tokenizer is not verified.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
import warnings
from collections.abc import Mapping
from typing import Any

from etils import epath

from lmx import documents, records, storage
from lmx.config import paths
from lmx.data import pipeline
from lmx.data.corpus import manifest_hash
from lmx.data.tokenizers import build
from lmx.data.tokenizers.base import FILE, Tokenizer, digest
from lmx.errors import InputError, InputWarning, explain
from lmx.redaction import redact

_CONFIG, _DATA, _TOKENIZER, _SUMS = 'config.json', 'data.json', f'tokenizer/{FILE}', 'checksums.json'
_RUN = 'run'  # in checksums.json: a random name of the run


def exists(workdir: Any) -> bool:
  """Return whether a work directory holds a run. Raises InputError if it is no directory."""
  workdir = _path(workdir)
  try:
    return bool((workdir / _CONFIG).exists())
  except OSError as error:
    raise InputError(f'{workdir} cannot be read ({explain(error)})') from None


def is_run(folder: str) -> bool:
  """Return whether a local folder has the records of a run; one of published weights has no data.json."""
  return all(os.path.exists(os.path.join(folder, name)) for name in (_CONFIG, _DATA))


def _path(workdir: Any) -> epath.Path:
  return storage.path('--workdir', workdir, storage.FOLDER)


def write(
  workdir: Any, config: Mapping[str, Any], data: Mapping[str, Any], tokenizer: Tokenizer, at: Any = None
) -> None:
  """Write all files, config.json last and atomically: a directory with one holds a run. Raises OSError.

  Args:
    workdir: directory to write to.
    config: resolved config.
    data: content of data.json.
    tokenizer: tokenizer of the data.
    at: where the directory will be; None for `workdir`.
  """
  workdir = _path(workdir)
  workdir.mkdir(parents=True, exist_ok=True)
  texts = {
    _CONFIG: json.dumps(redact(config), indent=1) + '\n',
    _DATA: json.dumps(data, indent=1, sort_keys=True) + '\n',
  }
  (workdir / _DATA).write_text(texts[_DATA], encoding='utf-8')
  storage.write_directory(workdir / 'tokenizer', tokenizer.save)
  paths.write(workdir, config, at)
  _write_checksums(workdir, {name: text.encode() for name, text in texts.items()}, {_RUN: secrets.token_hex(8)})
  (workdir / f'{_CONFIG}.part').write_text(texts[_CONFIG], encoding='utf-8')
  (workdir / f'{_CONFIG}.part').rename(workdir / _CONFIG)


def add_missing(workdir: Any) -> bool:
  """Write checksums.json and paths.json for a verified run of an earlier lmx; return whether there is a run.

  Raises OSError.
  """
  workdir, is_run = _path(workdir), exists(workdir)
  if is_run and not (workdir / _SUMS).exists():
    _write_checksums(workdir, {name: (workdir / name).read_bytes() for name in (_CONFIG, _DATA)})
  if is_run and not (workdir / paths.PATHS).exists():
    paths.write(workdir, read_config(workdir), only_existing=True)
  return is_run


def _write_checksums(workdir: epath.Path, contents: Mapping[str, bytes], more: Mapping[str, str] | None = None) -> None:
  contents = {**contents, _TOKENIZER: (workdir / _TOKENIZER).read_bytes()}
  sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
  (workdir / f'{_SUMS}.part').write_text(json.dumps({**sums, **(more or {})}, indent=1) + '\n', encoding='utf-8')
  (workdir / f'{_SUMS}.part').replace(workdir / _SUMS)


def read_run_id(workdir: Any) -> str:
  """Return a run's random name, also stored in its checkpoints; '' if none is recorded. Raises InputError."""
  path = _path(workdir) / _SUMS
  return documents.field(records.read_if_exists(path), _RUN, str, str(path), '')


def read_config(workdir: Any) -> dict[str, Any]:
  """Return the config of the run in a work directory. Raises InputError if it is missing or damaged."""
  if not exists(workdir):
    if records.exists(_path(workdir) / records.NGRAMS):
      raise InputError(
        f'{workdir}: got a saved n-gram model; expected the work directory of a run; lmx score reads n-gram models, '
        'and lmx evaluate with --pairs'
      )
    missing = '' if _path(workdir).exists() else ', and there is no such file or directory'
    raise InputError(f'{workdir}: got no {_CONFIG}{missing}; expected the work directory of a run')
  config = _read(workdir, _CONFIG)
  if 'model' not in config and 'model_type' in config:
    raise InputError(
      f'{workdir}: got the {_CONFIG} of a model of transformers; expected a run; make one by lmx import '
      f'--from={workdir}'
    )
  return config


def read_data(workdir: Any) -> dict[str, Any]:
  """Return the record of a run's data: the manifest of its corpus, and `hash`. Raises InputError if it is damaged."""
  data = _read(workdir, _DATA)
  path = _path(workdir) / _DATA
  recorded = documents.field(data, 'hash', str, str(path))
  if not recorded:  # imported weights have no data
    documents.field(data, 'imported_from', str, str(path))
  elif recorded != manifest_hash({name: value for name, value in data.items() if name != 'hash'}):
    raise InputError(f'{path}: got content that differs from its "hash"; expected it as lmx wrote it; restore the file')
  return data


def read_labels(workdir: Any) -> list[str]:
  """Return the label names of a run's data, in the order of their ids. Raises InputError as `read_data` does."""
  return [str(name) for name in documents.field(read_data(workdir), 'label_names', list, f'{workdir}/{_DATA}')]


def read_tokenizer(workdir: Any) -> Tokenizer:
  """Return the tokenizer of a run. Raises InputError if it or data.json is damaged, or if they disagree."""
  workdir = _path(workdir)
  path, data = workdir / _TOKENIZER, read_data(workdir)
  content = _read(workdir, _TOKENIZER)
  tokenizer = build.load(storage.local_copy(workdir / 'tokenizer'))
  if not data['hash']:
    if not (workdir / _SUMS).exists():
      warnings.warn(
        f'{path}: not verified: this imported run has no {_SUMS}; import it again to have its vocabulary verified',
        InputWarning,
        stacklevel=2,
      )
    return tokenizer
  record = documents.field(data, 'tokenizer', dict, str(workdir / _DATA))
  recorded = documents.field(record, 'hash', str, f'{workdir / _DATA}: tokenizer')
  # A later library release may serialise the same content differently.
  if recorded not in (digest(content), tokenizer.hash):
    raise InputError(
      f'{path}: got a tokenizer that is not the one in {_DATA}; expected hash {recorded}; restore the file from a copy'
    )
  return tokenizer


def with_own_words(data: pipeline.Config, workdir: Any) -> pipeline.Config:
  """Return a run's `data`; if the run has started in `workdir`, its tokenizer replaces `vectors`."""
  if not data.vectors or not exists(workdir):
    return data
  return dataclasses.replace(data, vectors='', tokenizer_path=storage.local_copy(_path(workdir) / 'tokenizer'))


def _read(workdir: Any, name: str) -> dict[str, Any]:
  """Return the JSON object in a file; verify its checksum if one is recorded."""
  workdir = _path(workdir)
  if (workdir / _SUMS).exists():
    recorded = documents.field(records.read(workdir / _SUMS), name, str, str(workdir / _SUMS))
    if hashlib.sha256(documents.read_bytes(workdir / name)).hexdigest() != recorded:
      raise InputError(
        f'{workdir / name}: got content that differs from its SHA-256 in {_SUMS}; expected it as lmx wrote it; restore '
        f'the file, or delete {_SUMS} if the change is intended'
      )
  return records.read(workdir / name)
