"""Transformer: translation of WMT 2014, and of captions."""

from experiments.tables import CORES, GPUS, Row, Run, Table, manual_dir

_PAIRS = ('en_de', 'en_fr')

TABLE = Table(
  'Transformer, translation',
  'Vaswani et al. 2017 (arXiv 1706.03762), table 2; Wu et al. 2021 (ACL), table 2',
  rows=(
    *(
      Row(f'transformer/mt/{size}/bleu_{pair.replace("_", "")}', f'transformer/wmt14_{size}_{pair}', 'bleu')
      for pair in _PAIRS
      for size in ('base', 'big')
    ),
    Row('transformer/multi30k/tiny/test2016', 'transformer/multi30k', 'bleu_lower'),
  ),
  runs=(
    *(
      Run(
        f'transformer/wmt14_{size}_{pair}',
        f'experiments/transformer/wmt14.py:{size},pair={pair}',
        (manual_dir(f'wmt14_{pair}'),),
        needs=GPUS,
      )
      for pair in _PAIRS
      for size in ('base', 'big')
    ),
    Run(
      'transformer/multi30k',
      'experiments/transformer/multi30k.py:en_de',
      (manual_dir('multi30k'),),
      seeds=3,
      needs=CORES,
    ),
  ),
  note="WMT: newstest2014, beam 4, length penalty 0.6, mean of the last checkpoints, BLEU of Moses' tokens, "
  "compounds split for English-German alone; sacreBLEU's own tokens give half a point to one point less. "
  'Multi30k: Flickr 2016, beam 5.',
)
