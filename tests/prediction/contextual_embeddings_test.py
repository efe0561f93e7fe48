"""Vectors of words in their contexts: of a run, and of a model alone; `lmx embed` is in tests/cli/embed_test.py."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import lmx
from lmx import train
from lmx.config import resolve
from lmx.errors import InputError
from lmx.models import registry
from lmx.prediction import contextual_embeddings
from tests import small_text

LINES = ['The list is sorted .', 'list', '', 'A new list of the sorted items is returned .']


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  changes = ['train.steps=1', 'train.eval_every=0', 'evaluation.split=valid', 'data.batch_size=8', 'samples.count=0']
  changes += ['model.dropout_hidden=0.0', 'model.dropout_attention=0.0']
  changes += ['parallel.data=1', 'model.N=2', 'model.D=32', 'data.vocab_size=120', *small_text.settings(folder)]
  train.train(resolve.load('experiments/bert/quickstart.py:tiny', changes), folder / 'bert')
  return lmx.load(folder / 'bert')


def test_a_runs_layers_are_those_of_apply(run):
  found = list(contextual_embeddings.vectors(contextual_embeddings.from_run(run), LINES, size=2))
  apply = jax.jit(lambda params, batch: run.model.apply(run.cfg, params, batch, (), all_layers=True)[0])
  assert [len(words) for words, _ in found] == [len(run.tokenizer.encode(line)) for line in LINES]
  for line, (words, layers) in zip(LINES, found, strict=True):
    ids = run.tokenizer.encode(line)
    assert words == run.tokenizer.ids_to_tokens(ids) and len(layers) == run.cfg.N + 1
    if len(ids):
      batch = {'tokens_BT': np.asarray(ids)[None]}  # alone, without padding
      expected = apply(run.params['model'], batch).layers
      np.testing.assert_allclose(np.stack(layers), np.stack(expected)[:, 0], rtol=1e-4, atol=1e-5)


def test_a_line_beyond_the_positions_is_refused(run):
  with pytest.raises(InputError, match=r'line 2 has \d+ tokens, but the model has only'):
    list(contextual_embeddings.vectors(contextual_embeddings.from_run(run), ['list', 'list ' * 600]))


def test_layers_of_different_widths_have_names_of_their_own(tmp_path):
  model, cfg = registry.get('rnn_lm'), registry.config('rnn_lm', 'tiny')
  ids = np.array([1, 2, 3])
  lines = [(['a', 'b', 'c'], {'tokens_BT': ids}), (['d'], {'tokens_BT': ids[:1]})]
  params = jax.jit(model.init, static_argnums=0)(cfg, jax.random.key(0))
  (words, layers), (_, short) = contextual_embeddings.embed(
    contextual_embeddings.Reader(model, cfg, params, None), lines, 2
  )
  assert words == ['a', 'b', 'c'] and [layer.shape for layer in layers] == [(3, 12), (3, 16), (3, 16)]
  for one, whole in zip(short, layers, strict=True):
    np.testing.assert_allclose(one, whole[:1], rtol=1e-5, atol=1e-6)  # causal: the first token knows itself only
