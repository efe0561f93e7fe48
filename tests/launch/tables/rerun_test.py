"""`--rerun`: which commands a recorded line becomes, and how its metric is read and compared."""

from __future__ import annotations

import csv
import json

import pytest

from launch.tables import measured, rerun
from launch.tables.__main__ import main
from lmx.errors import InputError
from tests.launch.tables.check_test import GOOD

TRAIN = GOOD.command
TWO = GOOD._replace(id='rnn_lm/ptb/two', value='116.1', spread='0.71', seeds='0 1')
VALID = GOOD._replace(
  id='rnn_lm/ptb/two/valid',
  metric='perplexity',
  value='119.0',
  split='valid',
  command='lmx evaluate --workdir=DIR --split=valid',
  start=TWO.id,
  seeds='1',
)
TABLE = GOOD._replace(command='python -m launch.tables rnn_lm_ptb --rows=small/test --seeds=1', value='115.6')
LINES = (
  TWO,
  VALID,
  TABLE,
  GOOD._replace(id='rnn_lm/ptb/kept', kept='its text is lost'),
  GOOD._replace(id='rnn_lm/gensim', command='gensim 4.4.0'),
  GOOD._replace(id='rnn_lm/ptb/unknown', seeds='2 seeds'),
  GOOD._replace(id='rnn_lm/ptb/predicted', command='lmx predict --workdir=DIR --input=DATA', start=TWO.id),
  GOOD._replace(id='rnn_lm/ptb/unnamed', command='lmx evaluate --workdir=DIR --split=valid'),
)


@pytest.fixture
def lines(tmp_path, monkeypatch):
  """A measured.csv with LINES."""
  path = tmp_path / 'measured.csv'
  with path.open('w', newline='') as opened:
    csv.writer(opened).writerows([measured.Measurement._fields, *LINES])
  monkeypatch.setattr(measured, 'FILE', path)
  measured.measurements.cache_clear()
  yield path
  measured.measurements.cache_clear()


def again(folder, rows: str, *words: str) -> int:
  return main(['--rerun', f'--rows={rows}', f'--runs={folder}', '--data=ptb=/ptb', *words])


def test_each_seed_is_run_once_and_compared(tmp_path, lines, program, capsys):
  assert again(tmp_path, 'ptb/two') == 0
  where = f'{tmp_path}/rerun/rnn_lm/ptb/two'
  train = f'train --config=experiments/rnn_lm/ptb.py:small --workdir={where}/seed%s --config.data.manual_dir=/ptb'
  assert program() == [f'{train % 0} --config.seed=0', f'{train % 1} --config.seed=1']
  shown = capsys.readouterr().out
  assert shown == (
    'rnn_lm/ptb/two: recorded 116.1 ± 0.71 (2 seeds), now 116.1 (2 seeds), difference +0.0: within two standard '
    'deviations of 2 seeds\n'
  )
  assert again(tmp_path, 'ptb/two') == 0 and len(program()) == 2, 'a finished command is not repeated'
  nothing = (
    f'rnn_lm/ptb/two: nothing to run: its runs in {tmp_path}/rerun are finished; another --runs=DIR runs it anew'
  )
  assert nothing in capsys.readouterr().err
  assert again(tmp_path, 'ptb/two', '--dry_run') == 0
  printed = capsys.readouterr()
  assert nothing in printed.err and not printed.out


def test_evaluation_begins_with_the_run_that_it_starts_from(tmp_path, lines, program, capsys):
  assert again(tmp_path, 'two/valid') == 0  # 121 by the stand-in, recorded 119: within 2%
  assert len(program()) == 3 and program()[2] == (
    f'evaluate --workdir={tmp_path}/rerun/rnn_lm/ptb/two/seed1 --split=valid '
    f'--output={tmp_path}/rerun/rnn_lm/ptb/two/valid/metrics-0.json'
  )
  assert 'difference +2.0: within the band of a single run (±2.38)' in capsys.readouterr().out


def run_of(folder, **model):
  """A work directory with a run of the model of TWO, with the changes `model`."""
  folder.mkdir()
  (folder / 'config.json').write_text(json.dumps({'model': {'name': 'rnn_lm', 'variant': 'small', **model}}))


def test_given_start_is_not_run(tmp_path, lines, program, capsys):
  run_of(tmp_path / 'mine')
  assert again(tmp_path, 'two/valid', f'--start={tmp_path}/mine', '--dry_run') == 0
  assert capsys.readouterr().out.startswith(f'lmx evaluate --workdir={tmp_path}/mine --split=valid')
  assert not program()


def test_given_start_must_have_the_model_of_its_line(tmp_path, lines, program, capsys):
  run_of(tmp_path / 'other', variant='large')
  for name, problem in (('other', "got another model (model.variant 'large' there, 'small' here)"), ('no', 'got no ')):
    assert again(tmp_path, 'two/valid', f'--start={tmp_path}/{name}') == 2
    printed = capsys.readouterr().err
    assert f'--start={tmp_path}/{name}: {problem}' in printed and 'a run of the line rnn_lm/ptb/two' in printed
  assert not program()


def test_line_of_a_table_runs_its_row(tmp_path, lines, program, capsys):
  assert again(tmp_path, 'small/test') == 0
  assert len(program()) == 2 and f'--workdir={tmp_path}/rerun/tables/rnn_lm/ptb_small/seed0' in program()[0]
  assert 'recorded 115.6, now 115.6, difference +0.0' in capsys.readouterr().out
  assert main(['rnn_lm_ptb', '--rerun', f'--runs={tmp_path}', '--data=ptb=/ptb']) == 0 and len(program()) == 2
  assert f'rnn_lm/ptb/small/test: nothing to run: its runs in {tmp_path}/rerun are' in capsys.readouterr().err


@pytest.mark.parametrize('words', [[], ['--dry_run']])
def test_data_of_a_table_are_required_before_anything_runs(tmp_path, lines, program, capsys, words):
  lines.write_text(
    lines.read_text().replace(',ptb,32a3634e,f887147', ',ptb trec,32a3634e,f887147')
  )  # trec is not required by a run
  measured.measurements.cache_clear()
  for given, name in (([], 'ptb, ptb.train.txt'), (['--data=ptb=/ptb'], 'trec, ')):
    assert main(['--rerun', '--rows=small/test', f'--runs={tmp_path}', *given, *words]) == 2
    assert f'rnn_lm/ptb/small/test needs {name}' in capsys.readouterr().err
  assert not program()


def test_difference_and_failure_have_exit_code_1(tmp_path, lines, program, capsys, monkeypatch):
  lines.write_text(lines.read_text().replace(',116.1,0.71,', ',113.1,0.71,'))
  measured.measurements.cache_clear()
  assert again(tmp_path, 'ptb/two') == 1
  assert 'difference +3.0: outside two standard deviations' in capsys.readouterr().out
  monkeypatch.setenv('WHICH', 'small')
  monkeypatch.setenv('MODE', 'fail')
  assert again(tmp_path / 'other', 'ptb/two') == 1
  assert capsys.readouterr().err.count('the loss is not finite') == 1


@pytest.mark.parametrize(
  ('words', 'message'),
  [
    (['--rows=kept'], 'rnn_lm/ptb/kept: cannot be run again: its text is lost'),
    (['--rows=gensim'], 'another program measured it (gensim 4.4.0)'),
    (['--rows=nothing'], '--rows: no row "nothing"'),
    ([], 'got no table and no --rows'),
    (['ntm'], 'has no line of a row of ntm'),
    (['--rows=unknown'], 'seeds: got 2 seeds; expected the seeds themselves'),
    (
      ['--rows=predicted'],
      'rnn_lm/ptb/predicted: cannot be run again: no file has the metric that is printed by `lmx predict',
    ),
    (['--rows=unnamed'], 'start: got none; expected the run for DIR: --start=DIR'),
    (['--rows=ptb/two', '--data=ptbb=/ptb'], 'unknown data set "ptbb"'),
    (['--rows=ptb/two'], 'rnn_lm/ptb/two needs ptb, ptb.train.txt'),
    (['--rows=ptb/two', '--check'], '--check, --rerun: expected one of these'),
    (['--rows=ptb/two', '--seeds=3'], '--seeds: got it with --rerun'),
    (['--rows=ptb/two', '--where=slurm'], '--where: got it with --rerun'),
    (['--rows=ptb/two', '--config.optim.lr=1'], '--config: got it with --rerun'),
    (['--rows=ptb/two', '--record'], '--record is for the rows of a table'),
  ],
)
def test_wrong_input_is_named(tmp_path, lines, program, capsys, words, message):
  assert main(['--rerun', f'--runs={tmp_path}', *words]) == 2
  assert message in capsys.readouterr().err and not program()


def test_other_data_are_refused():
  for key in ('32a3634e6003', ''):
    assert rerun.compare(GOOD, [rerun.Value(115.6, key)])
  with pytest.raises(
    InputError, match='recorded 115.6, now 115.6, of other data: data_hash: got abcdef01; expected 32a3634e'
  ):
    rerun.compare(GOOD, [rerun.Value(115.6, 'abcdef0123')])


def test_line_without_its_metric_does_not_stop_the_others(tmp_path, lines, program, capsys):
  lines.write_text(
    lines.read_text().replace(
      'rnn_lm/ptb/two/valid,rnn_lm,small,ptb,valid,perplexity', 'a/b,rnn_lm,small,ptb,valid,"loss, nats"'
    )
  )
  measured.measurements.cache_clear()
  assert again(tmp_path, 'a/b,ptb/two') == 2
  printed = capsys.readouterr()
  assert 'has no loss, nats of a/b' in printed.err and 'rnn_lm/ptb/two: recorded 116.1' in printed.out


def test_start_belongs_to_a_rerun(capsys):
  assert main(['rnn_lm_ptb', '--start=a', '--collect']) == 2
  assert '--start' in capsys.readouterr().err


def test_data_may_be_given_by_the_word_of_the_command(tmp_path, lines, capsys):
  assert main(['--rerun', '--rows=ptb/two', f'--runs={tmp_path}', '--data=DATA=/mine', '--dry_run']) == 0
  assert capsys.readouterr().out.count('--config.data.manual_dir=/mine') == 2


def test_commands_of_all_seeds_share_a_folder_where_they_name_it(tmp_path, lines, capsys):
  train = TRAIN.replace('--workdir=DIR', '--workdir=RUNS/SEED --config.seed=SEED')
  line = TWO._replace(id='rnn_lm/ptb/both', command=f'{train}; lmx evaluate --workdir=RUNS/0 --ensemble=RUNS/1')
  with lines.open('a', newline='') as opened:
    csv.writer(opened).writerow(line)
  measured.measurements.cache_clear()
  assert again(tmp_path, 'ptb/both', '--dry_run') == 0
  runs = f'{tmp_path}/rerun/rnn_lm/ptb/both/runs'
  first, second, both = capsys.readouterr().out.splitlines()
  assert f'--workdir={runs}/0 --config.seed=0' in first and f'--workdir={runs}/1 --config.seed=1' in second
  assert both == f'lmx evaluate --workdir={runs}/0 --ensemble={runs}/1 --output={runs[:-5]}/metrics-1.json'


def test_stopped_rerun_says_how_to_resume(tmp_path, lines, program, capsys, monkeypatch):
  monkeypatch.setattr(rerun.runner.Runner, 'run', lambda *_: 75)
  assert again(tmp_path, 'ptb/two') == 75
  assert 'stopped; the same command resumes' in capsys.readouterr().err


def test_counts_and_ngrams_are_equal(capsys):
  ngrams = GOOD._replace(command='lmx ngrams --config=a.py --models=ikn5')
  table = GOOD._replace(id='nplm/brown/kn3/test', command='python -m launch.tables nplm_brown')
  count = GOOD._replace(id='own', metric='parameters (millions)', value='65', spread='1', seeds='0 1')
  for one, near, other in ((ngrams, 115.64, 115.7), (table, 115.64, 115.7), (count, 65.4, 66.0)):
    assert rerun.compare(one, [rerun.Value(near, '')]) and not rerun.compare(one, [rerun.Value(other, '')])
  assert capsys.readouterr().out.count('the rounding of the recorded value') == 6


def test_row_of_a_table_says_which_record(tmp_path):
  models = [
    {'model': model, 'split': split, 'tokens_counted': 8, 'data_hash': '0' * 64, 'perplexity_per_token': value}
    for model, value in (('trigram', 31.5), ('kn3', 98.9))
    for split in ('train', 'test')
  ]
  assert read(tmp_path, models, id='nplm/brown/del_int/train', split='train') == 31.5
  with pytest.raises(InputError, match='no record of model=trigram, split=valid'):
    read(tmp_path, models, id='nplm/brown/del_int/valid', split='valid')
  with pytest.raises(InputError, match='several metrics') as error:
    read(tmp_path, models, split='train')
  assert '0000' not in str(error.value)


def read(tmp_path, content, **cells: str) -> float:
  (tmp_path / 'metrics.json').write_text(json.dumps(content))
  return rerun.read_metric(GOOD._replace(**{'id': 'own/line', **cells}), tmp_path / 'metrics.json').value


def test_metric_is_found_by_its_name(tmp_path):
  baselines = {'unigram': {'perplexity_per_token': 361.0}, 'kneser_ney': {'perplexity_per_token': 95.9}}
  content = {'perplexity_per_token': 105.5, 'split': 'test', 'baselines': baselines, 'validation_baselines': baselines}
  assert read(tmp_path, content, metric='perplexity') == 105.5
  assert read(tmp_path, content, metric='perplexity', row='Kneser-Ney, order 5') == 95.9
  assert read(tmp_path, {'accuracy': 0.81}, metric='accuracy, %', value='80.5') == pytest.approx(81)
  assert read(tmp_path, {'f1': 81.0}, metric='F1', value='80.5') == 81.0, 'of answers, in per cent already'
  analogies = {'analogies': {'total': 0.1, 'sections': {'a': [1, 2]}}}
  assert read(tmp_path, analogies, metric='analogies, %') == pytest.approx(10)
  similarity = {'similarity': {'/d/men.csv': {'spearman': 0.4}, '/d/ws353.csv': {'spearman': 0.5}}}
  assert read(tmp_path, similarity, metric="Spearman's correlation", dataset='MEN') == pytest.approx(40)
  records = [{'split': split, 'perplexity_per_token': x} for split, x in (('valid', 1.0), ('test', 2.0))]
  assert read(tmp_path, records, metric='perplexity') == 2.0
  lm, classifier = {'metric': 'perplexity_per_token', 'value': 30.0}, {'metric': 'error_percent', 'value': 8.0}
  assert read(tmp_path, {'1_lm': lm, '2_classifier': classifier}, metric='error %', row='classifier 2') == 8.0


@pytest.mark.parametrize(
  ('content', 'cells', 'message'),
  [
    ({'loss': 1.0}, {}, 'has no ppl of own/line'),
    ({'perplexity_per_token': 1.0, 'split': 'test'}, {'split': 'valid'}, 'got the split test; expected valid'),
    ({'perplexity_per_token': 1.0, 'dataset': 'wikitext2'}, {}, 'got the data set wikitext2; expected ptb'),
    ({'bleu': 1.0, 'bleu_tokenised': 2.0}, {'metric': 'BLEU'}, 'several metrics that may be the BLEU'),
    ([{'n': 1, 'perplexity_per_token': 1.0}, {'n': 2, 'perplexity_per_token': 2.0}], {}, 'several metrics that may be'),
    ({'loss': 1.0}, {'metric': 'wonder'}, 'metric: got wonder; expected a metric that lmx writes'),
  ],
)
def test_metric_that_is_not_there_or_not_the_only_one(tmp_path, content, cells, message):
  with pytest.raises(InputError, match=message):
    read(tmp_path, content, **cells)
