"""Transformer-XL (Dai et al. 2019, arXiv 1901.02860) on the One Billion Word Benchmark (Chelba et al. 2013).

  lmx train --config=experiments/transformer_xl/lm1b.py:base --workdir=runs/txl-lm1b

The benchmark's files are downloaded, or read from --config.data.manual_dir=DIR (`lm1b_files`): sentences in random
order. news.en.heldout-00000-of-00050 is the test split, as in the release, and heldout-00001 validates (there
heldout-00000 too).

  variant  parameters     test perplexity (tables 4 and 7)  hardware and time
  base     0.46 billion   23.5                              not stated
  large    0.84 billion   21.8                              512 TPU cores, days
  ours     0.30 billion   25.2                              the paper states 20 layers, 400,000 updates and about 0.3B
  shaw     0.28 billion   25.7: a learned vector for each distance up to 256 (Shaw et al. 2018)
  alone    0.30 billion   27.1: no recurrence

As in the release (add_double_eos), a sentence begins and ends with a special token: `data.marks=double`. The second of
two adjacent ones is almost free, so these perplexities are lower than with one special token, as in other papers.
heldout-00000 has 159,658 tokens with one each in 6,075 sentences, n + 1 = 26.28 on average. The same loss of a sentence
over n + 1 instead of n + 2 tokens is 21.8^(27.28 / 26.28) = 24.5 for 21.8, and 26.5 for 23.5. Option `marks=single`
reads TFDS's `lm1b` with one special token; 2% of its held-out part is the validation split and the rest the test split.

Released recipe of `large`: Adam at 1e-4 after 30,000 updates of warm-up, cosine to a hundredth, gradient norm at most
0.25, 1,200,000 updates of 512 rows of 32 words over a memory of 32. Base: 20 layers and 6,144, which the authors give
for the paper (the released script has 18 and 4,096), otherwise that script, 400,000 updates of 256 rows of 256.
Evaluated in windows of 32 with a memory of 128, each position attending equally far back; `alone` at the last position
of a window of 256 for every token (stride 1). The paper prints neither sizes nor attention lengths for table 7: here
they are base's sizes with a feed-forward width of 2,048.

Option `pod` (`config.pod`) is for a TPU slice:
`lmx compile --config=experiments/transformer_xl/lm1b.py:large,pod --topology=v5e-16 --vocabulary=793471`.

  option `pod` of  slice   GiB a chip  s an update  MFU (compiled, not run)
  large            v5e-16  10.50       0.1831       0.150
"""

from __future__ import annotations

from typing import Any

from experiments import config

VARIANTS = ('base', 'large', 'ours', 'shaw', 'alone', 'tiny')


def _row(variant: str) -> dict[str, Any]:
  """Return the settings of a row in table 7: recurrence and positional encoding."""
  if variant not in ('ours', 'shaw', 'alone'):
    return {}
  model: dict[str, Any] = {'F': 2048}
  if variant == 'shaw':
    return {'model': model | {'positions': 'shaw', 'clamp': 256}, 'evaluation': {'model': {'clamp': 256}}}
  if variant == 'ours':
    return {'model': model}
  windows = {'stride': 1, 'batch_size': 64, 'model': {'M': 0, 'same_length': False}}
  return {'model': model | {'M': 0}, 'data': {'eval_length': 256}, 'evaluation': windows}


@config.arguments(VARIANTS, marks=('double', 'single'), pod=False)
def get_config(variant, options):
  large, double = variant == 'large', options.marks == 'double' and variant != 'tiny'
  base = {
    'name': f'transformer_xl_lm1b_{variant}',
    'model': {
      'name': 'transformer_xl',
      'variant': 'lm1b_large' if large else 'lm1b_base',
      'M': 32 if large else 256,
      'dtype': 'bfloat16',
    },
    'data': {
      'dataset': 'lm1b_files' if double else 'lm1b',
      'tokenizer': 'words',
      'marks': 'double' if double else '',
      'vocab_size': 793_471,
      'batching': 'streams',
      'batch_size': 512 if large else 256,
      'length': 32 if large else 256,
      'eval_batch_size': 8,
      'eval_length': 32,
    },
    'optim': {
      'optimizer': 'adam',
      'lr': 1e-4 if large else 2.5e-4,
      'clip_norm': 0.25,
      'schedule': 'cosine',
      'warmup_steps': 30_000 if large else 0,
      'end_fraction': 0.01 if large else 0.004,
    },
    'train': {'steps': 1_200_000 if large else 400_000, 'eval_every': 10_000, 'log_every': 500},
    'checkpoint': {'every_steps': 5000},
    'evaluation': {'baselines': False, 'model': {'M': 128, 'same_length': True}},
  }
  # Adaptive tables have rows of several widths.
  pod = config.pod(pad_vocabulary=1, model={'scan': True, 'remat': 'none'}) if options.pod else {}
  return config.merge(base, _row(variant), pod, config.tiny(M=16) if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[5e-5, 1e-4, 2.5e-4], model__dropout=[0.0, 0.1])
