"""Fields of config.json: defaults, other names, epsilons, and values that are not supported, as in transformers.

The defaults and logits are those of transformers 4.57.6, which computes the logits from the same tensors.
"""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

from lmx.config import resolve
from lmx.errors import InputError
from lmx.interop import huggingface
from lmx.layers import span_head
from lmx.models import registry

# Fields of an empty config.json.
DEFAULTS = {
  'bert': dict(V=30_522, T=512, E=2, D=768, H=12, N=12, F=0, gelu='erf', eps=1e-12, tied=True, causal=False),
  'gpt': dict(V=40_478, T=512, D=768, H=12, N=12, eps=1e-5, tied=True, dropout_attention=0.1),
  'gpt2': dict(V=50_257, T=1024, D=768, H=12, N=12, F=0, eps=1e-5, tied=True, dropout_residual=0.1),
  'xlnet': dict(V=32_000, D=1024, F=4096, H=16, N=24, M=512, gelu='erf', eps=1e-12, dropout=0.1),
  'transformer_xl': dict(V=267_735, D=1024, E=1024, F=4096, H=16, N=18, M=1600, eps=1e-5, tied=True),
  'transformer': dict(V=58_101, D=1024, F=4096, H=16, encoder_layers=12, decoder_layers=12, eps=1e-5),
  'fsmt': dict(V=42_024, source_V=42_024, D=1024, F=4096, H=16, encoder_layers=12, decoder_layers=12, eps=1e-5),
}
GPT = {'hidden_size': 24, 'num_attention_heads': 3, 'num_hidden_layers': 5}
# Family -> names that transformers reads as others (`attribute_map`), and the fields that they become.
ALIASES = {
  'gpt': (GPT | {'max_position_embeddings': 7}, dict(D=24, H=3, N=5, T=7)),
  'gpt2': (GPT | {'max_position_embeddings': 7}, dict(D=24, H=3, N=5, T=7)),
  'xlnet': (GPT | {'n_token': 9}, dict(D=24, H=3, N=5, V=9)),
  'transformer_xl': (GPT | {'n_token': 9, 'd_head': 8, 'cutoffs': []}, dict(D=24, H=3, N=5, V=9)),
  'transformer': (GPT, dict(D=24, encoder_H=3, encoder_layers=5)),
  'fsmt': (GPT | {'vocab_size': 9}, dict(D=24, encoder_H=3, encoder_layers=5, V=9)),
}
EPSILON = {
  'bert': 'layer_norm_eps',
  'gpt': 'layer_norm_epsilon',
  'gpt2': 'layer_norm_epsilon',
  'xlnet': 'layer_norm_eps',
  'transformer_xl': 'layer_norm_epsilon',
}
# Logits of the first tokens at position 3 of a model with epsilon 0.1.
LOGITS = {
  'bert': (-0.753684, -7.566181, 6.369701, -3.983821),
  'gpt': (-0.386052, -1.884403, -2.542079, -0.668254),
  'gpt2': (1.483573, -0.108544, 0.573835, 3.489915),
  'xlnet': (3.566601, 2.07363, -5.433931, -4.936623),
}


@pytest.mark.parametrize('name', DEFAULTS)
def test_missing_fields_have_the_defaults_of_transformers(name):
  found = huggingface.family(name).fields({})
  assert {field: found[field] for field in DEFAULTS[name]} == DEFAULTS[name]


@pytest.mark.parametrize('name', ALIASES)
def test_other_names_of_fields_are_read(name):
  given, expected = ALIASES[name]
  fields = huggingface.family(name).fields
  found = fields(given)
  assert {field: found[field] for field in expected} == expected
  own = {'fsmt': 'd_model', 'gpt': 'n_embd', 'gpt2': 'n_embd'}.get(name, 'd_model')
  assert fields(given | {own: 24}) == found
  with pytest.raises(InputError, match=f'hidden_size: got 24; expected {own}, 48'):
    fields(given | {own: 48})


@pytest.mark.parametrize('name', EPSILON)
def test_epsilon_is_read_and_written(name):
  layout, field = huggingface.family(name), EPSILON[name]
  read = layout.fields({field: 0.003})
  assert read['eps'] == 0.003
  cfg = registry.get(name).Config(**read)
  assert json.loads(json.dumps(layout.config(cfg)))[field] == 0.003
  for wrong in (-1e-5, True, float('nan'), '1e-5', None):
    with pytest.raises(InputError, match=f'config.json: {field}: got'):
      layout.fields({field: wrong})


@pytest.mark.parametrize('name', LOGITS)
def test_every_layer_norm_has_the_epsilon(name):
  model = registry.get(name)
  sizes = {'F': 12, 'fidelity': 'paper', 'gelu': 'erf'} if name == 'xlnet' else {'T': 8}
  sizes |= {'gelu': 'tanh'} if name == 'bert' else {}
  cfg = model.Config(V=11, D=8, H=2, N=1, eps=0.1, **sizes)
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(lambda: model.init(cfg, jax.random.key(0)))
  params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes)

  @jax.jit
  def logits(params):
    features, _ = model.apply(cfg, params, {'tokens_BT': np.arange(5, dtype=np.int32)[None]}, ())
    return model.logits(cfg, params, features)[0, 3, :4]

  np.testing.assert_allclose(logits(params), LOGITS[name], atol=1e-5)


def test_answer_head_has_the_epsilon():
  """The end scores of a constant vector: its normalisation is 0 / sqrt(eps)."""
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(lambda: span_head.init(4, 0.5, jax.random.key(0)))
  head = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes)
  x_BTD, mask_BT = rng.normal(size=(1, 3, 4)).astype(np.float32), np.ones((1, 3), bool)
  found = span_head.end_scores(head, x_BTD, x_BTD[:, :1], mask_BT, 0.1)[0, 0]
  pairs_TD = np.concatenate([x_BTD[0], np.broadcast_to(x_BTD[0, :1], (3, 4))], axis=1)
  y_TD = np.tanh(pairs_TD @ head['end_in']['kernel'] + head['end_in']['bias'])
  y_TD = (y_TD - y_TD.mean(1, keepdims=True)) / np.sqrt(y_TD.var(1, keepdims=True) + 0.1)
  y_TD = y_TD * head['end_norm']['scale'] + head['end_norm']['bias']
  expected = (y_TD @ head['end_out']['kernel'] + head['end_out']['bias'])[:, 0]
  np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize('name', ['transformer', 'fsmt'])
def test_fields_of_training_have_no_effect(name):
  fields = huggingface.family(name).fields
  assert fields({'encoder_layerdrop': 0.3, 'decoder_layerdrop': 0.2, 'init_std': 1.0, 'use_cache': False}) == fields({})


@pytest.mark.parametrize(
  ('name', 'field', 'value'),
  [
    ('bert', 'pruned_heads', {'0': [1]}),
    ('bert', 'add_cross_attention', True),
    ('bert', 'hidden_act', 'quick_gelu'),
    ('bert', 'is_decoder', 'yes'),
    ('gpt', 'afn', 'relu'),
    ('gpt2', 'activation_function', 'gelu'),
    ('gpt2', 'scale_attn_by_inverse_layer_idx', True),
    ('xlnet', 'pruned_heads', {'0': [1]}),
    ('xlnet', 'tie_word_embeddings', False),
    ('transformer', 'tie_encoder_decoder', True),
  ],
)
def test_fields_with_an_effect_are_rejected(name, field, value):
  with pytest.raises(InputError, match=f'config.json: {field}: got'):
    huggingface.family(name).fields({field: value})


@pytest.mark.parametrize(('act', 'form'), [('gelu_python', 'erf'), ('gelu_fast', 'tanh'), ('gelu_accurate', 'tanh')])
def test_other_names_of_gelu_are_read(act, form):
  assert huggingface.family('bert').fields({'hidden_act': act})['gelu'] == form
  assert huggingface.family('xlnet').fields({'ff_activation': act})['gelu'] == form


def test_causal_bert_is_a_decoder():
  cfg = registry.get('bert').Config(causal=True)
  written = huggingface.family('bert').config(cfg)
  assert written['is_decoder'] and huggingface.family('bert').fields(written)['causal']


@pytest.mark.parametrize('name', ['bert', 'gpt', 'gpt2', 'xlnet', 'transformer_xl'])
def test_new_fields_leave_digests(name):
  small = {'model': {'name': name, 'variant': 'tiny'}, 'train': {'steps': 3}}
  resolved = resolve.resolve(small)
  changed = 'model.tied=false' if name == 'transformer_xl' else 'model.eps=0.1'
  assert resolve.digest(resolved) != resolve.digest(resolve.resolve(small, [changed]))
  before = {field.name: field.default for field in dataclasses.fields(registry.get(name).Config)}
  assert resolve.digest(resolved) == resolve.digest(
    resolve.resolve(small, [f'model.eps={before["eps"]}'] if name != 'transformer_xl' else ['model.tied=true'])
  )
