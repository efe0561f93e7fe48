"""A run killed at any moment and started again ends with the parameters of one never killed."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from lmx.checkpoint import manager
from lmx.cli import main

EXPERIMENTS = (
  'rnn_lm',
  'gpt2',
  'bert',
  'awd_lstm',
  'nplm',
  'ulmfit',
  'elmo',
  'glue_bilstm',
  'esim',
  'bcn',
  'word2vec',
  'ntm',
  'bahdanau',
  'bidaf',
  'srl_lstm',
  'transformer',
  'memory_compressed',
  'transformer_xl',
  'xlnet',
  'sparse_transformer',
  'quaternion_transformer',
  'self_attention',
  'character_transformer',
  'cfnet',
)
FILES = {  # others: quickstart.py
  'bcn': 'sst.py',
  'esim': 'pairs.py',
  'glue_bilstm': 'tasks.py',
  'srl_lstm': 'conll2005.py',
}
QUIET = ('--config.evaluation.baselines=false', '--config.samples.count=0')


def command(model: str, workdir: pathlib.Path, *more: str) -> list[str]:
  return [
    sys.executable,
    '-m',
    'lmx.cli.main',
    'train',
    f'--config=experiments/{model}/{FILES.get(model, "quickstart.py")}:tiny',
    f'--workdir={workdir}',
    '--config.train.steps=40',
    '--config.train.eval_every=15',
    '--config.train.log_every=1',
    '--config.checkpoint.every_steps=3',
    *QUIET,
    *more,
  ]


# Devices add up gradients in another order. Where a gradient is nothing but the rounding of that, Adam with its usual
# epsilon divides it by its own size and makes an update of it. SGD at AWD-LSTM's rate of 30 multiplies it: after 10
# updates parameters differ by 2e-5, at a rate of 3 by 7e-8, after 40 by 3e-7. Adagrad's first updates divide it by the
# root of ELMo's accumulator, 0.01: parameters differ by 4e-6 after 40 updates; with an accumulator of 1 by under 1e-6.
# The gradient of ReLU at an input that is 0 within rounding depends on the devices: one hidden unit of
# memory_compressed differs by 1e-4 after such an update. At a rate of 1e-5 it differs by less than 1e-6, a lost update
# by more.
STABLE = {
  'awd_lstm': ('--config.optim.lr=3.0',),
  'elmo': ('--config.optim.accumulator=1.0',),
  'memory_compressed': ('--config.optim.eps=1e-4', '--config.optim.lr=1e-5'),
}


def start(root, model, workdir, *more, devices=1, flags='') -> subprocess.Popen:
  flags = flags or f'--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0'
  environment = {**os.environ, 'XLA_FLAGS': flags, 'NPROC': '16', 'PYTHONPATH': str(root)}
  return subprocess.Popen(
    command(model, workdir, *more),
    cwd=root,
    env=environment,
    text=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
  )


def finish(process: subprocess.Popen, code: int = 0) -> str:
  output, _ = process.communicate(timeout=1800)
  assert process.returncode == code, output
  return output


def params(workdir):
  found, _, step = manager.restore_params(workdir / 'checkpoints', None, 'last')
  return jax.tree.map(np.asarray, found), step


def steps_logged(workdir) -> int:
  file = workdir / 'metrics.jsonl'
  return len(file.read_text().splitlines()) if file.exists() else 0


def writing(workdir) -> bool:
  directory = workdir / 'checkpoints'
  return directory.exists() and any('tmp' in path.name for path in directory.iterdir())


def kill(process, moment) -> None:
  """Kills once `moment()` holds, or leaves a process that ended before."""
  while process.poll() is None and not moment():
    time.sleep(0.002)
  process.send_signal(signal.SIGKILL)
  process.communicate()


def killed_again_and_again(root, model, workdir, *more, kills, seed, devices=(1,)):
  """Kills `kills` times, each at a random step or in a checkpoint write, then lets the run end."""
  draw = random.Random(seed)
  for number in range(kills):
    process = start(root, model, workdir, *more, devices=devices[number % len(devices)])
    before, ahead = steps_logged(workdir), draw.randrange(1, 8)
    in_a_write = number % 3 == 1
    reached = lambda b=before, a=ahead: steps_logged(workdir) >= b + a
    kill(process, reached if not in_a_write else lambda r=reached: r() and writing(workdir))
  finish(start(root, model, workdir, *more, devices=devices[kills % len(devices)]))


def test_killed_run_ends_bit_equal(root, tmp_path, capsys):
  # Only the run that is killed needs a process of its own; on a text this small, reading and scoring take no time.
  draw = random.Random(0)
  rows = (' '.join(draw.choices(('one', 'two', 'three', 'four'), k=9)) for _ in range(200))
  (tmp_path / 'text').mkdir()
  (tmp_path / 'text/a.txt').write_text('\n\n'.join(rows))
  settings = ('model.N=1', 'data.batch_size=8', 'data.length=8', 'data.dataset=text_files')
  settings += (f'data.manual_dir={tmp_path}/text', 'train.steps=24', 'train.eval_every=9')
  settings += ('checkpoint.at_words=(100,300,800,900)',)
  small = [f'--config.{setting}' for setting in settings]
  argv = lambda name: command('rnn_lm', tmp_path / name, *small)[3:]
  assert main.main(argv('whole')) == 0
  process = start(root, 'rnn_lm', tmp_path / 'killed', *small, flags=os.environ['XLA_FLAGS'])
  moment = draw.randrange(4, 12)
  kill(process, lambda: steps_logged(tmp_path / 'killed') >= moment)
  assert process.returncode == -signal.SIGKILL and moment <= steps_logged(tmp_path / 'killed') < 24
  assert main.main(argv('killed')) == 0
  (whole, step), (again, same_step) = params(tmp_path / 'whole'), params(tmp_path / 'killed')
  assert step == same_step == 24
  jax.tree.map(np.testing.assert_array_equal, whole, again)
  assert steps_logged(tmp_path / 'whole') == steps_logged(tmp_path / 'killed')
  kept = manager.kept(tmp_path / 'whole')
  assert [words for _, words in kept] == [100, 300, 800, 900] and kept == manager.kept(tmp_path / 'killed')
  assert {step for step, _ in kept} < {*manager.steps(tmp_path / 'killed/checkpoints')}
  capsys.readouterr()
  assert main.main(['runs', str(tmp_path / 'killed')]) == 0
  assert f'300 words (step {kept[1][0]})' in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize('model', EXPERIMENTS)
def test_run_killed_ten_times_ends_bit_equal(root, tmp_path, model):
  finish(start(root, model, tmp_path / 'whole'))
  killed_again_and_again(root, model, tmp_path / 'killed', kills=10, seed=1)
  (whole, step), (again, same_step) = params(tmp_path / 'whole'), params(tmp_path / 'killed')
  assert step == same_step == 40
  jax.tree.map(np.testing.assert_array_equal, whole, again)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_run_killed_with_worker_processes_equals_one_without(root, tmp_path):
  finish(start(root, 'gpt2', tmp_path / 'whole'))
  killed_again_and_again(root, 'gpt2', tmp_path / 'killed', '--config.data.processes=2', kills=3, seed=3)
  (whole, step), (again, same_step) = params(tmp_path / 'whole'), params(tmp_path / 'killed')
  assert step == same_step == 40
  jax.tree.map(np.testing.assert_array_equal, whole, again)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize('model', EXPERIMENTS)
def test_run_restarted_on_other_device_counts_ends_equal_within_1e_6(root, tmp_path, model):
  stable = STABLE.get(model, ('--config.optim.eps=1e-4',))
  finish(start(root, model, tmp_path / 'whole', *stable))
  killed_again_and_again(root, model, tmp_path / 'killed', *stable, kills=4, seed=2, devices=(1, 4, 2))
  whole, again = params(tmp_path / 'whole')[0], params(tmp_path / 'killed')[0]
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6), whole, again)


@pytest.mark.slow
def test_sigterm_saves_and_exits_with_75_and_the_run_continues(root, tmp_path):
  more = ('checkpoint.every_steps=1000', 'checkpoint.keep_last=4', 'evaluation.which=average', 'evaluation.average=4')
  more = [f'--config.{setting}' for setting in more]
  process = start(root, 'rnn_lm', tmp_path / 'run', *more)
  while process.poll() is None and steps_logged(tmp_path / 'run') < 3:
    time.sleep(0.002)
  process.send_signal(signal.SIGTERM)
  output = finish(process, code=75)
  _, step = params(tmp_path / 'run')
  assert 3 <= step < 40
  assert f'stopped after update {step} of 40 and saved; `lmx train --config=experiments/rnn_lm/' in output
  assert output.rstrip().endswith('--config.evaluation.average=4` resumes')
  finish(start(root, 'rnn_lm', tmp_path / 'run', *more))
  finish(start(root, 'rnn_lm', tmp_path / 'whole', *more))
  jax.tree.map(np.testing.assert_array_equal, params(tmp_path / 'whole')[0], params(tmp_path / 'run')[0])
  whole, again = (json.loads((tmp_path / name / 'results.json').read_text()) for name in ('whole', 'run'))
  assert whole['averaged_steps'] == again['averaged_steps'] == [15, 30, 40]  # not the step of the signal
  assert whole['loss'] == again['loss']
