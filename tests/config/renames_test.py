"""Configs that name the model seq2seq, which is bahdanau, luong and rnn_encdec now."""

from __future__ import annotations

import dataclasses

import pytest

from lmx.config import renames, resolve
from lmx.errors import InputError, InputWarning
from lmx.models import registry

# Every field of seq2seq, as the config.json of a run has them.
OLD = {
  'V': 61, 'E': 12, 'D': 16, 'encoder_layers': 2, 'decoder_layers': 2, 'design': 'bahdanau', 'cell': 'lstm',
  'bidirectional': False, 'reverse': True, 'score': 'general', 'A': 10, 'S': 16, 'window': 'local_p', 'reach': 2,
  'reading': 'soft', 'expected': 0.5, 'doubly_stochastic': 0.0, 'input_feeding': False, 'readout': 'current',
  'maxout': 8, 'shared': True, 'tied': False, 'dropout_embedding': 0.1, 'dropout_hidden': 0.2, 'dropout_output': 0.3,
  'init': 'uniform', 'init_scale': 0.3, 'dtype': 'float32', 'backend': 'scan', 'remat': False,
}  # fmt: skip
NEW = {'bahdanau': 'bahdanau', 'luong': 'luong', 'cho': 'rnn_encdec', 'sutskever': 'rnn_encdec'}


@pytest.mark.parametrize('design', NEW)
def test_seq2seq_run_loads_as_its_new_model(design):
  section = {**OLD, 'design': design, 'name': 'seq2seq', 'variant': 'luong_small' if design == 'luong' else 'tiny'}
  with pytest.warns(InputWarning, match=f'read as {NEW[design]}:{section["variant"]}'):
    run = resolve.to_run(resolve.resolve({'model': section, 'train': {'steps': 1}}, saved=True))
  assert run.model_name == NEW[design]
  expected = {field: value for field, value in OLD.items() if hasattr(run.model, field)}
  expected['design'] = design
  assert all(
    getattr(run.model, field) == expected[field]
    for field in dataclasses.asdict(run.model)
    if field not in ('layers', 'source_V')
  )
  assert run.model.encoder_layers == run.model.decoder_layers == 2


@pytest.mark.parametrize('variant', ['rnnsearch', 'rnnencdec_small', 'luong', 'tiny'])
def test_variants_of_seq2seq_keep_their_names(variant):
  with pytest.warns(InputWarning, match='set model.name='):
    section = renames.model({'name': 'seq2seq', 'variant': variant, 'D': 8})
  assert registry.config(section.pop('name'), section.pop('variant'), **section).D == 8


def test_other_design_selects_its_model():
  with pytest.raises(InputError, match='got "seq2seq" with design "cho".*rnn_encdec'):
    resolve.resolve({'model': {'name': 'seq2seq', 'variant': 'tiny', 'design': 'cho'}, 'train': {'steps': 1}})


def test_other_models_keep_their_section():
  assert renames.model({'name': 'gpt2', 'variant': 'tiny'}) == {'name': 'gpt2', 'variant': 'tiny'}


@pytest.mark.parametrize(
  'name, field, setting',
  [
    ('bahdanau', 'design', 'model.name=bahdanau, luong or rnn_encdec'),
    ('bahdanau', 'input_feeding', 'model.name=luong'),
    ('luong', 'encoder_layers', 'model.layers'),
    ('luong', 'maxout', 'model.name=bahdanau or rnn_encdec'),
    ('rnn_encdec', 'score', 'model.name=bahdanau or luong'),
  ],
)
def test_field_moved_to_another_model_is_reported(name, field, setting):
  with pytest.raises(InputError, match=f'^model.{field}: got'):
    resolve.resolve({'model': {'name': name, field: 1}, 'train': {'steps': 1}})
