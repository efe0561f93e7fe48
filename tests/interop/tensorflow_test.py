"""Checkpoints of TensorFlow become the runs that the same weights in safetensors become."""

from __future__ import annotations

import json
import sys

import jax
import numpy as np
import pytest
import safetensors.numpy

import lmx
from lmx.data.tokenizers import build, library_files
from lmx.errors import InputError
from lmx.interop import huggingface, tensorflow
from lmx.models import registry
from lmx.runs import convert
from tests.interop import imports

TEXTS = ['The method returns a list of names.', 'A name is a string, and so is a list of them.'] * 20
SIZES = {'T': 16, 'D': 8, 'H': 2, 'N': 2}
KINDS = {'bert': 'wordpiece', 'gpt2': 'bpe'}


def bert_variables(tensors):
  """Tensors of transformers as google-research/bert names and turns them, with what its optimizer adds."""
  found = {'global_step': np.int64(7)}
  for name, x in tensors.items():
    *parts, last = name.split('.')
    if 'decoder' in parts:
      continue
    if parts[-1] == 'LayerNorm':
      last = {'weight': 'gamma', 'bias': 'beta'}[last]
    elif parts[-1].endswith('_embeddings'):
      last = ''
    elif parts == ['classifier'] or parts[-1] in ('seq_relationship', 'predictions', 'qa_outputs'):
      last = {'weight': 'output_weights', 'bias': 'output_bias'}[last]
    elif last == 'weight':
      last, x = 'kernel', x.T
    path = '/'.join([*parts, last] if last else parts)
    path = path.replace('layer/', 'layer_').replace('qa_outputs/', 'cls/squad/').removeprefix('classifier/')
    found |= {path: x, f'{path}/adam_m': np.zeros_like(x), f'{path}/adam_v': np.ones_like(x)}
  return found


def gpt2_variables(tensors):
  """Tensors of transformers as openai/gpt-2 names and shapes them."""
  found = {}
  for name, x in tensors.items():
    *parts, last = name.removeprefix('transformer.').split('.')
    if parts[0] == 'lm_head':
      continue
    path = '/'.join(parts).replace('h/', 'h')
    if parts[-1] in ('wte', 'wpe'):
      found[f'model/{path}'] = x
    elif parts[-1].startswith('ln_'):
      found[f'model/{path}/{"g" if last == "weight" else "b"}'] = x
    else:
      found[f'model/{path}/{last[0]}'] = x[None] if last == 'weight' else x
  return found


VARIABLES = {'bert': bert_variables, 'gpt2': gpt2_variables}


@pytest.fixture
def make(tmp_path):
  """Writes a folder of transformers and one as released, without the checkpoint: (folder, release, variables)."""

  def write(name, architecture='', outputs=0, cased=False):
    folder, release = tmp_path / 'folder', tmp_path / 'release'
    for path in (folder, release):
      path.mkdir()
    tokenizer = build.train(KINDS[name], TEXTS, vocab_size=300, lower_case=name == 'bert' and not cased)
    sizes = SIZES | ({'F': 20} if name == 'bert' else {})  # any width of the feed-forward network
    of, cfg = huggingface.family(name), registry.get(name).Config(V=tokenizer.vocab_size, **sizes)
    leaf, rng = lambda x: rng.normal(size=x.shape).astype(np.float32), np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: registry.get(name).init(cfg, jax.random.key(0)))
    head = {'kernel': rng.normal(size=(8, outputs or 2)), 'bias': rng.normal(size=outputs or 2)}
    params = {'model': jax.tree.map(leaf, shapes), 'objective': {'nsp': head, 'block_0': head, **head}}
    tensors = huggingface.to_hf(name, cfg, params, architecture, outputs)
    settings = {'model_type': of.TYPE, **of.config(cfg), **({'architectures': [architecture]} if architecture else {})}
    settings |= {'id2label': {str(i): f'LABEL_{i}' for i in range(outputs)}} if outputs else {}
    (folder / 'config.json').write_text(json.dumps(settings))
    safetensors.numpy.save_file(tensors, folder / 'model.safetensors')
    for path in (folder, release):
      tokenizer._model.model.save(str(path))
    if name == 'bert':
      (folder / 'tokenizer_config.json').write_text(json.dumps({'do_lower_case': not cased}))
      assert settings['hidden_act'] == 'gelu_new'
      (release / 'bert_config.json').write_text(json.dumps(of.config(cfg) | {'hidden_act': 'gelu'}))
    else:
      sizes = {'n_vocab': cfg.V, 'n_ctx': cfg.T, 'n_embd': cfg.D, 'n_head': cfg.H, 'n_layer': cfg.N}
      (release / 'hparams.json').write_text(json.dumps(sizes))
      (release / 'vocab.json').rename(release / 'encoder.json')
      (release / 'merges.txt').rename(release / 'vocab.bpe')
    return folder, release, VARIABLES[name](tensors)

  return write


def save(prefix, variables):
  """Has TensorFlow write a checkpoint; the test is skipped without it."""
  tf = pytest.importorskip('tensorflow', reason="TensorFlow is not installed: pip install 'lmx[tf]'")
  names, values = zip(*variables.items(), strict=True)
  tf.raw_ops.SaveV2(
    prefix=str(prefix),
    tensor_names=list(names),
    shape_and_slices=[''] * len(names),
    tensors=[tf.constant(x) for x in values],
  )


CASES = [
  ('bert', '', 0),
  ('bert', 'BertForSequenceClassification', 3),
  ('bert', 'BertForQuestionAnswering', 0),
  ('gpt2', '', 0),
]


def assert_same_runs(tmp_path, folder, release):
  for source, run in ((folder, 'one'), (release, 'two')):
    convert.import_run(str(source), tmp_path / run)
  one, two = (lmx.load(tmp_path / name) for name in ('one', 'two'))
  still = {'dropout_embedding': 0.0, 'dropout_attention': 0.0, 'dropout_residual': 0.0}  # the released GPT-2 has none
  sizes = [{field: getattr(run.cfg, field) for field in run.cfg.__dataclass_fields__} for run in (one, two)]
  assert sizes[1] == (sizes[0] | still if one.run.model_name == 'gpt2' else sizes[0])
  assert one.run.objective == two.run.objective
  contents = [run.tokenizer.content() for run in (one, two)]
  assert contents[0].pop('special_in_text')  # of transformers; to the authors' code text is text
  for content in contents:
    content['model'] = content['model'] | {'added_tokens': []}
  assert contents[0] == contents[1]
  jax.tree.map(np.testing.assert_array_equal, dict(one.params), dict(two.params))
  return one


@pytest.mark.parametrize('name,architecture,outputs', CASES)
def test_variables_match_the_same_weights(name, architecture, outputs, make, given, tmp_path):
  folder, release, variables = make(name, architecture, outputs)
  given(variables)
  run = assert_same_runs(tmp_path, folder, release)
  if outputs:
    assert json.loads((tmp_path / 'two/data.json').read_text())['label_names'] == ['LABEL_0', 'LABEL_1', 'LABEL_2']
  assert run.run.data.lower_case == (name == 'bert')
  rows = [row for row in convert.read(str(release), tmp_path / 'three').rows if row.status != 'newly initialised']
  assert sorted(row.name for row in rows) == sorted(variables)  # every variable has a row
  assert {row.name for row in rows if row.status == 'unused'} == {v for v in variables if 'adam' in v or 'step' in v}


def test_bad_checkpoints_are_rejected_before_writing(make, given, tmp_path):
  _, release, variables = make('bert')
  variables['bert/embeddings/LayerNorm/gamma'] = np.ones(9, np.float32)
  variables['bert/more'] = variables.pop('bert/pooler/dense/bias')
  given(variables)
  for words in (r'LayerNorm.weight is \(9,\), not \(8,\)', 'missing: bert.pooler.dense.bias', 'unknown: bert.more'):
    with pytest.raises(InputError, match=words):
      convert.import_run(str(release), tmp_path / 'run')
  (release / 'bert_config.json').write_text('{"hidden_size": 8}')
  with pytest.raises(InputError, match='release/bert_config.json: vocab_size: missing'):
    convert.import_run(str(release), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_truncated_checkpoint_names_the_variable(make, given, tmp_path, monkeypatch):
  _, release, variables = make('bert')
  reader = given(variables)
  whole = reader.get_tensor

  def cut(name):
    if name == 'bert/pooler/dense/bias':
      raise IndexError('Read fewer bytes than requested')
    return whole(name)

  monkeypatch.setattr(reader, 'get_tensor', cut)
  with pytest.raises(InputError, match='variable "bert/pooler/dense/bias"'):
    convert.read(str(release), tmp_path / 'run')


@pytest.mark.parametrize(
  ('name', 'one', 'other'),
  [
    ('bert', 'bert/embeddings/word_embeddings', 'bert/embeddings/word_embeddings/weight'),
    ('gpt2', 'model/wte', 'model/wte/weight'),
  ],
)
def test_two_variables_of_one_parameter_are_rejected_unless_they_are_equal(name, one, other, make, given, tmp_path):
  _, release, variables = make(name)
  given(variables | {other: variables[one] + 1})
  with pytest.raises(InputError, match=f'tensors "{one}" and "{other}": got'):
    convert.read(str(release), tmp_path / 'run')
  given(variables | {other: variables[one]})
  rows = convert.read(str(release), tmp_path / 'run').rows
  assert [row.note for row in rows if row.name == other] == [f'repeats {one}']


def test_capitals_in_the_vocabulary_mean_cased_text(make, given, tmp_path):
  folder, release, variables = make('bert', cased=True)
  given(variables)
  assert not assert_same_runs(tmp_path, folder, release).run.data.lower_case


def test_vocabulary_case_can_be_set_if_unspecified(make, given, tmp_path):
  folder, release, variables = make('bert')
  given(variables)
  convert.import_run(str(release), tmp_path / 'cased', ['data.lower_case=False'])
  run = lmx.load(tmp_path / 'cased')
  assert not run.run.data.lower_case and run.tokenizer.encode('The').tolist() != run.tokenizer.encode('the').tolist()
  with pytest.raises(InputError, match='data.lower_case: got False'):
    convert.import_run(str(folder), tmp_path / 'run', ['data.lower_case=False'])
  imports.save_tokenizer(library_files.read('wordpiece', str(folder), lower_case=True), folder)
  with pytest.raises(InputError, match='data.lower_case: got False'):
    convert.import_run(str(folder), tmp_path / 'run', ['data.lower_case=False'])


def test_checkpoint_file_selects_the_checkpoint(tmp_path):
  with pytest.raises(InputError, match='no checkpoint'):
    tensorflow._prefix(tmp_path)
  (tmp_path / 'x.ckpt.meta').touch()
  with pytest.raises(InputError, match='no checkpoint.*: x.ckpt is in the format V1; read by TensorFlow, '):
    tensorflow._prefix(tmp_path)
  for step in (0, 900, 1000):
    (tmp_path / f'model.ckpt-{step}.index').touch()
  with pytest.raises(InputError, match='3 checkpoints, model.ckpt-0, model.ckpt-1000, model.ckpt-900'):
    tensorflow._prefix(tmp_path)
  (tmp_path / 'checkpoint').write_text('model_checkpoint_path: "gs://there/model.ckpt-900"\nall_model_checkpoint')
  assert tensorflow._prefix(tmp_path).name == 'model.ckpt-900'


def test_without_tensorflow_the_extra_is_reported(make, tmp_path, monkeypatch):
  _, release, _ = make('gpt2')
  (release / 'model.ckpt.index').touch()
  monkeypatch.setitem(sys.modules, 'tensorflow', None)
  with pytest.raises(InputError, match=r"pip install 'lmx\[tf\]'"):
    convert.import_run(str(release), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.peer
@pytest.mark.parametrize('name,architecture,outputs', CASES)
def test_checkpoints_that_tensorflow_wrote(name, architecture, outputs, make, tmp_path):
  folder, release, variables = make(name, architecture, outputs)
  save(release / 'model.ckpt', variables)
  assert_same_runs(tmp_path, folder, release)
  data = next(release.glob('model.ckpt.data-*'))
  content = data.read_bytes()
  for damaged in (content[:100], bytes(255 - byte for byte in content)):
    data.write_bytes(damaged)
    with pytest.raises(InputError, match='model.ckpt is not a checkpoint'):
      convert.import_run(str(release), tmp_path / 'again')
  assert not (tmp_path / 'again').exists()


def test_missing_fields_have_the_defaults_of_the_release(given, tmp_path):
  """BertConfig of modeling.py: 16 segment types, and "gelu" is the tanh form."""
  given({})
  (tmp_path / 'bert_config.json').write_text('{"vocab_size": 9}')
  (tmp_path / 'vocab.txt').write_text('a\n')
  fields = tensorflow.read(tmp_path).fields
  assert (fields['E'], fields['gelu'], fields['D'], fields['eps']) == (16, 'tanh', 768, 1e-12)
