"""Optimizers against plain NumPy re-statements of their released code."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.optim import build
from tests.reference.ntm import rmsprop

STEPS = 6


def gradients():
  rng = np.random.default_rng(0)
  return [{'w': rng.normal(size=(3, 4)), 'b': rng.normal(size=4) * 1e-4} for _ in range(STEPS)]


def start():
  rng = np.random.default_rng(1)
  return {'w': rng.normal(size=(3, 4)), 'b': rng.normal(size=4)}


def ours(**fields):
  cfg = build.Config(lr=0.1, groups=(('b$', 1.0, 0.0), ('.*', 1.0, 1.0)), **fields)
  params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), {'model': start()})
  tx = build.make(cfg, params, lambda path: 0, 1, STEPS, STEPS)
  opt_state = tx.init(params)
  update = jax.jit(tx.update)
  for t, g in enumerate(gradients()):
    g = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), {'model': g})
    updates, opt_state = update(g, opt_state, params, step=jnp.int32(t))
    params = jax.tree.map(jnp.add, params, updates)
  return params['model']


def clipped(g, norm):
  total = np.sqrt(sum(np.sum(x**2) for x in g.values()))
  return {name: x * min(1.0, norm / total) for name, x in g.items()}


def bert(p, lr, b1, b2, eps, weight_decay, clip):
  """google-research/bert, optimization.py: AdamWeightDecayOptimizer after tf.clip_by_global_norm."""
  m = {name: np.zeros_like(x) for name, x in p.items()}
  v = {name: np.zeros_like(x) for name, x in p.items()}
  for g in gradients():
    g = clipped(g, clip)
    for name in p:
      m[name] = b1 * m[name] + (1 - b1) * g[name]
      v[name] = b2 * v[name] + (1 - b2) * g[name] ** 2
      update = m[name] / (np.sqrt(v[name]) + eps)
      if name != 'b':  # exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"]
        update = update + weight_decay * p[name]
      p[name] = p[name] - lr * update
  return p


def tensorflow(p, lr, b1, b2, eps, weight_decay=0.0):
  """The form before section 2.1 of arXiv 1412.6980; openai/finetune-transformer-lm, opt.py."""
  m = {name: np.zeros_like(x) for name, x in p.items()}
  v = {name: np.zeros_like(x) for name, x in p.items()}
  for t, g in enumerate(gradients(), 1):
    rate = lr * np.sqrt(1 - b2**t) / (1 - b1**t)
    for name in p:
      m[name] = b1 * m[name] + (1 - b1) * g[name]
      v[name] = b2 * v[name] + (1 - b2) * g[name] ** 2
      decay = weight_decay * p[name] if name != 'b' else 0.0
      p[name] = p[name] - rate * (m[name] / (np.sqrt(v[name]) + eps) + decay)
  return p


def adam(p, lr, b1, b2, eps, weight_decay, *, decoupled):
  """Algorithm 1 of arXiv 1412.6980; decay as algorithm 2 of arXiv 1711.05101 or as L2 in the gradient."""
  m = {name: np.zeros_like(x) for name, x in p.items()}
  v = {name: np.zeros_like(x) for name, x in p.items()}
  for t, g in enumerate(gradients(), 1):
    for name in p:
      decay = weight_decay * p[name] if name != 'b' else 0.0
      grad = g[name] if decoupled else g[name] + decay
      m[name] = b1 * m[name] + (1 - b1) * grad
      v[name] = b2 * v[name] + (1 - b2) * grad**2
      update = m[name] / (1 - b1**t) / (np.sqrt(v[name] / (1 - b2**t)) + eps)
      p[name] = p[name] - lr * (update + (decay if decoupled else 0.0))
  return p


def sgd(p, lr, momentum, weight_decay, *, nesterov):
  """torch.optim.SGD."""
  buffer = {name: np.zeros_like(x) for name, x in p.items()}
  for g in gradients():
    for name in p:
      grad = g[name] + (weight_decay * p[name] if name != 'b' else 0.0)
      buffer[name] = momentum * buffer[name] + grad
      p[name] = p[name] - lr * (grad + momentum * buffer[name] if nesterov else buffer[name])
  return p


def close(found, wanted):
  for name in wanted:
    np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-5)


def test_bert_adam():
  found = ours(optimizer='bert_adam', weight_decay=0.01, clip_norm=1.0)
  close(found, bert(start(), 0.1, 0.9, 0.999, 1e-6, 0.01, 1.0))


def test_bert_adam_lets_the_first_update_be_larger():
  p = bert(start(), 0.1, 0.9, 0.999, 1e-6, 0.0, 1e9)
  assert np.abs(p['w'] - adam(start(), 0.1, 0.9, 0.999, 1e-6, 0.0, decoupled=True)['w']).max() > 0.1


def test_uncorrected_eps():
  # The gradient of b is 1e-4, so an eps of 1e-3 shows where it is added.
  found = ours(optimizer='adam', eps=1e-3, eps_form='uncorrected')
  close(found, tensorflow(start(), 0.1, 0.9, 0.999, 1e-3))
  corrected = ours(optimizer='adam', eps=1e-3)
  assert np.abs(corrected['b'] - found['b']).max() > 1e-3


def test_gpts_decay_has_the_corrected_rate():
  options = dict(optimizer='adamw', eps=1e-8, eps_form='uncorrected', weight_decay=0.3)
  wanted = tensorflow(start(), 0.1, 0.9, 0.999, 1e-8, 0.3)
  close(ours(decay_form='bias_corrected', **options), wanted)
  assert np.abs(ours(**options)['w'] - wanted['w']).max() > 1e-2


@pytest.mark.parametrize('decoupled', [True, False])
def test_adam_and_adamw(decoupled):
  found = ours(optimizer='adamw' if decoupled else 'adam', weight_decay=0.1, b1=0.7, b2=0.99)
  close(found, adam(start(), 0.1, 0.7, 0.99, 1e-8, 0.1, decoupled=decoupled))


@pytest.mark.parametrize('nesterov', [True, False])
def test_sgd(nesterov):
  found = ours(optimizer='sgd', momentum=0.9, nesterov=nesterov, weight_decay=0.1)
  close(found, sgd(start(), 0.1, 0.9, 0.1, nesterov=nesterov))
  close(ours(optimizer='sgd'), sgd(start(), 0.1, 0.0, 0.0, nesterov=False))


@pytest.mark.parametrize('accumulator', [0.1, 1.0])
def test_adagrad(accumulator):
  """tf.train.AdagradOptimizer after clipping: p -= rate * g / sqrt(accumulator + sum of squares so far)."""
  p = start()
  total = {name: np.full_like(x, accumulator) for name, x in p.items()}
  for g in gradients():
    g = clipped(g, 2.0)
    for name in p:
      total[name] += g[name] ** 2
      p[name] -= 0.1 * g[name] / np.sqrt(total[name])
  close(ours(optimizer='adagrad', accumulator=accumulator, clip_norm=2.0), p)


def test_loss_ten_times_smaller_needs_a_hundredth_of_the_accumulator():
  """Why ELMo's experiments have 0.01 and 1 where the released code, on a loss 10 times ours, has 1 and 10."""
  released = ours(optimizer='adagrad', accumulator=1.0, clip_norm=2.0)
  tenth = build.Config(lr=0.1, optimizer='adagrad', accumulator=0.01, clip_norm=0.2)
  params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), {'model': start()})
  tx = build.make(tenth, params, lambda path: 0, 1, STEPS, STEPS)
  opt_state = tx.init(params)
  for t, g in enumerate(gradients()):
    g = jax.tree.map(lambda x: jnp.asarray(x / 10, jnp.float32), {'model': g})
    updates, opt_state = tx.update(g, opt_state, params, step=jnp.int32(t))
    params = jax.tree.map(jnp.add, params, updates)
  close(params['model'], released)


def test_lr_scale_multiplies_the_rate_and_the_step_drives_the_schedule():
  cfg = build.Config(optimizer='sgd', lr=1.0, schedule='linear')
  params = {'model': {'w': jnp.ones(2)}}
  tx = build.make(cfg, params, lambda path: 0, 1, 10, 10)
  updates, _ = tx.update(params, tx.init(params), params, step=jnp.int32(4), lr_scale=0.5)
  np.testing.assert_allclose(updates['model']['w'], -0.6 * 0.5, rtol=1e-6)


def test_rmsprop_of_graves():
  """Over the running standard deviation, with momentum."""
  for fields in ({}, {'momentum': 0.9}, {'momentum': 0.9, 'rms_decay': 0.8, 'eps': 1e-3}):
    found = ours(optimizer='rmsprop_graves', **fields)
    for name, value in start().items():
      expected = rmsprop(
        value,
        [g[name] for g in gradients()],
        0.1,
        momentum=fields.get('momentum', 0.0),
        decay=fields.get('rms_decay', 0.95),
        eps=fields.get('eps', 1e-4),
      )
      np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)


def test_entries_of_the_gradient_are_bounded():
  found = ours(optimizer='sgd', clip_value=0.5)
  for name, value in start().items():
    expected = value - 0.1 * sum(np.clip(g[name], -0.5, 0.5) for g in gradients())
    np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)


def test_adadelta():
  """Zeiler 2012, algorithm 1, with Bahdanau's clipping (appendix B.2)."""
  rho, eps, p = 0.95, 1e-6, start()
  squares, changes = ({name: np.zeros_like(x) for name, x in p.items()} for _ in range(2))
  for g in gradients():
    g = clipped(g, 1.0)
    for name in p:
      squares[name] = rho * squares[name] + (1 - rho) * g[name] ** 2
      change = -np.sqrt(changes[name] + eps) / np.sqrt(squares[name] + eps) * g[name]
      changes[name] = rho * changes[name] + (1 - rho) * change**2
      p[name] = p[name] + 0.1 * change  # 'ours' has a rate of 0.1
  close(ours(optimizer='adadelta', clip_norm=1.0), p)
  with pytest.raises(AssertionError):
    close(ours(optimizer='adadelta', clip_norm=1.0, rms_decay=0.9), p)
