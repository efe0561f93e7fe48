"""The step that `lmx compile` compiles: that of the training on its data, where they are prepared."""

from __future__ import annotations

import os
import re

import jax
import numpy as np
import pytest

from lmx.compilation import program
from lmx.config import resolve
from lmx.data import pipeline
from lmx.errors import InputError
from tests.experiments_test import corpus_of


def load(model, cache, *overrides):
  return resolve.load(f'experiments/{model}/quickstart.py:tiny', [f'data.cache_dir={cache}', *overrides])


def prepare(config):
  return pipeline.load(resolve.to_run(config).data)


def batch_of(step):
  return {name: (x.shape, x.dtype) for name, x in step.arguments[2].items()}


@pytest.mark.parametrize('mode', ['jit', 'pmap'])
def test_prepared_data_gives_training_batches(mode, monkeypatch):
  tokens = ('data.batching.tokens=256', 'data.batching.rows_multiple=3', 'data.batching.groups=1', 'data.length=32')
  config = load('transformer', '', *tokens, 'data.batching.buckets=(8,16)', f'parallel.mode={mode}')
  corpus = corpus_of(resolve.to_run(config).data)
  monkeypatch.setattr(pipeline, 'load_prepared', lambda data: corpus)
  run = resolve.with_corpus(config, corpus)[1]
  batches = pipeline.batches(run.data, corpus, 'train', run.seed, train=True).pad_rows(8)
  shapes = {}
  for i in range(min(program.PROBED, batches.steps)):
    batch = batches(i)
    shapes[sum(x.nbytes for x in batch.values())] = {name: x.shape for name, x in batch.items()}
  largest = shapes[max(shapes)]
  assert len(shapes) > 1
  fold = (lambda shape: (8, shape[0] // 8, *shape[1:])) if mode == 'pmap' else lambda shape: shape
  step = program.build(config, jax.devices())
  assert {name: shape for name, (shape, _) in batch_of(step).items()} == {k: fold(x) for k, x in largest.items()}
  assert batch_of(step)['index_B'][1] == np.int32 and step.run.model.V == corpus.tokenizer.vocab_size
  assert step.rows == largest['tokens_BT'][0] and step.length == largest['tokens_BT'][1]
  assert step.notes[0].startswith(f'the largest of {len(shapes)} shapes of the first')
  assert any('padded' in note for note in step.notes)


@pytest.mark.slow
def test_compilation_does_not_prepare_data(tmp_path):
  config = load('rnn_lm', tmp_path / 'cache', 'data.batch_size=6')
  with pytest.raises(InputError, match=r'model.V: .* prepare them \(lmx prepare\), or add --vocabulary=N$'):
    program.build(config, jax.devices())
  step = program.build(config, jax.devices(), vocabulary=97)
  assert not os.path.exists(tmp_path / 'cache')
  assert step.run.model.V == 97 and step.rows == 8 and 'index_B' not in batch_of(step)
  assert "the objective's shapes" in step.notes[0]
  assert step.notes[-2] == 'batches are padded with rows of weight 0 for 8 devices: 6 + 2 rows'
  assert step.notes[-1].startswith('2 of 8 devices are idle')
  prepare(config)
  again = program.build(config, jax.devices(), vocabulary=97)
  assert batch_of(again) == batch_of(step) and again.notes == step.notes
  read = program.build(config, jax.devices())
  assert read.run.model.V != 97 and batch_of(read).keys() == batch_of(step).keys() | {'index_B', 'reset_B'}
  assert read.notes[0] == 'batches of the prepared data'


@pytest.mark.parametrize(
  'config, options, given',
  [
    ('cfnet/own.py', '--config.objective.classes=N', ['objective.classes=3']),
    ('xlnet/tasks.py:race', '--config.objective.choices=N', ['objective.choices=4']),
    ('self_attention/trec.py', '--vocabulary=N --config.objective.classes=N', ['objective.classes=3']),
    (
      'bert/tagging.py',
      """--vocabulary=N --config.objective.labels="('O','B-X','I-X')\"""",
      ["objective.labels=('O','B-X','I-X')"],
    ),
    ('rnn_lm/mikolov.py', '--vocabulary=N', []),
  ],
)
def test_options_that_replace_absent_data_are_named(config, options, given, tmp_path):
  def build(*settings):
    loaded = resolve.load(f'experiments/{config}', [f'data.cache_dir={tmp_path}', *settings])
    return program.build(loaded, jax.devices()[:1], 30_522 if '--vocabulary' in options and settings else 0)

  with pytest.raises(InputError, match=f' or add {re.escape(options)}$'):
    build()
  build('train.steps=1', *given)


def test_padding_rows_count_no_flops(tmp_path):
  flops = [
    program.build(load('gpt2', tmp_path, f'data.batch_size={rows}'), jax.devices(), vocabulary=97).model_flops
    for rows in (6, 8)
  ]
  assert flops[0] == pytest.approx(flops[1] * 6 / 8)


def test_model_flops_match_the_loss_in_training():
  """ELMo trains with 8 sampled words of 4,096; its evaluation has all of them."""
  settings = ['data.batch_size=8', 'objective.samples=8']
  few, all_ = (
    program.build(resolve.load('experiments/elmo/quickstart.py:tiny', [*settings, *more]), jax.devices()[:8], 4096)
    for more in ([], ['objective.samples=0'])
  )
  assert few.model_flops < all_.model_flops / 2


def test_embedding_tables_are_row_major_and_row_sharded():
  config = load('word2vec', '', 'parallel.fsdp=-1', 'parallel.pad_vocabulary=8')
  state = program.build(config, jax.devices(), vocabulary=97).arguments[0]
  for part in ('embed', 'output'):
    table = state.params['model'][part]['table']
    assert table.format.layout.major_to_minor == (0, 1)
    assert table.shape[0] == 104 and table.sharding.shard_shape(table.shape) == (13, table.shape[1])
