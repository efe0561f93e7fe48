"""TensorFlow checkpoints of BERT, GPT-2 and XLNet in the format of their authors' releases.

google-research/bert: bert_config.json, vocab.txt and bert_model.ckpt.{index,data-*}; or model.ckpt-*, the output of its
run_classifier.py and run_squad.py. Kernels are (in, out), in transformers (out, in). Its hidden_act "gelu" is the tanh
form (modeling.py); in transformers the same word is the exact form, selected with `--config.model.gelu=erf`. Its
classifiers have no label names. A vocabulary without capitals is for lower-cased text, unless
`--config.data.lower_case` is set. Checkpoints by TensorFlow 2 (lmx/interop/tensorflow_objects.py) have the same other
files.

openai/gpt-2, folder models/124M and so on: hparams.json, encoder.json, vocab.bpe and model.ckpt.{index,data-*}.
Kernels have a leading axis of 1.

zihangdai/xlnet: xlnet_config.json, spiece.model and xlnet_model.ckpt.{index,data-*}. Kernels of the feed-forward
networks are (in, out); biases and segment encodings of all layers are stacked in one variable. Its "gelu" is the tanh
form. Its memory is initialised with zeros; the files do not contain its length
(`--config.model.M=384 --config.model.reuse=256`). model.ckpt-*, the output of its run_classifier.py, run_squad.py and
run_race.py, is read as well. These mask no input, so they have no mask embedding: it is set to zero. The classifiers
have no label names.

Variables are returned under the names of transformers (lmx/interop/huggingface/), which messages use too. The
optimizer's variables are skipped. TensorFlow itself reads the files: `pip install 'lmx[tf]'`.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx import documents
from lmx.errors import InputError, explain
from lmx.interop import tensorflow_objects
from lmx.interop.huggingface import architectures, bert, gpt2, xlnet
from lmx.interop.huggingface.entry import integer
from lmx.interop.huggingface.folder import CONFIG, INDEX, WEIGHTS, Folder, read_json
from lmx.interop.tensor_table import ABSENT, UNUSED, Row, repeated, unique

BERT, GPT2, XLNET = 'bert_config.json', 'hparams.json', 'xlnet_config.json'
_OPTIMIZER = rf'.*/(adam_[mv]|Adam(_1)?)|global_step|.*beta[12]_power|{tensorflow_objects.SKIPPED}'
# Substitutions from variable names to tensor names, applied in order.
_BERT_NAMES = (
  ('^cls/squad/', 'qa_outputs/'),
  ('^(?=output_(weights|bias)$)', 'classifier/'),
  ('output_weights$', 'weight'),
  ('output_bias$', 'bias'),
  ('_embeddings$', '_embeddings/weight'),
  ('/kernel$', '/weight'),
  ('/layer_', '/layer/'),
  ('/', '.'),
)
_GPT2_NAMES = (
  ('^model/', 'transformer/'),
  (r'/h(\d+)/', r'/h/\1/'),
  ('/(wte|wpe)$', r'/\1/weight'),
  ('/[gw]$', '/weight'),
  ('/b$', '/bias'),
  ('/', '.'),
)
_XLNET_NAMES = (
  ('^model/', ''),
  ('/word_embedding/lookup_table$', '/word_embedding/weight'),
  ('/mask_emb/mask_emb$', '/mask_emb'),
  ('/layer_([0-9]+)/(?=rel_attn|ff)', r'/layer/\1/'),
  ('/rel_attn/([qkvro])/kernel$', r'/rel_attn/\1'),
  ('^(transformer/.*)/LayerNorm/', r'\1/layer_norm/'),
  ('/gamma$', '/weight'),
  ('/beta$', '/bias'),
  ('^((classification|regression)_[^/]*/logit|logits/dense)/', 'logits_proj/'),
  ('^sequnece_summary/', 'sequence_summary/'),
  ('/kernel$', '/weight'),
  ('/', '.'),
)
# Variables of a single class -> the class.
_XLNET_HEADS = {
  'model/(classification|regression)_.*/logit/kernel': 'XLNetForSequenceClassification',
  'logits/dense/kernel': 'XLNetForMultipleChoice',
  'start_logits/dense/kernel': 'XLNetForQuestionAnswering',
}
_STACKED = ('r_w_bias', 'r_r_bias', 'r_s_bias', 'seg_embed')  # each variable has all layers
_HPARAMS = {'n_vocab': 'vocab_size', 'n_ctx': 'n_positions'}  # the other names are equal
_NO_DROPOUT = dict.fromkeys(('embd_pdrop', 'attn_pdrop', 'resid_pdrop'), 0.0)  # the released code has none


def is_release(directory: Any) -> bool:
  """Return True if a folder has such a checkpoint, and no weights that can be read without TensorFlow."""
  directory = pathlib.Path(directory)
  named = any((directory / name).exists() for name in _READERS)
  return named and not any((directory / name).exists() for name in (WEIGHTS, INDEX))


def read(directory: Any) -> Folder:
  """Read a release.

  Raises:
    InputError: TensorFlow is not installed, a file is missing or damaged, or the variables do not match the model.
  """
  directory = pathlib.Path(directory)
  name = next(name for name in _READERS if (directory / name).exists())
  theirs = read_json(directory / name)
  try:
    return _READERS[name](directory, theirs)
  except InputError as error:
    raise InputError(str(error).replace(CONFIG, str(directory / name))) from None


def _gpt2(directory: pathlib.Path, hparams: Mapping[str, Any]) -> Folder:
  theirs = _NO_DROPOUT | {_HPARAMS.get(name, name): value for name, value in hparams.items()}
  integer(theirs, 'vocab_size')  # the only size without a default in model.py
  fields = gpt2.fields(theirs)
  variables, unused = read_variables(directory)
  names, repeats = unique(variables, lambda name: rename(name, _GPT2_NAMES))
  tensors = {name: variables[v][0] if v.endswith('/w') else variables[v] for name, v in names.items()}
  return Folder('gpt2', fields, tensors, gpt2.TOKENIZER, False, names=names, unused=unused + repeats)


def _bert(directory: pathlib.Path, theirs: Mapping[str, Any]) -> Folder:
  theirs = {'type_vocab_size': 16, 'hidden_act': 'gelu', **theirs}  # defaults of modeling.py
  if theirs['hidden_act'] == 'gelu':
    theirs |= {'hidden_act': 'gelu_new'}
  integer(theirs, 'vocab_size')  # the only size without a default in modeling.py
  fields, lower_case = bert.fields(theirs), _is_lower_case(directory / 'vocab.txt')
  variables, unused = read_variables(directory)
  keys, head = {name: name for name in variables}, 'BertForSequenceClassification'
  if graph := variables.pop(tensorflow_objects.GRAPH, None):
    found = tensorflow_objects.bert(variables, graph.item(), directory)
    variables, keys, unused = found.arrays, found.keys, unused + found.unused
    head = 'BertForTokenClassification' if found.tags else head
  names, repeats = unique(variables, lambda name: rename(name, _BERT_NAMES), keys)
  tensors = {name: variables[v].T if v.endswith('/kernel') else variables[v] for name, v in names.items()}
  if 'classifier.weight' in tensors:  # run_classifier.py's
    theirs = {**theirs, 'architectures': [head], 'num_labels': len(tensors['classifier.weight'])}
  name = architectures.recognise('bert', theirs, tensors)
  objective, labels = architectures.objective(name, theirs), architectures.labels(name, theirs)
  own: dict[str, Any] = {'names': {ours: keys[v] for ours, v in names.items()}, 'unused': unused + repeats}
  return Folder('bert', fields, tensors, bert.TOKENIZER, lower_case, name, objective, labels, **own)


def _xlnet(directory: pathlib.Path, theirs: Mapping[str, Any]) -> Folder:
  settings = {'vocab_size' if name == 'n_token' else name: value for name, value in theirs.items()} | {'mem_len': None}
  for size in ('vocab_size', 'n_layer', 'd_model', 'n_head', 'd_inner'):  # XLNetConfig has no defaults
    integer(settings, size)
  if settings.setdefault('ff_activation', 'gelu') == 'gelu':
    settings['ff_activation'] = 'gelu_new'
  fields = xlnet.fields(settings) | {'fidelity': 'released', 'untie': bool(settings.get('untie_r'))}
  variables, unused = read_variables(directory)
  heads = {name: kind for name in variables for layer, kind in _XLNET_HEADS.items() if re.fullmatch(layer, name)}
  if len(heads) > 1:
    raise InputError(f'{directory}: got several heads, {", ".join(heads)}; expected one')
  tensors: dict[str, np.ndarray] = {'transformer.mask_emb': np.zeros((1, 1, fields['D']), np.float32)} if heads else {}
  names = dict.fromkeys(tensors, ABSENT)
  for name, x in variables.items():
    part = name.removeprefix('model/transformer/')
    if part not in _STACKED:
      # Kernels of attention have three axes.
      ours, y = rename(name, _XLNET_NAMES), x.T if name.endswith('/kernel') and x.ndim == 2 else x
      if names.get(ours, ABSENT) != ABSENT:  # not the zeros of a mask embedding that the file may have
        unused.append(repeated(name, y, names[ours], tensors[ours]))
      else:
        names[ours], tensors[ours] = name, y
      continue
    shared = part != 'seg_embed' and not fields['untie']
    for i, y in enumerate([x] * fields['N'] if shared else x):
      names[ours := f'transformer.layer.{i}.rel_attn.{part}'] = name if shared else f'{name}[{i}]'
      tensors[ours] = y
  head, kind = next(iter(heads.items()), ('', 'XLNetLMHeadModel'))
  if kind == 'XLNetForSequenceClassification':
    settings['num_labels'] = variables[head].shape[-1]
  objective, labels = architectures.objective(kind, settings), architectures.labels(kind, settings)
  own: dict[str, Any] = {'names': names, 'unused': unused}
  return Folder('xlnet', fields, tensors, xlnet.TOKENIZER, None, kind, objective, labels, **own)


_READERS = {BERT: _bert, GPT2: _gpt2, XLNET: _xlnet}


def rename(name: str, rules: Sequence[tuple[str, str]]) -> str:
  """Return a name after the substitutions (pattern, text), applied in order."""
  for pattern, tensor in rules:
    name = re.sub(pattern, tensor, name)
  return name


def _is_lower_case(vocabulary: pathlib.Path) -> bool:
  """Return True if a vocabulary is for lower-cased text: its subwords have no capitals."""
  try:
    subwords = vocabulary.read_text(encoding='utf-8').splitlines()
  except (OSError, UnicodeDecodeError) as error:
    raise InputError(f'{vocabulary} cannot be read ({explain(error)})') from None
  return not any(re.search('[A-Z]', subword) for subword in subwords if not re.fullmatch(r'\[\w+\]', subword))


def read_variables(directory: pathlib.Path) -> tuple[dict[str, np.ndarray], list[Row]]:
  """Return ({name: array} of a folder's checkpoint, the optimizer's variables); names have no ':0'.

  Raises:
    InputError: TensorFlow is not installed, or the folder has no checkpoint, several, or a damaged one.
  """
  prefix, tf, at = _prefix(directory), _tensorflow(), ''
  try:
    reader = tf.train.load_checkpoint(str(prefix))
    shapes = reader.get_variable_to_shape_map()
    skipped = [name for name in sorted(shapes) if re.fullmatch(_OPTIMIZER, name)]
    unused = [Row(UNUSED, name, tuple(shapes[name]), '', 'of the optimizer, or a counter') for name in skipped]
    variables = {}
    for name in sorted({*shapes} - {*skipped}):
      at = f': variable "{name}"'
      variables[name] = _array(reader.get_tensor(name))
    return variables, unused
  except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:  # IndexError: a truncated file
    short = str(error).strip().splitlines()[0]
    raise InputError(f'{prefix} is not a checkpoint of TensorFlow, or damaged or truncated{at}: {short}') from None


def _array(value: Any) -> np.ndarray:
  """Return a variable as an array, text as an object: NumPy's own type for bytes drops zeros at their end."""
  return np.asarray(value, object if isinstance(value, bytes) else None)


def _prefix(directory: pathlib.Path) -> pathlib.Path:
  """Return the only checkpoint of a folder, else the latest according to its file `checkpoint`."""
  prefixes = sorted(path.with_suffix('') for path in documents.match(directory, '*.index'))
  if len(prefixes) == 1:
    return prefixes[0]
  last = directory / 'checkpoint'
  named = re.search(
    r'^model_checkpoint_path: "(.*)"', last.read_text(encoding='utf-8') if last.exists() else '', re.MULTILINE
  )
  if named and directory / pathlib.Path(named.group(1)).name in prefixes:
    return directory / pathlib.Path(named.group(1)).name
  content = (
    f'{len(prefixes)} checkpoints, {", ".join(path.name for path in prefixes)}'
    if prefixes
    else 'no checkpoint (*.index)'
  )
  old = [] if prefixes else documents.match(directory, '*.ckpt*.meta')
  saver = 'tf.compat.v1.train.Saver writes it as NAME.index and NAME.data-*'
  fix = f': {old[0].stem} is in the format V1; read by TensorFlow, {saver}' if old else ''
  raise InputError(f'{directory}: got {content}; expected the files of one{fix}')


def _tensorflow() -> Any:
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')  # hides advice on unused CPU features
  try:
    import tensorflow
  except ImportError as error:
    raise InputError(
      f"reading checkpoints of TensorFlow needs TensorFlow, which cannot be imported ({error}); pip install 'lmx[tf]'"
    ) from None
  return tensorflow
