"""Names and shapes of Hugging Face's tensors; tests/models/parity_test.py compares the numbers."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest
import tokenizers

from lmx.errors import InputError
from lmx.interop import huggingface
from lmx.interop.huggingface import folder, gpt2
from lmx.models import registry

SIZES = {
  'gpt': dict(V=11, T=8, D=8, H=2, N=2),
  'gpt2': dict(V=11, T=8, D=8, H=2, N=2),
  'bert': dict(V=11, T=8, D=8, H=2, N=2),
}
EMBEDDINGS = {
  'gpt': 'transformer.tokens_embed.weight',
  'gpt2': 'transformer.wte.weight',
  'bert': 'bert.embeddings.word_embeddings.weight',
}
OUTPUTS = {'gpt': 'lm_head.weight', 'gpt2': 'lm_head.weight', 'bert': 'cls.predictions.decoder.weight'}


def make(name, **changes):
  model = registry.get(name)
  cfg = model.Config(**SIZES[name] | changes)
  leaves, tree = jax.tree.flatten(jax.eval_shape(lambda: model.init(cfg, jax.random.key(0))))
  rng = np.random.default_rng(0)
  params = {'model': tree.unflatten([rng.normal(size=x.shape).astype(np.float32) for x in leaves]), 'objective': {}}
  if name == 'bert':
    params['objective'] = {'nsp': {'kernel': np.ones((8, 2), np.float32), 'bias': np.zeros(2, np.float32)}}
  return cfg, params


@pytest.mark.parametrize(
  'name,changes',
  [
    *((name, {}) for name in SIZES),
    *((name, {'tied': False}) for name in SIZES),
    ('bert', {'F': 12}),
    ('gpt2', {'F': 12}),
  ],
)
def test_export_and_import_restore_the_run(name, changes):
  cfg, params = make(name, **changes)
  back = huggingface.from_hf(name, cfg, huggingface.to_hf(name, cfg, params))
  assert jax.tree.structure(back) == jax.tree.structure(params)
  jax.tree.map(np.testing.assert_array_equal, back, params)


@pytest.mark.parametrize('name', SIZES)
def test_untied_output_matrix_scores(name):
  """Scores are the rows of the file's own matrix, times what a tied model multiplies its embedding with."""
  model = registry.get(name)
  cfg, params = make(name)
  rng = np.random.default_rng(1)
  table_VD, bias_V = rng.normal(size=(11, 8)).astype(np.float32), rng.normal(size=11).astype(np.float32)
  tensors = huggingface.to_hf(name, cfg, params) | {OUTPUTS[name]: table_VD}
  if name == 'bert':
    tensors['cls.predictions.decoder.bias'] = bias_V  # the one that transformers adds
  untied = dataclasses.replace(cfg, tied=False)
  found = huggingface.from_hf(name, untied, tensors)['model']
  batch = {'tokens_BT': np.arange(8, dtype=np.int32)[None] % 11, 'targets_BT': np.zeros((1, 8), np.int32)}
  identity = jax.tree.map(lambda x: x, params['model'])  # embeddings of eight tokens that give the vector itself
  identity['embed'] = {**identity['embed'], 'tokens': np.eye(11, 8, dtype=np.float32)}
  if name == 'bert':
    identity['mlm'] = {**identity['mlm'], 'bias': np.zeros(11, np.float32)}

  @jax.jit
  def scores(found, identity):
    features, _ = model.apply(untied, found, batch, ())
    nll_BT = model.nll(untied, found, features, batch['targets_BT'])
    return model.logits(untied, found, features), nll_BT, model.logits(cfg, identity, features)[..., :8]

  ours, nll_of_ours, x_BTD = map(np.asarray, scores(found, identity))
  expected = x_BTD @ table_VD.T + (bias_V if name == 'bert' else 0)
  np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
  nll_BT = np.log(np.exp(expected).sum(-1)) - expected[..., 0]
  np.testing.assert_allclose(nll_of_ours, nll_BT, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('name', SIZES)
def test_tied_matrix_that_differs_is_rejected(name):
  cfg, params = make(name)
  tensors = huggingface.to_hf(name, cfg, params)
  with pytest.raises(InputError, match=f'{OUTPUTS[name]}: got other values than {EMBEDDINGS[name]}.*"tie_word_embedd'):
    huggingface.from_hf(name, cfg, tensors | {OUTPUTS[name]: tensors[OUTPUTS[name]] + 1})
  if name == 'bert':
    with pytest.raises(InputError, match='cls.predictions.decoder.bias: got'):
      huggingface.from_hf(name, cfg, tensors | {'cls.predictions.decoder.bias': np.ones(11, np.float32)})


def test_tied_matrices_and_constants_of_every_family_are_compared():
  """No tensor is dropped because of its name alone."""
  cases = {
    'xlnet': ({'H': 2, 'D': 8, 'F': 12, 'N': 1}, {'lm_loss.weight': (11, 8)}),
    'transformer': (
      {'H': 2, 'D': 8, 'F': 12, 'encoder_layers': 1, 'decoder_layers': 1, 'biases': 'all'},
      {
        'lm_head.weight': (11, 8),
        'model.encoder.embed_tokens.weight': (11, 8),
        'model.decoder.embed_positions.weight': (16, 8),
      },
    ),
    'transformer_xl': (
      {'H': 2, 'D': 8, 'F': 12, 'N': 1, 'E': 8, 'cutoffs': ()},
      {'crit.out_layers.0.weight': (11, 8), 'transformer.pos_emb.inv_freq': (4,)},
    ),
    'gpt': ({'H': 2, 'D': 8, 'N': 1, 'T': 8}, {'h.0.attn.bias': (1, 1, 8, 8), 'position_ids': (8,)}),
    'gpt2': ({'H': 2, 'D': 8, 'N': 1, 'T': 8}, {'h.0.attn.bias': (1, 1, 8, 8), 'h.0.attn.masked_bias': ()}),
    'bert': ({'H': 2, 'D': 8, 'N': 1, 'T': 8}, {'embeddings.position_ids': (1, 8)}),
  }
  for name, (sizes, others) in cases.items():
    model = registry.get(name)
    cfg = model.Config(V=11, **sizes)
    shapes = jax.eval_shape(lambda model=model, cfg=cfg: model.init(cfg, jax.random.key(0)))
    params = {'model': jax.tree.map(lambda x: np.full(x.shape, 0.5, np.float32), shapes)}
    tensors = huggingface.to_hf(name, cfg, params)
    huggingface.from_hf(name, cfg, tensors)
    for other, shape in others.items():
      with pytest.raises(InputError, match=f'{other}: got other values'):
        huggingface.from_hf(name, cfg, tensors | {other: np.full(shape, 7.0, np.float32)})


TWINS = [  # family, name in the file, the other that is the same parameter
  ('bert', 'bert.embeddings.word_embeddings.weight', 'embeddings.word_embeddings.weight'),
  ('bert', 'bert.embeddings.LayerNorm.weight', 'bert.embeddings.LayerNorm.gamma'),
  ('bert', 'cls.predictions.transform.LayerNorm.bias', 'cls.predictions.transform.LayerNorm.beta'),
  ('gpt2', 'transformer.wte.weight', 'wte.weight'),
  ('gpt', 'transformer.h.0.ln_1.bias', 'h.0.ln_1.bias'),
]


@pytest.mark.parametrize(('name', 'one', 'other'), TWINS)
def test_two_tensors_of_one_parameter_are_rejected_unless_they_are_equal(name, one, other):
  cfg, params = make(name)
  tensors = huggingface.to_hf(name, cfg, params)
  for given in (tensors | {other: tensors[one] + 1}, {other: tensors[one] + 1} | tensors):
    with pytest.raises(InputError, match=f'tensors "({one}" and "{other}|{other}" and "{one})": got other values in e'):
      huggingface.from_hf(name, cfg, given)
  converted = huggingface.convert(name, cfg, tensors | {other: tensors[one].copy()})
  jax.tree.map(np.testing.assert_array_equal, converted.params, huggingface.from_hf(name, cfg, tensors))
  repeats = [(row.name, row.note) for row in converted.rows if row.note.startswith('repeats') and row.name == other]
  assert repeats == [(other, f'repeats {one}')]


@pytest.mark.parametrize('dtype', ['int32', 'bool', 'uint8', 'complex64'])
def test_non_float_tensors_are_rejected(dtype):
  cfg, params = make('gpt2')
  tensors = huggingface.to_hf('gpt2', cfg, params)
  tensors['transformer.ln_f.weight'] = tensors['transformer.ln_f.weight'].astype(dtype)
  with pytest.raises(InputError, match=f'tensor "transformer.ln_f.weight": got type {dtype}'):
    huggingface.from_hf('gpt2', cfg, tensors)


def test_values_beyond_float32_are_reported():
  cfg, params = make('gpt2')
  tensors = huggingface.to_hf('gpt2', cfg, params)
  tensors['transformer.ln_f.weight'] = np.full(8, 1e300)
  tensors['transformer.ln_f.bias'] = np.full(8, 1e30)
  found = huggingface.convert('gpt2', cfg, tensors).nonfinite
  assert found == ['transformer.ln_f.weight (numbers beyond float32)']


def test_constants_match_transformers():
  entry, marian = huggingface.entry, huggingface.transformer
  assert entry.is_constant(np.arange(5)[None], entry.position_ids) and not entry.is_constant(
    np.ones(5), entry.position_ids
  )
  assert entry.is_constant(np.tril(np.ones((1, 1, 5, 5))), entry.causal_mask)
  assert entry.is_constant(np.float32(-1e9), entry.masked_score) and entry.is_constant(
    np.float32(-1e4), entry.masked_score
  )
  # MarianSinusoidalPositionalEmbedding: sines of even, then cosines of odd columns of pos / 10000^(2 (j // 2) / dim)
  angles = np.array([[pos / np.power(10000, 2 * (j // 2) / 6) for j in range(6)] for pos in range(5)])
  table = np.concatenate([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], axis=1)
  assert entry.is_constant(table, next(iter(marian.BUFFERS.values())))
  frequencies = 1 / (10000 ** (np.arange(0.0, 8, 2.0) / 8))
  assert entry.is_constant(frequencies, next(iter(huggingface.transformer_xl.BUFFERS.values())))


@pytest.mark.parametrize('name,prefix', [('gpt', 'transformer.'), ('gpt2', 'transformer.'), ('bert', 'bert.')])
def test_files_of_the_bare_model_and_old_names(name, prefix):
  cfg, params = make(name)
  tensors = {}
  for key, value in huggingface.to_hf(name, cfg, params).items():
    key = key.removeprefix(prefix)
    tensors[key.replace('LayerNorm.weight', 'LayerNorm.gamma').replace('LayerNorm.bias', 'LayerNorm.beta')] = value
  tensors |= (
    {'h.0.attn.bias': np.tril(np.ones((1, 1, 8, 8)))} if name != 'bert' else {'embeddings.position_ids': np.arange(8)}
  )
  jax.tree.map(np.testing.assert_array_equal, huggingface.from_hf(name, cfg, tensors), params)


def test_without_a_next_sentence_head():
  cfg, params = make('bert')
  tensors = huggingface.to_hf('bert', cfg, {'model': params['model']})
  assert not any('seq_relationship' in n for n in tensors)
  assert huggingface.from_hf('bert', cfg, tensors)['objective'] == {}
  masked = huggingface.to_hf('bert', cfg, {'model': params['model']}, 'BertForMaskedLM')
  assert masked.keys() == tensors.keys() and 'bert.pooler.dense.weight' in masked  # of a file of BertModel, say


def test_errors_list_every_tensor():
  cfg, params = make('gpt2')
  tensors = huggingface.to_hf('gpt2', cfg, params)
  del tensors['transformer.h.1.ln_1.bias'], tensors['transformer.ln_f.weight']
  tensors['transformer.extra'] = np.zeros(3)
  tensors['transformer.wpe.weight'] = np.zeros((9, 8))
  with pytest.raises(InputError) as error:
    huggingface.from_hf('gpt2', cfg, tensors)
  for words in (
    '2 tensors missing',
    'transformer.h.1.ln_1.bias',
    'transformer.ln_f.weight',
    '1 tensors unknown',
    'transformer.extra',
    'transformer.wpe.weight is (9, 8), not (8, 8)',
  ):
    assert words in str(error.value)


def test_half_a_next_sentence_head_is_an_error():
  cfg, params = make('bert')
  tensors = huggingface.to_hf('bert', cfg, params)
  del tensors['cls.seq_relationship.bias']
  with pytest.raises(InputError, match='cls.seq_relationship.bias'):
    huggingface.from_hf('bert', cfg, tensors)


def test_wrong_parameters_are_reported():
  cfg, params = make('gpt2')
  broken = {'model': {**params['model'], 'embed': {'tokens': params['model']['embed']['tokens']}}}
  with pytest.raises(InputError, match='model/embed/positions is missing'):
    huggingface.to_hf('gpt2', cfg, broken)
  broken = {'model': {**params['model'], 'norm': {'scale': np.ones(9), 'bias': np.ones(8)}}}
  with pytest.raises(InputError, match='model/norm/scale has shape'):
    huggingface.to_hf('gpt2', cfg, broken)


def test_unsupported_models_are_rejected():
  with pytest.raises(InputError, match='expected one of .*gpt2'):
    huggingface.from_hf('gpt2x', None, {})


@pytest.mark.parametrize('kind', ['bpe', 'gpt_bpe'])
def test_gpt_tokenizers_have_no_token_types(kind, tmp_path):
  """Their classes in transformers would add the embedding of token 0 to every position."""
  state = json.loads(tokenizers.Tokenizer(tokenizers.models.BPE({'<|endoftext|>': 0, 'a': 1}, [])).to_str())
  folder._write_tokenizer(tmp_path, {'kind': kind, 'model': state}, 8, False, ('_start_',))
  settings = json.loads((tmp_path / 'tokenizer_config.json').read_text())
  assert settings['model_input_names'] == ['input_ids', 'attention_mask']


def test_gpt2_without_biases_has_no_export():
  with pytest.raises(InputError, match=r'model\.bias: got false'):
    gpt2.config(registry.config('gpt2', 'tiny', bias=False))


@pytest.mark.parametrize('inner,tied,lines', [(1, False, 1), (0, False, 0), (1, True, 0)])
def test_output_bias_that_versions_read_differently_is_named(inner, tied, lines):
  biases = {'cls.predictions.bias': np.zeros(3), 'cls.predictions.decoder.bias': np.full(3, inner)}
  found = huggingface.family('bert').remarks(None, {'tie_word_embeddings': tied}, biases)
  assert ['decoder.bias: read, as by version 5' in line for line in found] == [True] * lines
