"""A TPU VM from its making to its end, against a gcloud that is played; what is sent to the hosts is run by bash."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from launch import accelerators, command, tpu_vm
from launch.tpu_machine import INSTALL
from lmx.errors import InputError

GOLDEN = pathlib.Path(__file__).parent / 'golden'
NASTY = ("it's", '"', '$(touch broken)', '`touch broken`', 'a\nb', ';', '&& touch broken', '{x}', '%s', ' --', '#', '')

# Stands in for lmx on a host: `-m lmx.cli.main WORDS`.
PROGRAM = """#!/bin/bash
shift 2
starts=$(ls -d "$FAKE_CLOUD/started-$WORKER"-* 2>/dev/null | wc -l)
printf '%s\\0' "$@" > "$FAKE_CLOUD/started-$WORKER-$starts"
echo "worker $WORKER start $starts secret ${WANDB_API_KEY:+given} coordinator $LMX_COORDINATOR note $NOTE"
case "$1" in
  exit) exit "$2" ;;
  again) if [ "$starts" -eq 0 ]; then exit 75; fi ;;
  fail) if [ "$WORKER" -eq 1 ]; then exit 2; fi
    trap 'echo stopped; exit 75' TERM; for i in {1..300}; do sleep 0.1; done ;;
  preempted) if [ "$starts" -eq 0 ]; then sleep 0.5; printf PREEMPTED > "$FAKE_CLOUD/vm"; exit 137; fi ;;
  wait) trap 'echo told; exit 75' TERM; echo waiting; for i in {1..600}; do sleep 0.05; done ;;
  deaf) trap '' TERM; echo waiting; for i in {1..2400}; do sleep 0.05; done ;;
  count) for i in {1..20}; do echo "line $i"; sleep 0.1; done ;;
esac
"""


def machine_of(**more):
  return tpu_vm.Machine(**{'name': 'tpu', 'zone': 'us-central1-a', 'accelerator': 'v5litepod-16', **more})


class Cloud:
  """The folder that the fake works on."""

  def __init__(self, folder):
    self.folder = folder

  def calls(self):
    """Kind and verb of each call."""
    return [' '.join(call[2:4]) for call in self.argv()]

  def argv(self):
    return [json.loads(line) for line in (self.folder / 'calls').read_text().splitlines()]

  def launch(self, *words, machine=None, restarts=3, secrets=('WANDB_API_KEY',), **env):
    run = command.Run(words, env, secrets, restarts)
    head = subprocess.run(['git', 'rev-parse', 'HEAD'], capture_output=True, text=True, check=True).stdout.strip()
    return tpu_vm.Launch(machine or machine_of(), run, head, poll=0.05)


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


def words_of(file):
  return file.read_text().split('\0')[:-1]


def test_a_run_on_a_new_machine(cloud, capfd):
  launch = cloud.launch('exit', '0', *NASTY, NOTE="a $(b) '")
  assert launch.to_end() == 0
  assert cloud.calls() == ['tpu-vm describe', 'tpu-vm create', 'tpu-vm describe', 'tpu-vm scp'] + ['tpu-vm ssh'] * 5
  assert [words_of(cloud.folder / f'started-{i}-0') for i in range(2)] == [['exit', '0', *NASTY]] * 2
  assert not list(cloud.folder.rglob('broken'))
  out = capfd.readouterr().out.splitlines()
  wanted = "start 0 secret given coordinator auto note a $(b) '"
  assert sorted(out) == sorted([f'worker 0 {wanted}', f'[1] worker 1 {wanted}'])
  assert (cloud.folder / 'worker-1' / launch.folder / 'constraints.txt').exists()
  installed = (cloud.folder / 'pip').read_text().splitlines()
  assert len(installed) == 2 and all(line.endswith('-c constraints.txt -e .[tpu,gcs]') for line in installed)
  written = [path.read_text(errors='replace') for path in cloud.folder.rglob('*') if path.is_file()]
  assert not any('hidden-value' in text for text in written)  # neither in an argument, nor in a file of a host


def test_a_second_run_takes_up_the_machine_and_what_is_installed(cloud):
  assert cloud.launch('exit', '0').to_end() == 0
  before = len(cloud.calls())
  assert cloud.launch('exit', '3').to_end() == 3  # and what no restart mends is not begun again
  assert 'tpu-vm create' not in cloud.calls()[before:]
  assert len((cloud.folder / 'pip').read_text().splitlines()) == 2
  assert not (cloud.folder / 'started-0-2').exists()


def test_code_75_begins_again_on_the_same_machine(cloud, capfd):
  assert cloud.launch('again').to_end() == 0
  assert cloud.calls().count('tpu-vm create') == 1
  assert {path.name for path in cloud.folder.glob('started-*')} == {f'started-{i}-{j}' for i in (0, 1) for j in (0, 1)}
  assert 'lmx ended with 75; starting again (3 left)' in capfd.readouterr().err
  assert cloud.launch('exit', '75', restarts=1).to_end() == 75
  assert len(list(cloud.folder.glob('started-0-*'))) == 4


def test_a_failure_of_one_host_stops_the_others_and_is_the_code(cloud, capfd):
  assert cloud.launch('fail').to_end() == 2
  assert 'stopped' in capfd.readouterr().out.splitlines()
  assert len(list(cloud.folder.glob('started-0-*'))) == 1


def test_a_preempted_machine_is_replaced(cloud, capfd):
  assert cloud.launch('preempted').to_end() == 0
  calls = [call for call in cloud.calls() if call not in ('tpu-vm describe', 'tpu-vm ssh', 'tpu-vm scp')]
  assert calls == ['tpu-vm create', 'tpu-vm delete', 'tpu-vm create']
  assert 'the machine is gone; starting again (3 left)' in capfd.readouterr().err


def test_a_broken_connection_is_made_again_and_no_line_lost_or_doubled(cloud, capfd):
  (cloud.folder / 'hosts').write_text('1')
  (cloud.folder / 'break-0').write_text('1')
  assert cloud.launch('count').to_end() == 0
  lines = capfd.readouterr().out.splitlines()[1:]
  assert lines == [f'line {i}' for i in range(1, 21)]
  assert not (cloud.folder / 'break-0').exists() and len(list(cloud.folder.glob('started-*'))) == 1


def test_a_launcher_that_was_ended_takes_up_the_run(cloud, capfd):
  (cloud.folder / 'hosts').write_text('1')
  first = cloud.launch('count')
  first.ready()
  first.bring()
  first.start(1)
  second = cloud.launch('count')
  assert second.to_end() == 0
  assert [path.name for path in cloud.folder.glob('started-*')] == ['started-0-0']
  assert 'line 20' in capfd.readouterr().out


def test_a_queued_resource_is_waited_for_and_one_that_was_suspended_asked_for_again(cloud):
  (cloud.folder / 'queued').write_text('SUSPENDED')
  assert cloud.launch('exit', '0', machine=machine_of(queued=True, spot=True)).to_end() == 0
  calls = [call for call in cloud.calls() if call not in ('tpu-vm describe', 'tpu-vm ssh', 'tpu-vm scp')]
  assert calls[:4] == [
    'queued-resources describe',
    'queued-resources delete',
    'queued-resources create',
    'queued-resources describe',
  ]
  assert 'tpu-vm create' not in calls


def test_a_queued_resource_that_failed_is_an_error(cloud):
  (cloud.folder / 'queued').write_text('FAILED')
  with pytest.raises(InputError, match='Google gives no v5litepod-16 in us-central1-a'):
    cloud.launch('exit', '0', machine=machine_of(queued=True)).to_end()


def test_another_machine_of_the_name_is_not_taken(cloud):
  (cloud.folder / 'vm').write_text('READY')
  with pytest.raises(InputError, match='is there, a v5litepod-16; give another --name'):
    cloud.launch('exit', '0', machine=machine_of(accelerator='v6e-8')).to_end()


def test_the_command_line_deletes_at_the_end(cloud, capfd):
  argv = ['--name=tpu', '--zone=z', '--project=p', '--accelerator=v5litepod-16', '--poll=0.05']
  assert tpu_vm.main([*argv, '--delete', '--', 'exit', '3']) == 3
  assert cloud.calls()[-1] == 'tpu-vm delete' and not (cloud.folder / 'vm').exists()
  assert all('--zone=z' in call and '--project=p' in call and '--quiet' in call for call in cloud.argv())
  assert tpu_vm.main([*argv, '--', 'exit', '0']) == 0
  assert 'tpu is kept' in capfd.readouterr().err
  assert tpu_vm.main([*argv, '--delete']) == 0
  assert not (cloud.folder / 'vm').exists()


def test_changes_that_are_in_no_commit_are_not_left_out_unseen(cloud, capfd):
  pathlib.Path('constraints.txt').write_text('changed')
  argv = ['--name=tpu', '--zone=z', '--accelerator=v5litepod-16', '--poll=0.05']
  assert tpu_vm.main([*argv, '--', 'exit', '0']) == 2
  assert 'in no commit' in capfd.readouterr().err
  assert tpu_vm.main([*argv, '--commit=HEAD', '--', 'exit', '0']) == 0


# Waited for: a process of its own, which gets signals.


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


def test_a_waiting_launcher_that_was_killed_takes_up_its_run_and_passes_a_signal_on(cloud, root):
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


def test_a_run_that_ended_while_nobody_waited_is_not_begun_again(cloud, root):
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


def test_a_second_signal_ends_it_at_once_and_another_run_waits_for_the_machine(cloud, root, capfd):
  deaf = waiter(cloud, root, 'deaf', wait='a')
  saying(deaf, 'waiting', '[1] waiting')
  other = waiter(cloud, root, 'exit', '3', wait='b')
  argv = ['--name=tpu', '--zone=z', '--accelerator=v5litepod-16', '--poll=0.2', '--', 'exit', '3']
  assert tpu_vm.main(argv) == 2
  assert 'another run of lmx is on this machine' in capfd.readouterr().err
  deaf.send_signal(signal.SIGTERM)
  time.sleep(1)
  assert deaf.poll() is None and other.poll() is None
  deaf.send_signal(signal.SIGTERM)
  deaf.communicate(timeout=30)
  _, errors = other.communicate(timeout=60)
  assert (deaf.returncode, other.returncode) == (75, 3) and 'waiting for its end' in errors


def test_told_before_there_is_a_machine_it_starts_nothing(cloud, root):
  (cloud.folder / 'vm').write_text('CREATING')
  process = waiter(cloud, root, 'exit', '0')
  while not (cloud.folder / 'calls').exists():
    time.sleep(0.05)
  process.send_signal(signal.SIGTERM)
  process.communicate(timeout=60)
  assert process.returncode == 75 and not starts(cloud) and not (cloud.folder / 'record').exists()


def on_a_host(folder, text, **programs):
  """Runs a shell's text with stand-ins for programs, on a host that has no Python; returns the calls of sudo."""
  (folder / 'bin').mkdir()
  sudo = '#!/bin/bash\necho "$*" >> "$HOME/sudo.txt"\ncp "$HOME/released" "$HOME/bin/python3.12"\n'
  for name, program in {'sudo': sudo, **programs}.items():
    (folder / 'bin' / name).write_text(program)
    (folder / 'bin' / name).chmod(0o755)
  for name in ('bash', 'cp', 'mkdir', 'chmod', 'touch', 'tar'):
    (folder / 'bin' / name).symlink_to('/bin/true' if name == 'tar' else shutil.which(name))
  subprocess.run(['bash', '-c', text], check=True, env={'HOME': str(folder), 'PATH': str(folder / 'bin')})
  return (folder / 'sudo.txt').read_text().splitlines() if (folder / 'sudo.txt').exists() else []


@pytest.mark.parametrize('released', [True, False])
def test_a_released_python_is_used_and_the_lock_of_apt_is_waited_for(released, tmp_path):
  text = INSTALL.format(folder='code')
  (tmp_path / 'code').mkdir()
  venv = 'mkdir -p code/.venv/bin; printf "#!/bin/bash\\n" > code/.venv/bin/pip; chmod +x code/.venv/bin/pip\n'
  python = lambda code, name: f'#!/bin/bash\nif [ "$1" = -c ]; then exit {code}; fi\necho {name} > used.txt\n{venv}'
  (tmp_path / 'released').write_text(python(0, 'new'))
  (tmp_path / 'released').chmod(0o755)
  called = on_a_host(tmp_path, text, **{'python3.11': python(0 if released else 1, 'old')})
  assert (tmp_path / 'used.txt').read_text().strip() == ('old' if released else 'new')
  names = [] if released else ['add-apt-repository', 'apt-get', 'apt-get']
  assert [line.partition(' ')[0] for line in called] == names
  assert all('-o DPkg::Lock::Timeout=600 ' in line for line in called if line.startswith('apt-get'))


def test_a_cache_on_a_bucket_is_that_of_the_hosts_too(capsys, monkeypatch):
  monkeypatch.setenv('PATH', '/nowhere')
  for value, passed in (('gs://bucket/jax', True), ('/cache/jax', False), ('redis://:word@host', False)):
    monkeypatch.setenv('JAX_COMPILATION_CACHE_DIR', value)
    dry_run(False)
    assert (f'export JAX_COMPILATION_CACHE_DIR={value}' in capsys.readouterr().out) == passed


def dry_run(queued, **more):
  run = command.Run(('train', '--config=a.py', "--workdir=gs://b/it's"), {'NOTE': 'a b'}, dry_run=True, **more)
  machine = machine_of(queued=queued, spot=True, project='lab')
  assert tpu_vm.Launch(machine, run, '0123456789abcdef').to_end() == 0


@pytest.mark.parametrize('name, more', [('tpu_vm.txt', {}), ('tpu_vm_queued.txt', {'secrets': ('WANDB_API_KEY',)})])
def test_dry_run(name, more, capsys, monkeypatch):
  monkeypatch.setenv('PATH', '/nowhere')
  monkeypatch.setenv('WANDB_API_KEY', 'hidden-value')
  dry_run('queued' in name, **more)
  assert capsys.readouterr().out == (GOLDEN / name).read_text()


@pytest.mark.parametrize(
  'argv, message',
  [
    (['--accelerator=v5litepod-17'], 'TPU VMs: no accelerator "v5litepod-17"; did you mean "v5litepod-16"?'),
    (['--accelerator=v5e-8'], 'did you mean "v5litepod-8"?'),
    (['--accelerator=h100-80gb-8'], 'no accelerator "h100-80gb-8"'),
    (['--accelerator=v6e-8', '--name=A b'], '--name is "A b"'),
    (['--accelerator=v6e-8'], 'there is no `gcloud` here: install the Google Cloud CLI'),
  ],
)
def test_bad_input_is_said(argv, message, capsys, monkeypatch):
  monkeypatch.setenv('PATH', '/nowhere')
  assert tpu_vm.main(['--name=tpu', '--zone=z', *argv, '--', 'list']) == 2
  assert message in capsys.readouterr().err


@pytest.mark.parametrize(
  'name, pool, hosts, chips, devices, topology',
  [
    ('v2-8', False, 1, 4, 8, ''),  # cloud.google.com/tpu/docs/v2
    ('v3-32', False, 4, 4, 8, ''),
    ('v4-8', False, 1, 4, 4, '2x2x1'),
    ('v4-32', True, 4, 4, 4, '2x2x4'),
    ('v5litepod-8', False, 1, 8, 8, '2x4'),  # one host of eight chips
    ('v5litepod-8', True, 2, 4, 4, '2x4'),  # two machines ct5lp-hightpu-4t
    ('v5litepod-256', False, 64, 4, 4, '16x16'),
    ('v5p-8', True, 1, 4, 4, '2x2x1'),
    ('v6e-1', True, 1, 1, 1, '1x1'),
    ('v6e-16', True, 4, 4, 4, '4x4'),
    ('tpu7x-128', True, 16, 4, 8, '4x4x4'),
  ],
)
def test_accelerators(name, pool, hosts, chips, devices, topology):
  found = accelerators.find(name, pool=pool)
  assert (found.hosts, found.chips, found.devices, found.topology) == (hosts, chips, devices, topology)


def test_every_accelerator_adds_up():
  for name in accelerators.names():
    kind, _, count = name.rpartition('-')
    if kind in accelerators.GENERATIONS:
      generation = accelerators.GENERATIONS[kind]
      chips = int(count) // generation.per_chip
      sizes = [int(n) for n in generation.topologies[chips].split('x') if n]
      assert not sizes or chips == sizes[0] * sizes[1] * (sizes[2] if len(sizes) == 3 else 1), name
      for pool in [False] * bool(generation.runtime) + [True] * bool(generation.gke):
        found = accelerators.find(name, pool=pool)
        assert found.hosts * found.chips == chips, name


def test_starts_without_jax(root):
  code = 'import sys, launch.tpu_vm; sys.exit("jax" in sys.modules or "numpy" in sys.modules or "yaml" in sys.modules)'
  assert subprocess.run([sys.executable, '-c', code], cwd=root, check=False).returncode == 0
