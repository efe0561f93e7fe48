"""Metrics of a table, collected from work directories."""

from __future__ import annotations

import json
import shutil

import pytest

from experiments.tables import Row
from launch.tables import collection, measured, report, runner
from launch.tables import plan as plans
from launch.tables.__main__ import main
from tests.launch.tables.runs import SMALL, make_tries, put, rows_of, run


def test_work_directories_are_identified_by_config(tmp_path, program):
  """Copied from elsewhere under other names, each is found for its row and seed, and nothing is run."""
  assert run(tmp_path / 'runs', '--seeds=2', '--rows=small/*,large/*') == 0
  copy = tmp_path / 'copied/from a cluster'
  for i, folder in enumerate(sorted((tmp_path / 'runs').glob('rnn_lm/*/seed?'))):
    shutil.copytree(folder, copy / f'job{i}')
  before = program()
  assert run(tmp_path / 'copied', '--seeds=2', '--rows=small/*,large/*') == 0 and program() == before
  assert rows_of(tmp_path / 'copied') == rows_of(tmp_path / 'runs')


def test_runs_with_another_start_are_not_merged(tmp_path, monkeypatch):
  """Their configs differ in nothing else."""
  put(tmp_path, 'bert/base_swag', 'results', accuracy=0.8, validation_loss=0.7, split='valid')
  moved = (tmp_path / 'bert/base_swag').rename(tmp_path / 'bert/copied')
  file = moved / 'seed0/config.json'
  config = json.loads(file.read_text())
  config['train']['init_from'] = str(tmp_path / 'imported/bert_large')
  file.write_text(json.dumps(config))
  monkeypatch.setattr(measured, 'measurements', tuple)
  words = ['bert_tasks', f'--runs={tmp_path}', '--collect', '--seeds=1', '--rows=swag/base/dev,swag/large/dev']
  assert main(words) == 0
  assert [line.split(' | ')[4] for line in rows_of(tmp_path, 'bert_tasks')] == ['not run', '80.0 (1 seed)']


@pytest.mark.parametrize(('vectors', 'cell'), [('D/senna', '80.00 (1 seed)'), ('', 'not counted')])
def test_user_file_path_may_differ_but_must_exist(tmp_path, vectors, cell):
  put(tmp_path, 'elmo/conll2003', 'results', span_f1=80.0, split='test')
  file = tmp_path / 'elmo/conll2003/seed0/config.json'
  config = json.loads(file.read_text())
  config['data']['vectors'] = vectors
  file.write_text(json.dumps(config))
  main(['elmo', f'--runs={tmp_path}', '--collect', '--seeds=1', '--rows=elmo/main/ner/baseline'])
  assert rows_of(tmp_path, 'elmo')[0].split(' | ')[4] == cell


def test_results_of_another_config_are_not_counted(tmp_path, program, capsys):
  runs = tmp_path / 'runs'
  assert run(runs, SMALL) == 0
  file = runs / 'rnn_lm/ptb_small/seed0/config.json'
  config = json.loads(file.read_text())
  config['optim']['lr'] = 0.25
  file.write_text(json.dumps(config))
  before = program()
  assert run(runs, SMALL) == 2 and program() == before
  assert 'ptb_small/seed0 is a run of another config: optim.lr 0.25 there, 20.0 here' in capsys.readouterr().err
  assert all('| not counted |' in line for line in rows_of(runs))
  capsys.readouterr()
  assert run(runs, SMALL, '--config.optim.lr=0.25', '--config.data.workers=2', '--collect') == 0
  assert '| 114.5 * | 115.6 (1 seed) |  |  |  |' in rows_of(runs)[1]
  assert '* Not compared: ours is of runs with --config.optim.lr=0.25.' in capsys.readouterr().out


@pytest.mark.parametrize(
  'key, message', [('data_hash', 'data_hash aaaa and bbbb'), ('default', 'model.dropout 0.1 and 0.2'), ('', '')]
)
def test_seeds_of_other_data_or_settings_are_not_averaged(tmp_path, program, capsys, key, message):
  runs = tmp_path / 'runs'
  assert run(runs, SMALL, '--seeds=2') == 0
  for seed in range(2):
    where = runs / f'rnn_lm/ptb_small/seed{seed}'
    result, config = (json.loads((where / f'{name}.json').read_text()) for name in ('results', 'config'))
    result['data_hash'] = 'ab'[seed * (key == 'data_hash')] * 4
    config['model']['dropout'] = (0.1, 0.2)[seed * (key == 'default')]  # a default of lmx, none of the table
    config['model'] |= {'a_later_field': 1} if seed else {}
    (where / 'results.json').write_text(json.dumps(result))
    (where / 'config.json').write_text(json.dumps(config))
  assert run(runs, SMALL, '--seeds=2', '--collect') == (2 if message else 0)
  assert message in capsys.readouterr().err
  assert ('not counted' if message else '116.1') in rows_of(runs)[1]


@pytest.mark.parametrize('fold', [1, 0])
def test_folds_of_the_data_are_averaged(tmp_path, capsys, fold):
  runs = {run.name: run for run in plans.table('ulmfit_folds').runs}
  for seed in range(2):
    put(tmp_path, 'ulmfit/folds_full', 'valid', seed, error_percent=10.0 + seed, split='valid', data_hash=f'h{seed}')
    (tmp_path / f'ulmfit/folds_full/seed{seed}/results.json').write_text(json.dumps({'data_hash': f'h{seed}'}))
    words = plans.commands(runs['ulmfit/folds_full'], seed, runs, plans.Plan(), shown=True)[0].words
    assert f'--config.data.fold={seed}' in words
  first, file = (tmp_path / f'ulmfit/folds_full/seed{seed}/config.json' for seed in range(2))
  other = json.loads(first.read_text())
  other['model']['V'] = 8123
  first.write_text(json.dumps(other))
  config = json.loads(file.read_text())
  config['data']['fold'] = fold
  config['model']['V'] = 8082  # words of its training questions
  file.write_text(json.dumps(config))
  words = ['ulmfit_folds', f'--runs={tmp_path}', '--collect', '--seeds=2', '--rows=ulmfit/folds/full/valid']
  assert main(words) == (0 if fold == 1 else 2)
  if fold == 1:
    assert '| 6.86 * | 10.50 ' in rows_of(tmp_path, 'ulmfit_folds')[0]  # the figure that it is like
  else:
    assert 'seed1 is a run of another config: data.fold 0 there, 1 here' in capsys.readouterr().err


def test_truncated_file_is_reported(tmp_path, program, capsys):
  runs = tmp_path / 'runs'
  assert run(runs, SMALL) == 0
  (runs / 'rnn_lm/ptb_small/seed0/valid.json').write_text('{"perplexity_per_tok')
  assert run(runs, SMALL, '--collect') == 2
  assert 'seed0/valid.json: not JSON' in capsys.readouterr().err
  assert '| not counted |' in rows_of(runs)[0] and '115.6 (1 seed)' in rows_of(runs)[1]


def test_metric_of_another_split_is_not_used(tmp_path, capsys):
  put(tmp_path, 'bert/nvidia_squad', 'results', f1=91.0, exact_match=84.0, split='test')
  assert main(['bert_nvidia', f'--runs={tmp_path}', '--collect', '--seeds=1', '--rows=bert/nvidia_seeds/squad*']) == 2
  assert 'is of the split test; bert/nvidia_seeds/squad_large/em is of valid' in capsys.readouterr().err


def test_records_are_picked_from_a_list(tmp_path):
  where = tmp_path / 'nplm/brown_ngrams'
  where.mkdir(parents=True)
  records = [
    {'model': m, 'split': s, 'perplexity_per_token': v}
    for m, s, v in (('trigram', 'test', 338.0), ('kn3', 'valid', 1.0), ('kn3', 'test', 325.0))
  ]
  (where / 'ngrams.json').write_text(json.dumps(records))
  words = ['nplm_brown', f'--runs={tmp_path}', '--collect', '--rows=nplm/brown/del_int/test,nplm/brown/kn3/test']
  assert main(words) == 0
  cells = [line.split(' | ')[3:6] for line in rows_of(tmp_path, 'nplm_brown')]
  assert cells == [['336 *', '338', ''], ['323 *', '325', '']]


def test_records_of_a_group_of_runs_are_picked_by_their_model(tmp_path):
  records = [{'index': i, 'share': r, 'split': 'test', 'recl': v} for i, r, v in ((0, '1', 500), (1, '1', 300))]
  where = tmp_path / 'transformer_xl/context_128m/seed0'
  where.mkdir(parents=True)
  (where / 'context.json').write_text(json.dumps({'models': [], 'split': 'test', 'records': records}))
  rows = ','.join(f'transformer_xl/wikitext103/recl/{name}/r1.0' for name in ('txl_128m', 'txl_128m_shaw'))
  assert main(['transformer_xl_ablation', f'--runs={tmp_path}', '--collect', f'--rows={rows}']) == 0
  cells = [line.split(' | ')[3:5] for line in rows_of(tmp_path, 'transformer_xl_ablation')]
  assert cells == [['500', '500 (1 seed)'], ['300', '300 (1 seed)']]


def test_trial_of_lowest_validation_loss_counts(tmp_path):
  """In the mean over seeds, and not the one of the best figure."""
  table, plan = make_tries(tmp_path, low=((0.5, 0.9), (0.6, 0.8)), high=((0.7, 0.7), (0.2, 0.6)))
  found = collection.collect(table, list(table.rows[:1]), plan)[0]
  assert (found.run, found.state, found.value) == ('high', collection.DONE, pytest.approx(65.0))
  assert report.lines([found])[0].cells[1] == 'high'


def test_trial_of_highest_metric_counts_on_the_measured_split(tmp_path):
  table, plan = make_tries(tmp_path, low=((0.5, 0.9), (0.6, 0.8)), high=((0.7, 0.7), (0.2, 0.6)))
  found = collection.collect(table, [table.rows[0]._replace(chosen='results')], plan)[0]
  assert (found.run, found.state, found.value) == ('low', collection.DONE, pytest.approx(85.0))
  (tmp_path / 'low/seed0/results.json').write_text('{"accuracy": 0.4, "split": "test"}')  # no loss is needed
  assert collection.collect(table, [table.rows[0]._replace(chosen='results')], plan)[0].run == 'high'


@pytest.mark.parametrize(
  'metric, statistic, value, text',
  [
    ('accuracy', 'mean', 60.0, '60.00 ± 20.518 (3 seeds)'),
    ('accuracy', 'best', 80.0, '80.00 (best of 3 seeds)'),
    ('accuracy', 'median', 60.0 + 1, '61.00 ± 20.518 (median of 3 seeds)'),
    ('loss', 'best', 0.25, '0.25 (best of 3 seeds)'),
  ],
)
def test_statistic_over_seeds_is_the_rows(tmp_path, metric, statistic, value, text):
  table, plan = make_tries(tmp_path, low=((0.5, 0.39), (0.25, 0.8), (0.75, 0.61)))
  for seed, loss in enumerate((0.5, 0.25, 0.75)):
    file = tmp_path / f'low/seed{seed}/results.json'
    file.write_text(json.dumps({**json.loads(file.read_text()), 'loss': loss}))
  run = table.runs[0]._replace(seeds=3)
  row = Row('made/up', 'low', metric, statistic=statistic)
  [found] = collection.collect(table._replace(runs=(run,)), [row], plan)
  assert found.value == pytest.approx(value) and report._ours(found, 2) == text


def test_trial_is_chosen_by_the_metric_of_another_file(tmp_path):
  table, plan = make_tries(tmp_path, low=((0.5, 0.9), (0.6, 0.8)), high=((0.7, 0.7), (0.2, 0.6)))
  row = table.rows[0]._replace(chosen='valid')
  for name, value in (('low', 0.5), ('high', 0.75)):
    for seed in range(2):
      assert collection.collect(table, [row], plan)[0].state == collection.PART, 'not before all are there'
      (tmp_path / f'{name}/seed{seed}/valid.json').write_text(json.dumps({'accuracy': value, 'split': 'valid'}))
  found = collection.collect(table, [row], plan)[0]
  assert (found.run, found.value) == ('high', pytest.approx(65.0)), 'the metric is that of the row'


def test_trial_of_the_lowest_error_is_the_best(tmp_path):
  table, plan = make_tries(tmp_path, low=((0.5, 0.9), (0.6, 0.8)), high=((0.7, 0.7), (0.2, 0.6)))
  for file in tmp_path.glob('*/seed*/results.json'):
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, 'error_percent': 100 * (1 - record['accuracy'])}))
  row = table.rows[0]._replace(metric='error', chosen='results')
  assert collection.collect(table, [row], plan)[0].run == 'low'
  worst = row._replace(statistic='median')
  assert collection.collect(table, [worst], plan)[0].value == pytest.approx(15.0)


def test_metric_of_several_files_is_their_mean(tmp_path):
  table, plan = make_tries(tmp_path, low=((0.5, 0.9), (0.6, 0.8)))
  row = Row('made/up', 'low', 'accuracy', 'results,mismatched')
  (tmp_path / 'low/seed0/mismatched.json').write_text('{"accuracy": 0.7}')
  [found] = collection.collect(table, [row], plan)
  assert found.state == collection.PART and [one.value for one in found.seeds] == [pytest.approx(80.0)]
  (tmp_path / 'low/seed1/mismatched.json').write_text('{"accuracy": 0.6}')
  assert collection.collect(table, [row], plan)[0].value == pytest.approx(75.0)


def test_no_trial_is_chosen_before_all_are_done(tmp_path):
  table, plan = make_tries(tmp_path, low=((0.5, 0.9), (0.6, 0.8)), high=((0.7, 0.7),))
  found = collection.collect(table, list(table.rows[:1]), plan)[0]
  assert found.state == collection.PART and not found.seeds
  todo = runner.plan_tasks(list(table.runs), {run.name: run for run in table.runs}, plan)
  assert [task.key for task in todo] == [('high', 1)]


def test_trial_without_a_validation_loss_is_reported(tmp_path):
  table, plan = make_tries(tmp_path, low=((0.5, 0.9), (0.6, 0.8)), high=((0.7, 0.7), (0.2, 0.6)))
  (tmp_path / 'low/seed0/results.json').write_text('{"accuracy": 0.5}')
  found = collection.collect(table, list(table.rows[:1]), plan)[0]
  assert found.state == collection.WRONG and 'has no validation loss' in found.problems[0]


def test_run_of_a_model_that_was_renamed_is_found(tmp_path, capsys):
  """As an earlier lmx wrote it: below seq2seq/, with `seq2seq` and its fields in config.json."""
  put(tmp_path, 'luong/wmt14_luong', 'results', bleu_tokenised=19.5, split='test')
  old = (tmp_path / 'luong').rename(tmp_path / 'seq2seq')
  file = old / 'wmt14_luong/seed0/config.json'
  config = json.loads(file.read_text())
  layers = config['model'].pop('layers', 4)
  config['model'] |= {'name': 'seq2seq', 'design': 'luong', 'encoder_layers': layers, 'decoder_layers': layers}
  file.write_text(json.dumps(config))
  assert main(['luong', f'--runs={tmp_path}', '--collect', '--seeds=1', '--rows=*localp_general_feed/bleu']) == 0
  assert '19.5 (1 seed)' in rows_of(tmp_path, 'luong')[0]
  assert main(['seq2seq_luong', f'--runs={tmp_path}', '--list']) == 2
  assert 'unknown table "seq2seq_luong"; it is now "luong"' in capsys.readouterr().err
