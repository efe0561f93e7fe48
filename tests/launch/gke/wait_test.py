"""`launch.gke --wait` on a simulated cluster."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from launch import command
from launch.gke.__main__ import main
from launch.gke.wait import Waiter, _time
from launch.wait import open_record
from lmx.errors import InputError
from tests.launch import signals
from tests.launch.gke.manifests import check, job_of, run_of

ROOT = pathlib.Path(__file__).parents[3]

# Stands for python3 in the container.
PROGRAM = """#!/bin/bash
shift 2
echo "start $START: $1"
case "$1" in
  exit) exit "$2" ;;
  again) if [ "$START" -lt "$2" ]; then exit 75; fi ;;
  wait) trap 'echo told; exit 75' TERM; echo waiting; for i in {1..600}; do sleep 0.05; done ;;
  deaf) trap '' TERM; echo waiting; for i in {1..2400}; do sleep 0.05; done ;;
esac
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch, root):
  """The folder of a fake cluster, with its kubectl on PATH."""
  folder = tmp_path / 'cluster'
  (folder / 'bin').mkdir(parents=True)
  # Only `create` reads YAML; the others start without site-packages, in a third of the time.
  fake = '#!/bin/sh\nsite=-S\nif [ "$1" = create ]; then site=; fi\n'
  fake += f'exec {sys.executable} $site {root}/tests/launch/fake_kubectl.py "$@"\n'
  programs = {'bin/python3': PROGRAM, 'kubectl': fake}
  for name, text in programs.items():
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
  monkeypatch.setenv('FAKE_CLUSTER', str(folder))
  monkeypatch.setenv('PATH', f'{folder}:{os.environ["PATH"]}')
  return folder


def waiter(folder, *words, name='gpt2', own=()):
  """`python -m launch.gke --wait` in a process of its own."""
  argv = [
    f'--name={name}',
    '--image=i',
    '--accelerator=v6e-4',
    '--namespace=lab',
    '--poll=0.2',
    f'--wait={folder}/{name}.record',
    *own,
  ]
  return subprocess.Popen(
    [sys.executable, '-m', 'launch.gke', *argv, '--', *words],
    stdout=subprocess.PIPE,
    text=True,
    stderr=subprocess.PIPE,
    cwd=ROOT,
    preexec_fn=signals.handle,
  )


def calls(folder, verb):
  return [argv for line in (folder / 'calls').read_text().splitlines() if (argv := json.loads(line))[0] == verb]


def saying(process, text):
  while (line := process.stdout.readline()) and line.strip() != text:
    pass
  assert line, f'it ended without saying {text}: {process.stderr.read()}'


def test_launcher_exits_with_lmx_exit_code(cluster):
  ways = {'ok': ('exit', '0'), 'bad': ('exit', '2'), 'again': ('again', '2'), 'often': ('exit', '75')}
  ends = {name: waiter(cluster, *words, name=name, own=['--restarts=2']) for name, words in ways.items()}
  said = {name: process.communicate(timeout=120)[0] for name, process in ends.items()}
  assert {name: process.returncode for name, process in ends.items()} == {'ok': 0, 'bad': 2, 'again': 0, 'often': 75}
  assert said['ok'].splitlines() == ['launch.gke: JobSet ok', 'start 0: exit']
  assert [line for line in said['again'].splitlines() if line == 'start 2: again'] == ['start 2: again']
  assert 'FailJobSetFailurePolicyAction' in said['bad'] and 'ReachedMaxRestarts' in said['often']
  assert not list(cluster.glob('*.state')) and not list(cluster.glob('*.record'))  # and the name is free again
  assert all(argv[1:3] == ['-n', 'lab'] for verb in ('get', 'delete', 'logs') for argv in calls(cluster, verb))


def test_killed_launcher_resumes_its_jobset_and_forwards_signals(cluster):
  first = waiter(cluster, 'wait')
  saying(first, 'waiting')
  check((cluster / 'gpt2.json').read_text())
  time.sleep(0.5)
  first.kill()
  first.communicate()
  (cluster / 'down').touch()
  asked, end = len(calls(cluster, 'get')), time.monotonic() + 60
  second = waiter(cluster, 'wait')
  while len(calls(cluster, 'get')) < asked + 2:  # the first has failed
    assert time.monotonic() < end
    time.sleep(0.1)
  (cluster / 'down').unlink()
  time.sleep(1)
  second.send_signal(signal.SIGHUP)
  said, errors = second.communicate(timeout=60)
  assert second.returncode == 75 and 'i/o timeout' in errors
  assert 'waiting' not in said  # which the first had shown
  assert (cluster / 'gpt2-0.log').read_text().endswith(' told\n')
  assert len(calls(cluster, 'create')) == 1 and not (cluster / 'gpt2.record').exists()
  assert not (cluster / 'gpt2.state').exists()


def test_second_signal_ends_at_once(cluster):
  deaf, gone = waiter(cluster, 'deaf', name='deaf'), waiter(cluster, 'wait', name='gone')
  saying(deaf, 'waiting')
  saying(gone, 'waiting')
  deaf.send_signal(signal.SIGTERM)
  subprocess.run(['kubectl', 'delete', 'jobset', 'gone'], check=True)
  said, _ = gone.communicate(timeout=60)
  assert gone.returncode == command.INTERRUPTED and 'it was deleted by another' in said
  assert deaf.poll() is None
  deaf.send_signal(signal.SIGTERM)
  deaf.communicate(timeout=30)
  assert deaf.returncode == 75 and not (cluster / 'deaf.state').exists()


def test_taken_name_and_locked_record_are_reported(cluster):
  one = waiter(cluster, 'wait')
  saying(one, 'waiting')
  other = waiter(cluster / 'bin', 'wait')
  _, errors = other.communicate(timeout=60)
  assert other.returncode == 2 and 'already exists' in errors and not (cluster / 'bin/gpt2.record').exists()
  with pytest.raises(InputError, match='another launcher waits for this job'):
    open_record(cluster / 'gpt2.record', {}, 0.1).__enter__()
  one.send_signal(signal.SIGINT)
  one.communicate(timeout=60)
  assert one.returncode == 75


def test_same_command_replaces_a_jobset_that_has_ended(cluster, capsys):
  argv = ['--name=gpt2', '--image=i', '--accelerator=v6e-4', '--no-preflight', '--restarts=0', '--']
  assert main([*argv, 'wait']) == 0
  assert main([*argv, 'exit', '2']) == 2
  assert '--name: got gpt2; a JobSet of this name already exists and has not ended' in capsys.readouterr().err
  state, end = lambda: json.loads((cluster / 'gpt2.state').read_text()), time.monotonic() + 60
  while not state()['ended']:
    assert time.monotonic() < end
    if state()['pid'] and state()['code'] is None:
      os.killpg(state()['pid'], signal.SIGKILL)
    time.sleep(0.1)
  assert main([*argv, 'exit', '2']) == 0
  assert 'deletes the earlier JobSet gpt2, which has ended' in capsys.readouterr().out
  assert len(calls(cluster, 'delete')) == 1 and 'exit 2' in (cluster / 'gpt2.json').read_text()


def test_exit_code_that_no_restart_fixes_wins_over_pods():
  def pod(index, code, **more):
    state = {'terminated': {'exitCode': code}} if code is not None else {'running': {}}
    return {'metadata': {'name': f'p{index}'}, 'status': {'containerStatuses': [{'state': state}], **more}}

  waited = Waiter(job_of(), run_of(), 'kubectl', '')
  waited._logs = lambda *words: ''
  known, disrupted = {'name': 'gpt2', 'namespace': '', 'pod': ''}, [{'type': 'DisruptionTarget', 'status': 'True'}]
  for pods, code in (
    ([pod(0, 75), pod(1, 2), pod(2, None)], 2),
    ([pod(0, 143), pod(1, 0)], 143),
    ([], 75),
    ([pod(0, 0), pod(1, 137, conditions=disrupted)], 75),
  ):
    assert waited._exit_code(known, pods, []) == code


def test_times_of_kubectl_are_compared_as_times():
  times = ['', '2026-01-01T00:00:00Z', '2026-01-01T00:00:00.01Z', '2026-01-01T00:00:00.012Z', '2026-01-01T00:00:00.1Z']
  assert sorted(times, key=_time) == times


def test_waiting_launcher_whose_output_is_gone_waits_for_its_job(cluster, unread, root):
  words = [sys.executable, '-m', 'launch.gke', '--name=a', '--image=i', '--accelerator=v6e-4', '--poll=0.2']
  words += [f'--wait={cluster}/record', '--no-preflight', '--', 'exit', '3']
  assert subprocess.run(words, cwd=root, stdout=unread, stderr=unread).returncode == 3
  assert 'launch.gke: JobSet a' in (cluster / 'record.log').read_text() and not (cluster / 'record').exists()
  assert len([line for line in (cluster / 'calls').read_text().splitlines() if json.loads(line)[0] == 'create']) == 1
