"""PyTorch's training step in another interpreter, which runs `torch_step.py`: its specification and its process."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
from typing import Any

from lmx import host
from lmx.errors import InputError

_DROPOUT = {  # fields that correspond to the peer's one dropout rate
  'gpt': ('dropout_embedding', 'dropout_attention', 'dropout_residual'),
  'gpt2': ('dropout_embedding', 'dropout_attention', 'dropout_residual'),
  'bert': ('dropout_hidden', 'dropout_attention'),
  'rnn_lm': ('dropout',),
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


class Peer:
  """PyTorch's process, as a context manager."""

  def __init__(self, python: str):
    program = pathlib.Path(__file__).with_name('torch_step.py')
    try:
      self._process = subprocess.Popen(
        [python, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_plain_environment()
      )
    except OSError as error:
      raise InputError(f'cannot run the peer {python}: {error}') from None
    self._input: Any = self._process.stdin
    self._output: Any = self._process.stdout

  def __enter__(self) -> Peer:
    return self

  def __exit__(self, *_: Any) -> None:
    with contextlib.suppress(BrokenPipeError):  # it may have ended already
      self._input.close()
    self._process.wait(timeout=60)

  def send(self, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request and return the answer; raise InputError with the peer's error message."""
    try:
      self._input.write(json.dumps(request) + '\n')
      self._input.flush()
      line = self._output.readline()
    except BrokenPipeError:
      line = ''
    if not line:
      raise InputError('the peer ended before it answered; its output is above')
    answer = json.loads(line)
    if 'error' in answer:
      raise InputError(f'the peer cannot do this: {answer["error"]}')
    return answer


def _plain_environment() -> dict[str, str]:
  """Return the environment without this interpreter's module path, which the peer must not use."""
  return {k: v for k, v in os.environ.items() if k not in ('PYTHONPATH', 'PYTHONHOME')}
