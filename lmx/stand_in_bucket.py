"""Folders that stand in for buckets: with LMX_BUCKETS=DIR, gs://NAME/PATH is DIR/NAME/PATH on this machine.

A rehearsal reads and writes data by the same code as with Cloud Storage, without an account or a network.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import fsspec
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from lmx.errors import InputError


class StandIn(DirFileSystem):
  """The buckets of LMX_BUCKETS."""

  protocol = ('gs', 'gcs')

  def __init__(self, **options: Any):
    del options  # of Cloud Storage
    super().__init__(path=os.path.abspath(os.environ['LMX_BUCKETS']), fs=LocalFileSystem(auto_mkdir=True))


@functools.cache
def register() -> None:
  """Let gs:// addresses of this process be folders. Raises InputError if there is no such folder."""
  if not os.path.isdir(folder := os.environ['LMX_BUCKETS']):
    raise InputError(f'LMX_BUCKETS: got {folder}; expected a folder with a subfolder for each bucket; make it')
  for name in StandIn.protocol:
    fsspec.register_implementation(name, StandIn, clobber=True)
