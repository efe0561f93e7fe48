"""The specification of a training step for PyTorch in another interpreter, which runs `torch_step.py`."""

from __future__ import annotations

from typing import Any

from lmx import host
from lmx.errors import InputError

_DROPOUT = {  # fields that correspond to the peer's one dropout rate
  'gpt': ('dropout_embedding', 'dropout_attention', 'dropout_residual'),
  'gpt2': ('dropout_embedding', 'dropout_attention', 'dropout_residual'),
  'bert': ('dropout_hidden', 'dropout_attention'),
  'rnn_lm': ('dropout',),
}

_CLASSES = {  # of transformers; the other models are made of torch.nn
  'gpt2': 'GPT2LMHeadModel',
  'bert': 'BertForPreTraining',
  'transformer': 'MarianMTModel',
  'xlnet': 'XLNetLMHeadModel',
}


def spec(subject: Any) -> dict[str, Any]:
  """Return the specification of a `train_step.Subject` for the peer.

  Raises:
    InputError: the peer has no such model, or not these dropout rates.
  """
  cfg, name = subject.task.cfg, subject.task.model.__name__.rsplit('.', 1)[-1]
  if name == 'awd_lstm' and cfg.cell == 'lstm' and cfg.tied and not cfg.cutoffs:
    return _awd_lstm_spec(subject)
  if name == 'transformer' and cfg.norm == 'post' and cfg.encoder_layers == cfg.decoder_layers:
    return _translator_spec(subject, 'marian', cfg.dropout) | {'N': cfg.encoder_layers, 'H': cfg.H, 'F': cfg.F}
  if name == 'bahdanau' and (cfg.cell, cfg.score, cfg.N) == ('gru', 'additive', 2):
    return _translator_spec(subject, 'rnnsearch', 0.0) | {field: getattr(cfg, field) for field in ('E', 'A', 'maxout')}
  if name == 'xlnet' or (name == 'transformer_xl' and not cfg.untie and cfg.positions == 'sinusoids'):
    return _with_memory_spec(subject, name)
  if name not in _DROPOUT:
    others = (
      'awd_lstm (LSTM, tied, without cutoffs)',
      'transformer (post-norm)',
      'bahdanau (cell gru)',
      'xlnet',
      'transformer_xl (sinusoids, untie=false)',
    )
    raise InputError(f'the peer has no model "{name}" like this one; it has {", ".join([*_DROPOUT, *others])}')
  rates = {getattr(cfg, field) for field in _DROPOUT[name]}
  optimizer = {'bert_adam': 'adamw'}.get(subject.optimizer, subject.optimizer)
  if len(rates) > 1:
    raise InputError(f'dropout rates of {name}: got {sorted(rates)}; expected one rate, as the peer has')
  if name != 'rnn_lm' and not cfg.tied:
    raise InputError(f'model.tied: got False; expected True, because the peer ties the output matrix of {name}')
  names = ('V', 'E', 'D', 'N', 'tied') if name == 'rnn_lm' else ('V', 'D', 'N', 'H')
  return {
    'kind': cfg.cell if name == 'rnn_lm' else name,
    **{field: getattr(cfg, field) for field in names},
    **({'F': cfg.F} if getattr(cfg, 'F', 0) else {}),
    'dropout': rates.pop(),
    'batch': subject.batch,
    'length': subject.length,
    'optimizer': optimizer,
    'clip': subject.clip or 1e9,  # the peer always clips; this bound has no effect
    'threads': host.cores(),
  }


def _translator_spec(subject: Any, kind: str, dropout: float) -> dict[str, Any]:
  cfg = subject.task.cfg
  return {
    'kind': kind,
    'V': cfg.V,
    'D': cfg.D,
    'dropout': dropout,
    'batch': subject.batch,
    'length': subject.length,
    'optimizer': subject.optimizer,
    'clip': subject.clip or 1e9,
    'threads': host.cores(),
  }


def _with_memory_spec(subject: Any, kind: str) -> dict[str, Any]:
  cfg = subject.task.cfg
  fields = ('N', 'H', 'F', 'M') + (('cutoffs', 'div_val') if kind == 'transformer_xl' else ('reuse',))
  return _translator_spec(subject, kind, cfg.dropout) | {field: getattr(cfg, field) for field in fields}


def _awd_lstm_spec(subject: Any) -> dict[str, Any]:
  cfg = subject.task.cfg
  rates = ('input', 'hidden', 'output', 'embedding', 'weight')
  return {
    'kind': 'awd_lstm',
    **{field: getattr(cfg, field) for field in ('V', 'E', 'D', 'N', 'alpha', 'beta')},
    'dropout': {rate: getattr(cfg, f'dropout_{rate}') for rate in rates},
    'batch': subject.batch,
    'length': subject.length,
    'optimizer': subject.optimizer,
    'clip': subject.clip or 1e9,
    'threads': host.cores(),
  }


def packages(subject: Any) -> tuple[str, ...]:
  """Return the packages that the peer of a `train_step.Subject` needs, see `peer.choose`."""
  name = subject.task.model.__name__.rsplit('.', 1)[-1]
  if name == 'transformer_xl':
    return 'torch', 'transformers.models.deprecated.transfo_xl:TransfoXLLMHeadModel'
  return ('torch', f'transformers:{_CLASSES[name]}') if name in _CLASSES else ('torch',)
