"""XLNet against transformers on random weights: orders, both streams, memory, padding, and the heads of fine-tuning."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.interop import huggingface
from lmx.models import registry
from lmx.objectives import classify, multiple_choice, span
from lmx.types import Features

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')

pytestmark = pytest.mark.peer

TOLERANCE = 1e-4
B, T, P, V, D, F, H, M = 4, 9, 3, 71, 48, 56, 4, 6


def _module(head='XLNetLMHeadModel', **given):
  """Weights far from initialisation, biases and LayerNorm's gains too, so that every term counts."""
  config = transformers.XLNetConfig(
    vocab_size=V,
    d_model=D,
    n_head=H,
    n_layer=3,
    d_inner=F,
    dropout=0.0,
    mem_len=M,
    ff_activation='gelu',
    use_mems_train=True,
    use_mems_eval=True,
    **given,
  )
  module = getattr(transformers, head)(config)
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for name, p in module.named_parameters():
      p.copy_((1.0 if name.endswith('layer_norm.weight') else 0.0) + 0.15 * torch.randn(p.shape, generator=generator))
  return module.train()


def _config(**changes):
  return registry.get('xlnet').Config(
    V=V, D=D, F=F, H=H, N=3, M=M, gelu='erf', dropout=0.0, dropout_attention=0.0, fidelity='paper', **changes
  )


def _batch(seed, padded):
  """A segment whose orders leave some tokens to be seen by all; P tokens of each row are predicted."""
  rng = np.random.default_rng(seed)
  lengths_B = np.array([T, T, T - 2, T - 3]) if padded else np.full(B, T)
  order_BT = np.zeros((B, T), np.int32)
  positions_BP = np.stack([np.sort(rng.permutation(n)[:P]) for n in lengths_B]).astype(np.int32)
  np.put_along_axis(order_BT, positions_BP, rng.permuted(np.tile(1 + np.arange(P), (B, 1)), axis=1), axis=1)
  valid_BT = np.arange(T) < lengths_B[:, None]
  return {
    'tokens_BT': rng.integers(0, V, (B, T)).astype(np.int32),
    'types_BT': np.sort(rng.integers(0, 3, (B, T)), axis=1),
    'order_BT': order_BT,
    'positions_BP': positions_BP,
    'valid_BT': valid_BT,
    'targets_BP': rng.integers(0, V, (B, P)).astype(np.int32),
  }


def _theirs(batch):
  """The order as masks, and where the query stream's rows are."""
  order_BT, at_BP = batch['order_BT'], batch['positions_BP']
  # There row i of a target is masked by the strict order for both streams, and the content stream sees itself.
  target_BT = (np.arange(T) == at_BP[..., None]).any(1)
  reach_BT = np.where(target_BT, order_BT, order_BT + 1)
  hidden_BTT = (order_BT[:, None] >= reach_BT[:, :, None]).astype(np.float32)
  return {
    'input_ids': torch.tensor(batch['tokens_BT']).long(),
    'token_type_ids': torch.tensor(batch['types_BT']).long(),
    'attention_mask': torch.tensor(batch['valid_BT']).float(),
    'perm_mask': torch.tensor(hidden_BTT),
    'target_mapping': torch.nn.functional.one_hot(torch.tensor(at_BP).long(), T).float(),
  }


def _tensors(module, get=lambda p: p):
  return {name: get(p).detach().numpy() for name, p in module.named_parameters() if get(p) is not None}


def near(a, b, scale=1.0, message=''):
  np.testing.assert_allclose(a, np.asarray(b), rtol=TOLERANCE, atol=TOLERANCE * scale, err_msg=message)


@pytest.mark.parametrize('padded', [False, True])
@pytest.mark.parametrize(
  'given, changes',
  [({}, {}), (dict(clamp_len=4), dict(clamp=4)), (dict(reuse_len=4), dict(reuse=4)), (dict(bi_data=True), {})],
  ids=str,
)
def test_equals_transformers_over_two_segments(given, changes, padded):
  module, cfg, model = _module(**given), _config(**changes), registry.get('xlnet')
  params = huggingface.from_hf('xlnet', cfg, _tensors(module))['model']
  mems, state = None, model.init_state(cfg, B)

  def loss(params, state, batch):
    features, state = model.apply(cfg, params, batch, state, all_layers=True)
    nll_BP = model.nll(cfg, params, Features(features.query_BPD), batch['targets_BP'])
    return nll_BP.sum(), (model.logits(cfg, params, Features(features.query_BPD)), features, state)

  run = jax.jit(jax.value_and_grad(loss, has_aux=True))
  for seed in range(2 if not padded else 1):  # their memory takes in padding
    batch = _batch(seed, padded)
    if given.get('bi_data'):
      batch['backward_B'] = np.arange(B) >= B // 2
    module.zero_grad()
    out = module(**_theirs(batch), mems=mems, output_hidden_states=True)
    log_p_BPV = torch.log_softmax(out.logits, -1)
    picked_BP = torch.gather(log_p_BPV, 2, torch.tensor(batch['targets_BP']).long()[..., None])[..., 0]
    (-picked_BP.sum()).backward()
    (_, (scores_BPV, features, new)), gradient = run(params, state, batch)
    near(scores_BPV, out.logits.detach())
    real = batch['valid_BT']
    content = out.hidden_states[::2]  # theirs alternate: content, query
    for ours, other in zip(features.layers, content, strict=True):
      near(np.asarray(ours)[real], other.detach().numpy()[real])
    expected = huggingface.from_hf('xlnet', cfg, _filled(module))['model']
    scale = max(np.abs(x).max() for x in jax.tree.leaves(expected))
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(gradient), jax.tree.leaves(expected), strict=True):
      near(a, b, scale, jax.tree_util.keystr(path))
    state, mems = new, out.mems
    for ours, other in zip(new['layers'], out.mems, strict=True):
      if not padded:
        near(ours[:, -other.shape[0] :], other.transpose(0, 1))


def _filled(module):
  """Gradients by name, zeros where a parameter has none."""
  return {n: (torch.zeros_like(p) if p.grad is None else p.grad).numpy() for n, p in module.named_parameters()}


def _rows(seed=4):
  """Rows without an order, whose last token is a segment of its own; and as they read them, padded on the left."""
  batch = _batch(seed, True)
  count_B = batch['valid_BT'].sum(1)
  types_BT = np.where(batch['valid_BT'], batch['types_BT'], 0).astype(np.int32)
  np.put_along_axis(types_BT, count_B[:, None] - 1, 7, axis=1)
  ours = {'tokens_BT': batch['tokens_BT'], 'valid_BT': batch['valid_BT'], 'types_BT': types_BT}
  left = lambda x_BT: torch.tensor(np.stack([np.roll(x, T - n) for x, n in zip(x_BT, count_B, strict=True)]))
  theirs = {
    'input_ids': left(ours['tokens_BT']).long(),
    'token_type_ids': left(types_BT).long(),
    'attention_mask': left(ours['valid_BT']).float(),
  }
  return ours | {'row_weights_B': np.ones(B, np.float32)}, theirs


HEAD = {'pooling': 'last', 'head': (0,), 'activation': 'tanh', 'normalize': False, 'bptt': 0, 'init_std': 0.02}


@pytest.mark.parametrize('kind', ['ForSequenceClassification', 'ForMultipleChoice'])
def test_rows_are_scored_as_by_transformers(kind):
  choices = kind == 'ForMultipleChoice'
  module = _module(f'XLNet{kind}', **({} if choices else {'num_labels': 3})).eval()
  cfg, model = _config(), registry.get('xlnet')
  params = huggingface.from_hf('xlnet', cfg, _tensors(module), f'XLNet{kind}', 3)
  batch, theirs = _rows()
  model_cfg = registry.get('xlnet').Config(**{**vars(cfg), 'M': 0})
  with torch.no_grad():
    grouped = {k: v.reshape(2, 2, T) for k, v in theirs.items()} if choices else theirs
    expected = module(**grouped, use_mems=False).logits.numpy()
  if choices:
    batch = {k.replace('_BT', '_BGT'): v.reshape(2, 2, T) for k, v in batch.items() if k.endswith('_BT')}
    batch['row_weights_B'] = np.ones(2, np.float32)
    found = multiple_choice.predict(multiple_choice.Config(choices=2, **HEAD), model, model_cfg, params, batch, ())[0]
  else:
    found = classify.predict(classify.Config(classes=3, **HEAD), model, model_cfg, params, batch, ())[0]
  near(found['logits_BC'], expected)


def test_answers_match_transformers():
  module = _module('XLNetForQuestionAnswering', start_n_top=3, end_n_top=2).eval()
  cfg, model = _config(), registry.get('xlnet')
  params = huggingface.from_hf('xlnet', cfg, _tensors(module), 'XLNetForQuestionAnswering')
  model_cfg = registry.get('xlnet').Config(**{**vars(cfg), 'M': 0})
  batch, _ = _rows()
  count_B = batch['valid_BT'].sum(1)
  null_B = (count_B - 1).astype(np.int32)
  passage_BT = np.arange(T) < (count_B - 3)[:, None]
  batch |= {
    'null_B': null_B,
    'passage_BT': passage_BT,
    'starts_B': np.array([1, 2, null_B[2], 0]),
    'ends_B': np.array([3, 2, null_B[2], 1]),
  }
  among_BT = passage_BT | (np.arange(T) == null_B[:, None])
  theirs = {
    'input_ids': torch.tensor(batch['tokens_BT']).long(),
    'token_type_ids': torch.tensor(batch['types_BT']).long(),
    'attention_mask': torch.tensor(batch['valid_BT']).float(),
    'cls_index': torch.tensor(null_B).long(),
    'p_mask': torch.tensor(1.0 - among_BT).float(),
    'use_mems': False,
  }
  objective = span.Config(head='xlnet', begins=3, ends=2)
  right = {f'{end}_positions': torch.tensor(batch[f'{end}s_B']).long() for end in ('start', 'end')}
  with torch.no_grad():
    out, loss = module(**theirs), module(**theirs, **right).loss
  found = span.predict(objective, model, model_cfg, params, batch, ())[0]
  near(found['odds_B'], out.cls_logits)
  np.testing.assert_array_equal(found['begin_BK'], out.start_top_index)
  np.testing.assert_array_equal(np.swapaxes(found['end_BKE'], 1, 2).reshape(B, -1), out.end_top_index)
  both = out.start_top_log_probs[:, None] * out.end_top_log_probs.reshape(B, 2, 3)  # probabilities, whatever the name
  near(np.exp(np.swapaxes(found['scores_BKE'], 1, 2)), both)
  sums = span.loss(objective, model, model_cfg, params, batch, ()).sums
  near(sums['nll'] / B, loss)
  # In training theirs gives this layer the right beginning, the release the expected one.
  none = torch.tensor(batch['starts_B'] == null_B).float()
  near(sums['null'] / B, 0.5 * torch.nn.functional.binary_cross_entropy_with_logits(out.cls_logits, none))
