"""Weights of huggingface.co by name, `hub:NAME` or `hub:NAME@REVISION`, in lmx's cache.

The library huggingface_hub (extra `hub`) downloads them, with a progress bar for each file. A broken connection is
resumed; after an interruption the files that are whole are not fetched again. They are in the folder `hub` of the cache
(LMX_CACHE). A revision that is complete there is used without a network, so a branch such as main stays at the commit
of the first download. HF_ENDPOINT names another server, HF_TOKEN has a token.
"""

from __future__ import annotations

import fnmatch
import os
import pathlib
import sys
from collections.abc import Iterable
from typing import Any

from lmx import documents, records, storage
from lmx.data import cache
from lmx.errors import InputError, explain
from lmx.interop.huggingface import folder
from lmx.reporting import run_log
from lmx.runs import front_matter
from lmx.runs.front_matter import CARD

PREFIX = storage.HUB
_SERVER, _BRANCH = 'https://huggingface.co', 'main'
_UNKNOWN = 'not in the model card'


def download(source: str) -> str:
  """Return the folder of a model's files; print its commit and licence to standard error.

  Args:
    source: 'hub:NAME', or 'hub:NAME@REVISION' with a branch, tag or commit.

  Raises:
    InputError: there is no such model or revision, the library is missing, or the cache does not have the revision and
      the server cannot be reached.
  """
  name, _, revision = source.removeprefix(PREFIX).partition('@')
  revision = revision or _BRANCH
  home = pathlib.Path(cache.root()) / 'hub'
  record = home / 'complete' / f'{name}@{revision}.json'.replace('/', '--')
  found = records.read_if_exists(record)
  for field in ('folder', 'commit', 'licence') if found else ():
    documents.field(found, field, str, str(record))
  came = f'from the cache; delete {record} to ask the server again'
  if not found or not os.path.isdir(found['folder']):
    with cache.disk_errors(str(home)):
      record.parent.mkdir(parents=True, exist_ok=True)
      found = _fetch(source, name, revision, home)
    run_log.write_json(str(record), found)
    came = f'downloaded to {home}'
  print(f'{source}: commit {found["commit"]}, licence: {found["licence"]} ({came})', file=sys.stderr)
  return str(found['folder'])


def _fetch(source: str, name: str, revision: str, home: pathlib.Path) -> dict[str, str]:
  """Download files missing in the cache; return the folder, the commit and the licence."""
  try:
    import huggingface_hub
    from huggingface_hub import errors
  except ImportError as error:
    raise InputError(
      f"{source}: needs huggingface_hub, which cannot be imported ({error}); pip install 'lmx[hub]'"
    ) from None
  server = os.environ.get('HF_ENDPOINT') or _SERVER
  try:
    about = huggingface_hub.HfApi(endpoint=server).model_info(name, revision=revision)
    wanted = choose(file.rfilename for file in about.siblings or ())
    if folder.CONFIG not in wanted:
      raise InputError(f'{source}: got files without {folder.CONFIG}; expected a transformers model')
    given: dict[str, Any] = {'revision': about.sha, 'cache_dir': home, 'endpoint': server}
    paths = [huggingface_hub.hf_hub_download(name, file, **given) for file in wanted]
  except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError) as error:
    raise InputError(
      f'{source}: not found at {server} ({_short(error)}); expected hub:NAME or hub:NAME@REVISION'
    ) from None
  except (OSError, errors.HTTPError) as error:
    raise InputError(
      f'{source}: cannot be downloaded from {server} ({_short(error)}); repeat the command to resume; '
      'without a network, give a folder with its files instead'
    ) from None
  directory = pathlib.Path(paths[0]).parent
  return {'folder': str(directory), 'commit': str(about.sha), 'licence': licence(directory)}


def choose(files: Iterable[str]) -> list[str]:
  """Return the files of a model that lmx reads, and its model card: of the weights only safetensors if it has them."""
  patterns = [*folder.NEEDED, CARD]
  chosen = [name for name in files if '/' not in name and any(fnmatch.fnmatch(name, p) for p in patterns)]
  if {folder.WEIGHTS, folder.INDEX} & {*chosen}:
    chosen = [name for name in chosen if not fnmatch.fnmatch(name, 'pytorch_model*')]
  return chosen


def licence(directory: pathlib.Path) -> str:
  """Return the licence in a model card's front matter."""
  fields = front_matter.read_licence(directory)
  return front_matter.show_licence(fields) if fields else _UNKNOWN


def _short(error: BaseException) -> str:
  return next((line.strip() for line in explain(error).splitlines() if line.strip()), type(error).__name__)
