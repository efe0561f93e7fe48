"""Regularised LSTMs on Penn Treebank."""

from experiments.tables import Row, Run, Table, manual_dir, measured

_SIZES = ('small', 'medium', 'large')

TABLE = Table(
  'Regularised LSTM, Penn Treebank',
  'Zaremba, Sutskever and Vinyals 2014 (arXiv 1409.2329), table 1',
  rows=tuple(
    Row(f'rnn_lm/ptb/{size}/{split}', f'rnn_lm/ptb_{size}', 'ppl', file)
    for size in _SIZES
    for split, file in (('valid', 'valid'), ('test', 'results'))
  ),
  runs=tuple(
    Run(
      f'rnn_lm/ptb_{size}',
      f'experiments/rnn_lm/ptb.py:{size}',
      (manual_dir('ptb'),),
      (measured('valid', '--which=last'),),
    )
    for size in _SIZES
  ),
  note="The figures are those of the last epoch's parameters.",
)
