"""AWD-LSTM over bytes and characters."""

from experiments.tables import Row, Run, Table, manual_dir

TABLE = Table(
  'AWD-LSTM, enwik8 and characters of Penn Treebank',
  'Merity, Keskar and Socher 2018 (arXiv 1803.08240), section 4',
  rows=(
    Row('awd_lstm/scales/enwik8_lstm3', 'awd_lstm/enwik8', 'bpc'),
    Row('awd_lstm/scales/ptbc_lstm3', 'awd_lstm/ptb_characters', 'bpc'),
  ),
  runs=(
    Run('awd_lstm/enwik8', 'experiments/awd_lstm/enwik8.py:released', (manual_dir('enwik8'),)),
    Run('awd_lstm/ptb_characters', 'experiments/awd_lstm/ptb_characters.py:released', (manual_dir('ptb'),)),
  ),
)
