"""A directory with an experiment, and sweeps in it."""

from __future__ import annotations

import csv
import json
import pathlib
import shlex
import subprocess
import sys
import time

from launch.sweep import __main__ as sweep
from launch.sweep import report
from tests.launch import signals

ROOT = pathlib.Path(__file__).parents[3]

# Without site-packages, which it has no need of, Python starts in a third of the time.
CHILD = [sys.executable, '-S', str(pathlib.Path(__file__).parents[1] / 'sweep_child.py')]
HEAD = 'from experiments import config, spaces\n\n\ndef get_config(arg=""):\n  return {}\n\n\ndef sweep():\n'
SPACE = (
  HEAD + '  dropout = spaces.linear_range(0, 0.5)\n'
  '  return spaces.space(optim__lr=spaces.log_range(1e-4, 1.0), model__dropout=dropout)\n'
)
GRID = HEAD + '  yield from config.grid(optim__lr=[0.1, 0.01, 0.001], model__kind=["a", "3", (1, 2)])\n'
SEEDS = HEAD + '  yield from config.grid(optim__lr=[0.1, 0.01], seed=[0, 1])\n'


DRAW = report.draw


class Place:
  """A directory with an experiment, and sweeps in it, which draw no pictures: those take longer than the trials."""

  def __init__(self, folder: pathlib.Path, monkeypatch):
    self.folder, self.monkeypatch = folder, monkeypatch
    monkeypatch.setattr(report, 'draw', lambda *_: None)
    self.dir = folder / 'sweep'
    self.child()

  def child(self, **options):
    self.monkeypatch.setenv('CHILD', json.dumps(options))

  def argv(self, text=SPACE, *more):
    (self.folder / 'bar.py').write_text(text)
    return [
      f'--config={self.folder / "bar.py"}',
      f'--workdir={self.dir}',
      '--poll=0.01',
      f'--program={shlex.join(CHILD)}',
      *more,
    ]

  def run(self, text=SPACE, *more):
    return sweep.main(self.argv(text, *more))

  def table(self):
    with (self.dir / 'trials.csv').open() as file:
      return list(csv.DictReader(file))

  def run_of(self, number, seed=None):
    return self.dir / 'trials' / f'{number:04d}' / ('' if seed is None else f'seed_{seed}')

  def begun(self, number, seed=None):
    return (self.run_of(number, seed) / 'begun.txt').read_text().splitlines()

  def study(self, url=''):
    import optuna

    kept = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(self.dir / 'study.journal')))
    return optuna.load_study(study_name='sweep', storage=url or kept)


def states(place):
  return [row['state'] for row in sorted(place.table(), key=lambda row: row['trial'])]


def start(place, *more, text=SPACE):
  return subprocess.Popen(
    [sys.executable, '-m', 'launch.sweep', *place.argv(text, *more)],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    preexec_fn=signals.handle,
  )


def wait_for(condition, process, seconds=120):
  deadline = time.monotonic() + seconds
  while not condition():
    assert process.poll() is None and time.monotonic() < deadline, process.communicate()
    time.sleep(0.005)


def count(place, name):
  return len(list(place.dir.glob(f'trials/*/{name}')))
