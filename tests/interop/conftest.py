"""Variables of a TensorFlow checkpoint without TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.interop import tensorflow


class Reader:
  """As much of TensorFlow as reads a checkpoint."""

  class errors:  # noqa: N801
    OpError = KeyError

  def __init__(self, variables):
    self.train, self._variables = self, variables

  def load_checkpoint(self, prefix):
    return self

  def get_variable_to_shape_map(self):
    return {name: np.shape(x) for name, x in self._variables.items()}

  def get_tensor(self, name):
    return self._variables[name]


@pytest.fixture
def given(monkeypatch):
  """Puts variables in the place of those that TensorFlow reads."""

  def put(variables):
    reader = Reader(variables)
    monkeypatch.setattr(tensorflow, '_prefix', lambda directory: directory)
    monkeypatch.setattr(tensorflow, '_tensorflow', lambda: reader)
    return reader

  return put
