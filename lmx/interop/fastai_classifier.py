"""Text classifiers of fastai 2, text_classifier_learner(dls, AWD_LSTM): the third stage of ULMFiT.

A folder has the weights of learn.save (.pth) and its words and classes (.pkl): a pickle of dls.vocab, of a list of the
two lists, or the Learner of learn.export. The Learner alone has the weights too. It also has the window (bptt), the
length that is pooled (max_len) and the dropout rates; a .pth has none of them, so fastai's defaults apply.

The head is `PoolingLinearClassifier`: blocks of batch normalisation, dropout and a linear layer without bias, with ReLU
between them. Names as in 1.layers.0.0.running_mean and 1.layers.0.2.weight; the linear layer has number 1 without
dropout. lmx/objectives/rows.py computes it. A text begins with xxbos, here the start symbol of data.batching
"documents". A backward classifier reads xxbos last, so it is refused.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx.errors import InputError
from lmx.interop import torch_file, torch_modules
from lmx.interop.huggingface.entry import Entry, fields_of, show
from lmx.interop.tensor_table import UNUSED, Row

_NORM = {'scale': 'weight', 'bias': 'bias', 'mean': 'running_mean', 'variance': 'running_var'}
_LINEAR = 2  # number of the linear layer in a block with dropout
_WINDOW, _POOLED = 72, 1440  # seq_len and max_len of text_classifier_learner
# awd_lstm_clas_config times drop_mult, 0.5
_RATES = dict(dropout_input=0.2, dropout_hidden=0.15, dropout_output=0.2, dropout_embedding=0.025, dropout_weight=0.25)
_HEAD_RATES = dict(dropout_pooled=0.2, dropout_head=0.1)
_BEGIN = 1 << 10  # bytes in which the class of a Learner is named
_LONGEST = 128  # windows of the longest row
_RULES = (
  'fix_html',
  'replace_rep',
  'replace_wrep',
  'spec_add_spaces',
  'rm_useless_spaces',
  'replace_all_caps',
  'replace_maj',
  'lowercase',
)  # defaults.text_proc_rules
_OPTIONS = dict(eps=1e-5, max_norm=None, num_layers=1, bidirectional=False)  # of modules of a Learner
_LOSSES = ('CrossEntropyLossFlat', 'LabelSmoothingCrossEntropyFlat', 'LabelSmoothingCrossEntropy', 'FocalLossFlat')
_HINT = 'save_pickle("vocab.pkl", dls.vocab) writes it'


class Classifier(NamedTuple):
  """Parts of a classifier's `Folder`.

  Attributes:
    entries: entries of the head's parameters.
    fields: dropout rates of the encoder.
    objective: the `objective` section.
    data: fields of the `data` section.
    labels: names of the classes.
    itos: fastai's word list.
    note: line for the user on settings that are not in the files.
  """

  entries: list[Entry]
  fields: dict[str, Any]
  objective: dict[str, Any]
  data: dict[str, Any]
  labels: tuple[str, ...]
  itos: list[str]
  note: str


def is_learner_file(path: pathlib.Path) -> bool:
  """Return True if a file begins as one of learn.export, whose first name is the Learner's class."""
  if not path.is_file():
    return False
  with open(path, 'rb') as file:
    begin = file.read(_BEGIN)
  return b'fastai.' in begin and b'Learner' in begin


def is_learner(content: Any) -> bool:
  """Return True for a Learner that learn.export wrote."""
  return isinstance(content, torch_file.Foreign) and content.name.startswith('fastai.') and 'Learner' in content.name


def model(learner: torch_file.Foreign) -> torch_file.Foreign:
  """Return a Learner's model. Raises InputError if it has none."""
  found = learner.state.get('model') if isinstance(learner.state, dict) else None
  if not isinstance(found, torch_file.Foreign):
    raise InputError(f'model of the Learner: got {show(found)}; expected a SequentialRNN of text_classifier_learner')
  return found


def pop_counters(tensors: dict[str, np.ndarray], names: Mapping[str, str]) -> list[Row]:
  """Remove batch counters from the tensors; return their rows."""
  counters = [name for name in tensors if re.fullmatch(r'layers\.\d+\.0\.num_batches_tracked', name)]
  popped = [(name, tensors.pop(name)) for name in counters]
  return [Row(UNUSED, names[name], x.shape, x.dtype.name, 'a counter') for name, x in popped]


def read(directory: pathlib.Path, learner: Any, tensors: Mapping[str, np.ndarray]) -> Classifier:
  """Return the parts of a classifier.

  Args:
    directory: the folder.
    learner: the Learner that has the weights; None for a .pth.
    tensors: tensors under the names of a .pth without `0.module.` and `1.`.

  Raises:
    InputError: the words or classes are missing, or the classifier is of another kind.
  """
  paths = sorted(path for path in directory.iterdir() if path.suffix == '.pkl')
  if len(paths) != 1:
    got = ', '.join(path.name for path in paths) or 'none'
    raise InputError(f'{directory}: got {got}; expected one .pkl with the words and classes; {_HINT}')
  (path,) = paths
  content: Any = learner or torch_file.read(path)
  with fields_of(path):
    itos, labels = _vocabulary(content)
    widths, linear = _widths(tensors)
    if widths[-1] != len(labels):
      raise InputError(f'got {len(labels):,} classes; expected {widths[-1]:,}, the outputs of the head')
    settings = _settings(content, len(linear)) if is_learner(content) else _defaults()
  fields, own, note = settings
  objective = {'name': 'classify', 'pooling': 'concat', 'head': tuple(widths[1:-1]), 'head_bias': False, **own}
  window = objective['bptt']
  batching = {'name': 'documents', 'buckets': tuple(window * 2**i for i in range(_LONGEST.bit_length() - 1))}
  data = {'batching': batching, 'length': window * _LONGEST}
  return Classifier(entries(widths, linear), fields, objective, data, labels, itos, note)


def entries(widths: Sequence[int], linear: Sequence[int]) -> list[Entry]:
  """Return the entries of a head.

  Args:
    widths: the head's widths, from the pooled features to the classes.
    linear: number of the linear layer of each block.
  """
  found = []
  keep, turn = (lambda x: x), (lambda x: x.T)
  for i, number in enumerate(linear):
    path, D = ('objective', f'block_{i}'), widths[i]
    for ours, theirs in _NORM.items():
      found.append(Entry((*path, 'norm', ours), (f'layers.{i}.0.{theirs}',), (D,), keep, lambda x: (x,)))
    name, shape = f'layers.{i}.{number}.weight', (widths[i + 1], D)
    found.append(Entry((*path, 'kernel'), (name,), shape, turn, lambda x: (x.T,)))
  return found


def content(objective: Any, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Return the head's tensors by name, with biases of linear layers moved into the batch normalisation before them.

  Args:
    objective: Config of objectives/classify.py.
    params: params['objective'] of the run.

  Raises:
    InputError: fastai's head does not compute the same.
  """
  for field, value, expected in (
    ('pooling', objective.pooling, 'concat'),
    ('activation', objective.activation, 'relu'),
    ('normalize', objective.normalize, True),
    ('features', objective.features, 'last'),
    ('lstm_layers', objective.lstm_layers, 0),
  ):
    if value != expected:
      raise InputError(f'objective.{field}: got {value}; expected {expected}, as in fastai')
  if objective.pooled_length and not objective.bptt:
    raise InputError('objective.bptt: got 0 with objective.pooled_length; expected a window, as in fastai')
  blocks = _without_biases([params[f'block_{i}'] for i in range(len(objective.head) + 1)])
  widths = [len(blocks[0]['kernel']), *(block['kernel'].shape[1] for block in blocks)]
  found: dict[str, np.ndarray] = {}
  for entry in entries(widths, [_LINEAR] * len(blocks)):
    x: Any = blocks[int(entry.path[1].removeprefix('block_'))]
    for part in entry.path[2:]:
      x = x[part]
    found[f'1.{entry.names[0]}'] = np.ascontiguousarray(entry.save(np.asarray(x, np.float32))[0])
  return found


def _without_biases(blocks: Sequence[Any]) -> list[Any]:
  """Return blocks that compute the same without the biases b of their linear layers W.

  x of W^T x = b is added to the bias of the norm before. Without such an x, a unit is added before W that is always 1,
  and its weights are b.
  """
  done: list[Any] = []
  for i, block in enumerate(blocks):
    norm, W, b = block['norm'], np.asarray(block['kernel'], np.float64), np.asarray(block.get('bias', 0.0), np.float64)
    x = np.linalg.lstsq(W.T, np.broadcast_to(b, W.shape[1]), rcond=None)[0] if b.any() else 0.0
    if b.any() and not np.allclose(x @ W, b, rtol=0, atol=1e-6 * max(np.abs(b).max(), 1e-3)):
      if not i:
        raise InputError(
          f'objective.head_bias: got True with {W.shape[1]} outputs of {W.shape[0]} inputs; expected False, because '
          "fastai's linear layers have no bias and this one cannot be moved into the batch normalisation"
        )
      before, x = done[-1], 0.0
      done[-1] = {**before, 'kernel': np.pad(before['kernel'], ((0, 0), (0, 1)))}
      W = np.concatenate([W, b[None]])
      norm = {name: np.append(y, float(name != 'mean')) for name, y in norm.items()}
    done.append({'kernel': W, 'norm': {**norm, 'bias': np.asarray(norm['bias'], np.float64) + x}})
  return done


def _widths(tensors: Mapping[str, np.ndarray]) -> tuple[list[int], list[int]]:
  """Return (the head's widths, number of the linear layer of each block)."""
  matches = [re.fullmatch(r'layers\.(\d{1,3})\.([12])\.weight', name) for name in tensors]
  found = {int(match[1]): (int(match[2]), tensors[match[0]].shape) for match in matches if match}
  if sorted(found) != list(range(len(found))) or not found or any(len(shape) != 2 for _, shape in found.values()):
    got = ', '.join(sorted(name for name in tensors if name.startswith('layers.'))[:8])
    raise InputError(f'got a head of {got}; expected 1.layers.0.2.weight and so on, a classifier of fastai 2')
  shapes = [found[i][1] for i in range(len(found))]
  return [shapes[0][1], *(outputs for outputs, _ in shapes)], [found[i][0] for i in range(len(found))]


def _vocabulary(content: Any) -> tuple[list[str], tuple[str, ...]]:
  """Return (words, classes) of a pickle."""
  if is_learner(content):
    parts = {name.rpartition('.')[2]: x for x in _objects(content.state.get('dls')) for name in [x.name]}
    if 'MultiCategorize' in parts or 'Categorize' not in parts or 'Numericalize' not in parts:
      raise InputError('dls of the Learner: expected a TextBlock and a CategoryBlock; lmx reads no other classifiers')
    content = [parts[name].state.get('vocab') for name in ('Numericalize', 'Categorize')]
  both = [_plain(x) for x in _plain(content) or ()]
  if len(both) != 2 or not all(isinstance(x, list) for x in both) or not all(type(word) is str for word in both[0]):
    raise InputError(f'got {show(_plain(content))}; expected the lists of words and of classes; {_HINT}')
  itos, classes = both
  if any(type(name) not in (str, int, bool, float) for name in classes) or len({*map(str, classes)}) < len(classes):
    raise InputError(f'classes: got {show(classes)}; expected different texts or numbers')
  if len(classes) < 2:
    raise InputError(f'classes: got {show(classes)}; expected at least two')
  return itos, tuple(map(str, classes))


def _plain(x: Any) -> Any:
  """Return a list for fastai's collections."""
  while isinstance(x, torch_file.Foreign) and isinstance(x.state, dict) and 'items' in x.state:
    x = x.state['items']
  return list(x) if isinstance(x, (list, tuple)) else None


def _objects(root: Any) -> Iterator[torch_file.Foreign]:
  """Yield the objects that are reachable from one, each once."""
  waiting, seen = [root], set()
  while waiting:
    x = waiting.pop()
    if id(x) in seen:
      continue
    seen.add(id(x))
    if isinstance(x, torch_file.Foreign):
      yield x
      waiting += [x.args, x.state, x.items]
    elif isinstance(x, dict):
      waiting += x.values()
    elif isinstance(x, (list, tuple)):
      waiting += x


def _defaults() -> tuple[dict[str, Any], dict[str, Any], str]:
  note = (
    f'seq_len ({_WINDOW}), max_len ({_POOLED:,}) and the dropout rates are the defaults of text_classifier_learner, '
    'because a .pth has none; if the classifier had others, set --config.objective.bptt and '
    '--config.objective.pooled_length; nor has a .pth a y_range, whose sigmoid lmx does not compute'
  )
  return dict(_RATES), {'bptt': _WINDOW, 'pooled_length': _POOLED, **_HEAD_RATES}, note


def _settings(learner: Any, blocks: int) -> tuple[dict[str, Any], dict[str, Any], str]:
  """Return (dropout rates of the encoder, fields of the objective, '') of a Learner.

  Raises:
    InputError: the Learner has another loss, head, tokenizer or direction.
  """
  loss = learner.state.get('loss_func')
  if getattr(loss, 'name', '').rpartition('.')[2] not in _LOSSES:
    raise InputError(f'loss_func: got {getattr(loss, "name", show(loss))}; expected one of {", ".join(_LOSSES)}')
  objects = {x.name: x for x in _objects(learner.state.get('dls'))}
  if 'fastai.text.data.reverse_text' in objects:
    raise InputError('got a classifier that reads backwards; expected a forward one, which reads xxbos first')
  tokenizer = objects.get('fastai.text.core.Tokenizer')
  rules = tokenizer and [
    getattr(rule, 'name', '').rpartition('.')[2] for rule in _plain(tokenizer.state['rules']) or ()
  ]
  if 'fastai.text.core.SpacyTokenizer' not in objects or rules != [*_RULES]:
    raise InputError(f"tokenizer: got rules {show(rules)}; expected SpacyTokenizer with fastai's default rules")
  try:
    encoder, head = (model(learner).state['_modules'][name] for name in '01')
    lstm, layers = encoder.state['_modules']['module'].state, head.state['_modules']['layers'].state['_modules']
    parts = {name: lstm['_modules'][name].state for name in ('encoder_dp', 'input_dp')}
    rates = [next((y.state['p'] for y in x.state['_modules'].values() if 'p' in y.state), 0.0) for x in layers.values()]
    window, pooled = encoder.state['bptt'], encoder.state['max_len'] or 0
    fields = {
      'dropout_input': parts['input_dp']['p'],
      'dropout_embedding': parts['encoder_dp']['embed_p'],
      'dropout_hidden': lstm['_modules']['hidden_dps'].state['_modules']['0'].state['p'],
      'dropout_weight': lstm['_modules']['rnns'].state['_modules']['0'].state['weight_p'],
    }
  except (KeyError, TypeError, AttributeError) as error:
    raise InputError(f'model of the Learner: {error}: missing; expected an AWD_LSTM of fastai 2') from None
  torch_modules.check_options(model(learner), _OPTIONS, 'ReLU')
  if len(layers) != blocks:
    raise InputError(f'head: got {len(layers)} layers; expected {blocks}, without a y_range')
  own = {'bptt': window, 'pooled_length': pooled, 'dropout_pooled': rates[0], 'dropout_head': rates[-1]}
  if any(type(x) not in (int, float) or x < 0 for x in (*own.values(), *fields.values())) or window < 1:
    raise InputError(f'model of the Learner: got {show(own | fields)}; expected numbers from 0')
  return fields | {'dropout_output': 0.0}, own, ''
