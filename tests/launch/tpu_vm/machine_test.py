"""TPU VMs and queued resources, of one slice and of several, on a simulated cloud."""

from __future__ import annotations

import pathlib

import pytest

from launch import command
from launch.remote.job import Launch
from lmx.errors import InputError
from tests.launch.cloud import machine_of

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden'


def test_queued_resource_is_awaited_and_suspended_one_requested_again(cloud):
  (cloud.folder / 'queued').write_text('SUSPENDED')
  assert cloud.launch('exit', '0', machine=machine_of(queued=True, spot=True)).run_to_end() == 0
  calls = [call for call in cloud.calls() if call not in ('tpu-vm describe', 'tpu-vm ssh', 'tpu-vm scp')]
  assert calls[:4] == [
    'queued-resources describe',
    'queued-resources delete',
    'queued-resources create',
    'queued-resources describe',
  ]
  assert 'tpu-vm create' not in calls


def test_queued_resource_that_failed_is_an_error(cloud):
  (cloud.folder / 'queued').write_text('FAILED')
  with pytest.raises(InputError, match='Google refused a v5litepod-16 in us-central1-a'):
    cloud.launch('exit', '0', machine=machine_of(queued=True)).run_to_end()


def test_other_machine_with_the_same_name_is_not_used(cloud):
  (cloud.folder / 'vm').write_text('READY')
  with pytest.raises(InputError, match='exists with accelerator v5litepod-16'):
    cloud.launch('exit', '0', machine=machine_of(accelerator='v6e-8')).run_to_end()


def test_cache_on_a_bucket_matches_the_hosts_too(capsys, monkeypatch):
  monkeypatch.setenv('PATH', '/nowhere')
  for value, passed in (('gs://bucket/jax', True), ('/cache/jax', False), ('redis://:word@host', False)):
    monkeypatch.setenv('JAX_COMPILATION_CACHE_DIR', value)
    dry_run(False)
    assert (f'export JAX_COMPILATION_CACHE_DIR={value}' in capsys.readouterr().out) == passed


def test_slices_of_a_queued_resource_train_together(cloud, capfd):
  (cloud.folder / 'slices').write_text('2')
  machine = machine_of(slices=2)
  launch = cloud.launch('exit', '0', machine=machine)
  assert launch.run_to_end() == 0
  created = next(call for call in cloud.argv() if call[2:4] == ['queued-resources', 'create'])
  assert {'--node-count=2', '--node-prefix=tpu'} <= {*created} and not [x for x in created if 'node-id' in x]
  out = capfd.readouterr().out
  assert {f'worker {i} start 0 secret given coordinator auto' for i in range(4)} == {
    line.partition('] ')[2].partition(' note')[0] or line.partition(' note')[0] for line in out.splitlines()
  }
  assert {call[4] for call in cloud.argv() if call[2:4] == ['tpu-vm', 'ssh']} == {'tpu-0', 'tpu-1'}
  assert sorted(path.name for path in launch.logs.iterdir()) == [f'host-00{i}.log' for i in range(4)]
  assert '--processes=4 ' in launch.start_text(*_started(launch, 'train', '--config=a.py', '--workdir=gs://b/a'))


def _started(launch, *words):
  launch.run = command.Run(words)
  hosts = launch.machines.wait_until_ready(launch)
  return hosts[-1], hosts, {}


@pytest.mark.slow
def test_preempted_slice_replaces_all(cloud):
  (cloud.folder / 'slices').write_text('2')
  assert cloud.launch('preempted', machine=machine_of(slices=2)).run_to_end() == 0
  calls = [call for call in cloud.calls() if call.startswith('queued') and 'describe' not in call]
  assert calls == ['queued-resources create', 'queued-resources delete', 'queued-resources create']


def dry_run(queued, slices=1, **more):
  run = command.Run(('train', '--config=a.py', "--workdir=gs://b/it's"), {'NOTE': 'a b'}, dry_run=True, **more)
  launch = Launch(machine_of(queued=queued, slices=slices, spot=True, project='lab'), run, '0123456789abcdef', '')
  assert launch.run_to_end() == 0
  launch.machines.delete(launch.runner)


DRY = {'tpu_vm': {}, 'tpu_vm_queued': {'secrets': ('WANDB_API_KEY',)}, 'tpu_vm_slices': {'slices': 2}}


@pytest.mark.parametrize('name, more', DRY.items())
def test_dry_run(name, more, capsys, monkeypatch):
  monkeypatch.setenv('PATH', '/nowhere')
  monkeypatch.setenv('WANDB_API_KEY', 'hidden-value')
  dry_run('queued' in name, **more)
  assert capsys.readouterr().out == (GOLDEN / f'{name}.txt').read_text()
