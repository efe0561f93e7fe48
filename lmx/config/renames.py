"""Current names of renamed models, so that configs and work directories of an earlier lmx still load."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from lmx.errors import InputError, InputWarning

_DESIGNS = {'bahdanau': 'bahdanau', 'luong': 'luong', 'cho': 'rnn_encdec', 'sutskever': 'rnn_encdec'}
_VARIANTS = {  # variant of seq2seq -> its design
  'rnnsearch': 'bahdanau',
  'rnnsearch_small': 'bahdanau',
  'tiny': 'bahdanau',
  'rnnencdec': 'cho',
  'rnnencdec_small': 'cho',
  'luong': 'luong',
  'luong_small': 'luong',
}
_ATTENTION = ('score', 'A', 'S', 'window', 'reach', 'reading', 'expected', 'doubly_stochastic', 'remat')
_UNUSED = {  # design -> fields of seq2seq that it did not read
  'bahdanau': ('design', 'input_feeding'),
  'luong': ('design', 'bidirectional', 'encoder_layers', 'decoder_layers', 'readout', 'maxout'),
  'cho': ('input_feeding', *_ATTENTION),
  'sutskever': ('input_feeding', *_ATTENTION),
}

_REPLACEMENTS = {  # field of seq2seq -> setting for it now
  'design': 'model.name=bahdanau, luong or rnn_encdec',
  'input_feeding': 'model.name=luong',
  **dict.fromkeys(('bidirectional', 'readout', 'maxout'), 'model.name=bahdanau or rnn_encdec'),
  **dict.fromkeys(('encoder_layers', 'decoder_layers'), 'model.layers'),
  **dict.fromkeys(_ATTENTION, 'model.name=bahdanau or luong'),
}


def check_fields(name: str, fields: Iterable[str], names: Iterable[str]) -> None:
  """Raise InputError with the current setting if a former `seq2seq` model gets a field that it lacks."""
  names = set(names)
  for field in fields:
    if name in _DESIGNS.values() and field not in names and field in _REPLACEMENTS:
      raise InputError(f'model.{field}: got a field that {name} does not have; set {_REPLACEMENTS[field]}')


def model(section: Mapping[str, Any]) -> dict[str, Any]:
  """Return the model section of a config with the current name, variant and fields; parameters keep their paths.

  Raises:
    InputError: `seq2seq` with a design other than its variant's, in a config that does not give every field.
  """
  if section.get('name') != 'seq2seq':
    return dict(section)
  variant = str(section.get('variant', 'tiny'))
  own = _VARIANTS.get(variant, 'bahdanau')
  design = section.get('design', own)
  name = _DESIGNS.get(design, 'bahdanau')
  if design != own:
    if 'decoder_layers' not in section:
      raise InputError(
        f'model.name: got "seq2seq" with design "{design}"; expected bahdanau, luong or rnn_encdec; set '
        f'model.name={name}'
      )
    variant = 'tiny'  # every field is given
  warnings.warn(f'model.name: got "seq2seq"; read as {name}:{variant}; set model.name={name}', InputWarning, 2)
  fields = {key: value for key, value in section.items() if key not in _UNUSED[design]}
  if name == 'luong' and 'encoder_layers' in section:
    fields['layers'] = section['encoder_layers']
  return {**fields, 'name': name, 'variant': variant}
