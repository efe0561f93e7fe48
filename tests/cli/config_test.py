"""`lmx config` shows what a config sets, in the form that the command line takes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

import lmx
from lmx.cli import config as command
from lmx.cli import main
from lmx.config import resolve
from lmx.models import registry

QUICKSTART = 'experiments/rnn_lm/quickstart.py'
NAMED = ['experiments/bert/tasks.py:rte', 'experiments/bidaf/squad.py:elmo', 'experiments/word2vec/news.py:neg5']


def shown(capsys, *arguments):
  assert main.main(['config', *arguments]) == 0
  return capsys.readouterr().out


def test_key_is_shown_with_its_default_and_help(capsys):
  text = shown(capsys, QUICKSTART, 'optim.lr')
  assert '  optim.lr=0.005  (default 0.0003)\n      peak learning rate' in text
  assert 'optim.clip_norm' not in text and 'train' not in text


def test_section_and_overrides(capsys):
  text = shown(capsys, QUICKSTART, 'optim', 'seed', '--config.optim.clip_norm=7')
  assert 'optim.clip_norm=7.0  (default 0.0)' in text and '  seed=0\n' in text and 'model.' not in text


def test_changed_keys_match_the_experiment(capsys):
  text = shown(capsys, QUICKSTART, '--changed')
  keys = re.findall(r'^  ([\w.]+)=', text, re.MULTILINE)
  assert {'train.steps', 'optim.lr', 'model.tied'} <= set(keys) and 'optim.b1' not in keys
  assert shown(capsys, QUICKSTART).count('\n  ') > 100


@pytest.mark.parametrize('name', [QUICKSTART, *NAMED])
def test_shown_values_parse_on_the_command_line(name, capsys):
  config = resolve.load(name)
  keys = [line.strip() for line in shown(capsys, name).split('\n') if re.match(r'  [\w.]+=', line)]
  overrides = [re.sub(r'  \(default .*\)$', '', key) for key in keys]
  again = resolve.resolve({'model': {'name': config.model.name}}, overrides)
  assert resolve.flatten(again) == resolve.flatten(config) and len(overrides) > 100


def note(text, key):
  """Return the note below a key, '' without one."""
  found = re.search(rf'^  {re.escape(key)}=.*\n      (auto: chosen when the run begins .*)$', text, re.MULTILINE)
  return found[1] if found else ''


def test_values_chosen_at_start_are_listed(capsys, tmp_path):
  text = shown(capsys, 'experiments/bert/tasks.py:own', '--config.model.dropout_hidden=0')
  for key in ('matmul_precision', 'model.dtype', 'model.variant', 'model.D', 'data.tokenizer'):
    assert 'copied from train.init_from, which is not set' in note(text, key), key
  assert 'of the tokenizer' in note(text, 'model.V') and 'labels of the data' in note(text, 'objective.classes')
  assert 'the first of these' in note(text, 'evaluation.split') and 'passes over' in note(text, 'train.steps')
  assert not note(text, 'model.dropout_hidden') and not note(text, 'optim.lr')
  model, data = {'name': 'bert', 'variant': 'mini', 'dtype': 'bfloat16'}, {'tokenizer': 'wordpiece'}
  start = resolve.resolve({'model': model, 'data': data, 'train': {'steps': 1}})
  (tmp_path / 'config.json').write_text(json.dumps(start.to_dict()))
  text = shown(capsys, 'experiments/bert/tasks.py:own', f'--config.train.init_from={tmp_path}')
  assert '  matmul_precision=default ' in text and '  model.dtype=bfloat16 ' in text
  assert not note(text, 'matmul_precision') and not note(text, 'model.dtype')
  assert not note(shown(capsys, str(tmp_path)), 'model.attention')  # of a run: what it has


def test_shown_kernel_matches_a_run(capsys):
  config = resolve.load('experiments/gpt2/quickstart.py')
  run = resolve.to_run(config, 99)
  chosen = registry.get(run.model_name).settle(run.model).attention
  assert chosen != 'auto'
  text = shown(capsys, 'experiments/gpt2/quickstart.py', 'model')
  assert note(text, 'model.attention') == f'auto: chosen when the run begins ({chosen} on this machine)'


def test_differences_of_two_configs(capsys, tmp_path):
  text = shown(capsys, QUICKSTART, f'--diff={QUICKSTART}:full')
  assert re.search(r'^train.steps +5000 +7000$', text, re.MULTILINE) and 'data.' not in text
  assert 'train.steps' not in shown(capsys, QUICKSTART, 'model', f'--diff={QUICKSTART}:full')
  assert 'set the same values' in shown(capsys, QUICKSTART, f'--diff={QUICKSTART}')
  other = shown(capsys, QUICKSTART, '--diff=experiments/gpt2/quickstart.py')
  assert re.search(f'^model.cell +lstm +{command._MISSING}$', other, re.MULTILINE)


def test_run_shows_its_initial_config(capsys, tmp_path):
  config = resolve.load(QUICKSTART, ['train.steps=5']).to_dict()
  (tmp_path / 'config.json').write_text(json.dumps(config | {'semantics': {}}))  # of an earlier version
  assert 'train.steps=5' in shown(capsys, str(tmp_path), 'train')
  text = shown(capsys, QUICKSTART, f'--diff={tmp_path}')
  assert re.search('^train.steps +5000 +5$', text, re.MULTILINE) and '\nsemantics.' in text


def test_unknown_key_is_rejected(capsys):
  assert main.main(['config', QUICKSTART, 'optim.lrr']) == 2
  assert 'did you mean "optim.lr"' in capsys.readouterr().err


def test_help_says_that_keys_can_be_set(capsys):
  with pytest.raises(SystemExit):
    main.main(['train', '--help'])
  text = ' '.join(capsys.readouterr().out.split())
  assert '--config.KEY=VALUE' in text and '`lmx config FILE`' in text


def test_lmx_runs_as_a_module(tmp_path):
  command = [sys.executable, '-m', 'lmx', '--version']
  assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f'lmx {lmx.__version__}\n'
