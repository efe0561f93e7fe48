"""Small files in the layouts of other programs, and seeded damage to them.

`python -m tests.interop.hostile_files COUNT [SEED] [FORMAT ..]` prints the outcomes that are wrong. The formats of
TensorFlow need it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import math
import os
import pathlib
import random
import shutil
import signal
import struct
import sys
import tempfile
import traceback
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy

from lmx.data.tokenizers import build
from lmx.errors import InputError, InputWarning
from lmx.interop import awd_lstm, elmo, huggingface, torch_file, word2vec
from lmx.models import registry
from lmx.prediction import word_vectors
from lmx.runs import convert
from tests import drawn
from tests.data.tokenizers import sentencepiece_test
from tests.interop import (
  awd_lstm_test,
  elmo_release_test,
  fairseq_files,
  fastai_classifier_test,
  fasttext_test,
  fsmt_folders,
  tensorflow_objects_test,
  tensorflow_test,
  torch_files,
  xlnet_folder_test,
)

SECONDS, MEMORY = 10, 200_000_000  # of a case, beyond twice its file
_WIDTH = 7  # of vectors
SIZES = {'T': 16, 'D': 8, 'H': 2, 'N': 1}
HUGE = (2**31 - 1, 2**40, 2**63 - 1, 2**32 - 1, -1, 0)
VALUES = [None, True, 0, -1, 2, 3.5, float('nan'), float('inf'), 10**30, 2**40, '', 'x', '8', [], ['a'], {}, {'a': 1}]


def tensorflow_release(folder: pathlib.Path, name: str) -> None:
  """BERT or GPT-2 as TensorFlow's programs release it."""
  kind = tensorflow_test.KINDS[name]
  tokenizer = build.train(kind, tensorflow_test.TEXTS, vocab_size=300, lower_case=name == 'bert')
  layout, cfg = huggingface.family(name), registry.get(name).Config(V=tokenizer.vocab_size, **SIZES)
  params = {'model': drawn.params(registry.get(name).init, cfg)}
  variables = tensorflow_test.VARIABLES[name](huggingface.to_hf(name, cfg, params))
  tokenizer._model.model.save(str(folder))
  if name == 'bert':
    (folder / 'bert_config.json').write_text(json.dumps(layout.config(cfg) | {'hidden_act': 'gelu'}))
  else:
    sizes = {'n_vocab': cfg.V, 'n_ctx': cfg.T, 'n_embd': cfg.D, 'n_head': cfg.H, 'n_layer': cfg.N}
    (folder / 'hparams.json').write_text(json.dumps(sizes))
    (folder / 'vocab.json').rename(folder / 'encoder.json')
    (folder / 'merges.txt').rename(folder / 'vocab.bpe')
  tensorflow_test.save(folder / 'model.ckpt', variables)


def xlnet_release(folder: pathlib.Path) -> None:
  pieces = sentencepiece_test.learned()
  V = len(pieces)
  settings = {'d_model': 8, 'n_head': 2, 'd_head': 4, 'd_inner': 12, 'n_layer': 2, 'n_token': V, 'untie_r': True}
  settings |= {'ff_activation': 'gelu'}
  cfg = registry.get('xlnet').Config(V=V, D=8, H=2, F=12, N=2, fidelity='released', untie=True)
  params = {'model': drawn.params(registry.get('xlnet').init, cfg)}
  variables = xlnet_folder_test.released(huggingface.to_hf('xlnet', cfg, params), cfg)
  (folder / 'xlnet_config.json').write_text(json.dumps(settings))
  sentencepiece_test.write(folder / 'spiece.model', pieces)
  tensorflow_test.save(folder / 'xlnet_model.ckpt', variables)


def objects_release(folder: pathlib.Path) -> None:
  arrays, names = tensorflow_objects_test.file()
  folder.rmdir()
  tensorflow_objects_test.write(folder)
  graph = {tensorflow_objects_test.tensorflow_objects.GRAPH: tensorflow_objects_test.graph(names)}
  tensorflow_test.save(folder / 'bert_model.ckpt', arrays | graph)


def openai_release(folder: pathlib.Path) -> None:
  layer = [[1, 64, 192], [192], [1, 64, 64], [64], [64], [64], [1, 64, 256], [256], [1, 256, 64], [64], [64], [64]]
  shapes = [[8, 64], [300, 64], *layer]
  values = np.random.default_rng(0).normal(size=sum(map(math.prod, shapes))).astype(np.float32)
  (folder / 'params_shapes.json').write_text(json.dumps(shapes))
  for i, part in enumerate(np.array_split(values, 3)):
    np.save(folder / f'params_{i}.npy', part)
  tokenizer = build.train('gpt_bpe', tensorflow_test.TEXTS, vocab_size=200)
  tokenizer._model.model.save(str(folder))
  (folder / 'vocab.json').rename(folder / 'encoder_bpe_40000.json')
  (folder / 'merges.txt').rename(folder / 'vocab_40000.bpe')


def elmo_release(folder: pathlib.Path) -> None:
  elmo_release_test.write(folder, elmo_release_test.random_weights())
  (folder / 'vocab.txt').write_text('<S>\n</S>\n<UNK>\nthe\ncat\n')


def salesforce_release(folder: pathlib.Path, cell: str) -> None:
  cfg = registry.config('awd_lstm', 'tiny', V=20, E=6, D=9, N=2, cell=cell, cutoffs=(5, 11))
  params = {'model': drawn.params(registry.get('awd_lstm').init, cfg)}
  folder.rmdir()
  awd_lstm.write(folder, cfg, params, ['<eos>', '<unk>', *map(str, range(18))], False)


def fairseq_release(folder: pathlib.Path) -> None:
  folder.rmdir()
  fairseq_files.save(folder, stacked=True, shared=True)


def fsmt_folder(folder: pathlib.Path) -> None:
  folder.rmdir()
  fsmt_folders.save(folder)


def fastai_model(folder: pathlib.Path) -> None:
  awd_lstm_test.write_fastai(folder, awd_lstm_test.fastai_names(awd_lstm_test.lstm_tensors()))


def fastai_text_classifier(folder: pathlib.Path) -> None:
  tensors = fastai_classifier_test.tensors_of()
  fastai_classifier_test.write(folder, tensors, fastai_classifier_test.learner(tensors))


def vectors(folder: pathlib.Path, name: str) -> None:
  rows = np.random.default_rng(0).normal(size=(12, _WIDTH)).astype(np.float32)
  if name == 'fasttext.bin':
    words = [f'w{i}' for i in range(7)]
    (folder / name).write_bytes(fasttext_test.model(fasttext_test.matrix(12), words=words))
  else:
    word2vec.write(str(folder / name), [f'w{i}' for i in range(12)], rows, binary=name.endswith('.bin'))


def _folder(path: pathlib.Path) -> Any:
  imported = convert.read(str(path), path.with_name(f'{path.name}.run'))
  return imported.params


def _vectors(path: pathlib.Path) -> Any:
  """Return the rows of a file of vectors, whatever its words: nothing tells a damaged word from another."""
  (name,) = {'fasttext.bin', 'vectors.bin', 'vectors.txt', 'vectors.bin.gz'} & {*map(str, os.listdir(path))} or {'none'}
  return np.asarray(word_vectors.from_file(str(path / name)).table_VD)


TENSORFLOW: dict[str, Callable[[pathlib.Path], None]] = {
  'BERT of TensorFlow': lambda folder: tensorflow_release(folder, 'bert'),
  'GPT-2 of TensorFlow': lambda folder: tensorflow_release(folder, 'gpt2'),
  'XLNet of TensorFlow': xlnet_release,
  'objects of TensorFlow 2': objects_release,
}
FOLDERS: dict[str, Callable[[pathlib.Path], None]] = {
  'GPT of OpenAI': openai_release,
  'ELMo': elmo_release,
  'LSTM of salesforce': lambda folder: salesforce_release(folder, 'lstm'),
  'QRNN of salesforce': lambda folder: salesforce_release(folder, 'qrnn'),
  'fairseq': fairseq_release,
  'FSMT': fsmt_folder,
  'AWD-LSTM of fastai': fastai_model,
  'classifier of fastai': fastai_text_classifier,
}
VECTORS = {
  'fastText': lambda folder: vectors(folder, 'fasttext.bin'),
  'binary word vectors': lambda folder: vectors(folder, 'vectors.bin'),
  'text of word vectors': lambda folder: vectors(folder, 'vectors.txt'),
  'compressed word vectors': lambda folder: vectors(folder, 'vectors.bin.gz'),
}
FORMATS = TENSORFLOW | FOLDERS | VECTORS


# Damage: each returns the number of bytes of values that it may change, None if the content has another meaning.


def truncate(draw: random.Random, path: pathlib.Path) -> int:
  content = path.read_bytes()
  path.write_bytes(content[: draw.randrange(len(content)) if content else 0])
  return 0


def flip(draw: random.Random, path: pathlib.Path) -> int:
  data, count = bytearray(path.read_bytes()), draw.choice((1, 1, 2, 8))
  region = draw.choice((len(data), 64, 512, 2048))
  for _ in range(count if data else 0):
    at = draw.randrange(min(region, len(data)))
    data[len(data) - 1 - at if draw.random() < 0.3 else at] ^= draw.choice((1, 2, 128, 255, draw.randrange(1, 256)))
  path.write_bytes(data)
  return count


def overwrite(draw: random.Random, path: pathlib.Path) -> int:
  """Put a large or negative number somewhere, mostly near the beginning."""
  data = bytearray(path.read_bytes())
  form = draw.choice('<q <i >q >i <I'.split())
  size = struct.calcsize(form)
  number = draw.choice(HUGE) & (2 ** (8 * size) - 1)
  at = draw.randrange(max(min(len(data), draw.choice((128, 1024, len(data) or 1))) - size, 1))
  data[at : at + size] = number.to_bytes(size, 'big' if form[0] == '>' else 'little')
  path.write_bytes(data)
  return size


def splice(draw: random.Random, path: pathlib.Path) -> int | None:
  """Remove, repeat or insert some bytes."""
  data = path.read_bytes()
  at, size = draw.randrange(len(data) + 1), draw.choice((1, 4, 100))
  some = draw.choice((b'', data[at : at + size] * 2, draw.randbytes(size)))
  path.write_bytes(data[:at] + some + data[at + size :])
  return None


def swap(draw: random.Random, path: pathlib.Path) -> int | None:
  """Reverse the bytes of each number of four."""
  data = path.read_bytes()
  at = draw.choice((0, len(data) // 3 // 4 * 4))
  words = np.frombuffer(data[at : at + (len(data) - at) // 4 * 4], '<u4').astype('>u4').tobytes()
  path.write_bytes(data[:at] + words + data[at + len(words) :])
  return None


def empty(draw: random.Random, path: pathlib.Path) -> int:
  path.write_bytes(draw.choice((b'', b'\0', b'\0' * 4096, b'\n', b'{}', b'[]')))
  return 0


def special(draw: random.Random, path: pathlib.Path) -> int:
  """Replace a file by something else than a file."""
  kind = draw.choice(('missing', 'folder', 'fifo', 'loop', 'dangling', 'device', 'link'))
  content = path.read_bytes()
  path.unlink()
  if kind == 'folder':
    path.mkdir()
  elif kind == 'fifo':
    os.mkfifo(path)
  elif kind == 'link':  # the same content
    path.with_name(f'{path.name}.content').write_bytes(content)
    path.symlink_to(path.with_name(f'{path.name}.content'))
  elif kind != 'missing':
    path.symlink_to({'loop': path, 'dangling': '/nowhere/at/all', 'device': '/dev/zero'}[kind])
  return 0


def other_json(draw: random.Random, path: pathlib.Path) -> int | None:
  """Change, remove or repeat a field of JSON; other files are truncated."""
  try:
    content = json.loads(path.read_text())
  except (ValueError, RecursionError):
    return truncate(draw, path)
  places: list[tuple[Any, Any]] = []
  waiting = [content]
  while waiting:
    x = waiting.pop()
    keys = list(x) if isinstance(x, dict) else range(len(x))
    places += [(x, key) for key in keys]
    waiting += [x[key] for key in keys if isinstance(x[key], (dict, list))]
  if not places:
    return truncate(draw, path)
  parent, key = draw.choice(places)
  if draw.random() < 0.2:
    del parent[key]
  else:
    parent[key] = draw.choice([*VALUES, -parent[key] if type(parent[key]) in (int, float) else 5])
  text = json.dumps(content)
  path.write_text(text[:-1] + ', "a": 1, "a": 2}' if draw.random() < 0.1 and text.endswith('}') else text)
  return None


def hostile_pickle(draw: random.Random, path: pathlib.Path) -> int:
  """A pickle that runs code, for files of PyTorch and NumPy; other files are truncated."""
  if path.suffix not in ('.pt', '.pth', '.pkl', '.data', '.npy'):
    return truncate(draw, path)
  module, name, args = draw.choice((('os', 'system', ('exit 3',)), ('builtins', 'eval', ('1/0',)), ('os', 'abort', ())))
  code = f'c{module}\n{name}\n'.encode() + torch_files.pickled(args, 2)[2:-1] + b'R.'
  if path.suffix == '.npy':
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    header += b' ' * (117 - len(header)) + b'\n'
    path.write_bytes(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header)) + header + code)
  else:
    path.write_bytes(code)
  return 0


def arrays(draw: random.Random, path: pathlib.Path) -> int | None:
  """Change a tensor's type, shape, order, name or values with the library of its format; see `_ARRAYS`."""
  change = next((change for ending, change in _ARRAYS.items() if path.name.endswith(ending)), None)
  return change(draw, path) if change else flip(draw, path)


def _changed(draw: random.Random, found: dict[str, Any]) -> dict[str, Any]:
  """Return arrays of which one has changed."""
  found = dict(found)
  name = draw.choice(sorted(found))
  x = np.asarray(found[name])
  changes: dict[str, Callable[[], Any]] = {
    'type': lambda: x.astype(draw.choice(('float64', '>f4', 'float16', 'int32', 'int64', 'uint8', 'bool', '>f8'))),
    'text': lambda: np.full(x.shape, b'abc'),
    'complex': lambda: x.astype(np.complex64),
    'flat': lambda: x.reshape(-1),
    'turned': lambda: np.ascontiguousarray(x.T),
    'axis': lambda: x[None],
    'short': lambda: x[:-1] if x.ndim else x[None],
    'empty': lambda: x[:0] if x.ndim else x[None],
    'scalar': lambda: np.float32(1),
    'nan': lambda: np.where(np.arange(x.size).reshape(x.shape) == 0, draw.choice((np.nan, np.inf)), x).astype(x.dtype),
    'many axes': lambda: x.reshape((1,) * draw.choice((5, 30 - x.ndim)) + x.shape),
  }
  kind = draw.choice([*changes, 'missing', 'renamed', 'twice'])
  if kind in changes:
    found[name] = changes[kind]()
  elif kind == 'twice':
    found[draw.choice((f'{name}.copy', name.upper(), f'0.{name}', f'model.{name}'))] = x
  else:
    del found[name]
    found |= {draw.choice((f'{name}x', '', '../x', 'é', name.lower())): x} if kind == 'renamed' else {}
  return found


def _npy(draw: random.Random, path: pathlib.Path) -> None:
  x = _changed(draw, {'x': np.load(path)}).get('x', np.zeros((0,)))
  header = draw.random() < 0.4
  if not header:
    np.save(path, x)
    return
  size = draw.choice((x.size * 2, 10**15, 2**62, -1, 0))
  shape = draw.choice(((size,), (size, size), (x.size, 1), ()))
  fields = {'descr': draw.choice(('<f4', '>f4', '<f8', '|O', '<U900000000', [('a', '<f4')])), 'fortran_order': False}
  text = repr(fields | {'shape': shape}).encode()
  text += b' ' * (-(len(text) + 11) % 64) + b'\n'
  path.write_bytes(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(text)) + text + x.tobytes())


def _hdf5(draw: random.Random, path: pathlib.Path) -> None:
  h5py = elmo.import_h5py()
  found: dict[str, Any] = {}
  with h5py.File(path, 'r') as file:
    file.visititems(lambda name, x: found.update({name: x[...]}) if isinstance(x, h5py.Dataset) else None)
  kind = draw.choice('changed changed huge chunks filled external link soft group null'.split())
  name = draw.choice(sorted(found))
  changed = _changed(draw, found) if kind == 'changed' else {k: x for k, x in found.items() if k != name}
  with h5py.File(path, 'w') as file:
    for key, x in changed.items():
      file.create_dataset(key or 'none', data=x)
    if kind in ('huge', 'chunks'):  # declared, with no values in the file
      with contextlib.suppress(Exception):
        space = h5py.h5s.create_simple((10**6, 10**6))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if kind == 'chunks':
          plist.set_chunk((1000, 1000))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_LATE)
        links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        links.set_create_intermediate_group(True)
        h5py.h5d.create(file.id, name.encode(), h5py.h5t.IEEE_F32LE, space, plist, links)
    elif kind == 'filled':
      file.create_dataset(name, shape=found[name].shape, dtype='<f4', chunks=found[name].shape, fillvalue=2.0)
    elif kind == 'external':
      file.create_dataset(name, shape=found[name].shape, dtype='<f4', external=[('/etc/passwd', 0, 1 << 20)])
    elif kind == 'link':
      file[name] = h5py.ExternalLink('/nowhere.hdf5', name)
    elif kind == 'soft':
      file[name] = h5py.SoftLink(f'/{name}')
    elif kind == 'group':
      file.create_group(name)
    elif kind == 'null':
      file.create_dataset(name, data=h5py.Empty('<f4'))


def _torch(draw: random.Random, path: pathlib.Path) -> int | None:
  content = torch_file.read(path)
  model = content.get('model', content) if isinstance(content, dict) else None
  if not torch_file.are_tensors(model):
    return flip(draw, path)
  changed = {name: np.array(x) for name, x in _changed(draw, model).items()}
  changed = {name: x if x.dtype.name in torch_files._KINDS else x.astype(np.float32) if x.dtype.kind == 'f' else x.real
             for name, x in changed.items() if x.dtype.kind != 'S'}  # fmt: skip
  changed = {n: x.astype(x.dtype.newbyteorder('=')) for n, x in changed.items()}
  if 'args' in content:
    content = {'args': fairseq_files.argparse.Namespace(**content['args'].state), 'model': changed}
  else:
    content = changed
  torch_files.save(path, content, legacy=draw.random() < 0.3)
  return None


def _safetensors(draw: random.Random, path: pathlib.Path) -> None:
  found = _changed(draw, safetensors.numpy.load_file(path))
  keep = {n: np.ascontiguousarray(x) for n, x in found.items() if np.asarray(x).dtype.kind in 'fiub'}
  safetensors.numpy.save_file({n: x.astype(x.dtype.newbyteorder('=')) for n, x in keep.items()}, path)


def _checkpoint(draw: random.Random, path: pathlib.Path) -> None:
  import tensorflow as tf

  prefix = path.with_suffix('')
  reader = tf.train.load_checkpoint(str(prefix))
  found = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
  text = {name: x for name, x in found.items() if isinstance(x, bytes)}
  changed = _changed(draw, {name: x for name, x in found.items() if name not in text})
  for old in path.parent.glob(f'{prefix.name}.*'):
    old.unlink()
  native = {name: x if x.dtype.kind == 'S' else x.astype(x.dtype.newbyteorder('=')) for name, x in changed.items()}
  tensorflow_test.save(prefix, {name or 'none': x for name, x in (native | text).items()})


_ARRAYS: dict[str, Any] = {
  '.npy': _npy,
  '.hdf5': _hdf5,
  '.pt': _torch,
  '.pth': _torch,
  '.safetensors': _safetensors,
  '.index': _checkpoint,
}
DAMAGE = [truncate, flip, flip, overwrite, splice, swap, empty, special, other_json, hostile_pickle, arrays, arrays]


# One case


def leaves(params: Any) -> dict[str, np.ndarray]:
  return {jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(params)}


def differing(found: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> int:
  """Return the number of values that differ in their bits; a large number if shapes or names differ."""
  if {n: x.shape for n, x in found.items()} != {n: x.shape for n, x in right.items()}:
    return 1 << 30
  bits = lambda x: np.ascontiguousarray(x, np.float32).view(np.uint32)
  return sum(int((bits(found[name]) != bits(right[name])).sum()) for name in right)


@contextlib.contextmanager
def limited(size: int) -> Iterator[None]:
  """Raise an AssertionError after SECONDS, or if the block takes more memory than allowed for a file."""

  def stop(*_: Any) -> None:
    raise TimeoutError(f'more than {SECONDS} seconds')

  old = signal.signal(signal.SIGALRM, stop)
  signal.alarm(SECONDS)
  faulthandler.dump_traceback_later(3 * SECONDS, exit=True)  # where no signal arrives
  tracemalloc.start()
  try:
    yield
    peak = tracemalloc.get_traced_memory()[1]
    assert peak < 2 * size + MEMORY, f'{peak / 1e6:,.0f} MB for a file of {size / 1e6:,.1f} MB'
  finally:
    signal.alarm(0)
    faulthandler.cancel_dump_traceback_later()
    tracemalloc.stop()
    signal.signal(signal.SIGALRM, old)


def _meaning(name: str, path: pathlib.Path, allowed: int | None) -> int | None:
  """Return how many values damage may change, given the bytes that it changed; None for any number.

  A word of fastText has the n-grams of its letters, and vectors are normalised. A header of NumPy gives a byte order.
  Nothing tells a text whose last number is truncated from another.
  """
  if name == 'text of word vectors' and allowed is not None:
    allowed = max(allowed, 1)
  if name == 'fastText' or path.suffix == '.npy' and np.load(path, mmap_mode='r').dtype.str != '<f4':
    return None
  return allowed * _WIDTH if allowed and name in VECTORS else allowed


class Tried:
  """A format's right folder, its parameters, and reading damaged copies."""

  def __init__(self, name: str, place: pathlib.Path) -> None:
    self.name, self.place = name, place
    self.read = _vectors if name in VECTORS else _folder
    self.folder = place / 'right'
    self.folder.mkdir(parents=True)
    FORMATS[name](self.folder)
    self.right = leaves(self.read(self.folder))

  def case(self, seed: int) -> tuple[str, str]:
    """Return (outcome, what is wrong with it, '' for nothing) of a damaged copy."""
    draw = random.Random(f'{self.name} {seed}')
    copy = self.place / f'case{seed}'
    shutil.copytree(self.folder, copy)
    path = draw.choice(sorted(copy.iterdir()))
    size = sum(one.stat().st_size for one in copy.iterdir())
    damage = draw.choice(DAMAGE)
    label = f'{self.name}, seed {seed}, {damage.__name__} of {path.name}'
    try:
      allowed = damage(draw, path)
      with limited(size), warnings.catch_warnings(record=True) as notes, contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter('always')
        found = leaves(self.read(copy))
      wrong = differing(found, self.right)
      if not wrong:
        return 'same', ''
      if any(issubclass(note.category, InputWarning) for note in notes):
        return 'warned', ''
      allowed = _meaning(self.name, path, allowed)
      return 'other', '' if allowed is None or wrong <= allowed else f'{label}: {wrong:,} other values, unreported'
    except InputError as error:
      named = any(one.name in str(error) for one in (path, copy)) or path.name.rpartition('.')[0] in str(error)
      return 'refused', '' if named else f'{label}: a message without the file: {error}'
    except BaseException as error:
      if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise
      return 'raised', f'{label}: {"".join(traceback.format_exception(error)[-6:])}'
    finally:
      shutil.rmtree(copy, ignore_errors=True)


def quiet(monkeypatch: Any) -> None:
  """Leave out newly initialised parameters, which are compiled."""
  monkeypatch.setattr(convert, '_complete', lambda run, params: (params, []))


def main(count: str, seed: str = '0', *names: str) -> None:
  with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
    quiet(patch)
    for name in names or FORMATS:
      tried, outcomes = Tried(name, pathlib.Path(place) / name), {}
      for i in range(int(seed), int(seed) + int(count)):
        outcome, wrong = tried.case(i)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if wrong:
          print(wrong, flush=True)
      print(name, outcomes, flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])
