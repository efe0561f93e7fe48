"""Folders of `TransfoXLLMHeadModel`: sizes, both layouts of u and v, projections, vocabularies, and what is refused.

tests/interop/transformer_xl_transformers_test.py compares the numbers with transformers.
"""

from __future__ import annotations

import collections
import dataclasses
import json

import jax
import numpy as np
import pytest
import safetensors.numpy

import lmx
from lmx.cli import main
from lmx.data.tokenizers import words as words_lib
from lmx.errors import InputError
from lmx.interop import huggingface
from lmx.interop.huggingface import folder as folders
from lmx.interop.huggingface import transformer_xl as layout
from lmx.interop.huggingface import word_vocabulary
from lmx.layers import adaptive_embedding
from lmx.models import transformer_xl
from lmx.runs import convert
from tests.interop import torch_files

V, D = 30, 8
SYMBOLS = ['<eos>', 'the', '<unk>', *(f'w{i}' for i in range(V - 3))]
SIZES = dict(V=V, D=D, E=D, F=12, H=2, N=2, M=4, fidelity='transformers', eps=1e-5, cutoffs=(10, 20), untie=True)
CASES = {
  'div_val 4': dict(div_val=4, E=16, tie_projections='but_first'),
  'div_val 4, no ties': dict(div_val=4, E=16, tie_projections='none'),
  'div_val 4, all ties': dict(div_val=4, E=16, tie_projections='all'),
  'shared u and v': dict(untie=False),
  'narrower, all ties': dict(E=4, tie_projections='all'),
  'narrower, a head of its own': dict(E=4, tie_projections='head'),
  'narrower, no ties': dict(E=4, tie_projections='clusters'),
  'narrower, one for the output': dict(E=4, tie_projections='none'),
  'narrower, one cluster': dict(E=4, tie_projections='none', cutoffs=()),
  'untied tables': dict(tied=False),
  'div_val 4, untied tables': dict(div_val=4, E=16, tie_projections='but_first', tied=False),
}


def made(**changes):
  cfg = transformer_xl.Config(**SIZES | changes)
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(lambda: transformer_xl.init(cfg, jax.random.key(0)))
  return cfg, {'model': jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes), 'objective': {}}


def save(folder, *, config=None, tensors=None, files=None, **changes):
  """Write a folder as transformers does; a tensor or a field that is None is left out."""
  cfg, params = made(**changes)
  folder.mkdir()
  content = {'model_type': 'transfo-xl', 'architectures': ['TransfoXLLMHeadModel'], **layout.config(cfg)} | (
    config or {}
  )
  (folder / 'config.json').write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
  written = huggingface.to_hf('transformer_xl', cfg, params) | (tensors or {})
  safetensors.numpy.save_file({k: v for k, v in written.items() if v is not None}, folder / 'model.safetensors')
  for name, text in ({'vocab.txt': '\n'.join(SYMBOLS)} if files is None else files).items():
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
  return cfg, params


@pytest.mark.parametrize('case', CASES)
def test_every_parameter_is_written_and_read(case):
  cfg, params = made(**CASES[case])
  tensors = huggingface.to_hf('transformer_xl', cfg, params)
  back = huggingface.from_hf('transformer_xl', cfg, tensors)
  assert jax.tree.structure(back) == jax.tree.structure(params)
  jax.tree.map(np.testing.assert_array_equal, back, params)
  repeated = {tied.name for tied in layout.tied(cfg)} | {*layout.constants(cfg)}
  assert sum(x.size for name, x in tensors.items() if name not in repeated) == sum(
    x.size for x in jax.tree.leaves(params)
  )
  alone = {name: x for name, x in tensors.items() if name not in repeated}  # as safetensors of transformers has them
  jax.tree.map(np.testing.assert_array_equal, huggingface.from_hf('transformer_xl', cfg, alone), params)


@pytest.mark.parametrize('case', CASES)
def test_sizes_are_read_as_they_are_written(case):
  cfg, _ = made(**CASES[case])
  found = transformer_xl.Config(**layout.fields(json.loads(json.dumps(layout.config(cfg)))))
  if case == 'narrower, one for the output':  # the class has one for each cluster, which are equal
    cfg = dataclasses.replace(cfg, tie_projections='clusters')
  assert found == cfg


def test_folder_is_imported_exported_and_imported_again(tmp_path):
  cfg, params = save(tmp_path / 'folder', E=16, div_val=4, tie_projections='but_first', same_length=True, clamp=3)
  lines = convert.import_run(str(tmp_path / 'folder'), tmp_path / 'run')
  assert '30 tokens of words' in lines[0] and 'Moses' in lines[-1]
  run = lmx.load(tmp_path / 'run')
  assert dataclasses.replace(run.cfg, scan=cfg.scan) == cfg and run.tokenizer.tokens == SYMBOLS
  jax.tree.map(np.testing.assert_array_equal, run.params['model'], params['model'])
  convert.export_run(tmp_path / 'run', str(tmp_path / 'out'))
  assert {path.name for path in (tmp_path / 'out').iterdir()} == {
    'README.md',
    'config.json',
    'generation_config.json',
    'model.safetensors',
    'tokenizer_config.json',
    'vocab.txt',
  }
  before, after = (folders.read(tmp_path / name).tensors for name in ('folder', 'out'))
  assert before.keys() == after.keys()
  for name, tensor in before.items():
    np.testing.assert_array_equal(after[name], tensor, err_msg=name)


def test_imported_run_is_evaluated_on_a_split_of_text(tmp_path, capsys):
  save(tmp_path / 'folder', E=16, div_val=4, tie_projections='but_first')
  text = 'the w1 w2 nothing\n\nw3 the\n' * 20
  for split in ('train', 'valid', 'test'):
    (tmp_path / f'{split}.txt').write_text(text)
  assert main.main(['import', f'--from={tmp_path / "folder"}', f'--workdir={tmp_path / "run"}']) == 0
  data = ['--config.data.dataset=text_files', f'--config.data.manual_dir={tmp_path}', '--config.data.length=8']
  data += ['--config.data.batch_size=2', '--split=test']
  capsys.readouterr()
  assert main.main(['evaluate', f'--workdir={tmp_path / "run"}', *data]) == 0
  assert 'perplexity' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'attn_type': 1}, 'attn_type: got 1'),
    ({'pre_lnorm': True}, 'pre_lnorm: got True'),
    ({'adaptive': False}, 'adaptive: got False'),
    ({'tie_word_embeddings': 'no'}, "tie_word_embeddings: got 'no'"),
    ({'layer_norm_epsilon': 0}, 'layer_norm_epsilon: got 0'),
    ({'num_attention_heads': 4}, 'num_attention_heads: got 4; expected n_head, 2'),
    ({'sample_softmax': 10}, 'sample_softmax: got 10'),
    ({'ext_len': 3}, 'ext_len: got 3'),
    ({'d_head': 3}, 'd_head: got 3'),
    ({'mem_len': 0, 'same_length': True}, 'mem_len: got 0 with same_length'),
    ({'cutoffs': [10, '20']}, r"cutoffs: got \[10, '20'\]"),
    ({'tie_projs': [True, False, True]}, 'tie_projs: got'),
    ({'tie_projs': [True]}, 'tie_projs: got .*expected 3'),
    ({'untie_r': 'yes'}, "untie_r: got 'yes'"),
    ({'architectures': ['TransfoXLForSequenceClassification']}, 'unknown TransfoXLForSequenceClassification'),
  ],
)
def test_fields_of_config_that_are_not_supported_are_reported(changes, words, tmp_path):
  save(tmp_path / 'folder', config=changes, E=16, div_val=4, tie_projections='but_first')
  with pytest.raises(InputError, match=words):
    folders.read(tmp_path / 'folder')


@pytest.mark.parametrize(
  ('tensors', 'words'),
  [
    ({'transformer.r_w_bias': np.zeros((2, 4), np.float32)}, '1 tensors unknown: transformer.r_w_bias'),
    ({'crit.out_projs.1': np.zeros((8, 4), np.float32)}, 'crit.out_projs.1: got'),
  ],
)
def test_tensors_that_do_not_fit_are_reported(tensors, words, tmp_path):
  save(tmp_path / 'folder', tensors=tensors, E=16, div_val=4, tie_projections='but_first')
  with pytest.raises(InputError, match=words):
    convert.import_run(str(tmp_path / 'folder'), tmp_path / 'run')


def test_shared_biases_that_differ_in_a_layer_are_rejected(tmp_path):
  other = {'transformer.layers.1.dec_attn.r_r_bias': np.zeros((2, 4), np.float32)}
  save(tmp_path / 'folder', tensors=other, untie=False)
  with pytest.raises(InputError, match='layers.1.dec_attn.r_r_bias: got'):
    convert.import_run(str(tmp_path / 'folder'), tmp_path / 'run')


@pytest.mark.parametrize(
  ('changes', 'field'),
  [
    ({'fidelity': 'pytorch'}, 'fidelity'),
    ({'positions': 'shaw', 'clamp': 3}, 'positions'),
    ({'recurrent': 1}, 'recurrent'),
    ({'div_val': 2, 'project_same': False}, 'project_same'),
  ],
)
def test_models_that_the_class_does_not_compute_are_not_written(changes, field):
  cfg, _ = made(**changes)
  with pytest.raises(InputError, match=f'model.{field}: got'):
    layout.config(cfg)


def test_memory_starts_as_zeros_and_a_query_attends_to_itself():
  """Fidelity 'transformers' is 'pytorch' with the filled memory of 'tf'."""
  cfg, params = made(same_length=True)
  batch = {'tokens_BT': np.arange(6, dtype=np.int32)[None]}

  def last(fidelity, **state):
    changed = dataclasses.replace(cfg, fidelity=fidelity)
    begin = transformer_xl.init_state(changed, 1) | state
    return np.asarray(transformer_xl.apply(changed, params['model'], batch, begin)[0].last_BTD)

  ours = last('transformers')
  np.testing.assert_array_equal(ours, last('pytorch', filled_B=np.full(1, cfg.M, np.int32)))
  assert np.abs(ours - last('pytorch')).max() > 1e-3 and np.abs(ours - last('tf')).max() > 1e-3


def test_tensorflow_memory_of_one_length_is_one_longer_in_the_class():
  """A query attends to M keys and itself in TensorFlow, to M keys in the class."""
  cfg, params = made(fidelity='tf', same_length=True, eps=0.0)
  theirs = transformer_xl.Config(**layout.fields(layout.config(cfg)))
  assert (theirs.M, theirs.fidelity, theirs.eps) == (cfg.M + 1, 'transformers', 1e-12)

  def last(cfg):
    state = transformer_xl.init_state(cfg, 1)
    for start in (0, 6, 12):
      batch = {'tokens_BT': np.arange(start, start + 6, dtype=np.int32)[None]}
      features, state = transformer_xl.apply(cfg, params['model'], batch, state)
    return features.last_BTD

  np.testing.assert_allclose(last(theirs), last(cfg), atol=1e-6)


def test_projections_of_clusters_are_for_tables_equally_wide():
  for kind in ('head', 'clusters'):
    with pytest.raises(InputError, match=f'model.tie_projections.*{kind}'):
      adaptive_embedding.Sizes(V, D, D, (10, 20), 2, kind)


# Vocabularies.
STATE = {
  'counter': collections.Counter(),
  'special': ['<eos>'],
  'min_freq': 0,
  'max_size': None,
  'lower_case': True,
  'delimiter': None,
  'idx2sym': SYMBOLS,
  'sym2idx': collections.OrderedDict((symbol, i) for i, symbol in enumerate(SYMBOLS)),
}


def vocabulary(folder, files):
  folder.mkdir(exist_ok=True)
  for name, content in files.items():
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
  return tokenizer(folder)


def tokenizer(folder):
  found = word_vocabulary.read(folder)
  return words_lib.Words(found.tokens, found.rule, lower_case=found.lower_case)


@pytest.mark.parametrize(
  'files',
  [
    {'vocab.pkl': torch_files.pickled(STATE)},
    {'vocab.pkl': torch_files.pickled(STATE, 2), 'vocab.txt': '\n'.join(SYMBOLS)},
    {'vocabulary': ''.join(f'{symbol} 7\n' for symbol in SYMBOLS), 'tokenizer_config.json': '{"lower_case": true}'},
  ],
)
def test_ids_match_the_file(files, tmp_path):
  found = vocabulary(tmp_path, files)
  assert found.tokens == SYMBOLS and found.lower_case
  assert found.encode('The w4 no\n\nw3').tolist() == [1, 7, 2, 0, 0, 6]


def test_file_of_torch_save_and_a_vocabulary_without_eos(tmp_path):
  torch_files.save(tmp_path / 'vocab.bin', dict(STATE, lower_case=False))
  assert tokenizer(tmp_path).encode('The the\n').tolist() == [2, 1, 0]
  (tmp_path / 'vocab.bin').unlink()
  assert vocabulary(tmp_path, {'vocab.txt': 'a\n<unk>'}).encode('a\nb a').tolist() == [0, 1, 0]
  (tmp_path / 'vocab.txt').unlink()
  assert word_vocabulary.read(tmp_path) is None


def test_unbuilt_vocabulary_is_sorted_by_count(tmp_path):
  counter = collections.Counter({'b': 2, '<unk>': 5, 'a': 2, 'c': 1, '<eos>': 1})
  state = dict(STATE, counter=counter, idx2sym=[], sym2idx={}, min_freq=2)
  assert vocabulary(tmp_path, {'vocab.pkl': torch_files.pickled(state)}).tokens == ['<eos>', '<unk>', 'b', 'a']


@pytest.mark.parametrize(
  ('files', 'words'),
  [
    ({'vocab.pkl': torch_files.pickled(dict(STATE, delimiter=''))}, "vocab.pkl: delimiter: got ''"),
    ({'vocab.pkl': torch_files.pickled(dict(STATE, sym2idx={'the': 0}))}, 'vocab.pkl: sym2idx: got'),
    ({'vocab.pkl': torch_files.pickled(dict(STATE, unk_idx=1))}, 'vocab.pkl: unk_idx: got 1'),
    ({'vocab.pkl': torch_files.pickled([1])}, 'vocab.pkl: got a list'),
    ({'vocab.pkl': torch_files.pickled(exec)}, 'vocab.pkl: not read'),
    ({'vocab.pkl': torch_files.pickled(STATE), 'vocab.txt': 'a'}, 'vocab.txt: got'),
    (
      {'vocab.pkl': torch_files.pickled(STATE), 'tokenizer_config.json': '{"lower_case": false}'},
      'lower_case: got True',
    ),
    ({'vocab.txt': 'a\n\n<unk>'}, 'vocab.txt: line 2 is empty'),
    ({'vocab.txt': 'a\na\n<unk>'}, 'vocab.txt: got a symbol twice'),
    ({'vocab.txt': 'a\n<UNK>'}, 'vocab.txt: got no <unk>'),
    ({'vocab.txt': '<unk>', 'tokenizer_config.json': '{"delimiter": ","}'}, "delimiter: got ','"),
    ({'vocab.txt': '<unk>', 'tokenizer_config.json': '{"unk_token": "<x>"}'}, "unk_token: got '<x>'"),
    (
      {'vocab.txt': '<unk>', 'tokenizer_config.json': '{"added_tokens_decoder": {"0": {"content": "<pad>"}}}'},
      "added_tokens_decoder: 0: got '<pad>'",
    ),
    (
      {'vocab.txt': '<unk>', 'tokenizer_config.json': '{"lower_case": true, "do_lower_case": false}'},
      'lower_case and do_lower_case differ',
    ),
  ],
)
def test_unreadable_vocabularies_are_reported(files, words, tmp_path):
  with pytest.raises(InputError, match=words):
    vocabulary(tmp_path, files)
