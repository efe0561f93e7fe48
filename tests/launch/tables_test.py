"""A table of an experiment beside the figures of runs, and the script that makes the one of the Brown corpus."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from launch import tables

PATH = 'experiments/nplm/brown.py'


def record(split, value, **more):
  return {'split': split, 'perplexity_per_token': value, **more}


def test_figures_stand_beside_the_papers(tmp_path, root, capsys):
  for name in ('mlp1', 'mlp2', 'mlp3'):
    (tmp_path / name).mkdir()
  (tmp_path / 'mlp1/valid.json').write_text(json.dumps(record('valid', 290.123)))
  (tmp_path / 'mlp2/valid.json').write_text(json.dumps(record('valid', 290.0, mixture=record('', 277.77))))
  (tmp_path / 'mlp3/results.json').write_text(json.dumps(record('test', 321.0)))
  (tmp_path / 'ngrams.json').write_text(json.dumps([{'model': 'kn3', **record('test', 3456.7)}]))
  assert tables.main([f'--experiment={root / PATH}', f'--runs={tmp_path}']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert lines[0] == '| system | train, paper | train, ours | valid, paper | valid, ours | test, paper | test, ours |'
  assert '| nplm/brown/mlp1 | 182.0 |  | 284.0 | 290.1 | 268.0 |  |' in lines
  assert '| nplm/brown/mlp2 |  |  | 275.0 | 277.8 | 257.0 |  |' in lines
  assert '| nplm/brown/mlp3 | 201.0 |  | 327.0 |  | 310.0 | 321.0 |' in lines
  assert '| nplm/brown/kn3 |  |  | 334.0 |  | 323.0 | 3,456.7 |' in lines


def test_rows_that_do_not_end_in_their_split_and_accuracies_in_percent(tmp_path, root, capsys):
  last_word = {'filtered_accuracy': 0.4567, 'perplexity_of_last_word': 36.0}
  figures = {'lambada': last_word, 'enwik8': {'bits_per_byte': 1.2}}
  for name, found in figures.items():
    (tmp_path / name).mkdir()
    (tmp_path / name / 'test.json').write_text(json.dumps({'split': 'test', **found}))
  assert tables.main([f'--experiment={root}/experiments/gpt2/zero_shot.py', f'--runs={tmp_path}']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert '| gpt2/zeroshot/117m/lambada_acc |  |  | 46.0 | 45.7 |' in lines
  assert '| gpt2/zeroshot/117m/lambada_ppl |  |  | 35.1 | 36.0 |' in lines
  assert '| gpt2/zeroshot/117m/enwik8 |  |  | 1.16 | 1.20 |' in lines
  assert '| gpt2/zeroshot/345m/cbt_cn | 92.3 |  |  |  |' in lines


def test_what_cannot_be_read_says_so(tmp_path, root):
  with pytest.raises(SystemExit, match='no such experiment'):
    tables.main([f'--experiment={tmp_path}/no.py', f'--runs={tmp_path}'])
  (tmp_path / 'ngrams.json').write_text('{')
  with pytest.raises(SystemExit, match='ngrams.json: cannot be read'):
    tables.main([f'--experiment={root / PATH}', f'--runs={tmp_path}'])


def test_starts_without_jax(root):
  code = 'import sys, launch.tables; assert "jax" not in sys.modules'
  subprocess.run([sys.executable, '-c', code], cwd=root, check=True)


def test_the_script_runs_every_network_of_the_table(root):
  """What it calls exists: the networks it trains, and that they are those of the odd rows."""
  text = (root / 'experiments/nplm/table.sh').read_text()
  subprocess.run(['sh', '-n', root / 'experiments/nplm/table.sh'], check=True)
  numbers = text.partition('for number in ')[2].partition(';')[0].split()
  module = tables._experiment(str(root / PATH))
  trained = {f'mlp{n}' for n in numbers} | {f'mlp{int(n) + 1}' for n in numbers}
  assert trained == {row.arg for row in module.TABLE}
