"""RNNsearch and the encoder-decoder without attention: English to French."""

from experiments.tables import Row, Run, Table, at

_ARGS = {
  'rnnencdec30': 'rnnencdec,length=30',
  'rnnsearch30': 'rnnsearch,length=30',
  'rnnencdec50': 'rnnencdec',
  'rnnsearch50': 'rnnsearch',
}

TABLE = Table(
  'Attention by Bahdanau, English to French',
  'Bahdanau, Cho and Bengio 2015 (arXiv 1409.0473), table 1',
  rows=tuple(Row(f'seq2seq/bahdanau/{name}/all', f'seq2seq/wmt14_{name}', 'bleu') for name in _ARGS),
  runs=tuple(
    Run(f'seq2seq/wmt14_{name}', f'experiments/seq2seq/wmt14.py:{arg}', (at('wmt14_en_fr'),))
    for name, arg in _ARGS.items()
  ),
  note='newstest2014, all sentences, Moses tokens; beam 12, no length penalty, <unk> allowed. '
  'The 12 million pairs are a selection of WMT 14 that its authors published.',
)
