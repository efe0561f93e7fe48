"""Train an LSTM on batches of your own making, with lmx's own step: it learns to add in base two."""

import jax
import numpy as np
import optax

from lmx.engine import state, step
from lmx.models import rnn_lm
from lmx.objectives import causal_lm

# A row is the bits of two numbers, lowest first and in turn, a mark, and the bits of their sum.
STEPS, ROWS, BITS = 600, 64, 4


def batches(seed):
  """Yield what the objective reads (docs/batch_keys.md): tokens, the tokens after them, and the weight of each."""
  draw = np.random.default_rng(seed)
  bits = lambda x, n: (x[:, None] >> np.arange(n)) & 1
  while True:
    a, b = draw.integers(0, 2**BITS, (2, ROWS))
    pairs = np.stack([bits(a, BITS), bits(b, BITS)], axis=-1).reshape(ROWS, -1)
    row = np.concatenate([pairs, np.full((ROWS, 1), 2), bits(a + b, BITS + 1)], axis=1).astype(np.int32)
    weights = np.tile(np.arange(row.shape[1] - 1) >= 2 * BITS, (ROWS, 1)).astype(np.float32)
    yield {'tokens_BT': row[:, :-1], 'targets_BT': row[:, 1:], 'weights_BT': weights}


cfg, objective = rnn_lm.Config(V=3, E=32, D=64, N=1), causal_lm.Config(stateful=False)
params = {'model': rnn_lm.init(cfg, jax.random.key(0)), 'objective': {}}
optimizer = optax.with_extra_args_support(optax.adam(1e-2))
train_step = jax.jit(step.make_train_step(rnn_lm, cfg, causal_lm, objective, optimizer, lambda i: 1e-2))
train_state, memory, key = state.create(params, optimizer), rnn_lm.init_state(cfg, ROWS), jax.random.key(1)
for i, batch in zip(range(STEPS), batches(seed=0), strict=False):
  train_state, memory, metrics = train_step(train_state, memory, batch, key)
  if i % 100 == 0 or i == STEPS - 1:
    print(f'update {i + 1}: {metrics["loss"]:.4f} nats a bit')

new, params = next(batches(seed=9)), train_state.params['model']
logits_BTV = rnn_lm.logits(cfg, params, rnn_lm.apply(cfg, params, new, rnn_lm.init_state(cfg, ROWS))[0])
right_B = (np.asarray(logits_BTV).argmax(-1) == new['targets_BT'])[:, 2 * BITS :].all(axis=1)
print(f'{right_B.mean():.0%} of {ROWS} new sums are right')
