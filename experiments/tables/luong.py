"""Attention by Luong: English and German, row by row, the kinds of attention, ensembles, and alignments."""

from experiments.tables import Row, Run, Table, manual_dir, measured

_LINES = {  # table 1; BLEU and perplexity
  'rnn_encdec/wmt14_de/base': 'sutskever,dropout=false,reverse=false',
  'rnn_encdec/wmt14_de/reverse': 'sutskever,dropout=false',
  'rnn_encdec/wmt14_de/dropout': 'sutskever',
  'luong/wmt14/global_location': 'luong,score=location,window=global,feed=false',
  'luong/wmt14/global_location_feed': 'luong,score=location,window=global',
  'luong/wmt14/localp_general_feed': 'luong',
}
_GERMAN = {  # table 3, from German
  'luong/wmt15_deen/base_reverse': 'sutskever,dropout=false,source=de',
  'luong/wmt15_deen/global_location': 'luong,score=location,window=global,feed=false,dropout=false,source=de',
  'luong/wmt15_deen/global_location_feed': 'luong,score=location,window=global,dropout=false,source=de',
  'luong/wmt15_deen/global_dot_drop_feed': 'luong,score=dot,window=global,source=de',
}
_KINDS = {  # table 4
  'luong/attention/global_location': 'luong,score=location,window=global',
  'luong/attention/global_dot': 'luong,score=dot,window=global',
  'luong/attention/global_general': 'luong,score=general,window=global',
  'luong/attention/localm_dot': 'luong,score=dot,window=local_m',
  'luong/attention/localm_general': 'luong,score=general,window=local_m',
  'luong/attention/localp_dot': 'luong,score=dot,window=local_p',
  'luong/attention/localp_general': 'luong',
  'luong/attention/global_concat': 'luong,score=concat_identity,window=global',
  'luong/attention/localm_concat': 'luong,score=concat_identity,window=local_m',
  'luong/attention/localp_concat': 'luong,score=concat_identity,window=local_p',
}
_NO_BLEU = ('localm_dot', 'global_concat', 'localm_concat', 'localp_concat')  # only perplexity is printed
_REPLACED = {  # rows with BLEU after unknown word replacement: the run
  'luong/wmt14/localp_general_feed_unk/bleu': 'luong',
  'luong/wmt15_deen/global_dot_drop_feed_unk/bleu': _GERMAN['luong/wmt15_deen/global_dot_drop_feed'],
  **{f'{row}/bleu_unk': arg for row, arg in _KINDS.items() if not row.endswith(_NO_BLEU)},
}
_ALIGNED = ('global_location', 'localm_general', 'localp_general')
# Members of the ensemble: the kinds of attention but concat, and the last without dropout.
_UNDROPPED = 'luong,dropout=false'
_MEMBERS = (*(arg for row, arg in _KINDS.items() if not row.endswith('concat')), _UNDROPPED)
_ARGS = dict.fromkeys([*_LINES.values(), *_KINDS.values(), *_GERMAN.values(), _UNDROPPED])  # one run of each


def _replaced(source: str) -> str:
  """Return the options that replace unknown words by a dictionary of aligned words, or copy those that it lacks."""
  target = 'en' if source == 'de' else 'de'
  return (
    f'--config.evaluation.replace_unknown=true --config.evaluation.dictionary={{data.dictionary_{source}_{target}}}'
  )


_REPLACE = _replaced('en')

_DICTIONARY = "of the user's dictionary: the paper's, of aligned training sentences, was not released"
_UNNAMED = 'the paper does not name its models; ours are those of table 4 without concat, and one without dropout'


def _model(arg: str) -> str:
  return 'rnn_encdec' if arg.startswith('sutskever') else 'luong'


def _run(arg: str) -> str:
  return f'{_model(arg)}/wmt14_' + arg.replace('=', '_').replace(',', '_')


def _train(arg: str) -> Run:
  data = 'newstest2015_en_de' if 'source=de' in arg else 'wmt14_en_de'
  then = (
    (measured('test', _replaced('de' if 'source=de' in arg else 'en'), file='replaced'),)
    if arg in _REPLACED.values()
    else ()
  )
  return Run(_run(arg), f'experiments/{_model(arg)}/wmt14.py:{arg}', (manual_dir(data),), then)


_NAMES = [f'{{{_run(arg)}:0}}' for arg in _MEMBERS]
_ENSEMBLE = f'--workdir={_NAMES[0]} --ensemble={",".join(_NAMES[1:])}'
_GOLD = (
  '--input={data.rwth_en_de}/test.en --reference={data.rwth_en_de}/test.de --alignments={data.rwth_en_de}/test.align'
)
_ALIGN = f'{_GOLD} --beam=1 --metrics={{dir}}/results.json --output={{dir}}/translations.txt'


def _rows(lines: dict[str, str]) -> tuple[Row, ...]:
  return tuple(
    Row(f'{row}/{column}', _run(arg), column)
    for row, arg in lines.items()
    for column in (('ppl',) if row.endswith(_NO_BLEU) else ('ppl', 'bleu'))
  )


TABLE = Table(
  'Attention by Luong, English and German',
  'Luong, Pham and Manning 2015 (arXiv 1508.04025), tables 1 to 4 and 6; concat: footnote 15',
  rows=(
    *_rows(_LINES | _GERMAN | _KINDS),
    *(Row(row, _run(arg), 'bleu', 'replaced', note=_DICTIONARY) for row, arg in _REPLACED.items()),
    Row('luong/wmt14/ens8/bleu', 'luong/wmt14_ensemble8', 'bleu', note=f'{_UNNAMED}; {_DICTIONARY}'),
    Row('luong/wmt15/ens8', 'luong/newstest2015_ensemble8', 'sacrebleu', note=f'{_UNNAMED}; {_DICTIONARY}'),
    *(Row(f'luong/aer/{name}', f'luong/aer_{name}', 'aer') for name in _ALIGNED),
    Row('luong/aer/ensemble', 'luong/aer_ensemble', 'aer', note=_UNNAMED),
  ),
  runs=(
    *map(_train, _ARGS),
    Run(
      'luong/wmt14_ensemble8',
      then=(f'evaluate {_ENSEMBLE} --split=test {_REPLACE} --output={{dir}}/results.json',),
      seeds=0,
    ),
    Run(
      'luong/newstest2015_ensemble8',
      then=(
        f'evaluate {_ENSEMBLE} --split=test {_REPLACE} --config.{manual_dir("newstest2015_en_de")} '
        '--output={dir}/results.json',
      ),
      seeds=0,
    ),
    *(
      Run(
        f'luong/aer_{name}',
        then=(f'translate --workdir={{{_run(_KINDS[f"luong/attention/{name}"])}:0}} {_ALIGN}',),
        seeds=0,
      )
      for name in _ALIGNED
    ),
    Run('luong/aer_ensemble', then=(f'translate {_ENSEMBLE} {_ALIGN}',), seeds=0),
  ),
  note='50,000 words of each language. newstest2014 and newstest2015, Moses tokens with compounds split; beam 12, no '
  'length penalty, <unk> allowed. Table 2: BLEU of detokenised text. Alignments: 508 sentences of '
  'Europarl, the references aligned by force.',
  prints=tuple(('Luong et al. 2015', table) for table in ('1', '2', '3', '4', '6', 'text')),
  context=(
    'luong/wmt14/smt/bleu',
    'luong/wmt14/rnnsearch/bleu',
    'luong/wmt14/rnnsearch_unk/bleu',
    'luong/wmt14/rnnsearch_ens8/bleu',
    'luong/wmt15/montreal',
    'luong/wmt15_deen/edinburgh/bleu',
    'luong/wmt15_deen/mila/bleu',
    'luong/aer/berkeley',
  ),
)
