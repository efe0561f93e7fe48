"""Every float32 product of a float32 model has float32 operands on every device, in training and in what follows."""

from __future__ import annotations

import functools
import re

import jax
import numpy as np
import pytest

from lmx.cli import main
from lmx.config import resolve
from lmx.engine import sharding, state, step
from lmx.errors import InputError
from lmx.evaluation import evaluate
from lmx.models import registry
from lmx.optim import build
from lmx.prediction import contextual_embeddings
from lmx.runs import restore
from tests import engine_cases

PRODUCT = re.compile(r'stablehlo\.(?:dot_general|convolution).*')


def precisions(text: str) -> set[str]:
  """The precisions of the operands of all float32 products in lowered text."""
  lines = [line for line in PRODUCT.findall(text) if re.search(r': \(tensor<[^>]*f32>, tensor<[^>]*f32>\)', line)]
  assert lines
  return {word for line in lines for word in re.findall(r'HIGHEST|HIGH\b|DEFAULT', line) or ['DEFAULT']}


def lowered(name: str, mode: str, *options: str) -> list[str]:
  """The text of the training and the evaluation step, of `jit` as it is for a TPU."""
  module, model_cfg, objective, objective_cfg = parts = engine_cases.parts(name)
  engine = sharding.Engine(sharding.Config(mode=mode), jax.devices()[:1], *options)
  optim = build.Config(**engine_cases.OPTIMIZERS[name])
  params, depth = engine_cases.start(name), functools.partial(module.depth, model_cfg)
  tx, rate = build.make(optim, params, depth, model_cfg.N, 10, 10), build.rate(optim, 10, 10)
  first = jax.eval_shape(lambda p: state.create(p, tx, build.average(optim, p)), params)
  rows = jax.eval_shape(lambda: module.init_state(model_cfg, engine_cases.ROWS))
  batch, key = engine_cases.batch(name, 0), jax.random.key(0)
  train_step = engine.compile_train(step.make_train_step(*parts, tx, rate, total_steps=10), first)
  eval_step = engine.compile_eval(step.make_eval_step(*parts))
  if mode == 'jit':
    made = train_step.trace(first, rows, batch, key), eval_step.trace(params, rows, batch)
    return [traced.lower(lowering_platforms=('tpu',)).as_text() for traced in made]
  rows, batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), (rows, batch))
  made = train_step.lower(first, rows, batch, key), eval_step.lower(params, rows, batch)
  return [one.as_text() for one in made]


@pytest.mark.parametrize(
  ('name', 'mode'),
  [
    ('gpt2', 'jit'),
    ('awd_lstm', 'jit'),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (('gpt2', 'pmap'), ('elmo', 'jit'))),
  ],
)
def test_every_product_of_both_steps_is_float32(name, mode):
  assert [precisions(text) for text in lowered(name, mode)] == [{'HIGHEST'}] * 2


def test_run_precision_is_used():
  assert [precisions(text) for text in lowered('rnn_lm', 'jit', 'tensorfloat32')] == [{'HIGH'}] * 2
  assert [precisions(text) for text in lowered('rnn_lm', 'jit', 'default')] == [{'DEFAULT'}] * 2


def test_generation_without_a_run_uses_float32():
  model, cfg = registry.get('gpt2'), registry.config('gpt2', 'tiny', V=61)
  params = jax.eval_shape(functools.partial(model.init, cfg), jax.random.key(0))
  tokens = jax.ShapeDtypeStruct((1, 3), np.int32)
  apply = lambda p, tokens_BT: model.logits(cfg, p, model.apply(cfg, p, {'tokens_BT': tokens_BT}, ())[0])
  assert precisions(jax.jit(apply).trace(params, tokens).lower(lowering_platforms=('tpu',)).as_text()) == {'HIGHEST'}


def test_default_precision_follows_compute_type():
  given = {'model': {'name': 'gpt2', 'variant': 'tiny'}, 'train': {'steps': 1}}
  assert resolve.resolve(given).matmul_precision == 'float32'
  assert resolve.resolve(given, ['model.dtype=bfloat16']).matmul_precision == 'default'
  assert resolve.resolve(given, ['model.dtype=bfloat16', 'evaluation.model={"N":2}']).matmul_precision == 'default'
  measured = ['model.dtype=bfloat16', 'evaluation.model={"dtype":"float32"}']
  assert resolve.resolve(given, measured).matmul_precision == 'float32'
  assert resolve.to_run(resolve.resolve(given, ['matmul_precision=bfloat16']), 61).matmul_precision == 'bfloat16'
  with pytest.raises(InputError, match='matmul_precision: unknown "float16"'):
    resolve.resolve(given, ['matmul_precision=float16'])
  before = resolve.resolve(given).to_dict()
  del before['semantics'], before['matmul_precision']
  assert resolve.resolve(before, saved=True).matmul_precision == 'default'  # what such a run began with


def test_every_entry_point_computes_at_the_precision_of_the_run(tmp_path, monkeypatch, capsys):
  """Training, its validation, measurement and samples; evaluate, generate, embed and context after it."""
  model, seen = registry.get('gpt2'), []
  apply = model.apply

  def watched(*args, **more):
    seen.append(jax.config.jax_default_matmul_precision)
    return apply(*args, **more)

  monkeypatch.setattr(model, 'apply', watched)
  tiny = [
    'parallel.data=1',
    'evaluation.baselines=false',
    'samples.count=1',
    'samples.tokens=2',
    'train.steps=2',
    'train.eval_every=2',
    'model.D=32',
    'model.N=1',
    'data.dataset=text_files',
    f'data.manual_dir={tmp_path}',
    'data.tokenizer=bytes',
    'data.batch_size=2',
    'data.length=16',
    'matmul_precision=tensorfloat32',
  ]
  run = ['train', '--config=experiments/gpt2/quickstart.py:tiny', f'--workdir={tmp_path}/run']
  for name in ('lines', 'train', 'valid', 'test'):
    (tmp_path / f'{name}.txt').write_text('a line of text\n' * (1 if name == 'lines' else 12))
  for command in (
    run + [f'--config.{text}' for text in tiny],
    ['evaluate', f'--workdir={tmp_path}/run', '--no-baselines'],
    ['generate', f'--workdir={tmp_path}/run', '--tokens=2', '--prompt=a'],
    ['embed', f'--workdir={tmp_path}/run', f'--input={tmp_path}/lines.txt', f'--output={tmp_path}/vectors.npz'],
    ['context', f'--workdirs={tmp_path}/run', '--lengths=4:8:4', '--tokens=8', f'--output={tmp_path}/context'],
  ):
    seen.clear()
    assert main.main(command) == 0, capsys.readouterr().err
    assert set(seen) == {'tensorfloat32'}, command[0]
  loaded = restore.load(tmp_path / 'run')
  evaluate.token_nll(loaded.run, loaded.corpus(), loaded.params, 'valid')
  list(contextual_embeddings.vectors(contextual_embeddings.from_run(loaded), ['a line']))
  assert set(seen) == {'tensorfloat32'} and loaded.run.matmul_precision == 'tensorfloat32'
