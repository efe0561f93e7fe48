"""Transformer-XL as its authors' programs save it: variables of TensorFlow, whole modules of PyTorch, vocabularies."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

import lmx
from lmx.cli import main
from lmx.errors import InputError
from lmx.interop import huggingface, mem_transformer
from lmx.interop import transformer_xl as release
from lmx.models import transformer_xl
from lmx.runs import convert
from tests.interop import torch_files

V, D = 30, 8
SIZES = dict(V=V, D=D, F=12, H=2, N=2, fidelity='tf', cutoffs=(10, 20), untie=True)
CASES = {
  'wt103': dict(div_val=2, tie_projections='but_first'),
  'lm1b': dict(div_val=2, tie_projections='none', project_same=False),
  'div_val 4, wider': dict(div_val=4, E=16, tie_projections='none'),
  'enwik8': dict(cutoffs=(), untie=False),
  'clusters of one table': dict(untie=False),
  'narrower, no ties': dict(E=4, tie_projections='clusters'),
  'narrower, a head of its own': dict(E=4, tie_projections='head'),
  'narrower, one cluster': dict(E=4, cutoffs=()),
}
LENGTHS = {'wt103': (1600, 1000, 128), 'lm1b': (128, 0, 32), 'enwik8': (3800, 1000, 128)}


def made(**changes):
  cfg = transformer_xl.Config(**SIZES | changes)
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(lambda: transformer_xl.init(cfg, jax.random.key(0)))
  return cfg, jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), shapes)


def variables(cfg, params):
  """The parameters under the names of tf/model.py, whose kernels and projections are (in, out)."""
  E, edges = cfg.E or cfg.D, [0, *cfg.cutoffs, cfg.V]
  embed, output, found = params['embed'], params['output'], {}
  split = cfg.div_val > 1
  for i in range(len(edges) - 1) if split else [0]:
    ending, scope = (f'_{i}', f'/cutoff_{i}') if split else ('', '')
    found[f'adaptive_embed{scope}/lookup_table'] = embed[f'tokens{ending}']
    if f'projection{ending}' in embed:
      found[f'adaptive_embed{scope}/proj_W'] = embed[f'projection{ending}']
    if split:
      found[f'adaptive_softmax{scope}/b'] = output[f'bias{ending}']
    if split and f'projection{ending}' in output:
      found[f'adaptive_softmax{scope}/proj'] = output[f'projection{ending}']
  if not split and cfg.cutoffs:
    for i, (a, b) in enumerate(zip(edges, edges[1:], strict=False)):
      found[f'adaptive_softmax/cutoff_{i}/b'] = output['bias'][a:b]
      if E != cfg.D and f'projection_{i}' in output:
        found[f'adaptive_softmax/cutoff_{i}/proj'] = output[f'projection_{i}']
  elif not split:
    found['adaptive_softmax/bias'] = output['bias']
  if cfg.cutoffs:
    found['adaptive_softmax/cutoff_0/cluster_W'] = output['clusters']['kernel']
    found['adaptive_softmax/cutoff_0/cluster_b'] = output['clusters']['bias']
  for i in range(cfg.N):
    layer, scope = params[f'layer_{i:02d}'], f'layer_{i}'
    attention = layer['attention']
    found[f'{scope}/rel_attn/qkv/kernel'] = attention['qkv'].reshape(cfg.D, -1)
    found[f'{scope}/rel_attn/r/kernel'] = attention['r']['kernel'].reshape(cfg.D, -1)
    found[f'{scope}/rel_attn/o/kernel'] = attention['out']['kernel'].reshape(-1, cfg.D)
    for ours, theirs in (('norm_1', 'rel_attn'), ('norm_2', 'ff')):
      found[f'{scope}/{theirs}/LayerNorm/gamma'] = layer[ours]['scale']
      found[f'{scope}/{theirs}/LayerNorm/beta'] = layer[ours]['bias']
    for ours, theirs in (('in', 'layer_1'), ('out', 'layer_2')):
      found[f'{scope}/ff/{theirs}/kernel'] = layer['mlp'][ours]['kernel']
      found[f'{scope}/ff/{theirs}/bias'] = layer['mlp'][ours]['bias']
  for ours, theirs in (('u', 'r_w_bias'), ('v', 'r_r_bias')):
    layers = [params[f'layer_{i:02d}']['attention'].get(ours) for i in range(cfg.N)]
    found[theirs] = np.stack(layers) if cfg.untie else params['bias'][f'{ours}_HK']
  optimizer = {f'transformer/{name}/Adam': x for name, x in found.items()} | {'global_step': np.int64(7)}
  return {f'transformer/{name}': x for name, x in found.items()} | optimizer


def corpus(cfg, dataset):
  ends = [0, *cfg.cutoffs, cfg.V] if cfg.cutoffs else []
  return json.dumps({'vocab_size': cfg.V, 'cutoffs': ends, 'dataset': dataset})


@pytest.mark.parametrize('case', CASES)
def test_variables_become_the_parameters(case, given, tmp_path):
  cfg, params = made(**CASES[case])
  given(variables(cfg, params))
  (tmp_path / 'data').mkdir()
  (tmp_path / 'data' / 'corpus-info.json').write_text(corpus(cfg, case))
  assert release.is_release(tmp_path)
  folder = release.read(tmp_path)
  M, clamp, length = LENGTHS.get(case, (70, 0, 70))
  found = transformer_xl.Config(**folder.fields)
  same = {'M': M, 'clamp': clamp, 'same_length': True, 'E': cfg.E or D, 'eps': 0.0}
  assert found == dataclasses.replace(cfg, **same, dropout=found.dropout, dropout_attention=found.dropout_attention)
  assert folder.data['length'] == length and f'memory of {M:,} tokens' in folder.note
  back = huggingface.from_hf('transformer_xl', found, folder.tensors)['model']
  assert jax.tree.structure(back) == jax.tree.structure(params)
  jax.tree.map(np.testing.assert_array_equal, back, params)


def test_two_tensors_of_one_parameter_are_rejected_unless_they_are_equal(given, tmp_path):
  cfg, params = made()
  (tmp_path / 'corpus-info.json').write_text(corpus(cfg, 'x'))
  found = variables(cfg, params)
  one, other = 'transformer/layer_0/ff/LayerNorm/gamma', 'transformer/layer_0/ff/LayerNorm/weight'
  given(found | {other: found[one] + 1})
  with pytest.raises(InputError, match=f'tensors "{one}" and "{other}": got'):
    release.read(tmp_path)
  given(found | {other: found[one]})
  assert [row.note for row in release.read(tmp_path).unused if row.name == other] == [f'repeats {one}']


def save_corpus(path, symbols):
  """A Corpus of data_utils with its Vocab, as pickle writes it."""
  ids = {symbol: i for i, symbol in enumerate(symbols)}
  vocab = torch_files.foreign('vocabulary.Vocab', idx2sym=symbols, sym2idx=ids, delimiter=None, lower_case=False)
  torch_files.save_plain(path, torch_files.foreign('data_utils.Corpus', dataset='x', vocab=vocab))


def begin(given, folder, dataset, symbols, **sizes):
  cfg, params = made(**{'V': len(symbols), 'cutoffs': (), 'untie': False, **sizes})
  given(variables(cfg, params))
  (folder / 'corpus-info.json').write_text(corpus(cfg, dataset))
  save_corpus(folder / 'cache.pkl', symbols)
  convert.import_run(str(folder), folder / 'run', ['model.M=4'])
  return cfg, params, lmx.load(folder / 'run')


def nll(cfg, params, tokens_T):
  """The losses of tokens, each after those before it, from a memory of zeros."""
  cfg = dataclasses.replace(cfg, M=4, same_length=True)
  tokens_BT = np.asarray(tokens_T)[None]
  features, _ = transformer_xl.apply(cfg, params, {'tokens_BT': tokens_BT[:, :-1]}, transformer_xl.init_state(cfg, 1))
  return np.asarray(transformer_xl.nll(cfg, params, features, tokens_BT[:, 1:]))[0]


def test_rows_of_enwik8_become_those_of_bytes_with_the_same_probabilities(given, tmp_path):
  symbols = ['32', '101', '195', '169', '10']
  cfg, params, loaded = begin(given, tmp_path, 'enwik8', symbols)
  text = 'e é\ne'
  ids = loaded.tokenizer.encode(text)
  assert loaded.tokenizer.kind == 'bytes' and ids.tolist() == list(text.encode())
  own = nll(cfg, params, [symbols.index(str(byte)) for byte in text.encode()])
  np.testing.assert_allclose(nll(loaded.cfg, loaded.params['model'], ids), own, rtol=1e-6)
  assert nll(loaded.cfg, loaded.params['model'], [101, ord('z')]) > 1e8


def test_letters_of_text8_have_their_ids_and_a_space(given, tmp_path):
  _, _, loaded = begin(given, tmp_path, 'text8', ['_', 'e', 'a'])
  assert loaded.tokenizer.encode('a e').tolist() == [2, 0, 1]


def test_lm1b_lines_are_between_two_special_tokens(given, tmp_path):
  _, _, loaded = begin(given, tmp_path, 'lm1b', ['<S>', 'the', '<UNK>', 'cat'])
  assert loaded.tokenizer.encode('the dog\ncat\n').tolist() == [0, 1, 2, 0, 0, 3, 0]


def test_words_of_wikitext_end_a_line(given, tmp_path):
  _, _, loaded = begin(given, tmp_path, 'wt103', ['<eos>', 'the', '<unk>', 'cat'])
  assert loaded.tokenizer.encode('the dog\ncat\n').tolist() == [1, 2, 0, 3, 0]


CLASSES = {
  'word_emb': 'mem_transformer.AdaptiveEmbedding',
  'crit': 'proj_adaptive_softmax.ProjectedAdaptiveLogSoftmax',
  'pos_emb': 'mem_transformer.PositionalEmbedding',
  r'layers\.\d': 'mem_transformer.RelPartialLearnableDecoderLayer',
  r'.*\.dec_attn': 'mem_transformer.RelPartialLearnableMultiHeadAttn',
  r'.*\.pos_ff': 'mem_transformer.PositionwiseFF',
  r'.*\.CoreNet': 'torch.nn.modules.container.Sequential',
  r'.*_projs': 'torch.nn.modules.container.ParameterList',
  r'(.*_)?layers': 'torch.nn.modules.container.ModuleList',
  r'word_emb\.emb_layers\.\d': 'torch.nn.modules.sparse.Embedding',
  r'.*_net|crit\.out_layers\.\d|.*CoreNet\.[03]': 'torch.nn.modules.linear.Linear',
  r'.*\.layer_norm': 'torch.nn.modules.normalization.LayerNorm',
  r'.*drop(att)?': 'torch.nn.modules.dropout.Dropout',
  r'.*CoreNet\.1': 'torch.nn.modules.activation.ReLU',
}


def module(cfg, params, **changes):
  """A MemTransformerLM as torch.save writes it whole."""
  tensors = huggingface.to_hf('transformer_xl', cfg, {'model': params})
  tensors = {name.removeprefix('transformer.'): x for name, x in tensors.items()} | changes.pop('tensors', {})
  clusters = [name for name in tensors if name.startswith('crit.cluster_')]
  tensors |= {name: tensors[name][::-1].copy() for name in clusters}  # the last is the first cluster's
  settings = {'n_token': cfg.V, 'mem_len': cfg.M, 'clamp_len': cfg.clamp or -1, 'same_length': cfg.same_length}
  settings |= {'attn_type': 0, 'ext_len': 0, 'sample_softmax': -1, **changes}
  parts = {
    'crit': {'cutoffs': [*cfg.cutoffs, cfg.V]},
    'drop': {'p': 0.1},
    'word_emb': {'emb_scale': cfg.D**0.5},
    'layers.0.dec_attn.dropatt': {'p': 0.2},
  }
  for i in range(cfg.N):
    parts[f'layers.{i}.dec_attn'] = {'pre_lnorm': False, 'scale': (cfg.D // cfg.H) ** -0.5}
    parts[f'layers.{i}.pos_ff.CoreNet.1'] = {'inplace': True}
    parts |= {f'layers.{i}.{part}.layer_norm': {'eps': cfg.eps or 1e-5} for part in ('dec_attn', 'pos_ff')}
  for name, own in settings.pop('attributes', {}).items():
    parts[name] = parts.get(name, {}) | own
  classes = settings.pop('classes', {}) | CLASSES
  return torch_files.module_of('mem_transformer.MemTransformerLM', tensors, {'': settings, **parts}, '', classes)


TORCH = dict(fidelity='pytorch', untie=False, M=6, clamp=5)


@pytest.mark.parametrize(
  'sizes',
  [
    dict(div_val=2, tie_projections='but_first'),
    dict(cutoffs=(), same_length=True, eps=0.01),
    dict(E=4, tie_projections='head'),
    dict(div_val=2, tie_projections='but_first', tied=False),
  ],
)
def test_modules_become_the_parameters(sizes, tmp_path):
  cfg, params = made(**TORCH | sizes)
  torch_files.save(tmp_path / 'model.pt', module(cfg, params))
  symbols = ['<eos>', '<unk>', *(f'w{i}' for i in range(V - 2))]
  save_corpus(tmp_path / 'cache.pt', symbols)
  assert main.main(['import', f'--from={tmp_path}', f'--workdir={tmp_path / "run"}']) == 0
  loaded = lmx.load(tmp_path / 'run')
  names = ('V', 'D', 'F', 'H', 'N', 'M', 'clamp', 'cutoffs', 'div_val', 'tie_projections', 'fidelity', 'same_length')
  names += ('tied',)
  assert loaded.cfg.eps == (cfg.eps or 1e-5)
  assert [getattr(loaded.cfg, name) for name in names] == [getattr(cfg, name) for name in names]
  assert loaded.cfg.dropout_attention == 0.2 and loaded.tokenizer.encode('w0 x\n').tolist() == [2, 1, 0]
  jax.tree.map(np.testing.assert_array_equal, dict(loaded.params['model']), params)
  assert main.main(['export', f'--workdir={tmp_path / "run"}', f'--to={tmp_path / "out"}']) == 0
  assert {path.name for path in (tmp_path / 'out').iterdir()} == {'model.pt', 'cache.pt', 'README.md'}
  again, _ = convert.load(str(tmp_path / 'out'))
  assert again.cfg == loaded.cfg and again.tokenizer.hash == loaded.tokenizer.hash
  jax.tree.map(np.testing.assert_array_equal, dict(again.params['model']), params)


@pytest.mark.parametrize(
  ('changes', 'field'), [({'untie': True}, 'untie'), ({'div_val': 2, 'project_same': False}, 'project_same')]
)
def test_modules_of_other_models_are_not_written(changes, field, tmp_path):
  cfg, params = made(**TORCH | changes)
  with pytest.raises(InputError, match=f'model.{field}: got'):
    mem_transformer.write(tmp_path / 'out', cfg, {'model': params}, [], False)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'attn_type': 2}, 'model.pt: attn_type: got 2'),
    ({'attributes': {'layers.0.dec_attn': {'pre_lnorm': True}}}, 'pre_lnorm: got True'),
    ({'attributes': {'layers.1.dec_attn': {'pre_lnorm': True}}}, '"layers.1.dec_attn.pre_lnorm": got True'),
    ({'attributes': {'layers.1.pos_ff.layer_norm': {'eps': 0.1}}}, '"layers.1.pos_ff.layer_norm.eps": got 0.1'),
    ({'attributes': {'layers.0.dec_attn': {'scale': 1.0}}}, 'model.pt: attribute "layers.0.dec_attn.scale": got 1.0'),
    ({'attributes': {'word_emb': {'emb_scale': 1.0}}}, '"word_emb.emb_scale": got 1.0'),
    ({'attributes': {'word_emb.emb_layers.0': {'max_norm': 0.5}}}, 'max_norm": got 0.5; expected None'),
    ({'attributes': {'crit': {'_forward_hooks': {1: 'x'}}}}, '"crit._forward_hooks": got'),
    ({'attributes': {'layers.1.pos_ff.CoreNet.2': {}}}, 'CoreNet.2": got class torch.nn.Module'),
    ({'attributes': {'layers.1.gate': {}}}, 'module "layers.1.gate": got torch.nn.Module; expected none'),
    ({'classes': {r'layers\.1\.pos_ff\.CoreNet\.1': 'torch.nn.modules.activation.GELU'}}, 'got class .*GELU; expected'),
    ({'tensors': {'layers.1.dec_attn.extra': np.zeros(3)}}, 'unknown: transformer.layers.1.dec_attn.extra'),
    ({'tensors': {'r_w_bias': np.zeros(3)}}, r'tensor "transformer.r_w_bias": got shape \(3,\)'),
  ],
)
def test_other_modules_are_reported(changes, message, tmp_path):
  torch_files.save(tmp_path / 'model.pt', module(*made(**TORCH), **changes))
  with pytest.raises(InputError, match=message):
    convert.import_run(str(tmp_path), tmp_path / 'run', with_tokenizer=False)


def test_a_constant_in_half_precision_is_noted_and_another_one_rejected(tmp_path):
  cfg, params = made(**TORCH)
  exact = 10_000.0 ** -(np.arange(D // 2) / (D // 2))
  notes = {}
  for dtype in (np.float32, np.float16):
    torch_files.save(tmp_path / 'model.pt', module(cfg, params, tensors={'pos_emb.inv_freq': exact.astype(dtype)}))
    notes[dtype] = convert.read(str(tmp_path), tmp_path / 'run', with_tokenizer=False).notes
  assert notes[np.float32] == []
  assert notes[np.float16] == ['pos_emb.inv_freq: a constant in half precision, which lmx computes in float32']
  torch_files.save(tmp_path / 'model.pt', module(cfg, params, tensors={'pos_emb.inv_freq': exact.astype('f') + 0.005}))
  with pytest.raises(InputError, match='inv_freq: got other values than the constant'):
    convert.read(str(tmp_path), tmp_path / 'run', with_tokenizer=False)


def test_tensors_without_the_module_are_rejected(tmp_path):
  torch_files.save(tmp_path / 'model.pt', {'word_emb.emb_layers.0.weight': np.zeros((V, D), np.float32)})
  with pytest.raises(InputError, match='model.pt: got tensors alone, a state_dict; expected a whole MemTransformerLM'):
    convert.import_run(str(tmp_path), tmp_path / 'run')


def test_other_files_are_reported(given, tmp_path):
  cfg, params = made(cutoffs=())
  given(variables(cfg, params))
  (tmp_path / 'corpus-info.json').write_text(corpus(cfg, 'wt103'))
  with pytest.raises(InputError, match='got none of cache.pkl, cache.pt'):
    convert.import_run(str(tmp_path), tmp_path / 'run')
  save_corpus(tmp_path / 'cache.pkl', ['<unk>', 'a'])
  with pytest.raises(InputError, match='got 2 symbols'):
    convert.import_run(str(tmp_path), tmp_path / 'run')
  (tmp_path / 'cache.pkl').unlink()
  without = {name: x for name, x in variables(cfg, params).items() if 'layer_1/ff/layer_1/bias' not in name}
  given(without)
  with pytest.raises(InputError, match='1 tensors missing: transformer.layers.1.pos_ff.CoreNet.0.bias'):
    convert.import_run(str(tmp_path), tmp_path / 'run', with_tokenizer=False)
  (tmp_path / 'corpus-info.json').write_text('{"vocab_size": "30", "cutoffs": [], "dataset": "wt103"}')
  given(variables(cfg, params))
  with pytest.raises(InputError, match="corpus-info.json: vocab_size: got '30'"):
    convert.import_run(str(tmp_path), tmp_path / 'run', with_tokenizer=False)
