"""fairseq's released Transformers (transformer.wmt14, wmt16, wmt19) and other checkpoints of class `TransformerModel`.

A folder has a checkpoint (.pt) and one dictionary per language, dict.en.txt and dict.de.txt. An ensemble has several
.pt files; then name one. The checkpoint is {'args': Namespace, 'model': tensors by name, ..}, which torch_file.py
reads. Layouts of all versions are read: queries, keys and values in one `in_proj_weight` or separate, `layer_norms.0`
or own names, and the counters `version`. Positions start at 2, one after the padding position.

Text is tokenized by Moses and then by fastBPE or subword-nmt with the merges in `bpecodes`
(lmx/data/tokenizers/moses.py). Without that file, text is only split at white space, and the dictionaries must be
equal. fairseq's search has 5 beams (fairseq/hub_utils.py, `translate`) and a length penalty of power 1. It stops when
all beams are finished and may write the unknown word (fairseq/sequence_generator.py). huggingface/fsmt.py reads
transformers' copy of this class.
"""

from __future__ import annotations

import functools
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from lmx import documents
from lmx.errors import InputError
from lmx.interop import torch_file
from lmx.interop.huggingface.entry import LAYERS, check_value, fields_of, integer, rate, show
from lmx.interop.huggingface.folder import CONFIG, Folder
from lmx.interop.huggingface.word_vocabulary import Vocabulary
from lmx.interop.tensor_table import UNUSED, Row, repeated

_DICTIONARY = 'dict.*.txt'
_SPECIAL = ('<s>', '<pad>', '<eos>', '<unk>')  # the first ids; fairseq's </s> is <eos> here
_PAD = 1
CODES = 'bpecodes'
_SIZES = {
  'D': 'encoder_embed_dim',
  'F': 'decoder_ffn_embed_dim',
  'H': 'decoder_attention_heads',
  'encoder_F': 'encoder_ffn_embed_dim',
  'encoder_H': 'encoder_attention_heads',
}
_RATES = {
  'dropout': ('dropout',),
  'dropout_attention': ('attention_dropout',),
  'dropout_relu': ('activation_dropout', 'relu_dropout'),  # current name, and the name in 2018
}
_ACTIVATIONS = {'relu': 'relu', 'gelu': 'gelu_erf', 'gelu_accurate': 'gelu_tanh', 'swish': 'swish'}
# Model options with only one supported value; older releases lack newer options.
_FIXED: dict[str, tuple[Any, ...]] = {
  **dict.fromkeys(('encoder_learned_pos', 'decoder_learned_pos', 'no_token_positional_embeddings'), (False,)),
  **dict.fromkeys(('adaptive_input', 'layernorm_embedding', 'no_scale_embedding', 'cross_self_attention'), (False,)),
  **dict.fromkeys(('no_cross_attention', 'offload_activations', 'tie_adaptive_weights'), (False,)),
  **dict.fromkeys(('encoder_layerdrop', 'decoder_layerdrop', 'quant_noise_pq', 'quant_noise_scalar'), (0,)),
  **dict.fromkeys(('adaptive_softmax_cutoff', 'encoder_layers_to_keep', 'decoder_layers_to_keep'), (None,)),
}
_EVALUATION = {
  'beam': 5,
  'alpha': 1.0,
  'penalty': 'power',
  'stop': 'full',
  'max_length': 201,  # 200 and the end of text
  'allow_unk': True,
  'forbidden': (_PAD,),
}
_NOTE = (
  f'there is no {CODES}, so text is split at white space alone: give it as the tokenizer of Moses and the codes make '
  'it, and remove "@@ " from the translations'
)
_NORMS = {
  'encoder': ('self_attn_layer_norm', 'final_layer_norm'),
  'decoder': ('self_attn_layer_norm', 'encoder_attn_layer_norm', 'final_layer_norm'),
}


def is_release(source: Any) -> bool:
  """Return True for a folder with dictionaries and a checkpoint, or a checkpoint in such a folder."""
  path = pathlib.Path(source)
  folder = path.parent if path.is_file() and path.suffix == '.pt' else path
  if not folder.is_dir() or (folder / CONFIG).exists():
    return False
  return bool(documents.match(folder, _DICTIONARY) and documents.match(folder, '*.pt'))


def read(source: Any) -> Folder:
  """Read a release.

  Raises:
    InputError: a file is missing or damaged, or the model has an option that lmx does not compute.
  """
  path = pathlib.Path(source)
  if path.is_dir():
    paths = documents.match(path, '*.pt')
    if len(paths) > 1:
      listed = ', '.join(one.name for one in paths)
      raise InputError(f'{path}: got {listed}; expected one checkpoint; name one of them, as in --from={paths[0]}')
    (path,) = paths
  content: Any = torch_file.read(path)
  if not isinstance(content, dict) or not torch_file.are_tensors(content.get('model')):
    raise InputError(f'{path}: got no tensors under "model"; expected a checkpoint of fairseq')
  try:
    options = _options(content)
    tensors, names, unused = _renamed(content['model'])
    fields = _fields(options, tensors)
  except InputError as error:
    raise InputError(f'{path}: {error}') from None
  coded = (path.parent / CODES).exists()
  return Folder(
    'transformer',
    fields,
    tensors,
    'moses' if coded else 'words',
    False,
    data={'batching': 'translation'},
    evaluation=_EVALUATION,
    vocabulary=functools.partial(_vocabulary, path.parent, options, fields),
    note='' if coded else _NOTE,
    names=names,
    unused=unused,
  )


def _options(content: Mapping[str, Any]) -> dict[str, Any]:
  """Return the model's options by name, from `args` or, in newer checkpoints, `cfg`."""
  options = content.get('args')
  if options is None and isinstance(content.get('cfg'), dict):
    options = content['cfg'].get('model')
  options = options.state if isinstance(options, torch_file.Foreign) else options
  if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
    raise InputError(f'args: got {show(options)}; expected an argparse.Namespace with the options of the model')
  return options


def _fields(options: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Return fields of models/transformer.py's Config."""
  given = {name: value for name, value in options.items() if value is not None}
  with fields_of('args'):
    for name, values in _FIXED.items():
      check_value(given, name, *values)
    settings: dict[str, Any] = {ours: integer(given, theirs) for ours, theirs in _SIZES.items()}
    settings |= {name: integer(given, name, high=LAYERS) for name in ('encoder_layers', 'decoder_layers')}
    for ours, theirs in _RATES.items():
      settings[ours] = rate(given, next((name for name in theirs if name in given), theirs[0]), 0.0)
    for name in ('decoder_embed_dim', 'decoder_input_dim', 'decoder_output_dim'):
      if given.get(name, settings['D']) != settings['D']:
        raise InputError(f'{name}: got {show(given[name])}; expected encoder_embed_dim, {settings["D"]}')
    activation = given.get('activation_fn', 'relu')
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
      raise InputError(f'activation_fn: got {show(activation)}; expected {", ".join(_ACTIVATIONS)}')
    before = [_switch(given, f'{side}_normalize_before') for side in ('encoder', 'decoder')]
    if before[0] != before[1]:
      raise InputError(f'decoder_normalize_before: got {before[1]}; expected {before[0]}, as of the encoder')
  shared = _switch(given, 'share_all_embeddings')
  tied = shared or _switch(given, 'share_decoder_input_output_embed')
  rows = {side: len(tensors.get(f'model.{side}.embed_tokens.weight', ())) for side in ('encoder', 'decoder')}
  return settings | {
    'V': rows['decoder'],
    'source_V': 0 if shared else rows['encoder'],
    'norm': 'pre' if before[0] else 'post',
    'positions': 'tensor2tensor',
    'first_position': _PAD + 1,
    'activation': _ACTIVATIONS[activation],
    'biases': 'attention',
    'eps': 1e-5,
    'scale_embedding': True,
    'tied': tied,
  }


def _switch(given: Mapping[str, Any], name: str) -> bool:
  if type(value := given.get(name, False)) is not bool:
    raise InputError(f'{name}: got {show(value)}; expected True or False')
  return value


def _renamed(tensors: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, str], list[Row]]:
  """Return (tensors under the names of huggingface/transformer.py, `Folder.names`, unused)."""
  renamed: dict[str, np.ndarray] = {}
  names: dict[str, str] = {}
  unused: list[Row] = []
  for theirs, x in tensors.items():
    if re.fullmatch(r'(encoder|decoder)\.(version|embed_positions\._float_tensor)', theirs):
      unused.append(Row(UNUSED, theirs, x.shape, x.dtype.name, 'no number of the model'))
      continue
    for name, part in _parts(theirs, x).items():
      if name in renamed:
        unused.append(repeated(theirs, part, names[name], renamed[name]))
      else:
        renamed[name], names[name] = part, theirs
  return renamed, names, unused


def _parts(theirs: str, x: np.ndarray) -> dict[str, np.ndarray]:
  """Return one tensor, or the three that are stacked in it, under the names of huggingface/transformer.py."""
  name = re.sub(
    r'^(encoder|decoder)(\.layers\.[0-9]+)\.layer_norms\.([0-9])',
    lambda match: f'{match[1]}{match[2]}.{dict(enumerate(_NORMS[match[1]])).get(int(match[3]), "layer_norms")}',
    theirs,
  )
  if name in ('decoder.embed_out', 'decoder.output_projection.weight'):
    return {'lm_head.weight': x}
  stacked = re.fullmatch(r'(.*)\.in_proj_(weight|bias)', name)
  if not stacked:
    return {f'model.{name}': x}
  if not x.ndim or len(x) % 3:
    raise InputError(f'tensor "{theirs}": got shape {x.shape}; expected queries, keys and values of equal sizes')
  size = len(x) // 3
  thirds = {part: x[i * size : (i + 1) * size] for i, part in enumerate('qkv')}
  return {f'model.{stacked[1]}.{part}_proj.{stacked[2]}': third for part, third in thirds.items()}


def _vocabulary(
  directory: pathlib.Path, options: Mapping[str, Any], fields: Mapping[str, Any]
) -> Vocabulary | dict[str, Any]:
  """Return the words of both languages, or with `bpecodes` a tokenizer's content.

  Raises:
    InputError: a file is missing or damaged, or the dictionaries differ and there is no `bpecodes`.
  """
  hint = '--tokenizer=none imports only the model'
  languages = [str(options.get(f'{side}_lang')) for side in ('source', 'target')]
  vocabularies = []
  for language, size in zip(languages, (fields['source_V'] or fields['V'], fields['V']), strict=True):
    path = directory / f'dict.{language}.txt'
    if not path.exists():
      raise InputError(f'{path}: missing; expected the dictionary of the language that args name; {hint}')
    vocabularies.append(words := _words(path))
    if len(words) != size:
      raise InputError(f'{path}: got {len(words):,} words; expected {size:,}, the rows of its table; {hint}')
  one = vocabularies[0] == vocabularies[1]
  if (path := directory / CODES).exists():
    codes = _codes(path)
    return {'kind': 'moses', 'languages': languages, 'codes': codes, 'vocabularies': vocabularies[: 2 - one]}
  if not one:
    raise InputError(
      f'{path}: missing; expected it, because dict.{languages[1]}.txt has other words than dict.{languages[0]}.txt; '
      f'without it words have one vocabulary; {hint}'
    )
  return Vocabulary(vocabularies[0], 'space')


def _codes(path: pathlib.Path) -> list[list[str]]:
  """Return the symbol pairs in a file of fastBPE (with counts) or subword-nmt (after '#version: 0.2')."""
  lines = [line.rstrip('\n') for line in documents.read_lines(path)]
  named = lines[0].startswith('#version: 0.2')
  codes = []
  for number, line in enumerate(lines[named:], 1 + named):
    columns = line.split(' ')
    if len(columns) != 3 - named or not all(columns):
      raise InputError(
        f'{path}, line {number}: got {show(line)}; expected two symbols and a count, or "#version: 0.2" on line 1 '
        'and then two symbols per line'
      )
    codes.append(columns[:2])
  return codes


def _words(path: pathlib.Path) -> list[str]:
  """Return the words of a dictionary, which has a word and its count a line, after the special tokens."""
  words = list(_SPECIAL)
  for number, line in enumerate(documents.read_lines(path), 1):
    word, _, count = line.rstrip('\n').removesuffix(' #fairseq:overwrite').rpartition(' ')
    if not word or not count.lstrip('-').isdecimal():
      raise InputError(f'{path}, line {number}: got {show(line)}; expected a word and its count')
    words.append(word)
  if len(set(words)) < len(words):
    twice = next(word for word in words if words.count(word) > 1)
    raise InputError(f'{path}: got the word "{twice}" twice; expected each once')
  return words
