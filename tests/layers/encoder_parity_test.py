"""The encoder against torch.nn.{GRU,LSTM} of several layers and both directions: outputs, last states, gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import rnn_encoder

torch = pytest.importorskip('torch')

pytestmark = pytest.mark.peer

B, S, E, D, N = 4, 9, 5, 6, 2
LENGTHS = (9, 4, 1, 7)
KINDS = {'gru': torch.nn.GRU, 'lstm': torch.nn.LSTM}


def weights_of(module, pick):
  """PyTorch's parameters, or their gradients, layer by layer; its second bias must be zero."""
  get = lambda name: pick(module.get_parameter(name)).numpy()
  layers = []
  for i in range(N):
    layer = {}
    for name, suffix in (('forward', ''), ('backward', '_reverse')):
      layer[name] = {
        'input': get(f'weight_ih_l{i}{suffix}').T,
        'recurrent': get(f'weight_hh_l{i}{suffix}').T,
        'bias': get(f'bias_ih_l{i}{suffix}'),
      }
    layers.append(layer)
  return layers


@pytest.mark.parametrize('cell', sorted(KINDS))
def test_equals_torch(cell):
  torch.manual_seed(2)
  module = KINDS[cell](E, D, num_layers=N, bidirectional=True, batch_first=True)
  for name, p in module.named_parameters():
    if name.startswith('bias_hh'):
      torch.nn.init.zeros_(p)
  rng = np.random.default_rng(0)
  x_BSE, mix = rng.normal(size=(B, S, E)).astype(np.float32), rng.normal(size=(B, S, 2 * D)).astype(np.float32)
  valid_BS = np.arange(S) < np.array(LENGTHS)[:, None]
  packed = torch.nn.utils.rnn.pack_padded_sequence(
    torch.tensor(x_BSE), torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False
  )
  out, last = module(packed)
  y_BSH, _ = torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=S)
  (y_BSH * torch.tensor(mix * valid_BS[..., None])).sum().backward()
  params = jax.tree.map(jnp.asarray, weights_of(module, lambda p: p.detach()))

  @jax.jit
  def run(params):
    def loss(params):
      found, ends = rnn_encoder.encode(cell, params, jnp.asarray(x_BSE), jnp.asarray(valid_BS), [None] * N, width=D)
      return jnp.sum(found * mix * valid_BS[..., None]), (found, ends)

    return jax.grad(loss, has_aux=True)(params)

  gradients, (found, ends) = run(params)
  np.testing.assert_allclose(found[valid_BS], y_BSH.detach().numpy()[valid_BS], rtol=1e-5, atol=1e-5)
  last = last[0] if cell == 'lstm' else last
  for i in range(N):
    for k, name in enumerate(('forward', 'backward')):
      np.testing.assert_allclose(ends[i][name][0], last[2 * i + k].detach().numpy(), rtol=1e-5, atol=1e-5)
  expected = weights_of(module, lambda p: p.grad)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), gradients, expected)
