"""Checkpoints of arrays of GPT-2 1558M's shapes, written and read by several processes: bytes a host, other layouts."""

from __future__ import annotations

import shutil

import jax
import numpy as np
import pytest

from launch import local
from lmx.runs import restore
from tests import small_text

LAYERS, V = 2, 50257
STACKED = ('parallel.fsdp=-1', 'model.scan=true', 'parallel.pad_vocabulary=128')
OWN = ('parallel.fsdp=2', 'parallel.data=1', 'model.scan=true', 'parallel.stack_layers=false')


def train(root, workdir, text, processes, devices, *settings):
  """Train two updates of 1558M's widths with two layers, in several processes with several devices each."""
  small = (
    f'model.N={LAYERS}',
    f'model.V={V}',
    'model.dtype=float32',
    'data.tokenizer=bytes',
    'data.length=8',
    'data.batch_size=8',
    'optim.accumulate=1',
    'optim.warmup_steps=0',
    'train.steps=2',
    'train.log_every=1',
    'checkpoint.every_steps=1',
    'samples.count=0',
    'evaluation.split=valid',
  )
  options = [f'--config.{x}' for x in (*small, *text, *settings)]
  command = [*local.PROGRAM, 'train', '--config=experiments/gpt2/webtext.py:1558m', f'--workdir={workdir}', *options]
  port = local.free_port()
  environments = [
    local.environment(i, processes, devices, port) | {'PYTHONPATH': str(root), 'XLA_FLAGS': flags}
    for i in range(processes)
    for flags in [f'--xla_force_host_platform_device_count={devices}']
  ]
  assert local.run(command, environments, grace=2) == 0


@pytest.mark.slow
def test_sharded_checkpoint_restores_on_another_mesh_and_layout(root, tmp_path, monkeypatch):
  monkeypatch.chdir(root)
  text = small_text.settings(tmp_path, lines=20)
  first, other = tmp_path / 'first', tmp_path / 'other'
  train(root, first, text, 4, 2, *STACKED)
  step = first / 'checkpoints' / 'step_000000002'
  written = [
    sum(file.stat().st_size for file in folder.rglob('*') if file.is_file())
    for folder in sorted((step / 'state').glob('ocdbt.process_*'))
  ]
  params = restore.load(first, 'last').params
  size = sum(x.nbytes for x in jax.tree.leaves(params))
  print(f'state {3 * size / 1e6:,.0f} MB; by process {[round(n / 1e6) for n in written]} MB')
  assert len(written) == 4 and max(written) < 1.02 * 3 * size / 4
  shutil.copytree(first, other)
  shutil.rmtree(other / 'checkpoints' / 'step_000000002')
  (other / 'results.json').unlink()
  train(root, other, text, 2, 1, *OWN)
  again = restore.load(other, 'last').params
  assert jax.tree.structure(again) == jax.tree.structure(params)
  for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(params), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)
