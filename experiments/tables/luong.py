"""Attention by Luong: English to German, row by row, and the kinds of attention."""

from experiments.tables import Row, Run, Table, manual_dir

_LINES = {  # table 1; BLEU and perplexity
  'rnn_encdec/wmt14_de/base': 'sutskever,dropout=false,reverse=false',
  'rnn_encdec/wmt14_de/reverse': 'sutskever,dropout=false',
  'rnn_encdec/wmt14_de/dropout': 'sutskever',
  'luong/wmt14/global_location': 'luong,score=location,window=global,feed=false',
  'luong/wmt14/global_location_feed': 'luong,score=location,window=global',
  'luong/wmt14/localp_general_feed': 'luong',
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
_NO_BLEU = ('localm_dot', 'global_concat', 'localm_concat', 'localp_concat')  # perplexity alone is printed
_ARGS = dict.fromkeys([*_LINES.values(), *_KINDS.values()])  # lines of both tables are one run


def _model(arg: str) -> str:
  return 'rnn_encdec' if arg.startswith('sutskever') else 'luong'


def _run(arg: str) -> str:
  return f'{_model(arg)}/wmt14_' + arg.replace('=', '_').replace(',', '_')


TABLE = Table(
  'Attention by Luong, English to German',
  'Luong, Pham and Manning 2015 (arXiv 1508.04025), tables 1 and 4; concat: footnote 15',
  rows=tuple(
    Row(f'{row}/{column}', _run(arg), {'ppl': 'ppl', 'bleu': 'bleu'}[column])
    for row, arg in (_LINES | _KINDS).items()
    for column in (('ppl',) if row.endswith(_NO_BLEU) else ('ppl', 'bleu'))
  ),
  runs=tuple(
    Run(_run(arg), f'experiments/{_model(arg)}/wmt14.py:{arg}', (manual_dir('wmt14_en_de'),)) for arg in _ARGS
  ),
  note='newstest2014, Moses tokens with compounds split; beam 12, no length penalty, <unk> allowed and not replaced. '
  'One vocabulary for both languages, unlike the paper.',
)
