"""What every model promises, tested on every model that the registry finds, at its size for tests."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from lmx import objectives
from lmx.engine import step
from lmx.errors import InputError
from lmx.layers import word_input
from lmx.models import registry
from lmx.types import Rows
from tests import drawn

B, T, P, S = 3, 12, 4, 9
SMALL = {'V': 61, 'T': 32}  # over the size for tests, where that is a size of a paper
SMALLER = {'bert': {'D': 32}, 'transformer': {'T': 0, 'encoder_layers': 1, 'decoder_layers': 1}}
SMALLER |= dict.fromkeys(('bcn', 'bidaf', 'esim', 'glue_bilstm', 'srl_lstm'), {'bilm_layers': 1})  # bilstm has two
COUNTS = {  # without the names in HEADS; where a paper or its code prints the number or fixes it
  ('gpt2', '124m'): 124_439_808,
  ('gpt2', '355m'): 354_823_168,
  ('gpt2', '774m'): 774_030_080,
  ('gpt2', '1558m'): 1_557_611_200,
  ('gpt', 'base'): 116_534_784,
  ('bert', 'base'): 109_482_240,
  ('bert', 'large'): 335_141_888,
  ('bert', 'tiny'): 4_385_920,
  ('bert', 'mini'): 11_170_560,
  ('bert', 'small'): 28_763_648,
  ('bert', 'medium'): 41_373_184,
  ('elmo', 'original'): 93_600_848,
  ('elmo', 'medium'): 28_027_728,
  ('elmo', 'small'): 13_593_296,
  # 10,000 words and the predicate's bit of 100 each, 6 (E + 1) D + 5 D^2 of a layer: 811,800 of the first, 991,800 of 7
  ('srl_lstm', 'base'): 8_754_600,
  # 2 layers of 2 (600 x 1,200 + 1,200), F of 2,400 x 300 + 300, embeddings; with ELMo inputs of 1,324, 4 (600 + 1,024)
  # enhanced, two mixes of 4 and the biLM
  ('esim', 'base'): 6_605_100,
  ('esim', 'elmo_original'): 103_892_356,
  # |V| (1 + nm + h) + h (1 + (n - 1) m), Bengio et al. 2003, section 2; without direct connections |V| (n - 1) m less
  ('nplm', 'mlp1'): 5_762_483,
  ('nplm', 'mlp3'): 4_931_283,
  ('nplm', 'mlp5'): 3_299_033,
  ('nplm', 'mlp7'): 2_313_053,
  ('nplm', 'mlp9'): 2_158_273,
  ('nplm', 'ap'): 11_904_264,
  # Graves et al. 2014, table 3 (of the fifth, sort, see tests/models/ntm_test.py)
  ('ntm', 'copy_baseline'): 1_352_969,
  ('ntm', 'repeat_baseline'): 5_312_007,
  ('ntm', 'recall_baseline'): 1_344_518,
  ('ntm', 'ngrams_baseline'): 331_905,
  ('awd_lstm', 'wt103_qrnn'): 153_886_638,  # printed: 151M, which a window of 1 in the first layer gives
  ('transformer_xl', 'wt103_base'): 151_107_538,
  ('transformer_xl', 'enwik8_12l'): 41_055_436,
  ('transformer_xl', 'enwik8_24l'): 277_231_820,  # 277M
  ('transformer_xl', 'lm1b_base'): 466_962_290,  # 0.46B
  ('transformer_xl', 'lm1b_large'): 838_078_062,  # 0.8B
  ('xlnet', 'base'): 116_718_336,
  ('xlnet', 'large'): 360_268_800,
  ('sparse_transformer', 'enwik8'): 94_949_376,
  # Tay et al. 2019 print 44M, 29M, 11M, and 400K, 300K, 100K
  ('quaternion_transformer', 'base'): 44_103_680,
  ('quaternion_transformer', 'partial'): 29_947_904,
  ('quaternion_transformer', 'full'): 11_042_816,
  ('quaternion_text', 'encoder_base'): 395_776,
  ('quaternion_text', 'encoder_partial'): 297_472,
  ('quaternion_text', 'encoder_full'): 99_584,
  # N (2 D A + 2 A + D (D + 1) + 2 D F + F + D + 4 D): score, output, feed-forward, two norms; D = A = 256, F = 1,024
  ('self_attention', 'base'): 1_447_936,
  # 2 (4 D (I + D) + 4 D) for LSTMs of I = 300 and 3,000, and of 6,000 after the attention, D = 1,500: 21,612,000 +
  # 54,012,000 + 90,012,000; 10,000 words of 300, or inputs of 1,024 from a mix of 4 and the biLM of 93,600,848
  ('glue_bilstm', 'base'): 168_636_000,
  ('glue_bilstm', 'elmo_original'): 267_924_852,
  # 300 F + F, 2 (4 D (F + D) + 4 D), 2 (4 D (6 D + D) + 4 D), 2 D of v, with D = F = 300; and 10,000 words of 300:
  # 90,300 + 1,442,400 + 5,042,400 + 600 + 3,000,000
  ('bcn', 'base'): 9_575_700,
  # As in the docstring and tests/models/bidaf_test.py, and V E of the default vocabulary, 10,000 words
  ('bidaf', 'base'): 656_121 + 10_000 * 300,
  ('bidaf', 'seo'): 1_369_988 + 10_000 * 100,
  ('cfnet', 'resnet50'): 23_508_032,  # torchvision's without the last layer
  ('cfnet', 'resnet101'): 42_500_160,
  ('character_transformer', 't12'): 41_080_832,
  ('character_transformer', 't64'): 218_529_792,
}

# A constant of each channel, which batch normalisation subtracts: attention weights without dropout sum to 1.
BEFORE_NORM = {'cfnet': [('model', 'head', 'attention', 'value', 'bias')]}

SECOND = ('tokens_BS', 'valid_BS')  # second text of a model that compares two
# Of `apply`; the rest is the loss's.
INPUTS = ('tokens_BT', 'types_BT', 'valid_BT', 'source_BS', 'source_valid_BS', 'predicate_BT', *SECOND)
LABELS = {
  'dataset': {'name': 'made up'},
  'label_names': ['a', 'b', 'c'],
  'token_label_names': ['B-x', 'I-x', 'O'],
  'spans': True,
}
MODELS = registry.names()
CAUSAL = [name for name in MODELS if registry.get(name).CAUSAL]
every_model = pytest.mark.parametrize('name', MODELS)
# A recurrent, a causal, a bidirectional and an encoder-decoder model; the others are slow.
ROW = {'tokens_BT': jax.ShapeDtypeStruct((B, T), jnp.int32)}
FEW = ('rnn_lm', 'gpt2', 'bert', 'bahdanau')


def only(*names: str) -> pytest.MarkDecorator:
  return pytest.mark.parametrize('name', [n if n in names else pytest.param(n, marks=pytest.mark.slow) for n in MODELS])


few_models = only(*FEW)
fewer_models = only('rnn_lm', 'gpt2', 'bahdanau')  # the blocks of bert are those of gpt2
ATTENTION = {  # (kind, queries, keys) of the layers that attend, at the size for tests; M + T keys with a memory
  **dict.fromkeys(('bert', 'character_transformer', 'gpt', 'gpt2', 'quaternion_text'), [('self', T, T)] * 2),
  **dict.fromkeys(('self_attention', 'sparse_transformer'), [('self', T, T)] * 2),
  **dict.fromkeys(('bahdanau', 'luong'), [('cross', T, S)]),
  **dict.fromkeys(('quaternion_transformer', 'transformer'), [('self', S, S), ('self', T, T), ('cross', T, S)]),
  'bidaf': [('cross', T, S), ('self', T, T)],
  'esim': [('cross', T, T)],  # both directions, as neighbouring rows
  'glue_bilstm': [('cross', T, S), ('cross', S, T)],
  'bcn': [('cross', T, T)],  # the text itself
  'memory_compressed': [('self', T, T), ('self', T, 1 + T // 3), ('self', T, T)],
  **{name: [('self', T, T + registry.config(name, 'tiny').M)] * 2 for name in ('transformer_xl', 'xlnet')},
}
# Slow, as their rows, masks and caches are those of another model: of esim, bahdanau, gpt2 or transformer.
ALIKE = (
  'bcn',
  'glue_bilstm',
  'luong',
  'rnn_encdec',
  'gpt',
  'character_transformer',
  'quaternion_transformer',
)


def apart(names) -> pytest.MarkDecorator:
  return pytest.mark.parametrize('name', [pytest.param(n, marks=pytest.mark.slow) if n in ALIKE else n for n in names])


every_kind = apart(MODELS)
# A model of windows has no outputs that a token further on could reach, nor padding on the right.
every_sequence = apart([name for name in MODELS if registry.get(name).READS != 'windows'])
# Images are not padded on the right either.
every_padded = apart([n for n in MODELS if registry.get(n).READS not in ('windows', 'images')])
causal_models = apart(CAUSAL)
every_encoder_decoder = apart([n for n in MODELS if registry.get(n).READS == 'source'])


def config(name: str, **changes):
  """The size for tests, without dropout."""
  fields = registry.get(name).Config.__dataclass_fields__
  quiet = {field: 0.0 for field in fields if field.startswith('dropout')}
  small = {k: v for k, v in SMALL.items() if k in fields} | SMALLER.get(name, {})
  return registry.config(name, 'tiny', **(quiet | small | changes))


def reads_second(name: str) -> bool:
  """Does the model compare two texts?"""
  shapes = registry.get(name).read_shapes
  return 'tokens_BS' in shapes(config(name), ROW)


every_model_of_pairs = apart([name for name in MODELS if reads_second(name)])


def draw(init, *args, std=lambda shape: 2 * max(shape, default=64) ** -0.5):
  """Parameters of which no bias is zero and no gain one."""
  return drawn.params(init, *args, std=std, seed=1)


def by_inputs(shape: tuple[int, ...]) -> float:
  """Deviation of a kernel whose last axis alone is of outputs: a product keeps the size of its inputs."""
  return math.prod(shape[:-1]) ** -0.5 if shape[1:] else 0.2


@functools.cache
def params_of(name: str):
  model = registry.get(name)
  if model.READS == 'images':  # a convolution has more inputs than its longest axis
    return draw(model.init, config(name), std=by_inputs)
  return draw(model.init, config(name))


@functools.cache
def state_of(name: str, rows: int = B, length: int = 0):
  return jax.jit(lambda: registry.get(name).init_state(config(name), rows, length))()


@functools.cache
def objective(name: str):
  return objectives.default(registry.get(name), LABELS)


def batch_of(cfg, seed: int = 0) -> dict[str, np.ndarray]:
  """Every key that some objective or model reads; rows of full length."""
  rng, V = np.random.default_rng(seed), words(cfg)
  return {
    'tokens_BT': rng.integers(0, V, (B, T)).astype(np.int32),
    'targets_BT': rng.integers(0, V, (B, T)).astype(np.int32),
    'weights_BT': np.ones((B, T), np.float32),
    'types_BT': np.repeat([[0, 1]], [T // 2, T - T // 2], axis=1).repeat(B, 0).astype(np.int32),
    'positions_BP': np.stack([np.sort(rng.permutation(T)[:P]) for _ in range(B)]).astype(np.int32),
    'targets_BP': rng.integers(0, V, (B, P)).astype(np.int32),
    'weights_BP': np.ones((B, P), np.float32),
    'next_B': np.arange(B, dtype=np.int32) % 2,
    'row_weights_B': np.ones(B, np.float32),
    'source_BS': rng.integers(0, V, (B, S)).astype(np.int32),
    'source_valid_BS': np.ones((B, S), bool),
    'tokens_BS': rng.integers(0, V, (B, S)).astype(np.int32),
    'valid_BS': np.ones((B, S), bool),
    'predicate_BT': (np.arange(T) == np.array([[2], [0], [4]])).astype(np.int32),
    'labels_B': np.arange(B, dtype=np.int32),
    'starts_B': np.array([1, 2, 5], np.int32),
    'ends_B': np.array([3, 2, 6], np.int32),
  }


def whole_rows(name: str) -> dict[str, np.ndarray]:
  """The batch, of a model of both directions with its mask, so that it is compiled for rows with padding alone."""
  batch = batch_of(config(name))
  return batch if registry.get(name).CAUSAL else batch | {'valid_BT': np.ones((B, T), bool)}


def words(cfg) -> int:
  """Size of the vocabulary; of a model that reads no words, what its vectors are made from."""
  return getattr(cfg, 'V', SMALL['V'])


def part_of(batch, rows=slice(None), steps=slice(None)) -> dict[str, np.ndarray]:
  """Some rows and steps of a batch, as evaluation needs it: tokens, types, and the whole source."""
  found = {k: batch[k][rows, steps] for k in ('tokens_BT', 'types_BT', 'predicate_BT')}
  return found | {k: batch[k][rows] for k in ('source_BS', 'source_valid_BS', *SECOND)}


def started(name: str, batch):
  """The state that decoding T tokens begins with: of an encoder-decoder, after it has read the source."""
  if registry.get(name).READS == 'source':
    return begun(name)(params_of(name), {k: x for k, x in batch.items() if k.startswith('source')})
  return state_of(name, len(batch['tokens_BT']), T)


@functools.cache
def begun(name: str):
  """`begin` of the model, compiled once."""
  return jax.jit(functools.partial(registry.get(name).begin, config(name), length=T))


def given(name: str, batch):
  """The batch with what the model reads beside tokens: the letters or bits of each, or the windows around some."""
  reads = registry.get(name).READS
  if not reads_second(name):
    batch = {key: x for key, x in batch.items() if key not in SECOND}
  tokens_BT = np.asarray(batch['tokens_BT'])
  if reads == 'vectors':
    bits = lambda x, width: ((np.asarray(x)[..., None] >> np.arange(width)) & 1).astype(np.float32)
    found = {**batch, 'inputs_BTI': bits(tokens_BT, config(name).I)}
    return found | ({'target_bits_BTO': bits(batch['targets_BT'], config(name).O)} if 'targets_BT' in batch else {})
  if reads == 'images':  # a square for each token, as many as the feature map has positions
    return squares(batch, config(name).stride)
  if reads == 'windows':  # 2 slots on either side of each centre, one update
    noise_BM = (5 * tokens_BT[:, :8] + 3) % config(name).V
    window_BT = np.full((len(tokens_BT), tokens_BT.shape[1] - 4), 2, np.int32)
    return {
      **batch,
      'tokens_BJS': tokens_BT,
      'documents_BJS': np.ones_like(tokens_BT),
      'window_BJT': window_BT,
      'negatives_BJM': noise_BM,
      'weights_BJM': np.full(noise_BM.shape, 0.5, np.float32),
    }
  if registry.get(name).OBJECTIVE in ('classify', 'tag') and 'targets_BT' in batch:
    batch = {'valid_BT': np.ones((B, T), bool), **batch, 'labels_BT': batch['targets_BT'] % 3}
  if registry.get(name).OBJECTIVE == 'span':
    batch = {'valid_BT': np.ones(tokens_BT.shape, bool), **batch}
  if reads != 'characters':
    return batch
  letters = lambda x: np.stack([260 + 0 * x, 1 + x % 7, 50 + x // 7, 90 + x % 11, 261 + 0 * x], -1).astype(np.int32)
  found = {**batch, 'characters_BTC': letters(tokens_BT)}
  return found | ({'characters_BSC': letters(batch['tokens_BS'])} if 'tokens_BS' in batch else {})


def squares(batch, side: int) -> dict[str, np.ndarray]:
  """Images of 3 rows of squares, coloured by the tokens; the last of each row has no label."""
  grow = lambda x: np.asarray(x).reshape(len(x), 3, -1).repeat(side, 1).repeat(side, 2)
  colours_BYX = grow(batch['tokens_BT'])
  found = {'images_BYXC': np.stack([colours_BYX * k % 256 for k in (3, 41, 77)], -1).astype(np.uint8)}
  if 'targets_BT' in batch:
    labels_BYX = grow(batch['targets_BT'] % 3)
    labels_BYX[:, :, -side:] = -1
    found |= {'labels_BYX': labels_BYX.astype(np.int32), 'row_weights_B': batch['row_weights_B']}
  return found


def both_ways(name: str, batch):
  """For the loss of a model of both directions its second stream, of one of any order the order."""
  if registry.get(name).OBJECTIVE == 'permutation_lm':  # the predicted tokens in an order, the others seen by all
    order_BT = np.zeros(batch['tokens_BT'].shape, np.int32)
    np.put_along_axis(order_BT, batch['positions_BP'], np.array([[2, 4, 1, 3]], np.int32), axis=1)
    return {**batch, 'order_BT': order_BT}
  if registry.get(name).OBJECTIVE != 'bidirectional_lm':
    return given(name, batch)
  back = given(name, {'tokens_BT': batch['tokens_BT'][:, ::-1]})['characters_BTC']
  return given(name, batch) | {'backward_characters_BTC': back, 'backward_targets_BT': batch['targets_BT'][:, ::-1]}


@functools.cache
def applied(name: str, **changes):
  """`apply` of the model, compiled once for all tests of it."""
  return jax.jit(functools.partial(registry.get(name).apply, config(name, **changes)))


def last(name: str, batch, key=None, **changes) -> np.ndarray:
  """The last hidden layer, (B, T, D)."""
  read = given(name, {k: x for k, x in batch.items() if k in INPUTS})
  features, _ = applied(name, **changes)(params_of(name), read, state_of(name, len(batch['tokens_BT'])), key)
  return np.asarray(features.last_BTD)


def loss_of(name: str, cfg, params, batch):
  """Mean loss, all terms."""
  module, options = objective(name)
  model = registry.get(name)
  batch = both_ways(name, batch)
  parts = model, cfg, module, options
  out = step.training_loss(*parts, params, batch, model.init_state(cfg, B), jax.random.key(5))
  weights = step.training_weights(*parts, batch)
  return sum(out.sums[term] / weights[term] for term in out.sums)


def all_params(name: str):
  module, options = objective(name)
  model, cfg = registry.get(name), config(name)
  return {'model': params_of(name), 'objective': draw(module.init, options, model, cfg)}


@functools.cache
def loss_and_gradient(name: str, **changes):
  """Both of one batch."""
  cfg = config(name, **changes)
  return jax.jit(jax.value_and_grad(lambda p: loss_of(name, cfg, p, batch_of(cfg))))(all_params(name))


@every_kind
def test_shapes_and_types(name):
  model, cfg = registry.get(name), config(name)
  batch = batch_of(cfg)
  apply = functools.partial(model.apply, cfg, all_layers=True)
  features, state = jax.eval_shape(apply, params_of(name), given(name, batch), state_of(name))
  assert features.last_BTD.shape[:2] == (B, T)
  assert len(features.layers) >= 2
  positions = [layer.shape[1] for layer in features.layers]
  if model.READS == 'images':  # the earlier the layer, the more positions
    assert positions == sorted(positions, reverse=True) and positions[-1] == T
  else:
    assert set(positions) == {T}
  assert all(layer.shape[0] == B and layer.ndim == 3 for layer in features.layers)
  assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(params_of(name)))
  shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
  assert shapes(state) == shapes(state_of(name))


@pytest.mark.parametrize('name', [n for n in MODELS if issubclass(registry.get(n).Config, word_input.Config)])
def test_word_table_has_one_row_per_word(name):
  """`data.vectors` gives rows of it."""
  cfg = config(name)
  table = flatten_dict(params_of(name), sep='/')[registry.get(name).WORD_TABLE]
  assert table.shape == (cfg.V, cfg.E)


@apart([name for name in MODELS if registry.get(name).WORDS])
def test_scores_and_losses_of_words_agree(name):
  model, cfg = registry.get(name), config(name)
  batch = batch_of(cfg)

  @jax.jit
  def both(params, features):
    return model.logits(cfg, params, features), model.nll(cfg, params, features, batch['targets_BT'])

  features, _ = applied(name)(params_of(name), given(name, part_of(batch)), state_of(name), None)
  logits, nll = both(params_of(name), features)
  assert logits.shape == (B, T, cfg.V) and logits.dtype == jnp.float32
  assert nll.shape == (B, T) and nll.dtype == jnp.float32
  logits = np.asarray(logits, np.float64)
  of_target_BT = np.take_along_axis(logits, batch['targets_BT'][..., None], -1)[..., 0]
  expected = np.log(np.exp(logits).sum(-1)) - of_target_BT
  np.testing.assert_allclose(nll, expected, rtol=1e-5, atol=1e-5)


@every_model
def test_state_leaves_have_a_leading_batch_axis(name):
  model, cfg = registry.get(name), config(name)
  for length in (0, 8):
    for leaf in jax.tree.leaves(jax.eval_shape(lambda length=length: model.init_state(cfg, 5, length))):
      assert leaf.shape[0] == 5


@every_model
def test_layers_are_returned_only_on_request(name):
  model, cfg = registry.get(name), config(name)
  apply = functools.partial(model.apply, cfg)
  assert jax.eval_shape(apply, params_of(name), given(name, batch_of(cfg)), state_of(name))[0].layers is None


@every_kind
def test_attention_weights_have_one_array_per_layer(name):
  model, fast = registry.get(name), {'scan': (False, True), 'remat': ('none', 'full')}
  on = {f: value for f, (default, value) in fast.items() if getattr(config(name), f, None) is default}
  cfg, batch = config(name, **on), given(name, batch_of(config(name)))
  state, kinds = () if model.READS == 'source' else state_of(name), []

  def arrays(params):
    found = model.attention_weights(cfg, params, batch, state)
    kinds.extend(one.kind for one in found)
    return [one.weights_BHTS for one in found]

  found = jax.eval_shape(arrays, params_of(name))
  assert [(kind, *x.shape[2:]) for kind, x in zip(kinds, found, strict=True)] == ATTENTION.get(name, [])
  assert {x.dtype for x in found} <= {np.dtype('float32')}


@few_models
def test_jit_equals_eager(name):
  model, cfg = registry.get(name), config(name)
  batch = batch_of(cfg)
  eager, _ = model.apply(cfg, params_of(name), given(name, batch), state_of(name))
  np.testing.assert_allclose(last(name, batch), eager.last_BTD, rtol=1e-5, atol=1e-5)


@few_models
def test_every_parameter_gets_a_gradient(name):
  gradient = dict(loss_and_gradient(name)[1])
  if registry.get(name).OBJECTIVE == 'span':  # the bias of a score of positions, which no softmax depends on
    gradient['objective'] = {k: x for k, x in gradient['objective'].items() if k != 'bias'}
  for path, leaf in flatten_dict(gradient).items():
    if path[-1] not in registry.get(name).STATISTICS and path not in BEFORE_NORM.get(name, ()):
      assert np.abs(leaf).max() > 1e-7, path


@every_kind
def test_rows_are_independent(name):
  cfg = config(name)
  batch = whole_rows(name)
  before = last(name, batch)
  batch['tokens_BT'] = batch['tokens_BT'].copy()
  batch['tokens_BT'][1:] = (batch['tokens_BT'][1:] + 7) % words(cfg)
  batch['source_BS'] = np.concatenate([batch['source_BS'][:1], (batch['source_BS'][1:] + 7) % words(cfg)])
  after = last(name, batch)
  np.testing.assert_array_equal(after[0], before[0])
  assert not np.allclose(after[1], before[1])


@every_sequence
def test_changed_token_reaches_only_visible_positions(name):
  """A causal model's earlier outputs stay bit-equal and later ones change; the others' outputs all change."""
  cfg = config(name)
  batch = whole_rows(name)
  before, t = last(name, batch), 5
  batch['tokens_BT'] = batch['tokens_BT'].copy()
  batch['tokens_BT'][:, t] = (batch['tokens_BT'][:, t] + 1) % words(cfg)
  after = last(name, batch)
  changed_BT = np.abs(after - before).max(-1) > 1e-7
  assert changed_BT[:, t:].all()
  if registry.get(name).CAUSAL:
    np.testing.assert_array_equal(after[:, :t], before[:, :t])
  else:
    assert changed_BT.all()


@every_padded
def test_right_padding_changes_nothing(name):
  """What stands in invalid places reaches no valid output, and a padded row is the short row, without a mask.

  The short row of a causal model is the beginning of the whole one. The second of two texts is padded alike, and a
  model that compares them reads an empty one.
  """
  cfg = config(name)
  batch = batch_of(cfg)
  batch['valid_BT'] = np.arange(T) < np.array([T, 7, 1])[:, None]
  batch['valid_BS'] = np.arange(S) < np.array([S, 5, 0])[:, None]
  before = last(name, batch)
  assert np.isfinite(before).all()
  for axis in 'TS':
    filled = np.where(batch[f'valid_B{axis}'], batch[f'tokens_B{axis}'], 3)
    after = last(name, {**batch, f'tokens_B{axis}': filled.astype(np.int32)})
    np.testing.assert_array_equal(after[batch['valid_BT']], before[batch['valid_BT']])
  short = batch_of(cfg) if registry.get(name).CAUSAL else part_of(batch_of(cfg), steps=slice(7))
  short |= {key: short[key][:, :5] for key in SECOND}
  np.testing.assert_allclose(last(name, short)[1, :7], before[1, :7], rtol=1e-5, atol=1e-5)


@causal_models
def test_carried_state_equals_one_pass(name):
  cfg = config(name)
  batch = batch_of(cfg)
  whole = last(name, batch)
  state, parts = started(name, batch), []
  for t in (slice(0, T // 2), slice(T // 2, T)):
    part = given(name, {'tokens_BT': batch['tokens_BT'][:, t]})  # no mask, as in training
    features, state = applied(name)(params_of(name), part, state)
    parts.append(features.last_BTD)
  np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-5, atol=1e-5)


@causal_models
def test_decoding_by_token_equals_teacher_forcing(name):
  """Prompts of different lengths, padded on the right with tokens that must not matter, then one token at a time."""
  cfg = config(name)
  batch = batch_of(cfg)
  tokens_BT = batch['tokens_BT']
  whole = last(name, part_of(batch))
  lengths, longest = np.array([3, 6, 1]), T // 2
  prompt = {'tokens_BT': tokens_BT[:, :longest], 'valid_BT': np.arange(longest) < lengths[:, None]}
  apply = applied(name)
  features, state = apply(params_of(name), given(name, prompt), started(name, batch))
  for b, n in enumerate(lengths):
    np.testing.assert_allclose(features.last_BTD[b, :n], whole[b, :n], rtol=1e-5, atol=1e-5)
  for i in range(5):
    at = (np.arange(B), lengths + i)
    features, state = apply(params_of(name), given(name, {'tokens_BT': tokens_BT[at][:, None]}), state)
    np.testing.assert_allclose(features.last_BTD[:, 0], whole[at], rtol=1e-5, atol=1e-5)


@every_encoder_decoder
def test_padding_of_the_source_changes_nothing(name):
  """Nor does what stands there, in one pass and in the state that decoding begins with."""
  cfg = config(name)
  batch = batch_of(cfg)
  lengths = np.array([S, 5, 1])
  batch['source_valid_BS'] = np.arange(S) < lengths[:, None]
  before = last(name, batch)
  batch['source_BS'] = np.where(batch['source_valid_BS'], batch['source_BS'], 3).astype(np.int32)
  np.testing.assert_array_equal(last(name, batch), before)
  start = {'tokens_BT': batch['tokens_BT'][:, :1]}
  features, _ = applied(name)(params_of(name), start, started(name, batch))
  np.testing.assert_allclose(features.last_BTD[:, 0], before[:, 0], rtol=1e-5, atol=1e-5)
  short = {k: v[:, :5] if k.startswith('source') else v for k, v in part_of(batch, slice(1, 2)).items()}
  np.testing.assert_allclose(last(name, short)[0], before[1], rtol=1e-5, atol=1e-5)


def check_reaches_every_output(name, batch, key):
  before = last(name, batch)
  for s in (0, S - 1):
    other = batch[key].copy()
    other[:, s] = (other[:, s] + 1) % words(config(name))
    assert (np.abs(last(name, {**batch, key: other}) - before).max(-1) > 1e-7).all()


@every_encoder_decoder
def test_source_reaches_every_output(name):
  check_reaches_every_output(name, batch_of(config(name)), 'source_BS')


@every_encoder_decoder
def test_encoded_source_leaves_have_a_leading_batch_axis(name):
  state = started(name, batch_of(config(name)))
  assert jax.tree.leaves(state) and all(leaf.shape[0] == B for leaf in jax.tree.leaves(state))


@every_model_of_pairs
def test_second_text_reaches_every_output(name):
  check_reaches_every_output(name, whole_rows(name), 'tokens_BS')


@fewer_models
def test_bfloat16_is_finite_and_close(name):
  (exact, _), (value, gradients) = loss_and_gradient(name), loss_and_gradient(name, dtype='bfloat16')
  assert all(np.isfinite(leaf).all() and leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(gradients))
  assert abs(value - exact) < 0.02 * abs(exact)
  # Rows that go straight from a table into a product may keep their precision (XLA drops the conversions).
  assert value != exact or registry.get(name).rows is not None


@fewer_models
def test_overfits_one_batch(name):
  cfg = config(name)
  batch, optimizer = batch_of(cfg), optax.adam(3e-3)
  params = all_params(name)
  updates = 600 if name in ('ntm', 'elmo') else 300  # the NTM has left its plateau after some 200

  @jax.jit
  def train(params):
    def step(carry, _):
      params, moments = carry
      value, gradients = jax.value_and_grad(lambda p: loss_of(name, cfg, p, batch))(params)
      updates, moments = optimizer.update(gradients, moments)
      return (optax.apply_updates(params, updates), moments), value

    return jax.lax.scan(step, (params, optimizer.init(params)), None, length=updates)[1]

  losses = np.asarray(train(params))
  assert losses[-1] < 0.2 * losses[0]


@fewer_models
def test_remat_and_scan_change_no_gradient(name):
  fields = registry.get(name).Config.__dataclass_fields__
  plain = jax.tree.leaves(loss_and_gradient(name)[1])
  on = {f: 'full' if fields[f].default == 'none' else True for f in ('scan', 'remat') if f in fields}
  for switch in [{f: value} for f, value in on.items()]:
    for a, b in zip(plain, jax.tree.leaves(loss_and_gradient(name, **switch)[1]), strict=True):
      np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5, err_msg=str(switch))


def rates_of(name: str) -> dict[str, float]:
  return {field: 0.5 for field in registry.get(name).Config.__dataclass_fields__ if field.startswith('dropout')}


@every_kind
def test_dropout_requires_a_key(name):
  """key=None is evaluation, whatever the rates; with a key, each rate alone changes what is computed."""
  rates, batch = rates_of(name), given(name, part_of(batch_of(config(name))))

  def traced(key, **changes):
    apply = functools.partial(registry.get(name).apply, config(name, **changes))
    return str(jax.make_jaxpr(apply)(params_of(name), batch, state_of(name), key))

  assert traced(None, **rates) == traced(None)
  key = jax.random.key(0)
  plain = traced(key) if rates else ''
  for rate in rates:
    assert traced(key, **{rate: 0.5}) != plain, rate


@few_models
def test_dropout_depends_on_the_key(name):
  """Where there is any, a key changes the output, and the same key changes it alike."""
  batch = batch_of(config(name))
  first, again, other = (last(name, batch, jax.random.key(seed), **rates_of(name)) for seed in (0, 0, 1))
  np.testing.assert_array_equal(first, again)
  for different in (other, last(name, batch)) if rates_of(name) else ():
    assert not np.allclose(first, different, atol=1e-3)


@every_model
def test_depth_of_every_parameter(name):
  model, cfg = registry.get(name), config(name)
  depths = {}
  for path, _ in jax.tree_util.tree_leaves_with_path(params_of(name)):
    names = tuple(k.key for k in path)
    depths[names] = model.depth(cfg, names)
    if names[0].startswith('layer_'):
      assert depths[names] == int(names[0][-2:]) + 1
  assert set(range(cfg.N + 1)) <= set(depths.values()) <= set(range(cfg.N + 2))  # GPT has nothing after its layers
  assert all(model.depth(cfg, n) == 0 for n in depths if n[0] == 'embed')
  assert set(model.HEADS) <= set(params_of(name))


def test_parameter_count_matches_the_paper():
  for (name, variant), count in COUNTS.items():
    model, cfg = registry.get(name), registry.config(name, variant)
    params = jax.eval_shape(functools.partial(model.init, cfg), jax.random.key(0))
    apart = {*model.HEADS, *model.STATISTICS}
    leaves = flatten_dict(params).items()
    assert variant in model.VARIANTS
    assert sum(leaf.size for path, leaf in leaves if not {path[0], path[-1]} & apart) == count, (name, variant)


@pytest.mark.parametrize('name', [name for name in MODELS if registry.get(name).rows is not None])
def test_row_model_reads_only_its_rows(name):
  """The loss from `Rows` is the loss from the tables, and the gradient of every other row is zero."""
  model, cfg = registry.get(name), config(name)
  batch = given(name, batch_of(cfg))
  flat = flatten_dict(params_of(name), sep='/')
  rows = model.rows(cfg, batch)
  assert set(rows) == set(model.ROW_TABLES)
  read = {k: Rows(jax.tree.map(lambda ids, table=flat[k]: table[ids], ids)) for k, ids in rows.items()}
  loss = lambda flat: loss_of(name, cfg, {'model': unflatten_dict(flat, sep='/'), 'objective': {}}, batch)
  value, gradients = jax.jit(jax.value_and_grad(loss))(flat)
  np.testing.assert_allclose(jax.jit(loss)({**flat, **read}), value, rtol=1e-6)
  for table, ids in rows.items():
    touched = np.unique(np.concatenate([np.ravel(i) for i in jax.tree.leaves(ids)]))
    others = np.setdiff1d(np.arange(cfg.V), touched)
    assert len(others) and not np.asarray(gradients[table])[others].any()


@every_model
def test_values_out_of_the_range_of_a_field_are_rejected(name):
  fields = registry.get(name).Config.__dataclass_fields__
  wrong = {field: 1.0 for field in fields if field.startswith('dropout')}
  wrong |= {field: 'nonsense' for field, of in fields.items() if isinstance(of.default, str)}
  for field, value in wrong.items():
    with pytest.raises(InputError, match=f'{field}.*(got 1.0|nonsense)'):
      config(name, **{field: value})


@every_model
def test_sizes_below_1_are_rejected(name):
  apart = {('ntm', 'H', 0), ('transformer_xl', 'E', 0)}  # no memory; the width
  apart |= {('bert', 'F', 0), ('gpt2', 'F', 0)}  # four times the width
  apart |= {('transformer', 'T', 0)}  # no learned positions
  for size in set('TEDFHN') & registry.get(name).Config.__dataclass_fields__.keys():
    for wrong in (-4, 0):
      if (name, size, wrong) not in apart:
        with pytest.raises(InputError, match=f': got {wrong}'):
          config(name, **{size: wrong})
