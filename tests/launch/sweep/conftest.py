"""Places of sweeps, and a PostgreSQL server where one is installed."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile

import pytest

from tests.launch.sweep.place import Place, wait_for


@pytest.fixture
def place(tmp_path, monkeypatch):
  monkeypatch.delenv('LMX_SWEEP_STORAGE', raising=False)
  return Place(tmp_path, monkeypatch)


@pytest.fixture
def postgres():
  """URL of a PostgreSQL server of its own with a password, on a socket in a directory."""
  pytest.importorskip('psycopg2', reason='needs psycopg2')
  places = [str(path.parent) for path in pathlib.Path('/usr/lib/postgresql').glob('*/bin/initdb')]
  path = os.pathsep.join([os.environ.get('PATH', ''), *places])
  programs = [shutil.which(name, path=path) for name in ('initdb', 'postgres')]
  if None in programs:
    pytest.skip('needs PostgreSQL (apt install postgresql)')
  folder, as_user = pathlib.Path(tempfile.mkdtemp(prefix='lmx-pg-', dir='/tmp')), []
  (folder / 'password').write_text('s3cret/word')
  if os.getuid() == 0:  # which PostgreSQL refuses
    try:
      user = pwd.getpwnam('postgres')
    except KeyError:
      pytest.skip('needs a user postgres')
    as_user = ['setpriv', f'--reuid={user.pw_uid}', f'--regid={user.pw_gid}', '--clear-groups']
    for path in (folder, folder / 'password'):
      os.chown(path, user.pw_uid, user.pw_gid)
  make = [
    *as_user,
    programs[0],
    '-D',
    str(folder / 'data'),
    '-U',
    'lmx',
    '--auth=scram-sha-256',
    f'--pwfile={folder / "password"}',
    '--no-sync',
  ]
  subprocess.run(make, check=True, capture_output=True, cwd='/')
  server = subprocess.Popen(
    [*as_user, programs[1], '-D', str(folder / 'data'), '-k', str(folder), '-c', 'listen_addresses='],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
    cwd='/',
  )
  url = f'postgresql+psycopg2://lmx:s3cret%2Fword@/postgres?host={folder}'
  try:
    pid = folder / 'data/postmaster.pid'
    wait_for(lambda: pid.exists() and 'ready' in pid.read_text(), server)
    yield url
  finally:
    server.send_signal(signal.SIGINT)
    server.wait(timeout=30)
    shutil.rmtree(folder, ignore_errors=True)
