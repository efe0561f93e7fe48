"""GPT, GPT-2 and BERT against `transformers`, random weights: scores, loss, every gradient; padded rows included."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.interop import huggingface
from lmx.models import registry
from lmx.objectives import causal_lm, masked_lm

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')

pytestmark = pytest.mark.peer

TOLERANCE = 1e-4
B, T, V, D, H, N = 4, 24, 83, 48, 3, 3
LENGTHS = (24, 17, 5, 1)


def _tokens():
  """Rows of different lengths; 0, of which transformers' BERT takes no gradient as an input, is padding alone."""
  valid_BT = np.arange(T) < np.array(LENGTHS)[:, None]
  tokens_BT = np.random.default_rng(0).integers(1, V, (B, T))
  return np.where(valid_BT, tokens_BT, 0).astype(np.int32), valid_BT


def _randomise(module):
  """Weights far from initialisation, biases and LayerNorm scales too, so that every term counts."""
  generator = torch.Generator().manual_seed(1)
  with torch.no_grad():
    for name, p in module.named_parameters():
      around = 1.0 if 'ln_' in name and name.endswith('weight') or name.endswith('LayerNorm.weight') else 0.0
      p.copy_(around + 0.15 * torch.randn(p.shape, generator=generator))
  return module


def _tensors(module):
  return {name: p.detach().numpy() for name, p in module.state_dict().items()}


def _gradients(module):
  return {name: p.grad.numpy() for name, p in module.named_parameters() if p.grad is not None}  # a bias may be unused


def _assert_tree_close(ours, theirs):
  paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(theirs)]
  assert jax.tree.structure(ours) == jax.tree.structure(theirs)
  for path, a, b in zip(paths, jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
    np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, err_msg=path)


@pytest.mark.parametrize(
  'name,attention,changes,theirs',
  [
    ('gpt', 'xla', {}, {}),
    ('gpt', 'blocked', {}, {}),
    ('gpt2', 'xla', {}, {}),
    ('gpt2', 'blocked', {}, {}),
    ('gpt', 'xla', {'tied': False}, {'tie_word_embeddings': False}),
    ('gpt2', 'xla', {'tied': False, 'F': 80}, {'tie_word_embeddings': False, 'n_inner': 80}),
  ],
)
def test_gpt_equals_transformers(name, attention, changes, theirs):
  sizes = dict(vocab_size=V, n_positions=32, n_embd=D, n_layer=N, n_head=H, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0)
  sizes |= theirs
  module = {
    'gpt': lambda: transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**sizes)),
    'gpt2': lambda: transformers.GPT2LMHeadModel(
      transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, attn_implementation='eager')
    ),
  }[name]()
  module = _randomise(module).train()
  tokens_BT, valid_BT = _tokens()
  labels_BT = torch.tensor(np.where(valid_BT, tokens_BT, -100)).long()
  theirs = module(torch.tensor(tokens_BT).long(), attention_mask=torch.tensor(valid_BT).long(), labels=labels_BT)
  theirs.loss.backward()

  model = registry.get(name)
  still = dict(dropout_embedding=0.0, dropout_attention=0.0, dropout_residual=0.0)
  cfg = model.Config(V=V, T=32, D=D, H=H, N=N, attention=attention, **still, **changes)
  params = huggingface.from_hf(name, cfg, _tensors(module))
  weights_BT = np.zeros((B, T), np.float32)
  weights_BT[:, :-1] = valid_BT[:, 1:]
  batch = dict(tokens_BT=tokens_BT, targets_BT=np.roll(tokens_BT, -1, 1), weights_BT=weights_BT, valid_BT=valid_BT)

  def loss(params):
    out = causal_lm.loss(causal_lm.Config(), model, cfg, params, batch, ())
    return out.sums['nll'] / weights_BT.sum()

  value, gradients = jax.jit(jax.value_and_grad(loss))(params)
  features, _ = model.apply(cfg, params['model'], batch, ())
  logits_BTV = model.logits(cfg, params['model'], features)
  np.testing.assert_allclose(
    logits_BTV[valid_BT], theirs.logits.detach().numpy()[valid_BT], rtol=TOLERANCE, atol=TOLERANCE
  )
  np.testing.assert_allclose(value, theirs.loss.item(), rtol=TOLERANCE)
  expected = huggingface.from_hf(name, cfg, _gradients(module))
  _assert_tree_close(gradients, expected)


@pytest.mark.parametrize('gelu,activation', [('tanh', 'gelu_new'), ('erf', 'gelu')])
@pytest.mark.parametrize('attention,tied,F', [('xla', True, 0), ('blocked', True, 0), ('xla', False, 80)])
def test_bert_equals_transformers(gelu, activation, attention, tied, F):
  config = transformers.BertConfig(
    vocab_size=V,
    hidden_size=D,
    num_hidden_layers=N,
    num_attention_heads=H,
    intermediate_size=F or 4 * D,
    max_position_embeddings=32,
    hidden_act=activation,
    hidden_dropout_prob=0,
    attention_probs_dropout_prob=0,
    attn_implementation='eager',
    tie_word_embeddings=tied,
  )
  module = _randomise(transformers.BertForPreTraining(config)).train()
  tokens_BT, valid_BT = _tokens()
  rng = np.random.default_rng(2)
  types_BT = (np.arange(T) >= 9).astype(np.int32) * valid_BT
  next_B = np.array([0, 1, 1, 0], np.int32)
  P = 4
  positions_BP = np.stack([np.sort(rng.permutation(T)[:P]) for _ in range(B)]).astype(np.int32)
  weights_BP = np.take_along_axis(valid_BT, positions_BP, 1).astype(np.float32)
  targets_BP = rng.integers(0, V, (B, P)).astype(np.int32)
  labels_BT = np.full((B, T), -100)
  np.put_along_axis(labels_BT, positions_BP, np.where(weights_BP, targets_BP, -100), 1)
  theirs = module(
    torch.tensor(tokens_BT).long(),
    attention_mask=torch.tensor(valid_BT).long(),
    token_type_ids=torch.tensor(types_BT).long(),
    labels=torch.tensor(labels_BT),
    next_sentence_label=torch.tensor(next_B).long(),
  )
  theirs.loss.backward()

  model = registry.get('bert')
  cfg = model.Config(
    V=V, T=32, D=D, H=H, N=N, gelu=gelu, attention=attention, dropout_hidden=0, dropout_attention=0, tied=tied, F=F
  )
  params = huggingface.from_hf('bert', cfg, _tensors(module))
  batch = dict(
    tokens_BT=tokens_BT,
    valid_BT=valid_BT,
    types_BT=types_BT,
    positions_BP=positions_BP,
    targets_BP=targets_BP,
    weights_BP=weights_BP,
    next_B=next_B,
    row_weights_B=np.ones(B, np.float32),
  )

  def loss(params):
    out = masked_lm.loss(masked_lm.Config(), model, cfg, params, batch, (), jax.random.key(0))
    return out.sums['mlm'] / weights_BP.sum() + out.sums['nsp'] / B

  value, gradients = jax.jit(jax.value_and_grad(loss))(params)
  found, _ = masked_lm.predict(masked_lm.Config(), model, cfg, params, batch, ())
  logits_BPV = np.take_along_axis(theirs.prediction_logits.detach().numpy(), positions_BP[..., None], 1)
  real = weights_BP > 0
  np.testing.assert_allclose(found['logits_BPV'][real], logits_BPV[real], rtol=TOLERANCE, atol=TOLERANCE)
  np.testing.assert_allclose(
    found['next_logits_B2'], theirs.seq_relationship_logits.detach().numpy(), rtol=TOLERANCE, atol=TOLERANCE
  )
  np.testing.assert_allclose(value, theirs.loss.item(), rtol=TOLERANCE)
  _assert_tree_close(gradients, huggingface.from_hf('bert', cfg, _gradients(module)))
