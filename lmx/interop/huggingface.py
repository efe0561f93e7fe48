"""Weights of Hugging Face's GPT, GPT-2, BERT and Marian <-> parameters of lmx, by name, on NumPy arrays.

A file's tensors come in as a dict from name to array, as `safetensors.numpy.load_file` gives it. Read are the names of
`OpenAIGPTLMHeadModel` and `GPT2LMHeadModel` (with or without the leading 'transformer.'; their Conv1D kernels are (in,
out)) and of
`BertForPreTraining` (with or without 'bert.'; torch.nn.Linear kernels are (out, in); old files call LayerNorm's tensors
gamma and beta). Tied output matrices and buffers (causal masks, position ids) hold nothing new and are passed over.
BERT's next-sentence head is the objective's: params['objective']['nsp'], label 0 = "is next" in both.

`MarianMTModel` (activation_function 'relu', scale_embedding, one shared vocabulary) is models/transformer.py with
norm 'post', positions 'halves', biases 'all' and eps 1e-5. Its tables of sinusoids hold nothing new.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from lmx.errors import InputError, nearest

Tensors = Mapping[str, np.ndarray]


class _Entry(NamedTuple):
  """One parameter of lmx and the tensors that it is made of."""

  path: tuple[str, ...]  # in {'model': ..., 'objective': ...}
  names: tuple[str, ...]  # one tensor, or query, key and value
  shape: tuple[int, ...]  # of each tensor
  load: Callable[..., np.ndarray]
  save: Callable[[np.ndarray], tuple[np.ndarray, ...]]
  optional: bool = False


def _same(path: str, name: str, *shape: int, optional: bool = False) -> _Entry:
  return _Entry(tuple(path.split('/')), (name,), shape, lambda x: x, lambda x: (x,), optional)


def _flipped(path: str, name: str, rows: int, columns: int, optional: bool = False) -> _Entry:
  """A torch.nn.Linear kernel, (rows, columns) = (out, in)."""
  flip = lambda x: x.T
  return _Entry(tuple(path.split('/')), (name,), (rows, columns), flip, lambda x: (x.T,), optional)


def _reshaped(path: str, name: str, shape: tuple[int, ...], ours: tuple[int, ...], flip: bool = False) -> _Entry:
  """A kernel whose axes lmx keeps apart; with `flip` the tensor is transposed first."""
  load = lambda x: (x.T if flip else x).reshape(ours)
  flat = shape[::-1] if flip else shape
  save = lambda x: (x.reshape(flat).T if flip else x.reshape(flat),)
  return _Entry(tuple(path.split('/')), (name,), shape, load, save)


def _norm(path: str, name: str, D: int) -> list[_Entry]:
  return [_same(f'{path}/scale', f'{name}.weight', D), _same(f'{path}/bias', f'{name}.bias', D)]


def _linear(path: str, name: str, outputs: int, inputs: int) -> list[_Entry]:
  """A torch.nn.Linear."""
  return [_flipped(f'{path}/kernel', f'{name}.weight', outputs, inputs), _same(f'{path}/bias', f'{name}.bias', outputs)]


def _side_by_side(path: str, name: str, parts: tuple[str, ...], H: int, K: int) -> list[_Entry]:
  """torch.nn.Linear of queries, keys or values, several of them in one kernel (D, C, H, K) with its bias (C, H, K)."""
  D, place = H * K, tuple(path.split('/'))
  kernels, biases = (tuple(f'{name}.{part}.{kind}' for part in parts) for kind in ('weight', 'bias'))
  load = lambda *xs: np.stack([x.T.reshape(D, H, K) for x in xs], axis=1)
  save = lambda x: tuple(x[:, c].reshape(D, D).T for c in range(len(parts)))
  load_bias = lambda *xs: np.stack([x.reshape(H, K) for x in xs])
  save_bias = lambda x: tuple(x[c].reshape(D) for c in range(len(parts)))
  return [
    _Entry((*place, 'kernel'), kernels, (D, D), load, save),
    _Entry((*place, 'bias'), biases, (D,), load_bias, save_bias),
  ]


def _gpt_layer(cfg: Any, i: int) -> list[_Entry]:
  """What a layer of GPT and one of GPT-2 have, under the same names."""
  D, H, F = cfg.D, cfg.H, 4 * cfg.D
  K = D // H
  ours, theirs = f'model/layer_{i:02d}', f'transformer.h.{i}'
  return [
    *_norm(f'{ours}/norm_1', f'{theirs}.ln_1', D),
    _reshaped(f'{ours}/attention/qkv/kernel', f'{theirs}.attn.c_attn.weight', (D, 3 * D), (D, 3, H, K)),
    _reshaped(f'{ours}/attention/qkv/bias', f'{theirs}.attn.c_attn.bias', (3 * D,), (3, H, K)),
    _reshaped(f'{ours}/attention/out/kernel', f'{theirs}.attn.c_proj.weight', (D, D), (H, K, D)),
    _same(f'{ours}/attention/out/bias', f'{theirs}.attn.c_proj.bias', D),
    *_norm(f'{ours}/norm_2', f'{theirs}.ln_2', D),
    _same(f'{ours}/mlp/in/kernel', f'{theirs}.mlp.c_fc.weight', D, F),
    _same(f'{ours}/mlp/in/bias', f'{theirs}.mlp.c_fc.bias', F),
    _same(f'{ours}/mlp/out/kernel', f'{theirs}.mlp.c_proj.weight', F, D),
    _same(f'{ours}/mlp/out/bias', f'{theirs}.mlp.c_proj.bias', D),
  ]


def _gpt(cfg: Any) -> list[_Entry]:
  entries = [
    _same('model/embed/tokens', 'transformer.tokens_embed.weight', cfg.V, cfg.D),
    _same('model/embed/positions', 'transformer.positions_embed.weight', cfg.T, cfg.D),
  ]
  return sum((_gpt_layer(cfg, i) for i in range(cfg.N)), entries)


def _gpt2(cfg: Any) -> list[_Entry]:
  entries = [
    _same('model/embed/tokens', 'transformer.wte.weight', cfg.V, cfg.D),
    _same('model/embed/positions', 'transformer.wpe.weight', cfg.T, cfg.D),
    *_norm('model/norm', 'transformer.ln_f', cfg.D),
  ]
  return sum((_gpt_layer(cfg, i) for i in range(cfg.N)), entries)


def _bert_layer(cfg: Any, i: int) -> list[_Entry]:
  D, H, F = cfg.D, cfg.H, 4 * cfg.D
  K = D // H
  ours, theirs = f'model/layer_{i:02d}', f'bert.encoder.layer.{i}'
  return [
    *_side_by_side(f'{ours}/attention/qkv', f'{theirs}.attention.self', ('query', 'key', 'value'), H, K),
    _reshaped(f'{ours}/attention/out/kernel', f'{theirs}.attention.output.dense.weight', (D, D), (H, K, D), flip=True),
    _same(f'{ours}/attention/out/bias', f'{theirs}.attention.output.dense.bias', D),
    *_norm(f'{ours}/norm_1', f'{theirs}.attention.output.LayerNorm', D),
    _flipped(f'{ours}/mlp/in/kernel', f'{theirs}.intermediate.dense.weight', F, D),
    _same(f'{ours}/mlp/in/bias', f'{theirs}.intermediate.dense.bias', F),
    _flipped(f'{ours}/mlp/out/kernel', f'{theirs}.output.dense.weight', D, F),
    _same(f'{ours}/mlp/out/bias', f'{theirs}.output.dense.bias', D),
    *_norm(f'{ours}/norm_2', f'{theirs}.output.LayerNorm', D),
  ]


def _bert(cfg: Any) -> list[_Entry]:
  D = cfg.D
  entries = [
    _same('model/embed/tokens', 'bert.embeddings.word_embeddings.weight', cfg.V, D),
    _same('model/embed/positions', 'bert.embeddings.position_embeddings.weight', cfg.T, D),
    _same('model/embed/types', 'bert.embeddings.token_type_embeddings.weight', cfg.E, D),
    *_norm('model/embed/norm', 'bert.embeddings.LayerNorm', D),
    _flipped('model/pooler/kernel', 'bert.pooler.dense.weight', D, D),
    _same('model/pooler/bias', 'bert.pooler.dense.bias', D),
    _flipped('model/mlm/dense/kernel', 'cls.predictions.transform.dense.weight', D, D),
    _same('model/mlm/dense/bias', 'cls.predictions.transform.dense.bias', D),
    *_norm('model/mlm/norm', 'cls.predictions.transform.LayerNorm', D),
    _same('model/mlm/bias', 'cls.predictions.bias', cfg.V),
    _flipped('objective/nsp/kernel', 'cls.seq_relationship.weight', 2, D, optional=True),
    _same('objective/nsp/bias', 'cls.seq_relationship.bias', 2, optional=True),
  ]
  for i in range(cfg.N):
    entries += _bert_layer(cfg, i)
  return entries


def _marian(cfg: Any) -> list[_Entry]:
  D, H, F = cfg.D, cfg.H, cfg.F
  K = D // H
  entries = [
    _same('model/embed/tokens', 'model.shared.weight', cfg.V, D),
    _reshaped('model/output/bias', 'final_logits_bias', (1, cfg.V), (cfg.V,)),
  ]
  for i in range(cfg.N):
    decoder, j = (0, i) if i < cfg.encoder_layers else (1, i - cfg.encoder_layers)
    ours, theirs = f'model/layer_{i:02d}', f'model.{"decoder" if decoder else "encoder"}.layers.{j}'
    attention = f'{theirs}.self_attn'
    entries += [
      *_side_by_side(f'{ours}/attention/qkv', attention, ('q_proj', 'k_proj', 'v_proj'), H, K),
      _reshaped(f'{ours}/attention/out/kernel', f'{attention}.out_proj.weight', (D, D), (H, K, D), flip=True),
      _same(f'{ours}/attention/out/bias', f'{attention}.out_proj.bias', D),
      *_norm(f'{ours}/norm_1', f'{theirs}.self_attn_layer_norm', D),
      *_linear(f'{ours}/mlp/in', f'{theirs}.fc1', F, D),
      *_linear(f'{ours}/mlp/out', f'{theirs}.fc2', D, F),
      *_norm(f'{ours}/norm_2', f'{theirs}.final_layer_norm', D),
    ]
    if decoder:
      entries += _marian_cross(ours, theirs, H, K)
  return entries


def _marian_cross(ours: str, theirs: str, H: int, K: int) -> list[_Entry]:
  D, attention = H * K, f'{theirs}.encoder_attn'
  return [
    _reshaped(f'{ours}/cross/q/kernel', f'{attention}.q_proj.weight', (D, D), (D, H, K), flip=True),
    _reshaped(f'{ours}/cross/q/bias', f'{attention}.q_proj.bias', (D,), (H, K)),
    *_side_by_side(f'{ours}/cross/kv', attention, ('k_proj', 'v_proj'), H, K),
    _reshaped(f'{ours}/cross/out/kernel', f'{attention}.out_proj.weight', (D, D), (H, K, D), flip=True),
    _same(f'{ours}/cross/out/bias', f'{attention}.out_proj.bias', D),
    *_norm(f'{ours}/norm_cross', f'{theirs}.encoder_attn_layer_norm', D),
  ]


class _Family(NamedTuple):
  entries: Callable[[Any], list[_Entry]]
  prefix: str  # that files of the bare model leave out
  bare: str  # beginnings of the names that it is left out of
  skipped: str  # tensors that hold nothing new
  tied: Mapping[str, str]  # written for those who load a file without tying weights


_FAMILIES = {
  'gpt': _Family(
    _gpt,
    'transformer.',
    r'(tokens_embed|positions_embed|h)\.',
    r'lm_head\.weight|transformer\.position_ids|transformer\.h\.\d+\.attn\.bias',
    {'lm_head.weight': 'transformer.tokens_embed.weight'},
  ),
  'gpt2': _Family(
    _gpt2,
    'transformer.',
    r'(wte|wpe|h|ln_f)\.',
    r'lm_head\.weight|transformer\.h\.\d+\.attn\.(bias|masked_bias)',
    {'lm_head.weight': 'transformer.wte.weight'},
  ),
  'bert': _Family(
    _bert,
    'bert.',
    r'(embeddings|encoder|pooler)\.',
    r'cls\.predictions\.decoder\.(weight|bias)|bert\.embeddings\.position_ids',
    {
      'cls.predictions.decoder.weight': 'bert.embeddings.word_embeddings.weight',
      'cls.predictions.decoder.bias': 'cls.predictions.bias',
    },
  ),
  'transformer': _Family(
    _marian,
    'model.',
    r'(shared|encoder|decoder)\.',
    r'lm_head\.weight|model\.(encoder|decoder)\.embed_(tokens|positions)\.weight',
    dict.fromkeys(
      ('lm_head.weight', 'model.encoder.embed_tokens.weight', 'model.decoder.embed_tokens.weight'),
      'model.shared.weight',
    ),
  ),
}


def _family(name: str) -> _Family:
  if name not in _FAMILIES:
    raise InputError(f'model "{name}" has no Hugging Face form{nearest(name, _FAMILIES)}')
  return _FAMILIES[name]


def _canonical(family: _Family, tensors: Tensors) -> dict[str, np.ndarray]:
  """Tensors under the full names of today's files, without those that hold nothing new."""
  found = {}
  for name, tensor in tensors.items():
    if re.match(family.bare, name):
      name = family.prefix + name
    name = re.sub(r'LayerNorm\.gamma$', 'LayerNorm.weight', re.sub(r'LayerNorm\.beta$', 'LayerNorm.bias', name))
    if not re.fullmatch(family.skipped, name):
      found[name] = tensor
  return found


def _check(name: str, entries: Iterable[_Entry], tensors: Tensors) -> None:
  """Raises InputError with every tensor that is missing, unknown or of another shape."""
  entries = list(entries)
  shapes = {n: e.shape for e in entries for n in e.names}
  problems = []
  missing = [n for n in shapes if n not in tensors]
  extra = [n for n in tensors if n not in shapes]
  wrong = [
    f'{n} is {tuple(tensors[n].shape)}, not {shape}'
    for n, shape in shapes.items()
    if n in tensors and tuple(tensors[n].shape) != shape
  ]
  for label, names in (('missing', missing), ('unknown', extra), ('of another shape', wrong)):
    if names:
      problems.append(f'{len(names)} tensors {label}: {", ".join(names)}')
  if problems:
    raise InputError(f'these weights are not those of {name} with this config. ' + '; '.join(problems))


def from_hf(name: str, cfg: Any, tensors: Tensors) -> dict[str, Any]:
  """Parameters of model `name` from Hugging Face's tensors.

  Args:
    name: 'gpt', 'gpt2', 'bert' or 'transformer' (Marian).
    cfg: the model's config, whose sizes the tensors must have.
    tensors: name -> array of any float type.

  Returns:
    {'model': ..., 'objective': ...}, float32; the objective's part is {} without a next-sentence head.

  Raises:
    InputError: tensors missing, unknown or of another shape; all of them are listed.
  """
  family = _family(name)
  tensors = _canonical(family, tensors)
  entries = family.entries(cfg)
  if not any(n in tensors for e in entries if e.optional for n in e.names):
    entries = [e for e in entries if not e.optional]
  _check(name, entries, tensors)
  params: dict[str, Any] = {'model': {}, 'objective': {}}
  for entry in entries:
    node = params
    for part in entry.path[:-1]:
      node = node.setdefault(part, {})
    value = entry.load(*(np.asarray(tensors[n], np.float32) for n in entry.names))
    node[entry.path[-1]] = np.ascontiguousarray(value)
  return params


def to_hf(name: str, cfg: Any, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """The inverse of `from_hf`: Hugging Face's tensors, float32, the tied ones among them.

  Args:
    params: {'model': ...}, and 'objective' with 'nsp' if BERT's next-sentence head is to be written.

  Raises:
    InputError: a parameter missing or of another shape.
  """
  family = _family(name)
  tensors: dict[str, np.ndarray] = {}
  for entry in family.entries(cfg):
    node: Any = params
    for part in entry.path:
      node = node.get(part) if isinstance(node, Mapping) else None
    if node is None and entry.optional:
      continue
    if node is None:
      raise InputError(f'{name}: parameter {"/".join(entry.path)} is missing')
    try:
      values = entry.save(np.asarray(node, np.float32))
    except (ValueError, IndexError):
      values = ()
    if [v.shape for v in values] != [entry.shape] * len(entry.names):
      where = f'{name}: parameter {"/".join(entry.path)}'
      raise InputError(f'{where} has shape {np.shape(node)}, which does not fit the config')
    tensors |= {n: np.ascontiguousarray(v) for n, v in zip(entry.names, values, strict=True)}
  return tensors | {new: tensors[old] for new, old in family.tied.items()}
