"""Transformer-XL against `TransfoXLLMHeadModel` of transformers before 5, on random weights, segment after segment."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.interop import huggingface
from lmx.models import registry

torch = pytest.importorskip('torch')
theirs = pytest.importorskip('transformers.models.deprecated.transfo_xl', reason='transformers before 5 is not here')

pytestmark = pytest.mark.peer

TOLERANCE = 1e-4
B, T, V, D, F, H, M = 3, 7, 71, 48, 56, 4, 9
CASES = {
  'tables alike': dict(div_val=1),
  'narrower clusters': dict(div_val=2, untie_r=False),
  'projections of their own': dict(div_val=2, proj_share_all_but_first=False),
  'one cluster': dict(div_val=1, cutoffs=[]),
  'far places alike': dict(div_val=2, clamp_len=5),
  'as far back for all': dict(div_val=1, same_length=True),
}


@pytest.fixture(autouse=True)
def type_as(monkeypatch):
  """The module of 4.57 calls `x.type_as(dtype=...)`, which torch does not know."""
  cast = lambda x, other=None, dtype=None: x.to(other.dtype if dtype is None else dtype)
  monkeypatch.setattr(torch.Tensor, 'type_as', cast)


def _module(**given):
  """Weights far from initialisation, biases and LayerNorm's gains too, so that every term counts."""
  sizes = dict(
    vocab_size=V,
    cutoffs=[20, 45],
    d_model=D,
    d_embed=D,
    n_head=H,
    d_head=D // H,
    d_inner=F,
    n_layer=3,
    mem_len=M,
    clamp_len=-1,
    same_length=False,
    dropout=0.0,
    dropatt=0.0,
    div_val=1,
  )
  module = theirs.TransfoXLLMHeadModel(theirs.TransfoXLConfig(**(sizes | given)))
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for name, p in module.named_parameters():
      p.copy_((1.0 if name.endswith('layer_norm.weight') else 0.0) + 0.15 * torch.randn(p.shape, generator=generator))
  return module.train()


def _config(given):
  tied = 'but_first' if given.get('proj_share_all_but_first', True) else 'none'
  return registry.get('transformer_xl').Config(
    V=V,
    D=D,
    F=F,
    H=H,
    N=3,
    M=M,
    cutoffs=tuple(given.get('cutoffs', (20, 45))),
    div_val=given['div_val'],
    tie_projections=tied if given['div_val'] > 1 else 'all',
    untie=given.get('untie_r', True),
    clamp=given.get('clamp_len', 0),
    same_length=given.get('same_length', False),
    fidelity='pytorch',
    dropout=0.0,
  )


def _tensors(module, get=lambda p: p):
  """By name; tensors that two names share stand under the first."""
  return {name: get(p).detach().numpy() for name, p in module.named_parameters()}


@pytest.mark.parametrize('case', CASES)
def test_equals_transformers_over_three_segments(case):
  given = CASES[case]
  module, cfg, model = _module(**given), _config(given), registry.get('transformer_xl')
  params = huggingface.from_hf('transformer_xl', cfg, _tensors(module))['model']
  tokens_BL = np.random.default_rng(0).integers(0, V, (B, 3 * T + 1)).astype(np.int32)
  # There the memory begins as zeros whatever the rest.
  mems, state = None, model.init_state(cfg, B) | {'filled_B': np.full(B, M, np.int32)}

  def loss(params, state, tokens_BT, targets_BT):
    features, state = model.apply(cfg, params, {'tokens_BT': tokens_BT}, state, all_layers=True)
    nll_BT = model.nll(cfg, params, features, targets_BT)
    return nll_BT.sum(), (model.logits(cfg, params, features), nll_BT, features.layers, state)

  run = jax.jit(jax.value_and_grad(loss, has_aux=True))
  for start in range(0, 3 * T, T):
    tokens_BT, targets_BT = tokens_BL[:, start : start + T], tokens_BL[:, start + 1 : start + T + 1]
    module.zero_grad()
    out = module(torch.tensor(tokens_BT).long(), mems=mems, output_hidden_states=True)
    log_p_BTV = torch.log_softmax(out.prediction_scores, -1) if not cfg.cutoffs else out.prediction_scores
    picked_BT = torch.gather(log_p_BTV, 2, torch.tensor(targets_BT).long()[..., None])[..., 0]
    (-picked_BT.sum()).backward()
    (_, (scores_BTV, nll_BT, layers, new)), gradient = run(params, state, tokens_BT, targets_BT)
    near = lambda a, b: np.testing.assert_allclose(a, np.asarray(b), rtol=TOLERANCE, atol=TOLERANCE)
    near(jax.nn.log_softmax(scores_BTV), log_p_BTV.detach())
    near(nll_BT, -picked_BT.detach())
    for ours, other in zip(layers, out.hidden_states, strict=True):
      near(ours, other.detach())
    for ours, other in zip(new['layers'], out.mems, strict=True):
      near(ours, other.transpose(0, 1))
    expected = huggingface.from_hf('transformer_xl', cfg, _tensors(module, lambda p: p.grad))['model']
    assert jax.tree.structure(gradient) == jax.tree.structure(expected)
    scale = max(np.abs(x).max() for x in jax.tree.leaves(expected))
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(gradient), jax.tree.leaves(expected), strict=True):
      np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * scale, err_msg=jax.tree_util.keystr(path))
    state, mems = new, out.mems
