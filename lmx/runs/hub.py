"""Weights of huggingface.co by name, `hub:NAME` or `hub:NAME@REVISION`, in lmx's cache.

The library huggingface_hub (extra `hub`) downloads them, with a progress bar for each file. A repeated command resumes
inside a file of weights, after a broken connection and after a kill, and its SHA-256 is compared; files that are whole
are not fetched again. They are in the folder `hub` of the cache (LMX_CACHE). A revision that is complete there is used
without a network, so a branch such as main stays at the commit of the first download. HF_ENDPOINT names another server,
HF_TOKEN has a token.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import pathlib
import re
import sys
import urllib.parse
from collections.abc import Iterable
from typing import Any

from lmx import documents, records, storage
from lmx.data import cache
from lmx.errors import InputError, explain
from lmx.interop.huggingface import folder
from lmx.reporting import run_log
from lmx.runs import front_matter
from lmx.runs.front_matter import CARD

PREFIX, BRANCH = storage.HUB, 'main'
_SERVER = 'https://huggingface.co'
_WEIGHTS = ('.safetensors', '.bin')
_SHA256 = 64  # digits; other files have another kind of hash
_LARGEST = 50 * 10**9  # bytes of a file that the server sends by HTTP
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
  revision = revision or BRANCH
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
  huggingface_hub, errors = library(source)
  address = server()
  token()
  try:
    about = huggingface_hub.HfApi(endpoint=address).model_info(name, revision=revision)
    wanted = choose(file.rfilename for file in about.siblings or ())
    if folder.CONFIG not in wanted:
      raise InputError(f'{source}: got files without {folder.CONFIG}; expected a transformers model')
    paths = [_download(source, name, file, str(about.sha), home) for file in wanted]
  except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError) as error:
    raise InputError(
      f'{source}: not found at {address} ({short(error)}); expected hub:NAME or hub:NAME@REVISION'
    ) from None
  except (OSError, errors.HTTPError) as error:
    raise InputError(
      f'{source}: cannot be downloaded from {address} ({short(error)}); repeat the command to resume; '
      'without a network, give a folder with its files instead'
    ) from None
  directory = pathlib.Path(paths[0]).parent
  return {'folder': str(directory), 'commit': str(about.sha), 'licence': licence(directory)}


def library(source: str) -> tuple[Any, Any]:
  """Return huggingface_hub and its module `errors`; raise InputError with the pip command if it is missing."""
  try:
    import huggingface_hub
    from huggingface_hub import errors
  except ImportError as error:
    raise InputError(
      f"{source}: needs huggingface_hub, which cannot be imported ({error}); pip install 'lmx[hub]'"
    ) from None
  return huggingface_hub, errors


def server() -> str:
  """Return the server's address."""
  return os.environ.get('HF_ENDPOINT') or _SERVER


def token() -> str:
  """Return the user's token, '' without one; raise InputError if a header cannot have it."""
  import huggingface_hub

  found = huggingface_hub.get_token() or ''
  if not re.fullmatch('[!-~]*', found):
    raise InputError('HF_TOKEN: got a token with white space or letters that are not ASCII; copy it again')
  return found


def _download(source: str, name: str, file: str, commit: str, home: pathlib.Path) -> str:
  """Download a file; return its path in the cache."""
  import huggingface_hub

  if file.endswith(_WEIGHTS):
    _resume(source, huggingface_hub.hf_hub_url(name, file, revision=commit, endpoint=server()), name, home)
  return huggingface_hub.hf_hub_download(name, file, revision=commit, cache_dir=home, endpoint=server())


def _resume(source: str, url: str, name: str, home: pathlib.Path) -> None:
  """Download a file to where hf_hub_download looks for it, continuing with the bytes of an earlier command."""
  import huggingface_hub
  from huggingface_hub import file_download, utils

  about = huggingface_hub.get_hf_file_metadata(url, endpoint=server())
  if not about.size or about.size > _LARGEST or not re.fullmatch('[0-9a-zA-Z]+', about.etag or ''):
    return
  blob = home / file_download.repo_folder_name(repo_id=name, repo_type='model') / 'blobs' / str(about.etag)
  part, locks = blob.with_name(f'{blob.name}.part'), home / '.locks'
  for directory in (blob.parent, locks):
    directory.mkdir(parents=True, exist_ok=True)
  headers = utils.build_hf_headers()
  if urllib.parse.urlparse(url).netloc != urllib.parse.urlparse(about.location).netloc:
    headers.pop('authorization', None)
  with utils.WeakFileLock(locks / f'{blob.name}.part.lock'):
    if blob.exists():
      return
    shown = urllib.parse.unquote(url.rpartition('/')[2])
    settings: dict[str, Any] = {'headers': headers, 'expected_size': about.size, 'displayed_filename': shown}
    with open(part, 'ab') as file:
      if file.tell() > about.size:
        file.truncate(0)
      file_download.http_get(about.location, file, resume_size=file.tell(), **settings)
    with open(part, 'rb') as stream:
      is_intact = len(blob.name) != _SHA256 or hashlib.file_digest(stream, 'sha256').hexdigest() == blob.name
    if not is_intact:
      part.unlink()
      raise InputError(f'{source}: {shown}: got other bytes than its SHA-256; repeat the command to download it again')
    part.rename(blob)


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


def short(error: BaseException) -> str:
  """Return the first line of an error."""
  return next((line.strip() for line in explain(error).splitlines() if line.strip()), type(error).__name__)
