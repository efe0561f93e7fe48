"""Names and shapes of Hugging Face's tensors; tests/models/parity_test.py compares the numbers."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.interop import huggingface
from lmx.models import registry

SIZES = {
  'gpt': dict(V=11, T=8, D=8, H=2, N=2),
  'gpt2': dict(V=11, T=8, D=8, H=2, N=2),
  'bert': dict(V=11, T=8, D=8, H=2, N=2),
}


def make(name):
  model = registry.get(name)
  cfg = model.Config(**SIZES[name])
  leaves, tree = jax.tree.flatten(model.init(cfg, jax.random.key(0)))
  rng = np.random.default_rng(0)
  params = {'model': tree.unflatten([rng.normal(size=x.shape).astype(np.float32) for x in leaves]), 'objective': {}}
  if name == 'bert':
    params['objective'] = {'nsp': {'kernel': np.ones((8, 2), np.float32), 'bias': np.zeros(2, np.float32)}}
  return cfg, params


@pytest.mark.parametrize('name', SIZES)
def test_there_and_back(name):
  cfg, params = make(name)
  back = huggingface.from_hf(name, cfg, huggingface.to_hf(name, cfg, params))
  assert jax.tree.structure(back) == jax.tree.structure(params)
  jax.tree.map(np.testing.assert_array_equal, back, params)


def test_every_parameter_of_the_model_has_its_tensor():
  for name in SIZES:
    cfg, params = make(name)
    found = huggingface.from_hf(name, cfg, huggingface.to_hf(name, cfg, params))['model']
    expected = jax.eval_shape(lambda name=name, cfg=cfg: registry.get(name).init(cfg, jax.random.key(0)))
    assert jax.tree.map(np.shape, found) == jax.tree.map(lambda x: x.shape, expected)


@pytest.mark.parametrize('name,prefix', [('gpt', 'transformer.'), ('gpt2', 'transformer.'), ('bert', 'bert.')])
def test_files_of_the_bare_model_and_old_names(name, prefix):
  cfg, params = make(name)
  tensors = {}
  for key, value in huggingface.to_hf(name, cfg, params).items():
    key = key.removeprefix(prefix)
    tensors[key.replace('LayerNorm.weight', 'LayerNorm.gamma').replace('LayerNorm.bias', 'LayerNorm.beta')] = value
  tensors |= {'h.0.attn.bias': np.ones((1, 1, 8, 8))} if name != 'bert' else {'embeddings.position_ids': np.ones(8)}
  jax.tree.map(np.testing.assert_array_equal, huggingface.from_hf(name, cfg, tensors), params)


def test_without_a_next_sentence_head():
  cfg, params = make('bert')
  tensors = huggingface.to_hf('bert', cfg, {'model': params['model']})
  assert not any('seq_relationship' in n for n in tensors)
  assert huggingface.from_hf('bert', cfg, tensors)['objective'] == {}


def test_errors_list_every_tensor():
  cfg, params = make('gpt2')
  tensors = huggingface.to_hf('gpt2', cfg, params)
  del tensors['transformer.h.1.ln_1.bias'], tensors['transformer.ln_f.weight']
  tensors['transformer.extra'] = np.zeros(3)
  tensors['transformer.wpe.weight'] = np.zeros((9, 8))
  with pytest.raises(InputError) as error:
    huggingface.from_hf('gpt2', cfg, tensors)
  for words in (
    '2 tensors missing', 'transformer.h.1.ln_1.bias', 'transformer.ln_f.weight', '1 tensors unknown',
    'transformer.extra', 'transformer.wpe.weight is (9, 8), not (8, 8)',
  ):  # fmt: skip
    assert words in str(error.value)


def test_half_a_next_sentence_head_is_an_error():
  cfg, params = make('bert')
  tensors = huggingface.to_hf('bert', cfg, params)
  del tensors['cls.seq_relationship.bias']
  with pytest.raises(InputError, match='cls.seq_relationship.bias'):
    huggingface.from_hf('bert', cfg, tensors)


def test_wrong_parameters_are_named():
  cfg, params = make('gpt2')
  broken = {'model': {**params['model'], 'embed': {'tokens': params['model']['embed']['tokens']}}}
  with pytest.raises(InputError, match='model/embed/positions is missing'):
    huggingface.to_hf('gpt2', cfg, broken)
  broken = {'model': {**params['model'], 'norm': {'scale': np.ones(9), 'bias': np.ones(8)}}}
  with pytest.raises(InputError, match='model/norm/scale has shape'):
    huggingface.to_hf('gpt2', cfg, broken)


def test_other_models_have_no_such_form():
  with pytest.raises(InputError, match='did you mean "gpt2"'):
    huggingface.from_hf('gpt2x', None, {})
