"""Runs keep the rules of computation that they began under."""

import json

import pytest

from lmx.config import resolve, run_files, semantics
from lmx.errors import InputError
from lmx.runs import work_directory

SMALL = {
  'model': {'name': 'gpt2', 'variant': 'tiny', 'V': 7},
  'data': {'dataset': 'embedded', 'tokenizer': 'bytes', 'batching': 'windows'},
  'train': {'steps': 3},
}
ADAM = lambda run: run['optim']['optimizer'].startswith('adam')


@pytest.fixture
def rules(monkeypatch):
  """One rule whose old form is a setting, one that has none, and one that this config does not use."""
  found = {
    'kept': semantics.Rule('beta1 is read', ADAM, {'optim.b1': 0.5}),
    'lost': semantics.Rule('the second moment is read', ADAM, in_evaluation=False),
    'apart': semantics.Rule('another optimizer', lambda run: not ADAM(run), {'optim.b1': 0.1}),
  }
  monkeypatch.setattr(semantics, 'RULES', found)
  return found


def old_run(workdir):
  """The directory of a run whose config.json was written before there were any rules."""
  saved = resolve.resolve(SMALL).to_dict()
  del saved['semantics']
  (workdir / 'config.json').write_text(json.dumps(saved))
  return saved


def test_new_run_records_the_current_rules(rules):
  full = resolve.resolve(SMALL)
  assert full.semantics.to_dict() == {'kept': 1, 'lost': 1}
  assert resolve.resolve(SMALL, ['optim.optimizer=sgd', 'optim.momentum=0.5']).semantics.to_dict() == {'apart': 1}
  old = {**full.to_dict(), 'semantics': {'kept': 0}}
  assert resolve.resolve(old).to_dict() == full.to_dict()  # `lmx train --config=DIR/config.json` begins a new run


def test_older_run_keeps_a_configurable_rule(rules, tmp_path):
  saved = resolve.resolve(old_run(tmp_path), saved=True)
  assert saved.optim.b1 == 0.5 and saved.semantics.to_dict() == {'kept': 0, 'lost': 0}
  assert resolve.resolve(saved.to_dict(), ['optim.b1=0.6'], saved=True).optim.b1 == 0.6
  # The file itself is not changed.
  assert run_files.read_config(tmp_path)['optim']['b1'] == resolve.resolve(SMALL).optim.b1


def test_older_run_is_not_resumed_under_another_rule(rules, tmp_path):
  old_run(tmp_path)
  with pytest.raises(InputError, match='the second moment is read'):
    work_directory.resume_config(resolve.resolve(SMALL), tmp_path)
  del rules['lost']
  full, notes = work_directory.resume_config(resolve.resolve(SMALL), tmp_path)
  assert full.optim.b1 == 0.5 and full.semantics.to_dict() == {'kept': 0}
  assert len(notes) == 1 and 'beta1 is read' in notes[0]
  resolve.check_same(resolve.resolve(run_files.read_config(tmp_path), saved=True), full, tmp_path)


def test_finished_run_of_an_earlier_rule_is_finished(rules, tmp_path):
  old_run(tmp_path)
  (tmp_path / 'results.json').write_text('{}')
  assert work_directory.resume_config(resolve.resolve(SMALL), tmp_path)[1] == []


def test_evaluation_reports_its_rules(rules, tmp_path):
  notes = semantics.evaluation_notes(resolve.resolve(old_run(tmp_path), saved=True), 'cpu')
  assert len(notes) == 1 and 'beta1 is read' in notes[0] and 'its own' in notes[0]


def test_rules_cannot_be_set():
  with pytest.raises(InputError, match='semantics'):
    resolve.resolve(SMALL, ['semantics.kept=0'])


@pytest.mark.parametrize(
  ('path', 'rule', 'setting', 'begun', 'kept'),
  [
    # Settings that came with the rule.
    ('bert/tasks.py:rte', 'packed_rows', 'data.batching.packed', None, False),
    ('esim/pairs.py:own', 'few_shapes', 'data.batching.rows_per_bucket', None, 0),
    ('rnn_lm/quickstart.py:tiny', 'numba_loops', 'model.backend', 'auto', 'xla'),
    ('rnn_lm/quickstart.py:tiny', 'numba_loops', 'model.backend', 'custom', 'custom'),
    ('gpt2/quickstart.py:tiny', 'numba_attention', 'model.attention', 'auto', 'without_numba'),
    ('gpt2/quickstart.py:tiny', 'numba_attention', 'model.attention', 'blocked', 'blocked'),
  ],
)
def test_earlier_run_keeps_its_rounding(tmp_path, path, rule, setting, begun, kept):
  now = resolve.load(f'experiments/{path}', [f'{setting}={begun}'] if begun else [])
  old = now.to_dict()
  assert (rule in now.semantics) == (begun != kept)
  old['semantics'].pop(rule, None)
  if begun is None:
    assert resolve.flatten(now)[setting]
    del old['data']['batching'][setting.rpartition('.')[2]]
  saved = resolve.resolve(old, saved=True)
  continued = resolve.with_saved_rules(now, saved)
  resolve.check_same(saved, continued, tmp_path)
  assert resolve.flatten(continued)[setting] == kept
  assert resolve.digest(continued) == resolve.digest(old)  # by which trackers know the run


def test_relative_attention_has_no_numba_rule():
  assert 'numba_attention' not in resolve.load('experiments/transformer_xl/quickstart.py:tiny').semantics


def test_translation_run_keeps_its_bleu_tokenizer():
  german, french = (resolve.load(f'experiments/transformer/wmt14.py:base,pair={pair}') for pair in ('en_de', 'en_fr'))
  assert 'compounds' not in german.semantics and french.semantics.compounds == 1
  untranslated = resolve.load('experiments/transformer/wmt14.py:base,pair=en_fr', ['evaluation.beam=0'])
  assert 'compounds' not in untranslated.semantics
  assert resolve.resolve({**french.to_dict(), 'semantics': {}}, saved=True).evaluation.compounds == 'always'
  other = resolve.load('experiments/transformer/wmt14.py:base,pair=en_de', ['data.target=en'])
  assert other.semantics.compounds == 1  # its source is the other language


def test_resumed_run_keeps_checkpoint_spacing():
  now = resolve.load('experiments/transformer/wmt14.py:big')
  began = resolve.resolve(now.to_dict(), ['checkpoint.every_steps=1500', 'evaluation.alpha=0.1'])
  with pytest.raises(InputError, match='checkpoint.every_steps: 1500 .*600'):
    resolve.check_same(began, now, 'DIR')
  best = resolve.resolve(now.to_dict(), ['checkpoint.every_steps=1500', 'evaluation.which=best'])
  resolve.check_same(best, resolve.resolve(now.to_dict(), ['evaluation.which=best']), 'DIR')
  assert resolve.evaluation_changes(began, now) == ['evaluation.alpha: got 0.6, where the run began with 0.1']


def test_accelerator_rule_is_reported_on_accelerators():
  began = resolve.resolve({**resolve.resolve(SMALL).to_dict(), 'semantics': {}}, saved=True)
  assert not semantics.evaluation_notes(began, 'cpu')
  assert 'matmul_precision' in semantics.evaluation_notes(began, 'tpu')[0]
