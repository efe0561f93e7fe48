"""rnn_lm against torch.nn.{RNN,GRU,LSTM} on random weights: outputs, final states, loss and every gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.models import registry, rnn_lm
from tests import placed

torch = pytest.importorskip('torch')

pytestmark = pytest.mark.peer

TOLERANCE = 1e-5
B, T, V, E, D, N = 4, 13, 31, 11, 17, 2
LENGTHS = (7, 13, 1, 10)
CELLS = {
  'rnn': (torch.nn.RNN, {}),
  'rnn_relu': (torch.nn.RNN, {'nonlinearity': 'relu'}),
  'gru': (torch.nn.GRU, {}),
  'lstm': (torch.nn.LSTM, {}),
}


def modules_of(cell):
  """Embedding, recurrent layers and output of PyTorch, at the size of its own initialisation but biases too."""
  torch.manual_seed(4)
  make, extra = CELLS[cell]
  layers = {
    'embed': torch.nn.Embedding(V, E),
    'body': make(E, D, num_layers=N, **extra),
    'output': torch.nn.Linear(D, V),
  }
  return torch.nn.ModuleDict(layers)


def tree_of(modules, pick):
  """PyTorch's weights, or their gradients, as lmx lays them out."""
  get = lambda name: pick(modules.get_parameter(name)).numpy()  # noqa: E731
  tree = {
    'embed': {'table': get('embed.weight')},
    'output': {'table': get('output.weight'), 'bias': get('output.bias')},
  }
  for i in range(N):
    tree[f'layer_{i:02d}'] = {
      'input': get(f'body.weight_ih_l{i}').T,
      'recurrent': get(f'body.weight_hh_l{i}').T,
      'bias': get(f'body.bias_ih_l{i}'),
      'recurrent_bias': get(f'body.bias_hh_l{i}'),
    }
  return tree


def case(cell):
  """Tokens, targets, validity, first states (carries, N, B, D), and weights that make a loss of outputs and states."""
  rng = np.random.default_rng(5)
  carries = 2 if cell == 'lstm' else 1
  normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
  valid_BT = np.arange(T) < np.array(LENGTHS)[:, None]
  tokens_BT, targets_BT = rng.integers(0, V, (2, B, T)).astype(np.int32)
  return tokens_BT, targets_BT, valid_BT, normal(carries, N, B, D), normal(carries, N, B, D)


def torch_results(cell, modules):
  """(outputs_BTD, states, loss, gradients of weights, gradient of the first states) of PyTorch."""
  tokens_BT, targets_BT, valid_BT, first, mix = case(cell)
  first = torch.tensor(first, requires_grad=True)
  x_BTE = modules['embed'](torch.tensor(tokens_BT, dtype=torch.long))
  packed = torch.nn.utils.rnn.pack_padded_sequence(x_BTE, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
  out, last = modules['body'](packed, (first[0], first[1]) if cell == 'lstm' else first[0])
  last = torch.stack(last) if cell == 'lstm' else last[None]
  y_BTD, _ = torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=T)
  targets = torch.tensor(np.where(valid_BT, targets_BT, -100).reshape(-1), dtype=torch.long)
  scores = modules['output'](y_BTD).view(-1, V)
  nll = torch.nn.functional.cross_entropy(scores, targets, ignore_index=-100, reduction='sum')
  loss = nll + (last * torch.tensor(mix)).sum()
  loss.backward()
  gradients = tree_of(modules, lambda p: p.grad)
  return y_BTD.detach().numpy(), last.detach().numpy(), loss.item(), gradients, first.grad.numpy()


def lmx_results(cell, params, backend):
  """The same of lmx."""
  tokens_BT, targets_BT, valid_BT, first, mix = case(cell)
  cfg = rnn_lm.Config(V=V, E=E, D=D, N=N, cell=cell, bias='double', backend=backend)

  @jax.jit
  def run(params, first):
    def loss(params, first):
      state = tuple(tuple(first[:, i]) for i in range(N))
      batch = {'tokens_BT': tokens_BT, 'valid_BT': valid_BT}
      features, state = rnn_lm.apply(cfg, params, batch, state)
      last = jnp.stack([jnp.stack(carry) for carry in state], axis=1)
      nll_BT = rnn_lm.nll(cfg, params, features, targets_BT)
      return jnp.sum(nll_BT * valid_BT) + jnp.sum(last * mix), (features.last_BTD, last)

    return jax.value_and_grad(loss, (0, 1), has_aux=True)(params, first)

  with placed.on():
    (loss, (y_BTD, last)), (gradients, dfirst) = run(params, first)
  return y_BTD, last, loss, gradients, dfirst


@pytest.mark.parametrize('cell', sorted(CELLS))
@pytest.mark.parametrize('backend', ['scan', 'custom'])
def test_equals_torch(cell, backend):
  modules = modules_of(cell)
  params = tree_of(modules, lambda p: p.detach())
  expected_BTD, *expected = torch_results(cell, modules)
  got_BTD, *got = lmx_results(cell, jax.tree.map(jnp.asarray, params), backend)
  valid_BT = case(cell)[2]
  np.testing.assert_allclose(got_BTD[valid_BT], expected_BTD[valid_BT], rtol=TOLERANCE, atol=TOLERANCE)
  assert jax.tree.structure(got) == jax.tree.structure(expected)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE), got, expected)


def test_variants_are_the_size_of_torchs_model():
  cfg = registry.config('rnn_lm', 'small', bias='double')
  body = torch.nn.LSTM(cfg.E, cfg.D, num_layers=cfg.N)
  others = cfg.V * (cfg.E + cfg.D + 1)
  mine = sum(x.size for x in jax.tree.leaves(jax.eval_shape(lambda: rnn_lm.init(cfg, jax.random.key(0)))))
  assert mine == others + sum(p.numel() for p in body.parameters())
