"""`launch.tpu_vm --wait` in a process of its own, which gets signals, on a simulated cloud."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from launch.tpu_vm.__main__ import main


def waiter(cloud, root, *words, wait='record'):
  argv = ['--name=tpu', '--zone=z', '--accelerator=v5litepod-16', '--poll=0.2', f'--wait={cloud.folder / wait}']
  return subprocess.Popen(
    [sys.executable, '-m', 'launch.tpu_vm', *argv, '--no-preflight', '--', *words],
    stdout=subprocess.PIPE,
    text=True,
    stderr=subprocess.PIPE,
    env={**os.environ, 'PYTHONPATH': str(root)},
  )


def saying(process, *texts):
  """Reads what a process says up to the last of these lines, in any order."""
  left = set(texts)
  while left:
    line = process.stdout.readline()
    assert line, f'it ended without saying {left}: {process.stderr.read()}'
    left.discard(line.strip())


def starts(cloud):
  return {path.name for path in cloud.folder.glob('started-*')}


def test_killed_launcher_resumes_its_run_and_forwards_signals(cloud, root):
  first = waiter(cloud, root, 'wait')
  saying(first, 'waiting', '[1] waiting')
  first.kill()
  first.wait()
  commit = ['git', '-c', 'user.name=a', '-c', 'user.email=a@b.c', 'commit', '--quiet', '--allow-empty', '--message=b']
  subprocess.run(commit, check=True)  # the run is of the commit before
  second = waiter(cloud, root, 'wait')
  saying(second, 'waiting', '[1] waiting')
  second.send_signal(signal.SIGTERM)
  said, errors = second.communicate(timeout=60)
  assert second.returncode == 75 and {'told', '[1] told'} <= set(said.splitlines()), said + errors
  assert starts(cloud) == {'started-0-0', 'started-1-0'} and not (cloud.folder / 'record').exists()
  assert cloud.calls().count('tpu-vm create') == 1


def test_run_that_ended_while_nobody_waited_is_not_started_again(cloud, root):
  first = waiter(cloud, root, 'count')
  saying(first, 'line 1')
  first.kill()
  first.wait()
  ended = [cloud.folder / f'worker-{i}' for i in range(2)]
  end = time.monotonic() + 60
  while not all(list(home.glob('*/.run/code')) for home in ended):
    assert time.monotonic() < end
    time.sleep(0.1)
  second = waiter(cloud, root, 'count')
  said, _ = second.communicate(timeout=60)
  assert second.returncode == 0 and 'line 20' in said.splitlines()
  assert starts(cloud) == {'started-0-0', 'started-1-0'}
  assert waiter(cloud, root, 'count').wait(60) == 0  # which was told: the same command is another run
  assert starts(cloud) == {f'started-{i}-{j}' for i in range(2) for j in range(2)}


def test_second_signal_ends_it_at_once_and_another_run_waits_for_the_machine(cloud, root, capfd):
  deaf = waiter(cloud, root, 'deaf', wait='a')
  saying(deaf, 'waiting', '[1] waiting')
  other = waiter(cloud, root, 'exit', '3', wait='b')
  argv = ['--name=tpu', '--zone=z', '--accelerator=v5litepod-16', '--poll=0.2', '--', 'exit', '3']
  assert main(argv) == 2
  assert 'another run of lmx is on this machine' in capfd.readouterr().err
  deaf.send_signal(signal.SIGTERM)
  time.sleep(1)
  assert deaf.poll() is None and other.poll() is None
  deaf.send_signal(signal.SIGTERM)
  deaf.communicate(timeout=30)
  _, errors = other.communicate(timeout=60)
  assert (deaf.returncode, other.returncode) == (75, 3) and 'waiting for its end' in errors


def test_signal_before_the_machine_exists_starts_nothing(cloud, root):
  (cloud.folder / 'vm').write_text('CREATING')
  process = waiter(cloud, root, 'exit', '0')
  while not (cloud.folder / 'calls').exists():
    time.sleep(0.05)
  process.send_signal(signal.SIGTERM)
  process.communicate(timeout=60)
  assert process.returncode == 75 and not starts(cloud) and not (cloud.folder / 'record').exists()
