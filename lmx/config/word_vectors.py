"""Word vectors that a config names in `data.vectors` or `train.init_from`: a file, or a run of word2vec."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lmx.config import run_files
from lmx.data import vectors
from lmx.errors import InputError
from lmx.interop import fasttext, word2vec


def is_run(source: str) -> bool:
  """Return True if a path is the work directory of a run of word2vec."""
  return bool(_run_width(source))


def width(source: str) -> int:
  """Return the width of the vectors of a run or file; 0 if they cannot be read, which their reader reports."""
  try:
    path = os.path.expanduser(source)
    if not os.path.isfile(path):
      return _run_width(source) or vectors.width(path)
    return binary_width(path) or vectors.width(path)
  except InputError:
    return 0


def binary_width(path: str) -> int:
  """Return the vector width of a model of fastText or of word2vec's binary format, 0 for another file."""
  if fasttext.is_model(path):
    return int(fasttext.read(path).matrix_RE.shape[1])
  return word2vec.width_of_binary(path)


def source(model: Mapping[str, Any], data: Mapping[str, Any], train: Mapping[str, Any]) -> str:
  """Return the vectors that the sections of a config name for the model's word table, '' for none."""
  start = str(train.get('init_from', ''))
  is_file = os.path.isfile(os.path.expanduser(start))
  if start and not train.get('init_parts') and (is_file or model['name'] != 'word2vec' and is_run(start)):
    return start
  return str(data.get('vectors', ''))


def _run_width(source: str) -> int:
  try:
    model = run_files.read_config(source).get('model', {}) if run_files.exists(source) else {}
  except InputError:
    return 0
  return int(model.get('D', 0)) if model.get('name') == 'word2vec' else 0
