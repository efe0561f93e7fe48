"""Checkpoints of BERT by TensorFlow 2: variables are found by their names, whatever the objects' paths.

The default suite has the keys and names that official 2.20 wrote; the peer test has that write the files.
"""

from __future__ import annotations

import functools
import json
import os

import numpy as np
import pytest

import lmx
from lmx.errors import InputError
from lmx.interop import huggingface, tensorflow, tensorflow_objects
from lmx.interop.tensor_table import UNUSED
from lmx.models import registry
from lmx.runs import convert

os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')  # of which the Model Garden's classes are

D, F, H, N, T, V = 8, 20, 2, 2, 16, 40
WORDS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *(f'w{i}' for i in range(35))]
CONFIG = {
  'vocab_size': V,
  'hidden_size': D,
  'num_hidden_layers': N,
  'num_attention_heads': H,
  'intermediate_size': F,
  'hidden_act': 'gelu',
  'hidden_dropout_prob': 0.1,
  'attention_probs_dropout_prob': 0.1,
  'max_position_embeddings': T,
  'type_vocab_size': 2,
  'initializer_range': 0.02,
}
VALUE = '/.ATTRIBUTES/VARIABLE_VALUE'
# Name -> (key in a file of the functional encoder, in one of BertEncoderV2, shape); L is the number of a layer.
ENCODER = {
  'word_embeddings/embeddings': ('layer_with_weights-0/embeddings', '_embedding_layer/embeddings', (V, D)),
  'position_embedding/embeddings': ('layer_with_weights-1/embeddings', '_position_embedding_layer/embeddings', (T, D)),
  'type_embeddings/embeddings': ('layer_with_weights-2/embeddings', '_type_embedding_layer/embeddings', (2, D)),
  'embeddings/layer_norm/gamma': ('layer_with_weights-3/gamma', '_embedding_norm_layer/gamma', (D,)),
  'embeddings/layer_norm/beta': ('layer_with_weights-3/beta', '_embedding_norm_layer/beta', (D,)),
  'pooler_transform/kernel': ('layer_with_weights-6/kernel', '_pooler_layer/kernel', (D, D)),
  'pooler_transform/bias': ('layer_with_weights-6/bias', '_pooler_layer/bias', (D,)),
}
LAYER = {
  'self_attention/query/kernel': ('_attention_layer/_query_dense/kernel', (D, H, D // H)),
  'self_attention/query/bias': ('_attention_layer/_query_dense/bias', (H, D // H)),
  'self_attention/key/kernel': ('_attention_layer/_key_dense/kernel', (D, H, D // H)),
  'self_attention/key/bias': ('_attention_layer/_key_dense/bias', (H, D // H)),
  'self_attention/value/kernel': ('_attention_layer/_value_dense/kernel', (D, H, D // H)),
  'self_attention/value/bias': ('_attention_layer/_value_dense/bias', (H, D // H)),
  'self_attention/attention_output/kernel': ('_attention_layer/_output_dense/kernel', (H, D // H, D)),
  'self_attention/attention_output/bias': ('_attention_layer/_output_dense/bias', (D,)),
  'self_attention_layer_norm/gamma': ('_attention_layer_norm/gamma', (D,)),
  'self_attention_layer_norm/beta': ('_attention_layer_norm/beta', (D,)),
  'intermediate/kernel': ('_intermediate_dense/kernel', (D, F)),
  'intermediate/bias': ('_intermediate_dense/bias', (F,)),
  'output/kernel': ('_output_dense/kernel', (F, D)),
  'output/bias': ('_output_dense/bias', (D,)),
  'output_layer_norm/gamma': ('_output_layer_norm/gamma', (D,)),
  'output_layer_norm/beta': ('_output_layer_norm/beta', (D,)),
}
MASKED = {
  'cls/predictions/transform/dense/kernel': ('dense/kernel', (D, D)),
  'cls/predictions/transform/dense/bias': ('dense/bias', (D,)),
  'cls/predictions/transform/LayerNorm/gamma': ('layer_norm/gamma', (D,)),
  'cls/predictions/transform/LayerNorm/beta': ('layer_norm/beta', (D,)),
  'cls/predictions/output_bias/bias': ('output_bias.Sbias', (V,)),
}


def file(layout='functional', under='model/', prefix='', heads=()):
  """(array by key, name by key) of a checkpoint; `heads` are (key, name, shape)."""
  rng, found = np.random.default_rng(0), []
  for name, (functional, subclass, shape) in ENCODER.items():
    found.append((under + (functional if layout == 'functional' else subclass), prefix + name, shape))
  for i in range(N):
    place = f'layer_with_weights-{4 + i}/' if layout == 'functional' else f'_transformer_layers/{i}/'
    for name, (key, shape) in LAYER.items():
      found.append((f'{under}{place}{key}', f'{prefix}transformer/layer_{i}/{name}', shape))
  found += heads
  arrays = {key + VALUE: rng.normal(size=shape).astype(np.float32) for key, _, shape in found}
  names = {key + VALUE: name for key, name, _ in found}
  slot = found[0][0] + '/.OPTIMIZER_SLOT/optimizer/m' + VALUE
  counters = {'save_counter' + VALUE: np.int64(1), 'optimizer/iter' + VALUE: np.int64(9), slot: np.ones((V, D))}
  return arrays | counters, names | {slot: 'Adam/word_embeddings/embeddings/m'}


def masked(under, prefix=''):
  return [(f'{under}{key}', f'{prefix}{name}', shape) for name, (key, shape) in MASKED.items()]


def layer(key, name, outputs, inputs=D):
  return [(f'{key}/kernel', f'{name}/kernel', (inputs, outputs)), (f'{key}/bias', f'{name}/bias', (outputs,))]


def graph(names):
  made = tensorflow_objects._graph_proto()()
  for key, name in names.items():
    made.nodes.add().attributes.add(full_name=name, checkpoint_key=key)
  return made.SerializeToString()


def write(folder):
  folder.mkdir()
  (folder / 'bert_config.json').write_text(json.dumps(CONFIG))
  (folder / 'vocab.txt').write_text('\n'.join(WORDS) + '\n')
  return folder


@pytest.fixture
def release(tmp_path, given):
  """Writes a release whose variables TensorFlow is not needed for."""

  def put(arrays, names):
    given(arrays | {tensorflow_objects.GRAPH: graph(names)})
    return write(tmp_path / 'release') if not (tmp_path / 'release').exists() else tmp_path / 'release'

  return put


# Layout -> arguments of `file`, and the objective that it becomes.
CASES = {
  'encoder': ({}, 'masked_lm'),
  'encoder v2': (dict(layout='subclass', under='encoder/', prefix='bert_encoder_v2_1/'), 'masked_lm'),
  'pre-training': (
    dict(
      under='model/layer_with_weights-0/layer_with_weights-0/',
      heads=masked('model/layer_with_weights-0/layer_with_weights-2/')
      + layer(
        'model/layer_with_weights-0/layer_with_weights-1/layer_with_weights-0', 'predictions/transform/logits', 2
      ),
    ),
    'masked_lm',
  ),
  'pre-training v2': (
    dict(
      under='encoder/',
      heads=masked('masked_lm/', 'bert/')
      + layer('next_sentence..pooler_dense', 'bert/next_sentence/pooler_dense', D)
      + layer('model/classification_heads/0/out_proj', 'bert/next_sentence/logits', 2),
    ),
    'masked_lm',
  ),
  'classifier': (
    dict(
      under='model/layer_with_weights-0/',
      heads=layer('model/layer_with_weights-1/out_proj', 'sentence_prediction/logits', 3),
    ),
    'classify',
  ),
  'score': (
    dict(
      under='model/layer_with_weights-0/',
      heads=layer('model/layer_with_weights-1/out_proj', 'sentence_prediction/logits', 1),
    ),
    'regress',
  ),
  'span': (
    dict(
      under='model/layer_with_weights-0/',
      heads=layer('model/layer_with_weights-1/layer_with_weights-0', 'predictions/transform/logits', 2),
    ),
    'span',
  ),
  'tags': (
    dict(under='encoder/', heads=layer('model/layer_with_weights-1', 'predictions/transform/logits', 2)),
    'tag',
  ),
}


def value(params, path):
  for part in path.split('/'):
    params = params[part]
  return np.asarray(params)


@pytest.mark.parametrize('case', CASES)
def test_variables_of_every_layout_are_found_by_their_names(case, release):
  given, objective = CASES[case]
  arrays, names = file(**given)
  by_name = {name.removeprefix('bert/').removeprefix('bert_encoder_v2_1/'): arrays[key] for key, name in names.items()}
  folder = tensorflow.read(release(arrays, names))
  cfg = registry.get('bert').Config(**folder.fields)
  assert (cfg.D, cfg.F, cfg.N, cfg.gelu) == (D, F, N, 'tanh')
  assert (folder.objective or {'name': 'masked_lm'})['name'] == objective
  converted = huggingface.convert('bert', cfg, folder.tensors, folder.architecture, len(folder.labels), folder.names)
  model, head = converted.params['model'], converted.params['objective']
  same = lambda path, name, shape=None: np.testing.assert_array_equal(
    value(model, path), by_name[name] if shape is None else by_name[name].reshape(shape)
  )
  same('embed/tokens', 'word_embeddings/embeddings')
  same('embed/norm/scale', 'embeddings/layer_norm/gamma')
  for c, part in enumerate(('query', 'key', 'value')):
    kernel = value(model, 'layer_01/attention/qkv/kernel')[:, c]
    np.testing.assert_array_equal(kernel, by_name[f'transformer/layer_1/self_attention/{part}/kernel'])
    bias = value(model, 'layer_01/attention/qkv/bias')[c]
    np.testing.assert_array_equal(bias, by_name[f'transformer/layer_1/self_attention/{part}/bias'])
  same('layer_01/attention/out/kernel', 'transformer/layer_1/self_attention/attention_output/kernel')
  same('layer_00/mlp/in/kernel', 'transformer/layer_0/intermediate/kernel')
  same('layer_00/norm_2/bias', 'transformer/layer_0/output_layer_norm/beta')
  own = 'next_sentence/pooler_dense' if case == 'pre-training v2' else 'pooler_transform'
  same('pooler/kernel', f'{own}/kernel')
  if 'pre-training' in case:
    same('mlm/bias', 'cls/predictions/output_bias/bias')
    same('mlm/norm/scale', 'cls/predictions/transform/LayerNorm/gamma')
    logits = 'next_sentence/logits' if own.startswith('next') else 'predictions/transform/logits'
    np.testing.assert_array_equal(head['nsp']['kernel'], by_name[f'{logits}/kernel'])
  elif objective != 'masked_lm':
    logits = 'sentence_prediction' if objective in ('classify', 'regress') else 'predictions/transform'
    kernel = head['block_0']['kernel'] if 'sentence' in logits else head['kernel']
    np.testing.assert_array_equal(kernel, by_name[f'{logits}/logits/kernel'])
  unused = {row.name: row.note for row in [*folder.unused, *converted.rows] if row.status == UNUSED}
  assert len(unused) == (5 if case == 'pre-training v2' else 3), unused
  if case == 'pre-training v2':
    pooler = f'encoder/layer_with_weights-6/kernel{VALUE}'
    assert unused[pooler] == f'next_sentence..pooler_dense/kernel{VALUE} is computed with'
  assert (
    'model/layer_with_weights-4/_intermediate_dense/bias' + VALUE in {row.name for row in converted.rows}
    or case != 'encoder'
  )


def test_older_names_of_the_attention_and_flat_kernels_are_read(release):
  """As of version 2.3: `_attention_output_dense` is a layer of its own, with a kernel of two axes."""
  arrays, names = file()
  for i in range(N):
    for kind in ('kernel', 'bias'):
      old = f'model/layer_with_weights-{4 + i}/_attention_layer/_output_dense/{kind}{VALUE}'
      new = f'model/layer_with_weights-{4 + i}/_attention_output_dense/{kind}{VALUE}'
      names[new], arrays[new] = f'transformer/layer_{i}/self_attention_output/{kind}', arrays.pop(old).reshape(-1, D)
      arrays[new] = arrays[new][0] if kind == 'bias' else arrays[new]
      del names[old]
  folder = tensorflow.read(release(arrays, names))
  kernel = arrays[f'model/layer_with_weights-4/_attention_output_dense/kernel{VALUE}']
  np.testing.assert_array_equal(folder.tensors['bert.encoder.layer.0.attention.output.dense.weight'], kernel.T)


def test_unknown_variables_are_reported_before_writing(release, tmp_path):
  arrays, names = file()
  key = f'model/layer_with_weights-5/_output_dense/kernel{VALUE}'
  changes = (
    ({}, {key: 'transformer/layer_1/outputs/kernel'}, 'missing: bert.encoder.layer.1.output.dense.weight'),
    ({}, {key: 'transformer/layer_1/outputs/kernel'}, 'unknown: transformer.layer.1.outputs.weight'),
    ({key: arrays[key][:-1]}, {}, r'bert.encoder.layer.1.output.dense.weight is \(8, 19\), not \(8, 20\)'),
    (
      {},
      {key: names[f'model/layer_with_weights-4/_output_dense/kernel{VALUE}']},
      'both transformer/layer_0/output/kern',
    ),
  )
  for other, renamed, words in changes:
    with pytest.raises(InputError, match=words):
      convert.import_run(str(release(arrays | other, names | renamed)), tmp_path / 'run')
  with pytest.raises(InputError, match='_CHECKPOINTABLE_OBJECT_GRAPH: damaged'):
    tensorflow_objects.bert(arrays, b'\xff' * 9, 'release')
  assert not (tmp_path / 'run').exists()


def _models():
  """Case -> (checkpoint, outputs by name of lmx for a row of ids), by the Model Garden's classes."""
  tf = pytest.importorskip('tensorflow')
  modeling = pytest.importorskip('official.nlp.modeling')
  legacy = pytest.importorskip('official.legacy.bert.bert_models')
  configs = pytest.importorskip('official.legacy.bert.configs')
  networks, models, layers = modeling.networks, modeling.models, modeling.layers
  sizes = dict(
    vocab_size=V, hidden_size=D, num_layers=N, num_attention_heads=H, max_sequence_length=T, type_vocab_size=2
  )
  one = lambda: networks.BertEncoder(intermediate_size=F, **sizes)
  two = lambda: networks.BertEncoderV2(inner_dim=F, **sizes)
  save = lambda **parts: tf.train.Checkpoint(**parts)

  def pretrainer(encoder):
    head = layers.ClassificationHead(inner_dim=D, num_classes=2, dropout_rate=0.0, name='next_sentence')
    gelu = functools.partial(tf.keras.activations.gelu, approximate=True)  # as in its pre-training task
    model = models.BertPretrainerV2(encoder_network=encoder, classification_heads=[head], mlm_activation=gelu)
    return model, save(model=model, **model.checkpoint_items)

  cfg = configs.BertConfig.from_dict(CONFIG)
  encoder = one()
  yield 'encoder', encoder, save(model=encoder), 'masked_lm'
  encoder = two()
  yield 'encoder v2', encoder, save(encoder=encoder), 'masked_lm'
  for version, make in enumerate((one, two)):
    yield f'pre-training {version}', *pretrainer(make()), 'masked_lm'
  model, _ = legacy.classifier_model(cfg, 3, T)
  optimizer = tf.keras.optimizers.legacy.Adam()
  optimizer.apply_gradients([(tf.zeros_like(v), v) for v in model.trainable_variables])
  yield 'classifier', model, save(model=model, optimizer=optimizer), 'classify'
  model = models.BertClassifier(
    two(), 3, use_encoder_pooler=False, cls_head=layers.ClassificationHead(D, 3, name='sentence_prediction')
  )
  yield 'classifier v2', model, save(model=model, **model.checkpoint_items), 'classify'
  model, _ = legacy.squad_model(cfg, T)
  yield 'span', model, save(model=model), 'span'
  model = models.BertSpanLabeler(two())
  yield 'span v2', model, save(model=model, **model.checkpoint_items), 'span'
  for labels in (2, 5):
    model = models.BertTokenClassifier(two(), labels)
    yield f'tags {labels}', model, save(model=model, **model.checkpoint_items), 'tag'


@pytest.mark.peer
@pytest.mark.slow
def test_outputs_match_the_model_garden(tmp_path):
  rng, compared = np.random.default_rng(0), []
  tokens_BT = rng.integers(5, V, (3, T)).astype(np.int32)
  types_BT = np.where(np.arange(T) > 6, 1, 0).astype(np.int32) * np.ones((3, 1), np.int32)
  for case, model, checkpoint, objective in _models():
    inputs = {'input_word_ids': tokens_BT, 'input_mask': np.ones_like(tokens_BT), 'input_type_ids': types_BT}
    inputs |= {'masked_lm_positions': np.tile(np.arange(T), (3, 1))} if case.startswith('pre-training') else {}
    model(inputs)
    for variable in model.variables:
      if variable.dtype.is_floating:
        variable.assign_add(rng.normal(size=variable.shape) * 0.2)
    out = model(inputs, training=False)
    folder = write(tmp_path / case.replace(' ', '_'))
    checkpoint.save(str(folder / 'ckpt'))
    lines = convert.import_run(str(folder), folder / 'run')
    run = lmx.load(folder / 'run')
    assert run.run.objective_name == objective, (case, lines)
    features, _ = run.model.apply(run.cfg, run.params['model'], {'tokens_BT': tokens_BT, 'types_BT': types_BT}, ())
    head = run.params['objective']
    affine = lambda x, layer: np.asarray(x) @ np.asarray(layer['kernel']) + np.asarray(layer['bias'])
    if 'encoder' in case:
      ours = features.last_BTD, features.pooled_BD
      theirs = outputs(out, 'sequence_output', 'pooled_output')
    elif objective == 'masked_lm':
      ours = run.model.logits(run.cfg, run.params['model'], features), affine(features.pooled_BD, head['nsp'])
      theirs = outputs(out, 'mlm_logits', 'next_sentence')
    elif objective == 'classify':
      ours, theirs = [affine(features.pooled_BD, head['block_0'])], [out]
    elif objective == 'span':
      ours = [affine(features.last_BTD, head)[..., i] for i in range(2)]
      theirs = outputs(out, 'start_positions', 'end_positions')
    else:
      ours, theirs = [affine(features.last_BTD, head)], [out['logits'] if isinstance(out, dict) else out]
    for a, b in zip(ours, theirs, strict=True):
      np.testing.assert_allclose(a, b, rtol=0, atol=1e-5, err_msg=case)
      compared.append(case)
  assert len(compared) == 16, compared


def outputs(out, *names):
  """Outputs of a model that returns them by name or in this order."""
  return [out[name] for name in names] if isinstance(out, dict) else list(out)
