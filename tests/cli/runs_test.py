"""`lmx runs` lists the runs below a folder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time

import filelock
import pytest
from etils import epath

from lmx.cli import main, runs

MODEL = {'name': 'rnn_lm', 'variant': 'tiny'}
HOLD = """
import sys, filelock
with filelock.FileLock(sys.argv[1]):
  print('held', flush=True)
  sys.stdin.read()
"""


def put(folder, *, records=(), results=None, data=None, steps=0, at=1000, model=MODEL):
  folder.mkdir(parents=True)
  files = {'config.json': {'model': model, 'train': {'steps': steps}}, 'data.json': data or {}}
  files |= {'results.json': results} if results else {}
  for name, content in files.items():
    (folder / name).write_text(json.dumps(content))
  (folder / 'metrics.jsonl').write_text(''.join(json.dumps(record) + '\n' for record in records))
  for path in folder.iterdir():
    os.utime(path, (at, at))
  return folder


@pytest.fixture
def folder(tmp_path):
  losses = [(5, 'valid', 3.0), (10, 'valid', 2.5), (15, 'valid', 2.75), (16, 'train', 2.0)]
  records = [{'step': step, 'split': split, 'loss': loss, 'accuracy': 0.5} for step, split, loss in losses]
  results = {'metric': 'accuracy', 'accuracy': 0.75, 'loss': 2.25}
  put(tmp_path / 'b', records=records, results=results, at=3000)
  put(tmp_path / 'sweep/trials/0001', records=records, steps=1200, at=1000)
  put(tmp_path / 'c', data={'imported_from': 'DIR'}, at=2000)
  put(tmp_path / 'b/checkpoints/none')  # a run has no runs in its own folders
  return tmp_path


def table(capsys, *arguments):
  assert main.main(['runs', *map(str, arguments)]) == 0
  return [line.split('  ') for line in capsys.readouterr().out.splitlines()]


def cells(capsys, *arguments):
  return [[cell.strip() for cell in row if cell.strip()] for row in table(capsys, *arguments)]


def test_runs_are_listed_the_newest_last(folder, capsys):
  _, first, second, third = cells(capsys, folder)
  assert first[:-1] == [
    f'{folder}/sweep/trials/0001',
    'rnn_lm:tiny',
    'stopped',
    '16 of 1,200',
    'loss 2.5',
    'loss',
    '2.75',
  ]
  assert second[:-1] == [f'{folder}/c', 'rnn_lm:tiny', 'imported', '0']  # no metric without a validation
  assert third[:-1] == [f'{folder}/b', 'rnn_lm:tiny', 'finished', '16', 'loss 2.5', 'accuracy', '0.75']


def test_variant_is_named_only_with_its_sizes(tmp_path, capsys):
  put(tmp_path / 'a', model=MODEL | {'D': 48, 'V': 1000}, at=1000)
  put(
    tmp_path / 'b',
    model=MODEL | {'D': 48},
    results={'metric': 'loss', 'loss': 1.0, 'model': 'rnn_lm 1x48, 9K'},
    at=2000,
  )
  put(tmp_path / 'c', model=MODEL | {'field_of_another_version': 1}, at=3000)
  assert [row[1] for row in cells(capsys, tmp_path)[1:]] == ['rnn_lm 2x48, 91.3K', 'rnn_lm 1x48, 9K', 'rnn_lm']


def test_best_validation_is_by_the_metric_that_selects_checkpoints():
  numbers = [(5, 3.0, 0.25), (10, 2.5, 0.5), (15, 2.75, 0.75), (20, 2.75, 0.75)]
  log = [{'step': step, 'split': 'valid', 'loss': loss, 'pearson': pearson} for step, loss, pearson in numbers]
  for train, objective, expected in (
    ({}, {}, ('loss', 2.5, 10, False)),
    ({'best_by': 'headline'}, {'name': 'regress'}, ('pearson', 0.75, 15, True)),
    ({'best_by': 'pearson', 'ties': 'later'}, {'name': 'regress'}, ('pearson', 0.75, 20, True)),
    ({'best_by': 'headline'}, {'name': 'regress', 'field_of_another_version': 1}, ('loss', 2.5, 10, False)),
  ):
    assert runs.best_validation({'train': train, 'objective': objective}, log) == expected
  assert runs.best_validation({}, log[:0]) is None


def test_uncharged_unknown_words_are_named(tmp_path, capsys):
  put(tmp_path / 'a', results={'metric': 'bits_per_byte', 'bits_per_byte': 2.0, 'unknown_words': 7})
  remark = f'{tmp_path}/a: 7 unknown words not charged in bits_per_byte'
  assert remark in ['  '.join(line) for line in table(capsys, tmp_path)]
  assert remark not in ['  '.join(line) for line in table(capsys, tmp_path, '--metric=loss')]


def test_metric_option_selects_the_column(folder, capsys, tmp_path):
  main.main(['runs', str(folder), '--metric=accuracy', f'--output={tmp_path}/out.json'])
  rows = json.loads((tmp_path / 'out.json').read_text())['rows']
  assert [row['value'] for row in rows] == [0.5, None, 0.75]


def test_run_that_a_process_trains_is_running(folder, capsys):
  lock = folder / 'sweep/trials/0001/.lock'
  holder = subprocess.Popen(
    [sys.executable, '-c', HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  )
  assert holder.stdout.readline() == 'held\n'
  assert cells(capsys, folder / 'sweep')[1][2] == 'running'
  holder.communicate('')
  assert cells(capsys, folder / 'sweep')[1][2] == 'stopped'
  with filelock.FileLock(lock, blocking=False):  # the table has given it back
    pass


def state_by(workdir, host='another', **beat):
  """Return the state of a run whose process 0 has written a heartbeat."""
  (workdir / 'logs').mkdir(exist_ok=True)
  record = {'host': host, 'time': time.time() - 170, 'interval': 60, 'ended': False, **beat}
  (workdir / 'logs/host-000.json').write_text(json.dumps(record))
  return runs.describe(workdir)['state']


def test_run_without_a_lock_here_is_running_by_its_heartbeat(folder, bucket):
  shared, remote = epath.Path(folder / 'sweep/trials/0001'), bucket / 'r'
  remote.mkdir(parents=True)
  for name in ('config.json', 'data.json', 'metrics.jsonl'):
    (remote / name).write_text((shared / name).read_text())
  (shared / '.lock').touch()  # of another host's file system: it seems to be free
  for workdir in (shared, remote):
    assert state_by(workdir) == 'running', workdir
    assert state_by(workdir, time=time.time() - 190) == 'stopped'
    assert state_by(workdir, time=time.time() - 190, interval=90) == 'running'
    assert state_by(workdir, ended=True) == 'stopped'
  assert state_by(remote, host=socket.gethostname()) == 'running'  # no lock tells more
  assert state_by(shared, host=socket.gethostname()) == 'stopped'
  assert state_by(shared, time='now') == 'damaged'


def test_damaged_run_does_not_hide_the_others(folder, capsys):
  (folder / 'c/config.json').write_text('{"model"')
  (folder / 'loop').symlink_to('.')
  rows = cells(capsys, folder)[1:]
  assert [len(row) for row in rows] == [8, 8, 3, 1] and rows[2][:2] == [f'{folder}/c', 'damaged']
  assert rows[3][0].startswith(f'{folder}/c: ') and 'config.json' in rows[3][0]


def test_goodput_is_a_column_and_its_parts_are_listed(folder, capsys, tmp_path):
  seconds = {'steps': 60.0, 'compile': 30.0, 'data_wait': 10.0}
  record = {'session': 1e9, 'step': 16, 'saved': True, 'seconds': seconds}
  (folder / 'b/logs').mkdir()
  (folder / 'b/logs/ledger.jsonl').write_text(json.dumps(record) + '\n')
  head, *rows = cells(capsys, folder)
  assert head[-2] == 'goodput' and rows[2][-2] == '60.0%'
  assert main.main(['runs', str(folder), '--time', f'--output={tmp_path}/out.json']) == 0
  line = capsys.readouterr().out.splitlines()[-1]
  assert line == f'{folder}/b: 1:40 in 1 session: training steps 60%, compilation 30%, waiting for data 10%'
  assert [row['time'].get('seconds', {}) for row in json.loads((tmp_path / 'out.json').read_text())['rows']] == [
    *({}, {}),
    seconds,
  ]


def test_missing_folder_and_missing_runs_are_reported(tmp_path, capsys):
  assert main.main(['runs', str(tmp_path / 'no')]) == 2
  assert f'{tmp_path}/no is missing' in capsys.readouterr().err
  assert table(capsys, tmp_path) == [[f'no runs in {tmp_path}']]


def test_runs_of_a_bucket_show_their_steps(folder, bucket, capsys):
  (bucket / 'b').mkdir(parents=True)
  for name in ('config.json', 'data.json', 'metrics.jsonl'):
    (bucket / 'b' / name).write_text((folder / 'sweep/trials/0001' / name).read_text())
  assert cells(capsys, bucket)[1][1:6] == ['rnn_lm:tiny', 'stopped', '16 of 1,200', 'loss 2.5', 'loss']


@pytest.mark.parametrize(
  ('name', 'content'),
  [
    ('metrics.jsonl', '{"step": "a", "split": "valid", "loss": 1.0}\n'),
    ('metrics.jsonl', '{"step": 1, "split": ["valid"], "loss": 1.0}\n'),
    ('metrics.jsonl', '{"step": 1, "split": "valid", "loss": {"a": 1}}\n'),
    ('metrics.jsonl', '[1, 2]\n'),
    ('results.json', '{"name": "x", "metric": ["loss"]}'),
    ('results.json', '{"name": "x", "metric": "loss", "steps": "many"}'),
    ('results.json', '{"name": '),
    ('config.json', '{"model": {"name": "x"}, "train": {"steps": "many"}}'),
  ],
)
def test_damaged_record_does_not_hide_other_runs(tmp_path, name, content, capsys):
  for run in ('bad', 'good'):
    (tmp_path / run).mkdir()
    config = json.dumps({'model': MODEL, 'train': {'steps': 9}})
    for file, text in {'config.json': config, 'data.json': '{}', 'metrics.jsonl': ''}.items():
      (tmp_path / run / file).write_text(text)
  (tmp_path / 'good' / 'metrics.jsonl').write_text('{"step": 3, "split": "valid", "loss": "NaN"}\n{"step": 4, "sp')
  (tmp_path / 'bad' / name).write_text(content)
  assert main.main(['runs', str(tmp_path)]) == 0
  out = capsys.readouterr().out
  states = {line.split()[0].rpartition('/')[2]: line for line in out.splitlines() if line.startswith(str(tmp_path))}
  assert 'stopped' in out and '3 of 9' in states['good'] and 'damaged' in out
  assert f'{tmp_path}/bad: ' in out and name in out
