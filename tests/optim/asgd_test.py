"""Averaged SGD: its trajectory against NumPy and torch.optim.ASGD, and the non-monotone trigger."""

from __future__ import annotations

import functools
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.optim import averaging, build
from tests.reference import asgd as reference

LENGTHS = (70, 33, 75, 5, 68, 71, 64)  # of windows, whose share of 70 scales the rate
A = np.diag([1.0, 0.3, 2.0]) + 0.1
START = np.array([1.0, -2.0, 0.5])
DECAY, LR = 0.05, 0.4
FACTORS = [n / 70 for n in LENGTHS]


def gradient(w, i):
  return A @ w + 0.1 * np.sin(i + np.arange(3))


def ours(cfg, begin=0):
  """Parameters and what is evaluated after each update; the averaging begins before update `begin`."""
  params = {'model': {'w': jnp.asarray(START, jnp.float32)}, 'objective': {}}
  tx = build.make(cfg, params, lambda path: 0, 1, 100, 10)
  opt_state, average = tx.init(params), build.average(cfg, params)
  path, means = [], []
  for i, factor in enumerate(FACTORS):
    if cfg.asgd == 'triggered' and i == begin:
      average = average._replace(begun=jnp.asarray(True))
    grads = {
      'model': {'w': jnp.asarray(gradient(np.asarray(params['model']['w'], np.float64), i), jnp.float32)},
      'objective': {},
    }
    scale = averaging.factor(average, jnp.float32(factor), cfg.asgd_lag)
    change, opt_state = tx.update(grads, opt_state, params, step=jnp.int32(i), lr_scale=scale)
    params = jax.tree.map(jnp.add, params, change)
    average = averaging.update(average, params, now=jnp.float32(factor), lag=cfg.asgd_lag)
    path.append(np.asarray(params['model']['w']))
    means.append(np.asarray(averaging.value(average, params)['model']['w']))
  return np.stack(path), np.stack(means)


def config(**changes):
  return build.Config(**{'optimizer': 'sgd', 'lr': LR, 'weight_decay': DECAY, 'asgd': 'start', **changes})


@pytest.mark.parametrize('lag', [False, True])
def test_trajectory_and_mean_match_numpy(lag):
  follow = reference.released if lag else reference.paper
  expected = follow(START, gradient, [LR * f for f in FACTORS], DECAY)
  for got, wanted in zip(ours(config(asgd_lag=lag)), expected, strict=True):
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_two_fidelities_differ_in_rate_and_mean():
  (path, mean), (path_released, mean_released) = ours(config()), ours(config(asgd_lag=True))
  np.testing.assert_allclose(path[0], path_released[0])
  assert np.abs(path[1] - path_released[1]).max() > 1e-2  # the second update is made at the first one's rate
  assert np.abs(mean - mean_released).max() > 1e-2


@pytest.mark.parametrize('lag', [False, True])
def test_before_averaging_parameters_follow_plain_sgd(lag):
  begin = 3
  path, means = ours(config(asgd='triggered', asgd_lag=lag), begin)
  rates = [LR * f for f in FACTORS]
  plain, _ = reference.paper(START, gradient, rates[:begin], DECAY)
  np.testing.assert_allclose(path[:begin], plain, rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(means[:begin], path[:begin])
  follow = reference.released if lag else reference.paper
  later = lambda w, i: gradient(w, i + begin)
  after, mean = follow(plain[-1], later, rates[begin:], DECAY)
  np.testing.assert_allclose(path[begin:], after, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(means[begin:], mean, rtol=1e-5, atol=1e-6)


@pytest.mark.peer
@pytest.mark.skipif(not importlib.util.find_spec('torch'), reason='needs torch')
def test_trajectory_matches_torch():
  import torch

  w = torch.nn.Parameter(torch.tensor(START, dtype=torch.float64))
  optimizer = torch.optim.ASGD([w], lr=LR, t0=0, lambd=0.0, weight_decay=DECAY)
  path, means = [], []
  for i, factor in enumerate(FACTORS):
    optimizer.param_groups[0]['lr'] = LR * factor
    w.grad = torch.tensor(gradient(w.detach().numpy(), i))
    optimizer.step()
    path.append(w.detach().numpy().copy())
    means.append(optimizer.state[w]['ax'].numpy().copy())
  for got, wanted in zip(ours(config(asgd_lag=True)), (path, means), strict=True):
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
  restated = reference.released(START, gradient, [LR * f for f in FACTORS], DECAY)
  np.testing.assert_allclose(restated, (path, means), rtol=1e-6)  # torch keeps the rate in float32


def test_update_compiles_once_for_before_and_after():
  update = jax.jit(functools.partial(averaging.update, lag=True))
  params = {'w': jnp.arange(3.0)}
  average = averaging.init_mean(params, begun=False)
  for begun in (False, True):
    average = update(average._replace(begun=jnp.asarray(begun)), params, now=jnp.float32(1))
  assert update._cache_size() == 1 and int(average.updates) == 1


def test_trigger_matches_the_released_loop():
  """A loss above the best but the last n, looked for only once there are more than n."""
  losses, triggers = [5.0, 4.0, 3.0, 3.5, 3.2, 3.1, 3.05, 3.01, 2.9, 3.02], []
  for n in (0, 2, 5):
    triggers.append([k for k in range(len(losses)) if averaging.is_triggered(losses[:k], losses[k], n)])
  assert triggers[0] == [3, 4, 5, 6, 7, 9]  # above the best of all before
  assert triggers[1] == [5, 6, 7, 9]  # 3.2 at 4 is compared with the best of 5 and 4
  assert triggers[2] == [9]  # 3.01 at 7 is not above 4, nor 2.9 at 8 above 3; 3.02 at 9 is


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'asgd': 'trigered'}, 'did you mean "triggered"'),
    ({'ema': 0.9}, 'optim.ema: got'),
    ({'nonmono': -1}, 'nonmono: got -1'),
  ],
)
def test_invalid_settings_are_rejected(changes, message):
  with pytest.raises(InputError, match=message):
    config(**changes)
