"""What is wrong with a host is said with its name: two hosts played by threads, and the command in real processes."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from launch import local
from launch import preflight as launcher
from lmx.cli import main
from lmx.cluster import preflight
from lmx.cluster.rendezvous import Rendezvous
from lmx.engine import distributed
from lmx.errors import InputError

CONFIG = 'experiments/rnn_lm/quickstart.py:tiny'


class Hosts:
  """Two hosts as threads; each makes the checks that need no device."""

  def __init__(self, tmp_path):
    shared = dict(config=CONFIG, workdir=str(tmp_path / 'run'), prepare=True, timeout=20.0)
    self.given = [dict(shared, overrides=[]) for _ in range(2)]
    self.said: list[str] = []
    self.errors: dict[int, str] = {}
    self.here = threading.local()

  def check(self):
    address = f'localhost:{local.free_port()}'

    def one(process):
      self.here.process = process
      wanted = preflight.Setup(**self.given[process])
      tell = self.said.append if process == 0 else lambda text: None
      try:
        meeting = Rendezvous(address, 2, process, 'ab'[process], 20.0)
        try:
          run = preflight._check_versions(meeting, wanted, tell)
          preflight._check_workdir(meeting, wanted, tell)
          preflight._check_data(meeting, wanted, run, tell)
        finally:
          meeting.close()
      except InputError as error:
        self.errors[process] = str(error)

    threads = [threading.Thread(target=one, args=(p,)) for p in range(2)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join(120)
    return self.errors.get(0, '')


@pytest.fixture
def hosts(tmp_path):
  return Hosts(tmp_path)


def test_equal_hosts_are_ready(hosts, tmp_path):
  assert hosts.check() == ''
  assert re.match(r'python 3.*, lmx .*, source [0-9a-f]{12}, jax .*, config .*: the same everywhere', hosts.said[0])
  assert hosts.said[1] == f'work directory {tmp_path}/run is read and written by all'
  assert re.match(r'data embedded, hash [0-9a-f]{12}, is available', hosts.said[2])
  assert list((tmp_path / 'run').iterdir()) == []


@pytest.mark.parametrize(
  'name, advice',
  [
    ('jax', 'install the same jax'),
    ('jaxlib', 'install the same jaxlib'),
    ('libtpu', 'or JAX hangs'),
    ('lmx', "copy one commit's code"),
    ('source', "copy one commit's code"),
    ('python', 'use one Python'),
  ],
)
def test_another_version_is_reported(hosts, monkeypatch, name, advice):
  true = preflight.versions()
  other = lambda: {**true, name: '0.0.7'} if hosts.here.process else true
  monkeypatch.setattr(preflight, 'versions', other)
  error = hosts.check()
  assert f'host b (process 1): {name} is 0.0.7, but {true[name] or "missing"} on host a (process 0): ' in error
  assert advice in error
  assert hosts.errors[1] == 'the hosts are not ready; see the output of host a (process 0)'
  assert not hosts.said


def test_another_config_is_reported(hosts):
  hosts.given[1]['overrides'] = ['optim.lr=0.5']
  error = hosts.check()
  assert 'host b (process 1): config is ' in error and 'give the same command' in error


def test_config_that_cannot_be_read_is_reported(hosts):
  hosts.given[1]['config'] = 'no/such.py'
  assert 'host b (process 1): --config: got no/such.py' in hosts.check()


def test_unshared_work_directory_is_reported(hosts, tmp_path):
  hosts.given[1]['workdir'] = str(tmp_path / 'elsewhere')
  error = hosts.check()
  assert 'host a (process 0): cannot read in work' in error and 'the files of host b (process 1)' in error
  assert 'host b (process 1): cannot read in work' in error and 'a bucket (gs://...)' in error


def test_invalid_work_directory_is_reported(hosts, tmp_path):
  (tmp_path / 'file').write_text('')
  hosts.given[1]['workdir'] = str(tmp_path / 'file')
  error = hosts.check()
  assert f'host b (process 1): --workdir: got {tmp_path}/file, a file; expected a folder' in error
  assert 'host a' not in error


def test_missing_data_is_reported(hosts, tmp_path):
  for given in hosts.given:
    given.update(prepare=False)
  hosts.given[1]['overrides'] = [f'data.cache_dir={tmp_path}/empty']
  hosts.check()
  assert f'host b (process 1): there is no data manifest in {tmp_path}/empty/tokens/embedded-' in hosts.errors[0]
  assert f'lmx prepare --config={CONFIG}' in hosts.errors[0]


def test_other_data_is_reported(hosts, tmp_path):
  for name in 'ab':
    (tmp_path / name).mkdir()
    (tmp_path / name / 'train.txt').write_text(f'the text of {name}\n' * 200)
  for given, name in zip(hosts.given, 'ab', strict=True):
    given['overrides'] = ['data.dataset=text_files', f'data.manual_dir={tmp_path / name}']
  error = hosts.check()
  assert re.search(r'host b \(process 1\): other data \(hash \w{12}\) than on host a', error)


def test_wrong_process_count_is_reported(monkeypatch):
  monkeypatch.delenv('LMX_COORDINATOR', raising=False)
  with pytest.raises(InputError, match='--processes: got 2'):
    preflight.check(preflight.Setup(CONFIG, (), 'x', processes=2), print)


def test_settings_of_launchers(monkeypatch):
  monkeypatch.setenv('LMX_COORDINATOR', 'h:1')
  monkeypatch.setenv('LMX_NUM_PROCESSES', '4')
  monkeypatch.setenv('LMX_PROCESS_ID', '3')
  assert distributed.read_settings() == ('h:1', 4, 3)
  monkeypatch.setenv('LMX_COORDINATOR', 'auto')
  assert distributed.read_settings() is None
  monkeypatch.delenv('LMX_COORDINATOR')
  assert distributed.read_settings() == ('', 1, 0)


def test_records_are_gathered_over_devices(monkeypatch):
  """Two processes whose devices give back what both put there."""
  others = [{'host': 'b'}, {'text': 'ä' * 100}]

  def gather(array):
    other = np.frombuffer(json.dumps(others[0]).encode(), np.uint8)
    if array.ndim == 0:
      return np.array([array, other.size])
    return np.stack([array, np.pad(other, (0, array.size - other.size))])

  monkeypatch.setattr(preflight.multihost_utils, 'process_allgather', gather)
  meeting = preflight.DeviceMeeting('a', 5.0)
  assert (meeting.process, meeting.hosts) == (0, {0: 'a', 1: 'b'})
  others.pop(0)
  assert meeting.all({'n': 1}, 5.0) == [{'n': 1}, {'text': 'ä' * 100}]
  assert meeting.name(1) == 'host b (process 1)'


@pytest.mark.slow
def test_two_processes_detected_by_jax(tmp_path):
  """Slurm's variables are those that JAX reads."""
  command = [sys.executable, '-m', 'lmx.cli.main', 'preflight', f'--config={CONFIG}', f'--workdir={tmp_path}/run']
  slurm = {'SLURM_JOB_ID': str(local.free_port()), 'SLURM_STEP_NODELIST': 'localhost', 'SLURM_NTASKS': '2'}
  slurm |= {'SLURM_STEP_NUM_NODES': '1', 'LMX_COORDINATOR': 'auto', 'NPROC': '16'}
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    started = [
      pool.submit(run, *command, '--prepare', '--processes=2', '--devices=1', '--timeout=200', **slurm, **own)
      for own in ({'SLURM_PROCID': str(i), 'SLURM_LOCALID': str(i)} for i in range(2))
    ]
  first, second = (each.result() for each in started)
  assert first.returncode == second.returncode == 0, first.stderr + second.stderr
  lines, none = ([line for line in said.stdout.splitlines() if '[Gloo]' not in line] for said in (first, second))
  assert '2 process(es) on 1 host(s)' in lines[0] and 'the same everywhere' in lines[1]
  assert '2 devices (cpu), 1 in each process' in lines[-2] and not none
  assert list((tmp_path / 'run').iterdir()) == []


def run(*argv, **environment):
  root = pathlib.Path(__file__).parents[2]
  flags = '--xla_backend_optimization_level=0'
  env = {**os.environ, 'PYTHONPATH': str(root), 'XLA_FLAGS': flags, **environment}
  return subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, check=False)


def test_two_processes_started_by_the_command(tmp_path):
  train = ['train', f'--config={CONFIG}', f'--workdir={tmp_path}', '--config.train.steps=3']
  found = run(sys.executable, '-m', 'launch.preflight', '--processes=2', '--devices=2', '--timeout=200', '--', *train)
  assert found.returncode == 0, found.stderr
  lines = [line for line in found.stdout.splitlines() if line.startswith('preflight: ')]
  assert lines[0].startswith('preflight: 2 process(es) on 1 host(s)')
  assert lines[-2] == 'preflight: 4 devices (cpu), 2 in each process'
  assert re.fullmatch(r'preflight: all-reduce of 4 MiB per device in [\d.]+ ms', lines[-1])
  assert list(tmp_path.iterdir()) == []


def test_too_few_devices_end_the_command(tmp_path):
  command = [sys.executable, '-m', 'lmx.cli.main', 'preflight', f'--config={CONFIG}', f'--workdir={tmp_path}']
  few = run(*command, '--devices=3', '--prepare', '--timeout=200')
  assert few.returncode == 2
  assert re.search(r'host \S+ \(process 0\): expected 3 devices, but JAX has 1 x cpu \(cpu\)', few.stderr)


def test_missing_process_is_reported(tmp_path, monkeypatch, capsys):
  alone = dict(LMX_COORDINATOR=f'localhost:{local.free_port()}', LMX_NUM_PROCESSES='2', LMX_PROCESS_ID='0')
  for name, value in {**alone, 'LMX_HOSTS': 'here,there'}.items():
    monkeypatch.setenv(name, value)
  assert main.main(['preflight', f'--config={CONFIG}', f'--workdir={tmp_path}', '--timeout=1']) == 2
  assert '1 of 2 processes connected within 1 s; missing: host there (process 1)' in capsys.readouterr().err


def test_error_messages_match_training():
  train = ('train', '--config=a.py:x', '--workdir', 'b c', '--config.optim.lr=1', '--config.model.N', '2')
  assert launcher.words(train, processes=4, devices=8) == (
    'preflight',
    '--prepare',
    '--processes=4',
    '--devices=8',
    '--timeout=60',
    '--config=a.py:x',
    '--workdir',
    'b c',
    '--config.optim.lr=1',
    '--config.model.N',
    '2',
  )
  assert launcher.words(('evaluate', '--workdir=a')) == ()


def test_launcher_reports_errors_and_dry_run_commands(capsys):
  assert launcher.main(['--', 'evaluate', '--workdir=a']) == 2
  assert 'needs no preflight' in capsys.readouterr().err
  assert launcher.main([]) == 2
  assert 'nothing to run' in capsys.readouterr().err
  assert launcher.main(['--dry_run', '--processes=2', '--', 'train', '--config=a.py', "--workdir=it's"]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) == 2 and lines[1].startswith('LMX_COORDINATOR=')
  assert lines[0].endswith("preflight --prepare --processes=2 --timeout=60 --config=a.py '--workdir=it'\"'\"'s'")
