"""Output of launchers, and the simulated cloud for those by ssh."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.launch.cloud import PROGRAM, Cloud


@pytest.fixture
def unread():
  """A file whose reader has gone."""
  read, write = os.pipe()
  os.close(read)
  with open(write, 'w') as file:
    yield file


@pytest.fixture
def cloud(tmp_path, monkeypatch, root):
  for name in ('bin', 'project', 'cloud'):
    (tmp_path / name).mkdir()
  gcloud = tmp_path / 'bin/gcloud'
  gcloud.write_text(f'#!/bin/sh\nexec {sys.executable} -S {root}/tests/launch/fake_gcloud.py "$@"\n')
  gcloud.chmod(0o755)
  folder = tmp_path / 'cloud'
  (folder / 'hosts').write_text('2')
  (folder / 'accelerator').write_text('v5litepod-16')
  (folder / 'program').write_text(PROGRAM)
  (folder / 'program').chmod(0o755)
  monkeypatch.setenv('PATH', f'{tmp_path}/bin:{os.environ["PATH"]}')
  monkeypatch.setenv('FAKE_CLOUD', str(folder))
  monkeypatch.setenv('WANDB_API_KEY', 'hidden-value')
  monkeypatch.chdir(tmp_path / 'project')
  (tmp_path / 'project/constraints.txt').write_text('')
  git = ['git', '-c', 'user.name=n', '-c', 'user.email=e@x']
  for argv in (['init', '-q'], ['add', '.'], ['commit', '-qm', 'first']):
    subprocess.run([*git, *argv], check=True)
  return Cloud(folder)
