"""Trials of a study: what is drawn, and who claims them."""

from __future__ import annotations

import shutil
import time

import pytest

from experiments import spaces
from launch.sweep import report, study
from tests.launch.sweep.place import DRAW, GRID, SPACE

pytest.importorskip('optuna', reason='needs the extra `sweep`')


def test_values_are_written_as_the_command_line_reads_them():
  from lmx import cast

  for value in ('adam', 'a b', '10', 'true', 'None', '(1, 2)', '', 1e-4, 3, True, None, (1, 'x'), [0.5]):
    assert cast.parse(study.format_value(value)) == value and type(cast.parse(study.format_value(value))) is type(value)
  assert study.format_value('adam') == 'adam' and study.format_value(3e-4) == '0.0003'


def drawn(place, *more):
  shutil.rmtree(place.dir, ignore_errors=True)
  place.child(steps=2, seconds=0)
  assert place.run(SPACE, '--trials=4', *more) == 0
  return [(row['optim.lr'], row['model.dropout']) for row in sorted(place.table(), key=lambda row: row['trial'])]


def test_random_draws_depend_on_the_seed_and_not_on_the_jobs(place):
  one = drawn(place, '--sampler=random')
  assert drawn(place, '--sampler=random', '--jobs=3') == one
  assert drawn(place, '--sampler=random', '--sampler_seed=1') != one
  assert len(set(one)) == 4
  assert all(1e-4 <= float(lr) <= 1 and 0 <= float(dropout) <= 0.5 for lr, dropout in one)


def test_tpe_samples_near_good_trials(place, monkeypatch):
  monkeypatch.setattr(report, 'draw', DRAW)
  place.child(steps=2, seconds=0)
  assert place.run(SPACE, '--trials=30', '--jobs=3', '--sampler=tpe') == 0
  rows = sorted(place.table(), key=lambda row: row['trial'])
  early, late = ([float(row['loss']) for row in part] for part in (rows[:10], rows[20:]))
  assert sum(late) / len(late) < sum(early) / len(early) - 0.5
  assert (place.dir / 'importance.png').stat().st_size > 1000 and (place.dir / 'parallel.png').stat().st_size > 1000


def test_points_are_categories_for_a_sampler_that_draws(place):
  place.child(steps=2, seconds=0)
  assert place.run(GRID, '--sampler=random', '--trials=5') == 0
  assert {row['model.kind'] for row in place.table()} <= {'a', "'3'", '(1, 2)'} and len(place.table()) == 5


def test_whole_ranges_and_corners():
  space = spaces.space(model__N=spaces.log_range(2, 64), optim__b2=[0.9, 0.99], optim__lr=spaces.linear_range(0.0, 1.0))
  assert len(spaces.points(space)) == 8 and spaces.points(space)[0] == {'model.N': 2, 'optim.b2': 0.9, 'optim.lr': 0.0}
  store = study.Store('', 'x', 'minimize', 'random', 0, study.Identity('here', 'me'), 1)
  search = study.Search.create(space)
  store.enqueue(20, search)
  seen = [store.parameters(store.claim(20, set()), search) for _ in range(20)]
  whole = [int(point['model.N']) for point in seen]
  assert len(set(whole)) > 5 and 2 <= min(whole) and max(whole) <= 64
  assert {point['optim.b2'] for point in seen} == {'0.9', '0.99'}
  with pytest.raises(ValueError, match='above 0'):
    spaces.log_range(0, 1)


def test_worker_elsewhere_is_gone_when_its_pulse_stops(tmp_path):
  url, search = f'sqlite:///{tmp_path}/x.db', study.Search.create(spaces.space(optim__lr=[0.1, 0.2]))
  one = study.Store(url, 'x', 'minimize', 'random', 0, study.Identity('one:/a', 's1'), 60)
  two = study.Store(url, 'x', 'minimize', 'random', 0, study.Identity('two:/a', 's2'), 0.5)
  one.shared = two.shared = True
  one.enqueue(2, search)
  two.enqueue(2, search)
  mine, other = one.claim(2, set()), two.claim(2, set())
  assert (mine.number, other.number) == (0, 1) and len(two.trials()) == 2
  for beat in range(4):
    mine.set_user_attr('pulse', beat)
    assert two.claim(2, {1}) is None
    time.sleep(0.1)
    assert two.claim(2, {1}) is None
    time.sleep(0.1)
  time.sleep(0.5)
  taken = two.claim(2, {1})
  assert taken.number == 0 and one.parameters(mine, search) == two.parameters(taken, search)
  assert one.claim(2, set()) is None  # nor does the first take it back
  again = study.Store(url, 'x', 'minimize', 'random', 0, study.Identity('two:/a', 's3'), 60)
  assert again.claim(2, set()).number == 0  # of the same place, which one sweep holds: at once


def test_last_claim_of_a_trial_wins(tmp_path, monkeypatch):
  url, search = f'sqlite:///{tmp_path}/x.db', study.Search.create(spaces.space(optim__lr=[0.1, 0.2]))
  one, two = (study.Store(url, 'x', 'minimize', 'random', 0, study.Identity('one:/a', session), 60) for session in 'ab')
  one.shared = two.shared = True
  one.enqueue(1, search)
  trial = one.claim(1, set())
  another = {'place': 'three:/a', 'session': 'c'}
  monkeypatch.setattr(study.time, 'sleep', lambda seconds: trial.set_user_attr('worker', another))
  assert two.claim(1, set()) is None
  assert two.trials('RUNNING')[0].user_attrs['worker'] == another
