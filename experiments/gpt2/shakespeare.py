"""GPT-2 over the characters of Shakespeare, nanoGPT's first examples (github.com/karpathy/nanoGPT).

  lmx train --config=experiments/gpt2/shakespeare.py --workdir=runs/shakespeare --config.data.manual_dir=DIR
  lmx train --config=experiments/gpt2/shakespeare.py:tiny --workdir=runs/tiny        seconds: a smoke test

DIR holds tiny-shakespeare (Karpathy's char-rnn, 1,115,394 characters, public domain) as train.txt, its first
1,003,854 characters, and valid.txt, the other 111,540. There is no test split; the validation split also chooses the
parameters, as in nanoGPT.

  variant  model                        validation loss, nats  hardware and time
  cpu      4 layers of 128, context 64  about 1.88             two cores, minutes (nanoGPT's README: a MacBook, 3)
  baby     6 layers of 384, context 256 1.4697                 one GPU, minutes (nanoGPT's README: an A100, 3)

`baby` is nanoGPT's config/train_shakespeare_char.py, `cpu` the flags that its README gives for a machine without GPU.
The validation loss covers the whole split in adjacent windows; nanoGPT estimates it from random windows (200 batches,
or 20 of 12 for `cpu`), as `lmx evaluate` does with --config.data.batching.drawn=240 --no-baselines.

Deviations: nanoGPT omits biases (--config.model.bias=False); here the model has them, as in the paper. nanoGPT samples
windows anywhere in the text; here an epoch's windows are adjacent, with a random offset and in random order.
"""

from __future__ import annotations

from experiments import config
from experiments.gpt import recipe as gpt

VARIANTS = ('cpu', 'baby', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  base = {
    'name': f'gpt2_shakespeare_{variant}',
    'model': {'name': 'gpt2', 'variant': '124m', 'init': 'nanogpt'},
    'data': {
      'dataset': 'text_files',
      'documents': 'file',
      'split_fraction': 0.0,  # no test split
      'tokenizer': 'characters',
      'batching': {'name': 'windows', 'ends': False},
    },
    'optim': {
      'optimizer': 'adamw',
      'lr': 1e-3,
      'b2': 0.99,
      'weight_decay': 0.1,
      'clip_norm': 1.0,
      'schedule': 'cosine',
      'warmup_steps': 100,
      'end_fraction': 0.1,
      'groups': config.DECAY_MATRICES_ONLY,
    },
    'train': {'eval_every': 250},
    'evaluation': {'split': 'valid', 'baselines': False},
  }
  cpu = {
    'model': {'D': 128, 'H': 4, 'N': 4, 'T': 64, **gpt.dropout(0.0)},
    'data': {'batch_size': 12, 'length': 64},
    'train': {'steps': 2000},
  }
  baby = {
    'model': {'D': 384, 'H': 6, 'N': 6, 'T': 256, **gpt.dropout(0.2), 'dtype': 'bfloat16'},
    'data': {'batch_size': 64, 'length': 256},
    'train': {'steps': 5000},
  }
  tiny = config.merge(config.tiny(), {'data': {'batching': 'windows'}}).to_dict()
  return config.merge(base, {'cpu': cpu, 'baby': baby, 'tiny': tiny}[variant])


def sweep():
  yield from config.grid(optim__lr=[5e-4, 1e-3, 2e-3], model__dropout_residual=[0.0, 0.1, 0.2])
