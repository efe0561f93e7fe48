"""Records of runs and launchers: each fault is an InputError with file and field, and one bad run hides no other."""

from __future__ import annotations

import json
import math
import random
import shutil

import pytest

from launch import wait
from launch.sweep import metrics as sweep
from launch.sweep import study
from launch.tables import collection, runner
from lmx import records
from lmx.cli import main
from lmx.errors import InputError

RESULTS = {
  'name': 'x',
  'model': 'rnn_lm:tiny',
  'dataset': 'embedded',
  'split': 'test',
  'metric': 'accuracy',
  'accuracy': 0.5,
  'seed': 1,
  'step': 4,
  'steps': 6,
  'data_hash': 'a' * 64,
  'command': ['lmx', 'train', '--config.optim.lr=0.5'],
  'versions': {'jax': '0.10'},
  'flags': {'XLA_FLAGS': '--xla_x=Infinity'},
  'labels': ['NaN', 'b'],
  'confusion': [[1, 2], [3, 4]],
  'classes': {'b': {'precision': 0.5, 'recall': 0.5, 'f1': 0.5, 'count': 3}},
}
CONFIG = {'model': {'name': 'rnn_lm', 'variant': 'tiny'}, 'train': {'steps': 6}, 'optim': {'lr': 0.5}}
LINES = [{'step': step, 'split': split, 'loss': 3.0 - step / 4} for step in (2, 4, 6) for split in ('train', 'valid')]


def lines_of(rows):
  return ''.join(json.dumps(row) + '\n' for row in rows)


def put(folder):
  folder.mkdir(parents=True)
  for name, content in (('config.json', CONFIG), ('data.json', {'hash': 'a'}), ('results.json', RESULTS)):
    (folder / name).write_text(json.dumps(content))
  (folder / 'metrics.jsonl').write_text(lines_of(LINES))
  return folder


@pytest.fixture
def good(tmp_path):
  return put(tmp_path / 'runs/good')


@pytest.fixture
def bad(tmp_path):
  return put(tmp_path / 'runs/bad')


DAMAGES = {
  'a seed that is a list': ('results.json', json.dumps(RESULTS | {'seed': []}), 'seed: got a list of 0'),
  'a step that is a text': ('results.json', json.dumps(RESULTS | {'step': '4'}), 'step: got "4"; expected an integer'),
  'a metric that is a text': ('results.json', json.dumps(RESULTS | {'accuracy': '0.5'}), 'accuracy: got "0.5"'),
  'a metric without its name': ('results.json', json.dumps(RESULTS | {'metric': []}), 'metric: got a list of 0'),
  'truncated results': ('results.json', '{"name": "x", "mod', 'results.json: not JSON'),
  'results that are a list': ('results.json', '[1]', 'results.json: got a list of 1; expected an object'),
  'a count above all floats': ('results.json', json.dumps(RESULTS | {'accuracy': 10**400}), 'that a float can hold'),
  'BLEU of a length that is a list': (
    'results.json',
    json.dumps(RESULTS | {'bleu_by_length': [{'words': '1 to 10', 'above': []}]}),
    'bleu_by_length: above: got a list of 0',
  ),
  'nested too deep': ('results.json', '{"a":' * 200 + '1' + '}' * 200, 'nested too deep'),
  'a row that is a list': ('metrics.jsonl', lines_of([LINES[0], [], LINES[1]]), 'metrics.jsonl, line 2: got a list'),
  'a row without a step': ('metrics.jsonl', lines_of([{'split': 'valid'}]), 'line 1: no field "step"'),
  'a negative step': ('metrics.jsonl', lines_of([{'step': -1, 'split': 'valid'}]), 'line 1: step: got -1'),
  'a loss that is a text': ('metrics.jsonl', lines_of([LINES[0] | {'loss': 'low'}]), 'line 1: loss: got "low"'),
  'a loss that is null': ('metrics.jsonl', lines_of([LINES[0] | {'loss': None}]), 'line 1: loss: got null'),
  'zero bytes': ('metrics.jsonl', '\0' * 99 + '\n', 'metrics.jsonl, line 1: not JSON'),
  'a config of another program': ('config.json', '{"model_type": "bert"}', 'config.json: no field "model"'),
  'a model that is a text': ('config.json', '{"model": "gpt2"}', 'config.json: model: got "gpt2"'),
  'steps that are a text': ('config.json', json.dumps(CONFIG | {'train': {'steps': 'x'}}), 'train: steps: got "x"'),
  'data that are a list': ('data.json', '[]', 'data.json: got a list of 0'),
}


@pytest.mark.parametrize('damage', DAMAGES)
def test_damaged_run_is_listed_with_the_others(good, bad, damage, capsys):
  name, content, message = DAMAGES[damage]
  (bad / name).write_text(content)
  assert main.main(['runs', str(good.parent)]) == 0
  _, *rows, fault = capsys.readouterr().out.splitlines()
  states = {row.split()[0]: row for row in rows}
  assert 'damaged' in states[str(bad)] and 'finished' in states[str(good)]
  assert fault.startswith(f'{bad}: ') and message in fault
  assert main.main(['runs', str(bad)]) == 2  # nothing is left to show
  assert message in capsys.readouterr().out


@pytest.mark.parametrize('damage', [damage for damage, (name, *_) in DAMAGES.items() if name == 'results.json'])
def test_damaged_results_are_in_no_mean(good, bad, damage, tmp_path, capsys):
  _, content, message = DAMAGES[damage]
  (bad / 'results.json').write_text(content)
  assert main.main(['results', str(good), str(bad), f'--output={tmp_path}/table.json']) == 0
  assert message in capsys.readouterr().out.splitlines()[-1]
  written = json.loads((tmp_path / 'table.json').read_text())
  assert written['rows'][0]['workdirs'] == [str(good)] and message in written['damaged'][str(bad)]
  assert main.main(['results', str(bad)]) == 2
  assert message in capsys.readouterr().err
  for read in (records.read_results, lambda run: sweep.measure(run, sweep.Metric.parse('results.accuracy'))):
    with pytest.raises(InputError, match='results.json'):
      read(bad)


def test_folder_in_place_of_a_record(good, bad, capsys):
  for name in ('results.json', 'metrics.jsonl'):
    shutil.copy(good / name, bad)
    (bad / name).unlink()
    (bad / name).mkdir()
    assert main.main(['runs', str(good.parent)]) == 0
    assert f'{bad / name}: cannot be read (Is a directory)' in capsys.readouterr().out
    (bad / name).rmdir()


def test_describe_names_the_field(bad, capsys):
  from lmx.config import resolve

  config = resolve.resolve({'model': CONFIG['model'] | {'V': 50}, 'train': {'steps': 6}})
  (bad / 'config.json').write_text(config.to_json())
  (bad / 'results.json').write_text('{"steps": []}')
  assert main.main(['describe', f'--workdir={bad}']) == 2
  assert f'{bad}/results.json: steps: got a list of 0; expected an integer' in capsys.readouterr().err


def test_only_a_last_line_without_its_end_is_skipped(good):
  path = good / 'metrics.jsonl'
  path.write_text(lines_of(LINES) + '{"step": 7, "sp')
  assert records.read_metrics(good) == LINES
  path.write_text(lines_of(LINES)[:-1])  # whole
  assert records.read_metrics(good) == LINES
  path.write_text('{"step": 1, "sp\n' + lines_of(LINES))
  with pytest.raises(InputError, match='metrics.jsonl, line 1: not JSON'):
    records.read_metrics(good)


def test_nan_and_infinity_strings_are_read_as_numbers(good):
  (good / 'results.json').write_text(json.dumps(RESULTS | {'accuracy': 'NaN', 'nested': {'x': ['-Infinity']}}))
  found = records.read_results(good)
  assert math.isnan(found['accuracy']) and found['nested'] == {'x': [-math.inf]} and found['labels'] == ['NaN', 'b']


def test_unstarted_averaging_is_valid(good):
  (good / 'results.json').write_text(json.dumps(RESULTS | {'trigger_step': None}))
  assert records.read_results(good)['trigger_step'] is None
  (good / 'results.json').write_text(json.dumps(RESULTS | {'trigger_step': '3'}))
  with pytest.raises(InputError, match='trigger_step: got "3"'):
    records.read_results(good)


def test_optional_field_rejects_null(good):
  null = dict.fromkeys(('baselines', 'validation_baselines', 'classes', 'versions', 'command', 'device', 'seconds'))
  (good / 'results.json').write_text(json.dumps(RESULTS | null))
  assert not null.keys() & records.read_results(good).keys()
  (good / 'results.json').write_text(json.dumps(RESULTS | {'metric': None}))
  with pytest.raises(InputError, match='no field "metric"'):
    records.read_results(good, ['metric'])


def test_step_is_the_last_logged_or_saved_one_of_all(good, bad, capsys):
  (bad / 'results.json').unlink()
  (bad / 'checkpoints/step_000000017').mkdir(parents=True)
  (bad / 'checkpoints/step_000000030.orbax-checkpoint-tmp').mkdir()  # not finished
  shown = lambda: ' '.join(next(x for x in capsys.readouterr().out.splitlines() if x.startswith(str(bad))).split())
  (bad / 'config.json').write_text(json.dumps(CONFIG | {'train': {'steps': 1200}}))
  main.main(['runs', str(good.parent)])
  assert 'stopped 17 of 1,200 ' in shown()
  (bad / 'config.json').write_text(json.dumps(CONFIG | {'train': {'steps': 0, 'epochs': 2.5}}))
  main.main(['runs', str(good.parent)])
  assert 'stopped 17 loss 1.5' in shown()  # a run of an earlier lmx, whose total only its data give
  (bad / 'progress.json').write_text('{"steps": 250}')
  main.main(['runs', str(good.parent)])
  assert ' 17 of 250 ' in shown()
  (bad / 'progress.json').write_text('{"steps": []}')
  main.main(['runs', str(good.parent)])
  assert 'damaged' in shown()


def test_finished_run_that_ended_early_shows_its_total(good, capsys):
  (good / 'config.json').write_text(json.dumps(CONFIG | {'train': {'steps': 100}}))
  main.main(['runs', str(good)])
  assert 'finished  6 of 100 ' in capsys.readouterr().out


def test_sweep_does_not_rank_by_a_damaged_log(bad):
  (bad / 'metrics.jsonl').write_text(lines_of([*LINES, 3]))
  with pytest.raises(InputError, match='metrics.jsonl, line 7: got 3'):
    sweep.measure(bad, sweep.Metric.parse('loss'))
  assert sweep.progress(bad).startswith('damaged: ')
  (bad / 'metrics.jsonl').write_text(lines_of(LINES))
  (bad / 'config.json').write_text('{"evaluation": []}')
  with pytest.raises(InputError, match='config.json: evaluation: got a list'):
    sweep.measure(bad, sweep.Metric.parse('loss'))


def test_damaged_journal_is_reported(tmp_path):
  pytest.importorskip('optuna', reason='needs the extra `sweep`')
  open_study = lambda: study.Store(
    f'journal:{tmp_path}/journal', 'x', 'minimize', 'random', 0, study.Identity('here', 'me'), 1
  )
  open_study()
  text = (tmp_path / 'journal').read_text()
  for damaged in ('{"op_code"' + text[5:], '[]\n' + text, '{}\n' + text):
    (tmp_path / 'journal').write_text(damaged)
    with pytest.raises(InputError, match='journal: got a damaged journal'):
      open_study()


def test_tables_name_a_record_that_they_cannot_read(good, bad):
  (bad / 'config.json').write_text('{"model": 3}')
  with pytest.warns(match=r'bad/config.json: model: got 3'):
    assert [where for where, _ in collection._find_workdirs([good.parent])] == [good]
  (bad / 'valid.json').write_text('[1]')
  with pytest.raises(InputError, match='valid.json: got 1'):
    collection.read_json(bad / 'valid.json')
  (bad / 'seed0.submitted').write_text('{"results.json": "slurm"}')
  with pytest.raises(InputError, match='seed0.submitted: results.json: got "slurm"'):
    runner._read_submitted(bad / 'seed0.submitted')


def test_damaged_record_of_a_job_is_reported(tmp_path):
  path = tmp_path / 'job.record'
  for content, message in (('{"na', 'not JSON'), ('{"name": 3}', 'name: got 3'), ('{"code": 0}', 'no field "name"')):
    path.write_text(content)
    with pytest.raises(InputError, match=f'job.record: {message}'), wait.open_record(path, {'name': str}):
      pass


VALUES = [None, True, -1, 10**30, 10**400, 1e308, math.nan, '', 'NaN', '3', '\0', '\u202e', [], [[]], {}, {'a': []}]


def _mutate(tree, draw):
  """Replace or delete a value somewhere in a JSON tree."""
  if isinstance(tree, (dict, list)) and tree and draw.random() < 0.8:
    key = draw.choice(sorted(tree)) if isinstance(tree, dict) else draw.randrange(len(tree))
    if draw.random() < 0.15:
      del tree[key]
    else:
      tree[key] = _mutate(tree[key], draw)
    return tree
  return draw.choice(VALUES)


def test_no_mutation_of_a_record_is_a_traceback(good, bad, capsys):
  draw = random.Random(5)
  for _ in range(150):
    shutil.rmtree(bad)
    shutil.copytree(good, bad)
    name = draw.choice(['results.json', 'metrics.jsonl', 'config.json', 'data.json'])
    rows = [json.loads(line) for line in (bad / name).read_text().splitlines()]
    changed = _mutate(rows, draw)
    text = lines_of(changed if isinstance(changed, list) else [changed])
    (bad / name).write_text(text[: draw.randrange(len(text) + 1)] if draw.random() < 0.2 else text)
    assert main.main(['runs', str(good.parent)]) == 0
    assert main.main(['results', str(good), str(bad)]) in (0, 2)  # 2: without results.json
    for read in (sweep.progress, records.read_results, collection._added_settings):
      try:
        read(bad, *[{}] * (read is collection._added_settings))
      except InputError as error:
        assert str(bad) in str(error)
  capsys.readouterr()
