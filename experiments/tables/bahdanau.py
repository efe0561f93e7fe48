"""RNNsearch and the encoder-decoder without attention: English to French, all sentences and those with known words."""

from experiments.tables import Row, Run, Table, manual_dir, measured

_RUNS = {  # run: (row, experiment)
  'rnn_encdec/wmt14_rnnencdec30': ('rnn_encdec/wmt14_fr/rnnencdec30', 'rnn_encdec/wmt14.py:rnnencdec,length=30'),
  'bahdanau/wmt14_rnnsearch30': ('bahdanau/wmt14/rnnsearch30', 'bahdanau/wmt14.py:rnnsearch,length=30'),
  'rnn_encdec/wmt14_rnnencdec50': ('rnn_encdec/wmt14_fr/rnnencdec50', 'rnn_encdec/wmt14.py:rnnencdec'),
  'bahdanau/wmt14_rnnsearch50': ('bahdanau/wmt14/rnnsearch50', 'bahdanau/wmt14.py:rnnsearch'),
  'bahdanau/wmt14_rnnsearch50_star': ('bahdanau/wmt14/rnnsearch50_star', 'bahdanau/wmt14.py:rnnsearch'),
}
# Until 100,000 updates lower no validation loss; the paper trains until the validation split no longer improves.
_LONGER = ('train.epochs=30', 'train.patience=20', 'evaluation.which=best')
# Sentences with only known words are translated without unknown words.
_KNOWN = ('--config.evaluation.known_only=true', '--config.evaluation.allow_unk=false')

TABLE = Table(
  'Attention by Bahdanau, English to French',
  'Bahdanau, Cho and Bengio 2015 (arXiv 1409.0473), table 1',
  rows=tuple(
    Row(f'{row}/{column}', run, 'bleu', file)
    for run, (row, _) in _RUNS.items()
    for column, file in (('all', 'results'), ('no_unk', 'known'))
  ),
  runs=tuple(
    Run(
      run,
      f'experiments/{config}',
      (manual_dir('wmt14_en_fr'), *(_LONGER if run.endswith('star') else ())),
      (measured('test', *(() if run.endswith('star') else ('--which=last',)), *_KNOWN, file='known'),),
    )
    for run, (_, config) in _RUNS.items()
  ),
  note='30,000 words of each language. newstest2014, Moses tokens; beam 12, no length penalty. All sentences: <unk> '
  'allowed. Sentences of known words: no unknown word in the source or the reference, <unk> not allowed. The 12 '
  'million pairs are a selection of WMT 14 that its authors published.',
  prints=(('Bahdanau et al. 2015', '1'),),
  context=('bahdanau/wmt14/moses/*',),
)
