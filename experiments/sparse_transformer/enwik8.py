"""Sparse Transformer (Child et al. 2019, arXiv 1904.10509) over the bytes of enwik8.

  lmx train --config=experiments/sparse_transformer/enwik8.py:fixed --workdir=runs/sparse --config.data.manual_dir=DIR

enwik8 (the first 10^8 bytes of Wikipedia, Hutter; 90 / 5 / 5 million) is downloaded, or read from DIR. All have 95
million parameters: 30 layers of 512 with 8 heads, windows of 12,288, stride 128, c = 32.

  variant  attention        bits per byte, tables 1 and 2   time of an update, table 2
  fixed    fixed pattern    0.99 (0.992 over three seeds)   0.55
  strided  strided pattern  1.13                            0.35
  dense    all positions    1.00                            1.31

Table 2 names neither the split nor the unit of time. Its hardware is 8 V100 GPUs; less memory needs a smaller batch and
`--config.optim.accumulate`.

Section 7.2 and its results: 80 epochs, dropout 0.4, heads merged; section 6: Adam, 5,000 updates of warm-up, a cosine,
gradient norm at most 1, weight decay 0.01. The learning rate, 3.5e-4, is printed only for CIFAR-10. The batch is not
printed; we assume 32 windows. Decay is decoupled (AdamW) and only on matrices; the paper states neither.

Evaluation uses overlapping windows, in which every byte after the first window has at least `context` bytes before it
(table 3): 0.9952 with 6,144, the default, which validation during training also uses. 0.9908 with 12,160 seems to be
table 1's and reads each byte 96 times:

  lmx evaluate --workdir=runs/sparse --config=experiments/sparse_transformer/enwik8.py:fixed,context=12160

Options: `merge` (alternate, merged, heads) is section 5.1's; `fidelity=paper` gives all heads the same summary columns,
`init=released` takes the authors' later initialisation (lmx/models/sparse_transformer.py).

Option `pod` (`config.pod`) is for a TPU slice:
`lmx compile --config=experiments/sparse_transformer/enwik8.py:fixed,pod --topology=v5e-16 --vocabulary=256`.

  option `pod` of  slice   GiB a chip  s an update  MFU (compiled, not run)
  fixed            v5e-16  2.16        0.5585       0.258
"""

from __future__ import annotations

from experiments import config

VARIANTS = ('fixed', 'strided', 'dense', 'tiny')
_LENGTH = 12_288


@config.arguments(
  VARIANTS,
  merge=('merged', 'alternate', 'heads'),
  fidelity=('released', 'paper'),
  init=('paper', 'released'),
  context=6144,
  pod=False,
)
def get_config(variant, options):
  if not 0 <= options.context < _LENGTH:
    raise ValueError(f'option "context": got {options.context}; expected at least 0 and below {_LENGTH}')
  base = {
    'name': f'sparse_transformer_enwik8_{variant}',
    'model': {
      'name': 'sparse_transformer',
      'variant': 'enwik8',
      'pattern': 'fixed' if variant == 'tiny' else variant,
      'merge': options.merge,
      'fidelity': options.fidelity,
      'init': options.init,
      'dtype': 'bfloat16',
      'remat': 'full',
    },
    'data': {
      'dataset': 'enwik8',
      'tokenizer': 'bytes',
      'batching': {'name': 'windows', 'stride': _LENGTH - options.context},
      'batch_size': 32,
      'length': _LENGTH,
      'eval_batch_size': 8,
    },
    'optim': {
      'optimizer': 'adamw',
      'lr': 3.5e-4,
      'clip_norm': 1.0,
      'weight_decay': 0.01,
      'schedule': 'cosine',
      'warmup_steps': 5000,
      'groups': config.DECAY_MATRICES_ONLY,
    },
    'train': {'epochs': 80.0},
    'evaluation': {'baselines': False},
  }
  tiny = {'model': {'stride': 4, 'summary': 1}, 'data': {'batching': {'stride': 16}}, 'train': {'epochs': 0.0}}
  pod = config.pod(model={'scan': True, 'remat': 'full'}) if options.pod else {}
  return config.merge(base, pod, *((config.tiny(T=32), tiny) if variant == 'tiny' else ()))


def sweep():
  yield from config.grid(model__merge=['merged', 'heads', 'alternate'], optim__lr=[3.5e-4, 5e-4])
