"""The launcher starts, marks, signals and stops processes; plain Python stands in for lmx."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import types

import pytest

from launch import command, local
from tests.launch import signals

REPORT = 'import os; print(os.environ["LMX_PROCESS_ID"], os.environ["LMX_NUM_PROCESSES"], os.environ["NPROC"])'


def environments(processes=2):
  return [local.environment(i, processes, 4, 12345) for i in range(processes)]


def test_environment(monkeypatch):
  monkeypatch.setenv('XLA_FLAGS', '--xla_foo')
  assert local.environment(1, 2, 4, 12345) == {
    'LMX_COORDINATOR': 'localhost:12345',
    'LMX_NUM_PROCESSES': '2',
    'LMX_PROCESS_ID': '1',
    'XLA_FLAGS': '--xla_foo --xla_force_host_platform_device_count=4',
    'JAX_PLATFORMS': 'cpu',
    'NPROC': '16',
  }
  assert local.environment(0, 1, 0, 12345) == {}


def test_every_process_gets_its_id(capfd):
  assert local.run([sys.executable, '-c', REPORT], environments()) == 0
  assert sorted(capfd.readouterr().out.splitlines()) == ['0 2 16', '[1] 1 2 16']


def test_each_line_is_one_write(monkeypatch):
  written = []
  monkeypatch.setattr(sys, 'stdout', types.SimpleNamespace(write=written.append, flush=lambda: None))
  command.pump([b'loss 1\n', b'loss 2'], '[3] ')
  assert written == ['[3] loss 1\n', '[3] loss 2\n']


def test_failed_process_stops_the_others_and_sets_the_exit_code():
  code = 'import os, sys, time; sys.exit(7) if os.environ["LMX_PROCESS_ID"] == "1" else time.sleep(60)'
  start = time.monotonic()
  assert local.run([sys.executable, '-c', code], environments(3)) == 7
  assert time.monotonic() - start < 20


def test_process_that_ignores_sigterm_is_killed():
  code = (
    'import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n'
    'if os.environ["LMX_PROCESS_ID"] == "1": time.sleep(1); sys.exit(3)\n'
    'time.sleep(60)'
  )
  start = time.monotonic()
  assert local.run([sys.executable, '-c', code], environments(), grace=0.5) == 3
  assert time.monotonic() - start < 20


def test_signal_exit_code_matches_the_shell():
  code = 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)'
  assert local.run([sys.executable, '-c', code], environments(1)) == 128 + signal.SIGKILL


# Two processes that name the signal that they get, and end as a training that has saved.
SAVING = """
import os, signal, sys, time
def save(number, frame):
  os.write(1, b'saved %d\\n' % number)
  sys.exit(75)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
  signal.signal(number, save)
os.write(1, b'ready\\n')
time.sleep(60)
"""
LAUNCHER = """
import sys
from launch import local
environments = [local.environment(i, 2, 4, 1) for i in range(2)]
sys.exit(local.run([sys.executable, '-S', '-c', sys.argv[1]], environments))
"""


def send_to_launcher(root, prepare, *numbers):
  """Send signals to a launcher of two processes; return its exit code and the rest of its output."""
  process = subprocess.Popen(
    [sys.executable, '-c', LAUNCHER, SAVING],
    stdout=subprocess.PIPE,
    text=True,
    env={**os.environ, 'PYTHONPATH': str(root), 'PYTHONUNBUFFERED': '1'},
    preexec_fn=prepare,
  )
  assert {process.stdout.readline().strip() for _ in range(2)} == {'ready', '[1] ready'}
  for number in numbers:
    process.send_signal(number)
  rest, _ = process.communicate(timeout=30)
  return process.returncode, sorted(rest.split('\n'))


@pytest.mark.parametrize('number', signals.HANDLED)
def test_signal_is_forwarded_to_every_process(root, number):
  expected = ['', f'[1] saved {number}', f'saved {number}']
  assert send_to_launcher(root, signals.handle, number) == (75, expected)


def test_ignored_signal_is_not_forwarded(root):
  numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
  assert send_to_launcher(root, signals.ignore, *numbers) == (75, ['', '[1] saved 15', 'saved 15'])


def ends(tmp_path, *how):
  """A program that ends in one of these ways at each start, in process 1; process 0 waits."""
  return (
    'import os, pathlib, signal, sys, time\n'
    'if os.environ["LMX_PROCESS_ID"] == "0": time.sleep(1.5); sys.exit(0)\n'
    f'file = pathlib.Path({str(tmp_path / "starts")!r})\n'
    'starts = file.read_text() if file.exists() else ""\n'
    'file.write_text(starts + "x")\n'
    f'how = {how!r}[len(starts)]\n'
    'os.kill(os.getpid(), -how) if how < 0 else sys.exit(how)'
  )


@pytest.mark.parametrize(
  'how, restarts, code, starts',
  [
    ((75, -signal.SIGKILL, 0), 2, 0, 3),  # saved and left, then killed: again, on other ports
    ((-signal.SIGSEGV, 75, 0), 1, 75, 2),
    ((2, 0), 5, 2, 1),  # bad input stays bad
    ((3, 0), 5, 3, 1),
    ((130, 0), 5, 130, 1),  # from the keyboard
    ((75, 0), 0, 75, 1),
  ],
)
def test_restarted_job_resumes(tmp_path, capfd, how, restarts, code, starts):
  ports = []

  def given():
    ports.append(local.free_port())
    return [local.environment(i, 2, 4, ports[-1]) for i in range(2)]

  assert local.run_with_restarts([sys.executable, '-c', ends(tmp_path, *how)], given, restarts, grace=0.2) == code
  assert len((tmp_path / 'starts').read_text()) == len(ports) == starts
  assert capfd.readouterr().err.count('starting again') == starts - 1


def test_signal_to_the_launcher_ends_it_for_good(root):
  child = (
    'import os, sys, time, signal; signal.signal(15, lambda *_: sys.exit(75))\nos.write(1, b"x\\n"); time.sleep(60)'
  )
  parent = (
    'import sys; from launch import local\n'
    f'sys.exit(local.run_with_restarts([sys.executable, "-c", {child!r}], lambda: [{{}}], 3))'
  )
  process = subprocess.Popen([sys.executable, '-c', parent], stdout=subprocess.PIPE, cwd=root)
  assert process.stdout.readline() == b'x\n'
  process.send_signal(signal.SIGTERM)
  rest, _ = process.communicate(timeout=30)
  assert rest == b'' and process.returncode == 75


def test_dry_run_prints_one_command_per_process(capsys):
  argv = ['--processes=2', '--devices=4', '--port=12345', '--dry_run', '--', 'train', '--config=a.py', '--workdir=a b']
  assert local.main(argv) == 0
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) == 2
  for number, line in enumerate(lines):
    assert f'LMX_PROCESS_ID={number} ' in line
    assert line.endswith("-m lmx.cli.main train --config=a.py '--workdir=a b'")


BAD = ('--processes=0', '--devices=-1', '--restarts=-1')


@pytest.mark.parametrize('argv', [[], *([option, '--', 'train'] for option in BAD)])
def test_bad_arguments_exit_with_2(argv, capsys):
  with pytest.raises(SystemExit) as error:
    local.main(argv)
  assert error.value.code == 2
  assert 'usage' in capsys.readouterr().err
