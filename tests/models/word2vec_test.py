"""word2vec against its NumPy re-statement, pair by pair; the sparse step against the dense one, and what it costs."""

from __future__ import annotations

import functools
import itertools

import jax
import numpy as np
import optax
import pytest

from lmx import objectives
from lmx.data import corpus as corpora
from lmx.data import pipeline
from lmx.data.tokenizers import build as tokenizers
from lmx.engine import sharding, sparse_step
from lmx.engine import state as state_lib
from lmx.errors import InputError
from lmx.models import registry
from lmx.optim import build
from tests.reference import word2vec as reference

word2vec = registry.get('word2vec')
skipgram = objectives.get('skipgram')

WORDS = [f'w{i}' for i in range(30)]
RATE = 0.05


@functools.cache
def corpus():
  rng = np.random.default_rng(0)
  p = 1.0 / np.arange(1, len(WORDS) + 1)
  lines = [' '.join(rng.choice(WORDS, rng.integers(1, 9), p=p / p.sum())) for _ in range(60)]
  text = '\n'.join(lines) + '\n'
  texts = {'train': [text], 'valid': [text]}
  return corpora.Corpus.from_texts(texts, tokenizers.train('words', [text]), sentences='lines')


def batch_of(tree: bool, shared: bool, step: int = 0, batch_size: int = 2, length: int = 12, **changes):
  batching = {
    'name': 'skipgrams',
    'chunk': 6,
    'window': 2,
    'sample': 0.05,
    'negative': 0 if tree else 3,
    'shared_negatives': 7 if shared else 0,
    'top_nodes': 4,
    'path_slots': 5,
    **changes,
  }
  cfg = pipeline.Config(batching=batching, batch_size=batch_size, length=length)
  return pipeline.batches(cfg, corpus(), 'train', 0, train=True)(step)


def tables(V: int, D: int = 5):
  rng = np.random.default_rng(1)
  return {name: {'table': rng.normal(size=(V, D)).astype(np.float32)} for name in ('embed', 'output')}


FORMS = list(itertools.product(('skipgram', 'cbow'), ('negative', 'hierarchical')))
OUTPUTS = ('negative', 'pairs', 'hierarchical')
# With skip-grams the gradient of CBOW makes no difference.
CASES = [*itertools.product(('cbow',), OUTPUTS, ('c', 'mean')), *itertools.product(('skipgram',), OUTPUTS, ('mean',))]


@pytest.mark.parametrize(('architecture', 'output', 'cbow_gradient'), CASES)
def test_loss_and_gradients_are_the_references(architecture, output, cbow_gradient):
  tree = output == 'hierarchical'
  batch = batch_of(tree, output == 'negative')
  V = corpus().tokenizer.vocab_size
  cfg = word2vec.Config(V=V, D=5, architecture=architecture, cbow_gradient=cbow_gradient)
  params = tables(V)

  def loss(params):
    out = skipgram.loss(skipgram.Config(), word2vec, cfg, {'model': params}, batch, ())
    return out.sums['nll'], out.metrics['nll'][1]

  (found, count), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
  wide = [np.asarray(params[name]['table'], np.float64) for name in ('embed', 'output')]
  total, pairs, d_embed, d_output = reference.loss_and_gradients(
    {**batch, 'skipgram': architecture == 'skipgram'},
    *wide,
    architecture=architecture,
    tree=tree,
    cbow_gradient=cbow_gradient if architecture == 'cbow' else 'c',
  )
  assert pairs == count > 15
  np.testing.assert_allclose(found, total, rtol=1e-5)
  np.testing.assert_allclose(grads['embed']['table'], d_embed, rtol=1e-4, atol=1e-4)
  np.testing.assert_allclose(grads['output']['table'], d_output, rtol=1e-4, atol=1e-4)


def test_shared_noise_has_the_expectation_of_noise_of_each_pair():
  V = corpus().tokenizer.vocab_size
  cfg, params = word2vec.Config(V=V, D=5), tables(V)

  def gradient(batch):
    loss = lambda p: skipgram.loss(skipgram.Config(), word2vec, cfg, {'model': p}, batch, ()).sums['nll']
    return jax.grad(loss)(params)['output']['table']

  means = []
  for shared in (True, False):
    batch = batch_of(False, shared)
    noise = np.stack([redrawn(batch, seed) for seed in range(400)])
    name = 'negatives_BJM' if shared else 'pair_negatives_BJTWK'
    of = jax.jit(lambda draws, batch=batch, name=name: jax.lax.map(lambda x: gradient(batch | {name: x}), draws))
    means.append(np.mean(of(noise), axis=0))
  assert np.abs(means[0] - means[1]).max() < 0.06 * np.abs(means[0]).max()


def redrawn(batch, seed):
  """Other noise words for the same windows."""
  rng = np.random.default_rng(seed)
  counts = np.bincount(np.asarray(corpus().splits['train'].tokens), minlength=corpus().tokenizer.vocab_size) ** 0.75
  name = 'negatives_BJM' if 'negatives_BJM' in batch else 'pair_negatives_BJTWK'
  return rng.choice(len(counts), size=batch[name].shape, p=counts / counts.sum()).astype(np.int32)


def steps(architecture, V, *, D=5):
  """(function from parameters to a train state, sparse step of the same model at rate RATE)."""
  cfg = word2vec.Config(V=V, D=D, architecture=architecture)
  optim = build.Config(optimizer='sgd', lr=RATE)
  tx = build.make(optim, {'model': tables(V, D), 'objective': {}}, lambda path: word2vec.depth(cfg, path), 0, 10, 10)
  parts = word2vec, cfg, skipgram, skipgram.Config()
  rate = build.rate(optim, 10, 10)
  assert sparse_step.is_sparse(optim)
  return functools.partial(state_lib.create, tx=tx), sparse_step.make(*parts, rate)


@pytest.mark.parametrize(('architecture', 'output'), FORMS)
def test_sparse_updates_equal_sequential_dense_updates(architecture, output):
  batch, V = batch_of(output == 'hierarchical', True), corpus().tokenizer.vocab_size
  begin, sparse = steps(architecture, V)
  cfg = word2vec.Config(V=V, D=5, architecture=architecture)
  J = batch['window_BJT'].shape[1]
  assert J == 2

  @jax.jit
  def run(params, batch, key):
    found, _, metrics = sparse(begin(params), (), batch, key)
    expected = params
    for j in range(J):
      part = {k: v[:, j : j + 1] if v.ndim > 1 else v for k, v in batch.items()}
      loss = lambda p, part=part: skipgram.loss(skipgram.Config(), word2vec, cfg, p, part, ()).sums['nll']
      expected = jax.tree.map(lambda p, g: p - RATE * g, expected, jax.grad(loss)(expected))
    return found, metrics, expected

  found, metrics, expected = run({'model': tables(V), 'objective': {}}, batch, jax.random.key(0))
  for a, b in zip(jax.tree.leaves(found.params), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
  assert int(found.step) == 1 and bool(metrics['finite'])
  assert metrics['lr'] == np.float32(RATE) and metrics['grad_norm'] > 0


def test_step_reads_rows_and_nothing_of_the_size_of_the_table():
  """In the traced step, only gather, scatter and the loop that carries them see an array with V rows."""
  V = 4099
  batch = batch_of(False, True)
  begin, sparse = steps('skipgram', V)
  state = jax.eval_shape(begin, {'model': tables(V), 'objective': {}})
  jaxpr = jax.make_jaxpr(sparse)(state, (), batch, jax.random.key(0))
  seen = {name for name, shapes in equations(jaxpr.jaxpr) if any(V in shape for shape in shapes)}
  assert seen <= {'gather', 'scatter-add', 'scan', 'pjit', 'jit'}, seen
  assert {'gather', 'scatter-add'} <= seen
  compiled = jax.jit(sparse, donate_argnums=0).lower(state, (), batch, jax.random.key(0)).compile()
  memory = compiled.memory_analysis()
  assert memory.temp_size_in_bytes < 0.5 * tables(V)['embed']['table'].nbytes


def equations(jaxpr):
  """(primitive, shapes of its operands and results) of every equation, inner ones too."""
  for eqn in jaxpr.eqns:
    yield eqn.primitive.name, [v.aval.shape for v in (*eqn.invars, *eqn.outvars) if hasattr(v.aval, 'shape')]
    for value in eqn.params.values():
      for inner in value if isinstance(value, tuple | list) else (value,):
        if hasattr(inner, 'jaxpr'):
          yield from equations(inner.jaxpr)


def test_non_finite_loss_stops_the_updates_of_the_step():
  batch = batch_of(False, True)
  begin, sparse = steps('skipgram', corpus().tokenizer.vocab_size)
  given = tables(corpus().tokenizer.vocab_size)
  used = np.asarray(batch['tokens_BJS'])[np.asarray(batch['documents_BJS']) > 0]
  before = {k: v[:, 0] for k, v in batch.items() if v.ndim > 1}
  ids = jax.tree.leaves(word2vec.rows(word2vec.Config(), before))
  first = set(np.concatenate([np.ravel(i) for i in ids]).tolist())
  word = next(int(i) for i in used if int(i) not in first)
  given['embed']['table'][word] = 3e38  # its scores overflow
  run = jax.jit(lambda params, batch, key: sparse(begin(params), (), batch, key))
  after, _, metrics = run({'model': given, 'objective': {}}, batch, jax.random.key(0))
  assert not bool(metrics['finite']) and int(after.step) == 1
  outputs = np.asarray(after.params['model']['output']['table'])
  assert np.isfinite(outputs).all()  # nothing of the broken update arrived
  kept = [i for i in range(len(outputs)) if i not in first]
  np.testing.assert_array_equal(outputs[kept], given['output']['table'][kept])
  assert not np.array_equal(outputs, given['output']['table'])  # the update before it did


@functools.cache
def on_one_device():
  return trained(sharding.Engine(sharding.Config(data=1), jax.devices()[:1]))


@pytest.mark.parametrize('mode', ['jit', 'pmap'])
def test_eight_devices_match_one_device(mode):
  """Rows of the batch on eight devices: the same parameters."""
  many = trained(sharding.Engine(sharding.Config(mode), jax.devices()[:8]))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), on_one_device(), many)


def test_blocked_tables_match_whole_tables():
  cfg = sharding.Config(data=2, fsdp=2, tensor=2)
  many = trained(sharding.Engine(cfg, row_tables=word2vec.ROW_TABLES), sharded=True)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), on_one_device(), many)


def trained(engine, sharded=False):
  batch = batch_of(False, True, batch_size=8, length=6)
  cfg = word2vec.Config(V=32, D=4)
  rate = build.rate(build.Config(optimizer='sgd', lr=RATE), 10, 10)
  state = engine.build(lambda p: state_lib.create(p, optax.identity()), {'model': tables(32, 4), 'objective': {}})
  step = sparse_step.make(word2vec, cfg, skipgram, skipgram.Config(), rate, replicate=engine.constrain_replicated)
  step = engine.compile_train(step, state, donate=False)
  key = engine.replicate(jax.random.key(1))
  rows = engine.build_rows(lambda: (), 8)
  for _ in range(3):
    state, rows, _ = step(state, rows, engine.put_batch(batch), key)
  if sharded:
    for x in jax.tree.leaves(state.params):
      assert x.sharding.shard_shape(x.shape) == (len(x) // 4, 4)
  return jax.tree.map(np.asarray, engine.to_global(state, rows, 8)[0].params)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'momentum': 0.9}, 'momentum'),
    ({'ema': 0.9}, 'ema'),
    ({'weight_decay': 0.1}, 'weight_decay'),
    ({'clip_norm': 1.0}, 'clip_norm'),
    ({'accumulate': 2}, 'accumulate'),
  ],
)
def test_options_needing_dense_tables_are_rejected(changes, message):
  with pytest.raises(InputError, match=message):
    sparse_step.is_sparse(build.Config(optimizer='sgd', **changes))


def test_other_optimizers_take_the_dense_step():
  assert not sparse_step.is_sparse(build.Config(optimizer='adamw'))


def test_initial_values_match_word2vec():
  params = jax.device_get(jax.jit(word2vec.init, static_argnums=0)(word2vec.Config(V=5000, D=8), jax.random.key(0)))
  table = params['embed']['table']
  assert abs(np.abs(table).max() - 0.5 / 8) < 1e-3 and abs(table.mean()) < 1e-3
  assert not params['output']['table'].any()
