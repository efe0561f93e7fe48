"""Values of a config are checked by the schema of their field: counts, types and ranges, down to nested elements."""

from __future__ import annotations

import json

import pytest

from lmx import cast
from lmx.config import resolve
from lmx.errors import InputError

SMALL = {'model': {'name': 'rnn_lm', 'variant': 'tiny'}, 'train': {'steps': 3}}


@pytest.mark.parametrize(
  ('override', 'message'),
  [
    ("optim.groups=[('.*', -1, 1)]", r'optim.groups\[0\]: .*learning-rate factor: got -1'),
    ("optim.groups=[('a', 1, 1), ('.*', 1, -1)]", r'optim.groups\[1\]: .*weight-decay factor: got -1'),
    ("optim.groups=[('.*', 1, 1, 5)]", r'optim.groups\[0\]: got .*5'),
    ("optim.groups=[('.*', 1)]", r'optim.groups\[0\]: got'),
    ("optim.groups=[('[a', 1, 1)]", r'optim.groups\[0\]: .*regex: got'),
    ('optim.groups=[(3, 1, 1)]', r'optim.groups\[0\]: .*regex: got 3'),
    ("optim.groups=[('.*', 'x', 1)]", r"optim.groups\[0\]: got \('.\*', 'x', 1\)"),
    ('optim.groups=[5]', r'optim.groups\[0\]: got 5'),
    ("parallel.rules=[('a', ('rows',))]", r'parallel.rules\[0\]: .*got .rows.'),
    ("parallel.rules=[('a', 3)]", r'parallel.rules\[0\]: got'),
    ("parallel.rules=[('a',)]", r'parallel.rules\[0\]: got'),
    ("parallel.rules=[('(', (None,))]", r'parallel.rules\[0\]: .*regex: got'),
    ('optim.layer_decay=3', 'optim.layer_decay: got 3'),
    ('optim.accumulator=1e30', 'optim.accumulator: got 1e.30'),
    ("optim.groups=(('.*',1,1e30),)", r'optim.groups\[0\]: .*weight-decay factor: got 1e.30'),
    ('optim.stages=((0,1,1e30,0.1),)', r'optim.stages\[0\]: .*learning-rate factor: got 1e.30'),
    ('optim.end_fraction=1e30', 'optim.end_fraction: got 1e.30'),
    ('optim.milestones=(-1, 2)', r'optim.milestones\[0\]: got -1'),
    ('optim.milestones=(3, 2)', r'optim.milestones: got'),
    ('evaluation.cache=(100, 0.5, -1)', r'evaluation.cache\[2\]: got -1'),
    ('data.special_tokens=[-1, -2]', r'data.special_tokens\[0\]: got -1'),
    ("data.special_tokens=['<a>', '<a>']", 'data.special_tokens: got'),
    ("data.special_tokens=['']", r'data.special_tokens\[0\]: got'),
    ('optim.ratio=0.5', 'optim.ratio: got 0.5'),
    ('optim.decay_rate=0.5', 'optim.decay_rate: got 0.5'),
    ('log.tags=a\0b', 'log.tags: got'),
    (r"data.special_tokens=('<a>', '\ud800')", r'data.special_tokens\[1\]: got'),
    ('log.tags=a\ud800', 'log.tags: got'),
    ('data.special_tokens=(<a>, <b>)', 'data.special_tokens: got'),
    ("train.init_parts=('model', inf)", 'train.init_parts: got'),
    ('data.train_splits=[train, valid]', 'data.train_splits: got'),
    ('optim.eps=1e30', 'optim.eps: got 1e.30'),
    ('evaluation.alpha=1e30', 'evaluation.alpha: got 1e.30'),
    ("parallel.rules=[('a', ('fsdp', None, 'fsdp'))]", r'parallel.rules "a": got'),
    ('name=(1, 2)', r'name: got'),
    ('evaluation.forbidden=[-1]', r'evaluation.forbidden\[0\]: got -1'),
    ('optim.stages=[(1, 1, 1, 2), (0, 0, 1, 0.1)]', r'optim.stages\[0\]: .*cut_fraction: got 2'),
  ],
)
def test_invalid_nested_value_is_rejected(override, message):
  with pytest.raises(InputError, match=message):
    resolve.resolve(SMALL, [override])


def test_plateau_factor_above_one_is_rejected():
  with pytest.raises(InputError, match='optim.min_lr: got 2.0'):
    resolve.resolve(SMALL, ['optim.schedule=plateau', 'optim.lr=0.5', 'optim.min_lr=2'])


def test_filters_are_pairs_of_sizes():
  model = {'model': {'name': 'elmo', 'variant': 'tiny'}, 'train': {'steps': 3}}
  assert resolve.resolve(model, ['model.filters=[(1, 4), (2, 8)]']).model.filters == ((1, 4), (2, 8))
  for value in ('[(1, 4, 3)]', '[(0, 4)]', '[(1, 2.5)]', '[1, 2]'):
    with pytest.raises(InputError, match=r'model.filters\[0\]: got'):
      resolve.resolve(model, [f'model.filters={value}'])


def test_valid_nested_values_survive_a_round_trip():
  values = [
    "optim.groups=[('bias$', 1, 0), ('.*', 0.5, 1)]",
    "parallel.rules=[('kernel', (None, 'tensor'))]",
    'optim.stages=[(-1, 1, 1, 0.1), (0, 0, 0.5, 0.2)]',
    'optim.schedule=slanted_triangular',
    'model.forget_bias=-1',
  ]
  full = resolve.resolve(SMALL, values)
  assert full.optim.groups == (('bias$', 1.0, 0.0), ('.*', 0.5, 1.0))
  assert full.parallel.rules == (('kernel', (None, 'tensor')),)
  assert resolve.resolve(json.loads(json.dumps(full.to_dict()))).to_dict() == full.to_dict()


def test_true_stays_a_string_in_a_string_field():
  assert cast.cast('objective.positive', str, cast.parse('true')) == 'True' == cast.cast('data.label', str, True)
  assert cast.cast('data.texts', tuple[str, ...], 1) == ('1',)


def test_unknown_rules_in_a_config_are_rejected():
  with pytest.raises(InputError, match='semantics.x: got a key'):
    resolve.resolve({**SMALL, 'semantics': {'x': 1}})
