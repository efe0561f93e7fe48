"""Comparison of runs by their saved rows or over their seeds, and the comparisons that are refused."""

from __future__ import annotations

import hashlib
import json
import math
import re

import numpy as np
import pytest
from scipy import stats

from lmx import statistics
from lmx.cli import main
from lmx.errors import InputWarning
from lmx.metrics import translation

TRUTH = ['yes', 'no'] * 30


def put(folder, rows=None, kind='classification', seed=0, **more):
  """Write results.json, and rows.jsonl if there are rows."""
  folder.mkdir(parents=True)
  results = {'name': 'rte', 'model': 'bert:tiny', 'dataset': 'glue/rte', 'split': 'valid', 'data_hash': 'a' * 64}
  results |= {'protocol': 'texts', 'seed': seed, **more}
  if rows is not None:
    text = ''.join(json.dumps({'row': i, **row}) + '\n' for i, row in enumerate(rows))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    results['rows'] = {'kind': kind, 'count': len(rows), 'unit': 'rows', 'digest': digest}
    (folder / 'rows.jsonl').write_text(text)
  (folder / 'results.json').write_text(json.dumps(results))
  return str(folder)


def classifier(folder, wrong, truth=TRUTH, **more):
  """Write a run that errs in the given rows."""
  other = {'yes': 'no', 'no': 'yes'}
  rows = [
    {'label': label, 'prediction': other[label] if i in wrong else label, 'loss': 0.5} for i, label in enumerate(truth)
  ]
  accuracy = 1 - len(wrong) / len(truth)
  found = {'metric': 'accuracy', 'accuracy': accuracy, 'positive': 'yes', 'f1': 0.5, 'labels': ['no', 'yes']}
  return put(folder, rows, **{**found, **more})


def compare(tmp_path, *words):
  assert main.main(['compare', *words, f'--output={tmp_path}/table.json']) == 0
  return json.loads((tmp_path / 'table.json').read_text())


@pytest.fixture
def three(tmp_path):
  wrong = {'a': range(20), 'b': range(15, 24), 'c': range(4, 20)}
  return [classifier(tmp_path / name, set(rows)) for name, rows in wrong.items()]


def test_accuracy_by_mcnemar_with_holms_correction(three, tmp_path, capsys):
  found = compare(tmp_path, *three)
  a, b, c = found['systems']
  assert found['test'] == 'mcnemar' and found['metric'] == 'accuracy' and a['p'] is None
  p = [stats.binomtest(15, 19).pvalue, stats.binomtest(4, 4).pvalue]
  assert [b['p'], c['p']] == pytest.approx(p)
  assert [b['adjusted'], c['adjusted']] == pytest.approx(statistics.holm(p).tolist())
  right = np.array([0] * 20 + [1] * 40)
  assert (a['interval']['low'], a['interval']['high']) == pytest.approx(statistics.bootstrap(right)[:2])
  assert b['difference'] == pytest.approx(11 / 60) and b['difference_interval']['low'] > 0
  out = capsys.readouterr().out
  assert "McNemar's exact test" in out and 'accuracy on glue/rte/valid, 60 rows' in out and '+0.1833' in out
  plain = compare(tmp_path, *three, '--correction=none')['systems'][1]
  assert plain['adjusted'] == plain['p']


def test_f1_by_randomization_and_bootstrap(three, tmp_path):
  from lmx.evaluation import rows

  for test, function in (('', statistics.approximate_randomization), ('bootstrap', statistics.paired_bootstrap)):
    found = compare(tmp_path, *three[:2], '--metric=f1', *([f'--test={test}'] if test else []))
    assert found['test'] == test or found['test'] == 'randomization'
    each = []
    for folder in (tmp_path / 'a', tmp_path / 'b'):
      results = json.loads((folder / 'results.json').read_text())
      each.append(rows.measure('f1', rows.read(folder, results), results))
    assert found['systems'][1]['p'] == pytest.approx(function(each[0].values, each[1].values, each[0].statistic))


def test_bleu_shows_sacrebleus_own_test(tmp_path, capsys):
  from sacrebleu.metrics import BLEU
  from sacrebleu.significance import PairedTest

  draw = np.random.default_rng(0)
  references = [' '.join(draw.choice(list('abcdefg'), 12)) for _ in range(30)]
  texts = [
    [' '.join(w if draw.random() > share else 'x' for w in line.split()) for line in references] for share in (0.3, 0.2)
  ]
  runs = []
  for name, hypotheses in zip('ab', texts, strict=True):
    bleu = translation.bleu(hypotheses, references)
    rows = [{'source': 's', 'hypothesis': h, 'reference': r} for h, r in zip(hypotheses, references, strict=True)]
    metrics = {'metric': 'bleu', 'bleu': bleu.score, 'bleu_signature': bleu.signature}
    runs.append(put(tmp_path / name, rows, 'translation', **metrics))
  one = compare(tmp_path, *runs)['systems'][1]
  own = PairedTest(list(zip('ab', texts, strict=True)), {'bleu': BLEU()}, [references], test_type='ar')()[1]['BLEU'][1]
  assert one['library'] == ["sacreBLEU's paired approximate randomization", pytest.approx(own.p_value)]
  assert one['p'] == pytest.approx(own.p_value, abs=0.02) and "sacreBLEU's paired" in capsys.readouterr().out


def test_seeds_with_rows_keep_their_rows_together(tmp_path):
  for name, shift in (('a', 0), ('b', 6)):
    for seed in range(2):
      classifier(tmp_path / name / str(seed), set(range(shift + seed, 20)), seed=seed)
  found = compare(tmp_path, str(tmp_path / 'a'), str(tmp_path / 'b'))
  one = found['systems'][1]
  assert found['test'] == 'randomization' and len(one['workdirs']) == 2 and one['interval']['method'] == 't'
  assert one['difference'] == pytest.approx(0.1) and one['p'] < 0.05


def test_seeds_without_rows_by_welch(tmp_path, capsys):
  values = {'a': [0.61, 0.66, 0.58], 'b': [0.70, 0.72]}
  for name, some in values.items():
    for seed, value in enumerate(some):
      put(tmp_path / name / str(seed), seed=seed, metric='accuracy', accuracy=value)
  found = compare(tmp_path, str(tmp_path / 'a'), str(tmp_path / 'b'))
  expected = stats.ttest_ind(values['b'], values['a'], equal_var=False)
  assert found['test'] == 't' and found['systems'][1]['p'] == pytest.approx(expected.pvalue)
  assert found['systems'][0]['interval']['low'] == pytest.approx(statistics.t_interval(values['a']).low)
  assert "Welch's t test over seeds" in (out := capsys.readouterr().out) and 'not all runs saved their rows' in out


def test_uncharged_unknown_words_are_named(tmp_path, capsys):
  runs = [str(tmp_path / name) for name in 'ab']
  for i in range(4):
    unknown = {'unknown_words': 7} if i < 2 else {}
    put(tmp_path / 'aabb'[i] / str(i), seed=i, metric='bits_per_byte', bits_per_byte=2.0 + i, **unknown)
  compare(tmp_path, *runs)
  assert 'a: 7 unknown words not charged' in (lines := capsys.readouterr().out.splitlines())
  assert not any(line.startswith('b: ') for line in lines)


@pytest.mark.parametrize(
  'change, options, message',
  [
    ({'data_hash': 'b' * 64, 'truth': ['no', 'yes'] * 30}, (), "line 1: label: got 'no'"),
    ({'split': 'test'}, (), 'split: got test; expected valid'),
    ({'truth': ['no', 'yes'] * 30}, (), r"line 1: label: got 'no'; expected 'yes'"),
    ({'truth': TRUTH[:50]}, (), 'got 50 rows'),
    ({}, ('--metric=f1', '--test=mcnemar'), '--test: got mcnemar with "f1"'),
    ({}, ('--metric=acuracy',), '--metric: got "acuracy".*did you mean "accuracy"'),
    ({'accuracy': math.nan}, (), 'accuracy: got nan; expected a finite number'),
    ({}, ('--test=t',), "Welch's t test: got 1 and 1 seeds"),
  ],
)
def test_runs_that_cannot_be_compared(tmp_path, capsys, change, options, message):
  runs = [classifier(tmp_path / 'a', {1, 2}), classifier(tmp_path / 'b', {3}, **change)]
  assert main.main(['compare', *runs, *options]) == 2
  assert re.search(message, capsys.readouterr().err)


def test_rows_with_equal_labels_are_compared_whatever_the_tokenizer(tmp_path, capsys):
  runs = [classifier(tmp_path / 'a', {1, 2}), classifier(tmp_path / 'b', {3}, data_hash='b' * 64)]
  with pytest.warns(InputWarning, match='data_hash: got b.* compared by their labels'):
    assert compare(tmp_path, *runs)['test'] == 'mcnemar'
  seeds = [
    put(tmp_path / f'c{seed}', seed=seed, data_hash=str(seed), metric='accuracy', accuracy=0.5) for seed in (0, 1)
  ]
  assert main.main(['compare', *seeds]) == 2  # no rows
  assert 'data_hash: got 1; expected 0' in capsys.readouterr().err


def test_runs_without_rows_are_told_how_to_get_them(tmp_path, capsys):
  runs = [classifier(tmp_path / 'a', {1}), put(tmp_path / 'b', metric='accuracy', accuracy=0.5)]
  assert main.main(['compare', *runs]) == 2
  assert f'lmx evaluate --workdir={runs[1]} --split=valid --which=best --save_rows=DIR' in capsys.readouterr().err
  assert main.main(['compare', runs[0]]) == 2
  assert main.main(['compare', runs[0], str(tmp_path / 'none')]) == 2


def test_seeds_of_other_settings_are_refused(tmp_path, capsys):
  run = classifier(tmp_path / 'a', {1})
  for seed in range(2):
    put(tmp_path / 'b' / str(seed), seed=seed, metric='accuracy', accuracy=0.5, protocol=f'batch {seed}')
  assert main.main(['compare', run, str(tmp_path / 'b')]) == 2
  assert 'got runs of different settings or data' in capsys.readouterr().err
