"""Vectors of words in their contexts: of a run, and of a model alone; `lmx embed` is in tests/cli/embed_test.py."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import lmx
from lmx import train
from lmx.config import resolve
from lmx.data.tokenizers import build
from lmx.errors import InputError
from lmx.models import registry
from lmx.prediction import contextual_embeddings
from tests import drawn, small_text, untrained

LINES = ['The list is sorted .', 'list', '', 'A new list of the sorted items is returned .']


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  changes = ['train.steps=1', 'train.eval_every=0', 'evaluation.split=valid', 'data.batch_size=8', 'samples.count=0']
  changes += ['model.dropout_hidden=0.0', 'model.dropout_attention=0.0']
  changes += ['parallel.data=1', 'model.N=2', 'model.D=32', 'data.vocab_size=120', *small_text.settings(folder)]
  train.train(resolve.load('experiments/bert/quickstart.py:tiny', changes), folder / 'bert')
  return lmx.load(folder / 'bert')


@pytest.mark.parametrize('special_tokens', contextual_embeddings.SPECIAL_TOKENS)
def test_runs_layers_match_apply(special_tokens, run):
  """BERT reads [CLS] line [SEP], and of 'read' the vectors of the line alone are returned."""
  reader = contextual_embeddings.from_run(run, special_tokens)
  found = list(contextual_embeddings.vectors(reader, LINES, size=2))
  apply = jax.jit(lambda params, batch: run.model.apply(run.cfg, params, batch, (), all_layers=True)[0])
  for line, (words, layers) in zip(LINES, found, strict=True):
    ids = run.tokenizer.encode(line)
    ids = ids if special_tokens == 'none' else np.asarray([run.tokenizer.cls_id, *ids, run.tokenizer.sep_id])
    shown = slice(1, -1) if special_tokens == 'read' else slice(None)
    assert words == run.tokenizer.ids_to_tokens(ids[shown]) and len(layers) == run.cfg.N + 1
    assert all(layer.shape == (len(words), run.cfg.D) for layer in layers)
    if len(ids):
      batch = {'tokens_BT': np.asarray(ids)[None]}  # alone, without padding
      expected = apply(run.params['model'], batch).layers
      np.testing.assert_allclose(np.stack(layers), np.stack(expected)[:, 0, shown], rtol=1e-4, atol=1e-5)


def test_xlnet_special_tokens_are_final_with_their_own_segment(tmp_path):
  tokenizer = build.train('unigram', LINES * 20, vocab_size=400, marks='xlnet')
  run = untrained.load('experiments/xlnet/quickstart.py:tiny', tokenizer=tokenizer)
  run = dataclasses.replace(run, params={'model': drawn.params(run.model.init, run.cfg)})
  ids = tokenizer.encode(LINES[0])
  for special_tokens, shown in (('read', slice(0, -2)), ('return', slice(None))):
    reader = contextual_embeddings.from_run(run, special_tokens)
    words, arrays = reader.read(LINES[0], 1)
    assert arrays['tokens_BT'].tolist() == [*ids, tokenizer.sep_id, tokenizer.cls_id]
    assert arrays['types_BT'].tolist() == [0] * (len(ids) + 1) + [2]
    ((words, layers),) = contextual_embeddings.vectors(reader, LINES[:1])
    assert words == [*tokenizer.ids_to_tokens(ids), '<sep>', '<cls>'][shown] and len(layers[0]) == len(words)
  assert set(contextual_embeddings.from_run(run, 'none').read(LINES[0], 1)[1]) == {'tokens_BT'}
  with pytest.raises(InputError, match='special_tokens: unknown "all"'):
    contextual_embeddings.from_run(run, 'all')


def test_line_beyond_the_positions_is_rejected(run):
  with pytest.raises(InputError, match=r'line 2 has \d+ tokens'):
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
