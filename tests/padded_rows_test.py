"""Rows of padding in a batch of training change nothing: its update is that of the batch without them.

A mean does not change if every row is there twice. So one program of eight rows compares an update of four rows and
four rows of padding with that of the four rows twice.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from lmx import objectives
from lmx.config import schema
from lmx.data import pipeline
from lmx.engine import state, step
from lmx.models import registry
from lmx.optim import build
from tests import drawn
from tests.experiments_test import corpus_of, to_run, variants

ROWS = 4
UPDATES = 2  # the second begins with the model state that the first leaves
VOCABULARY = 300  # of the small texts, at most


CASES = {  # of each objective; `slow` has all models and batchings that it is trained with
  'bidirectional_lm': 'elmo/quickstart.py:tiny',
  'bits': 'ntm/quickstart.py:tiny',
  'causal_lm': 'awd_lstm/quickstart.py:tiny',
  'character_aux': 'character_transformer/quickstart.py:tiny',
  'classify': 'ulmfit/quickstart.py:tiny',
  'cloze': 'gpt2/zero_shot.py:cbt_cn',
  'last_word': 'gpt2/zero_shot.py:lambada',
  'masked_lm': 'bert/quickstart.py:tiny',
  'multiple_choice': 'bert/tasks.py:race',
  'permutation_lm': 'xlnet/quickstart.py:tiny',
  'regress': 'bert/tasks.py:own_scores',
  'segment': 'cfnet/quickstart.py:tiny',
  'skipgram': 'word2vec/quickstart.py:tiny',
  'span': 'bert/squad.py:tiny',
  'tag': 'bert/tagging.py:tiny',
  'translation': 'bahdanau/quickstart.py:tiny',
}


@functools.cache
def kinds() -> dict[tuple[str, str, str], str]:
  """(objective, model, batching) -> an experiment, the tiny one if there is one."""
  found: dict[tuple[str, str, str], str] = {}
  for path, variant in sorted(variants(), key=lambda case: (case[1] != 'tiny', case)):
    run = to_run(f'{path}:{variant}')
    found.setdefault((run.objective_name, run.model_name, run.data.batching.name), f'{path}:{variant}')
  return found


def parts_of(run: schema.Run) -> tuple:
  """(model, its config, objective, its config), small and without dropout."""
  quiet = lambda cfg: {name: 0.0 for name in cfg.__dataclass_fields__ if name.startswith('dropout')}
  cfg = run.model if run.variant == 'tiny' else registry.config(run.model_name, 'tiny')
  small = {'V': VOCABULARY, 'N': 1, 'encoder_layers': 1, 'decoder_layers': 1}
  small = {name: x for name, x in small.items() if name in cfg.__dataclass_fields__}
  if getattr(cfg, 'cutoffs', ()):
    del small['V']
  cfg = dataclasses.replace(cfg, **quiet(cfg), **small, dtype='float32')
  objective = dataclasses.replace(run.objective, **quiet(run.objective))
  return registry.get(run.model_name), cfg, objectives.get(run.objective_name), objective


def batches_of(run: schema.Run):
  data, batching = run.data, run.data.batching
  known = {'groups': 1, 'tokens': 0, 'dupe_factor': 1}
  batching = dataclasses.replace(batching, **{k: v for k, v in known.items() if k in batching.__dataclass_fields__})
  length = data.length if run.variant == 'tiny' else min(data.length, 64)
  data = dataclasses.replace(data, batching=batching, batch_size=ROWS, eval_batch_size=0, length=length)
  corpus = corpus_of(data)
  if run.objective_name == 'regress':
    scored = lambda split: dataclasses.replace(split, labels=np.linspace(0, 5, len(split.labels), dtype=np.float32))
    corpus = dataclasses.replace(corpus, splits={name: scored(split) for name, split in corpus.splits.items()})
  return pipeline.batches(data, corpus, 'train', 0, train=True)


def create(parts: tuple, key: jax.Array) -> dict:
  model, cfg, objective, objective_cfg = parts
  return {'model': model.init(cfg, key), 'objective': objective.init(objective_cfg, model, cfg, key)}


COSTLY = (
  'bidirectional_lm',
  'bits',
  'cloze',
  'last_word',
  'multiple_choice',
  'permutation_lm',
  'regress',
  'segment',
  'span',
)


@pytest.mark.parametrize(
  'objective', [pytest.param(name, marks=[pytest.mark.slow] if name in COSTLY else []) for name in objectives.names()]
)
def test_padding_rows_change_no_update(objective):
  check(to_run(f'experiments/{CASES[objective]}'), objective)


@pytest.mark.slow
@pytest.mark.parametrize('name', registry.names())
def test_padding_rows_change_no_update_of_any_model(name):
  of_model = {kind: case for kind, case in kinds().items() if kind[1] == name}
  for (objective, *_), case in of_model.items():
    check(to_run(case), objective)
  assert of_model


def check(run: schema.Run, objective: str) -> None:
  assert run.objective_name == objective
  parts, batches = parts_of(run), batches_of(run)
  padded = batches.pad_rows(2 * ROWS)
  params = drawn.params(create, parts, std=drawn.by_size())
  optim = build.Config(optimizer='sgd', lr=0.02, schedule='constant')
  tx = build.make(optim, params, functools.partial(parts[0].depth, parts[1]), parts[1].N, 10, 10)
  train_step = jax.jit(step.make_train_step(*parts, tx, build.rate(optim, 10, 10), total_steps=10))
  twice = lambda tree: jax.tree.map(lambda x: np.concatenate([x[:ROWS], x[:ROWS]]), tree)
  fresh = jax.tree.map(np.asarray, parts[0].init_state(parts[1], 2 * ROWS))
  of_padded = of_twice = (state.create(params, tx), fresh)
  for i in range(UPDATES):
    batch = padded(i)
    assert (batch['index_B'] < 0).tolist() == [False] * ROWS + [True] * ROWS
    for name, x in batches(i).items():
      np.testing.assert_array_equal(batch[name][:ROWS], x)
    *of_padded, metrics = train_step(*of_padded, batch, jax.random.key(1))
    *of_twice, expected = train_step(*of_twice, twice(batch), jax.random.key(1))
    assert metrics['finite'] and metrics['grad_norm'] > 0
    mean = lambda x: np.divide(*x) if isinstance(x, tuple) else x
    for name, x in expected.items():
      np.testing.assert_allclose(mean(metrics[name]), mean(x), rtol=2e-5, err_msg=name)
  found, wanted, first = (flatten_dict(p, sep='/') for p in (of_padded[0].params, of_twice[0].params, params))
  for name, x in wanted.items():
    if not name.endswith('norm/variance'):  # the running one has denominator n - 1
      moved = np.abs(x - first[name]).max()
      np.testing.assert_allclose(found[name], x, rtol=0, atol=1e-4 * moved + 1e-7, err_msg=name)
  for x, y in zip(*map(jax.tree.leaves, (of_padded[1], of_twice[1])), strict=True):
    np.testing.assert_allclose(x[:ROWS], y[:ROWS], rtol=1e-4, atol=1e-5)
    assert np.isfinite(x).all()
