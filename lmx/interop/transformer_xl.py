"""Transformer-XL checkpoints of kimiyoung/transformer-xl.

TensorFlow (pip install 'lmx[tf]'): model.ckpt-*.{index,data-*} and corpus-info.json, the folders model and data of
sota/download.sh or one folder with both. Projections and kernels are (in, out), in transformers (out, in); with `untie`
u and v of all layers are one variable. The files have no lengths: memory, maximum distance and segments follow
sota/*.sh for the data set, and can be set with --config.model.M and others.

PyTorch: model.pt of train.py, a whole saved module. Its cluster rows in the head are in reverse order. After training
with --not_tied its output matrices differ from the tables. mem_transformer.py writes it.

The vocabulary comes from the pickled Corpus in the same folder, cache.pkl or cache.pt, which is not run. For enwik8
rows are mapped to bytes: a byte outside the vocabulary has a zero row and the output bias `NEVER`, which gives it zero
probability. For text8 `_` is a space. For the One Billion Word Benchmark <S> is `<eos>`, at both ends of a line.
"""

from __future__ import annotations

import functools
import pathlib
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx.errors import InputError
from lmx.interop import huggingface, mapped, mem_transformer, tensorflow, torch_file, torch_modules
from lmx.interop.huggingface import transformer_xl as layout
from lmx.interop.huggingface import word_vocabulary
from lmx.interop.huggingface.entry import Tensors, fields_of, show
from lmx.interop.huggingface.folder import CONFIG, Folder, read_json
from lmx.interop.tensor_table import Row, unique

CORPUS, MODEL = 'corpus-info.json', 'model.pt'
_CACHES = ('cache.pkl', 'cache.pt')
NEVER = -1e9  # output bias of a byte that is not in the vocabulary
_CLASS = 'mem_transformer.MemTransformerLM'
# sota/*.sh: memory, maximum distance (0: none), segment length.
_LENGTHS = {'wt103': (1600, 1000, 128), 'enwik8': (3800, 1000, 128), 'text8': (3800, 1000, 128), 'lm1b': (128, 0, 32)}
_OTHERS = (70, 0, 70)  # defaults of train_gpu.py
_NAMES = (
  (r'^transformer/adaptive_embed/lookup_table$', 'transformer.word_emb.emb_layers.0.weight'),
  (r'^transformer/adaptive_embed/proj_W$', 'transformer.word_emb.emb_projs.0'),
  (r'^transformer/adaptive_embed/cutoff_([0-9]+)/lookup_table$', r'transformer.word_emb.emb_layers.\1.weight'),
  (r'^transformer/adaptive_embed/cutoff_([0-9]+)/proj_W$', r'transformer.word_emb.emb_projs.\1'),
  (r'^transformer/adaptive_softmax/bias$', 'crit.out_layers.0.bias'),
  (r'^transformer/adaptive_softmax/cutoff_([0-9]+)/b$', r'crit.out_layers.\1.bias'),
  (r'^transformer/adaptive_softmax/cutoff_([0-9]+)/proj$', r'crit.out_projs.\1'),
  (r'^transformer/adaptive_softmax/cutoff_0/cluster_W$', 'crit.cluster_weight'),
  (r'^transformer/adaptive_softmax/cutoff_0/cluster_b$', 'crit.cluster_bias'),
  (r'^transformer/layer_([0-9]+)/', r'transformer.layers.\1.'),
  (r'rel_attn/(qkv|r|o)/kernel$', r'dec_attn.\1_net.weight'),
  (r'rel_attn/LayerNorm/', 'dec_attn.layer_norm.'),
  (r'ff/layer_1/', 'pos_ff.CoreNet.0.'),
  (r'ff/layer_2/', 'pos_ff.CoreNet.3.'),
  (r'ff/LayerNorm/', 'pos_ff.layer_norm.'),
  (r'(kernel|gamma)$', 'weight'),
  (r'beta$', 'bias'),
  (r'^transformer/(r_[wr]_bias)$', r'transformer.\1'),
)
_TRANSPOSED = ('kernel', 'proj', 'proj_W')


def is_release(directory: Any) -> bool:
  """Return True if a folder has such files, and no config.json."""
  directory = pathlib.Path(directory)
  if not directory.is_dir() or (directory / CONFIG).exists():
    return False
  if _find(directory, CORPUS):
    return True
  path = directory / MODEL
  content = torch_file.read(path) if path.exists() else None
  return isinstance(content, torch_file.Foreign) and content.name == _CLASS or _is_state(content)


def _is_state(content: Any) -> bool:
  """Return True for the tensors of a MemTransformerLM without the module."""
  return torch_file.are_tensors(content) and any(name.startswith('word_emb.emb_layers.') for name in content)


def read(directory: Any) -> Folder:
  """Read a release.

  Raises:
    InputError: a file is missing or damaged, TensorFlow is not installed, or the model has an unsupported option.
  """
  directory = pathlib.Path(directory)
  path = _find(directory, CORPUS)
  if path:
    about = read_json(path)
    name = str(about.get('dataset', ''))
    variables, unused = tensorflow.read_variables(_model(directory))
    fields, tensors, names, repeats = _of_tensorflow(path, about, variables)
    M, clamp, length = _LENGTHS.get(name, _OTHERS)
    fields |= {'M': M, 'clamp': clamp, 'same_length': True}
    distance = f'distances up to {clamp:,}' if clamp else 'any distance'
    note = (
      f"memory of {M:,} tokens, {distance}, segments of {length}: those of the release's evaluation, which are not in "
      'its files; model.M, model.clamp and data.length set others'
    )
  else:
    fields, tensors, names, repeats = _of_torch(directory / MODEL)
    name, length, note, unused = '', min(fields['M'] or 128, 128), '', []
  data = {'batching': {'name': 'streams'}, 'length': length, 'batch_size': 16}
  unused = [*unused, *repeats]
  folder = Folder('transformer_xl', fields, tensors, 'words', False, data=data, note=note, names=names, unused=unused)
  cache = next((found for file in _CACHES if (found := _find(directory, file))), None)
  if cache is None:
    return folder._replace(vocabulary=functools.partial(_missing, directory))
  return _with_vocabulary(folder, cache, name)


def _find(directory: pathlib.Path, name: str) -> pathlib.Path | None:
  """Return a file in a folder or in its subfolder data."""
  return next((path for path in (directory / name, directory / 'data' / name) if path.exists()), None)


def _model(directory: pathlib.Path) -> pathlib.Path:
  """Return the folder of the checkpoint."""
  return directory / 'model' if any((directory / 'model').glob('*.index')) else directory


def _missing(directory: pathlib.Path) -> word_vocabulary.Vocabulary:
  raise InputError(
    f'{directory}: got none of {", ".join(_CACHES)}; expected one, which has the vocabulary; --tokenizer=none '
    'imports only the model'
  )


def _of_tensorflow(
  path: pathlib.Path, about: Mapping[str, Any], variables: Tensors
) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, str], list[Row]]:
  """Return (fields, tensors under the names of transformers, their names in the file, unused) of a checkpoint."""
  cutoffs = about.get('cutoffs', [])
  if not isinstance(cutoffs, list) or not all(type(cutoff) is int for cutoff in cutoffs):
    raise InputError(f'{path}: cutoffs: got {show(cutoffs)}; expected a list of token ids')
  cutoffs = cutoffs[1:-1]
  names, repeats = unique(variables, lambda name: tensorflow.rename(name, _NAMES))
  tensors = {
    name: variables[old].T if old.rpartition('/')[2] in _TRANSPOSED else variables[old] for name, old in names.items()
  }
  sizes = _sizes(tensors)
  has_own = [f'crit.out_projs.{i}' in tensors for i in range(len(cutoffs) + 1)]
  is_projected = 'transformer.word_emb.emb_projs.0' in tensors
  ties = [not own and (is_projected or i > 0 or not cutoffs) for i, own in enumerate(has_own)]
  if sizes['div_val'] == 1 and cutoffs:  # one table with a bias per cluster
    parts = [f'crit.out_layers.{i}.bias' for i in range(len(cutoffs) + 1)]
    if all(name in tensors for name in parts):
      tensors[parts[0]] = np.concatenate([tensors.pop(name) for name in parts])
  untie = tensors.get('transformer.r_w_bias', np.zeros(0)).ndim == 3
  if untie:
    for name in ('r_w_bias', 'r_r_bias'):
      stacked = tensors.pop(f'transformer.{name}', ())
      tensors |= {f'transformer.layers.{i}.dec_attn.{name}': x for i, x in enumerate(stacked)}
      names |= {f'transformer.layers.{i}.dec_attn.{name}': f'transformer/{name}' for i in range(len(stacked))}
  settings = {**sizes, 'vocab_size': about.get('vocab_size'), 'cutoffs': cutoffs, 'untie_r': untie, 'tie_projs': ties}
  with fields_of(path):
    fields = layout.fields(settings | {'mem_len': 1})
  projected = {'project_same': is_projected} if sizes['div_val'] > 1 else {}
  return fields | projected | {'fidelity': 'tf', 'eps': 0.0}, tensors, names, repeats


def _sizes(tensors: Tensors) -> dict[str, Any]:
  """Return the sizes that shapes have, under the names of config.json."""
  _, E = _shape(tensors, 'transformer.word_emb.emb_layers.0.weight')
  F, D = _shape(tensors, 'transformer.layers.0.pos_ff.CoreNet.0.weight')
  H, K = _shape(tensors, 'transformer.r_w_bias', stacked=True)
  layers = [int(m[1]) for name in tensors if (m := re.match(r'transformer\.layers\.([0-9]{1,3})\.', name))]
  second = tensors.get('transformer.word_emb.emb_layers.1.weight')
  div_val = E // second.shape[-1] if second is not None and second.ndim == 2 and second.shape[-1] else 1
  sizes = {'d_model': D, 'd_embed': E, 'd_inner': F, 'n_head': H, 'd_head': K}
  return {**sizes, 'n_layer': max(layers) + 1, 'div_val': div_val}


def _shape(tensors: Tensors, name: str, *, stacked: bool = False) -> tuple[int, ...]:
  """Return the shape of a matrix; with `stacked` it may be one of several that the tensor has along its first axis."""
  shape = tensors[name].shape if name in tensors else ()
  if len(shape) not in ((2, 3) if stacked else (2,)):
    got = f'shape {shape}' if shape else 'none'
    raise InputError(f'tensor "{name}": got {got}; expected that of Transformer-XL')
  return shape[-2:]


def _of_torch(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, str], list[Row]]:
  """Return (fields, tensors, their names in the file, unused) of a MemTransformerLM saved whole."""
  module: Any = torch_file.read(path)
  if _is_state(module):
    raise InputError(
      f'{path}: got tensors alone, a state_dict; expected a whole MemTransformerLM, as torch.save(model, "{MODEL}") '
      'writes it, because tensors have no number of memory states, clusters or clamp_len'
    )
  own = torch_file.tensors(module)
  names, repeats = unique(own, lambda name: name if name.startswith('crit.') else layout.PREFIX + name)
  tensors = {name: own[old] for name, old in names.items()}
  clusters = ('crit.cluster_weight', 'crit.cluster_bias')
  tensors |= {name: tensors[name][::-1] for name in clusters if name in tensors}  # cluster i is the i-th from the end
  state, parts = module.state, module.state['_modules']
  sizes = {**_sizes(tensors), **{name: state.get(name) for name in ('mem_len', 'attn_type', 'ext_len')}}
  sizes |= {'clamp_len': state.get('clamp_len', -1), 'same_length': state.get('same_length', False)}
  sizes |= {'sample_softmax': state.get('sample_softmax', -1), 'vocab_size': state.get('n_token')}
  cutoffs = list(parts['crit'].state.get('cutoffs', []))[:-1] if parts.get('crit') else []
  projection = lambda name, i: tensors.get(f'{name}.{i}', np.zeros(0))
  ties = []
  for i in range(len(cutoffs) + 1):
    of_input = projection('transformer.word_emb.emb_projs', 0 if sizes['div_val'] == 1 else i)
    ties.append(mapped.are_equal(projection('crit.out_projs', i), of_input))
  sizes['tie_word_embeddings'] = _are_tied(tensors)
  rates = {'dropout': parts['drop'].state.get('p', 0.1) if parts.get('drop') else 0.1}
  first = parts['layers'].state['_modules']['0'].state['_modules']['dec_attn'].state
  lnorm = {'pre_lnorm': first.get('pre_lnorm', False)}
  if (dropatt := first['_modules'].get('dropatt')) is not None:
    rates['dropatt'] = dropatt.state.get('p', 0.0)
  if (norm := first['_modules'].get('layer_norm')) is not None and 'eps' in norm.state:
    lnorm['layer_norm_epsilon'] = norm.state['eps']
  with fields_of(path):
    fields = layout.fields({**sizes, **rates, **lnorm, 'cutoffs': cutoffs, 'untie_r': False, 'tie_projs': ties})
    fields['fidelity'] = 'pytorch'
    cfg = types.SimpleNamespace(**fields)
    torch_modules.check(module, mem_transformer.model(cfg, huggingface.empty('transformer_xl', cfg)))
  return fields, tensors, names, repeats


def _are_tied(tensors: Tensors) -> bool:
  """Return True unless an output matrix differs from its table, as after training with --not_tied."""
  tables = {name: x for name, x in tensors.items() if re.fullmatch(r'crit\.out_layers\.[0-9]+\.weight', name)}
  of_input = lambda name: tensors.get(name.replace('crit.out_layers', 'transformer.word_emb.emb_layers'), np.zeros(0))
  return all(mapped.are_equal(x, of_input(name)) for name, x in tables.items())


def _with_vocabulary(folder: Folder, path: pathlib.Path, name: str) -> Folder:
  """Return the folder with the symbols of a pickled Corpus, and rows of bytes for enwik8."""
  symbols, lower_case = word_vocabulary.pickled(path)
  V = folder.fields['V']
  if len(symbols) != V:
    raise InputError(f'{path}: got {len(symbols):,} symbols; expected {V:,}, one per row of the table')
  is_bytes = all(re.fullmatch('[0-9]{1,3}', symbol) and int(symbol) < 256 for symbol in symbols)
  if is_bytes and len(set(symbols)) == V:
    fields = folder.fields | {'V': 256}
    tensors = _rows_of_bytes(folder.tensors, [int(symbol) for symbol in symbols])
    made = word_vocabulary.Vocabulary([], 'bytes')
    return folder._replace(fields=fields, tensors=tensors, tokenizer='bytes', vocabulary=lambda: made)
  if all(len(symbol) == 1 for symbol in symbols):
    made = word_vocabulary.Vocabulary([' ' if symbol == '_' else symbol for symbol in symbols], 'characters')
    return folder._replace(tokenizer='characters', vocabulary=lambda: made)
  if name == 'lm1b' or '<S>' in symbols:
    names = {'<S>': '<eos>', '<UNK>': '<unk>'}
    made = word_vocabulary.checked([names.get(symbol, symbol) for symbol in symbols], 'double', bool(lower_case), path)
  else:
    made = word_vocabulary.checked(symbols, '', bool(lower_case), path)
  return folder._replace(vocabulary=lambda: made)


def _rows_of_bytes(tensors: Tensors, numbers: Sequence[int]) -> dict[str, np.ndarray]:
  """Return the tensors with table and bias rows ordered by byte."""
  made = dict(tensors)
  tables = [
    name for name in ('transformer.word_emb.emb_layers.0.weight', 'crit.out_layers.0.weight') if name in tensors
  ]
  for name, other in (*((table, 0.0) for table in tables), ('crit.out_layers.0.bias', NEVER)):
    rows = np.full((256, *tensors[name].shape[1:]), other, np.float32)
    rows[list(numbers)] = tensors[name]
    made[name] = rows
  return made
