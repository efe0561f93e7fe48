"""Bidirectional attention flow against its equations word by word, its sizes, and what it refuses."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import unit_scaling
from lmx.models import registry
from lmx.objectives import span
from lmx.types import Features
from tests import drawn
from tests.reference import bi_att_flow
from tests.reference import bidaf as reference

bidaf = registry.get('bidaf')

B, T, S, D = 3, 6, 4, 5
LENGTHS, ASKED = (6, 3, 1), (4, 2, 1)
VALID_BT = np.arange(T) < np.array(LENGTHS)[:, None]
VALID_BS = np.arange(S) < np.array(ASKED)[:, None]
RNG = np.random.default_rng(0)
H_BTD, U_BSD = RNG.standard_normal((B, T, D)), RNG.standard_normal((B, S, D))
WEIGHTS = {name: RNG.standard_normal(D) for name in ('query', 'key', 'product')}
BATCH = {
  'tokens_BT': RNG.integers(0, 61, (B, T)).astype(np.int32),
  'tokens_BS': RNG.integers(0, 61, (B, S)).astype(np.int32),
  'valid_BT': VALID_BT,
  'valid_BS': VALID_BS,
}
single = lambda tree: jax.tree.map(lambda x: np.asarray(x, np.float32), tree)
double = lambda tree: jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def test_score_is_w_times_both_vectors_and_their_product():
  found = jax.jit(bidaf.scores)(*single((WEIGHTS, H_BTD, U_BSD)))
  expected = [[[reference.score(WEIGHTS, h, u) for u in us] for h in hs] for hs, us in zip(H_BTD, U_BSD, strict=True)]
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_attention_flow_reads_only_words_of_both_texts():
  flow = jax.jit(bidaf.attention_flow)
  found = flow(*single((WEIGHTS, H_BTD, U_BSD)), VALID_BT, VALID_BS)
  for b, (t, s) in enumerate(zip(LENGTHS, ASKED, strict=True)):
    expected = reference.flow(WEIGHTS, H_BTD[b, :t], U_BSD[b, :s])
    np.testing.assert_allclose(found[b, :t], expected, rtol=1e-5, atol=1e-5)
  empty = flow(*single((WEIGHTS, H_BTD, U_BSD)), VALID_BT, np.zeros_like(VALID_BS))  # then the mean of the passage
  for b, t in enumerate(LENGTHS):
    expected = reference.flow(WEIGHTS, H_BTD[b, :t], U_BSD[b, :0])
    np.testing.assert_allclose(empty[b, :t], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('nothing', [None, 0.3])
def test_word_attends_to_other_words_and_a_null_position(nothing):
  params = {'attention': WEIGHTS} | ({} if nothing is None else {'nothing': np.float64(nothing)})
  found = np.asarray(jax.jit(bidaf.self_attention)(*single((params, H_BTD)), VALID_BT))
  for b, t in enumerate(LENGTHS):
    expected = reference.self_attention(params, H_BTD[b, :t])
    np.testing.assert_allclose(found[b, :t], expected, rtol=1e-5, atol=1e-5)
  assert not found[2, 0, :D].any()  # a word that is alone


@pytest.mark.parametrize(
  'changes',
  [
    {},
    {'no_alignment': False, 'cell': 'lstm'},
    {'self_attention': False, 'no_alignment': False, 'cell': 'lstm'},
  ],
)
def test_model_matches_the_papers(changes):
  cfg = registry.config('bidaf', 'tiny', elmo='none', char_filters=(), **changes)
  params = drawn.params(bidaf.init, cfg, std=drawn.by_size(2))
  run = jax.jit(lambda params: bidaf.apply(cfg, params, BATCH, (), all_layers=True)[0])
  found, own = jax.device_get(run(params)), double(params)
  table = own['embed']['table']
  for b, (t, s) in enumerate(zip(LENGTHS, ASKED, strict=True)):
    words = table[BATCH['tokens_BT'][b, :t]], table[BATCH['tokens_BS'][b, :s]]
    expected = reference.model(own, cfg.cell, *words)
    np.testing.assert_allclose(found.last_BTD[b, :t], expected, rtol=1e-4, atol=1e-5)
  assert len(found.layers) == cfg.N + 1


def test_elmo_vectors_of_both_texts_are_at_the_input_and_the_output():
  """Their place; what they are is word_input's. The question's reach the passage through its attention alone."""
  shapes = {place: drawn.shapes(bidaf.init, registry.config('bidaf', 'tiny', elmo=place)) for place in ELMO}
  for place, (width_in, width) in ELMO.items():
    assert shapes[place]['layer_00']['forward']['input'].shape[0] == width_in
    assert shapes[place]['layer_01']['attention']['key'].shape == (width,)
    assert shapes[place]['layer_01']['linear']['kernel'].shape == (4 * width, 16)
  batch = BATCH | {f'characters_B{axis}C': RNG.integers(1, 262, (B, n, 7)).astype(np.int32) for axis, n in LETTERS}
  cfg = registry.config('bidaf', 'tiny', elmo='output', char_filters=(), bilm_layers=1)
  params = drawn.params(bidaf.init, cfg, std=drawn.by_size(2))
  run = jax.jit(lambda batch: bidaf.apply(cfg, params, batch, (), all_layers=True)[0].layers)
  before = jax.device_get(run(batch))
  other = batch | {'characters_BSC': batch['characters_BSC'] % 200 + 1}
  after = jax.device_get(run(other))
  assert before[1].shape[-1] == 30 and not np.allclose(before[2][VALID_BT], after[2][VALID_BT])
  np.testing.assert_array_equal(before[1], after[1])


ELMO = {'none': (10, 16), 'input': (24, 16), 'output': (10, 30), 'both': (24, 30)}  # widths of the layers' inputs
LETTERS = (('T', T), ('S', S))


def count(variant: str, **changes) -> int:
  cfg = registry.config('bidaf', variant, V=1, **changes)
  params = drawn.shapes(bidaf.init, cfg)
  return sum(x.size for name, part in params.items() if name != 'bilm' for x in jax.tree.leaves(part)) - cfg.E


def test_sizes_match_the_papers():
  gru = lambda width, cells: 2 * 3 * cells * (width + cells + 2)
  lstm = lambda width, cells: 2 * 4 * cells * (width + cells + 1)
  characters = lambda width: 261 * width + 5 * width * 100 + 100
  tail = gru(180, 90) + 3 * 180 + 1 + 3 * 180 * 180 + 180
  assert count('base') == characters(20) + gru(400, 90) + 3 * 180 + 4 * 180 * 180 + 180 + tail == 656_121
  mixes = 2 * (3 + 1)
  flow = 3 * 1204 + 4 * 1204 * 180 + 180
  assert count('elmo_original') == characters(20) + gru(400 + 1024, 90) + flow + tail + mixes
  highways = 2 * 2 * (200 * 200 + 200)
  seo = characters(8) + highways + lstm(200, 100) + 3 * 200 + lstm(800, 100) + lstm(200, 100)
  assert count('seo') == seo == 1_369_988


FLOW = span.Config(head='bidaf', sum_ends=True)


def released_case():
  """Parameters of a small `seo` with its head, a batch, and the logits of both ends in the released graph."""
  cfg = registry.config('bidaf', 'seo', V=61, E=6, char_filters=((3, 5),), char_characters=4, D=4)
  params = {'model': drawn.params(bidaf.init, cfg, std=drawn.by_size())}
  params['objective'] = drawn.params(functools.partial(span.init, FLOW, bidaf, cfg), std=drawn.by_size(2), seed=1)
  batch = {**BATCH, **{f'characters_B{axis}C': RNG.integers(1, 262, (B, n, 7)).astype(np.int32) for axis, n in LETTERS}}
  ends = {'starts_B': np.array([2, 0, 0]), 'ends_B': np.array([4, 2, 0]), 'row_weights_B': np.ones(B, np.float32)}
  exact = double(params)
  embed = exact['model']['embed']
  letters = np.concatenate([np.zeros((1, 4)), embed['spelling']['characters']])
  variables = bi_att_flow.variables(exact['model'], exact['objective'])
  logits = bi_att_flow.forward(variables, (embed['table'], letters), batch, LENGTHS, ASKED)
  return cfg, params, {**batch, **ends}, variables, logits


def test_seo_matches_the_released_graph():
  cfg, params, batch, _, logits = released_case()
  found = jax.jit(functools.partial(span.predict, FLOW, bidaf, cfg))(params, batch, ())[0]['scores_BT2']
  for end in range(2):
    np.testing.assert_allclose(found[VALID_BT][:, end], logits[end][VALID_BT], rtol=1e-6, atol=1e-6)
  out = jax.jit(functools.partial(span.loss, FLOW, bidaf, cfg))(params, batch, ())
  expected = bi_att_flow.loss(*logits, batch['starts_B'], batch['ends_B'])
  np.testing.assert_allclose(out.sums['nll'] / B, expected, rtol=1e-6)  # what is trained on
  np.testing.assert_allclose(out.metrics['nll'][0] / B, expected / 2, rtol=1e-6)  # what is reported


def test_seo_has_the_parameters_of_the_released_graph():
  """Seo et al. 2017, section 4: about 2.6 million."""
  cfg = registry.config('bidaf', 'seo', V=1)
  head = drawn.shapes(functools.partial(span.init, FLOW, bidaf, cfg))
  zeros = lambda tree: jax.tree.map(lambda x: np.zeros(x.shape, np.float32), tree)
  variables = bi_att_flow.variables(zeros(drawn.shapes(bidaf.init, cfg)), zeros(head))
  assert sum(x.size for x in variables.values()) == 2_570_703  # without tables of characters and words
  ours = count('seo') + sum(x.size for x in jax.tree.leaves(head))
  assert ours == 2_570_703 - 1 + 261 * 8  # the bias of a score that only softmaxes read; 261 bytes and marks


def test_seo_starts_as_in_tensorflow():
  """TensorFlow 0.11: uniform in +-sqrt(3 / fan-in), forget bias 1; a convolution's bias is a variable like others."""
  cfg = registry.config('bidaf', 'seo', V=2)
  found = jax.device_get(jax.jit(functools.partial(bidaf.init, cfg))(jax.random.key(0)))
  largest = lambda x: float(np.abs(x).max())
  lstm, highway = found['layer_02']['forward'], found['highway']['highway_1']
  spelling, attention = found['embed']['spelling'], found['layer_01']['attention']
  limits = [(lstm['input'], 900), (lstm['recurrent'], 900), (highway['kernel'], 200), (highway['gate_kernel'], 200)]
  limits += [(attention['key'], 600), (spelling['characters'], 261)]
  limits += [(spelling['convolution_0']['kernel'], 40), (spelling['convolution_0']['bias'], 1)]
  for x, fan_in in limits:
    assert 0.95 * (3 / fan_in) ** 0.5 < largest(x) <= (3 / fan_in) ** 0.5 + 1e-6
  np.testing.assert_array_equal(lstm['bias'], np.repeat([0, 1, 0, 0], 100))
  assert not highway['gate_bias'].any() and not highway['bias'].any()
  head = unit_scaling.redraw({'kernel': np.zeros((1000, 1), np.float32), 'bias': np.ones(1)}, jax.random.key(1))
  assert largest(head['kernel']) <= (3 / 1000) ** 0.5 and not head['bias'].any()


def test_seo_drops_single_elements_and_not_the_passage_before_its_contextual_layer():
  cfg, params, batch, *_ = released_case()
  run = jax.jit(lambda params, key: bidaf.apply(cfg, params, batch, (), key, all_layers=True)[0])
  embed = params['model']['embed']
  spelling = {**embed['spelling'], 'characters': np.zeros((261, 4), np.float32)}
  silent = {**params['model'], 'embed': {**embed, 'spelling': spelling}}
  one, other, letters, others = (
    jax.device_get(run(own, jax.random.key(k))) for own in (silent, params['model']) for k in (3, 4)
  )
  np.testing.assert_array_equal(one.layers[1], other.layers[1])  # without characters nothing before it is random
  assert not np.allclose(one.layers[2], other.layers[2])  # the question is
  assert not np.allclose(letters.layers[0], others.layers[0])  # and so are characters
  last_BTD = np.asarray(one.last_BTD)
  mask_BTD = (last_BTD == 0) & (np.concatenate([one.layers[2], one.layers[-1]], -1) != 0)
  assert 0.05 < mask_BTD[0].mean() < 0.5 and (mask_BTD[0] != mask_BTD[0, :1]).any()


def test_dropout_has_one_mask_for_all_words():
  cfg = registry.config('bidaf', 'tiny', elmo='none', char_filters=(), dropout=0.5)
  params = drawn.params(bidaf.init, cfg, std=drawn.by_size(2))
  run = jax.jit(lambda key: bidaf.apply(cfg, params, BATCH, (), key, all_layers=True)[0])
  found = jax.device_get(run(jax.random.key(3)))
  dropped_BTD = (found.last_BTD == 0) & (found.layers[-1] != 0)
  assert 0.2 < dropped_BTD[0].mean() < 0.8
  np.testing.assert_array_equal(dropped_BTD[0], np.broadcast_to(dropped_BTD[0, :1], dropped_BTD[0].shape))


def test_incompatible_settings_are_rejected():
  with pytest.raises(InputError, match='predicts no words'):
    bidaf.nll(bidaf.Config(), {}, Features(np.zeros((B, T, 30), np.float32)), np.zeros((B, T), np.int32))
  with pytest.raises(InputError, match='no_alignment: got True'):
    bidaf.Config(self_attention=False)
  with pytest.raises(InputError, match='initial: got "tensorflow"'):
    bidaf.Config(initial='tensorflow')
  with pytest.raises(InputError, match='head: got "bidaf" with objective.features'):
    span.Config(head='bidaf', features='sum_all')
  with pytest.raises(InputError, match='head: got "bidaf" with a model without its modelling layer'):
    jax.eval_shape(functools.partial(span.init, FLOW, bidaf, registry.config('bidaf', 'tiny')), jax.random.key(0))
