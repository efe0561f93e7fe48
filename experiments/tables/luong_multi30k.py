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


TABLE = Table(
  'Attention by Luong, kinds of attention on Multi30k',
  'Measured here; the rows follow Luong, Pham and Manning 2015 (arXiv 1508.04025), table 4',
  rows=tuple(
    Row(f'luong/multi30k/kinds/{kind}/{column}', f'luong/multi30k_{kind}', metric, file)
    for kind in _KINDS
    for column, metric, file in (
      ('ppl', 'ppl', 'results'),
      ('test2016', 'bleu', 'results'),
      ('test2017', 'bleu', 'test_2017'),
    )
  ),
  runs=tuple(map(_run, _KINDS)),
  note='English to German, 10 epochs of the modern recipe in experiments/luong/multi30k.py, input feeding; beam 5.',
)
