"""Frame of the site's pages: the repository's address, the version and the licence.

The address is LMX_REPO_URL or, without it, that of the clone's `origin` if it is on a host. Without both, pages have no
links to the repository.
"""

from __future__ import annotations

import configparser
import os
import pathlib
import re
import subprocess
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
COPIES = {'contributing.md': 'CONTRIBUTING.md', 'changelog.md': 'CHANGELOG.md'}
_REMOTE = re.compile(r'(?:https?://|ssh://|git@)(?:[^@/]*@)?([\w.-]+\.\w+)(?::\d+)?[:/](.+?)(?:\.git)?/?$')


def on_config(config: Any) -> Any:
  """Set the repository's address and the footer; an event of MkDocs."""
  url = os.environ.get('LMX_REPO_URL', '').rstrip('/') or address(_origin())
  config.repo_url = url or None
  config.repo_name = '/'.join(url.split('/')[-2:]) if url else None
  config.edit_uri = 'edit/main/docs/' if url else None
  metadata = configparser.ConfigParser()
  metadata.read(ROOT / 'setup.cfg')
  version, licence = (metadata['metadata'][key] for key in ('version', 'license'))
  text = (
    f'<a rel="license" href="{url}/blob/main/LICENSE">{licence}</a>' if url else f'<span rel="license">{licence}</span>'
  )
  config.copyright = f'lmx {version}, licence {text}'
  return config


def on_files(files: Any, config: Any) -> Any:
  """Let the pages without a file in docs/ be edited where they are written; an event of MkDocs."""
  del config
  for page, source in COPIES.items():
    files.get_file_from_path(page).edit_uri = f'../{source}'
  for file in files.documentation_pages():
    if file.src_uri.startswith('notebooks/') and file.generated_by:
      file.edit_uri = f'../{file.src_uri.removesuffix(".md")}.ipynb'
  return files


def _origin() -> str:
  command = ['git', '-C', str(ROOT), 'remote', 'get-url', 'origin']
  try:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
  except OSError:  # no git
    return ''


def address(remote: str) -> str:
  """Return the address of a repository's pages for one of git, without a password; '' for a path of this machine."""
  found = _REMOTE.match(remote)
  return f'https://{found[1]}/{found[2]}' if found else ''
