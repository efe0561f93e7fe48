"""Slices of Compute Engine instances on a simulated cloud."""

from __future__ import annotations

import pathlib

import pytest

from launch import command
from launch.gce.__main__ import main
from launch.remote.job import Launch
from lmx.errors import InputError
from tests.launch.cloud import slice_of

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden'
CREATED = ['resource-policies create workload-policy', 'instance-templates create', 'instance-groups managed create']
GROUP = 'instance-groups managed'


@pytest.fixture
def engine(cloud):
  """A cloud that takes its time."""
  (cloud.folder / 'waits').write_text('2')
  return cloud


def managed(cloud):
  """Calls that change something."""
  return [call for call in cloud.calls() if call not in ('ssh', 'scp', f'{GROUP} list-instances')]


def test_new_group_runs_and_leaves_its_logs(engine, capfd):
  launch = engine.launch('exit', '0', machine=slice_of())
  assert launch.run_to_end() == 0
  assert managed(engine) == CREATED and engine.calls().count(f'{GROUP} list-instances') == 4
  said = capfd.readouterr()
  assert {f'worker {i} start 0 secret given coordinator auto note' for i in range(2)} == {
    line.removeprefix('[1] ') for line in said.out.splitlines()
  }
  assert 'tpu waits for 2 instances: 2 CREATING' in said.err
  assert sorted(path.name for path in launch.logs.iterdir()) == ['host-000.log', 'host-001.log']
  launch.machines.delete(launch.runner)
  assert managed(engine)[3:] == [f'{GROUP} delete', 'instance-templates delete', 'resource-policies delete']
  launch.machines.delete(launch.runner)  # again, though nothing is left


def test_preempted_group_is_replaced(engine, capfd):
  assert engine.launch('preempted', machine=slice_of()).run_to_end() == 0
  assert managed(engine) == [*CREATED, f'{GROUP} delete', *CREATED]  # of which template and policy exist already
  assert 'tpu has 2 TERMINATED: deleting it' in capfd.readouterr().err


def test_group_that_creates_nothing_is_replaced(engine):
  """After --flex_start the instances of the group are gone, and the group is left."""
  machine = slice_of(flex_start='1h', spot=False)
  for name, text in (('group-tpu', machine.template), ('hosts', '0')):
    (engine.folder / name).write_text(text)
  launch = engine.launch('exit', '0', machine=machine)
  launch.log = lambda text: (engine.folder / 'hosts').write_text('2') if 'deleting' in text else None
  assert launch.run_to_end() == 0
  assert managed(engine) == [f'{GROUP} delete', *CREATED]


def test_slices_find_one_another(engine, capfd):
  (engine.folder / 'slices').write_text('2')
  assert engine.launch('exit', '0', machine=slice_of(slices=2)).run_to_end() == 0
  out = [line.partition('] ')[2] or line for line in capfd.readouterr().out.splitlines()]
  assert [line for line in sorted(out) if line.startswith('slice')] == [
    f'slice {number} of 2 at tpu-0-w0' for number in (0, 0, 1, 1)
  ]


def test_group_with_other_options_is_not_used(engine):
  (engine.folder / 'vm').write_text('READY')
  (engine.folder / 'group-tpu').write_text(slice_of(disk='1TB').template)
  with pytest.raises(InputError, match='tpu exists with other options'):
    engine.launch('exit', '0', machine=slice_of()).run_to_end()


DRY = {
  'gce': dict(flex_start='7d', spot=False),
  'gce_slices': dict(slices=2, spot=False, reservation='block', network='net', subnetwork='sub', internal=True),
  'gce_host': dict(accelerator='v6e-8'),
}


def dry_run(name):
  run = command.Run(('train', '--config=a.py', '--workdir=gs://b/a'), dry_run=True)
  launch = Launch(slice_of(**DRY[name]), run, '0123456789abcdef', '')
  assert launch.run_to_end() == 0
  launch.machines.delete(launch.runner)


@pytest.mark.parametrize('name', DRY)
def test_dry_run(name, capsys, monkeypatch):
  monkeypatch.setenv('PATH', '/nowhere')
  dry_run(name)
  assert capsys.readouterr().out == (GOLDEN / f'{name}.txt').read_text()


@pytest.mark.parametrize(
  'argv, message',
  [
    (['--accelerator=v5litepod-16'], 'Compute Engine: no accelerator "v5litepod-16"'),
    (['--accelerator=v6e-8', '--spot', '--flex_start=1d'], '--spot and --flex_start: got 2 ways'),
    (['--accelerator=v6e-8', '--flex_start=week'], '--flex_start: got "week"'),
    (['--accelerator=v6e-8', '--flex_start=1h١d'], '--flex_start: got "1h١d"; expected a duration'),
    (['--accelerator=v6e-8', '--flex_start=0s'], '--flex_start: got "0s"; expected more than 0 seconds'),
    (['--accelerator=v6e-8', '--flex_start=0h0m'], '--flex_start: got "0h0m"; expected more than 0 seconds'),
    (['--accelerator=v6e-8', '--flex_start=8d'], '--flex_start: got "8d"; expected at most 7d'),
    (['--accelerator=v6e-8', '--flex_start=24h1s6d'], '--flex_start: got "24h1s6d"; expected at most 7d'),
    (['--accelerator=v6e-8', '--zone=us'], '--zone: got "us"'),
    (['--accelerator=v6e-8', '--logs=gs://b/logs'], '--logs: got gs://b/logs'),
  ],
)
def test_invalid_input_is_reported(argv, message, capsys):
  assert main(['--name=tpu', '--zone=us-central1-c', '--project=p', *argv, '--dry_run', '--', 'list']) == 2
  assert message in capsys.readouterr().err


def test_kept_machine_names_the_command_that_deletes_it(engine, capfd):
  argv = ['--name=tpu', '--zone=us-central1-c', '--project=lab', '--accelerator=tpu7x-16', '--spot', '--poll=0.05']
  argv += [f'--logs={engine.folder}/logs']
  assert main([*argv, '--', 'exit', '0']) == 0
  again = capfd.readouterr().err.partition('`')[2].partition('`')[0].split()
  assert again[:3] == ['python', '-m', 'launch.gce'] and again[-1] == '--delete'
  assert main(again[3:]) == 0 and not (engine.folder / 'template').exists()
