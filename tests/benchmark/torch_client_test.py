"""PyTorch's step in another interpreter: specifications, and the conversation."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from lmx.benchmark import peer as peer_lib
from lmx.benchmark import task as task_lib
from lmx.benchmark import torch_client, train_step
from lmx.errors import InputError


@pytest.mark.parametrize('name', train_step.PRESETS)
def test_presets_exist(name):
  preset = train_step.PRESETS[name]
  task, _ = task_lib.build_task(preset.model, preset.changes)
  assert task_lib.resolve_length(task, preset.batch, preset.length) == preset.length
  subject = train_step.Subject(name, task, preset.batch, preset.length, preset.optimizer, preset.clip, 1, None, None)
  spec = torch_client.spec(subject)
  assert (spec['V'], spec['D'], spec['batch']) == (task.cfg.V, task.cfg.D, preset.batch)
  kinds = {
    'gpt2': 'gpt2',
    'bert': 'bert',
    'rnn_lm': 'lstm',
    'awd_lstm': 'awd_lstm',
    'transformer': 'marian',
    'bahdanau': 'rnnsearch',
    'transformer_xl': 'transformer_xl',
    'xlnet': 'xlnet',
  }
  assert spec['kind'] == kinds[preset.model.split(':')[0]]


def test_peer_limitations_are_reported(peer):
  with peer_lib.Peer(peer) as program, pytest.raises(InputError, match='unlucky'):
    program.send({'kind': 'lstm', 'V': 13})
  with pytest.raises(InputError, match='cannot run the peer'):
    peer_lib.Peer('/no/such/python')
  with peer_lib.Peer(sys.executable) as program:
    program._process.kill()
    program._process.wait()
    with pytest.raises(InputError, match='ended before it answered'):
      program.send({'steps': 1})


def test_peer_has_model_width_and_tied_output():
  spec = lambda *changes: torch_client.spec(
    train_step.Subject('x', task_lib.build_task('gpt2:tiny', changes)[0], 1, 8, 'adamw', 1.0, 1, None, None)
  )
  assert spec('F=48')['F'] == 48 and 'F' not in spec()  # without it, 4 D
  with pytest.raises(InputError, match='model.tied: got False'):
    spec('tied=False')


def test_unequal_dropout_has_no_peer():
  task, _ = task_lib.build_task('gpt2:tiny', ['dropout_residual=0.1'])
  subject = train_step.Subject('x', task, 1, 8, 'adamw', 1.0, 1, None, None)
  with pytest.raises(ValueError, match='expected one rate'):
    torch_client.spec(subject)
  cfg = dataclasses.replace(task.cfg, dropout_residual=0.0)
  assert torch_client.spec(dataclasses.replace(subject, task=dataclasses.replace(task, cfg=cfg)))['dropout'] == 0.0
