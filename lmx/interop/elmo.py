"""ELMo's released files, options.json and weights.hdf5 (the layout of `allenai/bilm-tf` and AllenNLP).

The weights have no output layer. Their names and shapes are below, with w the width of a convolution, n its number of
filters, E the character embedding width, F the total number of filters, P the projection width and H the LSTM cells:

  char_embed (261, E); CNN/W_cnn_i (1, w, E, n), CNN/b_cnn_i (n,); CNN_high_i/{W_carry, W_transform} (F, F) and b_*;
  CNN_proj/{W_proj (F, P), b_proj}; RNN_d/RNN/MultiRNNCell/Cell_i/LSTMCell/{W_0 (P + P, 4H), B (4H,), W_P_0 (H, P)}

Here d is 0 forward and 1 backward, and the gate order is i j f o, as in lmx/layers/projected_lstm.py. Cell_i is
written without the underscore. `n_characters` is 261 in the options for training and 262 in those for prediction; both
are read, and 262 is written.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lmx import documents
from lmx.errors import InputError
from lmx.types import Params

OPTIONS, WEIGHTS = 'options.json', 'weights.hdf5'
_FILES = ('*options.json', '*weights.hdf5')  # the release prefixes them with the name of the model
_LARGEST, _LAYERS = 2**31 - 1, 1000  # upper bounds of sizes
Path = tuple[str, ...]


def find(directory: Any) -> tuple[pathlib.Path, pathlib.Path]:
  """Return the two files in a directory; raise InputError unless there is exactly one of each."""
  matches = [sorted(pathlib.Path(directory).glob(pattern)) for pattern in _FILES]
  if any(len(paths) != 1 for paths in matches):
    raise InputError(f'{directory}: expected one {_FILES[0]} and one {_FILES[1]} of an ELMo release')
  return matches[0][0], matches[1][0]


def from_release(options: Any, weights: Any) -> tuple[dict[str, Any], Params]:
  """Read a released model.

  Args:
    options: path of options.json.
    weights: path of weights.hdf5.

  Returns:
    (fields of models/elmo.py's Config except V and `dropout`, its parameters except 'softmax' as NumPy arrays).

  Raises:
    InputError: a file is missing, damaged or of another model, with the fault; or the weights have arrays that are not
      in the model.
  """
  fields = _fields(options)
  h5py = import_h5py()
  tree: dict[str, Any] = {}
  try:
    with h5py.File(weights, 'r') as file:
      names: list[str] = []
      file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
      if unknown := sorted({*names} - {name for _, name, _ in _names(fields)}):
        raise InputError(f'{weights}: got arrays that {options} does not describe: {", ".join(unknown[:20])}')
      for path, name, shape in _names(fields):
        if name not in file:
          raise InputError(f'{weights}: "{name}" is missing; expected the arrays that {options} describes')
        stored_shape = (1, *shape) if '/W_cnn_' in name else shape
        if file[name].shape != stored_shape:
          raise InputError(f'{weights}: "{name}": got shape {file[name].shape}; expected {stored_shape} by {options}')
        _put(tree, path, np.asarray(file[name][...], np.float32).reshape(shape))
  except OSError as error:
    raise InputError(f'{weights}: cannot be read as HDF5 ({error}); it may be truncated') from error
  return fields, tree


def to_release(fields: Mapping[str, Any], params: Params, directory: Any) -> None:
  """Write options.json and weights.hdf5.

  Args:
    fields: fields of models/elmo.py's Config (`dataclasses.asdict`).
    params: its parameters; 'softmax' is skipped because the files have no output layer.
    directory: created if it does not exist.
  """
  h5py = import_h5py()
  directory = pathlib.Path(directory)
  directory.mkdir(parents=True, exist_ok=True)
  (directory / OPTIONS).write_text(json.dumps(_options(fields), indent=1) + '\n')
  with h5py.File(directory / WEIGHTS, 'w') as file:
    for path, name, shape in _names(fields):
      value = _get(params, path)
      file.create_dataset(name, data=np.asarray(value, np.float32).reshape((1, *shape) if '/W_cnn_' in name else shape))


def import_h5py() -> Any:
  """Return the module h5py; raise InputError with the pip command if it is missing."""
  try:
    import h5py
  except ImportError:
    raise InputError('reading and writing HDF5 needs h5py: pip install lmx[elmo]') from None
  return h5py


def _fields(options: Any) -> dict[str, Any]:
  """Return fields of the Config from options.json."""
  try:
    released = documents.read_json(options)
    cnn, lstm = released['char_cnn'], released['lstm']
    fields: dict[str, Any] = {
      'filters': tuple((int(width), int(number)) for width, number in cnn['filters']),
      'characters': int(cnn['embedding']['dim']),
      'highways': int(cnn['n_highway']),
      'cells': int(lstm['dim']),
      'projection': int(lstm['projection_dim']),
      'N': int(lstm['n_layers']),
      'cell_clip': float(lstm['cell_clip']),
      'proj_clip': float(lstm['proj_clip']),
    }
    skip, activation, count = lstm['use_skip_connections'], cnn['activation'], cnn['n_characters']
  except InputError:
    raise
  except (ValueError, KeyError, TypeError, OverflowError) as error:
    raise InputError(f'{options}: not the options of an ELMo release ({type(error).__name__}: {error})') from error
  bounds = {'characters': _LARGEST, 'cells': _LARGEST, 'projection': _LARGEST, 'highways': _LAYERS, 'N': _LAYERS}
  for name, high in bounds.items():
    if not (name != 'highways') <= fields[name] <= high:
      raise InputError(f'{options}: {name}: got {fields[name]}; expected a whole number up to {high:,}')
  if any(not 1 <= size <= _LARGEST for pair in fields['filters'] for size in pair):
    raise InputError(f'{options}: char_cnn.filters: got {fields["filters"]}; expected positive widths and numbers')
  for field, value, supported in (
    ('char_cnn.activation', activation, ('relu',)),
    ('lstm.use_skip_connections', skip, (True,)),
    ('char_cnn.n_characters', count, (261, 262)),
  ):
    if value not in supported:
      raise InputError(f'{options}: {field}: got {value!r}; expected {" or ".join(map(repr, supported))}')
  return fields


def _options(fields: Mapping[str, Any]) -> dict[str, Any]:
  return {
    'lstm': {
      'use_skip_connections': True,
      'projection_dim': fields['projection'],
      'cell_clip': fields['cell_clip'],
      'proj_clip': fields['proj_clip'],
      'dim': fields['cells'],
      'n_layers': fields['N'],
    },
    'char_cnn': {
      'activation': 'relu',
      'filters': [list(pair) for pair in fields['filters']],
      'n_highway': fields['highways'],
      'embedding': {'dim': fields['characters']},
      'n_characters': 262,
      'max_characters_per_token': 50,
    },
  }


def _names(fields: Mapping[str, Any]) -> Iterator[tuple[Path, str, tuple[int, ...]]]:
  """Yield (path in lmx's parameters, name in the file, lmx's shape) of every array."""
  E, P, H = fields['characters'], fields['projection'], fields['cells']
  F = sum(number for _, number in fields['filters'])
  yield ('embed', 'characters'), 'char_embed', (261, E)
  for i, (width, number) in enumerate(fields['filters']):
    yield ('embed', f'convolution_{i}', 'kernel'), f'CNN/W_cnn_{i}', (width, E, number)
    yield ('embed', f'convolution_{i}', 'bias'), f'CNN/b_cnn_{i}', (number,)
  for i in range(fields['highways']):
    for ours, theirs, shape in (
      ('gate_kernel', 'W_carry', (F, F)),
      ('gate_bias', 'b_carry', (F,)),
      ('kernel', 'W_transform', (F, F)),
      ('bias', 'b_transform', (F,)),
    ):
      yield ('embed', f'highway_{i}', ours), f'CNN_high_{i}/{theirs}', shape
  yield ('embed', 'projection', 'kernel'), 'CNN_proj/W_proj', (F, P)
  yield ('embed', 'projection', 'bias'), 'CNN_proj/b_proj', (P,)
  for i in range(fields['N']):
    for d, direction in enumerate(('forward', 'backward')):
      prefix = f'RNN_{d}/RNN/MultiRNNCell/Cell{i}/LSTMCell'
      yield (f'layer_{i:02d}', direction, 'kernel'), f'{prefix}/W_0', (2 * P, 4 * H)
      yield (f'layer_{i:02d}', direction, 'bias'), f'{prefix}/B', (4 * H,)
      yield (f'layer_{i:02d}', direction, 'projection'), f'{prefix}/W_P_0', (H, P)


def _put(tree: dict[str, Any], path: Path, value: np.ndarray) -> None:
  for name in path[:-1]:
    tree = tree.setdefault(name, {})
  tree[path[-1]] = value


def _get(tree: Any, path: Path) -> Any:
  for name in path:
    tree = tree[name]
  return tree
