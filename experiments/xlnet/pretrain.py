"""XLNet pre-training (Yang et al. 2019, arXiv 1906.08237, sections 2.3, 3.1 and appendix A.4).

  lmx train --config=experiments/xlnet/pretrain.py:base --workdir=runs/xlnet --config.data.manual_dir=DIR

DIR holds English text with one sentence per line and an empty line between documents. The paper's 32.89 billion
subwords are from Wikipedia, BooksCorpus, Giga5, ClueWeb and Common Crawl, which are not available together; with only
Wikipedia and books, base is the ablation's model (table 6).

  variant  layers / width  to expect: SQuAD 2.0 F1, RACE (published)            hardware and time
  base     12 / 768        80.98, 66.66 fine-tuned, Wikipedia and books (table 6)  one TPU host, days
  large    24 / 1024       90.6, 85.4 fine-tuned, all data (tables 2 and 3)         512 TPU chips, days

Rows of 512 of which 256 are cached in the memory, memory 384, one token in six predicted (85), spans of 1 to 5
subwords, half of the rows read backwards. Adam, weight decay 0.01, epsilon 1e-6, linear decay; 500,000 updates of 8,192
rows at 4e-4 after 40,000 of warm-up (version 2 of the paper; `recipe=v1`: 2,048 rows, rate 1e-5, 20,000; `recipe=bert`:
BERT's 1,000,000 updates of 256 rows, rate 1e-4, 10,000, as for its fair comparison in table 1). The paper's
hyper-parameter table names no memory; 384 is from the released command. base: 256 rows here, learning rate 1e-4.

The paper names neither clipping nor the end of the decay. As released (train.py, model_utils.py): global gradient norm
clipped at 1, a final learning rate of 0.001 of the highest, Adam without bias correction because the weight decay is
not 0 (`adam=corrected` restores it).

For the ablations of table 6: --config.model.M=0 (no memory), --config.data.batching.spans=single,
--config.data.batching.bidirectional=false, and --config.data.batching.context=7.

Option `pod` (`config.pod`) is for a TPU slice:
`lmx compile --config=experiments/xlnet/pretrain.py:large,pod --topology=v5e-256 --vocabulary=32000`.

  option `pod` of  slice    GiB a chip  s an update  MFU (compiled, not run)
  large            v5e-256  8.63        0.9118       0.262
  base             v5e-16   8.75        0.1800       0.202
"""

from __future__ import annotations

from experiments import config
from experiments.xlnet import recipe

VARIANTS = ('base', 'large', 'tiny')
_RECIPES = {  # rows and rate of `large`, updates of warm-up, updates
  'v2': (8192, 4e-4, 40_000, 500_000),
  'v1': (2048, 1e-5, 20_000, 500_000),
  'bert': (256, 1e-4, 10_000, 1_000_000),
}


@config.arguments(VARIANTS, recipe=('v2', 'v1', 'bert'), adam=('released', 'corrected'), pod=False)
def get_config(variant, options):
  large = variant == 'large'
  rows, lr, warmup, steps = _RECIPES[options.recipe]
  remat = 'full' if large else 'none'
  base = {
    'name': f'xlnet_{variant}',
    'model': {
      'name': 'xlnet',
      'variant': 'large' if large else 'base',
      'M': 384,
      'reuse': 256,
      'dtype': 'bfloat16',
      'remat': remat,
    },
    'data': {
      'dataset': 'text_files',
      'tokenizer': 'unigram',
      'vocab_size': 32_000,
      'marks': 'xlnet',
      'batching': {'name': 'permutations', 'reuse': 256},
      'batch_size': rows if large else 256,
      'length': 512,
      'eval_batch_size': 8,
    },
    'optim': {
      **recipe.optimizer(options.adam),
      'lr': lr if large else 1e-4,
      'end_fraction': 0.001,  # released train.py, min_lr_ratio
      'warmup_steps': warmup,
    },
    'train': {'steps': steps, 'eval_every': 5000, 'log_every': 100},
    'checkpoint': {'every_steps': 5000},
  }
  kept = 'attention' if large else 'none'  # and not 'full': the kernel of attention is slower than to read its output
  pod = config.pod(fsdp=-1 if large else 1, model={'scan': True, 'remat': kept}) if options.pod else {}
  return config.merge(base, pod, recipe.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[1e-4, 2e-4, 4e-4], data__batching__context=[6, 7])
