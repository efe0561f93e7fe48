"""Memory of an import: the parameters, and of the files one parameter's tensors at a time."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tracemalloc
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from lmx.checkpoint import orbax_format
from lmx.interop import awd_lstm, huggingface, mem_transformer, transformer_xl
from lmx.interop.huggingface import gpt2
from lmx.models import registry
from lmx.runs import convert, restore
from tests import drawn
from tests.interop import torch_files

PROGRAM = """
import re, sys
import jax.numpy as jnp
from lmx import host
from lmx.runs import convert
host.return_blocks()  # as the command does
jnp.zeros(1).block_until_ready()
# Not ru_maxrss, which begins at the peak of the process that started this one.
peak = lambda: 1024 * int(re.search('VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])
before = peak()
if sys.argv[1] == 'export':
  convert.export_run(*sys.argv[2:])
else:
  convert.import_run(*sys.argv[1:], with_tokenizer=False)
print(peak() - before)
"""


def write(folder: pathlib.Path, form: str, dtype: Any = 'float32', **sizes: int) -> int:
  """Write a GPT-2 of random weights; return the bytes of its tensors."""
  cfg = registry.get('gpt2').Config(**{'V': 4096, 'T': 64, 'D': 256, 'H': 2, 'N': 2} | sizes)
  rng = np.random.default_rng(0)
  tensors = {
    name: rng.standard_normal(entry.shape, np.float32).astype(dtype)
    for entry in gpt2.entries(cfg)
    for name in entry.names
  }
  folder.mkdir()
  (folder / 'config.json').write_text(json.dumps({'model_type': 'gpt2', **gpt2.config(cfg)}))
  if form == 'bin':
    torch_files.save(folder / 'pytorch_model.bin', tensors)
  elif form == 'whole':
    safetensors.numpy.save_file(tensors, folder / 'model.safetensors')
  else:
    places = {name: f'model-0000{i % 3}.safetensors' for i, name in enumerate(tensors)}
    for file in set(places.values()):
      safetensors.numpy.save_file({n: x for n, x in tensors.items() if places[n] == file}, folder / file)
    (folder / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': places}))
  return sum(x.nbytes for x in tensors.values())


def resident(folder: pathlib.Path) -> int:
  """Return the bytes of a folder's files that are mapped and in memory."""
  command = ['grep', '-A4', '-F', f'{folder}/', f'/proc/{os.getpid()}/smaps']  # there are many mappings of other files
  maps = subprocess.run(command, capture_output=True, text=True, check=False).stdout
  return sum(1024 * int(line.split()[1]) for line in maps.splitlines() if line.startswith('Rss:'))


@pytest.mark.skipif(not pathlib.Path('/proc/self/smaps').exists(), reason='needs Linux')
@pytest.mark.parametrize(
  ('form', 'dtype'),
  [('whole', 'float16'), ('bin', 'float32'), pytest.param('shards', 'float32', marks=pytest.mark.slow)],
)
def test_one_tensor_is_in_memory_at_a_time(form, dtype, tmp_path, monkeypatch):
  size, load, entries, seen = write(tmp_path / 'folder', form, dtype), huggingface._load, [], []

  def watch(entry, stored):
    entries.append(entry)
    if len(entries) % 5:
      return load(entry, stored)
    seen.append(resident(tmp_path / 'folder'))
    value = load(entry, stored)
    assert resident(tmp_path / 'folder') >= sum(x.nbytes for x in stored)  # they are mapped
    return value

  monkeypatch.setattr(huggingface, '_load', watch)
  monkeypatch.setattr(orbax_format, '_crc', lambda path: [0, 0])  # it reads blocks of 4 MB, however small the files
  tracemalloc.start()
  try:
    imported = convert.read(str(tmp_path / 'folder'), tmp_path / 'run', with_tokenizer=False)
    tracemalloc.reset_peak()
    (before, _), _ = tracemalloc.get_traced_memory(), convert.write(imported, tmp_path / 'run')
    more = tracemalloc.get_traced_memory()[1] - before
  finally:
    tracemalloc.stop()
  assert len(seen) == len(entries) // 5 > 3 and max(seen) == 0  # of those before nothing is left
  assert before > size and more < 0.3 * size  # the parameters are not copied


@pytest.mark.skipif(not pathlib.Path('/proc/self/smaps').exists(), reason='needs Linux')
@pytest.mark.parametrize('name', ['transformer_xl', 'awd_lstm'])
def test_repeated_tensors_of_a_release_are_compared_in_blocks(name, tmp_path):
  """The input and the output table are two tensors of a file, and fastai's copy is a third."""
  sizes = dict(F=8, H=2, M=4, fidelity='pytorch') if name == 'transformer_xl' else dict(E=64)
  cfg = registry.get(name).Config(**dict(V=80_000, D=64, N=1) | sizes)
  params = {'model': jax.tree.map(lambda x: np.zeros(x.shape, np.float32), drawn.shapes(registry.get(name).init, cfg))}
  if name == 'transformer_xl':
    mem_transformer.write(tmp_path / 'to', cfg, params, [], False)
  else:
    awd_lstm.write(tmp_path / 'to', cfg, params, [], False)
  tracemalloc.start()
  try:
    folder = {'transformer_xl': transformer_xl, 'awd_lstm': awd_lstm}[name].read(tmp_path / 'to')
    more = tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()
  assert resident(tmp_path / 'to') < 1 << 20 and more < 4 * cfg.V * cfg.D  # bytes of a table
  assert folder.fields['tied']


@pytest.mark.slow
@pytest.mark.parametrize('dtype', ['float32', 'float16'])
@pytest.mark.parametrize('form', ['whole', 'shards', 'bin'])
def test_import_takes_little_more_memory_than_the_file(form, dtype, tmp_path):
  N = 12 if dtype == 'float32' else 36  # files of about 500 MB
  size = write(tmp_path / 'folder', form, dtype, V=50_257, T=1024, D=768, H=12, N=N)
  arguments = [sys.executable, '-c', PROGRAM, str(tmp_path / 'folder'), str(tmp_path / 'run')]
  assert int(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout) < 1.3 * size
  if form == 'whole':
    arguments = [sys.executable, '-c', PROGRAM, 'export', str(tmp_path / 'run'), str(tmp_path / 'out')]
    used = int(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)
    assert used < 1.3 * (tmp_path / 'out' / 'model.safetensors').stat().st_size


@pytest.mark.parametrize('dtype', ['float16', ml_dtypes.bfloat16])
def test_half_precision_is_stored_and_read_as_float32(dtype, tmp_path):
  write(tmp_path / 'folder', 'whole', dtype, V=64, D=16, N=1)
  imported = convert.read(str(tmp_path / 'folder'), tmp_path / 'run', with_tokenizer=False)
  assert {x.dtype for x in jax.tree.leaves(imported.params)} == {np.dtype(dtype)}
  convert.write(imported, tmp_path / 'run')
  params = restore.load(tmp_path / 'run').params
  assert {x.dtype for x in jax.tree.leaves(params)} == {np.dtype(np.float32)}
  convert._put_on_device(imported.params)  # as `load` does
  assert {x.dtype for x in jax.tree.leaves(imported.params)} == {np.dtype(np.float32)}
  jax.tree.map(np.testing.assert_array_equal, imported.params, params)
