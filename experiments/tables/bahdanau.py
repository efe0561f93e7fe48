"""RNNsearch and the encoder-decoder without attention: English to French."""

from experiments.tables import Row, Run, Table, manual_dir

_RUNS = {  # run: (row, experiment)
  'rnn_encdec/wmt14_rnnencdec30': ('rnn_encdec/wmt14_fr/rnnencdec30', 'rnn_encdec/wmt14.py:rnnencdec,length=30'),
  'bahdanau/wmt14_rnnsearch30': ('bahdanau/wmt14/rnnsearch30', 'bahdanau/wmt14.py:rnnsearch,length=30'),
  'rnn_encdec/wmt14_rnnencdec50': ('rnn_encdec/wmt14_fr/rnnencdec50', 'rnn_encdec/wmt14.py:rnnencdec'),
  'bahdanau/wmt14_rnnsearch50': ('bahdanau/wmt14/rnnsearch50', 'bahdanau/wmt14.py:rnnsearch'),
}

TABLE = Table(
  'Attention by Bahdanau, English to French',
  'Bahdanau, Cho and Bengio 2015 (arXiv 1409.0473), table 1',
  rows=tuple(Row(f'{row}/all', run, 'bleu') for run, (row, _) in _RUNS.items()),
  runs=tuple(Run(run, f'experiments/{config}', (manual_dir('wmt14_en_fr'),)) for run, (_, config) in _RUNS.items()),
  note='newstest2014, all sentences, Moses tokens; beam 12, no length penalty, <unk> allowed. '
  'The 12 million pairs are a selection of WMT 14 that its authors published.',
)
