"""Slurm for the tests of its launcher."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.launch.slurm.cluster import DAEMONS, PROGRAM, Cluster


@pytest.fixture(scope='session')
def cluster(tmp_path_factory):
  search = os.pathsep.join([os.environ['PATH'], '/usr/sbin', '/usr/local/sbin'])
  missing = [name for name in (*DAEMONS, 'sbatch') if not shutil.which(name, path=search)]
  if missing or os.geteuid():
    pytest.skip(f'needs {", ".join(missing) or "the rights of root"}: apt-get install slurm-wlm munge')
  found = Cluster(tmp_path_factory.mktemp('slurm'))
  found.environment['PATH'] = search
  found.configure()
  try:
    found.start()
    yield found
  finally:
    found.stop()


@pytest.fixture
def project(cluster, tmp_path, monkeypatch):
  """A directory to submit from, with a program that stands in for lmx."""
  monkeypatch.setenv('SLURM_CONF', cluster.environment['SLURM_CONF'])
  monkeypatch.setenv('PATH', cluster.environment['PATH'])
  monkeypatch.setenv('WANDB_API_KEY', 'hidden-value')
  monkeypatch.setenv('OTHER_SECRET', 'other-value')
  (tmp_path / 'program').write_text(PROGRAM)
  (tmp_path / 'program').chmod(0o755)
  return tmp_path
