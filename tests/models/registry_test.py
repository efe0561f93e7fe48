"""Sizes of models: labels in results and descriptions, and wrong values."""

from __future__ import annotations

import dataclasses

import pytest

from lmx.errors import InputError
from lmx.models import registry


@pytest.mark.parametrize(
  'name,variant,changes,label',
  [
    ('bert', 'base', {}, 'bert:base'),
    ('bert', 'base', {'V': 8000, 'T': 128, 'dropout_hidden': 0.3, 'dtype': 'bfloat16'}, 'bert:base'),
    ('bert', 'base', {'N': 6, 'D': 384}, 'bert 6x384, 22.9M'),  # MiniLM, with its masked-LM head
    ('bert', 'tiny', {'F': 256}, 'bert 2x128, 4.3M'),
    ('gpt2', 'tiny', {'tied': False}, 'gpt2 2x32, 33.7K'),
    ('awd_lstm', 'ptb', {'D': 256}, 'awd_lstm 3x256, 6.26M'),
    ('word2vec', 'skipgram', {'V': 50, 'D': 4}, 'word2vec, 400'),
  ],
)
def test_variant_is_named_only_where_the_sizes_are_its_own(name, variant, changes, label):
  cfg = dataclasses.replace(registry.config(name, variant), **changes)
  assert registry.label(name, variant, cfg) == label


@pytest.mark.parametrize(
  'name,changes,field',
  [
    ('gpt2', {'V': 0}, 'V'),
    ('gpt2', {'remat': 'nonsense'}, 'remat'),
    ('xlnet', {'init_std': -0.1}, 'init_std'),
    ('transformer', {'encoder_H': 3}, 'encoder_H'),
    ('elmo', {'N': 0}, 'N'),
    ('elmo', {'cells': 0}, 'cells'),
    ('elmo', {'filters': ()}, 'filters'),
    ('bidaf', {'bilm_cells': 0}, 'bilm_cells'),
    ('bilstm', {'bilm_layers': 0}, 'bilm_layers'),
    ('bcn', {'bilm_filters': ()}, 'bilm_filters'),
    ('luong', {'cell': 'lstmm'}, 'cell'),
    ('rnn_lm', {'cell': 'lstmm'}, 'cell'),
    ('bahdanau', {'score': 'adative'}, 'score'),
    ('gpt2', {'hidden': 3}, 'hidden'),
  ],
)
def test_wrong_value_names_the_field_of_the_config(name, changes, field):
  with pytest.raises(InputError, match=rf'model\.{field}\b'):
    registry.config(name, 'tiny', **changes)
