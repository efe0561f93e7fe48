"""Runs of a sweep as jobs of a launcher."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from launch.sweep import __main__ as sweep
from tests.launch.sweep.place import CHILD, GRID, HEAD, SPACE, states

pytest.importorskip('optuna', reason='needs the extra `sweep`')


@pytest.fixture
def cluster(place, tmp_path, monkeypatch, root):
  """A fake cluster of Kubernetes whose containers run the child; no config of lmx is asked for."""
  folder = tmp_path / 'cluster'
  (folder / 'bin').mkdir(parents=True)
  fake = shlex.join([sys.executable, str(root / 'tests/launch/fake_kubectl.py')])
  programs = {'kubectl': f'exec {fake} "$@"', 'bin/python3': f'shift 2\nexec {shlex.join(CHILD)} "$@"'}
  for name, text in programs.items():
    (folder / name).write_text(f'#!/bin/sh\n{text}\n')
    (folder / name).chmod(0o755)
  monkeypatch.setenv('FAKE_CLUSTER', str(folder))
  monkeypatch.setenv('PATH', f'{folder}:{os.environ["PATH"]}')
  monkeypatch.setattr(sweep, 'check_config', lambda *args: None)
  monkeypatch.chdir(root)
  return folder


LAUNCH = '--image=i --accelerator=v6e-4 --name=w{job} --no-preflight --poll=0.1'


def through(place, text, *more, launch=LAUNCH, **child):
  """The arguments of a sweep through launch.gke."""
  argv = [word for word in place.argv(text, *more) if not word.startswith('--program')]
  setting = '--env=CHILD=' + json.dumps({'steps': 12, 'seconds': 0.02, **child})
  return [*argv, '--where=gke', f'--launch={launch}', '--env=SLOT={job}', setting]


def created(cluster):
  return [argv for line in (cluster / 'calls').read_text().splitlines() if (argv := json.loads(line))[0] == 'create']


@pytest.mark.slow
def test_runs_as_jobsets_of_their_workers(place, cluster, monkeypatch):
  monkeypatch.setenv('PGPASSWORD', 's3cret')
  more = ('--pruner=asha', '--reduction=2', '--sampler=random')
  argv = through(place, SPACE, '--trials=6', '--jobs=2', *more, linger=30)
  assert sweep.main(argv) == 0
  assert set(states(place)) == {'done', 'pruned'} and len(created(cluster)) == 6
  assert {path.name for path in cluster.glob('*.json')} == {'w0.json', 'w1.json'}  # which is their namesakes' too
  assert not list(cluster.glob('*.state')) and not list(place.dir.rglob('.launched'))
  for number in range(6):
    (begun,) = place.begun(number)
    assert begun.split()[1] in '01' and begun.split()[2] == 'False'
  log = (place.run_of(0) / 'log.txt').read_text()
  assert log.startswith('launch.gke: JobSet w0') and 's3cret' not in log


@pytest.mark.slow
def test_pruned_run_whose_launcher_was_killed_is_stopped_all_the_same(place, cluster):
  text = HEAD + '  yield from config.grid(optim__lr=[0.01, 1.0])\n'
  more = ('--pruner=asha', '--reduction=2')
  assert sweep.main(through(place, text, '--trials=1', *more, steps=4, seconds=0.3)) == 0
  argv = through(place, text, *more, steps=4, linger=20)
  process = subprocess.Popen(
    [
      sys.executable,
      '-c',
      f'import sys\nfrom launch import jobs\nfrom launch.sweep import __main__ as sweep\n'
      'sweep.check_config = lambda *args: None\n'
      'jobs._Process.stop = lambda self: sys.exit(1)\n'  # as if killed at this moment
      f'sys.exit(sweep.main({argv!r}))',
    ]
  )
  assert process.wait(120) == 1
  os.killpg(int((place.run_of(1) / '.job').read_text()), signal.SIGKILL)
  assert (cluster / 'w0.state').exists()
  assert sweep.main(argv) == 0
  assert states(place) == ['done', 'pruned'] and not list(cluster.glob('*.state'))
  assert len(place.begun(1)) == 1 and not (place.run_of(1) / 'results.json').exists()


@pytest.mark.parametrize(
  ('launch', 'message'),
  [
    (LAUNCH + ' --queue=A!', '--launch: launch.gke: --queue: got "A!"'),
    (LAUNCH + ' --quene=a', 'unrecognized arguments: --quene=a'),
    (LAUNCH + ' --secret=PGPASSWORD', '--launch: got PGPASSWORD, a secret of the sweep'),
    (LAUNCH + ' --secret PGPASSWORD', '--launch: got PGPASSWORD, a secret of the sweep'),
    (LAUNCH + ' -- train', 'got a --; expected only options'),
    (LAUNCH + " 'open", 'No closing quotation'),
  ],
)
def test_options_of_a_launcher_are_tried_first(place, cluster, capsys, launch, message):
  assert sweep.main(through(place, GRID, launch=launch)) == 2
  assert message in capsys.readouterr().err and not (place.dir / 'trials').exists()


@pytest.mark.parametrize(
  ('where', 'program'), [('slurm', 'sbatch'), ('gke', 'kubectl'), ('tpu_vm', 'gcloud'), ('gce', 'gcloud')]
)
def test_launcher_without_its_program_is_reported(place, capsys, monkeypatch, where, program):
  monkeypatch.setattr(shutil, 'which', lambda name: None)
  argv = [word for word in place.argv(GRID) if not word.startswith('--program')]
  assert sweep.main([*argv, f'--where={where}']) == 2
  assert f'there is no `{program}` here' in capsys.readouterr().err


@pytest.mark.parametrize('more', [['--launch=--name=a'], ['--where=gke', '--program=lmx'], ['--where=xpk']])
def test_options_that_do_not_go_together(place, capsys, more):
  with pytest.raises(SystemExit):
    sweep.main([word for word in place.argv(GRID, *more) if word != f'--program={shlex.join(CHILD)}'])
  assert 'usage' in capsys.readouterr().err


def test_dry_run_prints_the_commands_of_the_launcher(place, bucket, capsys):
  assert sweep.main([*through(place, GRID, '--jobs=2', '--trials=2'), '--dry_run', '--runs=gs://bucket/s/']) == 0
  lines = capsys.readouterr().out.splitlines()
  for number, line in enumerate(lines):
    words = shlex.split(line)
    assert words[1:3] == ['-m', 'launch.gke'] and f'--name=w{number}' in words and f'--env=SLOT={number}' in words
    assert f'--wait={place.dir}/trials/{number:04d}/.launched' in words
    at = words.index('--')
    assert words[at + 1 : at + 4] == [
      'train',
      f'--config={place.folder}/bar.py',
      f'--workdir=gs://bucket/s/{number:04d}',
    ]
  assert len(lines) == 2 and not place.dir.exists()
