"""The Transformer against `transformers`' Marian on random weights: scores, loss, gradients, and what they write."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.decoding import beam_search
from lmx.interop import huggingface
from lmx.models import registry

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')

pytestmark = pytest.mark.peer

TOLERANCE = 1e-4
B, S, T, V, D, F, H = 4, 13, 11, 83, 48, 72, 3
SOURCES, TARGETS = (13, 9, 4, 1), (11, 3, 8, 1)
EOS = START = 0


def _marian(seed=1, scale=0.15):
  """Weights far from initialisation, biases and LayerNorm scales too, so that every term counts."""
  config = transformers.MarianConfig(
    vocab_size=V,
    decoder_vocab_size=V,
    d_model=D,
    encoder_layers=3,
    decoder_layers=2,
    encoder_attention_heads=H,
    decoder_attention_heads=H,
    encoder_ffn_dim=F,
    decoder_ffn_dim=F,
    activation_function='relu',
    scale_embedding=True,
    max_position_embeddings=64,
    dropout=0.0,
    attention_dropout=0.0,
    activation_dropout=0.0,
    pad_token_id=V - 1,
    eos_token_id=EOS,
    forced_eos_token_id=None,
    decoder_start_token_id=START,
    bos_token_id=None,
    share_encoder_decoder_embeddings=True,
    attn_implementation='eager',
  )
  module = transformers.MarianMTModel(config)
  generator = torch.Generator().manual_seed(seed)
  with torch.no_grad():
    for name, p in [*module.named_parameters(), ('final_logits_bias', module.final_logits_bias)]:
      if 'embed_positions' not in name:
        around = 1.0 if name.endswith('layer_norm.weight') else 0.0
        p.copy_(around + scale * torch.randn(p.shape, generator=generator))
  module.final_logits_bias.requires_grad_(True)
  return module.train()


def _config(**changes):
  model = registry.get('transformer')
  return model.Config(
    V=V,
    D=D,
    F=F,
    H=H,
    encoder_layers=3,
    decoder_layers=2,
    positions='halves',
    biases='all',
    eps=1e-5,
    dropout=0.0,
    **changes,
  )


def _batch():
  """Rows of different lengths on both sides."""
  rng = np.random.default_rng(0)
  ids = lambda *shape: rng.integers(1, V - 1, shape).astype(np.int32)
  valid_BT = np.arange(T) < np.array(TARGETS)[:, None]
  targets_BT = ids(B, T)
  tokens_BT = np.concatenate([np.full((B, 1), START, np.int32), targets_BT[:, :-1]], 1)
  source_valid_BS = np.arange(S) < np.array(SOURCES)[:, None]
  return dict(
    source_BS=ids(B, S),
    source_valid_BS=source_valid_BS,
    tokens_BT=tokens_BT,
    targets_BT=targets_BT,
    valid_BT=valid_BT,
    weights_BT=valid_BT.astype(np.float32),
  )


def _tensors(named):
  return {name: x.detach().numpy() for name, x in named}


@pytest.mark.parametrize('attention', ['xla', 'blocked'])
def test_equals_marian(attention):
  module, batch = _marian(), _batch()
  valid_BT = batch['valid_BT']
  labels_BT = torch.tensor(np.where(valid_BT, batch['targets_BT'], -100)).long()
  theirs = module(
    torch.tensor(batch['source_BS']).long(),
    attention_mask=torch.tensor(batch['source_valid_BS']).long(),
    decoder_input_ids=torch.tensor(batch['tokens_BT']).long(),
    labels=labels_BT,
  )
  theirs.loss.backward()

  model, cfg = registry.get('transformer'), _config(attention=attention)
  params = huggingface.from_hf('transformer', cfg, _tensors(module.state_dict().items()))['model']

  @jax.jit
  def run(params):
    def loss(params):
      features, _ = model.apply(cfg, params, batch, ())
      nll_BT = model.nll(cfg, params, features, batch['targets_BT'])
      return (nll_BT * batch['weights_BT']).sum() / batch['weights_BT'].sum(), model.logits(cfg, params, features)

    return jax.value_and_grad(loss, has_aux=True)(params)

  (value, logits_BTV), gradients = run(params)
  expected_BTV = theirs.logits.detach().numpy()
  assert np.abs(expected_BTV).max() > 3  # scores that could be wrong
  np.testing.assert_allclose(logits_BTV[valid_BT], expected_BTV[valid_BT], rtol=TOLERANCE, atol=TOLERANCE)
  np.testing.assert_allclose(value, theirs.loss.item(), rtol=TOLERANCE)
  named = [(name, p.grad) for name, p in module.named_parameters() if p.grad is not None]
  named += [('final_logits_bias', module.final_logits_bias.grad)]
  expected = huggingface.from_hf('transformer', cfg, _tensors(named))['model']
  assert jax.tree.structure(gradients) == jax.tree.structure(expected)
  for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(gradients), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, err_msg=jax.tree_util.keystr(path))


@pytest.mark.parametrize('size,alpha', [(1, 1.0), (4, 1.0), (4, 0.6), (4, 0.0)])
def test_beam_search_matches_generate(size, alpha):
  """Padded rows of four lengths, hypotheses of many.

  The last gain has mean 0, as a shared table makes a random model repeat its input else, and a bias favours the end.
  """
  module, batch, limit = _marian(seed=3).eval(), _batch(), 20
  with torch.no_grad():
    module.final_logits_bias[:, EOS] = 1.5
    module.model.decoder.layers[-1].final_layer_norm.weight.normal_(generator=torch.Generator().manual_seed(1))
  with torch.no_grad():
    theirs = (
      module.generate(
        torch.tensor(batch['source_BS']).long(),
        attention_mask=torch.tensor(batch['source_valid_BS']).long(),
        num_beams=size,
        length_penalty=alpha,
        max_new_tokens=limit,
        do_sample=False,
        early_stopping=False,
        num_return_sequences=size,
      )
      .numpy()
      .reshape(B, size, -1)[:, :, 1:]
    )
  model, cfg = registry.get('transformer'), _config()
  params = huggingface.from_hf('transformer', cfg, _tensors(module.state_dict().items()))['model']
  source = {k: v for k, v in batch.items() if k.startswith('source')}
  options = beam_search.Beam(size=size, alpha=alpha, penalty='power', stop='current')
  found = beam_search.search(model, cfg, params, beam=options, limits=limit, eos_ids=(EOS,), source=source)
  lengths = set()
  for b in range(B):
    for k in range(size):
      n = int(found.counts_BK[b, k])
      lengths.add(n)
      np.testing.assert_array_equal(found.tokens_BKT[b, k, :n], theirs[b, k, :n])
      assert n == theirs.shape[2] or theirs[b, k, n - 1] == EOS
  assert len(lengths) > 3


def test_export_is_read_by_transformers():
  module = _marian()
  tensors = _tensors(module.state_dict().items())
  back = huggingface.to_hf('transformer', _config(), huggingface.from_hf('transformer', _config(), tensors))
  fresh = _marian(seed=7)
  loaded = fresh.load_state_dict({n: torch.tensor(x) for n, x in back.items()}, strict=False)
  assert not loaded.unexpected_keys and all('embed_positions' in name for name in loaded.missing_keys)
  for name, x in _tensors(fresh.state_dict().items()).items():
    np.testing.assert_array_equal(x, tensors[name], err_msg=name)
