"""The presets of `lmx bench`, each measured in its own process, as rows of one table.

Each preset has its own process, so that peak memory is separate and a failure only loses one row.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lmx import documents
from lmx.benchmark import fine_tuning, generation, machine, preparation, row, torch_client, train_step, word_vectors
from lmx.benchmark import peer as peer_lib
from lmx.errors import InputError, nearest

NAMES = (
  *machine.PRESETS,
  *train_step.PRESETS,
  *word_vectors.PRESETS,
  *generation.PRESETS,
  *fine_tuning.PRESETS,
  *preparation.PRESETS,
)
_WHOLE = 3  # rounds of other presets for each of a whole process, which takes longer


class Options(NamedTuple):
  """Options of a measurement.

  Attributes:
    rounds: rounds that alternate with the peer; presets that run whole processes take a third of them.
    steps, warmup: timed training steps per round, and untimed steps before; 0 and -1 take each preset's.
    rows: rows per epoch of `fine_tuning`.
    megabytes: text size of `prepare`.
    peers: interpreters, separated by commas; None for no comparison.
  """

  rounds: int = 3
  steps: int = 0
  warmup: int = -1
  rows: int = 1024
  megabytes: int = 32
  peers: str | None = None


def parse(text: str) -> list[str]:
  """Return the presets for 'all' or for names separated by commas."""
  names = list(NAMES) if text == 'all' else [name.strip() for name in text.split(',')]
  for name in names:
    if name not in NAMES:
      raise InputError(f'unknown preset "{name}"{nearest(name, ["all", *NAMES])}')
  return names


def measure(name: str, options: Options) -> list[row.Row]:
  """Return the rows of one preset, measured in this process."""
  if name in train_step.PRESETS:
    return [_train_step(name, options)]
  modules: Sequence[Any] = (machine, word_vectors, generation, fine_tuning, preparation)
  module = next(one for one in modules if name in one.PRESETS)
  python, missing = _choose(options.peers, module.PACKAGES)
  rounds = options.rounds
  arguments: tuple[int, ...] = ()
  if module in (fine_tuning, preparation):
    rounds = max(1, rounds // _WHOLE)
    arguments = (options.rows if module is fine_tuning else options.megabytes,)
  return [one | {'missing': missing} for one in module.measure(name, rounds, python, *arguments)]


def _choose(peers: str | None, packages: Sequence[str]) -> tuple[str | None, str]:
  """Return (the interpreter or None, what is missing or '')."""
  try:
    return (peer_lib.choose(peers, packages) if peers else None), ''
  except peer_lib.Missing:
    return None, ', '.join(packages)


def _train_step(name: str, options: Options) -> row.Row:
  preset = train_step.PRESETS[name]
  subject = train_step.subject_from_preset(name, preset)
  python, missing = _choose(options.peers, torch_client.packages(subject))
  repeats = {
    'steps': options.steps or preset.steps,
    'warmup': 2 if options.warmup < 0 else options.warmup,
    'rounds': options.rounds,
  }
  metrics = train_step.measure(subject, **repeats, peer=python)
  peer = metrics.get('peer')
  of = lambda found: {'median': found['step_seconds'], **{k: found[k] for k in ('quartile_1', 'quartile_3')}}
  return {
    **row.make(name, 's', [metrics['step_seconds']]),
    'ours': of(metrics),
    'theirs': of(peer) if peer else None,
    'ratio': peer['ratio'] if peer else None,
    'ratio_of_rounds': peer['ratio_of_rounds'] if peer else [],
    'compile_seconds': metrics['compile_seconds'],
    'our_peak_bytes': metrics['peak_process_bytes'],
    'peer_peak_bytes': peer['peak_process_bytes'] if peer else None,
    'peer': peer and {k: peer[k] for k in ('torch', 'threads', 'parameters')},
    'missing': missing,
    'details': {k: v for k, v in metrics.items() if k != 'peer'},
  }


def measure_all(names: Iterable[str], words: Sequence[str]) -> list[row.Row]:
  """Return the rows of several presets, each measured by `lmx bench` in its own process; print each at once.

  Args:
    names: presets.
    words: options of the command.
  """
  names, rows = list(names), []
  with tempfile.TemporaryDirectory() as directory:
    file = pathlib.Path(directory) / 'rows.json'
    for i, name in enumerate(names):
      print(f'[{i + 1} of {len(names)}] {name}', flush=True)
      start = time.perf_counter()
      command = [sys.executable, '-m', 'lmx', 'bench', f'--preset={name}', f'--json={file}', *words]
      done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding='utf-8', errors='replace', check=False
      )
      if done.returncode or not file.exists():
        error = done.stderr.strip() or f'status {done.returncode}'
        new: list[row.Row] = [{'name': name, 'error': error[-2000:]}]
      else:
        new = json.loads(file.read_text(encoding='utf-8'))
        file.unlink()
      for one in new:
        print(f'  {row.line(one)}', flush=True)
      print(f'  {time.perf_counter() - start:.0f} s in all', flush=True)
      rows += new
  return rows


def read(paths: str) -> list[list[row.Row]]:
  """Return the rows in each file that `--json` wrote; commas separate `paths`.

  Raises:
    InputError: a file is missing or has other content.
  """
  runs = []
  for path in paths.split(','):
    rows = documents.read_json(path)
    if not isinstance(rows, list) or not all(
      isinstance(one, dict) and 'name' in one and ('error' in one or 'ratio_of_rounds' in one) for one in rows
    ):
      raise InputError(f'--combine: got {path}; expected rows that `lmx bench --preset=NAME --json=FILE` wrote')
    runs.append(rows)
  return runs
