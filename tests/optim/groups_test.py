"""Groups cover every parameter, once, and layer-wise decay follows the model's depth."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.optim import build, groups

PARAMS = {
  'model': {
    'embed': {'table': jnp.ones((4, 2))},
    'layer_00': {'kernel': jnp.ones((2, 2)), 'bias': jnp.ones(2)},
    'layer_01': {'kernel': jnp.ones((2, 2)), 'bias': jnp.ones(2)},
    'output': {'bias': jnp.ones(4)},
  },
  'objective': {'nsp': {'kernel': jnp.ones((2, 2))}},
}


def depth(path):
  return {'embed': 0, 'output': 3}.get(path[0], int(path[0][-2:]) + 1 if '_' in path[0] else 3)


def test_first_match_counts():
  found = groups.assign((('bias$', 1.0, 0.0), ('layer_', 0.5, 1.0), ('.*', 1.0, 1.0)), PARAMS)
  assert found['model/layer_00/bias'][2] == 0.0
  assert found['model/layer_00/kernel'][1] == 0.5
  assert found['objective/nsp/kernel'] == ('.*', 1.0, 1.0)
  assert len(found) == 7


def test_uncovered_parameters_are_reported():
  with pytest.raises(InputError, match='model/embed/table, objective/nsp/kernel'):
    groups.assign((('bias$', 1.0, 0.0), ('layer_', 1.0, 1.0)), PARAMS)


@pytest.mark.parametrize('dead', ['layernorm', 'layer_00/bias'])
def test_group_without_parameters_is_reported(dead):
  # The second is found in a name, but an earlier group has taken it.
  with pytest.raises(InputError, match=f'"{dead}" is not the first match of any parameter'):
    groups.assign((('bias$', 1.0, 0.0), (dead, 1.0, 1.0), ('.*', 1.0, 1.0)), PARAMS)


def test_layer_decay_multiplies_by_depth():
  powers = groups.exponents('by_depth', PARAMS, depth, 2)
  rates, decays = groups.multipliers((('bias$', 2.0, 0.0), ('.*', 1.0, 1.0)), 0.5, powers, PARAMS)
  assert rates['model']['embed']['table'] == 0.5**3
  assert rates['model']['layer_00']['kernel'] == 0.5**2
  assert rates['model']['layer_01']['kernel'] == 0.5
  assert rates['model']['layer_01']['bias'] == 2.0 * 0.5
  assert rates['model']['output']['bias'] == 2.0
  assert rates['objective']['nsp']['kernel'] == 1.0
  assert decays['model']['layer_01'] == {'kernel': 1.0, 'bias': 0.0}


TIED = {'model': PARAMS['model'], 'objective': {}}  # the output matrix is the embedding


def test_last_layer_of_a_tied_language_model_has_the_full_rate():
  """Howard and Ruder 2018, section 3.2: eta of the last layer, a factor of 1 / 2.6 for each layer below."""
  powers = groups.exponents('by_depth', TIED, depth, 2)['model']
  assert powers['layer_01']['kernel'] == powers['output']['bias'] == 0
  assert (powers['layer_00']['kernel'], powers['embed']['table']) == (1, 2)
  before = groups.exponents('by_depth_of_biases', TIED, depth, 2)['model']
  assert (before['layer_01']['kernel'], before['embed']['table'], before['output']['bias']) == (1, 3, 0)
  assert groups.exponents('by_depth_of_biases', PARAMS, depth, 2) == groups.exponents('by_depth', PARAMS, depth, 2)


def test_unfreezing_of_a_tied_language_model_starts_with_its_last_layer():
  cfg = build.Config(optimizer='sgd', lr=1.0, unfreeze_every=1.0)
  tx = build.make(cfg, TIED, depth, 2, 10, 5)
  updates, _ = tx.update(TIED, tx.init(TIED), TIED, step=0)
  assert (updates['model']['layer_01']['kernel'] != 0).all() and not updates['model']['layer_00']['kernel'].any()


def test_updates_carry_the_factors():
  cfg = build.Config(
    optimizer='sgd', lr=1.0, layer_decay=1 / 2.6, weight_decay=0.5, groups=(('embed', 0.0, 1.0), ('.*', 1.0, 0.0))
  )
  tx = build.make(cfg, PARAMS, depth, 2, 10, 10)
  updates, _ = tx.update(PARAMS, tx.init(PARAMS), PARAMS, step=0)
  np.testing.assert_array_equal(updates['model']['embed']['table'], 0.0)
  np.testing.assert_allclose(updates['model']['layer_01']['kernel'], -1 / 2.6, rtol=1e-6)
  np.testing.assert_allclose(updates['model']['layer_00']['bias'], -(2.6**-2), rtol=1e-6)


@pytest.mark.parametrize('form, embed', [('as_paper', 0.5**2), ('as_released', 1.0)])
def test_layer_decay_of_xlnet_leaves_the_top_layer_whole(form, embed):
  """The layer m of N has 0.5 ** (N - m); of the rate in the paper, of the gradient in the release."""
  cfg = build.Config(optimizer='sgd', lr=1.0, layer_decay=0.5, layer_decay_form=form, clip_norm=1e-3)
  tx = build.make(cfg, PARAMS, depth, 2, 10, 10)
  ones = jax.tree.map(np.ones_like, PARAMS)
  updates, _ = tx.update(ones, tx.init(PARAMS), PARAMS, step=0)
  one = float(updates['objective']['nsp']['kernel'].ravel()[0])
  total = sum(x.size for x in jax.tree.leaves(PARAMS))
  np.testing.assert_allclose(one, -1e-3 / total**0.5, rtol=1e-5)  # clipped before
  for leaf, factor in (('embed', embed), ('layer_00', 0.5), ('layer_01', 1.0), ('output', 1.0)):
    for x in jax.tree.leaves(updates['model'][leaf]):
      np.testing.assert_allclose(x, one * factor, rtol=1e-5, err_msg=leaf)


def test_adam_cancels_gradient_decay():
  made = {}
  for form in ('as_paper', 'as_released'):
    cfg = build.Config(optimizer='adam', lr=1.0, eps=1e-12, layer_decay=0.1, layer_decay_form=form)
    tx = build.make(cfg, PARAMS, depth, 2, 10, 10)
    updates, _ = tx.update(jax.tree.map(np.ones_like, PARAMS), tx.init(PARAMS), PARAMS, step=0)
    made[form] = updates['model']['layer_00']['kernel']
  np.testing.assert_allclose(made['as_released'], -1.0, rtol=1e-5)
  np.testing.assert_allclose(made['as_paper'], -0.1, rtol=1e-5)
