"""The step after XLA's partitioner, in seconds instead of minutes for a whole compilation.

XLA has no interface that stops there. A child process compiles and writes its program after the partitioner; when the
file is whole, the child and its own children are ended.
"""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from lmx.errors import InputError

_PATTERN = '*after_tpu-spmd-partitioning*'
_INTERVAL = 0.5  # polling interval of the file, in seconds


def text(command: Sequence[str]) -> str:
  """Return the program of the step that `command` compiles, after partitioning.

  Raises:
    InputError: the command fails before.
  """
  with tempfile.TemporaryDirectory() as folder:
    flags = f'--xla_dump_to={folder} --xla_dump_hlo_pass_re=spmd-partitioning --xla_dump_hlo_module_re=.*train_step.*'
    environment = {**os.environ, 'XLA_FLAGS': f'{os.environ.get("XLA_FLAGS", "")} {flags}'}
    child = subprocess.Popen(
      [sys.executable, '-m', 'lmx.cli.main', *command],
      env=environment,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      encoding='utf-8',
      errors='replace',
      start_new_session=True,
    )
    try:
      path = _wait(child, folder)
    finally:  # it may compile in its own process (lmx/cli/compile.py)
      with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    errors = child.communicate()[1]
    if path is None:
      raise InputError(errors.strip().removeprefix('lmx: ') or f'the compilation ended with code {child.returncode}')
    return path.read_text(encoding='utf-8')


def _wait(child: subprocess.Popen[str], folder: str) -> Path | None:
  """Return the dumped program when it no longer grows, or None if the child ends without one."""
  before = -1
  while True:
    running = child.poll() is None
    files = glob.glob(f'{folder}/{_PATTERN}')
    now = os.path.getsize(files[0]) if files else -1
    if now > 0 and (now == before or not running):
      return Path(files[0])
    if not running:
      return None
    before = now
    time.sleep(_INTERVAL)
