"""A run from the creation of its machine to its end, on a simulated cloud."""

from __future__ import annotations

from launch.remote.job import Host

NASTY = ("it's", '"', '$(touch broken)', '`touch broken`', 'a\nb', ';', '&& touch broken', '{x}', '%s', ' --', '#', '')


def words_of(file):
  return file.read_text().split('\0')[:-1]


def test_run_installs_a_new_machine(cloud, capfd):
  launch = cloud.launch('exit', '0', *NASTY, NOTE="a $(b) '")
  assert launch.run_to_end() == 0
  assert cloud.calls() == [
    *['tpu-vm describe', 'tpu-vm create', 'tpu-vm describe', 'tpu-vm scp'],
    *['tpu-vm ssh'] * 5,
    *['tpu-vm scp'] * 2,
  ]
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


def test_second_run_reuses_the_machine_and_environment(cloud):
  assert cloud.launch('exit', '0').run_to_end() == 0
  before = len(cloud.calls())
  assert cloud.launch('exit', '3').run_to_end() == 3  # and what no restart mends is not begun again
  assert 'tpu-vm create' not in cloud.calls()[before:]
  assert len((cloud.folder / 'pip').read_text().splitlines()) == 2
  assert not (cloud.folder / 'started-0-2').exists()


def test_code_75_starts_again_on_the_same_machine(cloud, capfd):
  launch = cloud.launch('again')
  assert launch.run_to_end() == 0
  assert cloud.calls().count('tpu-vm create') == 1
  assert {path.name for path in cloud.folder.glob('started-*')} == {f'started-{i}-{j}' for i in (0, 1) for j in (0, 1)}
  said = capfd.readouterr().err
  assert 'lmx ended with 75; starting again (3 left)' in said
  assert f'the logs of the hosts are in {launch.logs}\n' in said
  for number in range(2):  # of both starts
    lines = (launch.logs / f'host-{number:03d}.log').read_text().splitlines()
    assert [line.partition(' secret')[0] for line in lines] == [f'worker {number} start {start}' for start in (0, 1)]
  assert cloud.launch('exit', '75', restarts=1).run_to_end() == 75
  assert len(list(cloud.folder.glob('started-0-*'))) == 4


def test_failed_host_stops_the_others_and_sets_the_exit_code(cloud, capfd):
  assert cloud.launch('fail').run_to_end() == 2
  assert 'stopped' in capfd.readouterr().out.splitlines()
  assert len(list(cloud.folder.glob('started-0-*'))) == 1


def test_preempted_machine_is_replaced(cloud, capfd):
  launch = cloud.launch('preempted')
  assert launch.run_to_end() == 0
  calls = [call for call in cloud.calls() if call not in ('tpu-vm describe', 'tpu-vm ssh', 'tpu-vm scp')]
  assert calls == ['tpu-vm create', 'tpu-vm delete', 'tpu-vm create']
  said = capfd.readouterr().err
  assert 'the machine is gone; starting again (3 left)' in said
  assert f'the logs of the hosts are in {launch.logs}, but not of 0, 1\n' in said
  assert 'start 1' in (launch.logs / 'host-001.log').read_text()  # of the machine after it


def test_broken_connection_is_made_again_and_no_line_lost_or_doubled(cloud, capfd):
  (cloud.folder / 'hosts').write_text('1')
  (cloud.folder / 'break-0').write_text('1')
  assert cloud.launch('count').run_to_end() == 0
  lines = capfd.readouterr().out.splitlines()[1:]
  assert lines == [f'line {i}' for i in range(1, 21)]
  assert not (cloud.folder / 'break-0').exists() and len(list(cloud.folder.glob('started-*'))) == 1


def test_restarted_launcher_resumes_the_run(cloud, capfd):
  (cloud.folder / 'hosts').write_text('1')
  first = cloud.launch('count')
  hosts = first.machines.wait_until_ready(first)
  assert hosts == [Host('tpu')]
  first.install(hosts)
  first.start(hosts)
  second = cloud.launch('count')
  assert second.run_to_end() == 0
  assert [path.name for path in cloud.folder.glob('started-*')] == ['started-0-0']
  assert 'line 20' in capfd.readouterr().out
