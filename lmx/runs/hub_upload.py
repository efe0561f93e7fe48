"""Upload of an exported folder to huggingface.co, as `hub:NAME` or `hub:NAME@BRANCH`.

The token is that of huggingface_hub: HF_TOKEN in the environment, or the login of `hf auth login`. It is never written
or printed. All files are one commit, so the repository has the old files or the new ones. A repeated command does not
send files again that arrived whole.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lmx import storage
from lmx.data import cache
from lmx.errors import InputError
from lmx.interop.huggingface import folder
from lmx.runs import hub

_OWN = '.gitattributes'  # written by the server
_REFUSED = {
  401: 'the token is not accepted; expected a valid one in HF_TOKEN, or a login by hf auth login',
  403: 'the token may not write there; expected one with write permission for this name',
  409: 'the repository changed meanwhile; repeat the command',
  412: 'the repository changed meanwhile; repeat the command',
}


class _Target(NamedTuple):
  """A branch to write.

  Attributes:
    address: hub:NAME or hub:NAME@BRANCH.
    name: name of the repository.
    branch: its branch.
    token: the user's token.
    api: client of the server.
  """

  address: str
  name: str
  branch: str
  token: str
  api: Any


def push(to: str, write: Callable[[str], list[str]], private: bool = False, overwrite: bool = False) -> list[str]:
  """Write a folder and upload it; return the lines of `write` and one on the commit.

  Args:
    to: 'hub:NAME' or 'hub:NAME@BRANCH'. A missing repository or branch is created, a branch from main.
    write: writes the folder of this path, which does not exist, and returns lines for the user.
    private: create a private repository.
    overwrite: the branch may have other files. Those that an import reads are replaced or removed, others are kept.

  Raises:
    InputError: before `write`, there is no token, the server does not accept it, or the branch has files; or the
      upload fails.
  """
  target = _target(to)
  with _errors(target):
    parent = _check(target, private, overwrite)
  home = pathlib.Path(cache.root()) / 'hub'
  with cache.disk_errors(str(home)):
    home.mkdir(parents=True, exist_ok=True)
  part = storage.part(storage.path('LMX_CACHE', home / 'export'))
  try:
    directory = os.fspath(part / 'model')
    lines = [line.replace(directory, to) for line in write(directory)]
    with _errors(target):
      return [*lines, _upload(target, directory, private, overwrite, parent)]
  finally:
    part.rmtree(missing_ok=True)


def _target(to: str) -> _Target:
  """Return the branch of an address; raise InputError without a valid name or a token."""
  library, errors = hub.library(to)
  from huggingface_hub.utils import validate_repo_id

  name, separator, branch = to.removeprefix(hub.PREFIX).partition('@')
  try:
    validate_repo_id(name)
  except errors.HFValidationError as error:
    raise InputError(f'--to: got {to}; expected hub:NAME or hub:NAME@BRANCH ({hub.short(error)})') from None
  if separator and not branch:
    raise InputError(f'--to: got {to}; expected a branch after @; omit @ for {hub.BRANCH}')
  token = hub.token()
  if not token:
    raise InputError(f'--to: got {to}, but no token to write there; set HF_TOKEN, or log in by hf auth login')
  return _Target(to, name, branch or hub.BRANCH, token, library.HfApi(endpoint=hub.server(), token=token))


@contextlib.contextmanager
def _errors(target: _Target) -> Iterator[None]:
  """Raise errors of the library as InputError, without the token."""
  _, errors = hub.library(target.address)
  try:
    yield
  except (OSError, RuntimeError, ValueError, errors.HTTPError) as error:
    if isinstance(error, InputError):
      raise
    cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error  # of one file
    status = getattr(getattr(cause, 'response', None), 'status_code', 0)
    reason = _REFUSED.get(status, 'repeat the command; files that arrived whole are not sent again')
    text = ': '.join(dict.fromkeys(map(hub.short, (error, cause)))).replace(target.token, '***')
    raise InputError(f'{target.address}: not written to {hub.server()} ({text}): {reason}') from None


def _check(target: _Target, private: bool, overwrite: bool) -> str | None:
  """Return the branch's commit, None if there is no branch; raise InputError if it may not be written."""
  _, errors = hub.library(target.address)
  parent = None
  try:
    try:
      about = target.api.model_info(target.name, revision=target.branch)
      parent = about.sha
    except errors.RevisionNotFoundError:
      about = target.api.model_info(target.name)  # a new branch begins with these files
  except errors.RepositoryNotFoundError as error:
    if error.response.status_code != 404:  # the server hides repositories from others
      raise
    return None
  if private and about.private is False:
    raise InputError(f'--private: got a public repository, {target.name}; expected a private or a new one; omit it')
  files = sorted(file.rfilename for file in about.siblings or () if file.rfilename != _OWN)
  if files and not overwrite:
    more = f' and {len(files) - 5} more' if len(files) > 5 else ''
    raise InputError(
      f'{target.address}: got a repository with {", ".join(files[:5])}{more}; expected an empty or a new one; choose '
      'another name or branch, or set --overwrite'
    )
  return parent


def _upload(target: _Target, directory: str, private: bool, overwrite: bool, parent: str | None) -> str:
  """Upload the files as one commit; return a line on it."""
  target.api.create_repo(target.name, private=private or None, exist_ok=True)
  if target.branch != hub.BRANCH:
    target.api.create_branch(target.name, branch=target.branch, exist_ok=True)
  commit = target.api.upload_folder(
    repo_id=target.name,
    folder_path=directory,
    revision=target.branch,
    commit_message='Export from lmx',
    delete_patterns=list(folder.NEEDED) if overwrite else None,
    parent_commit=parent,
  )
  return f'pushed {target.address} to {hub.server()}: commit {commit.oid}'
