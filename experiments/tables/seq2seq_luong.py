"""Attention by Luong: English to German, line by line, and the kinds of attention."""

from experiments.tables import Row, Run, Table, at

_LINES = {  # table 1; BLEU and perplexity
  'luong_ende14/base': 'luong,attention=false,dropout=false,reverse=false',
  'luong_ende14/reverse': 'luong,attention=false,dropout=false',
  'luong_ende14/dropout': 'luong,attention=false',
  'luong_ende14/global_location': 'luong,score=location,window=global,feed=false',
  'luong_ende14/global_location_feed': 'luong,score=location,window=global',
  'luong_ende14/localp_general_feed': 'luong',
}
_KINDS = {  # table 4
  'luong_attention/global_location': 'luong,score=location,window=global',
  'luong_attention/global_dot': 'luong,score=dot,window=global',
  'luong_attention/global_general': 'luong,score=general,window=global',
  'luong_attention/localm_dot': 'luong,score=dot,window=local_m',
  'luong_attention/localm_general': 'luong,score=general,window=local_m',
  'luong_attention/localp_dot': 'luong,score=dot,window=local_p',
  'luong_attention/localp_general': 'luong',
  'luong_attention/global_concat': 'luong,score=concat_identity,window=global',
  'luong_attention/localm_concat': 'luong,score=concat_identity,window=local_m',
  'luong_attention/localp_concat': 'luong,score=concat_identity,window=local_p',
}
_NO_BLEU = ('localm_dot', 'global_concat', 'localm_concat', 'localp_concat')  # perplexity alone is printed
_ARGS = dict.fromkeys([*_LINES.values(), *_KINDS.values()])  # lines of both tables are one run


def _run(arg: str) -> str:
  return 'seq2seq/wmt14_' + arg.replace('=', '_').replace(',', '_')


TABLE = Table(
  'Attention by Luong, English to German',
  'Luong, Pham and Manning 2015 (arXiv 1508.04025), tables 1 and 4; concat: footnote 15',
  rows=tuple(
    Row(f'seq2seq/{row}/{column}', _run(arg), {'ppl': 'ppl', 'bleu': 'bleu'}[column])
    for row, arg in (_LINES | _KINDS).items()
    for column in (('ppl',) if row.endswith(_NO_BLEU) else ('ppl', 'bleu'))
  ),
  runs=tuple(Run(_run(arg), f'experiments/seq2seq/wmt14.py:{arg}', (at('wmt14_en_de'),)) for arg in _ARGS),
  note='newstest2014, Moses tokens with compounds split; beam 12, no length penalty, <unk> allowed and not replaced. '
  'One vocabulary for both languages, unlike the paper.',
)
