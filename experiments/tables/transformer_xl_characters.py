"""Transformer-XL over bytes and characters."""

from experiments.tables import GPU, GPUS, Row, Run, Table, manual_dir

_SIZES = {'12l': GPU, '18l': GPU, '24l': GPUS}

TABLE = Table(
  'Transformer-XL, enwik8 and text8',
  'Dai et al. 2019 (arXiv 1901.02860), tables 2 and 3',
  rows=(
    *(Row(f'transformer_xl/enwik8/{size}', f'transformer_xl/enwik8_{size}', 'bpc') for size in _SIZES),
    Row('transformer_xl/text8/24l', 'transformer_xl/text8_24l', 'bpc'),
  ),
  runs=(
    *(
      Run(
        f'transformer_xl/enwik8_{size}',
        f'experiments/transformer_xl/enwik8.py:{size}',
        (manual_dir('enwik8'),),
        needs=needs,
      )
      for size, needs in _SIZES.items()
    ),
    Run('transformer_xl/text8_24l', 'experiments/transformer_xl/text8.py:24l', (manual_dir('text8'),), needs=GPUS),
  ),
  note='Windows of 80 over a memory of 2,100, distances clamped at 820 (24 layers: 128, 3,800, 1,000). The sizes of '
  '18 layers are ours: the paper only prints 88M parameters.',
  prints=(('Dai et al. 2019', '2'), ('Dai et al. 2019', '3')),
  context=(
    *(f'transformer_xl/*/{name}_*' for name in ('chung', 'zilly', 'krause', 'alrfou')),
    *(f'transformer_xl/enwik8/{name}_*' for name in ('ha', 'mujika', 'knol')),
    'transformer_xl/text8/cooijmans_*',
  ),
)
