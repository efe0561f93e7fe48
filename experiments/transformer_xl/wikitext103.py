"""Transformer-XL (Dai et al. 2019, arXiv 1901.02860) on WikiText-103, by word.

  lmx train --config=experiments/transformer_xl/wikitext103.py:base --workdir=runs/txl

WikiText-103 (103 million words; vocabulary 267,735 of the train split, <eos> at the end of a line counted) is
downloaded, or read from --config.data.manual_dir=DIR.

  variant          parameters   test perplexity (tables 1 and 6)  hardware and time
  base             151 million  24.0                              4 GPUs, some days
  large            285 million  18.3 (the paper prints 257M)      64 TPU cores, some days
  ours             128 million  26.77 at attention length 500     one GPU with much memory, days
  shaw             more         27.94 at 256: a learned vector for each distance up to 256 (Shaw et al. 2018)
  half             128 million  28.33 at 460: only the last half of a window counts in training
  alone            128 million  29.02 at 260: no recurrence
  alone_half       128 million  30.10 at 120
  alone_shaw       more         29.75 at 120
  alone_shaw_half  more         30.50 at 120
  vaswani_half     less         30.97 at 120: absolute sinusoids, no recurrence
  alrfou_half      less         31.16 at 120: learned positions in every layer (Al-Rfou et al. 2018), no recurrence

Released recipes: Adam at 2.5e-4, cosine, gradient norm at most 0.25, windows of 150 (large 384) over as long a memory,
60 rows (128). Option `fidelity`: 'tf' (the paper's results): 400,000 updates (large 4,000,000 after 16,000 of warm-up),
the rate ends at 0.004 (0.01) of the highest, separate u and v per layer, memory and cluster kernel initialised with
zeros, epsilon 1e-12 in layer normalisation; 'pytorch': 200,000 (base), the rate ends at 0, u and v shared, an empty
memory, epsilon 1e-5. Evaluated in windows of 64 with a memory of 640 and distances clamped at 400 (large: 128, 1600,
1000), each token attending equally far back. The released evaluation reads 10 streams (large 8); one stream agrees to
two digits. Perplexity depends on the memory: --config.evaluation.model.M=... .

Table 6's rows from `ours` on have 128M parameters and windows of 128; the paper prints no sizes, and 7 layers of base
have 128.0M. The attention length is the shortest with the best perplexity in evaluation. Rows without recurrence are
evaluated at the last position of a window for each token (evaluation.stride=1), with distances clamped at the training
length. Adjacent windows would give a token half of that context on average. Option `length` trains on longer windows
(table 10: 176 without recurrence and 172 with half of the loss need the same memory as 128 with it).

Option `pod` (`config.pod`) is for a TPU slice:
`lmx compile --config=experiments/transformer_xl/wikitext103.py:large,pod --topology=v5e-16 --vocabulary=267735`.

  option `pod` of  slice   GiB a chip  s an update  MFU (compiled, not run)
  large            v5e-16  4.23        0.0882       0.368
  base             v5e-4   4.65        0.0682       0.160
"""

from __future__ import annotations

from typing import Any

from experiments import config
from experiments.transformer_xl import recipe

# Rows of table 6 -> attention length of the evaluation.
_ABLATION = {
  'ours': 500,
  'shaw': 256,
  'half': 460,
  'alone': 260,
  'alone_half': 120,
  'alone_shaw': 120,
  'alone_shaw_half': 120,
  'vaswani_half': 120,
  'alrfou_half': 120,
}
VARIANTS = ('base', 'large', *_ABLATION, 'tiny')


def _seen(M: int, clamp: int) -> dict[str, Any]:  # noqa: N803
  return {'evaluation': {'model': {'M': M, 'clamp': clamp, 'same_length': True}}}


@config.arguments(VARIANTS, fidelity=('tf', 'pytorch'), length=0, pod=False)
def get_config(variant, options):
  tf, large = options.fidelity == 'tf', variant == 'large'
  base = {
    'name': f'transformer_xl_wt103_{variant}',
    'model': {
      'name': 'transformer_xl',
      'variant': 'wt103_large' if large else 'wt103_base',
      'fidelity': options.fidelity,
      'untie': tf,
    },
    'data': {
      'dataset': 'wikitext103',
      'tokenizer': 'words',
      'batching': {'name': 'streams'},
      'batch_size': 128 if large else 60,
      'length': 384 if large else 150,
      'eval_batch_size': 8 if large else 10,
      'eval_length': 128 if large else 64,
    },
    'optim': {
      'optimizer': 'adam',
      'lr': 2.5e-4,
      'clip_norm': 0.25,
      'schedule': 'cosine',
      'warmup_steps': 16_000 if large else 0,
      'end_fraction': (0.01 if large else 0.004) if tf else 0.0,
      'schedule_origin': 'after_warmup' if tf else 'from_zero',
    },
    'train': {'steps': 4_000_000 if large else 400_000 if tf else 200_000, 'eval_every': 4000, 'log_every': 200},
    'checkpoint': {'every_steps': 4000},
    'evaluation': {'baselines': False},
  }
  tiny = config.merge(config.tiny(), _seen(24, 12)).to_dict() if variant == 'tiny' else {}
  # Adaptive tables have rows of several widths.
  pod = config.pod(pad_vocabulary=1, model={'scan': False, 'remat': 'none'}) if options.pod else {}
  if variant in _ABLATION:
    changes = recipe.ablation(variant, options.length or 128, _ABLATION[variant], distances=256, clamp=400)
    return config.merge(base, {'model': {'variant': 'wt103_128m'}}, changes, pod)
  return config.merge(base, _seen(1600, 1000) if large else _seen(640, 400), pod, tiny)


def sweep():
  yield from config.grid(optim__lr=[1.5e-4, 2.5e-4, 4e-4], model__dropout=[0.1, 0.2])
