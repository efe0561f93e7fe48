"""`lmx bench`: the figures it gives, and the conversation with the other interpreter."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import stat
import sys

import numpy as np
import pytest

from lmx.cli import bench, compared, describe, lengths, sliding
from lmx.cli.main import main
from lmx.config import resolve
from lmx.data import pipeline
from lmx.errors import InputError

TINY = ['bench', 'rnn_lm:tiny', '--batch=2', '--length=4', '--steps=3', '--warmup=1']


def test_a_model(tmp_path, capsys):
  file = tmp_path / 'out.json'
  assert main([*TINY, f'--json={file}']) == 0
  assert 'tokens a second' in capsys.readouterr().out
  (found,) = json.loads(file.read_text())
  assert found['steps'] == 3 and found['waiting_share'] == 0 and found['mfu'] is None
  assert found['tokens_per_second'] == pytest.approx(8 / found['step_seconds'])
  assert found['quartile_1'] <= found['step_seconds'] <= found['quartile_3']
  for name in ('compile_seconds', 'planned_bytes', 'peak_process_bytes', 'flops_per_second'):
    assert found[name] > 0, name


def test_a_run_whose_batches_have_several_shapes(tmp_path, capsys):
  file = tmp_path / 'out.json'
  words = [
    'bench',
    '--config=experiments/transformer/quickstart.py:tiny',
    '--config.data.batching.buckets=(10,)',
    '--config.data.batching.tokens=400',
    '--config.parallel.data=1',
    '--warmup=0',
    '--steps=4',
  ]
  assert main([*words, f'--json={file}']) == 0
  (found,) = json.loads(file.read_text())
  assert len(found['shapes']) == 2 and found['programs'] == len(found['shapes'])
  assert all(rows * length <= 400 for rows, length in found['shapes'])
  assert ', 2 programs' in capsys.readouterr().out
  # No step was timed with its compiling, which takes much longer; of the four, two compile.
  assert found['quartile_3'] < found['compile_seconds'] / found['programs']


def test_groups_of_rows_are_counted_as_they_are_cut(tmp_path):
  file, path = tmp_path / 'out.json', 'experiments/transformer/quickstart.py:tiny'
  changes = ['data.batching.buckets=(10,)', 'data.batching.groups=2', 'parallel.data=1']
  words = [f'--config={path}', *(f'--config.{change}' for change in changes), '--warmup=0', '--steps=1']
  assert main(['bench', *words, f'--json={file}']) == 0
  (found,) = json.loads(file.read_text())
  run = resolve.to_run(resolve.load(path, changes))
  batch = pipeline.batches(run.data, pipeline.load(run.data), 'train', run.seed, train=True)(0)
  sizes = np.sort(np.maximum(batch['source_valid_BS'].sum(1), batch['valid_BT'].sum(1)))
  shapes = [[part.size, 10 if part.max() <= 10 else 24] for part in np.split(sizes, 2)]
  assert found['shapes'] == shapes and shapes[0] != shapes[1] and found['programs'] == 1
  places = found['tokens_per_second'] * found['step_seconds']
  assert places == pytest.approx(sum(n * length for n, length in shapes)) and places < found['batch'] * found['length']


@pytest.mark.parametrize('name', bench.PRESETS)
def test_presets_exist(name):
  preset = bench.PRESETS[name]
  task, _ = describe.task_of(preset.model, preset.changes)
  assert describe.length_of(task.cfg, preset.batch, preset.length) == preset.length
  subject = bench.Subject(name, task, preset.batch, preset.length, preset.optimizer, preset.clip, 1, None, None)
  spec = compared.spec(subject)
  assert (spec['V'], spec['D'], spec['batch']) == (task.cfg.V, task.cfg.D, preset.batch)
  kinds = {
    'gpt2': 'gpt2',
    'bert': 'bert',
    'rnn_lm': 'lstm',
    'awd_lstm': 'awd_lstm',
    'transformer': 'marian',
    'seq2seq': 'rnnsearch',
    'transformer_xl': 'transformer_xl',
    'xlnet': 'xlnet',
  }
  assert spec['kind'] == kinds[preset.model.split(':')[0]]


def test_attention_by_length(tmp_path, capsys):
  file = tmp_path / 'out.json'
  assert main(['bench', '--attention=64,256', '--steps=1', f'--json={file}']) == 0
  assert 'exponent' in capsys.readouterr().out
  found = json.loads(file.read_text())
  assert [(f['kind'], f['length']) for f in found] == [(kind, n) for kind in lengths.KINDS for n in (64, 256)]
  assert all(f['seconds'] > 0 and f['planned_bytes'] > 0 for f in found)
  assert {f['stride'] for f in found} == {8, 16}
  growth = {f['kind']: f['memory_exponent'] for f in found}
  assert growth['strided'] < 1.75 < growth['dense']


def test_what_does_not_fit_is_planned_and_not_run(monkeypatch):
  monkeypatch.setattr(lengths, 'MOST', 10)
  found = lengths.one('dense', 64, 1)
  assert found['seconds'] is None and found['planned_bytes'] > 64 * 64


def test_exponents_and_strides():
  assert lengths.exponent([2, 4, 8], [3 * t**1.5 for t in (2, 4, 8)]) == pytest.approx(1.5)
  assert lengths.exponent([2, 4, 8], [None, None, 1.0]) is None
  assert [lengths.stride_of(t) for t in (1024, 2048, 4096, 8192, 16384)] == [32, 64, 64, 128, 128]


@pytest.fixture
def peer(tmp_path, monkeypatch):
  """An interpreter that answers every step with a second."""
  answers = tmp_path / 'answers.py'
  answers.write_text(
    'import json, sys\n'
    'for line in sys.stdin:\n'
    '  ask = json.loads(line)\n'
    '  if ask.get("V") == 13: reply = {"error": "unlucky"}\n'
    '  elif "kind" in ask: reply = {"parameters": 5, "torch": "2.0", "threads": ask["threads"], "tokens": 8}\n'
    '  else: reply = {"seconds": [1.0] * ask["steps"], "loss": 0.0}\n'
    '  print(json.dumps(reply), flush=True)\n'
  )
  program = tmp_path / 'python'
  program.write_text(f'#!/bin/sh\nexec {sys.executable} {answers}\n')
  program.chmod(program.stat().st_mode | stat.S_IXUSR)
  return os.fspath(program)


def test_turns_with_the_peer(peer, tmp_path, capsys):
  file = tmp_path / 'out.json'
  assert main([*TINY, f'--peer={peer}', '--rounds=2', f'--json={file}']) == 0
  assert 'times as fast' in capsys.readouterr().out
  (found,) = json.loads(file.read_text())
  assert found['steps'] == 6 and len(found['peer']['ratio_of_rounds']) == 2
  assert found['peer']['step_seconds'] == 1.0
  assert found['peer']['ratio'] == pytest.approx(1 / found['step_seconds'])


def test_the_peer_reads_batches_of_one_shape(peer):
  task, _ = describe.task_of('gpt2:tiny', [])
  for parts in ([((2, 4),), ((2, 8),)], [((1, 4), (1, 8))]):  # of the batches, and in groups within a batch
    steps = lambda k, parts=parts: ([bench.Step(1.0, each) for each in parts], 0.0)
    subject = bench.Subject('x', task, 2, 8, 'adamw', 1.0, 1, bench.Programs(None), steps)
    with pytest.raises(InputError, match='batches of one shape'):
      bench.measure(subject, argparse.Namespace(peer=peer, warmup=1, steps=2, rounds=1))


def test_what_the_peer_cannot_do_is_said(peer):
  with compared.Peer(peer) as program, pytest.raises(InputError, match='unlucky'):
    program.ask({'kind': 'lstm', 'V': 13})
  with pytest.raises(InputError, match='cannot run the peer'):
    compared.Peer('/no/such/python')
  with compared.Peer(sys.executable) as program:
    program._process.kill()
    program._process.wait()
    with pytest.raises(InputError, match='ended before it answered'):
      program.ask({'steps': 1})


def test_the_peer_is_as_wide_as_the_model_and_ties_its_output():
  spec = lambda *changes: compared.spec(
    bench.Subject('x', describe.task_of('gpt2:tiny', changes)[0], 1, 8, 'adamw', 1.0, 1, None, None)
  )
  assert spec('F=48')['F'] == 48 and 'F' not in spec()  # without it, 4 D
  with pytest.raises(InputError, match='model.tied: got False; expected True'):
    spec('tied=False')


def test_unequal_dropout_has_no_counterpart():
  task, _ = describe.task_of('gpt2:tiny', ['dropout_residual=0.1'])
  subject = bench.Subject('x', task, 1, 8, 'adamw', 1.0, 1, None, None)
  with pytest.raises(ValueError, match='one dropout rate'):
    compared.spec(subject)
  cfg = dataclasses.replace(task.cfg, dropout_residual=0.0)
  assert compared.spec(dataclasses.replace(subject, task=dataclasses.replace(task, cfg=cfg)))['dropout'] == 0.0


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ([], 'say what to time'),
    (['gpt2:tiny', '--preset=all'], 'one of them'),
    (['--preset=gpt2_125m'], 'did you mean "gpt2_124m"'),
    (['gpt2:tiny', '--steps=0'], '--steps: got 0'),
    (['--preset=gpt2_124m', '--set=T=8'], '--config.model.FIELD=VALUE'),
    (['gpt2:tiny', '--config.model.T=8'], '--set=FIELD=VALUE'),
    (['--attention=1024'], 'two or more'),
    (['--attention=64,no'], 'two or more'),
    (['gpt2:tiny', '--optimizer=adamx'], 'did you mean'),
    (['gpt2:tiny', '--evaluation=8'], 'gpt2:tiny has none'),
    (['transformer_xl:tiny', '--evaluation=8,x'], '--evaluation is "8,x"'),
    (['transformer_xl:tiny', '--evaluation=0'], '--evaluation is "0"'),
    (['transformer_xl:tiny', '--evaluation=8', '--batch=0'], '--batch: got 0'),
    (['--preset=transformer_xl', '--evaluation=8'], 'times MODEL alone'),
  ],
)
def test_bad_input(arguments, message, capsys):
  assert main(['bench', *arguments]) == 2
  assert message in capsys.readouterr().err


def test_a_memory_beside_windows(tmp_path, capsys):
  file = tmp_path / 'out.json'
  small = [f'--set={change}' for change in ('N=1', 'D=16', 'H=2', 'F=16')]
  words = ['bench', 'transformer_xl:tiny', *small, '--evaluation=6,800', '--batch=1', '--length=4', '--warmup=0']
  assert main([*words, '--steps=3', '--rounds=2', f'--json={file}']) == 0
  said = capsys.readouterr().out
  assert 'transformer_xl:tiny: evaluation of 1 rows, in segments of 4' in said
  short, long = json.loads(file.read_text())
  assert (short['attention_length'], long['attention_length']) == (6, 800)
  assert short['paper'] is None and long['paper'] == 363 and said.splitlines()[-1].endswith('363x')
  for found in (short, long):
    assert found['ratio'] == pytest.approx(found['window_seconds'] / found['memory_seconds'])
    assert len(found['ratio_of_rounds']) == 2 and found['memory_seconds'] > 0
  assert long['ratio'] > 2  # 800 tokens are read for one, where 4 are read for 4


def test_what_is_timed_is_a_memory_of_the_length_and_a_window_of_it():
  task, _ = describe.task_of('transformer_xl:tiny', ['N=1', 'M=3'])
  remembering, windowed = sliding.configs(task.cfg, 6)
  assert (remembering.M, remembering.same_length, windowed.M, windowed.positions) == (6, True, 0, 'absolute')
  assert {
    field.name
    for field in dataclasses.fields(task.cfg)
    if getattr(windowed, field.name) != getattr(task.cfg, field.name)
  } == {'M', 'positions'}
  step = sliding._reuse(dataclasses.replace(task, cfg=remembering), 2, 4)
  nll_BT, state = step()
  assert nll_BT.shape == (2, 4) and state['layers'][0].shape[:2] == (2, 6) and state['filled_B'].tolist() == [4, 4]
  after, state = step()  # the second segment sees the first
  assert state['filled_B'].tolist() == [6, 6] and not np.allclose(after, nll_BT)
  assert sliding._slide(dataclasses.replace(task, cfg=windowed), 2, 6)().shape == (2, 1)


def test_seconds_are_of_a_token(monkeypatch):
  """A call that predicts 2 x 4 tokens and one that predicts 2, of a second each."""
  task, _ = describe.task_of('transformer_xl:tiny', ['N=1'])
  monkeypatch.setattr(sliding, '_reuse', lambda *given: 'reuse')
  monkeypatch.setattr(sliding, '_slide', lambda *given: 'slide')
  monkeypatch.setattr(sliding, '_times', lambda step, count, calls=1: [1.0 if step == 'reuse' else 3.0] * count)
  found = sliding.measure(task, 1800, 4, argparse.Namespace(batch=2, steps=3, rounds=2, warmup=1))
  assert (found['memory_seconds'], found['window_seconds'], found['ratio']) == (1 / 8, 3 / 2, 12)
  assert found['ratio_of_rounds'] == [12, 12] and found['paper'] == 773
  assert found['segments_of_a_turn'] == 3  # as long as a window
