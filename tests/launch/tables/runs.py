"""Runs of a table with a program in place of lmx, and files of runs."""

from __future__ import annotations

import functools
import json
import pathlib
import sys

from experiments.tables import Curve, Row, Run, Table
from launch.tables import pages, report
from launch.tables import plan as plans
from launch.tables.__main__ import main

all_pages = functools.cache(pages.pages)  # of the repository's own lines
STAND_IN = (sys.executable, str(pathlib.Path(__file__).parents[1] / 'stand_in.py'))
SMALL = '--rows=small/*'


def run(folder: pathlib.Path, *words: str) -> int:
  return main(['rnn_lm_ptb', f'--runs={folder}', *words])


def rows_of(folder: pathlib.Path, name: str = 'rnn_lm_ptb') -> list[str]:
  text = (folder / f'tables/{name}.md').read_text()
  part = text.partition(f'\n## {report.ROWS}\n')[2].partition('\n## ')[0]
  return [line for line in part.splitlines() if line.startswith('| ')][1:]


def put(folder: pathlib.Path, name: str, file: str, seed: int = 0, plan: plans.Plan | None = None, **figures) -> None:
  run = {run.name: run for table in plans.names() for run in plans.table(table).runs}[name]
  where = plans.default_directory(run, seed, folder)
  where.mkdir(parents=True, exist_ok=True)
  tree: dict = {}
  for key, value in {**plans.configs(run, plan or plans.Plan())[''], 'seed': seed}.items():
    *sections, last = key.split('.')
    part = tree
    for section in sections:
      part = part.setdefault(section, {})
    part[last] = seed if value == '{seed}' else value
  (where / 'config.json').write_text(json.dumps(tree))
  (where / f'{file}.json').write_text(json.dumps(figures))


def make_tries(folder: pathlib.Path, **given: tuple[tuple[float, float], ...]) -> tuple[Table, plans.Plan]:
  """A table of one row with two tries, 'low' and 'high', and of each seed (validation loss, accuracy)."""
  for name, seeds in given.items():
    for seed, (loss, accuracy) in enumerate(seeds):
      where = folder / name / f'seed{seed}'
      where.mkdir(parents=True, exist_ok=True)
      (where / 'results.json').write_text(json.dumps({'accuracy': accuracy, 'validation_loss': loss, 'split': 'test'}))
  runs = tuple(
    Run(name, then=('evaluate --workdir={dir} --output={dir}/results.json',), seeds=2) for name in ('low', 'high')
  )
  row = Row('made/up', 'low', 'accuracy', tries=('high',))
  compute = Row('made/compute', 'low', 'accuracy')
  curves = (Curve('p', 'one', 'made/compute', 'made/up'), Curve('q', 'two', 'made/compute', 'not/run'))
  table = Table('A', 'B', (row, compute), runs, curves=curves)
  return table, plans.Plan(runs=(folder,))
