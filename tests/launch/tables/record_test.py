"""Metrics of runs as lines of measured.csv, and the pages that show them."""

from __future__ import annotations

import csv

import pytest

from launch.tables import measured, pages, record
from launch.tables import plan as plans
from launch.tables.__main__ import main
from tests.launch.tables.runs import put


@pytest.fixture
def file(tmp_path, monkeypatch):
  """An empty measured.csv."""
  path = tmp_path / 'measured.csv'
  path.write_text(','.join(measured.Measurement._fields) + '\n')
  monkeypatch.setattr(measured, 'FILE', path)
  measured.measurements.cache_clear()
  yield path
  measured.measurements.cache_clear()


def lines_of(path) -> list[dict[str, str]]:
  with path.open(newline='') as opened:
    return list(csv.DictReader(opened))


def test_metrics_are_recorded_and_replaced(tmp_path, file, capsys):
  words = ['rnn_lm_ptb', f'--runs={tmp_path}', '--rows=small/*', '--collect', '--seeds=1', '--record']
  assert main(words) == 0 and not lines_of(file), 'of runs that are not done'
  for value in (115.62, 114.8):
    figures = {'split': 'test', 'device': '1 x cpu', 'data_hash': 'fded5c80', 'training_seconds': 3078.0}
    put(tmp_path, 'rnn_lm/ptb_small', 'results', perplexity_per_token=value, **figures)
    assert main(words) == 0
  assert f'1 lines of {file} written' in capsys.readouterr().out
  [line] = lines_of(file)
  assert line['id'] == 'rnn_lm/ptb/small/test' and line['value'] == '114.8' and line['seeds'] == '0'
  assert line['command'] == 'python -m launch.tables rnn_lm_ptb --rows=rnn_lm/ptb/small/test --seeds=1'
  assert (line['system'], line['split'], line['metric'], line['hardware']) == ('rnn_lm', 'test', 'ppl', '1 x cpu')
  assert (line['data'], line['data_hash'], line['hours'], line['start']) == ('ptb', 'fded5c80', '0.855', '')
  assert not line['differs'] and not line['spread'] and len(line['date']) == 10


def test_record_names_data_and_the_run_that_a_row_starts_from(file):
  runs = lambda name: {run.name: run for run in plans.table(name).runs}
  bert, ulmfit = runs('bert_glue'), runs('ulmfit')
  row = next(row for row in plans.table('bert_glue').rows if 'imported' in ' '.join(bert[row.run].settings))
  assert record._starts(bert[row.run], bert) == ['imported bert_base'] and record._data(row, bert, 'cola') == 'glue'
  fine_tuned = next(row for row in plans.table('ulmfit').rows if plans.dependencies(ulmfit[row.run], ulmfit))
  assert record._data(fine_tuned, ulmfit, '').split()[0] == 'wikitext103'
  assert record._data(plans.table('ntm').rows[0], runs('ntm'), '') == 'generated'
  assert record._data(plans.table('quickstart').rows[0], runs('quickstart'), 'embedded') == 'embedded'


@pytest.mark.parametrize(
  'words,message',
  [
    (['--record'], '--record is for the rows of a table'),
    (['ntm', '--list', '--rows=copy'], '--rows is for the rows of a table'),
    (['--list', '--decks'], '--list, --decks: expected one of these'),
    (['--pages=/dev/null/pages'], '--pages: got /dev/null/pages; expected a path of folders'),
  ],
)
def test_options_that_do_not_go_together_are_rejected(capsys, words, message):
  assert main(words) == 2
  assert message in capsys.readouterr().err


def test_broken_file_is_reported(file, capsys):
  file.write_text(file.read_text() + 'a,b\n')
  assert main(['--decks']) == 2
  assert f'{file}, line 2: got 2 cells; expected {len(measured.Measurement._fields)}' in capsys.readouterr().err
  measured.measurements.cache_clear()
  file.unlink()
  assert main(['--decks']) == 0


def test_extra_fields_of_older_records_are_kept(tmp_path, file):
  words = ['rnn_lm_ptb', f'--runs={tmp_path}', '--rows=small/*', '--collect', '--seeds=1', '--record']
  put(tmp_path, 'rnn_lm/ptb_small', 'results', perplexity_per_token=114.8, split='test', commit='abc', protocol='long')
  assert main(words) == 0
  put(tmp_path, 'rnn_lm/ptb_small', 'results', perplexity_per_token=114.8, split='test')
  assert main(words) == 0
  [line] = lines_of(file)
  assert (line['commit'], line['protocol']) == ('abc', 'long')
  saved = {'metric': 'perplexity_per_token', 'interval': [113.9, 115.96], 'rows': {'count': 9}}
  put(tmp_path, 'rnn_lm/ptb_small', 'results', perplexity_per_token=114.9, split='test', **saved)
  assert main(words) == 0
  [line] = lines_of(file)
  assert line['interval'] == '113.90 115.96'
  assert (line['value'], line['commit'], line['protocol']) == ('114.9', '', '')


def test_line_by_another_command_is_not_replaced(tmp_path, file, capsys):
  words = ['rnn_lm_ptb', f'--runs={tmp_path}', '--rows=small/*', '--collect', '--seeds=1', '--record']
  put(tmp_path, 'rnn_lm/ptb_small', 'results', perplexity_per_token=114.8, split='test')
  assert main(words) == 0
  file.write_text(file.read_text().replace(' --seeds=1,', ' --seeds=1 --options=epochs=6,'))
  measured.measurements.cache_clear()
  before = file.read_text()
  assert main(words) == 2 and file.read_text() == before
  assert '--record: rnn_lm/ptb/small/test: got `python -m launch.tables' in capsys.readouterr().err


def test_label_of_a_row_of_ours_is_kept(tmp_path, file):
  words = ['quickstart', f'--runs={tmp_path}', '--rows=quickstart/ntm', '--collect', '--record']
  put(tmp_path, 'quickstart/ntm', 'results', bits_per_sequence=71.9, dataset='generated')
  assert main(words) == 0
  file.write_text(file.read_text().replace('quickstart,quickstart/ntm,generated,', 'quickstart,ntm,copying,'))
  measured.measurements.cache_clear()
  put(tmp_path, 'quickstart/ntm', 'results', bits_per_sequence=0.11, dataset='generated')
  assert main(words) == 0
  [line] = lines_of(file)
  assert (line['row'], line['dataset'], line['value'], line['data']) == ('ntm', 'copying', '0.11', 'generated')


def test_pages_show_what_was_recorded(tmp_path, file):
  put(tmp_path, 'rnn_lm/ptb_small', 'results', perplexity_per_token=114.8, split='test')
  assert main(['rnn_lm_ptb', f'--runs={tmp_path}', '--rows=small/*', '--collect', '--seeds=1', '--record']) == 0
  assert main([f'--pages={tmp_path}/pages']) == 0
  names = {path.name for path in (tmp_path / 'pages').iterdir()}
  assert {'README.md', 'decks.md', 'rnn_lm.md', 'bert.md'} <= names
  assert names == {'README.md', 'decks.md', *(f'{name}.md' for name in pages.by_system())}
  text = (tmp_path / 'pages/rnn_lm.md').read_text()
  assert '| rnn_lm/ptb/small/test |' not in text and '| 114.5 | 114.8 |' in text
