"""GPT-2 (Radford et al. 2019) from scratch on WikiText-2 or WikiText-103 (Merity et al. 2016, arXiv 1609.07843).

  lmx train --config=experiments/gpt2/wikitext.py:wikitext103 --workdir=runs/wt103

The data sets are downloaded, or read from --config.data.manual_dir=DIR. Byte-level BPE is trained on the train split;
perplexity per word (`ppl_word`) divides by the tokens of the original file, <eos> of each line included, so it
compares with word-level rows. Windows overlap by half in evaluation.

  variant      model                              to expect                          hardware and time
  wikitext2    6 layers of 384, dropout 0.3       no row printed for this set-up     one GPU, under an hour
  wikitext103  124m                               no row printed for this set-up     8 GPUs, about a day

For scale, GPT-2's zero-shot rows (table 3: trained on WebText, never on WikiText): 124M 29.41 on WikiText-2 and
37.50 on WikiText-103; 1558M 18.34 and 17.48. Those are scores of the original weights, not of this training.
"""

from __future__ import annotations

from experiments import config
from experiments.gpt import recipe as gpt

VARIANTS = ('wikitext2', 'wikitext103', 'tiny')


def get_config(arg: str = ''):
  variant, _ = config.parse_arg(arg, VARIANTS)
  dataset = 'wikitext2' if variant == 'tiny' else variant
  base = {
    'name': f'gpt2_{dataset}',
    'model': {'name': 'gpt2', 'variant': '124m', 'init': 'nanogpt'},
    'data': {'dataset': dataset, 'tokenizer': 'bpe', 'batching': {'name': 'windows'}},
    'optim': {
      'optimizer': 'adamw',
      'b2': 0.95,
      'weight_decay': 0.1,
      'clip_norm': 1.0,
      'schedule': 'cosine',
      'end_fraction': 0.1,
      'groups': config.DECAY_MATRICES_ONLY,
    },
    'train': {'log_every': 100},
  }
  changes = {
    'wikitext2': {
      'model': {'D': 384, 'H': 6, 'N': 6, 'T': 256, **gpt.dropout(0.3)},
      'data': {'vocab_size': 8192, 'batch_size': 32, 'length': 256, 'batching': {'stride': 128}},
      'optim': {'lr': 1e-3, 'warmup_steps': 200},
      'train': {'epochs': 20},
    },
    'wikitext103': {
      'model': {'T': 512, **gpt.dropout(0.1), 'dtype': 'bfloat16'},
      'data': {'vocab_size': 32768, 'batch_size': 256, 'length': 512, 'batching': {'stride': 256}},
      'optim': {'lr': 6e-4, 'warmup_steps': 2000},
      'train': {'epochs': 20, 'eval_every': 1000},
      'checkpoint': {'every_steps': 1000},
    },
  }[dataset]
  tiny = (config.tiny(), {'data': {'batching': 'windows'}})
  return config.merge(base, changes, *(tiny if variant == 'tiny' else ()))


def sweep():
  yield from config.grid(optim__lr=[3e-4, 6e-4, 1e-3], model__dropout_residual=[0.1, 0.2, 0.3])
