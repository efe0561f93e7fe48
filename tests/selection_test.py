"""The score that selects the best checkpoint: in training, after a kill, and in runs of earlier versions."""

from __future__ import annotations

import contextlib
import io
import json
import shutil

import jax
import numpy as np
import pytest

from lmx import train
from lmx.checkpoint import manager
from lmx.config import resolve
from lmx.errors import InputError
from lmx.evaluation import parts
from lmx.reporting import run_log

QUICK = ('parallel.data=1', 'evaluation.baselines=false', 'samples.count=0', 'train.log_every=1', 'data.prefetch=0')
PAIRS = 'experiments/glue_bilstm/tasks.py:tiny'
ESIM = ('train.ties=later', 'optim.restore_best=true', 'optim.max_reductions=2', 'optim.factor=0.5', 'train.patience=0')


def run(workdir, config, *overrides):
  assert train.train(resolve.load(config, [*QUICK, *overrides]), workdir) == 0
  return json.loads((workdir / 'results.json').read_text())


def validations(workdir):
  return [record for record in run_log.read_metrics(workdir) if record['split'] == 'valid']


def params(workdir, which):
  return manager.restore_params(workdir / 'checkpoints', None, which)[0]


@pytest.fixture(scope='module')
def halved(tmp_path_factory):
  """A classifier of pairs that diverges, so that its rate is halved: (work directory, settings, log)."""
  workdir, log = tmp_path_factory.mktemp('halved') / 'run', io.StringIO()
  settings = (*ESIM, 'train.steps=40', 'train.eval_every=2', 'optim.lr=0.05', 'train.best_by=accuracy')
  with contextlib.redirect_stderr(log):
    run(workdir, PAIRS, *settings)
  return workdir, settings, log.getvalue()


def test_restored_parameters_are_the_best_ones(halved):
  workdir, *_ = halved
  scores = [record['accuracy'] for record in validations(workdir)]
  halvings = [i for i in range(1, len(scores)) if scores[i] < max(scores[:i])]
  assert len(halvings) == 3 and halvings[-1] == len(scores) - 1  # the run ends after more than two
  best = 2 * (max(i for i, score in enumerate(scores) if score == max(scores)) + 1)  # the later of equal ones
  assert json.loads((workdir / 'results.json').read_text())['step'] == best
  jax.tree.map(np.testing.assert_array_equal, params(workdir, 'last'), params(workdir, best))


def test_run_killed_after_a_restoration_resumes_to_the_same_parameters(halved, tmp_path):
  workdir, settings, _ = halved
  killed = shutil.copytree(workdir, tmp_path / 'killed')
  (killed / 'results.json').unlink()
  steps = manager.steps(killed / 'checkpoints')
  shutil.rmtree(next((killed / 'checkpoints').glob(f'step_*{steps[-1]}')))
  results = run(killed, PAIRS, *settings)
  jax.tree.map(np.testing.assert_array_equal, params(workdir, 'last'), params(killed, 'last'))
  assert results['step'] == json.loads((workdir / 'results.json').read_text())['step']


@pytest.mark.parametrize(
  ('rate', 'place'),
  [
    (1e-4, ('parallel.mode=jit',)),
    pytest.param(0.5, ('parallel.mode=pmap', 'parallel.data=2'), marks=pytest.mark.slow),
  ],
)
def test_reductions_restore_what_is_better_than_the_current_parameters(tmp_path, rate, place):
  """A new best by less than the threshold reduces the rate and stays as it is; other reductions restore the best."""
  settings = ('optim.threshold=0.9', 'optim.patience=0', 'train.best_by=loss', 'train.steps=6', 'train.eval_every=2')
  run(tmp_path / 'run', PAIRS, *ESIM, *settings, f'optim.lr={rate}', *place, 'optim.max_reductions=0')
  losses = [record['loss'] for record in validations(tmp_path / 'run')]
  best = 2 * (1 + int(np.argmin(losses)))
  assert best == (6 if rate < 0.01 else 2)
  jax.tree.map(np.testing.assert_array_equal, params(tmp_path / 'run', 'last'), params(tmp_path / 'run', best))


def test_restoration_needs_the_best_checkpoint():
  with pytest.raises(InputError, match='checkpoint.keep_best: got False with optim.restore_best'):
    resolve.to_run(resolve.load(PAIRS, [*ESIM, 'checkpoint.keep_best=false']), 100)
  with pytest.raises(InputError, match='optim.restore_best: got True with a parameter average'):
    resolve.load(PAIRS, ['optim.restore_best=true', 'optim.ema=0.9'])


def test_log_names_the_metric_that_selects(halved):
  workdir, _, log = halved
  assert 'accuracy of the validations selects the best checkpoint, which also reduces the learning rate' in log
  scores = [record['accuracy'] for record in validations(workdir)]
  bests = [line for line in log.splitlines() if line.endswith(' (the best accuracy so far)')]
  assert len(bests) == sum(score >= max(scores[: i + 1]) for i, score in enumerate(scores))
  assert log.count('accuracy is no better: optim.lr is now') == 3 and 'parameters are those after update' in log


def test_bleu_selects_only_where_validations_translate():
  config = resolve.load('experiments/bahdanau/quickstart.py:tiny', ['train.best_by=bleu', 'evaluation.beam=0'])
  with pytest.raises(InputError, match='train.best_by: got bleu without a translation; set evaluation.beam'):
    parts.get('translation').check(resolve.to_run(config, 100), None, None)


def test_plateau_of_a_run_of_an_earlier_version_follows_its_loss(tmp_path):
  now = resolve.load(PAIRS, ['train.best_by=accuracy', 'train.patience_form=best', 'optim.stop_lr=0'])
  assert now.semantics.plateau_score == 1 and now.optim.plateau_by == 'score'
  old = now.to_dict()
  for section, names in (
    ('optim', ('plateau_by', 'threshold', 'restore_best', 'max_reductions', 'stop_lr')),
    ('train', ('patience_form', 'ties')),
    ('semantics', ('plateau_score',)),
  ):
    for name in names:
      del old[section][name]
  saved = resolve.resolve(old, saved=True)
  continued = resolve.with_saved_rules(now, saved)
  resolve.check_same(saved, continued, tmp_path)
  assert continued.optim.plateau_by == 'loss' and continued.semantics.plateau_score == 0
  assert resolve.digest(continued) == resolve.digest(old) != resolve.digest(now)
  assert 'plateau_score' not in resolve.load(PAIRS, ['train.best_by=loss']).semantics


# experiment -> settings that its source has for the choice of the checkpoint, of the plateau and of the end
RELEASED = {
  'esim/snli.py:base': {'train.best_by': 'headline', 'train.patience': 5, 'optim.threshold': 1e-4},
  'esim/snli.py:chen': {
    'train.best_by': 'headline',
    'train.patience': 0,
    'train.ties': 'later',
    'optim.patience': 0,
    'optim.factor': 0.5,
    'optim.threshold': 0.0,
    'optim.restore_best': True,
    'optim.max_reductions': 7,
  },
  'bcn/sst.py:sst5_elmo': {'train.best_by': 'accuracy', 'train.patience': 5},
  'elmo/conll2003.py:elmo': {'train.best_by': 'headline', 'train.patience': 25},
  'srl_lstm/conll2005.py:base': {'train.best_by': 'headline', 'train.patience': 0},
  'srl_lstm/conll2012.py:elmo': {'train.best_by': 'headline', 'train.patience': 200},
  'bidaf/squad.py:elmo': {'train.best_by': 'f1', 'train.patience': 0, 'evaluation.which': 'best'},
  'bidaf/squad.py:seo': {'evaluation.which': 'last'},
  'cfnet/ade20k.py:resnet50': {'train.best_by': 'pixel_accuracy_miou', 'evaluation.which': 'best'},
  'glue_bilstm/tasks.py:cola': {
    'objective.metric': 'matthews',
    'train.best_by': 'headline',
    'train.patience': 5,
    'train.patience_form': 'recent',
    'optim.threshold': 0.0,
    'optim.stop_lr': 1e-6,
  },
  'glue_bilstm/tasks.py:cola,fidelity=paper': {'train.patience_form': 'best', 'optim.stop_lr': 1e-5},
  'glue_bilstm/tasks.py:mrpc': {'train.best_by': 'accuracy_f1'},
  'glue_bilstm/tasks.py:stsb': {'objective.metric': 'pearson', 'train.best_by': 'headline'},
  'gpt/tasks.py:story_cloze': {'train.best_by': 'accuracy', 'evaluation.which': 'best'},
  'gpt/tasks.py:stsb': {'train.best_by': 'loss', 'evaluation.which': 'last'},
  'xlnet/tasks.py:stsb': {'train.best_by': 'pearson', 'train.eval_every': 600, 'evaluation.which': 'best'},
  'xlnet/tasks.py:rte': {'train.best_by': 'loss', 'evaluation.which': 'last'},
  'bahdanau/wmt14.py:rnnsearch': {'train.best_by': 'loss', 'evaluation.which': 'last'},
  'bert/tasks.py:rte': {'train.best_by': 'loss', 'evaluation.which': 'last'},
}


def test_recipes_select_as_their_sources_do():
  for path, expected in RELEASED.items():
    found = resolve.flatten(resolve.load(f'experiments/{path}'))
    assert {key: found[key] for key in expected} == expected, path
