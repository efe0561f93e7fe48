"""Transformer (Vaswani et al. 2017, arXiv 1706.03762) on WMT 2014, English to German or French.

  lmx train --config=experiments/transformer/wmt14.py:base --workdir=runs/wmt14
  lmx train --config=experiments/transformer/wmt14.py:big,pair=en_fr --workdir=runs/wmt14_big

The text comes through TFDS, or from --config.data.manual_dir=DIR; valid is newstest2013, test newstest2014.

  variant   to expect, tokenised BLEU, En-De / En-Fr (table 2)    hardware and time
  base      27.3 / 38.1                                            8 P100, 12 hours (100,000 updates)
  big       28.4 / 41.8 (NeurIPS version: 41.0)                    8 P100, 3.5 days (300,000 updates)

These are BLEU on Moses tokens (`bleu_tokenised`), with hyphenated compounds split only for English-German; sacreBLEU's
tokens (`bleu`) give half a point to one point less.

Options: `pair=en_fr`; and `fidelity=released` for tensor2tensor's later defaults (transformer_base since version 2, of
which it says "about 28") instead of `paper`, which is also its transformer_base_v1:

                               paper                     released
  normalisation                after each part           before each part, and at the ends
  positions                    sine, cosine in turn      all sines, then all cosines; other wavelengths
  dropout                      of parts, embeddings      also of attention and ReLU, 0.1
  Adam's b2, warm-up           0.98, 4,000               0.997, 8,000
  rate                         the formula               twice the formula
  label smoothing              over the vocabulary       over the other tokens

Option `row` of base, English to German, selects a row of table 3, named by its first columns: A_h1, A_h4, A_h16, A_h32;
B_dk16, B_dk32; C_n2, C_n4, C_n8, C_d256, C_d1024, C_ff1024, C_ff4096; D_drop0.0, D_drop0.2, D_ls0.0, D_ls0.2;
E_learnedpos. Table 3 is newstest2013 without averaged checkpoints:
`lmx evaluate --workdir=DIR --split=valid --which=last`. Each takes 12 hours on 8 P100, but C_d1024 more.

Checkpoints are averaged as in section 6.1, 10 minutes apart: the last 5 of base, one every 1,500 updates, and the last
20 of big, one every 600 (1.0 s an update in its 3.5 days).

A batch has about 25,000 tokens per side. Choose microbatches by the available memory: --config.optim.accumulate=8 on
one device. Option `pod` (`config.pod`) is for a TPU slice:
`lmx compile --config=experiments/transformer/wmt14.py:big,pod --topology=v5e-16 --vocabulary=37000`.

  option `pod` of  slice   GiB a chip  s an update  MFU (compiled, not run)
  base             v5e-16  0.72        0.0197       0.162
  big              v5e-16  2.09        0.0538       0.198
"""

from __future__ import annotations

from typing import Any

from experiments import config, translation
from experiments.transformer import recipe

VARIANTS = ('base', 'big', 'tiny')
ROWS: dict[str, dict[str, Any]] = {  # table 3: differences from base
  'base': {},
  **{f'A_h{heads}': {'model': {'H': heads}} for heads in (1, 4, 16, 32)},
  **{f'B_dk{width}': {'model': {'K': width}} for width in (16, 32)},
  **{f'C_n{n}': {'model': {'encoder_layers': n, 'decoder_layers': n}} for n in (2, 4, 8)},
  **{f'C_d{width}': {'model': {'D': width}, 'optim': {'width': width}} for width in (256, 1024)},
  **{f'C_ff{width}': {'model': {'F': width}} for width in (1024, 4096)},
  **{f'D_drop{rate}': {'model': {'dropout': rate}} for rate in (0.0, 0.2)},
  **{f'D_ls{rate}': {'objective': {'smoothing': rate}} for rate in (0.0, 0.2)},
  'E_learnedpos': {'model': {'positions': 'learned', 'T': 512}},
}
_RELEASED = {
  'model': {'norm': 'pre', 'positions': 'tensor2tensor', 'dropout_attention': 0.1, 'dropout_relu': 0.1},
  'objective': {'smoothing_form': 'released'},
  'optim': {'b2': 0.997, 'lr': 2.0, 'warmup_steps': 8000},
}


@config.arguments(VARIANTS, pair=('en_de', 'en_fr'), fidelity=('paper', 'released'), row=tuple(ROWS), pod=False)
def get_config(variant, options):
  if options.row != 'base' and (variant == 'big' or options.pair != 'en_de' or options.fidelity != 'paper'):
    raise ValueError(
      f'option "row": got "{options.row}" with {variant}; expected base, English to German, fidelity=paper, which '
      'table 3 varies one at a time; omit row or the others'
    )
  size = 'base' if variant == 'tiny' else variant
  big = size == 'big'
  base = {
    'name': f'transformer_{options.pair}_{variant}' + (f'_{options.row}' if options.row != 'base' else ''),
    'model': {'name': 'transformer', 'variant': size, 'dtype': 'bfloat16', 'remat': 'full' if big else 'none'},
    'objective': {'smoothing': 0.1},  # section 5.4
    'data': {
      'dataset': f'wmt14_{options.pair}',
      'tokenizer': 'bpe' if options.pair == 'en_de' else 'unigram',
      'vocab_size': 37_000 if options.pair == 'en_de' else 32_000,  # section 5.1
      'prefix_space': options.pair == 'en_de',
      'batching': {'name': 'translation', 'tokens': 25_600, 'buckets': (16, 24, 32, 48, 64, 96)},
      'length': 128,
    },
    'optim': {  # section 5.3
      **recipe.ADAM,
      'lr': 1.0,
      'width': 1024 if big else 512,
      'warmup_steps': 4000,
    },
    'train': {'steps': 300_000 if big else 100_000, 'eval_every': 2000, 'log_every': 100},
    'checkpoint': {'every_steps': 600 if big else 1500, 'keep_last': 20 if big else 5},  # section 6.1, 10 minutes apart
    'evaluation': {  # section 6.1
      'which': 'average',
      'average': 20 if big else 5,
      'beam': 4,
      'alpha': 0.6,
      'max_extra': 50,
      'baselines': False,
    },
  }
  dropout = {'model': {'dropout': 0.1}} if options.pair == 'en_fr' else {}
  released = _RELEASED if options.fidelity == 'released' else {}
  # Faster by XLA's estimate than with kept activations.
  pod = config.pod(model={'scan': True, 'remat': 'full'}) if options.pod else {}
  return config.merge(base, dropout, released, ROWS[options.row], pod, translation.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(model__dropout=[0.1, 0.2, 0.3], objective__smoothing=[0.0, 0.1])
