"""What a run leaves at its end does not depend on the number of devices or the mode of the engine."""

from __future__ import annotations

import math
import pathlib

import jax
import numpy as np
import pytest

from lmx import train
from lmx.checkpoint import manager
from lmx.config import resolve
from lmx.data import batching, pipeline
from lmx.engine import sharding
from lmx.models import registry
from lmx.reporting import run_log

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Ten rows are shared by neither 4 nor 8 devices.
SMALL = (
  'data.eval_batch_size=10',
  'data.batch_size=8',
  'samples.count=1',
  'samples.tokens=4',
  'evaluation.baselines=false',
)


def kinds() -> list[str]:
  """A tiny experiment, the quickstart where it is one, for each model with an objective and a way to make batches."""
  found: dict[tuple[str, ...], str] = {}
  paths = [path for path in (ROOT / 'experiments').glob('*/*.py') if path.stem not in ('__init__', 'recipe')]
  for path in sorted(paths, key=lambda path: (path.stem != 'quickstart', path)):
    if path.parent.name != 'tables':
      name = str(path.relative_to(ROOT))
      loaded = resolve.load(f'{name}:tiny')
      found.setdefault((loaded.model.name, loaded.objective.name, loaded.data.batching.name), name)
  return sorted(found.values())


def end(path: str, workdir, devices: int, mode: str):
  """(metrics, samples) of the newly initialised parameters of an experiment's tiny variant."""
  loaded = resolve.load(f'{path}:tiny', [*SMALL, f'parallel.mode={mode}'])
  loaded.unlock()
  if registry.get(loaded.model.name).READS == 'source':
    loaded.evaluation.beam, loaded.evaluation.max_extra = 2, 3
  if loaded.data.dataset != 'generated' and not batching.get(loaded.data.batching.name).SENTENCES:
    loaded.data.fraction = 0.03
  run = resolve.to_run(loaded)
  corpus = pipeline.load(run.data)
  _, run = resolve.with_corpus(loaded.lock(), corpus)
  session = train.Session(run, corpus, sharding.Engine(run.parallel, jax.devices()[:devices]), workdir, '')
  with manager.Checkpoints(workdir / 'checkpoints') as checkpoints:
    with run_log.Logger(workdir, 1, tokens_per_step=1, terminal=False) as logger:
      found = session.finish(checkpoints, logger, ())
  written = workdir / 'samples.txt'
  return found, written.read_text() if written.exists() else ''


def updated(path: str, devices: int, mode: str, accumulate: int):
  """Parameters after three updates of a tiny variant with six rows, without dropout; and the model state."""
  loaded = resolve.load(f'{path}:tiny', ['data.batch_size=6', f'parallel.mode={mode}'])
  loaded.unlock()
  for section in (loaded.model, loaded.objective):
    section.update({name: 0.0 for name in section if name.startswith('dropout')})
  loaded.model.dtype = 'float32'
  loaded.optim = {'optimizer': 'sgd', 'lr': 0.01, 'schedule': 'constant', 'accumulate': accumulate}
  loaded.train.update(steps=3, epochs=0)
  if loaded.data.batching.name == 'translation':  # batches of several numbers of rows
    loaded.data.batching.update(tokens=6 * loaded.data.length, rows_multiple=6)
  if 'groups' in loaded.data.batching:
    loaded.data.batching.groups = 1
  if 'samples' in loaded.objective:  # each device and microbatch draws its own
    loaded.objective.samples = 0
  run = resolve.to_run(loaded)
  corpus = pipeline.load(run.data)
  _, run = resolve.with_corpus(loaded.lock(), corpus)
  session = train.Session(run, corpus, sharding.Engine(run.parallel, jax.devices()[:devices]), '', '')
  for i in range(3):
    batch = session.engine.put_batch(session.batches(i, session.rows))
    session.state, session.model_state, _ = session.train_step(
      session.state, session.model_state, batch, session.train_key
    )
  state, model_state = session._global_arrays()
  return jax.tree.map(np.asarray, (state.params, model_state)), session.batches


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize('model', ['awd_lstm', 'bahdanau', 'cfnet', 'elmo', 'gpt2', 'ntm', 'ulmfit', 'word2vec'])
def test_uneven_device_count_matches_one_device(model):
  """tests/padded_rows_test.py holds it of all models and objectives, for one program of one device."""
  path, accumulate = f'experiments/{model}/quickstart.py', 1 if model == 'word2vec' else 2
  expected, whole = updated(path, 1, 'jit', accumulate)
  for devices, mode in ((8, 'jit'), (4, 'pmap')):
    found, batches = updated(path, devices, mode, accumulate)
    assert whole.batch_size == whole.padded_rows and batches.padded_rows > batches.batch_size == whole.batch_size
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, expected)


def numbers(found, name=''):
  if isinstance(found, dict):
    for key, value in found.items():
      yield from numbers(value, f'{name}.{key}')
  elif isinstance(found, float):
    yield name, found


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize('path', kinds())
def test_final_metrics_do_not_depend_on_device_count(path, tmp_path):
  expected, text = end(path, tmp_path / 'one', 1, 'jit')
  wanted = {name: x for name, x in numbers(expected) if math.isfinite(x)}
  assert 'loss' in expected and math.isfinite(expected['loss'])
  for devices, mode in ((4, 'pmap'), (8, 'jit')):
    found, same = end(path, tmp_path / mode, devices, mode)
    assert found['tokens_counted'] == expected['tokens_counted'] > 0
    for name, x in numbers(found):
      assert name not in wanted or x == pytest.approx(wanted[name], rel=1e-4, abs=1e-6), (name, devices)
    assert same == text
