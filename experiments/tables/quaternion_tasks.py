"""Quaternion Transformer: classification."""

from experiments.tables import Row, Run, Table, manual_dir

_DATA = {'imdb': 'imdb', 'sst2': 'sst'}
_KINDS = {'none': 'base', 'full': 'full', 'partial': 'partial'}

TABLE = Table(
  'Quaternion Transformer, sentiment',
  'Tay et al. 2019 (arXiv 1906.04393)',
  rows=tuple(
    Row(f'quaternion_transformer/{printed}/{row}', f'quaternion_transformer/{data}_{kind}', 'accuracy')
    for data, printed in _DATA.items()
    for kind, row in _KINDS.items()
  ),
  runs=tuple(
    Run(
      f'quaternion_transformer/{data}_{kind}',
      f'experiments/quaternion_transformer/tasks.py:{data},quaternion={kind}',
      (manual_dir(data),),
      seeds=3,
    )
    for data in _DATA
    for kind in _KINDS
  ),
  note='Figures are from notes on the paper; how long it trained and on which pieces of words is not known.',
)
