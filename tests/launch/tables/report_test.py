"""A table as Markdown, HTML and a picture."""

from __future__ import annotations

import json

import pytest

from launch.tables import collection, curves, measured, report, values, verdict
from launch.tables import plan as plans
from launch.tables.__main__ import main
from tests import browser
from tests.launch.tables.runs import make_tries, put, rows_of, run


def test_table_lists_missing_runs_and_protocols(tmp_path, program):
  assert run(tmp_path, '--collect') == 0 and not program()
  assert (
    all('| not run' in line or '| recorded: ' in line for line in rows_of(tmp_path)) and len(rows_of(tmp_path)) == 22
  )
  text = (tmp_path / 'tables/rnn_lm_ptb.md').read_text()
  assert 'lmx train --config=experiments/rnn_lm/ptb.py:large --workdir=DIR/rnn_lm/ptb_large/seed0' in text
  assert (
    '--which=last --config.evaluation.batch_size=20 --no-baselines --output=DIR/rnn_lm/ptb_large/seed0/valid.json'
    in text
  )
  assert '--workdir=DIR/rnn_lm/ptb_medium/seed0 --ensemble=DIR/rnn_lm/ptb_medium/seed1 --which=last' in text
  assert "| ptb | ptb.train.txt, ptb.valid.txt, ptb.test.txt | LDC's licence" in text
  assert 'Published: Zaremba et al. 2014, table 1 (checked' in text


def test_table_without_published_values_compares_nothing(tmp_path):
  assert main(['quickstart', f'--runs={tmp_path}', '--rows=*gpt2*', '--collect']) == 0
  text, page = ((tmp_path / f'tables/quickstart.{end}').read_text() for end in ('md', 'html'))
  for word in ('Published', 'Difference', 'In spreads', 'band'):
    assert word not in text and word not in page
  assert '<ul>' not in page and '.png' not in page and not (tmp_path / 'tables/quickstart.png').exists()
  assert '| Row | Data | Figure | Ours | Measured on | Time |\n|---|---|---|---:|---|---:|' in text
  assert len(rows_of(tmp_path, 'quickstart')[0].split(' | ')) == 6


def test_differences_are_in_units_of_the_published_spread(tmp_path):
  put(tmp_path, 'bert/nvidia_squad', 'results', f1=91.0, exact_match=84.0, split='valid')
  words = ['bert_nvidia', f'--runs={tmp_path}', '--collect', '--seeds=1', '--rows=bert/nvidia_seeds/squad*']
  assert main(words) == 0
  em, f1 = (line.split(' | ') for line in rows_of(tmp_path, 'bert_nvidia'))
  assert em[3:8] == ['83.96 ± 0.266', '84.00 (1 seed)', '+0.04', '+0.2', 'yes (±0.53)']
  assert f1[3:8] == ['90.68 ± 0.160', '91.00 (1 seed)', '+0.32', '+2.0', 'yes (±0.32)']
  assert (tmp_path / 'tables/bert_nvidia.png').read_bytes()[:4] == b'\x89PNG'


def test_recorded_metrics_are_compared_like_those_of_runs(tmp_path, monkeypatch):
  line = dict.fromkeys(measured.Measurement._fields, '') | {'id': 'rnn_lm/ptb/small/test', 'hardware': 'two cores'}
  one = measured.Measurement(**line | {'value': '115.6', 'seeds': '0', 'metric': 'ppl', 'command': 'lmx train'})
  own = one._replace(id='cfnet/scenes/m4/far', value='97.32', spread='3.402', seeds='0 1 2')

  def cells(*lines: measured.Measurement, table: str = 'rnn_lm_ptb', row: str = 'small/test') -> list[str]:
    monkeypatch.setattr(measured, 'measurements', lambda: lines)
    assert main([table, f'--runs={tmp_path}', '--collect', f'--rows={row}']) == 0
    return rows_of(tmp_path, table)[0].split(' | ')

  assert cells(one)[4:9] == ['recorded: 115.6', '+1.1', '', 'yes (±2.3)', 'two cores']
  seeds = one._replace(value='115.60', spread='0.500', seeds='0 1 2')
  assert cells(seeds)[4:8] == ['recorded: 115.60 ± 0.500 (3 seeds)', '+1.1', '', 'yes (114.4 to 116.8)']
  assert cells(seeds._replace(spread='0.400'))[7] == 'no (114.6 to 116.6)'
  assert cells(one._replace(differs='other data'))[4:8] == ['recorded: 115.6', '', '', '']
  put(tmp_path, 'rnn_lm/ptb_small', 'results', perplexity_per_token=119.0, split='test')
  assert cells(one)[4:8] == ['119.0 (1 seed)', '+4.5', '', 'no (±2.3)'], 'a run comes before the record'
  assert 'recorded: 97.32 ± 3.402 (3 seeds)' in cells(own, table='cfnet', row='scenes/m4/far')[3]


@pytest.mark.slow
def test_report_fits_a_phone(tmp_path, monkeypatch):
  monkeypatch.setattr(measured, 'measurements', tuple)
  assert main(['bert_squad', f'--runs={tmp_path}', '--collect']) == 0
  with browser.browser(tmp_path / 'profile') as page:
    page.open(tmp_path / 'tables/bert_squad.html', width=390)
    assert page.value('document.documentElement.scrollWidth') <= 390
    assert page.value('document.querySelector(".scroll").scrollWidth') > 390, 'its tables are wider'


def test_other_protocols_are_shown_but_not_compared(tmp_path, capsys):
  for rate, matthews in (('', 0.571), ('_3e-5', 0.583), ('_4e-5', 0.58), ('_5e-5', 0.575)):
    put(tmp_path, f'bert/base_cola{rate}', 'results', matthews=matthews, validation_loss=0.5, split='valid')
  assert main(['bert_glue', f'--runs={tmp_path}', '--collect', '--seeds=1', '--rows=glue_test/base/cola']) == 0
  cells = rows_of(tmp_path, 'bert_glue')[0].split(' | ')
  assert cells[3:8] == ['52.1 *', '58.3 (1 seed)', '', '', '']
  assert (
    "* Not compared: printed: GLUE's test server; ours: the validation split, on which the rate is chosen."
    in capsys.readouterr().out
  )


def test_table_with_curves_draws_them(tmp_path):
  table, plan = make_tries(tmp_path, low=((0.5, 0.9), (0.6, 0.8)), high=((0.7, 0.7), (0.2, 0.6)))
  found = collection.collect(table, list(table.rows), plan)
  axes, *others = curves.figure(table, values.of_results(found)).axes
  assert not others, 'a panel without a figure'
  assert [text.get_text() for text in axes.get_legend().get_texts()] == ['one']
  line, bars = axes.containers[0].lines[0], axes.containers[0].lines[2][0]
  assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([pytest.approx(85.0)], [pytest.approx(65.0)])
  low, high = bars.get_segments()[0][:, 1]
  assert high - low == pytest.approx(2 * found[0].deviation) and axes.get_xscale() == 'log'
  report.draw(tmp_path / 'curves.png', table, found)
  assert (tmp_path / 'curves.png').read_bytes()[:4] == b'\x89PNG'
  nothing = collection.collect(table, list(table.rows), plans.Plan((tmp_path / 'no',)))
  report.draw(tmp_path / 'empty.png', table, nothing)
  assert (tmp_path / 'empty.png').exists()


def test_parameter_counts_are_integers(tmp_path):
  rows = {'copy': ('lstm_controller', 65_817), 'repeat_copy': ('lstm_baseline', 5_312_007)}
  for task, (network, count) in rows.items():
    folder = tmp_path / f'ntm/described_{task}_{network.partition("_")[2].replace("controller", "lstm")}'
    folder.mkdir(parents=True)
    (folder / 'described.json').write_text(json.dumps({'parameters': count}))
  wanted = ','.join(f'params_{network}/{task}' for task, (network, _) in rows.items())
  assert main(['ntm', f'--runs={tmp_path}', f'--rows={wanted}', '--collect']) == 0
  text = (tmp_path / 'tables/ntm.md').read_text()
  assert '| parameters | 67,561 | 65,817 | -1,744 |  | no |' in text
  assert '| parameters | 5,312,007 | 5,312,007 | +0 |  | yes |' in text
  assert '## How each is measured' in text and '## Data' not in text
  assert '<h2>Data</h2>' not in (tmp_path / 'tables/ntm.html').read_text()


def test_tolerance_comes_from_row_spread_or_metric():
  printed = plans.published()
  row = next(row for row in plans.table('bert_nvidia').rows if row.id == 'bert/nvidia_seeds/squad_large/f1')
  assert verdict.band(row, printed[row.id]) == pytest.approx(0.32)
  assert verdict.band(row._replace(band=1.5), printed[row.id]) == 1.5
  ppl = plans.table('rnn_lm_ptb').rows[1]
  assert verdict.band(ppl, printed[ppl.id]) == pytest.approx(0.02 * 114.5)
