"""awd_lstm against fastai's AWD_LSTM on random weights: three windows with the state carried over, and a mask."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.models import awd_lstm, registry

torch = pytest.importorskip('torch')
fastai = pytest.importorskip('fastai.text.models.awdlstm')

pytestmark = pytest.mark.peer

TOLERANCE = 1e-5
B, T, V, E, D, N = 3, 11, 41, 24, 37, 3


def case():
  """fastai's model with weights away from its initialisation, and the same for lmx."""
  torch.manual_seed(3)
  theirs = fastai.AWD_LSTM(V, E, D, N, pad_token=None, hidden_p=0.25, input_p=0.4, embed_p=0.1, weight_p=0.5)
  with torch.no_grad():
    for p in theirs.parameters():
      p.uniform_(-0.4, 0.4)
  theirs.reset()
  cfg = registry.config('awd_lstm', 'tiny', V=V, E=E, D=D, N=N, dropout_output=0.0)
  get = lambda tensor: tensor.detach().numpy().copy()  # noqa: E731
  params = {'embed': {'table': get(theirs.encoder.weight)}, 'output': {'bias': np.zeros(V, np.float32)}}
  for i, rnn in enumerate(theirs.rnns):
    params[f'layer_{i:02d}'] = {
      'input': get(rnn.module.weight_ih_l0).T,
      'recurrent': get(rnn.weight_hh_l0_raw).T,
      'bias': get(rnn.module.bias_ih_l0),
      'recurrent_bias': get(rnn.module.bias_hh_l0),
    }
  shapes = jax.eval_shape(functools.partial(awd_lstm.init, cfg), jax.random.key(0))
  assert jax.tree.map(lambda x: x.shape, shapes) == jax.tree.map(lambda x: x.shape, params)
  tokens_BT = np.random.default_rng(0).integers(0, V, (B, 3 * T))
  return theirs, cfg, params, tokens_BT


def windows(cfg, params, tokens_BT):
  """Outputs of three windows, and the state after them."""
  apply = jax.jit(functools.partial(awd_lstm.apply, cfg))
  state, outputs = awd_lstm.init_state(cfg, B), []
  for i in range(3):
    features, state = apply(params, {'tokens_BT': tokens_BT[:, i * T : (i + 1) * T]}, state)
    outputs.append(np.asarray(features.last_BTD))
  return outputs, state


def test_three_windows_equal_fastai():
  theirs, cfg, params, tokens_BT = case()
  theirs.eval()
  outputs, state = windows(cfg, params, tokens_BT)
  for i, ours in enumerate(outputs):
    with torch.no_grad():
      wanted = theirs(torch.tensor(tokens_BT[:, i * T : (i + 1) * T])).numpy()
    np.testing.assert_allclose(ours, wanted, rtol=TOLERANCE, atol=TOLERANCE)
    assert np.abs(wanted).max() > 0.05
  for ours, (h, c) in zip(state, theirs.hidden, strict=True):
    np.testing.assert_allclose(ours[0], h[0], rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(ours[1], c[0], rtol=TOLERANCE, atol=TOLERANCE)
  fresh = theirs.hidden[0][0].abs().max().item()
  assert fresh > 0.05  # the state that was carried is not nothing


def test_in_training_fastai_drops_the_recurrent_kernel_and_nothing_else_as_we_do():
  """The masks that fastai drew, put into ours: the outputs are then equal."""
  theirs, cfg, params, tokens_BT = case()
  theirs.train()
  for module in (theirs.input_dp, *theirs.hidden_dps):
    module.p = 0.0
  theirs.encoder_dp.embed_p = 0.0
  with torch.no_grad():
    wanted = theirs(torch.tensor(tokens_BT[:, :T])).numpy()
  for i, rnn in enumerate(theirs.rnns):
    dropped = rnn.module.weight_hh_l0.detach().numpy().T
    assert 0.4 < (dropped == 0).mean() < 0.6
    params[f'layer_{i:02d}']['recurrent'] = dropped
  ours, _ = windows(cfg, params, tokens_BT)
  np.testing.assert_allclose(ours[0], wanted, rtol=TOLERANCE, atol=TOLERANCE)
