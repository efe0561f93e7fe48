"""ELMo's released files, options.json and weights.hdf5 (allenai/bilm-tf and AllenNLP, also its model 5.5B).

huggingface/elmo.py lists the arrays; there is no output layer. `n_characters` is 261 in training options and 262 in
prediction options; both are read, and 262 is written. An optional vocab*.txt has one word per line, after <S>, </S> and
<UNK> as in bilm-tf. It gives the words of an output layer, which is newly initialised.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmx import documents
from lmx.errors import InputError, explain
from lmx.interop import huggingface, mapped
from lmx.interop.huggingface.entry import show
from lmx.interop.huggingface.folder import CONFIG, Folder, whole
from lmx.interop.huggingface.word_vocabulary import Vocabulary
from lmx.types import Params

OPTIONS, WEIGHTS, WORDS = 'options.json', 'weights.hdf5', 'vocab.txt'
_FILES = ('*options.json', '*weights.hdf5')  # the release prefixes them with the name of the model
_SPECIAL = ['<S>', '</S>', '<UNK>']  # first lines of a vocabulary
# Section -> (options that it must have, those that it may have).
_KNOWN = {
  'char_cnn': (
    ('activation', 'filters', 'embedding', 'n_characters'),
    ('n_highway', 'max_characters_per_token'),
  ),
  'lstm': (('use_skip_connections', 'projection_dim', 'dim', 'n_layers'), ('cell_clip', 'proj_clip')),
}
_LARGEST, _LAYERS = 2**31 - 1, 1000  # upper bounds of sizes
_RATIO, _SMALL = 8, 1 << 24  # an array has at most so many times the file's bytes, or so many bytes
_SHORTEST, _LONGEST = 4, 1000  # bounds of max_characters_per_token
NOTE = (
  'text is split at white space alone, as the 1B Word Benchmark is tokenised; the files have no output layer, so that '
  'the run gives vectors (lmx embed, train.init_from) and no perplexity'
)


def is_release(directory: Any) -> bool:
  """Return True if a folder has the options or the weights of ELMo, and no config.json."""
  directory = pathlib.Path(directory)
  return not (directory / CONFIG).exists() and any(documents.match(directory, pattern) for pattern in _FILES)


def find(directory: Any) -> tuple[pathlib.Path, pathlib.Path]:
  """Return the two files in a directory; raise InputError unless there is exactly one of each."""
  matches = [documents.match(directory, pattern) for pattern in _FILES]
  if any(len(paths) != 1 for paths in matches):
    raise InputError(f'{directory}: expected one {_FILES[0]} and one {_FILES[1]} of an ELMo release')
  return matches[0][0], matches[1][0]


def read(directory: Any) -> Folder:
  """Read a release.

  Raises:
    InputError: a file is missing, damaged or of another model; the fault is named.
  """
  options, weights = find(directory)
  fields, letters = _fields(options)
  words = _words(pathlib.Path(directory))
  vocabulary = lambda: Vocabulary(['<unk>', '<eos>', *words], 'lines')
  data = {'batching': {'name': 'both_ways'}, 'characters': letters}
  fields['V'] = len(_SPECIAL) + len(words)
  return Folder('elmo', fields, _arrays(weights), 'words', False, vocabulary=vocabulary, data=data, note=NOTE)


def write(directory: Any, cfg: Any, params: Params, words: Sequence[str], letters: int) -> list[str]:
  """Write options.json, weights.hdf5 and, unless a word has white space, vocab.txt; return their names.

  Args:
    directory: must not exist, or be empty.
    cfg: Config of models/elmo.py.
    params: {'model': ..}; 'softmax' is skipped because the files have no output layer.
    words: the words of the vocabulary by decreasing frequency.
    letters: characters of a word.

  Raises:
    InputError: the directory cannot be written, or h5py is missing.
  """
  h5py = import_h5py()
  tensors = huggingface.lazy('elmo', cfg, params)

  with whole(directory) as part:
    (part / OPTIONS).write_text(json.dumps(_options(cfg, letters), indent=1) + '\n', encoding='utf-8')
    if not any(word.split() != [word] for word in words):
      (part / WORDS).write_text(''.join(f'{word}\n' for word in [*_SPECIAL, *words]), 'utf-8')
    with h5py.File(part / WEIGHTS, 'w') as file:
      for name, value in tensors.items():
        file.create_dataset(name, data=np.asarray(value))
  return sorted(path.name for path in pathlib.Path(directory).iterdir())


def import_h5py() -> Any:
  """Return the module h5py; raise InputError with the pip command if it is missing."""
  try:
    import h5py
  except ImportError:
    raise InputError('reading and writing HDF5 needs h5py: pip install lmx[elmo]') from None
  return h5py


def _arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Return a file's float32 arrays by name, mapped from the file where it stores float32."""
  h5py = import_h5py()

  def read(dataset: Any) -> np.ndarray:
    size = path.stat().st_size
    if dataset.dtype.kind != 'f':
      raise InputError(f'{path}: "{dataset.name}": got type {dataset.dtype}; expected floats')
    if dataset.nbytes > max(_RATIO * size, _SMALL) or dataset.nbytes and not dataset.id.get_storage_size():
      raise InputError(
        f'{path}: "{dataset.name}": got shape {dataset.shape}, of {dataset.nbytes:,} bytes; expected its values in the '
        f'file, which has {size:,} bytes; it may be truncated'
      )
    offset = dataset.id.get_offset()
    if offset is None or dataset.dtype != np.dtype('<f4'):  # compressed, in parts, or of another type
      return np.asarray(dataset[...], np.float32)
    if offset + dataset.nbytes > size:
      raise InputError(f'{path}: "{dataset.name}": got a file that ends before it; it may be truncated')
    return mapped.view(path, offset, dataset.shape, dataset.dtype)

  try:
    with h5py.File(path, 'r') as file:
      names: list[str] = []
      file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
      return {name: read(file[name]) for name in names}
  except InputError:
    raise
  except (OSError, ValueError, TypeError, RuntimeError, KeyError) as error:
    raise InputError(f'{path}: cannot be read as HDF5 ({explain(error)}); it may be truncated') from error


def _words(directory: pathlib.Path) -> list[str]:
  """Return the vocabulary without its first three lines; empty if there is no vocabulary file."""
  paths = documents.match(directory, 'vocab*.txt')
  if not paths:
    return []
  if len(paths) > 1:
    raise InputError(f'{directory}: got {", ".join(path.name for path in paths)}; expected one vocab*.txt')
  lines = [line for _, line in documents.read_rows(paths[0])]
  if lines[:3] != _SPECIAL:
    raise InputError(f'{paths[0]}: got {lines[:3]} first; expected {_SPECIAL}, as a vocabulary of bilm-tf has')
  seen: dict[str, int] = dict.fromkeys(('<unk>', '<eos>', *_SPECIAL), 0)
  for number, word in enumerate(lines[3:], 4):
    if word.split() != [word]:
      raise InputError(f'{paths[0]}, line {number}: got {documents.show(word)}; expected a word without white space')
    if word in seen:
      raise InputError(f'{paths[0]}, line {number}: got {documents.show(word)} again; expected each word once')
    seen[word] = number
  return lines[3:]


def _sections(options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
  """Return the options (char_cnn, lstm); raise InputError if one is missing or unknown."""
  released = documents.read_json(options)
  parts: list[Any] = []
  for name, (needed, others) in _KNOWN.items():
    part = released.get(name) if isinstance(released, dict) else None
    if not isinstance(part, dict):
      raise InputError(f'{options}: {name}: got {show(part)}; expected options; lmx reads an ELMo of characters alone')
    if missing := [key for key in needed if key not in part]:
      raise InputError(f'{options}: {name}.{missing[0]}: missing; expected the options of an ELMo release')
    known = {*needed, *others}
    if unknown := sorted(key for key in part if key not in known):
      raise InputError(
        f'{options}: {name}.{unknown[0]}: unknown; expected {", ".join(sorted(known))}; lmx reads no other'
      )
    parts.append(part)
  return parts[0], parts[1]


def _fields(options: Any) -> tuple[dict[str, Any], int]:
  """Return (fields of the Config from options.json but V, characters of a word)."""
  try:
    cnn, lstm = _sections(options)
    fields: dict[str, Any] = {
      'filters': tuple((int(width), int(number)) for width, number in cnn['filters']),
      'characters': int(cnn['embedding']['dim']),
      'highways': int(cnn.get('n_highway') or 0),
      'cells': int(lstm['dim']),
      'projection': int(lstm['projection_dim']),
      'N': int(lstm['n_layers']),
      'cell_clip': float(lstm.get('cell_clip') or 0),
      'proj_clip': float(lstm.get('proj_clip') or 0),
    }
    skip, activation, count = lstm['use_skip_connections'], cnn['activation'], cnn['n_characters']
    letters = int(cnn.get('max_characters_per_token', 50))
  except InputError:
    raise
  except (ValueError, KeyError, TypeError, OverflowError) as error:
    raise InputError(f'{options}: not the options of an ELMo release ({type(error).__name__}: {error})') from error
  bounds = {'characters': _LARGEST, 'cells': _LARGEST, 'projection': _LARGEST, 'highways': _LAYERS, 'N': _LAYERS}
  for name, high in bounds.items():
    if not (name != 'highways') <= fields[name] <= high:
      raise InputError(f'{options}: {name}: got {fields[name]}; expected a whole number up to {high:,}')
  if any(not 1 <= size <= _LARGEST for pair in fields['filters'] for size in pair):
    raise InputError(
      f'{options}: char_cnn.filters: got {fields["filters"]}; expected positive widths and filter counts'
    )
  for field, value, supported in (
    ('char_cnn.activation', activation, ('relu',)),
    ('lstm.use_skip_connections', skip, (True,)),
    ('char_cnn.n_characters', count, (261, 262)),
  ):
    if value not in supported:
      raise InputError(f'{options}: {field}: got {value!r}; expected {" or ".join(map(repr, supported))}')
  if not _SHORTEST <= letters <= _LONGEST:
    where = f'{options}: char_cnn.max_characters_per_token'
    raise InputError(f'{where}: got {letters}; expected a whole number from {_SHORTEST} to {_LONGEST:,}')
  return fields, letters


def _options(cfg: Any, letters: int) -> dict[str, Any]:
  return {
    'lstm': {
      'use_skip_connections': True,
      'projection_dim': cfg.projection,
      'cell_clip': cfg.cell_clip,
      'proj_clip': cfg.proj_clip,
      'dim': cfg.cells,
      'n_layers': cfg.N,
    },
    'char_cnn': {
      'activation': 'relu',
      'filters': [list(pair) for pair in cfg.filters],
      'n_highway': cfg.highways,
      'embedding': {'dim': cfg.characters},
      'n_characters': 262,
      'max_characters_per_token': letters,
    },
  }
