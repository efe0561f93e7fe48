"""Weights written tensor by tensor: the bytes of the library, shards, and one tensor in memory at a time."""

from __future__ import annotations

import json

import numpy as np
import pytest
import safetensors.numpy

from lmx.errors import InputError
from lmx.interop import streamed
from lmx.interop.huggingface import folder

ARRAYS = {
  'b.weight': np.arange(6, dtype=np.float32).reshape(2, 3).T,
  'a.weight': np.float32(1.5) * np.ones((3, 1), np.float32),
  'ä "quoted"\n': np.ones((), np.float32),
  'empty': np.zeros((0, 2), np.float32),
}


def lazy(arrays, log=None):
  def compute(name):
    (log if log is not None else []).append(name)
    return arrays[name]

  return {name: streamed.Lazy(x.shape, lambda name=name: compute(name)) for name, x in arrays.items()}


@pytest.mark.parametrize('extra', range(8))
def test_bytes_are_those_of_the_library(extra, tmp_path):
  arrays = ARRAYS | {'x' * (extra + 1): np.ones(2, np.float32)}  # headers of every length modulo eight
  log = []
  streamed.write_safetensors(tmp_path / 'ours', lazy(arrays, log), {'format': 'pt'})
  dense = {name: np.array(x, order='C') for name, x in arrays.items()}
  safetensors.numpy.save_file(dense, tmp_path / 'theirs', {'format': 'pt'})
  assert (tmp_path / 'ours').read_bytes() == (tmp_path / 'theirs').read_bytes()
  assert log == sorted(arrays)  # each once


def test_large_weights_are_written_as_shards_that_are_read(tmp_path):
  arrays = {f'layer.{i}.weight': np.full((10, i), i, np.float32) for i in (1, 2, 9, 3)}  # of 40, 80, 360, 120 bytes
  streamed.write_shards(tmp_path, lazy(arrays), 130)
  assert sorted(path.name for path in tmp_path.iterdir()) == [
    *(f'model-0000{i}-of-00003.safetensors' for i in (1, 2, 3)),
    'model.safetensors.index.json',
  ]
  index = json.loads((tmp_path / 'model.safetensors.index.json').read_text())
  assert index['metadata'] == {'total_parameters': 150, 'total_size': 600}
  assert [index['weight_map'][name][8:11] for name in arrays] == ['001', '001', '002', '003']
  found, unused = folder._tensors(tmp_path)
  assert not unused and found.keys() == arrays.keys()
  for name, x in arrays.items():
    np.testing.assert_array_equal(found[name], x)


@pytest.mark.parametrize(('text', 'size'), [('5GB', 5 * 10**9), ('1.5 mb', 1_500_000), ('7KB', 7000)])
def test_size_is_read(text, size):
  assert streamed.parse_size(text) == size


@pytest.mark.parametrize('text', ['5', '-1GB', 'GB', '0MB', '5GiB', '1e3GB', '٣GB'])
def test_other_sizes_are_rejected(text):
  with pytest.raises(InputError, match='--max_shard_size: got .*; expected a size such as 5GB'):
    streamed.parse_size(text)
