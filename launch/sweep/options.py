"""Options of `python -m launch.sweep`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from launch import wait
from launch.sweep import study
from lmx import ranges


def add(parser: argparse.ArgumentParser) -> None:
  """Add the options to a parser."""
  _add_search(parser.add_argument)
  _add_runs(parser.add_argument)


def _add_search(add: Callable[..., Any]) -> None:
  """Add the options of the search: its space, limits, sampler, pruner and study."""
  add('--config', required=True, help='experiment file, with :variant if it has any')
  add(
    '--space',
    action='append',
    default=[],
    metavar='KEY=VALUES',
    help='axis of the search, such as optim.lr=log:1e-4..1e-2, model.dropout=0..0.5, model.N=int:2..8 or '
    'model.init=paper,released; replaces or adds to those of sweep(); repeatable',
  )
  add('--trials', type=ranges.integer(0), default=0, help='how many in all; by default every point of a grid')
  add(
    '--budget',
    default='',
    help='time of all runs, such as 10h, or training FLOPs, such as 1e18flops; once spent, no further trial begins',
  )
  add(
    '--timeout',
    default='',
    help='seconds, or 30m, 2h, 1d, after which the runs save and stop; the same command resumes them',
  )
  add(
    '--seeds',
    type=ranges.integer(1, 100_000),
    default=1,
    help='runs of a trial, with seeds 0, 1, ..., whose metrics are averaged',
  )
  add('--metric', default='loss', help='figure of the validation split, or results.FIGURE; :min or :max if not known')
  add('--sampler', choices=study.SAMPLERS, help='default: grid for points, tpe for a space')
  add(
    '--startup_trials',
    type=ranges.integer(1),
    help=f'tpe: random trials before it proposes any; {study.STARTUP_TRIALS}',
  )
  add('--sampler_seed', type=ranges.seed, default=0, help='the same seed draws the same parameters')
  add('--pruner', choices=study.PRUNERS, default='none', help='stop trials that fall behind on the validation split')
  add(
    '--reduction',
    type=ranges.integer(2, 1_000_000),
    default=3,
    help='asha, hyperband: one of so many continues at each rung',
  )
  add(
    '--min_steps', type=ranges.integer(0), default=0, help='updates before any is pruned; 0: until the first validation'
  )
  add(
    '--storage',
    default=os.environ.get('LMX_SWEEP_STORAGE', 'journal'),
    help='journal or sqlite (files in DIR), or a URL of SQLAlchemy; LMX_SWEEP_STORAGE, else journal',
  )
  add('--study', default='', help='name of the study where a database holds several; default: name of DIR')


def _add_runs(add: Callable[..., Any]) -> None:
  """Add the options of the runs: where and how they are started and followed."""
  add('--workdir', required=True, help='directory of the sweep; the same command resumes it')
  add('--jobs', type=ranges.integer(1, 100_000), default=1, help='runs at a time')
  add('--env', action='append', default=[], help='NAME=VALUE for the runs; {job} is the worker, 0 to J-1')
  add('--where', choices=('local', *wait.LAUNCHERS), default='local', help='each run a job of this launcher')
  add('--launch', default='', help='options of that launcher, as one text; {job} is the worker, as in --env')
  add('--runs', default='', help='where the work directories are that the runs see, such as gs://...; DIR/trials')
  add('--program', default='', help='program that takes `train ...` and waits for it, such as "srun -n1 lmx"')
  add('--grace', type=ranges.number(0, 1e6), default=300.0, help='seconds that a run has to save before it is killed')
  add(
    '--stale',
    type=ranges.number(0, 1e6),
    default=300.0,
    help='seconds without a sign of life after which another machine is gone',
  )
  add('--poll', type=ranges.number(0, 1e6), default=1.0, help='seconds between two checks of the runs')
  add('--dry_run', action='store_true', help='print the first commands and run nothing')
