"""Released ELMo files: read, run against a plain re-statement, written back, and what is wrong with bad ones."""

from __future__ import annotations

import functools
import json

import jax
import numpy as np
import pytest

from lmx.cli import main
from lmx.data.tokenizers import word_characters
from lmx.errors import InputError
from lmx.interop import elmo as interop
from lmx.interop import huggingface
from lmx.models import elmo
from lmx.runs import convert, restore, transfer
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


def read(directory, weights, options=OPTIONS):
  """(Config, parameters) of a release that is written to the directory."""
  write(directory, weights, options)
  folder = interop.read(directory)
  cfg = elmo.Config(**folder.fields, dropout=0.0)
  return cfg, huggingface.from_hf('elmo', cfg, folder.tensors)['model']


def test_forward_matches_reference_on_the_released_layout(tmp_path):
  weights = random_weights()
  cfg, params = read(tmp_path, weights)
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
  cfg, params = read(tmp_path, weights)
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


def test_imported_release_exports_unchanged(tmp_path, capsys):
  """Vectors of the run are those of the release, a task model takes its biLM, and the arrays come back bit for bit."""
  weights, words = random_weights(), ['the', ',', 'naïve']
  (release := tmp_path / 'release').mkdir()
  write(release, weights)
  (release / 'vocab-2016-09-10.txt').write_text('\n'.join(['<S>', '</S>', '<UNK>', *words]) + '\n', 'utf-8')
  run = tmp_path / 'run'
  assert main.main(['import', f'--from={release}', f'--workdir={run}']) == 0
  assert 'newly initialised: model/softmax' in (out := capsys.readouterr().out) and 'no perplexity' in out
  loaded = restore.load(run)
  assert loaded.cfg.V == 6 and word_characters.vocabulary(loaded.tokenizer) == ['<S>', '</S>', '<unk>', *words]
  (tmp_path / 'text.txt').write_text('The zyzzyva !\none\n')
  for directory in (release, run):
    output = tmp_path / f'{directory.name}.npz'
    command = ['embed', f'--workdir={directory}', f'--input={tmp_path}/text.txt', f'--output={output}']
    assert main.main(command) == 0
  with np.load(tmp_path / 'release.npz') as a, np.load(tmp_path / 'run.npz') as b:
    assert a['0'].shape == (3, 3, 12)
    for name in a:
      np.testing.assert_array_equal(a[name], b[name])
  shapes = {'model': {'bilm': {name: loaded.params['model'][name] for name in ('embed', 'layer_00', 'layer_01')}}}
  taken, _ = transfer.copy(run, shapes, ('model=model/bilm',), loaded.tokenizer)
  jax.tree.map(np.testing.assert_array_equal, taken['model']['bilm'], shapes['model']['bilm'])
  assert main.main(['export', f'--workdir={run}', f'--to={tmp_path / "back"}']) == 0
  with h5py.File(tmp_path / 'back' / 'weights.hdf5') as file:
    for name, value in weights.items():
      np.testing.assert_array_equal(file[name][...], value)
  assert json.loads((tmp_path / 'back' / 'options.json').read_text()) == OPTIONS
  assert (tmp_path / 'back' / 'vocab.txt').read_text('utf-8').split() == ['<S>', '</S>', '<UNK>', *words]


def test_release_without_a_vocabulary_needs_none(tmp_path):
  write(tmp_path, random_weights(), changed(char_cnn={'max_characters_per_token': 30}))
  convert.import_run(str(tmp_path), tmp_path / 'run')
  loaded = restore.load(tmp_path / 'run')
  assert loaded.cfg.V == 3 and loaded.run.data.characters == 30


@pytest.mark.parametrize(
  ('lines', 'message'),
  [
    (['<S>', '</S>', '<UNK>', 'a', 'b', 'a'], 'line 6: got "a" again'),
    (['<S>', '</S>', '<UNK>', 'a b'], 'line 4: got "a b"'),
    (['the', 'a'], r"got \['the', 'a'\] first"),
  ],
)
def test_damaged_vocabulary_is_reported(tmp_path, lines, message):
  write(tmp_path, random_weights())
  (tmp_path / 'vocab.txt').write_text('\n'.join(lines) + '\n')
  with pytest.raises(InputError, match=message):
    interop.read(tmp_path)


def changed(**parts) -> dict:
  return {section: {**OPTIONS[section], **parts.get(section, {})} for section in OPTIONS}


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (changed(char_cnn={'activation': 'tanh'}), "activation: got 'tanh'"),
    (changed(lstm={'use_skip_connections': False}), 'use_skip_connections: got False'),
    (changed(char_cnn={'n_characters': 128}), 'n_characters: got 128'),
    (changed(lstm={'dim': 12}), r'Cell0/LSTMCell/W_0 is \(12, 44\), not \(12, 48\)'),
    (changed(lstm={'n_layers': 3}), 'missing: RNN_0/RNN/MultiRNNCell/Cell2/LSTMCell/W_0, '),
    (changed(char_cnn={'max_characters_per_token': 1}), 'max_characters_per_token: got 1'),
    ({'lstm': {}}, 'options.json: char_cnn: got None; expected options; lmx reads an ELMo of characters'),
    (changed(lstm={'foo': 3}), 'options.json: lstm.foo: unknown; expected cell_clip'),
    (changed(char_cnn={'foo': 3}), 'options.json: char_cnn.foo: unknown'),
    ({**OPTIONS, 'lstm': {'dim': 11}}, 'options.json: lstm.use_skip_connections: missing'),
    (changed(lstm={'n_layers': 2**70}), 'N: got 1180591620717411303424'),
    (changed(lstm={'dim': float('inf')}), 'not the options of an ELMo release'),
    (changed(char_cnn={'filters': [[-1, 4]]}), 'expected positive widths'),
    (changed(lstm={'n_layers': 1}), 'unknown: .*RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/B, '),
  ],
)
def test_files_of_another_model_are_reported(tmp_path, options, message):
  with pytest.raises(InputError, match=message):
    read(tmp_path, random_weights(), options)


@pytest.mark.parametrize('options', [{}, {'chunks': (1000, 1000)}, {'chunks': (1000, 1000), 'compression': 'gzip'}])
@pytest.mark.parametrize('shape', [(261, 4), (10**6, 10**6)])
def test_arrays_without_values_in_the_file_are_reported(tmp_path, options, shape):
  """HDF5 gives an array that was declared and never written its fill value, whatever its size."""
  _, weights = write(tmp_path, {k: x for k, x in random_weights().items() if k != 'char_embed'})
  with h5py.File(weights, 'a') as file:
    chunks = {'chunks': shape} if options and shape[0] < 1000 else {}
    file.create_dataset('char_embed', shape=shape, dtype='<f4', **options | chunks)
  with pytest.raises(InputError, match=r'"/char_embed": got shape \(.*; expected its values in the file'):
    interop.read(tmp_path)


@pytest.mark.parametrize('dtype', ['int32', 'complex64', 'S4'])
def test_arrays_of_no_floats_are_rejected(tmp_path, dtype):
  write(tmp_path, random_weights() | {'CNN_proj/b_proj': np.ones(6, dtype)})
  with pytest.raises(InputError, match=r'"/CNN_proj/b_proj": got type .*; expected floats'):
    interop.read(tmp_path)


def test_options_without_clips_have_none(tmp_path):
  """As bilm-tf reads them."""
  lstm = {name: value for name, value in OPTIONS['lstm'].items() if name != 'cell_clip'}
  cfg, _ = read(tmp_path, random_weights(), {**OPTIONS, 'lstm': lstm})
  assert (cfg.cell_clip, cfg.proj_clip) == (0.0, 0.7)


def test_compressed_arrays_are_read(tmp_path):
  weights = random_weights()
  _, path = write(tmp_path, {})
  with h5py.File(path, 'w') as file:
    for name, x in weights.items():
      file.create_dataset(name, data=x, chunks=x.shape, compression='gzip', fletcher32=True)
  for name, x in interop.read(tmp_path).tensors.items():
    np.testing.assert_array_equal(x, weights[name])


def test_damaged_and_missing_files(tmp_path):
  with pytest.raises(InputError, match='expected one'):
    interop.find(tmp_path)
  options, weights = write(tmp_path, random_weights())
  weights.write_bytes(weights.read_bytes()[:1500])
  with pytest.raises(InputError, match='may be truncated'):
    interop.read(tmp_path)
  weights.unlink()
  weights.symlink_to('nowhere')
  with pytest.raises(InputError, match='weights.hdf5: cannot be read'):
    interop.read(tmp_path)
  options.write_text('{')
  with pytest.raises(InputError, match='not JSON'):
    interop.read(tmp_path)
