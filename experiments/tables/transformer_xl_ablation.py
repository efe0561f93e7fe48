"""Ablations of Transformer-XL: recurrence and relative positions."""

from experiments.tables import GPUS, Row, Run, Table, manual_dir

_ARMS = {
  'recurrence_ours_full': 'ours',
  'recurrence_shaw_full': 'shaw',
  'recurrence_ours_half': 'half',
  'norecurrence_ours_full': 'alone',
  'norecurrence_ours_half': 'alone_half',
  'norecurrence_shaw_full': 'alone_shaw',
  'norecurrence_vaswani_half': 'vaswani_half',
}

TABLE = Table(
  'Transformer-XL, ablation on WikiText-103',
  'Dai et al. 2019 (arXiv 1901.02860), table 6',
  rows=tuple(
    Row(f'transformer_xl/wikitext103/ablation/{row}/ppl_best', f'transformer_xl/ablation_{arm}', 'ppl')
    for row, arm in _ARMS.items()
  ),
  runs=tuple(
    Run(
      f'transformer_xl/ablation_{arm}',
      f'experiments/transformer_xl/wikitext103.py:{arm}',
      (manual_dir('wikitext103'),),
      needs=GPUS,
    )
    for arm in _ARMS.values()
  ),
  note='128M parameters, windows of 128; sizes are ours, the paper prints none. Each at the shortest attention length '
  'that was best.',
)
