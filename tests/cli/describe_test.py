"""`lmx describe`: the counts of the papers, on the last line."""

from __future__ import annotations

import json

import pytest

from lmx.cli import describe
from lmx.cli.main import main
from lmx.config import resolve


def test_command_prints_the_measurement(capsys):
  assert main(['describe', 'gpt2:124m', '--batch=2', '--length=64']) == 0
  lines = capsys.readouterr().out.rstrip().split('\n')
  assert lines[-1].endswith(' 124,439,808')
  assert any('layer_00 .. layer_11  (12 equal layers)' in line and '85,054,464' in line for line in lines)
  assert any(line.split() == ['tokens', '50257', 'x', '768', '38,597,376'] for line in lines)
  for word in ('forward', 'training step', 'activations', 'state for decoding'):
    assert any(word in line for line in lines), word


def test_report_counts_heads_on_their_own_line(capsys):
  assert main(['describe', 'bert:tiny', '--length=16']) == 0
  heads, total = capsys.readouterr().out.rstrip().split('\n')[-2:]
  assert heads.startswith('heads, not in the total (mlm ') and 'objective nsp 258' in heads  # 2 x (128 + 1)
  assert total.startswith('total parameters') and total.endswith(' 4,385,920')


def test_image_model_counts_pixels_and_running_statistics(capsys):
  assert main(['describe', 'cfnet:tiny', '--length=24', '--batch=2']) == 0
  lines = capsys.readouterr().out.rstrip().split('\n')
  assert 'operations a pixel, images of 24 x 24' in lines and 'memory for batch 2 x 24 x 24' in lines
  # 2 of each channel: stem 6; blocks 4 + 4 + 16 + 16, 6 + 6 + 24 + 24, 8 + 8 + 32 + 32; head 3 x 16; auxiliary 8
  assert f'running statistics {2 * (6 + 40 + 60 + 80 + 48 + 8)}' in lines[-2]


def test_all_layers_with_overrides(capsys):
  assert main(['describe', 'gpt2:tiny', '--all', '--set', 'N=3', '--set', 'scan=true', '--length=8']) == 0
  text = capsys.readouterr().out
  assert 'N=3' in text and 'scan=True' in text
  assert all(f'\nlayer_0{i} ' in text for i in range(3)) and 'equal layers' not in text


def test_run_description_includes_training(tmp_path, capsys):
  """Products of the LSTM and the output, by hand: forward once, backward twice."""
  changes = ['model.V=61', 'train.steps=3', 'data.batch_size=4', 'data.length=8']
  given = resolve.load('experiments/rnn_lm/quickstart.py:tiny', changes)
  (tmp_path / 'config.json').write_text(given.to_json())
  words = ['describe', f'--workdir={tmp_path}', f'--output={tmp_path}/out.json']
  assert main(words) == 0
  assert 'training, 3 updates of 4 x 8 tokens' in capsys.readouterr().out
  found, cfg = json.loads((tmp_path / 'out.json').read_text()), resolve.to_run(given).model
  assert found['parameters_with_heads'] == found['parameters'] + sum(found['heads'].values())
  assert found['model'] == 'rnn_lm 2x16, 5.26K' and found['tokens'] == 3 * 4 * 8
  assert found['flops_per_token'] == 3 * 2 * (4 * cfg.D * (cfg.E + 3 * cfg.D) + cfg.V * cfg.D)
  assert found['training_flops'] == found['flops_per_token'] * found['tokens']
  assert main([*words, '--batch=2']) == 0 and ' updates of ' not in capsys.readouterr().out  # not the run's batch
  (tmp_path / 'results.json').write_text('{"steps": 2}')  # it was stopped before
  assert main(words) == 0 and json.loads((tmp_path / 'out.json').read_text())['updates'] == 2


def test_rows_per_token_batch():
  changes = ['model.V=97', 'data.batching.tokens=240', 'data.length=24']
  assert describe._rows(resolve.to_run(resolve.load('experiments/transformer/multi30k.py:tiny', changes))) == 10


def test_only_equal_adjacent_layers_are_merged():
  rows = [('w', (2,), 2)]
  groups = [('layer_00', rows), ('layer_01', rows), ('layer_02', [('w', (3,), 3)]), ('layer_04', rows), ('head', rows)]
  assert [(name, times) for name, times, _ in describe._collapse(groups)] == [
    ('layer_00 .. layer_01', 2),
    ('layer_02', 1),
    ('layer_04', 1),
    ('head', 1),
  ]


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['gpt2x'], 'did you mean "gpt2"'),
    (['gpt2:125m'], 'did you mean "124m"'),
    (['gpt2:tiny', '--set', 'DD=3'], 'did you mean "D"'),
    (['gpt2:tiny', '--set', 'D=wide'], 'type int'),
    (['gpt2:tiny', '--set', 'D'], '--set: got "D"'),
    (['gpt2:tiny', '--length', '65'], 'at most 64'),
    ([], 'MODEL: got'),
    (['gpt2', '--workdir=DIR'], 'MODEL: got'),
    (['--workdir=DIR', '--set', 'N=3'], '--set: got'),
    (['--workdir=DIR'], 'DIR: got no config.json'),
  ],
)
def test_invalid_input_is_rejected(arguments, message, capsys):
  assert main(['describe', *arguments]) == 2
  assert message in capsys.readouterr().err
