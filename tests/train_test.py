"""The loop: what a run records, how it stops on a loss that is not finite, and how it ends."""

from __future__ import annotations

import errno
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import filelock
import jax
import numpy as np
import pytest

from lmx import train
from lmx.checkpoint import manager, orbax_format
from lmx.cli import main as cli
from lmx.config import resolve
from lmx.data import pipeline
from lmx.errors import InputError, InputWarning, NonFiniteLoss
from lmx.reporting import run_log
from lmx.runs import restore, training

BASE = 'experiments/rnn_lm/quickstart.py:tiny'
VECTORS = 'experiments/word2vec/quickstart.py:tiny'
QUICK = (
  'parallel.data=1',
  'evaluation.baselines=false',
  'samples.count=0',
  'train.steps=8',
  'train.eval_every=4',
  'train.log_every=1',
)
EXPLODES = (
  'optim.optimizer=sgd',
  'optim.lr=1e38',
  'optim.warmup_steps=0',
  'optim.schedule=constant',
  'optim.clip_norm=0',
  'optim.weight_decay=0',
)


@pytest.fixture(scope='module')
def own(tmp_path_factory):
  """Settings of a run of one layer on three small files of text."""
  return ['model.N=1', *own_text(tmp_path_factory.mktemp('text'))]


@pytest.fixture(scope='module')
def run(own):
  """Trains a small model in a work directory."""
  return lambda workdir, *overrides: train.train(resolve.load(BASE, [*QUICK, *own, *overrides]), workdir)


@pytest.fixture(scope='module')
def first(run, tmp_path_factory):
  """Work directory of a finished run."""
  workdir = tmp_path_factory.mktemp('first') / 'run'
  assert run(workdir) == 0
  return workdir


@pytest.fixture
def finished(first, tmp_path):
  """Copy of a finished run's work directory."""
  return shutil.copytree(first, tmp_path / 'finished')


def last_params(workdir):
  found, _, step = manager.restore_params(workdir / 'checkpoints', None, 'last')
  return jax.tree.map(np.asarray, found), step


def test_every_update_and_validation_is_recorded(first):
  records = run_log.read_metrics(first)
  assert [r['step'] for r in records if r['split'] == 'train'] == list(range(1, 9))
  assert [r['step'] for r in records if r['split'] == 'valid'] == [4, 8]
  assert all(0 <= r['wait_share'] <= 1 for r in records if 'wait_share' in r)
  results = json.loads((first / 'results.json').read_text())
  valid = [r for r in records if r['split'] == 'valid']
  assert results['step'] == min(valid, key=lambda r: r['loss'])['step']
  assert results['validation_loss'] == pytest.approx(min(r['loss'] for r in valid))
  assert (
    results['tokens_counted'] == 100 * 7 - 1 and results['seed'] == 0 and results['versions']['jax'] == jax.__version__
  )


def test_the_same_command_on_a_finished_run_changes_nothing(run, finished):
  before = (finished / 'results.json').read_bytes(), (finished / 'metrics.jsonl').read_bytes()
  assert run(finished) == 0
  saved = json.loads((finished / 'config.json').read_text())
  del saved['train']['like_init'], saved['data']['special_tokens']  # as an lmx wrote it that did not have them
  (finished / 'config.json').write_text(json.dumps(saved))
  (finished / 'checksums.json').unlink()
  assert run(finished) == 0
  assert before == ((finished / 'results.json').read_bytes(), (finished / 'metrics.jsonl').read_bytes())


def test_work_directory_that_is_deleted_during_a_save_is_reported(run, tmp_path, monkeypatch):
  start = orbax_format.Writer.start

  def delete(self, *args):
    shutil.rmtree(tmp_path / 'run', ignore_errors=True)
    return start(self, *args)

  monkeypatch.setattr(orbax_format.Writer, 'start', delete)
  with pytest.raises(InputError, match=f'{tmp_path}/run was deleted during the run'):
    run(tmp_path / 'run', 'checkpoint.every_steps=2')
  assert not (tmp_path / 'run').exists()


def test_disk_that_fails_during_the_run_is_reported(run, tmp_path, monkeypatch):
  def fail(*_):
    raise OSError(errno.EROFS, 'Read-only file system')

  monkeypatch.setattr(train.Session, '_check_finite', fail)
  with pytest.raises(InputError, match=f'{tmp_path}: cannot be read or written .Read-only file system'):
    run(tmp_path)


def test_run_that_loses_a_worker_process_can_be_started_again(tmp_path, monkeypatch, capsys):
  def fail(*_):
    raise pipeline.WorkerKilled('data.processes: signal 9')

  monkeypatch.setattr(train, '_train', fail)
  assert cli.main(['train', f'--config={BASE}', f'--workdir={tmp_path}']) == 75
  assert 'lmx: data.processes: signal 9; no checkpoint is saved, `' in capsys.readouterr().err


@pytest.mark.slow
def test_run_whose_worker_process_is_killed_resumes(own, tmp_path):
  settings = [*QUICK, *own, 'train.steps=400', 'train.eval_every=400', 'checkpoint.every_steps=20', 'data.processes=1']
  command = [sys.executable, '-m', 'lmx.cli.main', 'train', f'--config={BASE}', f'--workdir={tmp_path}']
  command += [f'--config.{setting}' for setting in settings]
  with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
    while not orbax_format.entries(tmp_path / 'checkpoints') and process.poll() is None:
      time.sleep(0.01)
    listings = pathlib.Path(f'/proc/{process.pid}/task').glob('*/children')
    children = [int(child) for listing in listings for child in listing.read_text().split()]
    (worker,) = (pid for pid in children if 'spawn_main' in pathlib.Path(f'/proc/{pid}/cmdline').read_text())
    os.kill(worker, signal.SIGKILL)
    error = process.communicate(timeout=120)[1]
  assert process.returncode == 75 and 'ended by signal 9; if memory is full, set fewer' in error, error
  assert 'is saved' in error and 'Traceback' not in error
  done = subprocess.run(command, capture_output=True, text=True, check=True).stderr
  assert 'resumes the run' in done and json.loads((tmp_path / 'results.json').read_text())['steps'] == 400


def test_run_that_ended_while_finishing_is_completed_by_the_next_start(run, tmp_path, monkeypatch):
  more = ('samples.count=1', 'samples.tokens=2', 'samples.every=4')

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt, match='step 8 is saved, the same call resumes'):
    patch.setattr(run_log.Logger, 'results', lambda *_: os.kill(os.getpid(), signal.SIGINT))
    run(tmp_path, *more)
  with monkeypatch.context() as patch:
    patch.setattr(run_log.Logger, 'plot', lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert run(tmp_path, *more) == 75
  first = samples(tmp_path)
  assert re.findall('=== step ([0-9]+) ===', first) == ['4', '8'] and not (tmp_path / 'results.json').exists()
  assert run(tmp_path, *more) == 0
  assert samples(tmp_path) == first
  assert json.loads((tmp_path / 'results.json').read_text())['step'] in (4, 8)


def samples(workdir) -> str:
  file = workdir / 'samples.txt'
  return file.read_text() if file.exists() else ''


def test_start_of_a_finished_run_removes_half_deleted_checkpoints(run, finished):
  left = finished / 'checkpoints' / 'deleted_step_000000003'
  left.mkdir()
  assert run(finished) == 0
  assert not left.exists()


def test_start_of_a_finished_run_removes_checkpoints_beyond_retention(run, tmp_path):
  assert run(tmp_path, 'checkpoint.every_steps=2', 'checkpoint.keep_last=4', 'train.best_by=loss') == 0
  assert manager.Checkpoints(tmp_path / 'checkpoints').steps() == [2, 4, 6, 8]
  assert run(tmp_path, 'checkpoint.every_steps=2') == 0
  best = json.loads((tmp_path / 'results.json').read_text())['step']
  assert manager.Checkpoints(tmp_path / 'checkpoints').steps() == sorted({best, 6, 8})


def test_finished_run_warns_about_changed_evaluation(run, finished, capsys):
  assert run(finished, 'evaluation.which=last') == 0
  line = "evaluation.which: got 'last', where the run began with 'best'; results.json stays as it is, `lmx evaluate`"
  assert line in capsys.readouterr().err


def test_reading_an_older_checkpoint_reports_the_missing_newest(run, finished, capsys):
  shutil.rmtree(finished / 'checkpoints' / 'step_000000008')
  message = 'reads step 4; results.json is of 8 updates, whose last checkpoint is missing'
  with pytest.warns(InputWarning, match=message):
    restore.load(finished, 'last')
  assert run(finished) == 0
  assert message in capsys.readouterr().err and last_params(finished)[1] == 8


def test_checkpoint_of_another_run_is_rejected(run, finished):
  other = json.loads((finished / 'checksums.json').read_text()) | {'run': 'another'}
  (finished / 'checksums.json').write_text(json.dumps(other))
  with pytest.raises(InputError, match='step 8 .*run: got'):
    restore.load(finished, 'last')
  with pytest.raises(InputError, match='step 8 is a checkpoint of another run'):
    run(finished)
  del other['run']  # as in a run that an earlier version began
  (finished / 'checksums.json').write_text(json.dumps(other))
  assert restore.load(finished, 'last').step == 8 and run(finished) == 0


def test_two_processes_do_not_train_in_one_directory(run, tmp_path):
  with filelock.FileLock(tmp_path / '.lock'):
    with pytest.raises(InputError, match='in use by another'):
      run(tmp_path)
  assert not run_log.read_metrics(tmp_path) and not list((tmp_path / 'checkpoints').glob('*'))
  assert run(tmp_path) == 0


def test_non_finite_loss_stops_the_run_and_reports_the_step(run, tmp_path):
  with pytest.raises(NonFiniteLoss) as error:
    run(tmp_path, *EXPLODES)
  found = [json.loads(line) for line in (tmp_path / 'nonfinite.jsonl').read_text().splitlines()]
  assert len(found) == 1 and found[0]['learning_rate'] == pytest.approx(1e38, rel=1e-6)
  assert f'update {found[0]["step"]}' in str(error.value)
  assert len(found[0]['batch_indices']) == 4


def test_non_finite_updates_can_be_skipped_up_to_a_limit(run, tmp_path, monkeypatch):
  with pytest.raises(NonFiniteLoss, match='max_skips'):
    run(tmp_path / 'few', *EXPLODES, 'train.on_nan=skip', 'train.max_skips=2')
  steps = {'step': 0}

  def lose_some(self, *args):
    """Two of the updates have a loss that is not finite."""
    steps['step'] += 1
    self._unchecked[1].update(finite=steps['step'] not in (2, 3))
    return check(self)

  check = train.Session._check_finite
  monkeypatch.setattr(train.Session, '_check_finite', lambda self: lose_some(self) if self._unchecked else None)
  assert run(tmp_path / 'many', 'train.on_nan=skip') == 0
  results = json.loads((tmp_path / 'many' / 'results.json').read_text())
  written = (tmp_path / 'many' / 'nonfinite.jsonl').read_text().splitlines()
  assert results['skipped_updates'] == len(written) == 2


def test_validation_non_finite_loss_ends_the_run(own, tmp_path, capsys):
  """Also where such updates are left out: no checkpoint is kept that looks like the best, and no results."""
  overrides = [f'--config.{text}' for text in (*QUICK, *own, *EXPLODES, 'train.on_nan=skip')]
  assert cli.main(['train', f'--config={BASE}', f'--workdir={tmp_path}', *overrides]) == 3
  assert 'the loss of the validation split after update 4 is not finite' in capsys.readouterr().err
  assert not (tmp_path / 'results.json').exists() and not list((tmp_path / 'checkpoints').glob('[0-9]*'))
  assert [r['step'] for r in run_log.read_metrics(tmp_path) if r['split'] == 'valid'] == [4]


def test_non_finite_parameters_are_reported(finished, capsys):
  checkpoints = finished / 'checkpoints'
  params, meta, step = manager.restore_params(checkpoints, None, 'last')
  params['model']['output']['bias'] = np.full_like(params['model']['output']['bias'], np.nan)
  with manager.Checkpoints(checkpoints) as writer:
    writer.save(step + 1, {'params': params}, meta, block=True)
  assert cli.main(['evaluate', f'--workdir={finished}', '--which=last', '--no-baselines']) == 3
  assert 'the loss of split test is not finite; parameters with NaN or infinity: model/output/bias' in (
    capsys.readouterr().err
  )
  with pytest.warns(InputWarning, match=f'{finished}: tensors with NaN or infinity: model/output/bias'):
    restore.load(finished, 'last')


def test_damaged_last_checkpoint_falls_back_to_the_previous(run, tmp_path, capsys):
  overrides = ('checkpoint.every_steps=2', 'train.eval_every=100')
  assert run(tmp_path, *overrides) == 0
  whole, _ = last_params(tmp_path)
  last = sorted((tmp_path / 'checkpoints').iterdir())[-1]
  largest = max((p for p in last.rglob('*') if p.is_file()), key=lambda p: p.stat().st_size)
  largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])
  (tmp_path / 'results.json').unlink()
  capsys.readouterr()
  assert run(tmp_path, *overrides) == 0
  assert last.name in capsys.readouterr().err
  jax.tree.map(np.testing.assert_array_equal, whole, last_params(tmp_path)[0])


def test_patience_ends_a_run_early_and_for_good(run, tmp_path, capsys):
  overrides = ('optim.lr=0', 'train.eval_every=1', 'train.patience=2', 'train.steps=50')
  assert run(tmp_path, *overrides) == 0
  assert last_params(tmp_path)[1] == 3
  assert 'stopping after update 3 of 50: the last 2 validations did not improve loss' in capsys.readouterr().err
  (tmp_path / 'results.json').unlink()
  assert run(tmp_path, *overrides) == 0
  assert last_params(tmp_path)[1] == 3


def test_plateau_lowers_the_rate_and_a_resumed_run_keeps_it(run, tmp_path):
  overrides = ('optim.schedule=plateau', 'optim.warmup_steps=0', 'optim.lr=1e-30', 'train.eval_every=2')
  assert run(tmp_path, *overrides) == 0
  rates = [r['lr'] for r in run_log.read_metrics(tmp_path) if r['split'] == 'train']
  np.testing.assert_allclose(np.array(rates) / 1e-30, [1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25], rtol=1e-5)


def close_params(workdir, expected):
  close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-5)
  jax.tree.map(close, last_params(workdir)[0], last_params(expected)[0])


def test_devices_that_do_not_divide_the_rows_train_to_the_parameters_of_one(run, first, tmp_path, capsys):
  assert run(tmp_path, 'parallel.data=8') == 0
  assert 'padded with rows of weight 0 for 8 devices: 4 + 4 rows\n' in capsys.readouterr().err
  close_params(tmp_path, first)


@pytest.mark.slow
@pytest.mark.parametrize('mode', ['jit', 'pmap'])
@pytest.mark.parametrize(('before', 'after'), [(8, 1), (1, 8), (3, 8)])
def test_run_resumes_on_any_device_count(run, first, tmp_path, mode, before, after):
  """Its checkpoints have four rows, whatever the devices pad them to."""
  more = (f'parallel.mode={mode}', 'checkpoint.every_steps=5')  # between two validations
  assert run(tmp_path, f'parallel.data={before}', *more) == 0
  (tmp_path / 'results.json').unlink()
  shutil.rmtree(tmp_path / 'checkpoints' / orbax_format.name((8, 0)))
  assert run(tmp_path, f'parallel.data={after}', *more) == 0
  close_params(tmp_path, first)


@pytest.mark.parametrize(
  ('files', 'override', 'message'),
  [
    (['train', 'valid'], 'data.hold_out_test=false', 'no split "test"'),
    (['train'], 'data.split_fraction=0', 'no split "valid"'),
    (['train', 'valid', 'test'], 'data.length=4000', 'fewer|too few|tokens'),
  ],
)
def test_unmeasurable_settings_are_rejected_before_training(run, tmp_path, files, override, message):
  (tmp_path / 'text').mkdir()
  for name in files:
    (tmp_path / 'text' / f'{name}.txt').write_text('the cat sat on the mat\n\n' * (2000 if name == 'train' else 20))
  text = ('data.dataset=text_files', f'data.manual_dir={tmp_path / "text"}')
  with pytest.raises(InputError, match=message):
    run(tmp_path / 'run', *text, override)
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('base', 'overrides', 'message'),
  [
    (BASE, ['samples.tokens=0'], 'samples.tokens: got 0'),
    (BASE, ['samples.top_p=0'], 'samples.top_p: got 0'),
    (BASE, ['samples.temperature=-1.0'], 'samples.temperature: got -1'),
    (BASE, ['samples.every=2', 'samples.count=0'], 'samples.every: got 2 with samples.count=0'),
    (BASE, ['evaluation.order=0'], 'evaluation.order: got 0'),
    (BASE, ['evaluation.mixture=kneser_ney', 'evaluation.order=10'], 'unknown n-gram model "ikn10"'),
    (BASE, ['data.tokenizer=characters', "samples.prompts=('the','cat \u00df')"], 'samples.prompts: got "cat \u00df"'),
    (BASE, ['data.batching=windows', 'evaluation.cache=(8,0.5,0.1)'], 'evaluation.cache needs'),
    (BASE, ['samples.count=10000', 'samples.tokens=1000000'], 'samples.count, samples.tokens: got 10,000 x 1,000,000'),
    (BASE, ['evaluation.batch_size=16000000'], 'evaluation.batch_size: got 16,000,000'),
    (BASE, ['data.eval_batch_size=16000000'], 'data.eval_batch_size: got 16,000,000'),
    (BASE, ['train.init_from=/dev/null'], 'train.init_from: got /dev/null'),
    (BASE, ['train.init_from=/no/run'], 'train.init_from: /no/run: got'),
    (VECTORS, ['evaluation.mixture=trigram'], 'evaluation.mixture: got trigram'),
    (VECTORS, ["samples.prompts=('cat','list')"], 'samples.prompts: got "list"'),
  ],
)
def test_invalid_final_evaluation_is_rejected_before_training(tmp_path, base, overrides, message):
  with pytest.raises(InputError, match=message):
    train.train(resolve.load(base, [*QUICK, 'samples.count=1', *own_text(tmp_path), *overrides]), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def own_text(folder) -> list[str]:
  (folder / 'text').mkdir()
  for name in ('train', 'valid', 'test'):
    (folder / 'text' / f'{name}.txt').write_text('the cat sat on the mat\n\n' * (400 if name == 'train' else 100))
  return ['data.dataset=text_files', f'data.manual_dir={folder / "text"}']


def test_prompt_of_a_recipe_that_the_text_does_not_have_is_skipped(tmp_path, capsys):
  """With one that it has, and where it has none of them."""
  own = [*QUICK, 'samples.count=1', *own_text(tmp_path)]
  for name, prompts in (('some', 'cat,list'), ('none', 'list,error')):
    given = f'samples.default_prompts={tuple(prompts.split(","))}'
    assert train.train(resolve.load(VECTORS, [*own, given]), tmp_path / name) == 0
    assert 'the vocabulary has no "list"' in capsys.readouterr().err
    found = samples(tmp_path / name).splitlines()[1]
    assert set(re.findall('[a-z]+', found)) <= set('the cat sat on mat eos'.split())
    assert found.startswith('cat:') == (name == 'some')


def test_held_out_sizes_are_reported(run, tmp_path, capsys):
  text = tmp_path / 'train.txt'
  text.write_text(''.join(f'the cat number {i} sat on the mat\n\n' for i in range(400)))
  held = ['data.dataset=text_files', f'data.manual_dir={text}']
  assert run(tmp_path / 'run', *held) == 0
  said = re.search(r'held out .*, documents: (\d+) for "valid", (\d+) for "test"', capsys.readouterr().err)
  corpus = pipeline.load(resolve.to_run(resolve.load(BASE, held)).data)
  assert [int(count) for count in said.groups()] == [len(corpus.split(s).offsets) - 1 for s in ('valid', 'test')]


def test_metric_that_validations_lack_is_rejected_before_the_first_update(run, tmp_path):
  with pytest.raises(InputError, match='train.best_by: got "acuracy"'):
    run(tmp_path / 'run', 'train.best_by=acuracy')
  assert not (tmp_path / 'run').exists()


@pytest.mark.slow
def test_run_can_start_from_the_parameters_of_another(run, first, tmp_path):
  begin = (f'train.init_from={first}', 'optim.lr=0', 'train.steps=1')
  assert run(tmp_path / 'second', *begin) == 0
  best, _, _ = manager.restore_params(first / 'checkpoints', None, 'best')
  jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, best), last_params(tmp_path / 'second')[0])
  with pytest.raises(InputError, match='lacks model/output/table'):
    run(tmp_path / 'third', *begin, 'model.D=24', 'model.tied=false')
  assert not (tmp_path / 'third').exists()  # so that a corrected command may use it


@pytest.mark.parametrize(
  ('rows', 'devices', 'accumulate', 'groups'),
  [(32, 1, 1, 4), (32, 16, 1, 2), (32, 32, 1, 1), (24, 8, 1, 3), (32, 8, 2, 2), (30, 8, 1, 4)],
)
def test_row_groups_divide_over_devices(rows, devices, accumulate, groups):
  division = training.divide((rows,), 4, accumulate, devices)
  assert division.microbatches == accumulate * groups


def test_one_device_packs_rows_and_several_group_them(tmp_path):
  for split in ('train', 'valid', 'test'):
    lines = (f'{"word " * (3 + i % 9)}\t{"ab"[i % 2]}\n' for i in range(64))
    (tmp_path / f'{split}.tsv').write_text('text\tlabel\n' + ''.join(lines))
  table = (
    f'data.manual_dir={tmp_path}',
    f'data.cache_dir={tmp_path}/cache',
    "data.texts=('text',)",
    'data.label=label',
  )

  def plan(devices, *changes, task='bert/tasks.py:own'):
    config = resolve.load(f'experiments/{task}', [*table, *changes])
    corpus = train.load_corpus(resolve.to_run(config))
    return training.plan(resolve.with_corpus(config, corpus)[1], corpus, devices)

  packed, grouped, halves = plan(1), plan(2), plan(1, 'optim.accumulate=2')
  assert packed.microbatches == 1 and not packed.batches.lengths and 'packed_PT' in packed.batches(0)
  assert (grouped.microbatches, halves.microbatches) == (4, 8)
  assert not any('packed_PT' in other.batches(0) for other in (grouped, halves, plan(1, 'data.batching.packed=False')))
  with pytest.raises(InputError, match='data.batching.packed: got True'):
    plan(1, 'data.batching.packed=True', 'data.vocab_size=300', task='gpt/tasks.py:own')


def test_fewer_microbatches_are_proposed_where_they_need_less_padding():
  assert training.divide((480,), 1, 5, 256).notes == (
    'batches are padded with rows of weight 0 for 256 devices x 5 microbatches: 480 + 800 rows',
    '160 of 256 devices are idle, because all their rows are padding; set data.batch_size to a multiple of 1280, set '
    'parallel.tensor to divide each row among devices, or use 96 devices',
    'optim.accumulate: got 5; 2 needs fewer padding rows on these devices',
  )
  assert training.divide((480,), 1, 5, 8).notes == training.divide((480,), 1, 5, 96).notes == ()


def test_idle_devices_are_noted():
  """Those whose rows are all padding, in the batches with the most rows."""
  idle = lambda row_counts, *division: [
    re.match(r'\d+ of \d+ devices are idle', note)[0]
    for note in training.divide(row_counts, 1, *division).notes
    if 'idle' in note
  ]
  assert idle((8,), 1, 16) == idle((8, 3), 1, 16) == ['8 of 16 devices are idle']
  assert idle((6,), 2, 8) == ['5 of 8 devices are idle']
  assert not idle((45,), 1, 8) and not idle((16, 3), 1, 16)


def test_memory_of_another_length_is_measured(own, tmp_path, capsys):
  """The run's own figure is that of `evaluation.model`, and `lmx evaluate` takes another."""
  base = 'experiments/transformer_xl/quickstart.py:tiny'
  small = (
    'model.D=16',
    'model.F=16',
    'model.H=2',
    'model.N=1',
    'model.dropout=0.0',
    'model.cutoffs=()',
    'optim.lr=0.1',
    'optim.warmup_steps=0',
  )
  one_row = ('data.eval_batch_size=1', 'evaluation.batch_size=1')  # of many segments
  given = [*QUICK, *own, *small, *one_row, 'evaluation.model={"M": 24, "clamp": 16}', 'evaluation.which=last']
  assert train.train(resolve.load(base, given), tmp_path) == 0
  results = json.loads((tmp_path / 'results.json').read_text())
  assert 'measured with M 24, clamp 16' in results['protocol']
  found = {}
  for M in (24, 2):
    command = ['evaluate', f'--workdir={tmp_path}', '--which=last', '--json', '--no-baselines']
    assert cli.main([*command, f'--config.evaluation.model.M={M}']) == 0
    found[M] = json.loads(capsys.readouterr().out)['loss']
  assert found[24] == pytest.approx(results['loss'], rel=1e-6) and abs(found[2] - found[24]) > 1e-5
