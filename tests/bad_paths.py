"""Texts that can be no path, for tests of every option and key that is one."""

from __future__ import annotations

import pathlib

LATIN = 'byte that is not UTF-8'
BAD = {
  'zero byte': 'a\0b',
  LATIN: 'a\udcffb',
  'surrogate': 'a\ud800b',
  'unknown scheme': 'foo://x/y',
  'other bucket': 's3://b/x',
  'bucket with one slash': 'gs:/b/x',
  'published weights': 'hub:gpt2',
  'unknown user': '~no_such_user/x',
  'loop of links': 'loop/x',
  'long name': 'x' * 256,
  'long path': 'x/' * 2500,
  'below a file': 'file/x',
}


def make(folder: pathlib.Path) -> None:
  """Make a file, a folder and a loop of links in the current directory of a test."""
  (folder / 'file').write_text('a b\n')
  (folder / 'folder').mkdir()
  (folder / 'loop').symlink_to('loop')


def is_untouched(folder: pathlib.Path) -> bool:
  """Return whether `folder` has what `make` made, and no other file."""
  return {path.name for path in folder.iterdir()} == {'file', 'folder', 'loop'}
