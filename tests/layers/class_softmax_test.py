"""The class-factored softmax, compared with loops over the words of each class."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import class_softmax

V, D, STARTS = 11, 6, (1, 4, 5)
CLASS_V = class_softmax.class_of(STARTS, V)


def arrays(scale=1.0, rows=V):
  rng = np.random.default_rng(0)
  draw = lambda *shape: (scale * rng.standard_normal(shape)).astype(np.float32)
  return draw(2, 3, D), draw(rows, D), draw(len(STARTS) + 1, D), draw(rows)


def expected(x_D, table_VD, classes_KD, bias_V):
  """Return log p of every word by the definition, float64."""
  softmax = lambda scores: scores - scores.max() - np.log(np.exp(scores - scores.max()).sum())
  exact = [np.asarray(x, np.float64) for x in (x_D, table_VD, classes_KD, bias_V)]
  scores_V, log_p = exact[1] @ exact[0] + exact[3], softmax(exact[2] @ exact[0])
  edges = [0, *STARTS, V]
  parts = [log_p[k] + softmax(scores_V[a:b]) for k, (a, b) in enumerate(zip(edges, edges[1:], strict=False))]
  return np.concatenate(parts)


@pytest.mark.parametrize(('scale', 'rows'), [(1.0, V), (12.0, V), (1.0, 16)])
def test_probabilities_equal_the_definition_and_sum_to_one(scale, rows):
  """Also with logits that differ by hundreds, and with a table padded to 16 rows."""
  x_BTD, table_VD, classes_KD, bias_V = arrays(scale, rows)
  class_V = class_softmax.class_of(STARTS, rows)
  compute = jax.jit(functools.partial(class_softmax.log_probabilities, class_V=class_V, size=V))
  found = np.asarray(compute(x_BTD, table_VD, classes_KD, bias_V=bias_V), np.float64)
  np.testing.assert_allclose(np.exp(found).sum(axis=-1), 1, atol=1e-5)
  targets_BT = np.arange(6).reshape(2, 3) * 2
  loss = jax.jit(functools.partial(class_softmax.nll, class_V=class_V, size=V))
  nll_BT = loss(x_BTD, table_VD, classes_KD, targets_BT=targets_BT, bias_V=bias_V)
  for place in np.ndindex(2, 3):
    log_p = expected(x_BTD[place], table_VD[:V], classes_KD, bias_V[:V])
    np.testing.assert_allclose(found[place][:V], log_p, rtol=1e-5, atol=1e-5 * scale**2)
    assert nll_BT[place] == pytest.approx(-log_p[targets_BT[place]], rel=1e-5, abs=1e-5 * scale**2)


def test_gradients_of_both_forms_are_equal():
  x_BTD, table_VD, classes_KD, bias_V = arrays()
  targets_BT = np.array([[0, 3, 10], [4, 5, 1]])

  def by_probabilities(x, table, classes, bias):
    log_p = class_softmax.log_probabilities(x, table, classes, CLASS_V, bias)
    return -np.eye(V, dtype=np.float32)[targets_BT].ravel() @ log_p.ravel()

  by_loss = lambda x, table, classes, bias: class_softmax.nll(x, table, classes, CLASS_V, targets_BT, bias).sum()
  grads = [jax.jit(jax.grad(f, (0, 1, 2, 3)))(*arrays()) for f in (by_probabilities, by_loss)]
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *grads)


def toolkit_classes(counts, classes, mass):
  """Return the class of each word as Mikolov's rnnlmlib.cpp assigns it, word by word."""
  share = np.sqrt(counts) if mass == 'root' else np.asarray(counts, np.float64)
  share, total, index, found = share / share.sum(), 0.0, 0, []
  for one in share:
    total = min(total + one, 1.0)
    found.append(index)
    if total > (index + 1) / classes and index < classes - 1:
      index += 1
  return found


def test_classes_have_equal_shares():
  counts = [int(5000 / rank) for rank in range(1, 400)]
  for mass in class_softmax.MASSES:
    for classes in (1, 2, 10, 25):
      starts = class_softmax.starts(counts, classes, mass)
      assert len(starts) == classes - 1 and all(a < b for a, b in zip(starts, starts[1:], strict=False))
      assert class_softmax.class_of(starts, len(counts)).tolist() == toolkit_classes(counts, classes, mass)
  assert class_softmax.starts(counts, 10, 'frequency')[0] < class_softmax.starts(counts, 10, 'root')[0]
  with pytest.raises(InputError, match='model.classes: got 5; expected at most 3'):
    class_softmax.starts([90, 5, 5], 5, 'frequency')
