"""The Neural Turing Machine against a NumPy re-statement, and what the contract tests cannot know of it."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.data.batching import algorithmic
from lmx.errors import InputError
from lmx.models import registry
from tests import drawn
from tests.models import compiled
from tests.reference import ntm as reference

ntm = registry.get('ntm')

T = 6
SMALL = dict(D=7, rows=9, width=4, memory='learned', memory_value=0.5)


def made(**changes):
  """(config, random parameters, inputs (2, T, I))."""
  cfg = registry.config('ntm', 'tiny', **{**SMALL, **changes})
  return (
    cfg,
    drawn.params(ntm.init, cfg, std=drawn.by_size(3)),
    np.random.default_rng(0).integers(0, 2, (2, T, cfg.I)).astype(np.float32),
  )


run = functools.partial(compiled.run, ntm)


def scores(cfg, params, inputs_BTI, **batch):
  return jax.device_get(run(cfg, params, {'inputs_BTI': inputs_BTI, **batch}, ntm.init_state(cfg, len(inputs_BTI))))


@pytest.mark.parametrize(
  'changes',
  [
    {'controller': 'feedforward', 'H': 1},
    {'controller': 'feedforward', 'H': 3, 'shifts': 2},
    {'controller': 'lstm', 'H': 1},
    {'controller': 'lstm', 'H': 2, 'N': 2},
  ],
)
def test_scores_and_memory_equal_the_equations(changes):
  cfg, params, inputs_BTI = made(**changes)
  found, state = scores(cfg, params, inputs_BTI)
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  for b, inputs_TI in enumerate(inputs_BTI):
    expected, memory = reference.run(cfg, exact, inputs_TI)
    np.testing.assert_allclose(found[b], expected, atol=1e-5)
    np.testing.assert_allclose(state['memory_BSW'][b], memory, atol=1e-5)


def test_trace_shows_the_steps():
  cfg, params, inputs_BTI = made(H=2)
  seen = jax.jit(functools.partial(ntm.trace, cfg))(params, {'inputs_BTI': inputs_BTI})
  found, state = scores(cfg, params, inputs_BTI)
  np.testing.assert_allclose(seen['logits_BTO'], found, atol=1e-5)
  for name in ('memory_BSW', 'read_BHS', 'write_BHS'):
    np.testing.assert_allclose(seen[name.replace('_B', '_BT')][:, -1], state[name], atol=1e-6)
  cfg, params, inputs_BTI = made(H=0)
  assert set(jax.eval_shape(functools.partial(ntm.trace, cfg), params, {'inputs_BTI': inputs_BTI})) == {'logits_BTO'}


def test_network_without_memory_carries_its_state():
  """The contract tests see the machine; here the stack of LSTMs, in one pass, in two, and with a step left out."""
  cfg, params, inputs_BTI = made(H=0, N=3)
  whole, _ = scores(cfg, params, inputs_BTI)
  first, state = scores(cfg, params, inputs_BTI[:, :3])
  again, _ = run(cfg, params, {'inputs_BTI': inputs_BTI[:, 3:]}, state)
  np.testing.assert_allclose(np.concatenate([first, again], 1), whole, atol=1e-5)


@pytest.mark.parametrize('H', [0, 1])
def test_invalid_steps_leave_the_state_unchanged(H):
  cfg, params, inputs_BTI = made(H=H)
  valid_BT = np.arange(T) < np.array([[4], [0]])
  _, after = scores(cfg, params, inputs_BTI, valid_BT=valid_BT)
  _, short = scores(cfg, params, inputs_BTI[:, :4])
  for name, leaf in after.items():
    np.testing.assert_allclose(leaf[0], short[name][0], atol=1e-6, err_msg=name)
  assert not after['begun_B'][1] and after['begun_B'][0]


def test_initial_memory_follows_the_config():
  cases = {
    'constant': made(memory='constant', memory_value=0.25)[:2],
    'learned': made(memory='learned')[:2],
    'random': made(memory='random', memory_value=0.5)[:2],
  }
  params = {name: p for name, (_, p) in cases.items()}

  @jax.jit
  def starts(params, key):
    start = lambda name, key: ntm._start(cases[name][0], params[name], 2, key)['memory_BSW']
    return {name: start(name, None) for name in cases} | {'trained': start('random', key)}

  found = jax.device_get(starts(params, jax.random.key(1)))
  assert np.unique(found['constant']) == 0.25
  np.testing.assert_array_equal(found['learned'][1], params['learned']['start']['memory'])
  random = found['random']
  np.testing.assert_array_equal(random[0], random[1])  # in evaluation always the same
  assert 0.2 < random.std() < 0.6 and np.abs(random).max() <= 1.0
  assert not np.allclose(found['trained'][0], found['trained'][1])


@pytest.mark.parametrize('task', ['copy', 'repeat_copy', 'recall', 'ngrams', 'sort'])
def test_variants_fit_their_tasks(task):
  short = 'repeat' if task == 'repeat_copy' else task
  for network in ('ff', 'lstm', 'baseline'):
    cfg = registry.config('ntm', f'{short}_{network}')
    assert (cfg.I, cfg.O) == algorithmic.widths(algorithmic.Config(task=task, min_length=6))


def test_heads_and_widths_match_the_tables():
  sizes = {name: (cfg['H'], cfg['D'], cfg.get('N', 1)) for name, cfg in ntm.VARIANTS.items() if name != 'tiny'}
  assert sizes['recall_ff'] == (4, 256, 1) and sizes['sort_ff'] == (8, 512, 1) and sizes['sort_lstm'] == (5, 100, 2)
  assert all(
    sizes[f'{task}_{network}'] == (1, 100, 1) for task in ('copy', 'repeat', 'ngrams') for network in ('ff', 'lstm')
  )
  count = lambda name: sum(leaf.size for leaf in jax.tree.leaves(drawn.shapes(ntm.init, registry.config('ntm', name))))
  # Table 3. Of the sort it prints 384,424, in which two digits must have changed places: these sizes give 348,424.
  assert [count(f'{task}_baseline') for task in ('copy', 'repeat', 'recall', 'ngrams', 'sort')] == [
    1_352_969,
    5_312_007,
    1_344_518,
    331_905,
    348_424,
  ]


def test_data_of_another_width_is_rejected():
  cfg, params, inputs_BTI = made()
  with pytest.raises(InputError, match='model.I: got 6'):
    ntm.apply(cfg, params, {'inputs_BTI': inputs_BTI[..., :3]}, ntm.init_state(cfg, 2))
  with pytest.raises(InputError, match='model.shifts: got 2'):
    ntm.Config(rows=4, shifts=2)
