"""Trackers have every committed step once, under one id, however often a run is killed and whichever of them fails."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import types

import pytest

from lmx.cli import main as cli
from lmx.config import resolve
from lmx.errors import InputError
from lmx.reporting import TRACKERS, loss_curve, run_log, trackers
from tests.reporting import wandb_server

CONFIG = 'experiments/nplm/quickstart.py:tiny'
QUIET = ('--config.evaluation.baselines=false', '--config.samples.count=0')


class Server:
  """Tracker in memory, which outlives the sessions; `broken` names the calls that fail."""

  where = 'memory'

  def __init__(self):
    self.rows: list[trackers.Row] = []
    self.ids, self.states, self.results, self.files, self.broken = [], [], {}, [], set()
    self.Tracker = self.start  # as the file of a tracker names it

  def needs_server(self, cfg):
    return 'set X=1'

  def fail_if(self, call):
    if call in self.broken:
      raise ConnectionError(f'no network in {call}')

  def start(self, run):
    self.fail_if('open')
    self.run = run
    self.ids.append(run.id)
    return self

  def log(self, rows):
    for step, values in rows:
      self.fail_if('log')
      if not self.rows or step > self.rows[-1][0]:
        self.rows.append((step, dict(values)))

  def finish(self, results, files):
    self.fail_if('finish')
    self.results, self.files = dict(results), [path.name for path in files]

  def close(self, state):
    self.states.append(state)


@pytest.fixture
def server(monkeypatch) -> Server:
  one = Server()
  monkeypatch.setattr(trackers, 'module', lambda name: one)
  monkeypatch.setattr(trackers.importlib.util, 'find_spec', lambda name: types.SimpleNamespace(origin='a file'))
  return one


def session(workdir, start, stop, committed, *, to=('wandb',), damaged=(), killed=True, finished=False):
  """Steps start + 1 ... stop, of which each in `committed` has a checkpoint, and then a kill."""
  with run_log.Logger(workdir, 20, start_step=start, tokens_per_step=1, every=2) as logger:
    one = trackers.Trackers(trackers.Config(to=to), logger, 'name', {'seed': 1}, 'digest')
    for step in range(start + 1, stop + 1):
      logger.train(step, {'loss': 1 / step})
      if step % 5 == 0:
        logger.evaluation(step, 'valid', {'loss': 2 / step})
      logger.flush()
      one.commit(lambda step=step: sorted({s for s in committed if s <= step} | {*damaged}), step)
    if finished:
      logger.results({'step': stop, 'accuracy': 0.5, 'inner': {'loss': 2.0}, 'model': 'x', 'good': True})
      one.finish()
    if not killed:
      one.__exit__(None, None, None)


def rows_of(workdir, last=100) -> list[trackers.Row]:
  """The rows that metrics.jsonl holds up to step `last`."""
  rows: dict[int, dict[str, float]] = {}
  for record in run_log.read_metrics(workdir):
    step, split = record.pop('step'), record.pop('split')
    rows.setdefault(step, {}).update({f'{split}/{name}': value for name, value in record.items()})
  return sorted((step, values) for step, values in rows.items() if step <= last)


def without_times(rows):
  return [(step, {k: v for k, v in row.items() if k.endswith('/loss')}) for step, row in rows]


def test_only_committed_steps_are_logged(tmp_path, server):
  session(tmp_path, 0, 9, [5])
  assert server.rows == rows_of(tmp_path, 5) and [step for step, _ in server.rows] == [1, 2, 4, 5]
  assert server.rows[-1][1]['valid/loss'] == 0.4


def test_killed_run_has_every_step_once_under_one_id(tmp_path, server):
  session(tmp_path, 0, 4, [])  # before its first checkpoint
  session(tmp_path, 0, 9, [5, 8])
  session(tmp_path, 8, 11, [5, 8])
  session(tmp_path, 5, 12, [5, 8])  # the checkpoint of step 8 is damaged
  session(tmp_path, 5, 20, [5, 15, 20], killed=False, finished=True)
  assert without_times(server.rows) == without_times(rows_of(tmp_path))
  assert [step for step, _ in server.rows] == [1, 2, 4, 5, 6, 8, 10, 12, 14, 15, 16, 18, 20]
  assert len(server.ids) == 5 and len(set(server.ids)) == 1
  assert server.run.settings == {'seed': 1} and server.run.about['config_hash'] == 'digest'


def test_damaged_checkpoint_of_a_later_step_commits_nothing(tmp_path, server):
  server.broken = {'open'}
  session(tmp_path, 0, 9, [5, 8])
  server.broken = set()
  session(tmp_path, 5, 7, [5], damaged=[8])
  assert [step for step, _ in server.rows] == [1, 2, 4, 5]


def test_results_and_files_of_a_finished_run_are_logged_once(tmp_path, server):
  loss_curve.draw([], tmp_path / 'loss.png', {})
  session(tmp_path, 0, 20, [20], finished=True)  # killed before the tracker was closed
  session(tmp_path, 20, 20, [20], killed=False, finished=True)
  assert trackers.scalars(server.results)['results/inner/loss'] == 2.0
  assert 'results/good' not in trackers.scalars(server.results) and 'results/model' not in trackers.scalars(
    server.results
  )
  assert server.files == ['results.json', 'loss.png'] and server.states == ['finished']
  assert len(server.ids) == 2


def test_complete_run_is_not_opened_again(tmp_path, server):
  session(tmp_path, 0, 20, [20], killed=False, finished=True)
  with run_log.Logger(tmp_path, 20, start_step=20, tokens_per_step=1) as logger:
    for to, opened in ((('wandb',), 1), (('wandb', 'mlflow'), 2)):  # a tracker named later gets the whole run
      with trackers.Trackers(trackers.Config(to=to), logger, 'name', {}, 'digest') as one:
        one.finish()
      assert len(server.ids) == opened


@pytest.mark.parametrize('call', ['open', 'log', 'finish'])
def test_failure_warns_once_and_the_next_session_catches_up(tmp_path, server, capsys, call):
  server.broken = {call}
  session(tmp_path, 0, 20, [5, 10, 15, 20], killed=False, finished=True)
  output = capsys.readouterr().err
  assert output.count('warning: log.to: wandb failed (ConnectionError: no network') == 1
  assert server.states == ([] if call == 'open' else ['failed'])
  server.broken = set()
  with run_log.Logger(tmp_path, 20, start_step=20, tokens_per_step=1) as logger:
    with trackers.Trackers(trackers.Config(to=('wandb',)), logger, 'name', {}, 'digest') as one:
      one.finish()
  assert server.rows == rows_of(tmp_path) and server.results['accuracy'] == 0.5


def test_failed_or_interrupted_session_has_its_state(tmp_path, server):
  for error, state in ((RuntimeError, 'failed'), (KeyboardInterrupt, 'stopped'), (None, 'stopped')):
    with run_log.Logger(tmp_path, 20, tokens_per_step=1) as logger:
      one = trackers.Trackers(trackers.Config(to=('wandb',)), logger, 'name', {}, 'digest')
      one.__exit__(error, None, None)
    assert server.states.pop() == state


def test_another_run_in_the_same_directory_has_another_id(tmp_path, server):
  for digest in ('one', 'other'):
    with run_log.Logger(tmp_path, 20, tokens_per_step=1) as logger:
      trackers.Trackers(trackers.Config(to=('wandb',)), logger, 'name', {}, digest)
  assert len(set(server.ids)) == 2


def test_other_processes_log_nothing(tmp_path, server):
  with run_log.Logger(tmp_path, 20, tokens_per_step=1, primary=False) as logger:
    with trackers.Trackers(trackers.Config(to=('wandb',)), logger, 'name', {}, 'digest') as one:
      one.commit(lambda: [1], 1)
      one.finish()
  assert not server.ids and not list(tmp_path.iterdir())


def test_training_logs_at_each_checkpoint(tmp_path, server, monkeypatch):
  words = ['train', f'--config={CONFIG}', f'--workdir={tmp_path / "run"}', *QUIET, '--config.train.steps=6']
  words += ['--config.train.log_every=1', '--config.checkpoint.every_steps=2', '--config.train.eval_every=3']
  calls, log = [], server.log
  monkeypatch.setattr(server, 'log', lambda rows: calls.append([step for step, _ in rows]) or log(rows))
  assert cli.main([*words, '--config.log.to=wandb', '--config.log.tags=a']) == 0
  assert sum(calls, []) == [1, 2, 3, 4, 5, 6] and len([steps for steps in calls if steps]) > 1
  assert server.rows == rows_of(tmp_path / 'run') and server.run.name == 'run' and server.run.cfg.tags == ('a',)
  assert server.run.settings['train.steps'] == 6 and not [key for key in server.run.settings if key.startswith('log.')]
  assert server.results['config_hash'] == server.run.about['config_hash'] and 'loss.png' in server.files

  server.rows.clear()
  assert cli.main([*words, '--config.log.to=mlflow']) == 0  # of the finished run, whose config names another tracker
  assert server.rows == rows_of(tmp_path / 'run') and server.states == ['finished', 'finished']


def test_log_section_is_not_part_of_the_run_identity():
  plain, logged = (resolve.load(CONFIG, more) for more in ((), ("log.to=('wandb','mlflow')", 'log.project=p')))
  assert resolve.digest(plain) == resolve.digest(logged)
  resolve.check_same(plain, logged, 'somewhere')
  earlier = {key: value for key, value in plain.to_dict().items() if key != 'log'}  # as an earlier lmx wrote it
  assert resolve.resolve(earlier, saved=True).log.to == ()


def test_unknown_trackers_and_missing_packages_are_rejected_before_anything_is_written(tmp_path, capsys, monkeypatch):
  find = importlib.util.find_spec
  monkeypatch.setattr(trackers.importlib.util, 'find_spec', lambda name: None if name == 'wandb' else find(name))
  words = ['train', f'--config={CONFIG}', f'--workdir={tmp_path / "run"}']
  for value, message in (
    ('wandb', 'log.to: got "wandb", whose package is missing; install it: pip install "lmx[wandb]"'),
    ('wand', 'log.to: unknown "wand"; did you mean "wandb"?'),
  ):
    assert cli.main([*words, f'--config.log.to={value}']) == 2
    assert message in capsys.readouterr().err
  assert not (tmp_path / 'run').exists()


def test_files_of_a_tracker_need_a_disk(server):
  with pytest.raises(InputError, match='gs://b/run'):
    trackers.check(trackers.Config(to=('mlflow',)), 'gs://b/run')


# ---- the trackers themselves ----


def test_mlflow_uri_comes_from_config_or_environment(tmp_path, monkeypatch):
  from lmx.reporting.trackers import mlflow

  def uri(**fields):
    return mlflow.tracking_uri(trackers.Config(**fields), tmp_path)

  monkeypatch.delenv('MLFLOW_TRACKING_URI', raising=False)
  assert uri() == (tmp_path / 'mlruns').as_uri() and mlflow.needs_server(trackers.Config())
  monkeypatch.setenv('MLFLOW_TRACKING_URI', 'http://host:5000')
  assert uri() == 'http://host:5000' and not mlflow.needs_server(trackers.Config())
  assert uri(mlflow_uri='some/runs') == pathlib.Path('some/runs').absolute().as_uri()
  for text in ('sqlite:///runs.db', 'databricks', 'file:///runs'):
    assert uri(mlflow_uri=text) == text


needs = lambda name: pytest.mark.skipif(
  importlib.util.find_spec(name) is None, reason=f'{name} is not installed: pip install "lmx[{name}]"'
)
NEEDED = [pytest.param(name, marks=needs(name)) for name in TRACKERS]


def logged_by_wandb(workdir: pathlib.Path) -> tuple[list[trackers.Row], dict]:
  """The rows and the summary of the one run that a server has after `wandb sync` of all offline folders."""
  folders = sorted(map(str, workdir.glob('wandb/offline-run-*')))
  with wandb_server.Server() as server:
    settings = {'WANDB_BASE_URL': server.url, 'WANDB_API_KEY': 'a' * 40, 'WANDB_ERROR_REPORTING': 'false'}
    program = pathlib.Path(sys.executable).with_name('wandb')
    subprocess.run([program, 'sync', *folders], env={**os.environ, **settings}, cwd=workdir, check=True, timeout=300)
  assert len(server.ids) == 1 and server.exits
  rows = [(row['_step'], {k: v for k, v in row.items() if not k.startswith('_')}) for row in server.rows]
  return rows, server.summary


def logged_by_mlflow(workdir: pathlib.Path) -> tuple[list[trackers.Row], dict]:
  """The rows of the one run of the store of files, and its results."""
  from mlflow.tracking import MlflowClient

  os.environ['MLFLOW_ALLOW_FILE_STORE'] = 'true'
  client = MlflowClient((workdir / 'mlruns').as_uri())
  (experiment,) = (e for e in client.search_experiments() if e.name == 'lmx')
  (run,) = client.search_runs([experiment.experiment_id])
  rows: dict[int, dict[str, float]] = {}
  for key in run.data.metrics:
    for metric in client.get_metric_history(run.info.run_id, key):
      row = rows.setdefault(metric.step, {})
      assert key not in row, f'{key} twice at step {metric.step}'
      row[key] = metric.value
  results = {k: row.pop(k) for row in rows.values() for k in [*row] if k.startswith('results/')}
  assert run.info.status == 'FINISHED' and run.data.params['train.steps'] == '40' and 'jax' in run.data.tags
  assert {'results.json', 'loss.png'} <= {file.path for file in client.list_artifacts(run.info.run_id)}
  return sorted(rows.items()), results


@pytest.mark.slow
@pytest.mark.parametrize('name', NEEDED)
def test_run_killed_at_random_moments_has_every_step_once(name, tmp_path, root):
  workdir = tmp_path / 'run'
  options = ['--config.train.steps=40', '--config.train.log_every=1', '--config.checkpoint.every_steps=3']
  words = [*QUIET, *options, '--config.train.eval_every=15', f'--config.log.to={name}', '--config.parallel.data=1']
  command = [sys.executable, '-m', 'lmx.cli.main', 'train', f'--config={CONFIG}', f'--workdir={workdir}', *words]
  keep = {k: v for k, v in os.environ.items() if not k.startswith(('WANDB', 'MLFLOW'))}
  draw, log = random.Random(7), workdir / 'metrics.jsonl'
  for kill in range(6):
    process = subprocess.Popen(command, cwd=root, env={**keep, 'PYTHONPATH': str(root)}, stderr=subprocess.DEVNULL)
    size = lambda: log.stat().st_size if log.exists() else 0
    before = size()
    while kill < 5 and process.poll() is None and size() == before:
      time.sleep(0.01)
    if kill < 5:
      time.sleep(draw.uniform(0, 1.5))
      process.send_signal(signal.SIGKILL)
    process.wait(timeout=300)
  assert process.returncode == 0
  rows, results = {'wandb': logged_by_wandb, 'mlflow': logged_by_mlflow}[name](workdir)
  expected = rows_of(workdir)
  assert [step for step, _ in rows] == list(range(1, 41)) == [step for step, _ in expected]
  assert [row.keys() for _, row in rows] == [row.keys() for _, row in expected]
  assert without_times(rows) == without_times(expected)
  written = json.loads((workdir / 'results.json').read_text())
  assert results['results/perplexity_per_word'] == written['perplexity_per_word']


@pytest.mark.slow
@needs('mlflow')
def test_runs_that_start_at_once_share_an_experiment_of_mlflow(tmp_path):
  """In a store of files, which has no lock of its own."""
  code = """
import pathlib, sys, time
from mlflow.store.tracking.file_store import FileStore
from lmx.reporting import trackers

check = FileStore._validate_experiment_does_not_exist
FileStore._validate_experiment_does_not_exist = lambda *names: (check(*names), time.sleep(1))  # until the others looked
cfg = trackers.Config(mlflow_uri=sys.argv[2], group='g', tags=('a', 'b=c'))
one = trackers.module('mlflow').Tracker(trackers.Run(sys.argv[1], sys.argv[1], cfg, pathlib.Path(), {'x': 1}, {}, {}))
one.log([(1, {'train/loss': 0.5})])
one.close('stopped')
"""
  store = tmp_path / 'new' / 'store'
  processes = [subprocess.Popen([sys.executable, '-c', code, f'run{i}', str(store)]) for i in range(4)]
  assert [process.wait(timeout=300) for process in processes] == [0] * 4
  from mlflow.tracking import MlflowClient

  os.environ['MLFLOW_ALLOW_FILE_STORE'] = 'true'
  client = MlflowClient(store.as_uri())
  (experiment,) = (e for e in client.search_experiments() if e.name != 'Default')
  runs = client.search_runs([experiment.experiment_id])
  assert sorted(run.info.run_name for run in runs) == ['run0', 'run1', 'run2', 'run3']
  assert all(run.data.metrics == {'train/loss': 0.5} and run.info.status == 'KILLED' for run in runs)
  assert all(run.data.tags.items() >= {'group': 'g', 'a': 'true', 'b': 'c'}.items() for run in runs)


@pytest.mark.slow
@needs('wandb')
def test_truncated_offline_wandb_file_is_read(tmp_path, monkeypatch):
  from lmx.reporting.trackers import wandb

  monkeypatch.setenv('WANDB_MODE', 'offline')
  cfg = trackers.Config(tags=('a',), group='g')
  one = wandb.Tracker(trackers.Run('abc', 'name', cfg, tmp_path, {'optim.lr': 0.5}, {'commit': 'x'}, {}))
  one.log([(step, {f'train/{name}': float(step) for name in 'abcdefgh'}) for step in range(1, 201)])
  one.close('stopped')
  (path,) = wandb.offline_files(tmp_path, 'abc')
  whole = path.read_bytes()
  assert len(whole) > 2 * 32768 and wandb.last_step(tmp_path, 'abc') == 200
  records = [record for record in wandb.read_records(path) if record.HasField('history')]
  assert [record.history.step.num for record in records] == list(range(1, 201))
  lengths = [*range(7, len(whole), 997), *range(32768 - 20, 32768 + 20), *range(65536 - 20, 65536 + 20)]
  steps = []
  for length in sorted(lengths):
    path.write_bytes(whole[:length])
    steps.append(wandb.last_step(tmp_path, 'abc'))
  assert steps == sorted(steps) and steps[0] == -1 and 190 < steps[-1] < 200
  path.write_bytes(whole[:-1000] + b'\0' * 1000)  # after a loss of power
  wandb.remove_empty(tmp_path, 'abc')
  assert 190 < wandb.last_step(tmp_path, 'abc') < 200
  path.write_bytes(whole[:7])
  wandb.remove_empty(tmp_path, 'abc')
  assert not path.parent.exists()
