"""AWD-LSTM (Merity, Keskar and Socher 2018, arXiv 1708.02182, tables 2 and 4) on WikiText-2.

  lmx train --config=experiments/awd_lstm/wikitext2.py:released --workdir=runs/awd
  lmx train --config=experiments/awd_lstm/wikitext2.py:finetune --workdir=runs/tuned --config.train.init_from=runs/awd
  lmx evaluate --workdir=runs/tuned --cache=3785,0.1279,0.662

WikiText-2 (Merity et al. 2016, arXiv 1609.07843; 2,088,628 / 217,646 / 245,569 tokens with <eos>, vocabulary 33,278)
is downloaded, or read from --config.data.manual_dir=DIR. 33,556,078 parameters.

  variant   valid / test  fine-tuned   with cache   hardware and time
  released  68.7 / 65.6   67.4 / 64.7  52.2 / 50.6  one GPU, a day: 750 epochs (105 to 180 s each on a Quadro GP100)
  paper     69.1 / 66.0   68.6 / 65.8  53.8 / 52.0  one GPU, a day: 750 epochs
  qrnn      69.3 / 66.8   68.5 / 65.9  53.6 / 52.1  one GPU, hours: 500 epochs (90 s each there)
  finetune  the second run of averaged SGD, from the best parameters of the first; option `:finetune,of=paper`

As experiments/awd_lstm/ptb.py, with batch 80 and input dropout 0.65; hidden dropout 0.2 as released, 0.3 in the paper.
The README's cache has window 3785, lambda 0.1279, theta 0.662; the paper prints none for this set, so `paper` uses the
same. Table 4's ablations are settings of experiments/tables/awd_lstm_words.py.

Option `pod` (`config.pod`) is for a TPU slice:
`lmx compile --config=experiments/awd_lstm/wikitext2.py:released,pod --topology=v5e-4 --vocabulary=33278`.
The MFU is low because a recurrent step has only 20 rows per chip; on one chip, with 80, it is 0.227 (0.0251 s).

  option `pod` of  slice  GiB a chip  s an update  MFU (compiled, not run)
  released         v5e-4  0.49        0.0122       0.117
"""

from __future__ import annotations

from experiments import config
from experiments.awd_lstm import recipe

VARIANTS = ('released', 'paper', 'qrnn', 'finetune', 'tiny')
CHANGES: dict[str, dict] = {
  'released': {},
  'paper': {'model': {'dropout_hidden': 0.3}, 'optim': {'asgd_lag': False}},  # section 5
  'qrnn': {'model': {'variant': 'wt2_qrnn'}, 'data': {'batch_size': 40}, 'train': {'epochs': 500}},  # README
}


@config.arguments(VARIANTS, of=('released', 'paper', 'qrnn'), pod=False)
def get_config(variant, options):
  start = options.of if variant == 'finetune' else 'released' if variant == 'tiny' else variant
  base = {
    'name': f'awd_lstm_wikitext2_{variant}',
    'model': {'variant': 'wt2'},
    'data': {'dataset': 'wikitext2', 'vocab_size': 33278, 'batch_size': 80},
    'train': {'epochs': 750},
    'evaluation': {'cache': (3785, 0.1279, 0.662)},
  }
  tuned = {'optim': {'asgd': 'start'}} if variant == 'finetune' else {}
  pod = config.pod(model={}) if options.pod else {}
  return config.merge(recipe.BASE, base, CHANGES[start], tuned, pod, config.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(seed=[1882, 0, 1, 2, 3])
