"""ULMFiT's encoder over windows, pooling and head on the same weights as fastai's, in training and in evaluation."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.models import registry
from lmx.objectives import classify

torch = pytest.importorskip('torch')
fastai = pytest.importorskip('fastai.text.models.core')
awd = pytest.importorskip('fastai.text.models.awdlstm')
pytestmark = pytest.mark.peer

V, E, D, N, C, BPTT, PAD = 40, 12, 16, 3, 4, 7, 1
LENGTHS = (31, 24, 30, 16, 8, 9, 27, 13, 14, 21, 28, 11)


def parts(pooled_length: int):
  """(their encoder, their classifier, our config, model, its config, our parameters with their weights)."""
  torch.manual_seed(0)
  encoder = awd.AWD_LSTM(V, E, D, N, pad_token=PAD, hidden_p=0.0, input_p=0.0, embed_p=0.0, weight_p=0.0)
  sentence = fastai.SentenceEncoder(BPTT, encoder, PAD, pooled_length or None)
  head = fastai.PoolingLinearClassifier([3 * E, 50, C], [0.0, 0.0], BPTT)
  model = registry.get('awd_lstm')
  quiet = {f'dropout_{where}': 0.0 for where in ('input', 'hidden', 'output', 'embedding', 'weight')}
  model_cfg = registry.config('awd_lstm', 'tiny', V=V, E=E, D=D, N=N, tied=True, **quiet)
  cfg = classify.Config(
    classes=C, bptt=BPTT, pooled_length=pooled_length, head_bias=False, dropout_pooled=0.0, dropout_head=0.0
  )
  params = {
    'model': model.init(model_cfg, jax.random.key(0)),
    'objective': classify.init(cfg, model, model_cfg, jax.random.key(1)),
  }
  # Weights around 0: where units saturate, features hardly differ and batch normalisation magnifies the rounding.
  params = jax.tree.map(lambda x: np.random.default_rng(x.size).normal(0.0, 0.4, x.shape).astype(np.float32), params)
  for i in range(2):
    norm = params['objective'][f'block_{i}']['norm']
    norm['variance'] = np.abs(norm['variance']) + 0.5
  _copy(params, encoder, head)
  return sentence, head, cfg, model, model_cfg, params


def _copy(params, encoder, head) -> None:
  to = lambda tensor, array: tensor.data.copy_(torch.from_numpy(np.ascontiguousarray(array)))
  to(encoder.encoder.weight, params['model']['embed']['table'])
  for i, rnn in enumerate(encoder.rnns):
    layer = params['model'][f'layer_{i:02d}']
    to(rnn.module.weight_ih_l0, layer['input'].T)
    to(rnn.weight_hh_l0_raw, layer['recurrent'].T)
    to(rnn.module.bias_ih_l0, layer['bias'])
    to(rnn.module.bias_hh_l0, layer['recurrent_bias'])
  for i in range(2):
    block = params['objective'][f'block_{i}']
    norm, linear = head.layers[i][0], head.layers[i][1]
    for name, leaf in (('weight', 'scale'), ('bias', 'bias'), ('running_mean', 'mean'), ('running_var', 'variance')):
      to(getattr(norm, name), block['norm'][leaf])
    to(linear.weight, block['kernel'].T)


def rows():
  rng = np.random.default_rng(3)
  T = max(LENGTHS)
  valid_BT = np.arange(T) < np.array(LENGTHS)[:, None]
  tokens_BT = np.where(valid_BT, rng.integers(2, V, (len(LENGTHS), T)), PAD).astype(np.int32)
  labels_B = rng.integers(0, C, len(LENGTHS)).astype(np.int32)
  return {
    'tokens_BT': tokens_BT,
    'valid_BT': valid_BT,
    'labels_B': labels_B,
    'row_weights_B': np.ones(len(LENGTHS), np.float32),
  }


def theirs(sentence, head, batch):
  """Logits of each document read alone by their encoder (their batches want padding in front), and their head."""
  outs = []
  for tokens_T, n in zip(batch['tokens_BT'], LENGTHS, strict=True):
    sentence.reset()
    out, mask = sentence(torch.from_numpy(tokens_T[None, :n].astype(np.int64)))
    outs.append(fastai.masked_concat_pool(out, mask, BPTT))
  return head.layers(torch.cat(outs))


@pytest.mark.parametrize('pooled_length', [0, 14])
def test_logits_are_fastais(pooled_length):
  sentence, head, cfg, model, model_cfg, params = parts(pooled_length)
  batch = rows()
  sentence.eval(), head.eval()
  with torch.no_grad():
    wanted = theirs(sentence, head, batch).numpy()
  found, _ = classify.predict(cfg, model, model_cfg, params, batch, ())
  np.testing.assert_allclose(found['logits_BC'], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('pooled_length', [0, 14])
def test_loss_gradients_and_running_statistics_are_fastais(pooled_length):
  sentence, head, cfg, model, model_cfg, params = parts(pooled_length)
  batch = rows()
  sentence.eval(), head.train()  # fastai's weight dropout cannot train under this PyTorch; all rates are 0 here
  loss = torch.nn.functional.cross_entropy(
    theirs(sentence, head, batch), torch.from_numpy(batch['labels_B'].astype(np.int64)), reduction='sum'
  )
  loss.backward()

  def ours(params):
    out = classify.loss(cfg, model, model_cfg, params, batch, (), jax.random.key(0))
    return out.sums['nll'], out.statistics

  (value, statistics), grads = jax.value_and_grad(ours, has_aux=True)(params)
  close = lambda a, b: np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-4, atol=1e-4)
  np.testing.assert_allclose(value, loss.item(), rtol=1e-5)
  for i in range(2):
    block, norm = head.layers[i], head.layers[i][0]
    close(grads['objective'][f'block_{i}']['kernel'].T, block[1].weight.grad)
    close(grads['objective'][f'block_{i}']['norm']['scale'], norm.weight.grad)
    close(statistics['objective'][f'block_{i}']['norm']['mean'], norm.running_mean)
    close(statistics['objective'][f'block_{i}']['norm']['variance'], norm.running_var)
  encoder = sentence.module
  close(grads['model']['embed']['table'], encoder.encoder.weight.grad)
  for i, rnn in enumerate(encoder.rnns):
    close(grads['model'][f'layer_{i:02d}']['recurrent'].T, rnn.weight_hh_l0_raw.grad)
