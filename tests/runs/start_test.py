"""What a run says of parameters that nothing gives and nothing trains; tests/runs/restore_test.py takes them."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest

from lmx.config import resolve
from lmx.errors import InputError, InputWarning
from lmx.runs import init, start, transfer

FROZEN = (('^model/bilm/', 0.0, 0.0), ('.*', 1.0, 1.0))


def check(taken=None, **sections):
  model = {'name': 'bilstm', 'variant': 'tiny', 'elmo': 'input'}
  data = {'dataset': 'embedded_topics', 'tokenizer': 'words', 'batching': 'documents', 'characters': 12}
  sections.setdefault('train', {})['steps'] = 1
  run = resolve.to_run(
    resolve.resolve({'model': model, 'objective': {'name': 'classify', 'classes': 3}, 'data': data, **sections}), 61
  )
  shapes = jax.eval_shape(lambda key: init.init_params(run, key), jax.random.key(0))
  return start.check_untrained(run, shapes, shapes if taken else {})


def test_frozen_part_of_a_run_that_is_not_named_is_rejected():
  parts = {'init_parts': ('model=model/bilm',)}
  with pytest.raises(InputError, match=r'train.init_from: got none'):
    check(optim={'groups': FROZEN}, train=parts)
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    check(taken=True, optim={'groups': FROZEN}, train=parts)  # all are given
    check(train=parts)  # all are trained


def test_random_parameters_that_are_never_trained_are_reported():
  with pytest.warns(InputWarning, match=r'optim.groups: learning rate 0 for model/embed/table'):
    check(optim={'groups': (('^model/embed/table$', 0.0, 0.0), ('.*', 1.0, 1.0))})


def test_parts_to_take_are_advised_by_what_two_runs_share():
  table, kernel = {'model/embed/table': np.zeros((5, 4))}, {'model/layer_00/kernel': np.zeros((4, 4))}
  head, other = {'objective/kernel': np.zeros((4, 2))}, {'model/layer_00/kernel': np.zeros((4, 5))}
  of_bilm = {'model/bilm/embed/table': np.zeros((5, 4)), **kernel, **head}
  cases = [
    ({**table, **kernel, **head}, {**table, **kernel}, "('model',)"),
    (of_bilm, table, "('model=model/bilm',)"),
    ({**table, **kernel, **head}, {**table, **other}, "('model/embed',)"),
    ({**table, **kernel}, other, ''),
  ]
  for ours, theirs, parts in cases:
    wanted = f'set train.init_parts="{parts}"' if parts else 'choose another run'
    assert transfer._advice(ours, theirs).startswith(wanted), (ours, theirs)
