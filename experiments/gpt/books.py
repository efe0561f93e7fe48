"""GPT (Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training"), pre-training: section 4.1.

  lmx train --config=experiments/gpt/books.py:base --workdir=runs/gpt --config.data.manual_dir=DIR

BooksCorpus (over 7,000 unpublished books) is no longer distributed; DIR holds books or other long texts, .txt, .txt.gz
or .jsonl. The authors cleaned theirs with ftfy and tokenized it with spaCy; we do not.

Batches of 64 windows of 512 tokens, 100 epochs, Adam at 2.5e-4 after 2,000 updates of warm-up, a cosine to 0, dropout
0.1 and "a modified version of L2 regularization proposed in [Loshchilov and Hutter]" with w = 0.01 "on all non bias or
gain weights", which is decoupled decay. The vocabulary is a byte-level BPE of 40,478 tokens, lower-cased; the authors'
BPE is over characters with end-of-word symbols. For comparable metrics import theirs.

  variant  validation perplexity to expect           hardware and time
  base     18.4 on BooksCorpus (section 4.1)         8 GPUs of 2018, a month (the authors' announcement)
  lstm     none printed                              the same
  tiny     a small model on the embedded corpus      seconds on a CPU

`lstm` is the "single layer 2048 unit LSTM" that replaces the Transformer in table 5; its embedding width is not
printed, here 768.

Option `fidelity`: 'paper' (default) or 'released', see lmx/models/gpt.py.
"""

from __future__ import annotations

from experiments import config
from experiments.gpt import recipe

VARIANTS = ('base', 'lstm', 'tiny')


@config.arguments(VARIANTS, fidelity=('paper', 'released'))
def get_config(variant, options):
  base = {
    'name': f'gpt_books_{variant}',
    'model': {'name': 'gpt', 'variant': 'base', 'dtype': 'bfloat16', 'fidelity': options.fidelity},
    'data': {
      'dataset': 'text_files',
      'tokenizer': 'bpe',
      'lower_case': True,
      'vocab_size': 40_478,
      'batching': 'windows',
      'batch_size': 64,
      'length': 512,
    },
    'optim': {
      'optimizer': 'adamw',
      'lr': 2.5e-4,
      'weight_decay': 0.01,
      'schedule': 'cosine',
      'warmup_steps': 2000,
      'groups': config.DECAY_MATRICES_ONLY,
    },
    'train': {'epochs': 100, 'eval_every': 2000, 'log_every': 100},
    'checkpoint': {'every_steps': 1000},
    'evaluation': {'split': 'valid', 'baselines': False},
  }
  if variant == 'lstm':
    base['model'] = recipe.lstm('bfloat16')
  return config.merge(base, config.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[1.25e-4, 2.5e-4, 5e-4])
