"""Adapters of peft beside the weights of a folder, and other files and fields that change weights."""

from __future__ import annotations

import json

import numpy as np
import pytest
import safetensors.numpy

import lmx
from lmx.data.tokenizers import build
from lmx.interop import huggingface
from lmx.models import registry
from tests import drawn
from tests.interop import imports

TEXTS = ['The method returns a list of names.', 'A name is a string, and so is a list of them.'] * 20
KINDS = {'bert': 'wordpiece', 'gpt2': 'bpe'}
PLAIN = {'peft_type': 'LORA', 'r': 2, 'lora_alpha': 8, 'bias': 'none', 'init_lora_weights': True, 'use_dora': False}


@pytest.fixture(scope='module')
def vocabularies():
  return {name: build.train(kind, TEXTS, vocab_size=300) for name, kind in KINDS.items()}


@pytest.fixture
def make(vocabularies, tmp_path):
  """Write a folder of a language model with an adapter: (folder, its tensors)."""

  def write(name, config, adapter, **fields):
    layout, model, tokenizer = huggingface.family(name), registry.get(name), vocabularies[name]
    cfg = model.Config(V=tokenizer.vocab_size, T=16, D=8, H=2, N=2)
    params = {'model': drawn.params(model.init, cfg), 'objective': {}}
    (folder := tmp_path / 'folder').mkdir()
    (folder / 'config.json').write_text(json.dumps({'model_type': layout.TYPE, **layout.config(cfg), **fields}))
    tensors = dict(huggingface.to_hf(name, cfg, params))
    safetensors.numpy.save_file(tensors, folder / 'model.safetensors')
    imports.save_tokenizer(tokenizer, folder)
    if config is not None:
      (folder / 'adapter_config.json').write_text(json.dumps(PLAIN | config))
      named = {f'base_model.model.{key}': x for key, x in adapter.items()}
      safetensors.numpy.save_file(named, folder / 'adapter_model.safetensors')
    return folder, tensors

  return write


def factors(module, rank, inputs, outputs, seed=0):
  draw = np.random.default_rng(seed).normal
  A, B = (draw(size=shape).astype(np.float32) for shape in ((rank, inputs), (outputs, rank)))
  return {f'{module}.lora_A.weight': A, f'{module}.lora_B.weight': B}, B @ A


@pytest.mark.filterwarnings('ignore:.*adapter_model')
@pytest.mark.parametrize('rslora', [False, True])
def test_lora_is_added_to_kernels_with_the_rank_and_alpha_of_each(rslora, make):
  query, value = (f'bert.encoder.layer.1.attention.self.{name}' for name in ('query', 'value'))
  of_query, query_sum = factors(query, 2, 8, 8)
  of_value, value_sum = factors(value, 4, 8, 8, seed=1)
  bias = np.arange(8, dtype=np.float32)
  config = {'use_rslora': rslora, 'rank_pattern': {'value': 4}, 'alpha_pattern': {'layer.1.attention.self.value': 2}}
  whole = {'cls.predictions.transform.dense.bias': bias}
  folder, tensors = make('bert', config, {**of_query, **of_value, **whole})
  run = lmx.load(folder)
  qkv = np.asarray(run.params['model']['layer_01']['attention']['qkv']['kernel'])  # (D, C, H, K)
  scales = (8 / 2**0.5, 2 / 4**0.5) if rslora else (8 / 2, 2 / 4)
  for c, name, scale, added in ((0, query, scales[0], query_sum), (2, value, scales[1], value_sum)):
    expected = tensors[f'{name}.weight'] + np.float32(scale) * added
    np.testing.assert_allclose(qkv[:, c].reshape(8, 8), expected.T, rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(run.params['model']['mlm']['dense']['bias'], bias)


@pytest.mark.filterwarnings('ignore:.*adapter_model')
def test_lora_of_gpt2_is_transposed(make):
  of_layer, added = factors('transformer.h.0.mlp.c_fc', 2, 8, 32)
  folder, tensors = make('gpt2', {}, of_layer)
  kernel = lmx.load(folder).params['model']['layer_00']['mlp']['in']['kernel']
  np.testing.assert_allclose(kernel, tensors['transformer.h.0.mlp.c_fc.weight'] + 4 * added.T, rtol=1e-5, atol=1e-6)


QUERY = factors('bert.encoder.layer.0.attention.self.query', 2, 8, 8)[0]


@pytest.mark.parametrize(
  'config,adapter,words',
  [
    ({'peft_type': 'IA3'}, {}, 'adapter_config.json: peft_type: got "IA3"'),
    ({'use_dora': True}, QUERY, 'adapter_config.json: use_dora: got true'),
    ({'bias': 'all'}, QUERY, 'adapter_config.json: bias: got "all"'),
    ({'init_lora_weights': 'pissa'}, QUERY, 'adapter_config.json: init_lora_weights: got "pissa"'),
    ({'later_option': 3}, QUERY, 'adapter_config.json: later_option: got 3'),
    ({'r': 3}, QUERY, r'adapter_model.safetensors: bert.*query: got lora_A \(2, 8\)'),
    ({'lora_alpha': 'much'}, QUERY, 'adapter_config.json: lora_alpha: got "much"'),
    ({}, dict(list(QUERY.items())[:1]), 'adapter_model.safetensors: bert.*query: got lora_A;'),
    ({}, factors('bert.encoder.layer.0.crossattention.self.query', 2, 8, 8)[0], 'model has none of this name'),
    ({}, {'classifier.weight': np.zeros((2, 8), np.float32)}, '"classifier.weight": the model has none of this name'),
    ({}, {'bert.embeddings.word_embeddings.lora_embedding_A': np.zeros((2, 9), np.float32)}, 'lora_embedding_A'),
    ({}, {'bert.pooler.dense.bias': np.zeros(9, np.float32)}, r'got \(9,\); expected \(8,\)'),
  ],
)
def test_other_adapters_are_refused(config, adapter, words, make, capsys):
  folder, _ = make('bert', config, adapter)
  imports.check_refused(folder, words, capsys)


def test_adapter_of_another_model_or_without_one_is_refused(make, tmp_path, capsys):
  (tmp_path / 'other').mkdir()
  folder, _ = make('bert', {'base_model_name_or_path': str(tmp_path / 'other')}, QUERY)
  imports.check_refused(folder, 'adapter_config.json: base_model_name_or_path: got', capsys)
  (folder / 'config.json').unlink()
  imports.check_refused(folder, 'adapter_config.json: base_model_name_or_path: .*expected config.json', capsys)
  (folder / 'adapter_model.safetensors').unlink()
  (folder / 'config.json').write_text('{"model_type": "bert"}')


@pytest.mark.parametrize(
  'fields,file,words',
  [
    ({'quantization_config': {'load_in_4bit': True}}, '', 'config.json: quantization_config: got'),
    ({'pruned_heads': {'0': [1]}}, '', 'config.json: pruned_heads: got'),
    ({}, 'quantize_config.json', 'quantize_config.json: got quantised weights'),
  ],
)
def test_changed_weights_are_refused(fields, file, words, make, capsys):
  folder, _ = make('bert', None, {}, **fields)
  if file:
    (folder / file).write_text('{}')
  imports.check_refused(folder, words, capsys)


def test_code_of_the_folder_is_reported(make):
  folder, _ = make('bert', None, {}, auto_map={'AutoModel': 'modeling.Other'})
  with pytest.warns(UserWarning, match='config.json: auto_map'):
    lmx.load(folder)


@pytest.mark.parametrize('name,table', [('gpt2', 'transformer.wte'), ('bert', 'bert.embeddings.word_embeddings')])
def test_tied_matrix_of_an_adapter_is_refused(name, table, make, vocabularies, capsys):
  whole = {f'{table}.weight': np.ones((vocabularies[name].vocab_size, 8), np.float32)}
  folder, _ = make(name, {}, whole)
  imports.check_refused(folder, f'adapter_config.json: got {table}.weight, which this config ties to', capsys)
