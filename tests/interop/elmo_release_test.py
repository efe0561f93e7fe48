"""Released ELMo files: read, run against a plain re-statement, written back, and what is wrong with bad ones."""

from __future__ import annotations

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest

from lmx.data.tokenizers import word_characters
from lmx.errors import InputError
from lmx.interop import elmo as interop
from lmx.models import elmo
from tests.reference import elmo as reference

h5py = pytest.importorskip('h5py')
OPTIONS = {
  'lstm': {
    'use_skip_connections': True,
    'projection_dim': 6,
    'cell_clip': 0.9,
    'proj_clip': 0.7,
    'dim': 11,
    'n_layers': 2,
  },
  'char_cnn': {
    'activation': 'relu',
    'filters': [[1, 3], [2, 4], [3, 5]],
    'n_highway': 2,
    'embedding': {'dim': 4},
    'n_characters': 262,
    'max_characters_per_token': 50,
  },
}
LENGTH = 12  # characters of a word in these tests
SENTENCES = [[b'The', b'zyzzyva', b'!'], [b'one'], ['naïve'.encode(), b'a', b'extraordinarily', b'b', b'c']]


def random_weights(seed: int = 0) -> dict[str, np.ndarray]:
  """Arrays in the released layout, large enough that both clips are at work."""
  rng, (lstm, cnn) = np.random.default_rng(seed), (OPTIONS['lstm'], OPTIONS['char_cnn'])
  E, P, H = cnn['embedding']['dim'], lstm['projection_dim'], lstm['dim']
  F = sum(n for _, n in cnn['filters'])
  shapes = {'char_embed': (261, E), 'CNN_proj/W_proj': (F, P), 'CNN_proj/b_proj': (P,)}
  for i, (width, n) in enumerate(cnn['filters']):
    shapes |= {f'CNN/W_cnn_{i}': (1, width, E, n), f'CNN/b_cnn_{i}': (n,)}
  for i in range(cnn['n_highway']):
    shapes |= {f'CNN_high_{i}/W_carry': (F, F), f'CNN_high_{i}/b_carry': (F,)}
    shapes |= {f'CNN_high_{i}/W_transform': (F, F), f'CNN_high_{i}/b_transform': (F,)}
  for d in range(2):
    for i in range(lstm['n_layers']):
      cell = f'RNN_{d}/RNN/MultiRNNCell/Cell{i}/LSTMCell'
      shapes |= {f'{cell}/W_0': (2 * P, 4 * H), f'{cell}/B': (4 * H,), f'{cell}/W_P_0': (H, P)}
  return {name: rng.normal(0, 0.7, shape).astype(np.float32) for name, shape in shapes.items()}


def write(directory, weights, options=OPTIONS):
  paths = directory / 'x_options.json', directory / 'x_weights.hdf5'
  paths[0].write_text(json.dumps(options))
  with h5py.File(paths[1], 'w') as file:
    for name, value in weights.items():
      file.create_dataset(name, data=value)
  return paths


def test_forward_equals_the_restatement_on_the_released_layout(tmp_path):
  weights = random_weights()
  fields, params = interop.from_release(*write(tmp_path, weights))
  cfg = elmo.Config(V=4, dropout=0.0, **fields)
  T = max(map(len, SENTENCES))
  characters_BTC = np.zeros((len(SENTENCES), T, LENGTH), np.int32)
  for row, words in zip(characters_BTC, SENTENCES, strict=True):
    row[: len(words)] = word_characters.character_ids(words, LENGTH)
  valid_BT = np.arange(T) < np.array([len(words) for words in SENTENCES])[:, None]
  batch = {'characters_BTC': characters_BTC, 'valid_BT': valid_BT}
  apply = jax.jit(functools.partial(elmo.apply, cfg, all_layers=True))
  features, _ = apply(params, batch, elmo.init_state(cfg, len(SENTENCES)))
  clipped = 0
  for b, words in enumerate(SENTENCES):
    expected = reference.sentence(weights, OPTIONS, words, LENGTH)
    assert len(expected) == len(features.layers) == 3
    for found, wanted in zip(features.layers, expected, strict=True):
      np.testing.assert_allclose(found[b, : len(words)], wanted, rtol=1e-5, atol=1e-5)
    clipped += (np.abs(expected[1]) == 0.7).sum()
  assert clipped > 3


def test_training_streams_read_the_backward_text_in_its_own_order(tmp_path):
  """Two streams with a state: the second window goes on where the first ended, in both directions."""
  weights = random_weights(1)
  fields, params = interop.from_release(*write(tmp_path, weights))
  cfg = elmo.Config(V=4, dropout=0.0, **fields)
  texts = [[b'a', b'bc', b'def', b'g'], [b'w', b'xy', b'z', b'zz']]
  state, apply = elmo.init_state(cfg, 1), jax.jit(functools.partial(elmo.apply, cfg, all_layers=True))
  parts = []
  for t in (slice(0, 2), slice(2, 4)):
    batch = {
      'characters_BTC': word_characters.character_ids(texts[0][t], LENGTH)[None],
      'backward_characters_BTC': word_characters.character_ids(texts[1][t], LENGTH)[None],
    }
    features, state = apply(params, batch, state)
    parts.append(features.layers[1][0])
  found = np.concatenate(parts)
  for d, words in enumerate(texts):
    inputs = [reference.word_vector(weights, [(1, 3), (2, 4), (3, 5)], 2, reference.letters(w, LENGTH)) for w in words]
    expected, _ = reference.lstm(weights, f'RNN_{d}/RNN/MultiRNNCell/Cell0/LSTMCell', inputs, 0.9, 0.7)
    np.testing.assert_allclose(found[:, 6 * d : 6 * d + 6], expected, rtol=1e-5, atol=1e-5)


def test_what_is_written_is_read_back(tmp_path):
  cfg = elmo.Config(**elmo.VARIANTS['tiny'])
  params = elmo.init(cfg, jax.random.key(0))
  interop.to_release(dataclasses.asdict(cfg), params, tmp_path)
  fields, found = interop.from_release(*interop.find(tmp_path))
  assert dataclasses.replace(cfg, **fields) == cfg
  wanted = {k: v for k, v in params.items() if k != 'softmax'}
  jax.tree.map(np.testing.assert_array_equal, found, wanted)
  assert json.loads((tmp_path / 'options.json').read_text())['char_cnn']['n_characters'] == 262


def changed(**parts) -> dict:
  return {section: {**OPTIONS[section], **parts.get(section, {})} for section in OPTIONS}


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (changed(char_cnn={'activation': 'tanh'}), "activation: got 'tanh'"),
    (changed(lstm={'use_skip_connections': False}), 'use_skip_connections: got False'),
    (changed(char_cnn={'n_characters': 128}), 'n_characters: got 128'),
    (changed(lstm={'dim': 12}), r'W_0": got shape \(12, 44\); expected \(12, 48\)'),
    (changed(lstm={'n_layers': 3}), 'Cell2/LSTMCell/W_0" is missing'),
    ({'lstm': {}}, 'not the options of an ELMo release'),
    (changed(lstm={'n_layers': 2**70}), 'N: got 1180591620717411303424; expected a whole number up to 1,000'),
    (changed(lstm={'dim': float('inf')}), 'not the options of an ELMo release'),
    (changed(char_cnn={'filters': [[-1, 4]]}), 'expected positive widths'),
    (changed(lstm={'n_layers': 1}), 'does not describe: RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/B, '),
  ],
)
def test_files_of_another_model_are_named(tmp_path, options, message):
  with pytest.raises(InputError, match=message):
    interop.from_release(*write(tmp_path, random_weights(), options))


def test_damaged_and_missing_files(tmp_path):
  with pytest.raises(InputError, match='expected one'):
    interop.find(tmp_path)
  options, weights = write(tmp_path, random_weights())
  weights.write_bytes(weights.read_bytes()[:1500])
  with pytest.raises(InputError, match='may be truncated'):
    interop.from_release(options, weights)
  options.write_text('{')
  with pytest.raises(InputError, match='not JSON'):
    interop.from_release(options, weights)
  with pytest.raises(InputError, match='cannot be read'):
    interop.from_release(tmp_path / 'none.json', weights)
