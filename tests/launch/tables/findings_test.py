"""Differences of systems on minimal pairs: their statistics, their sentences, and the accuracies that are recorded."""

from __future__ import annotations

import json

import numpy as np
import pytest

from experiments.tables import Matrix, MatrixRow, Row, Table, lineage
from launch.tables import collection, findings, paradigms, phenomena, report
from launch.tables import plan as plans
from lmx.errors import InputError

NAMES = tuple(f'{"island" if i % 2 else "binding"}/paradigm_{i}' for i in range(20))


def accuracies(mean: float, seeds: int = 3, scale: float = 5.0, seed: int = 0) -> paradigms.Accuracies:
  drawn = np.random.default_rng(seed).normal(mean, scale, (seeds, len(NAMES)))
  return paradigms.Accuracies(tuple(map(str, range(seeds))), NAMES, tuple(map(tuple, drawn.tolist())))


def test_differences_are_corrected_for_all_pairs_of_a_group():
  systems = {name: accuracies(mean, seed=i) for i, (name, mean) in enumerate([('A', 60), ('B', 60), ('C', 75)])}
  found = findings.of_groups({'small': systems, 'large': {'A': systems['A'], 'C': systems['C']}})
  assert [(one.group, one.compared) for one in found] == [('small', 3)] * 3 + [('large', 1)]
  raw = {frozenset((one.better, one.worse)): _p(systems, one) for one in found[:3]}
  corrected = dict(zip(raw, np.minimum(1, _holm(list(raw.values()))), strict=True))
  assert {frozenset((one.better, one.worse)): one.p for one in found[:3]} == pytest.approx(corrected, abs=0.005)
  assert [one.is_shown for one in found] == [True, True, False, True]
  assert [one.difference for one in found] == sorted((one.difference for one in found[:3]), reverse=True) + [
    found[3].difference
  ]
  assert all(one.low < one.difference < one.high for one in found)


def _p(systems, one):
  """Return the share of all exchanges of paradigms whose difference is at least this one."""
  a, b = (np.mean(systems[name].values, axis=0) for name in (one.better, one.worse))
  signs = ((np.arange(2 ** len(NAMES), dtype=np.int32)[:, None] >> np.arange(len(NAMES))) & 1) * 2 - 1
  return np.mean(np.abs(signs.astype(np.float32) @ (a - b)) >= abs(np.sum(a - b)) * (1 - 1e-6))


def _holm(values):
  order = np.argsort(values)
  found = np.empty(len(values))
  found[order] = np.maximum.accumulate(np.sort(values) * np.arange(len(values), 0, -1))
  return found


def test_differences_that_the_correction_loses_are_not_shown():
  rng = np.random.default_rng(226)
  a = rng.normal(60, 5, len(NAMES))
  b = a + rng.normal(1, 2, len(NAMES))
  each = {'A': a, 'B': b, 'C': b + rng.normal(1, 2, len(NAMES))}
  systems = {name: paradigms.Accuracies(('0',), NAMES, (tuple(values),)) for name, values in each.items()}
  found = {(one.better, one.worse): one for one in findings.of_groups({'small': systems})}
  assert found['C', 'A'].is_shown
  for pair in (('B', 'A'), ('C', 'B')):
    alone = findings.of_groups({'small': {name: systems[name] for name in pair}})[0]
    assert alone.is_shown and alone.p < 0.05 < found[pair].p and found[pair].low > 0 and not found[pair].is_shown


def test_interval_over_paradigms_and_seeds():
  """Its variance is that of the paradigms plus those of the seeds of both, each with n in the denominator."""
  rng = np.random.default_rng(0)
  paradigm_P, seed_S = rng.normal(0, 4, 40), rng.normal(0, 3, 5)
  a, b = 60 + paradigm_P + seed_S[:, None], np.full((5, 40), 60.0)
  low, high = findings._interval(a, b)
  variance = paradigm_P.var() / 40 + seed_S.var() / 5
  assert (high - low) / 2 == pytest.approx(1.96 * variance**0.5, rel=0.05)
  one_seed = findings._interval(a[:1], b[:1])
  assert np.diff(one_seed) / 2 == pytest.approx(1.96 * (paradigm_P.var() / 40) ** 0.5, rel=0.05)


def test_sentences_have_the_interval_and_the_seeds():
  one = findings.Finding('4 million tokens', 'GPT-2', 'LSTM', 3.21, 1.04, 5.4, 0.0123, (3, 3), 36)
  text = 'GPT-2 prefers the grammatical sentence more often than LSTM: +3.2 points (95% interval 1.0 to 5.4; p = 0.012 '
  assert findings.sentence(one) == text + 'after Holm for 36 comparisons; 3 seeds each)'
  assert 'p < 0.001' in findings.sentence(one._replace(p=0.0001))
  text = 'GPT-2 and LSTM: +3.2 points (95% interval -1.0 to 5.4; 3 and 1 seeds)'
  assert findings.sentence(one._replace(low=-1.04, seeds=(3, 1))) == text
  assert '; 1 seed each)' in findings.sentence(one._replace(p=0.2, seeds=(1, 1)))


def result(folder, key: str, *seeds: paradigms.Accuracies, row: Row | None = None) -> collection.RowResult:
  row, found = row or Row(key, 'run', 'accuracy', 'blimp'), []
  for number, one in enumerate(seeds):
    where = folder / key / f'seed{number}'
    where.mkdir(parents=True, exist_ok=True)
    listed = [
      dict(zip(('phenomenon', 'name'), name.split('/'), strict=True)) | {'accuracy': value / 100}
      for name, value in zip(one.paradigms, one.values[0], strict=True)
    ]
    (where / 'blimp.json').write_text(json.dumps({'accuracy': 0.6, 'paradigms': listed}))
    found.append(collection.SeedResult(0.6, number, 1.0, '', 0.0, where, ''))
  return collection.RowResult(row, len(seeds), found, [])


def test_accuracies_of_runs_are_recorded_by_paradigm(tmp_path, monkeypatch):
  monkeypatch.setattr(paradigms, 'FILE', tmp_path / 'paradigms.csv')
  monkeypatch.setattr(paradigms, 'COUNT', 20)
  first, second, third = (accuracies(60, 1, seed=i) for i in range(3))
  found = paradigms.of_results([result(tmp_path, 'gpt2', first, second), result(tmp_path, 'lstm', third)])
  assert found['gpt2'].seeds == ('0', '1') and found['gpt2'].paradigms == NAMES
  paradigms.record(found)
  paradigms.record({'lstm': first})
  known = paradigms.recorded()
  assert known['gpt2'].values == pytest.approx(np.round([*first.values, *second.values], 2), abs=1e-9)
  assert known['lstm'].values == pytest.approx(np.round(first.values, 2), abs=1e-9)
  rows = (MatrixRow(('GPT-2', 'gpt2'), 'one'), MatrixRow(('LSTM', 'lstm'), 'two'), MatrixRow(('no', 'x')))
  table = Table('', '', (), (), matrix=Matrix((), rows))
  assert paradigms.of_table(table, known) == {'one': {'GPT-2': known['gpt2']}, 'two': {'LSTM': known['lstm']}}


def test_other_paradigms_are_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(paradigms, 'FILE', tmp_path / 'paradigms.csv')
  monkeypatch.setattr(paradigms, 'COUNT', 20)
  paradigms.record({'gpt2': accuracies(60)})
  before = paradigms.FILE.read_text()
  fewer = paradigms.Accuracies(('0',), NAMES[1:], (tuple(range(19)),))
  others = fewer._replace(paradigms=('a/b', *NAMES[1:]), values=(tuple(range(20)),))
  with pytest.raises(InputError, match='lstm: got 19 paradigms; expected the 20 of BLiMP'):
    paradigms.record({'lstm': fewer})
  with pytest.raises(InputError, match='lstm: got 20 paradigms, others than the 20'):
    paradigms.record({'lstm': others})
  assert paradigms.FILE.read_text() == before
  rows = (MatrixRow(('GPT-2', 'gpt2'), 'one'), MatrixRow(('LSTM', 'lstm'), 'one'))
  for one, count in ((fewer, 19), (others, 20)):  # other names would be paired by position
    with pytest.raises(InputError, match=f'lstm: got {count} paradigms, others than the 20 of gpt2'):
      paradigms.of_table(Table('', '', (), (), matrix=Matrix((), rows)), {'gpt2': accuracies(60), 'lstm': one})
  with pytest.raises(InputError, match='got seeds with different paradigms'):
    paradigms.of_results([result(tmp_path, 'lstm', accuracies(60, 1), fewer)])
  paradigms.FILE.write_text(before + 'lstm,0,1.0\n')
  with pytest.raises(InputError, match='line 5: got 3 cells; expected 22'):
    paradigms.recorded()


def test_report_has_the_findings_and_the_phenomena_of_each_group(tmp_path, monkeypatch):
  monkeypatch.setattr(paradigms, 'FILE', tmp_path / 'paradigms.csv')
  monkeypatch.setattr(paradigms, 'COUNT', 20)
  table = lineage.build('budget=1,systems=nplm+gpt2+lstm,lr=1e-3,tasks=none')
  rows = {row.id: row for row in table.rows}
  results = []
  for name, mean in (('gpt2', 75), ('lstm', 60), ('nplm', 60)):
    key = f'lineage/mini/tokens/1/{name}/blimp'
    results.append(result(tmp_path, key, accuracies(mean, 1), row=rows[key]))
  groups = paradigms.of_table(table, paradigms.of_results(results))
  texts = report.documents('lineage', table, results, plans.Plan(), groups)
  for text in texts.values():
    assert 'Minimal pairs, 1 million tokens' in text and 'GPT-2 prefers the grammatical sentence more often' in text
    assert text.index('NPLM and LSTM: +0.0 points') > text.index('Not shown at this size')
  assert list(groups['1 million tokens']) == ['NPLM', 'LSTM', 'GPT-2']  # in the order of their years
  one = groups['1 million tokens']['GPT-2']
  assert phenomena.by_phenomenon(one) == pytest.approx(
    {'binding': np.mean(one.values[0][::2]), 'island': np.mean(one.values[0][1::2])}
  )
  phenomena.draw(tmp_path / 'drawn.png', table, groups)
  assert (tmp_path / 'drawn.png').read_bytes()[:4] == b'\x89PNG' and 'lineage_phenomena.png' in texts['html']
