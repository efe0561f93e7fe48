"""A rehearsal of a table's rows on this machine: every command of a pod, in order, on tiny models (`--rehearse=DIR`).

Two processes stand in for hosts and a folder for the bucket, behind the same code (lmx/stand_in_bucket.py). The text is
read from gs://rehearsal/text, prepared into gs://rehearsal/cache, and read from there by both processes. Work
directories are in DIR/runs, because Orbax writes checkpoints to Cloud Storage without fsspec. Each training has one
seed and the first of its evaluations.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence

from experiments.tables import CORES, Run, Table
from launch import command
from launch.tables import plan as plans
from launch.tables import runner
from lmx import storage

PROCESSES = ('-m', 'launch.local', '--processes=2', '--devices=2', '--restarts=3', '--')
DIFFERS = 'a rehearsal with the tiny variants'
_BUCKET = 'gs://rehearsal'
_DATA = (f'data.cache_dir={_BUCKET}/cache', 'data.processes=1')
_TEXT = ('data.dataset=text_files', f'data.manual_dir={_BUCKET}/text')
_METRICS = {'bleu': 'sacrebleu'}  # the tiny variants translate to digits, which have no tokens of Moses
_KEPT = ('model.bias', 'train.init_from', 'data.tokenizer_path')  # settings of a table that the tiny variants keep
_DOCUMENTS = 400  # of the text


def tiny(table: Table) -> Table:
  """Return a table whose trainings are tiny; one that reads the user's text reads that of the bucket."""
  return table._replace(
    runs=tuple(_tiny(run) if run.config else run for run in table.runs),
    rows=tuple(row._replace(differs=DIFFERS, metric=_METRICS.get(row.metric, row.metric)) for row in table.rows),
  )


def _tiny(run: Run) -> Run:
  path, flat = run.config.partition(':')[0], plans.configs(run, plans.Plan()).get('', {})
  texts = flat.get('data.dataset') == 'text_files'
  kept = (text for text in run.settings if text.startswith(_KEPT))
  return run._replace(
    config=f'{path}:tiny',
    settings=(*kept, *_DATA, *_TEXT * texts),
    then=run.then[:1],
    seeds=min(run.seeds, 1),
    needs=CORES,
  )


def prepare(folder: pathlib.Path) -> None:
  """Make the bucket with its text, and let this process and its children use it."""
  from lmx.data.builders import prose
  from lmx.data.sentences import split

  text = folder / 'buckets' / 'rehearsal' / 'text'
  text.mkdir(parents=True, exist_ok=True)
  if not (text / 'train.txt').exists():
    documents = ('\n'.join(map(str.strip, split(each, 'prose'))) for _, each, _ in prose.of_split('train')[:_DOCUMENTS])
    (text / 'train.txt').write_text('\n\n'.join(documents) + '\n', encoding='utf-8')
  os.environ[storage.STAND_IN] = str(folder / 'buckets')
  # Process 0 alone would read compiled programs. On a CPU the collectives of the other, still compiling, then time out.
  os.environ['LMX_COMPILATION_CACHE'] = 'off'


def plan(folder: pathlib.Path, given: plans.Plan) -> plans.Plan:
  """Return a plan whose runs are in the folder."""
  return dataclasses.replace(given, runs=(folder / 'runs',), settings=())


def words(one: plans.Command) -> Iterator[Sequence[str]]:
  """Yield the programs of a command: before a training the preparation of its data."""
  if one.words[0] == 'train':
    yield [*command.MODULE, 'prepare', *command.config_options(one.words)]
  yield [*(PROCESSES if one.words[0] == 'train' else command.MODULE), *one.words]


def run(folder: pathlib.Path, todo: Sequence[runner.Task], say: Callable[[str], None]) -> int:
  """Run the commands of tasks one after another; return the exit code of the first that fails, else 0.

  The machine that prepares the data and the hosts that train have their own caches, so the hosts read the bucket.
  """
  for task in todo:
    for one in task.commands:
      for each in words(one):
        os.environ['LMX_CACHE'] = str(folder / ('cache_of_preparation' if 'prepare' in each else 'cache_of_hosts'))
        say(f'$ python {shlex.join(each)}')
        if code := command.Runner().follow([sys.executable, *each]):
          return code
  return 0
