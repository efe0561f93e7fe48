"""Quaternion Transformer: translation."""

from experiments.tables import Row, Run, Table, manual_dir

_PAIRS = {'en_vi': 'iwslt15_en_vi', 'en_ro': 'wmt16_en_ro', 'en_et': 'wmt18_en_et'}
_KINDS = ('base', 'full', 'partial')

TABLE = Table(
  'Quaternion Transformer, translation',
  'Tay et al. 2019 (arXiv 1906.04393)',
  rows=tuple(
    Row(f'quaternion_transformer/{pair.replace("_", "")}/{kind}', f'quaternion_transformer/{pair}_{kind}', 'bleu')
    for pair in _PAIRS
    for kind in _KINDS
  ),
  runs=tuple(
    Run(
      f'quaternion_transformer/{pair}_{kind}',
      f'experiments/quaternion_transformer/translation.py:{kind},pair={pair}',
      (manual_dir(data),),
    )
    for pair, data in _PAIRS.items()
    for kind in _KINDS
  ),
  note='Figures are from notes on the paper; its beam, length penalty and tokens of BLEU are not known.',
)
