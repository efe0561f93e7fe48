"""A new metric enters one place, its objective: evaluation, selection, reports and sweeps read its declaration."""

from __future__ import annotations

import json

import pytest

from launch.sweep import metrics as sweep
from lmx import objectives, train
from lmx.cli import main
from lmx.config import resolve
from lmx.metrics.metric import Metric
from tests import small_text

SETTINGS = ('parallel.data=1', 'train.steps=4', 'train.eval_every=2', 'samples.count=0', 'evaluation.baselines=false')


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A run selected by `miss_rate`, here better where it is higher, so that the worst loss is the best."""
  folder, objective = tmp_path_factory.mktemp('runs'), objectives.get('causal_lm')
  report = objective.report
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(objective, 'METRICS', (*objective.METRICS, Metric('miss_rate', True, '.1%')))
    patch.setattr(
      objective, 'report', lambda *given: (found := report(*given)) | {'miss_rate': found['loss'] / (1 + found['loss'])}
    )
    text = small_text.settings(folder, lines=40)
    settings = [*SETTINGS, *text, 'train.best_by=miss_rate', 'optim.lr=0.1']
    assert train.train(resolve.load('experiments/rnn_lm/quickstart.py:tiny', settings), folder / 'run') == 0
    yield folder / 'run'


def test_new_metric_selects_the_checkpoint_and_is_in_the_results(run):
  log = [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]
  rates = {record['step']: record['miss_rate'] for record in log if record['split'] == 'valid'}
  results = json.loads((run / 'results.json').read_text())
  assert len(rates) == 2 and rates[2] > rates[4]
  assert results['step'] == 2 and results['validation_miss_rate'] == pytest.approx(rates[2])
  assert sweep.measure(run, sweep.Metric('miss_rate', 'maximize')).value == pytest.approx(rates[2])


def test_new_metric_is_in_the_reports(run, tmp_path, capsys):
  rate = json.loads((run / 'results.json').read_text())['miss_rate']
  assert main.main(['evaluate', f'--workdir={run}', '--no-baselines']) == 0
  assert f'  {"miss rate":24} {rate:12.1%}\n' in capsys.readouterr().out
  assert main.main(['results', str(run), '--metric=miss_rate']) == 0
  assert f'{rate:10.3f}' in capsys.readouterr().out
  assert main.main(['report', str(run), f'--output={tmp_path}/report.html']) == 0
  assert f'>{rate:.1%}</data>' in (tmp_path / 'report.html').read_text()


def test_metric_without_a_declaration_is_rejected(run, monkeypatch):
  objective = objectives.get('causal_lm')
  monkeypatch.setattr(objective, 'METRICS', tuple(one for one in objective.METRICS if one.name != 'miss_rate'))
  with pytest.raises(ValueError, match='miss_rate'):
    main.main(['evaluate', f'--workdir={run}', '--no-baselines'])
