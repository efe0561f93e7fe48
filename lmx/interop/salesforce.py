"""Files that main.py of salesforce/awd-lstm-lm loads: [model, criterion, optimizer], modules saved whole.

The classes are the program's (model.py, weight_drop.py, splitcross.py) and torchqrnn's (salesforce/pytorch-qrnn); a
file has their names and attributes. The attributes of torch's own modules are those of PyTorch 1.0, which later
versions complete. awd_lstm.py reads the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lmx.interop.huggingface.awd_lstm import CLUSTERS
from lmx.interop.streamed import Lazy
from lmx.interop.torch_file import Foreign, module

_END = 100 * 1_000_000  # of the last cluster, splitcross.py
_LR = 30.0  # default of main.py


def files(cfg: Any, tensors: Mapping[str, Lazy], words: Sequence[str]) -> dict[str, Any]:
  """Return {file name: content for torch_file.write}.

  Args:
    cfg: Config of models/awd_lstm.py.
    tensors: tensors of huggingface/awd_lstm.py by name.
    words: the words; [] writes no dictionary.
  """
  parameters = _parameters(cfg, tensors)
  content = {'lmx.pt': [_model(cfg, parameters), _criterion(cfg, parameters), _optimizer(parameters)]}
  return content | ({'corpus.lmx.data': _corpus(words)} if words else {})


def modules(cfg: Any, tensors: Mapping[str, Lazy]) -> tuple[Foreign, Foreign]:
  """Return (RNNModel, SplitCrossEntropyLoss) as `files` writes them."""
  parameters = _parameters(cfg, tensors)
  return _model(cfg, parameters), _criterion(cfg, parameters)


def _parameters(cfg: Any, tensors: Mapping[str, Lazy]) -> dict[str, Foreign]:
  """Return the parameters by name; the tied one is the same object."""
  parameters = {name: Foreign('torch._utils._rebuild_parameter', (x, True, {})) for name, x in tensors.items()}
  return parameters | ({'decoder.weight': parameters['encoder.weight']} if cfg.tied else {})


def _model(cfg: Any, parameters: Mapping[str, Foreign]) -> Foreign:
  """Return an RNNModel."""
  table, output = parameters['encoder.weight'], parameters['decoder.weight']
  embedding = {'num_embeddings': cfg.V, 'embedding_dim': cfg.E, 'padding_idx': None, 'max_norm': None, 'norm_type': 2.0}
  layers = {str(i): (_qrnn if cfg.cell == 'qrnn' else _lstm)(cfg, parameters, i) for i in range(cfg.N)}
  drop = lambda rate: module('torch.nn.modules.dropout.Dropout', p=rate, inplace=False)
  children = {
    'lockdrop': module('locked_dropout.LockedDropout'),
    'idrop': drop(cfg.dropout_input),
    'hdrop': drop(cfg.dropout_hidden),
    'drop': drop(cfg.dropout_output),
    'encoder': module(
      'torch.nn.modules.sparse.Embedding', {'weight': table}, **embedding, scale_grad_by_freq=False, sparse=False
    ),
    'rnns': module('torch.nn.modules.container.ModuleList', {}, layers),
    'decoder': module(
      'torch.nn.modules.linear.Linear',
      {'weight': output, 'bias': parameters['decoder.bias']},
      in_features=cfg.D,
      out_features=cfg.V,
    ),
  }
  return module(
    'model.RNNModel',
    {},
    children,
    rnn_type=cfg.cell.upper(),
    ninp=cfg.E,
    nhid=cfg.D,
    nlayers=cfg.N,
    dropout=cfg.dropout_output,
    dropouti=cfg.dropout_input,
    dropouth=cfg.dropout_hidden,
    dropoute=cfg.dropout_embedding,
    tie_weights=cfg.tied,
  )


def _lstm(cfg: Any, parameters: Mapping[str, Foreign], i: int) -> Foreign:
  """Return layer i, an LSTM, with DropConnect if it has a rate."""
  own = {name: parameters[f'rnns.{i}.{name}'] for name in ('weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0')}
  rows, width = own['weight_ih_l0'].args[0].shape
  lstm = module(
    'torch.nn.modules.rnn.LSTM',
    own,
    mode='LSTM',
    input_size=width,
    hidden_size=rows // 4,
    num_layers=1,
    bias=True,
    batch_first=False,
    dropout=0.0,
    bidirectional=False,
    _all_weights=[[None]],  # names of its version, which torch fills in
  )
  return _dropped(lstm, 'weight_hh_l0', cfg.dropout_weight) if cfg.dropout_weight else lstm


def _qrnn(cfg: Any, parameters: Mapping[str, Foreign], i: int) -> Foreign:
  """Return layer i, a QRNNLayer."""
  own = {name: parameters[f'rnns.{i}.linear.{name}'] for name in ('weight', 'bias')}
  rows, width = own['weight'].args[0].shape
  window = 1 if i else 2
  linear = module('torch.nn.modules.linear.Linear', own, in_features=width, out_features=rows)
  return module(
    'torchqrnn.qrnn.QRNNLayer',
    {},
    {'linear': _dropped(linear, 'weight', cfg.dropout_weight)},
    window=window,
    input_size=width // window,
    hidden_size=rows // 3,
    zoneout=0,
    save_prev_x=True,
    prevX=None,
    output_gate=True,
    use_cuda=True,
  )


def _dropped(dropped: Foreign, weight: str, rate: float) -> Foreign:
  """Return a WeightDrop of a module, which keeps the weight as `.._raw`."""
  own = dropped.state['_parameters']
  own[f'{weight}_raw'] = own.pop(weight)
  made = module('weight_drop.WeightDrop', {}, {'module': dropped}, weights=[weight], dropout=rate, variational=False)
  if dropped.name.endswith('LSTM'):
    method = Foreign('__builtin__.getattr', (made, 'widget_demagnetizer_y2k_edition'))
    dropped.state['flatten_parameters'] = method
  return made


def _criterion(cfg: Any, parameters: Mapping[str, Foreign]) -> Foreign:
  """Return a SplitCrossEntropyLoss."""
  tails = {name.rpartition('.')[2]: parameters[name] for name in CLUSTERS} if cfg.cutoffs else {}
  return module(
    'splitcross.SplitCrossEntropyLoss',
    tails,
    hidden_size=cfg.E if cfg.tied else cfg.D,
    splits=[0, *cfg.cutoffs, _END],
    nsplits=len(cfg.cutoffs) + 1,
    stats=Foreign('collections.defaultdict', (Foreign('__builtin__.list'),)),
    verbose=False,
  )


def _optimizer(parameters: Mapping[str, Foreign]) -> Foreign:
  """Return an SGD in its first state, as main.py creates it."""
  options = {'lr': _LR, 'momentum': 0, 'dampening': 0, 'weight_decay': 0.0, 'nesterov': False}
  group = {'params': list({id(x): x for x in parameters.values()}.values()), **options}
  state = Foreign('collections.defaultdict', (Foreign('__builtin__.dict'),))
  return Foreign('torch.optim.sgd.SGD', state={'defaults': options, 'state': state, 'param_groups': [group]})


def _corpus(words: Sequence[str]) -> Foreign:
  """Return a Corpus with a dictionary and no text; its `tokenize` gives the ids of another text."""
  ids = {word: i for i, word in enumerate(words)}
  counter = Foreign('collections.Counter', ({},))
  dictionary = {'word2idx': ids, 'idx2word': list(words), 'counter': counter, 'total': 0}
  return Foreign('data.Corpus', state={'dictionary': Foreign('data.Dictionary', state=dictionary)})
