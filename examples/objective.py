"""Train a GPT-2 with an objective of your own: cross-entropy and the z-loss of PaLM (arXiv 2204.02311, section 5)."""

import jax
import jax.numpy as jnp
import optax

from lmx.config import resolve
from lmx.data import pipeline
from lmx.models import gpt2

data = resolve.to_run(resolve.load('experiments/gpt2/quickstart.py:tiny')).data
corpus = pipeline.load(data)
batches = pipeline.batches(data, corpus, 'train', seed=0, train=True)  # a function of the step
cfg = gpt2.Config(V=corpus.tokenizer.vocab_size, T=data.length, D=64, H=2, N=2)


def loss(params, batch):
  """Return the mean over tokens of -log p + 1e-4 log^2 Z in nats, and its two parts."""
  features, _ = gpt2.apply(cfg, params, batch, gpt2.init_state(cfg, data.batch_size))
  logits_BTV = gpt2.logits(cfg, params, features)
  log_z_BT = jax.nn.logsumexp(logits_BTV, axis=-1)
  nll_BT = log_z_BT - jnp.take_along_axis(logits_BTV, batch['targets_BT'][..., None], axis=-1)[..., 0]
  nll, z = (jnp.average(x, weights=batch['weights_BT']) for x in (nll_BT, 1e-4 * log_z_BT**2))
  return nll + z, (nll, z)


@jax.jit
def update(params, moments, batch):
  """Return the parameters and moments after an update, and the parts of the loss before it."""
  gradient, parts = jax.grad(loss, has_aux=True)(params, batch)
  change, moments = optimizer.update(gradient, moments, params)
  return optax.apply_updates(params, change), moments, parts


params, optimizer = gpt2.init(cfg, jax.random.key(0)), optax.adamw(1e-3)
moments = optimizer.init(params)
for step in range(200):
  params, moments, (nll, z) = update(params, moments, batches(step))
  if step % 20 == 19:
    print(f'update {step + 1}: {nll:.3f} nats a token, z-loss {z:.4f}')
