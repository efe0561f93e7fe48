"""The Transformer against the restatement; positions, parameter counts of table 3, padding, decoding, alignment."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import sinusoids
from lmx.models import registry
from tests import drawn
from tests.models import compiled
from tests.reference import transformer as reference

transformer = registry.get('transformer')

B, S, T = 3, 9, 7
SOURCES = np.array([9, 4, 1])


def config(**changes) -> transformer.Config:
  return registry.config('transformer', 'tiny', **({'dropout': 0.0} | changes))


@functools.cache
def params_of(cfg):
  return drawn.params(transformer.init, cfg, std=drawn.by_size())


def batch_of(cfg, seed=0):
  rng = np.random.default_rng(seed)
  ids = lambda *shape: rng.integers(0, cfg.V, shape).astype(np.int32)
  return {'source_BS': ids(B, S), 'source_valid_BS': np.arange(S) < SOURCES[:, None], 'tokens_BT': ids(B, T)}


logits = functools.partial(compiled.logits, transformer)


NARROW = dict(K=12, positions='learned', T=T + 3)  # heads with keys of another width than values; rows B, E of table 3
CASES = {
  'post-none-xla': dict(norm='post', biases='none', attention='xla'),
  'pre-attention-xla': dict(norm='pre', biases='attention', attention='xla'),
  'post-all-blocked': dict(norm='post', biases='all', attention='blocked'),
  'post-narrow': dict(norm='post', biases='attention', attention='xla', **(NARROW | {'T': S})),
}
every_case = pytest.mark.parametrize('case', CASES)


@functools.cache
def outputs(case):
  """Config, batch and every output of the model, from one program."""
  cfg = config(**CASES[case])
  batch = batch_of(cfg)

  @jax.jit
  def run(params):
    features, state = transformer.apply(cfg, params, batch, ())
    assert state == ()
    align = functools.partial(transformer.alignment, cfg, params, batch)
    alignments = [align(layer=i) for i in range(cfg.decoder_layers)]
    weights = transformer.attention_weights(cfg, params, batch)
    found = {'alignments': alignments, 'alignment': align(), 'weights': [one.weights_BHTS for one in weights]}
    assert [one.kind for one in weights] == ['self', 'self', *['self', 'cross'] * 2]
    return {'logits': transformer.logits(cfg, params, features), **found}

  return cfg, batch, jax.device_get(run(params_of(cfg)))


def restated(cfg, batch, b):
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params_of(cfg))
  row = (batch['source_BS'][b], batch['source_valid_BS'][b], batch['tokens_BT'][b])
  return reference.transformer(exact, *row, cfg.encoder_layers, cfg.norm, cfg.eps)


@every_case
def test_matches_reference_padded_rows_too(case):
  cfg, batch, found = outputs(case)
  for b in range(B):
    expected, seen = restated(cfg, batch, b)
    np.testing.assert_allclose(found['logits'][b], expected, rtol=1e-5, atol=2e-5)
    for a_BTS, a_TS in zip(found['alignments'], seen, strict=True):
      np.testing.assert_allclose(a_BTS[b], a_TS, rtol=1e-5, atol=1e-5)


@every_case
def test_alignment_defaults_to_the_last_layer_and_sums_to_one(case):
  cfg, batch, found = outputs(case)
  a_BTS = found['alignment']
  np.testing.assert_allclose(a_BTS, found['alignments'][-1], rtol=1e-6)
  assert not np.allclose(a_BTS, found['alignments'][0], atol=1e-3)
  np.testing.assert_allclose(np.sum(a_BTS, -1), 1, rtol=1e-5)
  assert not np.any(a_BTS * ~batch['source_valid_BS'][:, None])


@every_case
def test_attention_matches_every_head_of_the_reference(case, monkeypatch):
  cfg, batch, found = outputs(case)
  seen, heads = [], reference.heads
  monkeypatch.setattr(reference, 'heads', lambda *given: seen.append(heads(*given)) or seen[-1])
  for b in range(B):
    seen.clear()
    restated(cfg, batch, b)
    # The encoder's layers, then of each of the decoder's the target and the source.
    for a_BHTS, (_, expected_HTS) in zip(found['weights'], seen, strict=True):
      assert a_BHTS.shape[:2] == (B, cfg.H) and a_BHTS.dtype == np.float32
      np.testing.assert_allclose(a_BHTS[b], expected_HTS, rtol=1e-5, atol=1e-5)


def test_layouts_of_the_positions():
  paper = reference.positions(40, 16)
  np.testing.assert_allclose(sinusoids.table(40, 16, 'interleaved'), paper, atol=1e-6)
  halves = np.concatenate([paper[:, ::2], paper[:, 1::2]], 1)
  np.testing.assert_allclose(sinusoids.table(40, 16, 'halves'), halves, atol=1e-6)
  released = sinusoids.table(40, 16, 'tensor2tensor')
  for i in range(8):  # timescales from 1 to 10,000, both included
    angle = np.arange(40) * math.exp(-i * math.log(10000) / 7)
    np.testing.assert_allclose(released[:, [i, 8 + i]], np.stack([np.sin(angle), np.cos(angle)], 1), atol=1e-6)


def test_initialisation():
  cfg = config(D=128, F=512, V=500, encoder_layers=1, decoder_layers=1)
  halved = dataclasses.replace(cfg, gain_qkv=0.5)
  both = jax.jit(lambda key: (transformer.init(cfg, key), transformer.init(halved, key)))
  params, narrow = jax.device_get(both(jax.random.key(0)))
  assert abs(np.std(params['embed']['tokens']) / 128**-0.5 - 1) < 0.02
  for name, kernel, inputs, outputs in (
    ('layer_00', ('attention', 'qkv'), 128, 128),
    ('layer_01', ('attention', 'out'), 128, 128),
    ('layer_01', ('cross', 'kv'), 128, 128),
    ('layer_01', ('cross', 'q'), 128, 128),
    ('layer_00', ('mlp', 'in'), 128, 512),
    ('layer_01', ('mlp', 'out'), 512, 128),
  ):
    x = np.asarray(functools.reduce(dict.__getitem__, kernel, params[name])['kernel'])
    limit = math.sqrt(6 / (inputs + outputs))
    assert 0.99 * limit < np.abs(x).max() <= limit and abs(np.std(x) / limit * 3**0.5 - 1) < 0.02, (name, kernel)
  assert 'norm_encoder' not in params and 'output' in params
  for name, kernel, factor in (
    ('layer_00', ('attention', 'qkv'), 0.5),
    ('layer_01', ('cross', 'kv'), 0.5),
    ('layer_01', ('cross', 'q'), 0.5),
    ('layer_01', ('cross', 'out'), 1),
    ('layer_00', ('mlp', 'in'), 1),
  ):
    wide, x = (functools.reduce(dict.__getitem__, kernel, p[name])['kernel'] for p in (params, narrow))
    np.testing.assert_array_equal(factor * wide, x)
  plain = drawn.shapes(transformer.init, config(biases='none', norm='pre'))
  assert set(plain['layer_02']['cross']['q']) == {'kernel'} and {'norm_encoder', 'norm_decoder'} < set(plain)
  assert set(plain['layer_00']['mlp']['in']) == {'kernel', 'bias'}


# Table 3: fields, and the number of parameters in millions.
TABLE_3 = [
  (dict(), 65),
  (dict(encoder_layers=2, decoder_layers=2), 36),
  (dict(encoder_layers=4, decoder_layers=4), 50),
  (dict(encoder_layers=8, decoder_layers=8), 80),
  (dict(D=256), 28),
  (dict(D=1024), 168),
  (dict(F=1024), 53),
  (dict(F=4096), 90),
  (dict(K=16), 58),
  (dict(K=32), 60),
]


def by_equations(cfg):
  """Numbers of parameters of section 3, in words: matrices of attention, networks with biases, normalisations."""
  D, F = cfg.D, cfg.F
  attention, network, norm = 2 * D * D + 2 * D * (cfg.K * cfg.H or D), 2 * D * F + F + D, 2 * D
  encoder, decoder = attention + network + 2 * norm, 2 * attention + network + 3 * norm
  return cfg.V * D + cfg.encoder_layers * encoder + cfg.decoder_layers * decoder


def count(cfg):
  return sum(x.size for x in jax.tree.leaves(drawn.shapes(transformer.init, cfg)))


@pytest.mark.parametrize('changes,millions', TABLE_3)
def test_parameters_of_table_3(changes, millions):
  """One vocabulary explains every row of the base model; the paper's "about 37,000" would not."""
  cfg = registry.config('transformer', 'base', **changes)
  for V in (41_004, cfg.V, 41_208):
    assert round(by_equations(dataclasses.replace(cfg, V=V)) / 1e6) == millions
  assert count(cfg) == by_equations(cfg)
  if changes:
    return
  for H in (1, 4, 16, 32):  # rows A
    assert count(dataclasses.replace(cfg, H=H)) == by_equations(cfg)


def test_printed_parameter_counts():
  for variant, vocabulary, exact, millions in (
    ('base', 41_100, 65_144_832, 65),
    ('big', 36_000, 213_147_648, 213),
    ('base', 37_000, 63_045_632, 63),
    ('big', 37_000, 214_171_648, 214),
  ):
    cfg = registry.config('transformer', variant, V=vocabulary)
    assert by_equations(cfg) == exact and round(exact / 1e6) == millions
  assert count(registry.config('transformer', 'big')) == 213_147_648
  base, big = (registry.config('transformer', variant) for variant in ('base', 'big'))
  fits = lambda cfg, fields, n, V: round(by_equations(dataclasses.replace(cfg, V=V, **fields)) / 1e6) == n
  every = [V for V in range(30_000, 50_000) if all(fits(base, *row, V) for row in TABLE_3)]
  assert (every[0], every[-1]) == (41_004, 41_208)
  every = [V for V in range(30_000, 50_000) if fits(big, {}, 213, V)]
  assert (every[0], every[-1]) == (35_368, 36_344)


def test_padding_and_other_rows_do_not_change_outputs():
  cfg = config(norm='pre', encoder_layers=1, decoder_layers=1)
  params, batch = params_of(cfg), batch_of(cfg)
  whole, _ = logits(cfg, params, batch)
  alone = {'source_BS': batch['source_BS'][1:2, : SOURCES[1]], 'tokens_BT': batch['tokens_BT'][1:2]}
  np.testing.assert_allclose(logits(cfg, params, alone)[0][0], whole[1], rtol=1e-6, atol=5e-6)
  wider = {
    **batch,
    'source_BS': np.pad(batch['source_BS'], ((0, 0), (0, 8)), constant_values=5),
    'source_valid_BS': np.pad(batch['source_valid_BS'], ((0, 0), (0, 8))),
  }
  np.testing.assert_allclose(logits(cfg, params, wider)[0], whole, rtol=1e-6, atol=5e-6)


@pytest.mark.parametrize('norm,scan,narrow', [('post', False, True), ('pre', True, False)])
def test_decoding_in_parts_of_any_size_equals_teacher_forcing(norm, scan, narrow):
  """Rows go on at positions of their own."""
  cfg = config(norm=norm, scan=scan, **(NARROW if narrow else dict(positions='tensor2tensor')))
  params, batch = params_of(cfg), batch_of(cfg)
  whole, _ = logits(cfg, params, batch)
  state = jax.jit(functools.partial(transformer.begin, cfg, length=T + 3))(params, batch)
  lengths = np.array([3, 1, 2])
  prompt = {'tokens_BT': batch['tokens_BT'][:, :3], 'valid_BT': np.arange(3) < lengths[:, None]}
  found, state = logits(cfg, params, prompt, state)
  np.testing.assert_array_equal(state['position_B'], lengths)
  for b, n in enumerate(lengths):
    np.testing.assert_allclose(found[b, :n], whole[b, :n], rtol=1e-5, atol=1e-5)
  for size in (1, 2, 1):
    at = (np.arange(B)[:, None], lengths[:, None] + np.arange(size))
    found, state = logits(cfg, params, {'tokens_BT': batch['tokens_BT'][at]}, state)
    np.testing.assert_allclose(found, whole[at], rtol=1e-5, atol=1e-5)
    lengths = lengths + size


def test_state_holds_what_the_decoder_reads_in_the_compute_type():
  cfg = config(dtype='bfloat16')
  params, batch = params_of(cfg), batch_of(cfg)
  state = jax.eval_shape(functools.partial(transformer.begin, cfg, length=6), params, batch)
  assert state['sources'][1][0].shape == (B, S, 4, 8) and state['layers'][0][1].shape == (B, 6, 4, 8)
  assert {x.dtype for x in jax.tree.leaves((state['sources'], state['layers']))} == {jnp.dtype('bfloat16')}
  one = {'tokens_BT': batch['tokens_BT'][:, :1]}

  def step(state):
    _, after = transformer.apply(cfg, params, one, state)
    assert after['sources'] is state['sources']  # so that a decoder need not copy it

  jax.eval_shape(step, state)
  assert transformer.init_state(cfg, 2, 5) == ()


def test_invalid_settings_are_rejected():
  for change in (
    dict(H=5),
    dict(D=9, H=3),
    dict(positions='learned'),
    dict(T=5),
    dict(K=-1),
    dict(decoder_layers=0),
    dict(eps=-1.0),
  ):
    with pytest.raises(InputError, match=next(iter(change))):
      config(**change)


def test_learned_positions_bound_the_source_and_the_target():
  batch = jax.tree.map(jnp.asarray, batch_of(config()))
  for longest, side in ((S - 1, 'source'), (S, 'target')):
    cfg = config(**(NARROW | {'T': longest}))
    params = drawn.shapes(transformer.init, cfg)
    with pytest.raises(InputError, match=f'model.T: got {longest} .* of the {side}'):
      state = jax.eval_shape(functools.partial(transformer.begin, cfg, length=S + 1), params, batch)
      jax.eval_shape(functools.partial(transformer.apply, cfg), params, batch, state)
