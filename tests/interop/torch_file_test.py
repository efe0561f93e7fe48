"""Files of torch.save and pickles, read without running anything of them."""

from __future__ import annotations

import argparse
import collections
import os
import pickle
import re
import subprocess
import sys
import zipfile

import ml_dtypes
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.interop import torch_file, unpickle
from tests.interop import torch_files

TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)


class Runs:
  """What a malicious file holds: a call of any function."""

  def __init__(self, function, *args):
    self.function, self.args = function, args

  def __reduce__(self):
    return self.function, self.args


@pytest.mark.parametrize('legacy', [False, True])
def test_tensors_round_trip(tmp_path, legacy):
  content = collections.OrderedDict(
    a=TABLE,
    turned=TABLE.T,
    row=TABLE[1],
    half=np.ones(3, np.float16),
    brain=np.full((2, 2), 1.5, ml_dtypes.bfloat16),
    ids=np.arange(5),
    one=np.array(7.0, np.float64),
    none=np.zeros((0, 3), np.float32),
    more=[1, 2.5, None, True, 'text', b'bytes', (1, 'x'), {1, 2}, {'deep': {3: float('inf')}}],
  )
  torch_files.save(tmp_path / 'x.pt', content, legacy=legacy)
  found = torch_file.read(tmp_path / 'x.pt')
  assert list(found) == list(content)
  for name in list(content)[:-1]:
    assert found[name].dtype == content[name].dtype, name
    np.testing.assert_array_equal(found[name], content[name], strict=True)
  assert found['more'][:5] == [1, 2.5, None, True, 'text'] and found['more'][5:8] == [b'bytes', (1, 'x'), {1, 2}]
  assert found['more'][8] == {'deep': {3: float('inf')}}
  assert not found['a'].flags.writeable and found['row'].base is not None  # mapped, not copied


@pytest.mark.parametrize('legacy', [False, True])
def test_pickled_module_gives_its_tensors(tmp_path, legacy):
  inner = torch_files.Module({'weight': TABLE, 'bias': None})
  outer = torch_files.Module({'scale': TABLE[0]}, {'rnn': inner, 'none': None}, ninp=4)
  torch_files.save(tmp_path / 'm.pt', [outer, argparse.Namespace(lr=1)], legacy=legacy)
  model, options = torch_file.read(tmp_path / 'm.pt')
  assert model.name == 'model.RNNModel' and model.state['ninp'] == 4
  assert options.name == 'argparse.Namespace' and options.state == {'lr': 1}
  found = torch_file.tensors(model)
  assert set(found) == {'scale', 'rnn.weight'}
  np.testing.assert_array_equal(found['rnn.weight'], TABLE)
  with pytest.raises(InputError, match='got argparse.Namespace'):
    torch_file.tensors(options)


def test_cycles_and_shared_containers_are_kept(tmp_path):
  shared = ['a']
  whole = {'left': shared, 'right': shared}
  whole['whole'] = whole
  (tmp_path / 'x.pkl').write_bytes(pickle.dumps(whole))
  found = torch_file.read(tmp_path / 'x.pkl')
  assert found['left'] is found['right'] and found['whole'] is found


@pytest.mark.parametrize('protocol', [0, 2, 5])
@pytest.mark.parametrize(
  ('function', 'args', 'named'),
  [
    (os.system, ('touch {}',), 'posix.system'),
    (eval, ('open("{}", "w")',), 'builtins.eval'),
    (getattr, (os, 'system'), None),
    (subprocess.Popen, (['touch', '{}'],), r'\w+.Popen'),
    (np.load, ('{}',), None),
    (print, (), 'builtins.print'),
  ],
)
def test_malicious_pickle_is_rejected_and_not_run(tmp_path, protocol, function, args, named):
  mark = tmp_path / 'ran'
  args = tuple(a.format(mark) if isinstance(a, str) else a for a in args)
  if function is subprocess.Popen:
    args = (['touch', str(mark)],)
  if function is getattr:
    content = b'cos\nsystem\n(S"touch %b"\ntR.' % os.fsencode(mark)
  else:
    content = pickle.dumps({'tensor': Runs(function, *args)}, protocol)
  (tmp_path / 'x.pkl').write_bytes(content)
  with zipfile.ZipFile(tmp_path / 'x.pt', 'w') as archive:
    archive.writestr('archive/data.pkl', content)
  for name in ('x.pkl', 'x.pt'):
    if function is np.load:  # numpy's names are inert: an object is made, nothing is loaded
      assert torch_file.read(tmp_path / name)['tensor'].args == args
      continue
    with pytest.raises(InputError, match=f'{name}: not read'):
      torch_file.read(tmp_path / name)
  assert not mark.exists()


def test_truncated_file_names_the_tensor(tmp_path):
  path = tmp_path / 'x.pt'
  torch_files.save(path, {'first': TABLE, 'last': np.ones(50, np.float32)}, legacy=True)
  whole = path.read_bytes()
  path.write_bytes(whole[:-8])
  with pytest.raises(InputError, match='tensor "last": '):
    torch_file.read(path)
  torch_files.save(path, {'first': TABLE, 'between': TABLE + 1, 'last': np.ones(50, np.float32)})
  zipped = path.read_bytes()
  ends = [zipped.index(x.tobytes()) + x.nbytes for x in (TABLE, TABLE + 1, np.ones(50, np.float32))]
  for size, message in (
    (len(zipped) - 30, f'a zip file without the directory at its end: the file, of {len(zipped) - 30:,} bytes, is tru'),
    (ends[2] - 4, f'tensor "last": it ends at byte {ends[2]:,}'),
    (ends[1], 'tensor "last": '),
    (ends[1] - 60, 'tensor "between": '),
    (ends[0] - 1, 'tensor "first": it ends at byte'),
    (100, 'the file, of 100 bytes, is truncated within archive/data.pkl, the names of its tensors'),
    (20, 'a zip file without the directory at its end: the file, of 20 bytes, is truncated'),
  ):
    path.write_bytes(zipped[:size])
    with pytest.raises(InputError, match=re.escape(message)):
      torch_file.read(path)
  path.write_bytes(_by_torch(zipped)[: ends[2] - 4])
  with pytest.raises(InputError, match='tensor "last": it ends at byte'):
    torch_file.read(path)
  for cut in range(0, len(whole) - 250, 7):  # anywhere before the numbers
    path.write_bytes(whole[:cut])
    with pytest.raises(InputError):
      torch_file.read(path) if cut % 21 == 0 else _in_process(path)


def _by_torch(zipped):
  """Return a zip file whose headers before the entries have no lengths, as PyTorch writes them."""
  content = bytearray(zipped)
  at = -1
  while (at := content.find(b'PK\x03\x04', at + 1)) >= 0:
    content[at + 14 : at + 26] = bytes(12)
  return bytes(content)


def _in_process(path):
  """Read without a child, which takes longer to start than to read."""
  try:
    _, storages = unpickle.read_pickle(path)
  except Exception as error:
    raise InputError(str(error)) from None
  assert len(storages) < 2
  raise InputError('a storage is not in the file')


def test_tensor_beyond_its_storage_is_rejected(tmp_path):
  path = tmp_path / 'x.pt'
  torch_files.save(path, {'w': TABLE})
  with zipfile.ZipFile(path) as archive:
    parts = {name: archive.read(name) for name in archive.namelist()}
  parts['archive/data/0'] = parts['archive/data/0'][:-4]
  with zipfile.ZipFile(path, 'w') as archive:
    for name, content in parts.items():
      archive.writestr(name, content)
  with pytest.raises(InputError, match='tensor "w": it ends at byte'):
    torch_file.read(path)


def _pickled_tensor(shape, strides, offset=0):
  """Return the pickle of {'w': a tensor of a storage of four numbers}."""
  number = lambda n: b'\x8a\x09' + n.to_bytes(9, 'little', signed=True)
  numbers = lambda values: b'(' + b''.join(map(number, values)) + b't'
  storage = b'(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ'
  tensor = b'ctorch._utils\n_rebuild_tensor_v2\n(' + storage + number(offset) + numbers(shape) + numbers(strides)
  return b'\x80\x02}X\x01\x00\x00\x00w' + tensor + b'\x89ccollections\nOrderedDict\n)RtRs.'


@pytest.mark.parametrize(
  ('shape', 'strides', 'expected'),
  [
    ([2**40, 2**40], [0, 0], 'of 1,208,925,819,614,629,174,706,176 values'),
    ([2**62, 4], [0, 0], 'values; expected at most'),
    ([2**20, 2**12], [0, 0], 'of 4,294,967,296 values'),
    ([2**40, 0, 2**40], [0, 0, 0], 'values; expected at most'),
    ([5], [2**62], 'it ends at byte'),
    ([-2], [1], 'expected integers from 0'),
    ([2], [-1], 'expected integers from 0'),
    ([1] * 65, [0] * 65, 'at most 32'),
  ],
)
def test_malformed_shape_names_the_tensor(tmp_path, shape, strides, expected):
  with zipfile.ZipFile(tmp_path / 'x.pt', 'w') as archive:
    archive.writestr('archive/data.pkl', _pickled_tensor(shape, strides))
    archive.writestr('archive/data/0', np.arange(4, dtype=np.float32).tobytes())
  with pytest.raises(InputError, match=f'x.pt: tensor "w": .*{expected}'):
    torch_file.read(tmp_path / 'x.pt')


def test_tensor_that_repeats_a_number_is_read(tmp_path):
  """Expanded tensors have strides of zero; the stride of an axis of one number is not used."""
  with zipfile.ZipFile(tmp_path / 'x.pt', 'w') as archive:
    archive.writestr('archive/data.pkl', _pickled_tensor([1, 3, 2], [2**62, 0, 1], 2))
    archive.writestr('archive/data/0', np.arange(4, dtype=np.float32).tobytes())
  np.testing.assert_array_equal(torch_file.read(tmp_path / 'x.pt')['w'], [[[2, 3]] * 3])


def test_slow_hash_keys_time_out(tmp_path, monkeypatch):
  monkeypatch.setattr(torch_file, '_PROCESSOR', 1)
  path = tmp_path / 'x.bin'
  path.write_bytes(b'\x80\x02}N' + b'2\x86' * 60 + b'K\x01s.')  # {(((..), (..)), ((..), (..))): 1}, 2^60 hashes
  with pytest.raises(InputError, match='x.bin: not read.*processor time'):
    torch_file.read(path)


def test_growing_pickle_is_stopped(tmp_path):
  tree = 'x' * 1000
  for _ in range(14):
    tree = [tree] * 10  # 10^14 strings if shared lists were copied
  (tmp_path / 'x.pkl').write_bytes(pickle.dumps(tree))
  found = torch_file.read(tmp_path / 'x.pkl')
  assert found[0] is found[9]
  deep: tuple = ()
  for _ in range(300):
    deep = (deep, deep)  # 2^300 tuples
  (tmp_path / 'y.pkl').write_bytes(pickle.dumps(deep))
  assert torch_file.read(tmp_path / 'y.pkl')[0][1][0] is not None
  (tmp_path / 'z.pkl').write_bytes(b'\x80\x02' + b'(' * 5000 + b't' * 5000 + b'.')
  with pytest.raises(InputError, match='not read'):
    torch_file.read(tmp_path / 'z.pkl')
  (tmp_path / 'big.pkl').write_bytes(b'\x80\x02cbuiltins\nbytearray\nq\x00J\xff\xff\xff\x7f\x85R.')
  with pytest.raises(InputError, match='more memory than its size explains'):
    torch_file.read(tmp_path / 'big.pkl')


def test_program_imports_nothing_of_lmx():
  names = f'import sys; sys.argv = ["x"]; import runpy; runpy.run_path({unpickle.__file__!r}); '
  names += 'print([m for m in sys.modules if m.split(".")[0] in ("lmx", "jax", "numpy", "torch")])'
  done = subprocess.run([sys.executable, '-I', '-c', names], capture_output=True, text=True, check=True)
  assert done.stdout.strip() == '[]'


def test_written_file_round_trips(tmp_path):
  """PyTorch itself reads it too, also with weights_only."""
  rng = np.random.default_rng(0)
  content = {'a': rng.normal(size=(3, 4)).astype(np.float32), 'é': {'b': [rng.normal(size=5).astype(np.float32), 'x']}}
  content['transposed'] = content['a'].T
  content['none'] = np.zeros((0, 2), np.float32)
  torch_file.write(tmp_path / 'x.pth', content)
  found = torch_file.read(tmp_path / 'x.pth')
  for name in ('a', 'transposed', 'none'):
    np.testing.assert_array_equal(found[name], content[name])
  np.testing.assert_array_equal(found['é']['b'][0], content['é']['b'][0])
  assert found['é']['b'][1] == 'x'
  torch_file.write(tmp_path / 'x.pkl', ['one', 'zwei', 'три'])
  assert torch_file.read(tmp_path / 'x.pkl') == ['one', 'zwei', 'три']


def test_scalars_of_numpy_are_numbers_and_texts(tmp_path):
  values = [np.int64(-3), np.uint8(200), np.float32(0.5), np.float64(0.1), np.bool_(True), np.str_('né')]
  for protocol in (2, 4):
    (tmp_path / 'x.pkl').write_bytes(torch_files.pickled(values, protocol))
    found = torch_file.read(tmp_path / 'x.pkl')
    assert found == [-3, 200, 0.5, 0.1, True, 'né']
    assert [type(x) for x in found] == [int, int, float, float, bool, str]
