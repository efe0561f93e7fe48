"""Stacked layers and padded vocabularies: the same parameters, losses and gradients as in the models' own layout."""

import jax
import numpy as np
import pytest

from lmx.engine import step
from lmx.layout import Layout, Stacked, broadcast, depth, layers
from tests import drawn, engine_cases

COMMON = ('gpt2',)  # the others are slow
CHANGES = {'gpt': {'N': 2, 'scan': True}, 'gpt2': {'scan': True}, 'xlnet': {'N': 3, 'scan': True}}
CHANGES |= {
  'transformer': {'encoder_layers': 2, 'decoder_layers': 2, 'scan': True},
  'quaternion_transformer': {'encoder_layers': 2, 'decoder_layers': 2, 'scan': True},
  'bert': {'N': 2, 'scan': True},
  'transformer_xl': {'N': 2, 'scan': True, 'div_val': 1},
  'sparse_transformer': {'scan': True},
  'character_transformer': {'scan': True},
}
MODELS = [name for name in engine_cases.SIZES if hasattr(engine_cases.parts(name)[0], 'VOCABULARY')]


def arrays(tree):
  return {jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(tree)}


def layout_of(name, stacked):
  module, cfg, *_ = engine_cases.parts(name, CHANGES.get(name))
  return Layout(module.VOCABULARY, cfg.V, cfg.V + 7, stacked)


def initial(name):
  module, cfg, objective, objective_cfg = engine_cases.parts(name, CHANGES.get(name))
  return {
    'model': drawn.params(module.init, cfg, std=drawn.by_size()),
    'objective': drawn.params(objective.init, objective_cfg, module, cfg, std=drawn.by_size()),
  }


@pytest.mark.parametrize('name', [n if n in COMMON else pytest.param(n, marks=pytest.mark.slow) for n in MODELS])
def test_loss_and_gradient_match_the_models_own_layout(name):
  parts = engine_cases.parts(name, CHANGES.get(name))
  stored, params = layout_of(name, getattr(parts[1], 'scan', False)), initial(name)
  rows = engine_cases.batch(name, 0)
  state = parts[0].init_state(parts[1], engine_cases.ROWS)

  def loss(params):
    more = step._optional_arguments(parts[2], None, np.int32(0), 10)
    out = step.training_loss(*parts, params, rows, state, jax.random.key(1), **more)
    return sum(out.sums.values()), out.metrics

  run = jax.jit(jax.value_and_grad(loss, has_aux=True))
  plain, result = run(params), run(stored.store(params))
  for key, expected in arrays((plain[0], plain[1])).items():
    found = arrays((result[0], stored.view(result[1])))[key]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * max(np.abs(expected).max(), 1), err_msg=key)
  assert any(len(x) == stored.rows for x in jax.tree.leaves(result[1]['model']) if x.ndim)
  for leaf in parts[0].VOCABULARY:  # padding gets no gradient
    tables = [
      x for key, x in arrays(result[1]).items() if key.endswith(''.join(f"['{part}']" for part in leaf.split('/')))
    ]
    for table in tables:
      assert len(table) != stored.rows or not table[stored.size :].any()


def test_view_is_the_inverse_of_store_and_padding_is_zero():
  for name in ('gpt2', 'transformer'):
    params, stored = initial(name), layout_of(name, stacked=True)
    tree = {'params': params, 'opt_state': ({'model': params['model'], 'objective': {}}, np.int32(3))}
    there = stored.store(tree)
    back = arrays(stored.view(there))
    assert back.keys() == arrays(tree).keys()
    assert all(np.array_equal(back[key], x) for key, x in arrays(tree).items())
    table = there['params']['model']['embed']['tokens']
    assert len(table) == stored.rows and not np.asarray(table[stored.size :]).any()
    assert any(x.startswith('layers_00_') for x in there['opt_state'][0]['model'])
  assert sorted(x for x in there['params']['model'] if x.startswith('layer')) == ['layers_00_01', 'layers_02_03']


def test_layout_of_stored_arrays_is_detected_by_name_and_shape():
  params = initial('gpt2')
  own = layout_of('gpt2', stacked=False)
  for stored in (own, layout_of('gpt2', True), Layout(own.vocabulary, own.size, own.size)):
    shapes = {
      '/'.join(['params', *(part.key for part in path)]): x.shape
      for path, x in jax.tree_util.tree_leaves_with_path(stored.store(params))
    }
    assert own.detect(shapes) == stored


def test_some_layers_of_a_stack():
  params = {'layers_00_02': {'kernel': np.arange(6.0).reshape(3, 2)}}
  assert isinstance(layers(params, range(3)), Stacked) and layers(params, range(3)).tree is params['layers_00_02']
  found = layers(params, range(1, 3))
  assert isinstance(found, Stacked) and [x['kernel'].tolist() for x in found] == [[2, 3], [4, 5]]


def test_factors_of_layers_that_differ_have_an_axis():
  tree = {'model': {'layer_00': {'x': 0.5, 'y': 1.0}, 'layer_01': {'x': 0.25, 'y': 1.0}}, 'objective': {}}
  factors = Layout(stacked=True).factors(tree)['model']['layers_00_01']
  assert factors['y'] == 1.0 and factors['x'].tolist() == [0.5, 0.25]
  assert np.asarray(broadcast(factors['x'], np.ones((2, 3))) * np.ones((2, 3))).tolist() == [[0.5] * 3, [0.25] * 3]


def test_depth_counts_from_the_embeddings():
  names = (('embed', 'tokens'), ('bias', 'u_HK'), ('layer_00', 'mlp'), ('layer_11', 'norm_1'), ('norm', 'scale'))
  assert [depth(n, 12) for n in names] == [0, 0, 1, 12, 13]
