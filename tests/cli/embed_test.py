"""`lmx embed`: vectors of lines from a run and from a release, in both formats, and what is refused."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from lmx.cli.main import main
from lmx.data.tokenizers import build, word_characters
from lmx.errors import InputError
from lmx.interop import elmo as release
from lmx.models import elmo, registry
from lmx.prediction import contextual_embeddings
from lmx.runs import convert
from tests import drawn, untrained

TEXT = 'The cat sat .\n\nNaïve zyzzyva\n'
CFG = registry.config('elmo', 'tiny', dropout=0.0)


@pytest.fixture(scope='module')
def released(tmp_path_factory):
  pytest.importorskip('h5py')
  directory = tmp_path_factory.mktemp('release')
  params = jax.jit(lambda: elmo.init(CFG, jax.random.key(0)))()
  release.write(directory, CFG, {'model': params}, ['the', 'cat'], 50)
  (directory / 'text.txt').write_text(TEXT)
  return directory, params


def run(directory, name, *more):
  out = directory / name
  code = main(['embed', f'--workdir={directory}', f'--input={directory / "text.txt"}', f'--output={out}', *more])
  return code, out


def test_every_line_has_words_and_all_layers(released, capsys):
  directory, params = released
  code, out = run(directory, 'out.npz', '--batch=2')
  assert code == 0 and f'wrote {out}: 3 lines, 6 tokens' in capsys.readouterr().out
  with np.load(out, allow_pickle=False) as found:
    assert found['0_tokens'].tolist() == ['The', 'cat', 'sat', '.']
    assert found['2_tokens'].tolist() == ['Naïve', 'zyzzyva']
    assert found['0'].shape == (3, 4, 14) and found['1'].shape == (3, 0, 14) and found['0'].dtype == np.float32
    words = ['Naïve'.encode(), b'zyzzyva']
    batch = {'characters_BTC': word_characters.character_ids(words, 50)[None]}  # alone, without padding
    apply = jax.jit(lambda: elmo.apply(CFG, params, batch, elmo.init_state(CFG, 1), all_layers=True)[0].layers)
    np.testing.assert_allclose(found['2'], np.stack(apply())[:, 0], rtol=1e-5, atol=1e-5)


def test_hdf5_output_matches(released):
  h5py = pytest.importorskip('h5py')
  directory, _ = released
  with np.load(run(directory, 'a.npz')[1], allow_pickle=False) as a, h5py.File(run(directory, 'a.hdf5')[1]) as b:
    assert set(a) == set(b)
    for name in a:
      if name.endswith('tokens'):
        assert b[name].asstr()[...].tolist() == a[name].tolist()
      else:
        np.testing.assert_array_equal(a[name], b[name][...])


def test_lines_with_carried_state_are_one_text(released):
  directory, _ = released
  with np.load(run(directory, 'fresh.npz')[1]) as fresh, np.load(run(directory, 'one.npz', '--carry')[1]) as carried:
    np.testing.assert_allclose(carried['0'], fresh['0'], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(carried['2'][0], fresh['2'][0], rtol=1e-5, atol=1e-6)  # words do not depend on the state
    assert np.abs(carried['2'][1] - fresh['2'][1]).max() > 1e-4


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--output=out.txt'], 'expected a name that ends in .npz or .hdf5'),
    (['--input=nowhere.txt'], '--input: got nowhere.txt'),
    (['--config.model.D=3'], 'model.D'),
  ],
)
def test_errors_leave_no_output_file(released, tmp_path, capsys, monkeypatch, arguments, message):
  directory, _ = released
  monkeypatch.chdir(tmp_path)
  given = {'--workdir': directory, '--input': directory / 'text.txt', '--output': 'out.npz'}
  given |= dict(argument.split('=') for argument in arguments)
  assert main(['embed', *(f'{name}={value}' for name, value in given.items())]) == 2
  assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_subwords_are_read_by_their_bytes_and_not_exported(tmp_path):
  tokenizer = build.train('bpe', [TEXT] * 5, vocab_size=270)
  options = 'data.tokenizer=bpe', 'data.characters=24', 'model.V=272'
  run = untrained.load('experiments/elmo/quickstart.py:tiny', *options, tokenizer=tokenizer)
  run = dataclasses.replace(run, params={'model': drawn.params(run.model.init, run.cfg)})
  reader = contextual_embeddings.from_run(run)
  tokens, arrays = reader.read(' Naïve zyzzyva', 1)
  ids = tokenizer.encode(' Naïve zyzzyva')
  assert tokens == tokenizer.ids_to_tokens(ids)
  known = word_characters.create(tokenizer, 24)
  np.testing.assert_array_equal(arrays['characters_BTC'], known.character_ids(ids))
  np.testing.assert_array_equal(arrays['tokens_BT'], known.word_ids(ids))
  with pytest.raises(InputError, match='data.tokenizer: got "bpe"'):
    convert._export_elmo(run, run.cfg, str(tmp_path / 'out'))
  assert not (tmp_path / 'out').exists()


def test_words_without_characters_keep_their_ids():
  tokenizer = build.train('words', [TEXT])
  options = 'data.characters=0', 'model.char_filters=()'
  run = untrained.load('experiments/elmo/conll2003.py:tiny', *options, tokenizer=tokenizer, params={'model': {}})
  assert run.model.READS == 'characters'
  tokens, arrays = contextual_embeddings.from_run(run).read('The cat sat', 1)
  assert tokens == ['The', 'cat', 'sat'] and arrays['tokens_BT'].tolist() == tokenizer.encode('The cat sat').tolist()
