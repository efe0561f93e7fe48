"""XLNet's folders without another library: names, sizes and marks, what is refused, and TensorFlow's variables.

tests/interop/xlnet_transformers_test.py compares the numbers with transformers.
"""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
import safetensors.numpy

import lmx
from lmx import objectives
from lmx.cli import main
from lmx.data.tokenizers import build, library_files
from lmx.data.tokenizers.subword import with_special
from lmx.errors import InputError
from lmx.interop import huggingface
from lmx.interop.huggingface import architectures
from lmx.interop.huggingface import folder as folders
from lmx.models import registry
from lmx.runs import convert
from tests.data.tokenizers import sentencepiece_test
from tests.interop.tensorflow_test import save

XLNET = registry.get('xlnet')
SIZES = {'D': 8, 'F': 12, 'H': 2, 'N': 2, 'dropout_attention': 0.1}
CLASS = 'XLNetLMHeadModel'


def random_params(cfg):
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(lambda: XLNET.init(cfg, jax.random.key(0)))
  return {'model': jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes), 'objective': {}}


def released(tensors, cfg):
  """Tensors of transformers as zihangdai/xlnet names, turns and stacks them, with what its optimizers add."""
  found = {'global_step': np.int64(7), 'beta1_power': np.float32(0.9)}
  part = lambda name: np.stack([tensors[f'transformer.layer.{i}.rel_attn.{name}'] for i in range(cfg.N)])
  for name in ('r_w_bias', 'r_r_bias', 'r_s_bias', 'seg_embed'):
    found[f'model/transformer/{name}'] = part(name) if cfg.untie or name == 'seg_embed' else part(name)[0]
  for i in range(cfg.N):
    there, here = f'transformer.layer.{i}.', f'model/transformer/layer_{i}/'
    for letter in 'qkvro':
      found[f'{here}rel_attn/{letter}/kernel'] = tensors[f'{there}rel_attn.{letter}']
    for block in ('rel_attn', 'ff'):
      for ours, theirs in (('gamma', 'weight'), ('beta', 'bias')):
        found[f'{here}{block}/LayerNorm/{ours}'] = tensors[f'{there}{block}.layer_norm.{theirs}']
    for layer in ('layer_1', 'layer_2'):
      found[f'{here}ff/{layer}/kernel'] = tensors[f'{there}ff.{layer}.weight'].T
      found[f'{here}ff/{layer}/bias'] = tensors[f'{there}ff.{layer}.bias']
  found['model/transformer/word_embedding/lookup_table'] = tensors['transformer.word_embedding.weight']
  found['model/transformer/mask_emb/mask_emb'] = tensors['transformer.mask_emb']
  found['model/lm_loss/bias'] = tensors['lm_loss.bias']
  added = {
    f'{name}/{slot}': np.zeros_like(x)
    for name, x in found.items()
    if name.startswith('model')
    for slot in ('adam_m', 'adam_v', 'Adam', 'Adam_1')
  }
  return found | added


@pytest.fixture
def make(tmp_path):
  """Writes a folder of transformers, and one as released without the checkpoint: (folder, release, variables)."""

  def write(pieces=None, untie=True, **changes):
    folder, release = tmp_path / 'folder', tmp_path / 'release'
    pieces = sentencepiece_test.learned() if pieces is None else pieces
    cfg = XLNET.Config(V=len(pieces), untie=untie, **SIZES)
    of = huggingface.family('xlnet')
    tensors = huggingface.to_hf('xlnet', cfg, random_params(cfg), CLASS)
    for path in (folder, release):
      path.mkdir()
      sentencepiece_test.write(path / 'spiece.model', pieces)
    settings = {'model_type': 'xlnet', 'architectures': [CLASS], **of.config(cfg)} | changes
    (folder / 'config.json').write_text(json.dumps(settings))
    safetensors.numpy.save_file(tensors, folder / 'model.safetensors')
    names = {'n_token': cfg.V, 'd_model': 8, 'd_inner': 12, 'n_head': 2, 'd_head': 4, 'n_layer': 2}
    (release / 'xlnet_config.json').write_text(json.dumps({**names, 'untie_r': untie, 'ff_activation': 'gelu'}))
    return folder, release, released(tensors, cfg)

  return write


def change(folder, **tensors):
  """Other tensors in a folder; None takes one away."""
  found = safetensors.numpy.load_file(folder / 'model.safetensors') | tensors
  safetensors.numpy.save_file({n: x for n, x in found.items() if x is not None}, folder / 'model.safetensors')


@pytest.mark.parametrize('untie', [True, False])
def test_export_and_import_restore_the_run(untie):
  cfg = XLNET.Config(V=11, untie=untie, **SIZES)
  params = random_params(cfg)
  tensors = huggingface.to_hf('xlnet', cfg, params, CLASS)
  np.testing.assert_array_equal(tensors['lm_loss.weight'], tensors['transformer.word_embedding.weight'])
  back = huggingface.from_hf('xlnet', cfg, tensors, CLASS)
  assert jax.tree.structure(back) == jax.tree.structure(params)
  jax.tree.map(np.testing.assert_array_equal, back, params)
  bare = {name.removeprefix('transformer.'): x for name, x in tensors.items() if not name.startswith('lm_loss')}
  assert set(huggingface.from_hf('xlnet', cfg, bare, CLASS)['model']) == set(params['model']) - {'output'}
  if not untie:
    tensors['transformer.layer.1.rel_attn.r_r_bias'] = tensors['transformer.layer.1.rel_attn.r_r_bias'] + 1
    with pytest.raises(InputError, match='model.untie is False'):
      huggingface.from_hf('xlnet', cfg, tensors, CLASS)


def test_import_and_export_round_trip_the_folder(make, tmp_path, capsys):
  folder, *_ = make(mem_len=6, reuse_len=4, clamp_len=5, dropout=0.2)
  assert main.main(['import', f'--from={folder}', f'--workdir={tmp_path}/run']) == 0
  assert 'xlnet with' in capsys.readouterr().out
  run = lmx.load(tmp_path / 'run')
  assert run.cfg == XLNET.Config(
    V=run.tokenizer.vocab_size,
    D=8,
    F=12,
    H=2,
    N=2,
    M=6,
    reuse=4,
    clamp=5,
    dropout=0.2,
    dropout_attention=0.2,
    fidelity='paper',
  )
  fields = huggingface.family('xlnet').fields
  sizes = dict(vocab_size=11, d_model=8, d_inner=12, n_head=2, n_layer=2)
  assert [fields(sizes | given)['M'] for given in ({}, {'mem_len': None}, {'mem_len': 7})] == [512, 0, 7]
  assert run.run.objective_name == 'permutation_lm' and run.run.data.batching.name == 'permutations'
  assert run.tokenizer.cls_id == 3 and not run.run.data.lower_case
  assert main.main(['export', f'--workdir={tmp_path}/run', f'--to={tmp_path}/out']) == 0
  before, after = (safetensors.numpy.load_file(f / 'model.safetensors') for f in (folder, tmp_path / 'out'))
  assert before.keys() == after.keys()
  for name in before:
    np.testing.assert_array_equal(before[name], after[name])
  given, written = (json.loads((f / 'config.json').read_text()) for f in (folder, tmp_path / 'out'))
  assert {name: written[name] for name in given} == given
  assert (written['bos_token_id'], written['eos_token_id'], written['pad_token_id']) == (1, 2, 5)
  settings = json.loads((tmp_path / 'out/tokenizer_config.json').read_text())
  assert settings['padding_side'] == 'left' and settings['additional_special_tokens'] == ['<eod>', '<eop>']
  convert.import_run(str(tmp_path / 'out'), tmp_path / 'again')
  assert lmx.load(tmp_path / 'again').cfg == run.cfg
  for text in ('the ``name`` <cls>', 'is <s>1,000 <eop>'):
    ours = [lmx.load(tmp_path / name).tokenizer.encode(text).tolist() for name in ('run', 'again')]
    assert ours[0] == ours[1] and {1, 3} & set(ours[0])


@pytest.mark.parametrize('marks', ['xlnet', ''])
def test_vocabularies_of_lmx_are_written_too(marks, tmp_path):
  made = build.train('unigram', sentencepiece_test.PROSE, vocab_size=400, marks=marks)
  made = with_special(made, ('<cls>', '<sep>'))
  cfg = XLNET.Config(V=made.vocab_size, **SIZES)
  task = architectures.Task('permutation_lm', objectives.get('permutation_lm').Config())
  folders.write(tmp_path / 'out', 'xlnet', cfg, random_params(cfg), task, made.content(), False)
  convert.import_run(str(tmp_path / 'out'), tmp_path / 'run')
  read = lmx.load(tmp_path / 'run').tokenizer
  for text in ('any  text < sep>\n☃', 'it returns 1,000 <b>items</b>'):
    np.testing.assert_array_equal(read.encode(text), made.encode(text))
    assert read.decode(read.encode(text)) == text
  assert read.encode('a<sep>').tolist() == [*made.encode('a').tolist(), made.sep_id]  # to transformers and its folders
  assert made.sep_id not in made.encode('a<sep>')
  assert read.sep_id == made.sep_id == (4 if marks else made.vocab_size - 1)
  written = json.loads((tmp_path / 'out/config.json').read_text())
  assert written['eos_token_id'] == (2 if marks else 0) and written['pad_token_id'] == (5 if marks else None)


def test_variants_are_recognised_by_their_sizes():
  fold = lambda **fields: convert._config(convert.folders.Folder('xlnet', fields, {}, 'unigram', False), {})['model'][
    'variant'
  ]
  assert fold(D=1024, F=4096, H=16, N=24, V=32_000) == 'large'
  assert fold(D=768, F=3072, H=12, N=12, V=32_000) == fold(D=8) == 'base'


@pytest.mark.parametrize(
  'changes,words',
  [
    ({'attn_type': 'uni'}, "attn_type: got 'uni'"),
    ({'ff_activation': 'relu'}, "ff_activation: got 'relu'"),
    ({'d_head': 5}, 'd_head: got 5'),
    ({'same_length': True}, 'same_length: got True'),
    ({'mem_len': 'long'}, "mem_len: got 'long'"),
    ({'bi_data': True}, 'bi_data: got True'),
  ],
)
def test_bad_folders_are_rejected_before_writing(changes, words, make, tmp_path):
  folder, *_ = make(**changes)
  with pytest.raises(InputError, match=words):
    convert.import_run(str(folder), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_folder_needs_a_vocabulary_that_the_model_has_room_for(make, tmp_path):
  folder, *_ = make()
  (folder / 'spiece.model').rename(tmp_path / 'spiece.model')
  with pytest.raises(InputError, match='got no tokenizer of kind unigram'):
    convert.import_run(str(folder), tmp_path / 'run')
  sentencepiece_test.write(folder / 'spiece.model', [*sentencepiece_test.learned(), ('▁more', -9.0)])
  with pytest.raises(InputError, match='got 49 embeddings of tokens'):
    convert.import_run(str(folder), tmp_path / 'run')


def same_runs(tmp_path, folder, release, untie):
  """Imports both and holds them to have the same weights and tokenizer."""
  convert.import_run(str(folder), tmp_path / 'one', ['model.gelu=tanh', 'model.fidelity=released'])
  convert.import_run(str(release), tmp_path / 'two')
  one, two = (lmx.load(tmp_path / name) for name in ('one', 'two'))
  assert two.cfg == (one.cfg if untie else XLNET.Config(**{**one.cfg.__dict__, 'untie': False}))
  models = [run.tokenizer.content()['model'] for run in (one, two)]
  assert all(models[0][part] == models[1][part] for part in ('model', 'normalizer', 'pre_tokenizer'))
  in_text = [3 in run.tokenizer.encode('the <cls>') for run in (one, two)]
  assert in_text == [True, False]  # transformers reads special tokens in a text, the release does not
  as_hf = [huggingface.to_hf('xlnet', run.cfg, run.params, CLASS) for run in (one, two)]
  jax.tree.map(np.testing.assert_array_equal, *as_hf)
  return two


@pytest.mark.parametrize('untie', [True, False])
def test_variables_of_the_release_match_the_same_weights(untie, make, given, tmp_path):
  folder, release, variables = make(untie=untie)
  given(variables)
  run = same_runs(tmp_path, folder, release, untie)
  assert ('bias' in run.params['model']) == (not untie)


LAYERS = {  # of the heads: name of a linear layer -> (outputs, inputs), of a normalisation -> (size,)
  'XLNetForSequenceClassification': {'sequence_summary.summary': (8, 8), 'logits_proj': (3, 8)},
  'XLNetForMultipleChoice': {'sequence_summary.summary': (8, 8), 'logits_proj': (1, 8)},
  'XLNetForQuestionAnswering': {
    'start_logits.dense': (1, 8),
    'end_logits.dense_0': (8, 16),
    'end_logits.LayerNorm': (8,),
    'end_logits.dense_1': (1, 8),
    'answer_class.dense_0': (8, 16),
    'answer_class.dense_1': (1, 8),
  },
}
FINE_TUNED = [  # class, where its last layer is among the released variables, number of labels, objective
  ('XLNetForSequenceClassification', 'model/classification_mnli/logit', 3, 'classify'),
  ('XLNetForSequenceClassification', 'model/regression_sts-b/logit', 1, 'regress'),
  ('XLNetForMultipleChoice', 'logits/dense', 1, 'multiple_choice'),
  ('XLNetForQuestionAnswering', '', 0, 'span'),
]


def fine_tuned(kind, last, outputs, folder, variables):
  """A head of random numbers: writes the folder of the class and returns the variables of zihangdai/xlnet."""
  rng, tensors, added = np.random.default_rng(1), {}, {}
  place = {'sequence_summary.summary': 'model/sequnece_summary/summary', 'logits_proj': last}
  for layer, shape in LAYERS[kind].items():
    shape = (outputs, 8) if layer == 'logits_proj' else shape
    names = {'gamma': 'weight', 'beta': 'bias'} if len(shape) == 1 else {'kernel': 'weight', 'bias': 'bias'}
    for theirs, ours in names.items():
      if layer == 'answer_class.dense_1' and ours == 'bias':
        continue
      x = rng.normal(size=shape if ours == 'weight' else shape[:1]).astype(np.float32)
      tensors[f'{layer}.{ours}'] = x
      added[f'{place.get(layer, layer.replace(".", "/"))}/{theirs}'] = x.T
  change(folder, **tensors, **{'lm_loss.weight': None, 'lm_loss.bias': None})
  settings = json.loads((folder / 'config.json').read_text()) | {'architectures': [kind]}
  settings |= {'id2label': {str(i): f'LABEL_{i}' for i in range(outputs)}} if 'Sequence' in kind else {}
  (folder / 'config.json').write_text(json.dumps(settings))
  left = ('model/lm_loss', 'model/transformer/mask_emb')
  return {name: x for name, x in variables.items() if not name.startswith(left)} | added


def same_fine_tuned(tmp_path, folder, release, objective):
  convert.import_run(str(folder), tmp_path / 'one', ['model.gelu=tanh', 'model.fidelity=released'])
  convert.import_run(str(release), tmp_path / 'two')
  one, two = (lmx.load(tmp_path / name) for name in ('one', 'two'))
  assert one.run.objective_name == two.run.objective_name == objective
  assert one.cfg == two.cfg and one.run.objective == two.run.objective
  masks = [run.params['model']['embed'].pop('mask') for run in (one, two)]
  assert masks[0].any() and not masks[1].any()
  jax.tree.map(np.testing.assert_array_equal, dict(one.params), dict(two.params))


@pytest.mark.parametrize('kind,last,outputs,objective', FINE_TUNED)
def test_fine_tuned_release_is_read(kind, last, outputs, objective, make, given, tmp_path):
  folder, release, variables = make()
  variables = fine_tuned(kind, last, outputs, folder, variables)
  given(variables)
  same_fine_tuned(tmp_path, folder, release, objective)
  variables['model/classification_qnli/logit/kernel'] = variables['model/regression_rte/logit/kernel'] = np.ones((8, 2))
  with pytest.raises(InputError, match='got several heads, .*classification_qnli'):
    convert.import_run(str(release), tmp_path / 'again')


def test_uncased_release_is_recognised_by_its_subwords(make, given, tmp_path):
  pieces = [(piece, score) for piece, score in sentencepiece_test.learned() if piece == piece.lower()]
  _, release, variables = make(pieces)
  given(variables)
  convert.import_run(str(release), tmp_path / 'run')
  run = lmx.load(tmp_path / 'run')
  assert run.run.data.lower_case
  np.testing.assert_array_equal(run.tokenizer.encode('THE Name'), run.tokenizer.encode('the name'))


@pytest.mark.parametrize(
  'name,value,words',
  [
    ('model/transformer/seg_embed', None, 'missing: transformer.layer.0.rel_attn.seg_embed, transformer.layer.1'),
    ('model/transformer/r_w_bias', np.zeros((3, 2, 4)), '1 tensors unknown: transformer.layer.2.rel_attn.r_w_bias'),
    ('model/transformer/r_w_bias', np.zeros((2, 4)), r'layer.0.rel_attn.r_w_bias is \(4,\), not \(2, 4\)'),
    ('model/lm_loss/weight', np.zeros((3, 8)), 'lm_loss.weight: got'),
    ('model/classification_mnli/logit/kernel', np.zeros((8, 3)), 'missing: sequence_summary.summary.weight'),
    ('logits/kernel', np.zeros((8, 1)), 'unknown: logits.weight'),
  ],
)
def test_other_variables_are_reported(name, value, words, make, given, tmp_path):
  _, release, variables = make()
  variables = {**variables, name: value} if value is not None else {k: x for k, x in variables.items() if k != name}
  given(variables)
  with pytest.raises(InputError, match=words):
    convert.import_run(str(release), tmp_path / 'run')
  (release / 'xlnet_config.json').write_text('{"d_model": 8}')
  with pytest.raises(InputError, match='release/xlnet_config.json: vocab_size: missing'):
    convert.import_run(str(release), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.peer
@pytest.mark.parametrize('untie', [True, False])
def test_checkpoint_that_tensorflow_wrote(untie, make, tmp_path):
  folder, release, variables = make(untie=untie)
  save(release / 'xlnet_model.ckpt', variables)
  same_runs(tmp_path, folder, release, untie)


@pytest.mark.peer
@pytest.mark.parametrize('kind,last,outputs,objective', FINE_TUNED)
def test_fine_tuned_checkpoint_that_tensorflow_wrote(kind, last, outputs, objective, make, tmp_path):
  folder, release, variables = make()
  save(release / 'model.ckpt-900', fine_tuned(kind, last, outputs, folder, variables))
  same_fine_tuned(tmp_path, folder, release, objective)


def test_spiece_file_alone_may_be_named_as_tokenizer(make, tmp_path):
  folder, *_ = make()
  assert library_files.read('unigram', str(folder / 'spiece.model')).kind == 'unigram'
