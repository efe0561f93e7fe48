"""The program after partitioning, of a compilation that goes on in a process of its own."""

from __future__ import annotations

import pathlib
import sys
import time

import pytest

from lmx.compilation import partition
from lmx.errors import InputError

COMPILER = """#!/bin/sh
folder=${XLA_FLAGS##*--xla_dump_to=}
sleep 60 >&- 2>&- &
echo $! > "$PIDS"
echo program > "${folder%% *}/module.after_tpu-spmd-partitioning.txt"
wait
"""


def compiler(tmp_path, monkeypatch, text):
  path = tmp_path / 'python'
  path.write_text(text)
  path.chmod(0o755)
  monkeypatch.setattr(sys, 'executable', str(path))
  monkeypatch.setenv('PIDS', str(tmp_path / 'pids'))


def test_compilation_ends_every_child_process(tmp_path, monkeypatch):
  compiler(tmp_path, monkeypatch, COMPILER)
  assert partition.text(['compile']) == 'program\n'
  child = pathlib.Path(f'/proc/{int((tmp_path / "pids").read_text())}/stat')
  until = time.monotonic() + 20  # a busy machine ends it late
  while child.exists() and child.read_text().split()[2] not in 'XZ':
    assert time.monotonic() < until
    time.sleep(0.01)


def test_compilation_that_fails_is_an_input_error(tmp_path, monkeypatch):
  compiler(tmp_path, monkeypatch, '#!/bin/sh\necho "lmx: model.V: got 0" >&2\nexit 2\n')
  with pytest.raises(InputError, match='^model.V: got 0$'):
    partition.text(['compile'])
