"""AWD-LSTM checkpoints of fastai and salesforce/awd-lstm-lm, read without torch (torch_file.py).

fastai: a folder with one .pth (.h5 of fast.ai 0.7 is the same format) and one .pkl, its word list (itos). The .pth is a
state dict, or {'model': .., 'opt': ..}. Names as in 0.encoder.weight, 0.rnns.0.module.weight_ih_l0, 1.decoder.bias; the
copies 0.encoder_dp.emb.weight (0.7: 0.encoder_with_dropout.embed.weight) and 1.decoder.weight must equal the embedding.
If there is a `weight_hh_l0_raw`, `weight_hh_l0` is its copy after DropConnect and is skipped. A file of `save_encoder`
has no output. With "bwd" in the file or folder name, documents are read backwards (data.reverse). The files lack
dropout rates, so fastai's defaults apply (awd_lstm_lm_config). fastai_classifier.py adds the classifiers' head, and
reads the Learner of learn.export.

salesforce: a folder with one .pt, torch.save([model, criterion, optimizer]) of whole modules, only the model (as
finetune.py saves it), or its state dict; and, for the tokenizer, the corpus.*.data that main.py writes. The criterion
has the softmax clusters. Cell QRNN is read too (salesforce/pytorch-qrnn, torchqrnn/qrnn.py). salesforce.py writes this
format.
"""

from __future__ import annotations

import functools
import pathlib
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx import documents
from lmx.errors import InputError
from lmx.interop import fastai_classifier, huggingface, mapped, salesforce, torch_file, torch_modules
from lmx.interop.huggingface.entry import fields_of
from lmx.interop.huggingface.folder import CONFIG, Folder, whole
from lmx.interop.huggingface.word_vocabulary import Vocabulary
from lmx.interop.tensor_table import ABSENT, UNUSED, Row, repeated, unique

_FASTAI, _LEARNER, _SALESFORCE, _CORPUS = ('.pth', '.h5'), ('.pkl',), ('.pt',), 'corpus.*.data'
_COPIES = ('encoder_dp.emb.weight', 'encoder_with_dropout.embed.weight')
_RATES = dict(
  dropout_input=0.25, dropout_hidden=0.15, dropout_output=0.1, dropout_embedding=0.02, dropout_weight=0.2
)  # fastai 2.8, awd_lstm_lm_config
_DROPOUTS = {'dropout': 'output', 'dropouth': 'hidden', 'dropouti': 'input', 'dropoute': 'embedding'}  # of RNNModel
_PREFIX = r'^(0\.module|[01])\.(?=encoder|rnns|decoder|layers)'  # of the encoder, the output and a classifier's head
_WHOLE = 75_000  # main.py splits the softmax of a larger vocabulary


def is_release(directory: Any) -> bool:
  """Return True if a folder has such a file, and no weights of transformers."""
  directory = pathlib.Path(directory)
  if not directory.is_dir() or (directory / CONFIG).exists():
    return False
  if _files(directory, _FASTAI):
    return True
  if any(map(fastai_classifier.is_learner_file, _files(directory, _LEARNER))):
    return True
  paths = _files(directory, _SALESFORCE)
  if len(paths) != 1:
    return False
  content = torch_file.read(paths[0])
  with fields_of(paths[0]):
    return any(name.startswith('rnns.') for name in _contents(content)[0])


def read(directory: Any) -> Folder:
  """Read a release.

  Raises:
    InputError: a file is missing or damaged, or the model is not supported: another cell, two directions, a separate
      output matrix after a last layer of another width, or clusters that are not in the file.
  """
  directory = pathlib.Path(directory)
  paths = next((found for endings in (_FASTAI, _SALESFORCE, _LEARNER) if (found := _files(directory, endings))), [])
  if len(paths) != 1:
    raise InputError(f'{directory}: got {", ".join(path.name for path in paths)}; expected one file of weights')
  (path,) = paths
  released, content = path.suffix not in _SALESFORCE, torch_file.read(path)
  with fields_of(path):
    tensors, fields, names, unused = _contents(content)
    fields = (dict(_RATES) if released else {}) | fields | _sizes(tensors)
    _check_modules(content, fields)
  V = fields['V']
  if not released and 'cutoffs' not in fields and V > _WHOLE:
    raise InputError(
      f'{path}: got only the model, with {V:,} words; expected its criterion too, which has the clusters'
    )
  if 'decoder.weight' in tensors and 'decoder.bias' not in tensors:  # of fast.ai 0.7
    tensors['decoder.bias'], names['decoder.bias'] = np.zeros(V, np.float32), ABSENT
  backward = released and any('bwd' in name.lower() for name in (path.name, directory.resolve().name))
  folder = Folder('awd_lstm', fields, tensors, 'words', False, names=names, unused=unused)
  if any(name.startswith('layers.') for name in tensors):
    return _classifier(folder, directory, content, backward)
  data = {'batching': {'name': 'streams'}, 'reverse': backward}
  vocabulary = functools.partial(_vocabulary, directory, '*.pkl' if released else _CORPUS, V)
  return folder._replace(vocabulary=vocabulary, data=data)


def _classifier(folder: Folder, directory: pathlib.Path, content: Any, backward: bool) -> Folder:
  """Return the folder of a text classifier, given that of its encoder."""
  if backward:
    raise InputError(
      f'{directory}: got "bwd" in the name of a classifier; expected a forward one, which reads xxbos first; lmx reads '
      'no backward classifiers of fastai; rename it if it reads forwards'
    )
  tensors = dict(folder.tensors)
  counters = fastai_classifier.pop_counters(tensors, folder.names)
  learner = content if fastai_classifier.is_learner(content) else None
  parts = fastai_classifier.read(directory, learner, tensors)
  if len(parts.itos) != folder.fields['V']:
    raise InputError(f'{directory}: got {len(parts.itos):,} words; expected {folder.fields["V"]:,}, one per row')
  return folder._replace(
    fields=folder.fields | parts.fields,
    tensors=tensors,
    objective=parts.objective,
    labels=parts.labels,
    data=parts.data,
    vocabulary=lambda: Vocabulary(parts.itos, 'fastai'),
    note=parts.note,
    unused=[*folder.unused, *counters],
    head=parts.entries,
  )


def write(
  directory: Any, cfg: Any, params: Any, words: Sequence[str], backward: bool, classifier: Any = None
) -> list[str]:
  """Write a .pth that fastai 2 loads, or a .pt that salesforce's main.py loads, and the words; return their names.

  Args:
    directory: must not exist, or be empty.
    cfg: Config of models/awd_lstm.py.
    params: {'model': .., 'objective': ..}.
    words: the words under the format's names; [] writes none.
    backward: the model reads documents backwards.
    classifier: (the objective's Config, names of the classes) of a classifier.

  Raises:
    InputError: neither computes the same, or the directory cannot be written.
  """
  tensors = huggingface.lazy('awd_lstm', cfg, params)
  if is_fastai(cfg):
    contents = _fastai_files(tensors, params, words, backward, classifier)
  elif classifier:
    raise InputError(
      f'model: got cell={cfg.cell}, cutoffs={cfg.cutoffs}, tied={cfg.tied}; expected lstm, () and True: a classifier '
      'of fastai has no other encoder'
    )
  elif backward:
    raise InputError("data.reverse: got True; expected False; salesforce's main.py reads no text backwards")
  else:
    contents = salesforce.files(cfg, tensors, words)
  with whole(directory) as part:
    for name, content in contents.items():
      torch_file.write(part / name, content)
  return sorted(contents)


def is_fastai(cfg: Any) -> bool:
  """Return True if fastai's AWD_LSTM computes the same as a Config; salesforce's RNNModel computes them all."""
  return cfg.cell == 'lstm' and not cfg.cutoffs and (cfg.tied or cfg.D == cfg.E)


def _fastai_files(tensors: Mapping[str, Any], params: Any, itos: Sequence[str], backward: bool, classifier: Any) -> Any:
  """Return {file name: content} of fastai's files."""
  content: dict[str, Any] = {}
  encoder = '0.module' if classifier else '0'
  for name, x in tensors.items():
    part, _, rest = name.partition('.')
    if part == 'decoder':
      content |= {} if classifier else {f'1.{name}': x}
    elif part != 'rnns':
      content[f'{encoder}.{name}'] = x
    elif rest.endswith('weight_hh_l0'):  # DropConnect reads it
      content[f'{encoder}.rnns.{rest}_raw'] = x
    else:
      content[f'{encoder}.rnns.{rest.replace(".", ".module.", 1)}'] = x
  content[f'{encoder}.encoder_dp.emb.weight'] = tensors['encoder.weight']
  stem = 'lmx_bwd' if backward else 'lmx_fwd'
  if not classifier:
    return {f'{stem}.pth': content} | ({f'{stem}_itos.pkl': list(itos)} if itos else {})
  if backward:
    raise InputError('data.reverse: got True; expected False: a backward classifier of fastai reads xxbos last')
  objective, labels = classifier
  content |= fastai_classifier.content(objective, params['objective'])
  return {f'{stem}.pth': content} | ({f'{stem}_vocab.pkl': [list(itos), list(labels)]} if itos else {})


def _files(directory: pathlib.Path, endings: Sequence[str]) -> list[pathlib.Path]:
  return [directory / name for name in documents.list_names(directory) if pathlib.Path(name).suffix in endings]


def _contents(content: Any) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[str, str], list[Row]]:
  """Return (tensors under the names of huggingface/awd_lstm.py, fields that the file has, `Folder.names`, unused)."""
  fields: dict[str, Any] = {}
  if isinstance(content, dict) and 'model' in content and set(content) <= {'model', 'opt'}:
    content = content['model']
  if fastai_classifier.is_learner(content):
    content = torch_file.tensors(fastai_classifier.model(content))
  if isinstance(content, torch_file.Foreign) and content.name.endswith('.RNNModel'):  # of finetune.py
    content = [content]
  if isinstance(content, (list, tuple)) and content:
    model, *others = content
    content, fields = torch_file.tensors(model), _dropouts(model)
    if others:
      criterion: Any = others[0]
      content |= torch_file.tensors(criterion, 'criterion.')
      fields['cutoffs'] = _cutoffs(criterion.state.get('splits', []))
  if not torch_file.are_tensors(content):
    raise InputError(f'got a {type(content).__name__}; expected the tensors or modules of an AWD-LSTM')
  tensors, names, unused = _renamed(content)
  return tensors, fields, names, unused


def _cutoffs(splits: Any) -> tuple[int, ...]:
  """Return the first token of each cluster but the first; a loss of no splits is a whole softmax."""
  if not isinstance(splits, list) or not all(type(n) is int for n in splits):
    raise InputError(f'splits of the criterion: got {splits!r:.60}; expected a list of integers')
  return tuple(splits[1:-1])


def _dropouts(model: Any) -> dict[str, Any]:
  """Return the dropout rates of an RNNModel."""
  fields = {f'dropout_{ours}': model.state[name] for name, ours in _DROPOUTS.items() if name in model.state}
  layers = _parts(_parts(model).get('rnns')).values()
  wrapped: list[Any] = [
    one for layer in layers for one in (layer, _parts(layer).get('linear')) if 'module' in _parts(one)
  ]
  return fields | {'dropout_weight': wrapped[0].state.get('dropout', 0.0) if wrapped else 0.0}


def _check_modules(content: Any, fields: Mapping[str, Any]) -> None:
  """Raise InputError if modules of salesforce compute something else than the fields do."""
  modules: list[Any] = list(content) if isinstance(content, (list, tuple)) else [content]
  if not isinstance(modules[0], torch_file.Foreign) or fastai_classifier.is_learner(content):
    return
  first = _parts(_parts(modules[0]).get('rnns')).get('0')
  is_wrapped = fields['cell'] == 'lstm' and 'module' in _parts(first)  # whatever its rate is
  rates = dict.fromkeys(('dropout_output', 'dropout_hidden', 'dropout_input', 'dropout_embedding'), 0.0)
  settings = {'cutoffs': (), **rates, **fields, 'dropout_weight': float(is_wrapped)}
  cfg = types.SimpleNamespace(**settings)
  for theirs, ours in zip(modules, salesforce.modules(cfg, huggingface.empty('awd_lstm', cfg)), strict=False):
    if theirs is modules[0] or 'splits' in theirs.state:  # a whole softmax may have another loss
      torch_modules.check(theirs, ours)


def _parts(module: Any) -> Mapping[str, Any]:
  """Return the modules of a module by name."""
  return {} if module is None else module.state['_modules']


def _renamed(tensors: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, str], list[Row]]:
  """Return (tensors without the prefixes of fastai and DropConnect and without copies, `Folder.names`, unused)."""
  original, unused = unique(
    tensors, lambda name: re.sub(r'^(0\.module|[01])\.(?=encoder|rnns|decoder|layers)', '', name)
  )
  found = {name: tensors[theirs] for name, theirs in original.items()}
  raw = {name.removesuffix('_raw').replace('.module.', '.') for name in found if name.endswith('_raw')}
  renamed: dict[str, np.ndarray] = {}
  names: dict[str, str] = {}
  for name, x in found.items():
    plain = name.replace('.module.', '.')
    reason = 'repeats encoder.weight' if name in _COPIES else 'what DropConnect left of it' if plain in raw else ''
    if name in _COPIES and not mapped.are_equal(x, found.get('encoder.weight', x)):
      raise InputError(f'{name}: got other values than encoder.weight; expected a copy')
    if reason:
      unused.append(Row(UNUSED, original[name], x.shape, x.dtype.name, reason))
    elif (ours := plain.removesuffix('_raw')) in renamed:
      unused.append(repeated(original[name], x, names[ours], renamed[ours]))
    else:
      renamed[ours], names[ours] = x, original[name]
  return renamed, names, unused


def _sizes(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Return the sizes among the fields of models/awd_lstm.py's Config."""
  V, E = _matrix(tensors, 'encoder.weight').shape
  numbers = [int(match[1]) for name in tensors if (match := re.match(r'rnns\.([0-9]{1,3})\.', name))]
  N, cell = max(numbers, default=0) + 1, 'qrnn' if any('.linear.' in name for name in tensors) else 'lstm'
  outputs = [_outputs(tensors, i, cell) for i in (0, N - 1)]
  decoder, table = tensors.get('decoder.weight'), tensors['encoder.weight']
  tied = decoder is None or mapped.are_equal(decoder, table)
  if decoder is not None and not tied and (decoder.shape != (V, outputs[0]) or outputs[0] != outputs[1]):
    what = 'other values than encoder.weight' if decoder.shape == table.shape else f'shape {decoder.shape}'
    raise InputError(
      f'tensor "decoder.weight": got {what}; expected a copy of encoder.weight, or {(V, outputs[0])} behind layers of '
      f'one width; these have {outputs[0]} and the last {outputs[1]}'
    )
  D = E if tied and N == 1 else outputs[0]
  return {'V': V, 'E': E, 'D': D, 'N': N, 'cell': cell, 'tied': tied}


def _outputs(tensors: Mapping[str, np.ndarray], i: int, cell: str) -> int:
  """Return the width of a layer; raise InputError if it is of another cell or has two directions."""
  if (reverse := f'rnns.{i}.weight_hh_l0_reverse') in tensors:
    raise InputError(
      f'tensor "{reverse}": got a bidirectional layer; expected one direction; lmx supports no others; '
      'choose weights that were trained so'
    )
  if cell == 'qrnn':
    return len(_matrix(tensors, f'rnns.{i}.linear.weight')) // 3
  rows, width = _matrix(tensors, name := f'rnns.{i}.weight_hh_l0').shape
  if rows != 4 * width:
    raise InputError(f'tensor "{name}": got shape {(rows, width)}; expected {(4 * width, width)}, an LSTM of one layer')
  return width


def _matrix(tensors: Mapping[str, np.ndarray], name: str) -> np.ndarray:
  """Return a matrix by name; raise InputError if it is missing or not a matrix."""
  if name not in tensors:
    raise InputError(
      f'tensor "{name}": missing; expected those of an AWD-LSTM; it has {", ".join(sorted(tensors)[:8])}'
    )
  if tensors[name].ndim != 2 or not tensors[name].size:
    raise InputError(f'tensor "{name}": got shape {tensors[name].shape}; expected a matrix')
  return tensors[name]


def _vocabulary(directory: pathlib.Path, pattern: str, V: int) -> Vocabulary:
  """Return the word list in the weights' folder.

  Raises:
    InputError: there is no such file, or it does not have V words.
  """
  paths = documents.match(directory, pattern)
  if len(paths) != 1:
    got = ', '.join(path.name for path in paths) or 'none'
    raise InputError(f'{directory}: got {got}; expected one {pattern}; --tokenizer=none imports only the model')
  content = torch_file.read(paths[0])
  for name in ('dictionary', 'idx2word') if pattern == _CORPUS else ('items', 'itos'):
    if isinstance(content, torch_file.Foreign) and isinstance(content.state, dict):
      content = content.state.get(name, content)
  if not isinstance(content, list) or not all(isinstance(word, str) for word in content):
    raise InputError(f'{paths[0]}: got no word list; --tokenizer=none imports only the model')
  if len(content) != V:
    raise InputError(f'{paths[0]}: got {len(content):,} words; expected {V:,}, one per row of encoder.weight')
  return Vocabulary(content, 'lines' if pattern == _CORPUS else 'fastai')
