"""Updates of a training to profile, by `train.profile`. Imports no JAX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from lmx.errors import InputError

UPDATES = 5  # of each profile with every=N
_EXPECTED = 'START:STOP, such as 100:110, or every=N, such as every=1000; set it to one of these, or to "" for none'


class Span(NamedTuple):
  """Consecutive updates, by their numbers from 1: `first` to `last`."""

  first: int
  last: int

  @property
  def folder(self) -> str:
    """Name of its profile."""
    return f'updates_{self.first:06d}_{self.last:06d}'


class Schedule(NamedTuple):
  """Updates to profile: those of `span`, or `UPDATES` after each multiple of `every`."""

  span: Span | None
  every: int = 0

  def find(self, update: int) -> Span | None:
    """Return the updates to profile together with this one, None if it is not profiled."""
    first = update - (update - 1) % self.every if self.every else 1
    span = self.span or Span(first, first + UPDATES - 1)
    return span if span.first <= update <= span.last and (self.span or first > 1) else None


def parse(text: str) -> Schedule:
  """Return the schedule of `train.profile`, 'START:STOP' without STOP or 'every=N'. Raises InputError."""
  got = f'train.profile: got "{text}"'
  if match := re.fullmatch(r'every=([0-9]{1,10})', text):
    if int(match[1]) <= UPDATES:
      raise InputError(f'{got}; expected more than the {UPDATES} updates of a profile, such as every=1000')
    return Schedule(None, int(match[1]))
  match = re.fullmatch(r'([0-9]{1,10}):([0-9]{1,10})', text)
  if not match:
    raise InputError(f'{got}; expected {_EXPECTED}')
  start, stop = int(match[1]), int(match[2])
  if not 1 <= start < stop:
    raise InputError(f'{got}; expected updates counted from 1, START before STOP, such as 100:110')
  return Schedule(Span(start, stop - 1))


def check(text: str, hosts: Sequence[int], total_steps: int, processes: int) -> None:
  """Check `train.profile` against a run. Raises InputError if there is no such update or host."""
  if not text:
    return
  schedule = parse(text)
  last = schedule.span.last if schedule.span else schedule.every + 1
  if last > total_steps:
    raise InputError(f'train.profile: got {text}; expected updates of this run, which has {total_steps:,}')
  for host in hosts:
    if host >= processes:
      raise InputError(f'train.profile_hosts: got {host}; expected process numbers, 0 to {processes - 1}')
