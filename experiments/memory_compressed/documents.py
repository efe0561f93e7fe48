"""Language models of long documents (Liu et al. 2018, arXiv 1801.10198): T-D, and T-DMCA with compressed attention.

  lmx train --config=experiments/memory_compressed/documents.py:t_dmca --workdir=runs/dmca --config.data.manual_dir=DIR

DIR holds long texts (.txt, .txt.gz or .jsonl). The paper's data, WikiSum, is 90 million web pages and Wikipedia's
articles, and must be crawled again. Table 4 has the test log-perplexity per subword of articles given ranked extracts
of length L. Ours covers all subwords of your texts:

  variant   model                                        table 4, on data that is not here
  t_d       6 layers of full attention, L = 4,000         2.22216 (ROUGE-L 33.6)
  t_dmca    L M L M L, no mixture of experts, L = 11,000  2.05159 (ROUGE-L 36.2)

`length=4000` sets the window (default 4,000 for t_d and 11,000 for t_dmca). `fidelity=released` compresses the inputs
of the key and value projections, as in tensor2tensor, instead of keys and values. Optimisation follows Vaswani et al.
2017 (the paper names transformer_base_v1). For these two the paper prints neither the number of updates nor the batch,
which is 8 rows here.

`pod` (`config.pod`) is for a TPU slice of 16 chips: 16 rows, because half of the chips would be idle with 8.
`--config.parallel.tensor=2` without `pod` keeps 8 rows: two chips share the heads and the feed-forward width of a row.

  option `pod` of  slice   GiB a chip  s an update  MFU (compiled, not run)
  t_dmca           v5e-16  1.02        0.0491       0.283
"""

from __future__ import annotations

from experiments import config
from experiments.transformer import recipe as transformer

VARIANTS = ('t_dmca', 't_d', 'tiny')


@config.arguments(VARIANTS, length=0, fidelity=('paper', 'released'), pod=False)
def get_config(variant, options):
  size = 't_dmca' if variant == 'tiny' else variant
  base = {
    'name': f'memory_compressed_{variant}',
    'model': {
      'name': 'memory_compressed',
      'variant': size,
      'dtype': 'bfloat16',
      'remat': 'full',
      'compress': 'input' if options.fidelity == 'released' else 'keys',
    },
    'data': {
      'dataset': 'text_files',
      'tokenizer': 'bpe',
      'vocab_size': 32_000,
      'batching': 'windows',
      'batch_size': 8,
      'length': options.length or (4000 if variant == 't_d' else 11_000),
    },
    'optim': {**transformer.ADAM, 'lr': 1.0, 'width': 512, 'warmup_steps': 4000},
    'train': {'steps': 250_000, 'eval_every': 2000, 'log_every': 100},
    'evaluation': {'baselines': False},
  }
  pod = config.pod(model={'remat': 'full'}, batch_size=16) if options.pod else {}
  tiny = {**config.tiny(window=8), 'data': {**config.tiny()['data'], 'vocab_size': 400}}
  return config.merge(base, pod, tiny if variant == 'tiny' else {})


def sweep():
  yield from config.grid(model__stride=[2, 3, 4], model__window=[128, 256])
