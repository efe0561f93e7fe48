"""Luong's kinds of attention (table 4) on Multi30k, at a size for two cores."""

from experiments.tables import CORES, Row, Run, Table, manual_dir, measured

_KINDS = {  # as in the paper's table -> score and window
  'global_location': ('location', 'global'),
  'global_dot': ('dot', 'global'),
  'global_general': ('general', 'global'),
  'localm_dot': ('dot', 'local_m'),
  'localm_general': ('general', 'local_m'),
  'localp_dot': ('dot', 'local_p'),
  'localp_general': ('general', 'local_p'),
}

_SMALLER = 'printed: newstest2014, 4 layers of 1,000; ours: captions of pictures, one layer of 256'


def _run(kind: str) -> Run:
  score, window = _KINDS[kind]
  settings = (manual_dir('multi30k'), f'model.score={score}', f'model.window={window}', 'train.epochs=10')
  return Run(
    f'luong/multi30k_{kind}',
    'experiments/luong/multi30k.py:luong',
    settings,
    (measured('test_2017'),),
    needs=CORES,
  )


def _rows(kind: str) -> tuple[Row, ...]:
  run = f'luong/multi30k_{kind}'

  def row(column: str, metric: str, file: str = 'results', like: str = '') -> Row:
    return Row(f'luong/multi30k/kinds/{kind}/{column}', run, metric, file, differs=_SMALLER if like else '', like=like)

  printed = f'luong/attention/{kind}'
  return (
    row('ppl', 'ppl', like=f'{printed}/ppl'),
    row('test2016', 'bleu', like='' if kind == 'localm_dot' else f'{printed}/bleu'),  # whose BLEU is not printed
    row('test2017', 'bleu', 'test_2017'),
  )


TABLE = Table(
  'Attention by Luong, kinds of attention on Multi30k',
  'Measured here; the rows follow Luong, Pham and Manning 2015 (arXiv 1508.04025), table 4',
  rows=tuple(row for kind in _KINDS for row in _rows(kind)),
  runs=tuple(map(_run, _KINDS)),
  note='English to German, 10 epochs of the modern recipe in experiments/luong/multi30k.py, input feeding; beam 5.',
)
