"""Updates that `train.profile` selects."""

from __future__ import annotations

import pytest

from lmx.errors import InputError
from lmx.reporting import profile_schedule


def profiled(text, updates):
  schedule = profile_schedule.parse(text)
  return [update for update in updates if schedule.find(update)]


def test_updates_of_a_span_and_of_a_period():
  assert profiled('3:6', range(1, 10)) == [3, 4, 5]
  assert profiled('every=10', range(1, 32)) == [*range(11, 16), *range(21, 26), 31]
  assert profile_schedule.parse('every=10').find(22).folder == 'updates_000021_000025'


@pytest.mark.parametrize('text', ['5', '3:3', '6:3', '0:4', 'every=5', 'every=x', '1:2:3', '100:110 '])
def test_bad_schedules(text):
  with pytest.raises(InputError, match='train.profile: got'):
    profile_schedule.parse(text)


def test_updates_and_hosts_that_a_run_does_not_have():
  profile_schedule.check('5:11', (0, 1), 10, 2)
  profile_schedule.check('every=9', (), 10, 2)
  for text, hosts, field in (('5:12', (), 'profile'), ('every=10', (), 'profile'), ('5:11', (2,), 'profile_hosts')):
    with pytest.raises(InputError, match=f'train.{field}: got'):
      profile_schedule.check(text, hosts, 10, 2)
