"""The journal of a sweep in optuna-dashboard."""

from __future__ import annotations

import json
import wsgiref.util

import pytest

from tests.launch.sweep.place import SPACE

pytest.importorskip('optuna', reason='needs the extra `sweep`')


def test_journal_opens_in_the_dashboard(place):
  dashboard = pytest.importorskip('optuna_dashboard', reason='needs optuna-dashboard')
  import optuna

  place.child(steps=4, seconds=0)
  assert place.run(SPACE, '--trials=3', '--sampler=random') == 0
  file = optuna.storages.journal.JournalFileBackend(str(place.dir / 'study.journal'))  # as its command opens it
  app = dashboard.wsgi(optuna.storages.JournalStorage(file))

  def get(path):
    environ = {'PATH_INFO': path}
    wsgiref.util.setup_testing_defaults(environ)
    return json.loads(b''.join(app(environ, lambda status, headers, *_: None)))

  (study,) = get('/api/studies')['study_summaries']
  assert study['study_name'] == 'sweep' and study['directions'] == ['minimize']
  trials = get(f'/api/studies/{study["study_id"]}')['trials']
  losses = {int(row['trial']): float(row['loss']) for row in place.table()}
  assert {trial['number']: trial['values'] for trial in trials} == {n: [loss] for n, loss in losses.items()}
  assert all(len(trial['intermediate_values']) == 2 for trial in trials)
