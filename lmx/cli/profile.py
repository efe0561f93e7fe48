"""`lmx profile --workdir=RUN`: the operations that take the longest in the updates that `train.profile` traced.

Each line has an HLO instruction with its layer and module, its time, and its operations and bytes per second.
`roofline` is the least time on this device as a share of the measured one: 100% at the peak of its products or of the
memory, and more where a cache helps. A CPU's limits are measured when the profile is written. Below are the times by
layer.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from lmx import ranges, storage
from lmx.errors import InputError

_TEXTS = ('layer', 'direction', 'operation', 'HLO')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--workdir', required=True, help='work directory of the run, which may still train')
  parser.add_argument('--updates', default='', metavar='FIRST_LAST', help='which profile (default: the newest)')
  parser.add_argument('--host', type=ranges.integer(0), help='number of the process (default: the first profiled)')
  parser.add_argument('--top', type=ranges.integer(1), default=20, help='number of operations (default: 20)')
  parser.add_argument('--json', default='', metavar='FILE', help='file to write all operations and layers to')


def run(args: argparse.Namespace) -> int:
  from lmx.config import run_files

  run_files.read_config(storage.path('--workdir', args.workdir, storage.FOLDER))  # before JAX is imported
  from lmx.compilation import profile as profile_lib
  from lmx.reporting import run_log

  profile = profile_lib.load(_choose(profile_lib.open_run('--workdir', args.workdir), args.updates), args.host)
  print(f'{profile.folder}\n{profile_lib.title(profile)}\n')
  rows = profile_lib.table(profile, args.top)
  print('\n'.join(_columns(rows)))
  print('\n' + '\n'.join(_columns(profile_lib.layer_table(profile))))
  if args.json:
    run_log.write_json(args.json, profile.to_json())
  return 0


def _choose(folders: Sequence[Any], updates: str) -> Any:
  """Return the newest profile, or that of the given updates, such as 100_109. Raises InputError."""
  if not updates:
    return folders[-1]
  names = {'_'.join(str(int(part)) for part in folder.name.split('_')[1:]): folder for folder in folders}
  if updates not in names:
    raise InputError(f'--updates: got {updates}; expected {" or ".join(names)}')
  return names[updates]


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
  """Return rows in columns, numbers to the right."""
  widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
  align = lambda i, text: text.ljust(widths[i]) if rows[0][i] in _TEXTS else text.rjust(widths[i])
  return ['  '.join(align(i, text) for i, text in enumerate(row)).rstrip() for row in rows]
