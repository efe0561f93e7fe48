"""AWD-LSTM on Penn Treebank: the paper's recipe, and that of the released code's README."""

from experiments.tables import Row, Run, Table, from_run, manual_dir, measured

_FILE = 'experiments/awd_lstm/ptb.py'
_BOTH = (measured('valid'),)


def _runs(recipe: str, window: int) -> tuple[Run, Run]:
  """Return a training of at least 500 epochs and the second run of averaged SGD, also evaluated with a cache."""
  cache = tuple(measured(split, f'--cache={window},0.1,1.0', file=f'cache_{split}') for split in ('valid', 'test'))
  first = f'awd_lstm/ptb_{recipe}'
  return (
    Run(first, f'{_FILE}:{recipe}', (manual_dir('ptb'),), _BOTH),
    Run(f'{first}_tuned', f'{_FILE}:finetune,of={recipe}', (manual_dir('ptb'), from_run(first)), (*_BOTH, *cache)),
  )


def _rows(recipe: str, base: str, tuned: str, cache: str) -> list[Row]:
  rows = []
  for split, file in (('valid', 'valid'), ('test', 'results')):
    rows += [
      Row(base.format(split), f'awd_lstm/ptb_{recipe}', 'ppl', file),
      Row(tuned.format(split), f'awd_lstm/ptb_{recipe}_tuned', 'ppl', file),
      Row(cache.format(split), f'awd_lstm/ptb_{recipe}_tuned', 'cache_ppl', f'cache_{split}'),
    ]
  return rows


TABLE = Table(
  'AWD-LSTM, Penn Treebank',
  'Merity, Keskar and Socher 2018 (arXiv 1708.02182), tables 1 and 4; the README of salesforce/awd-lstm-lm',
  rows=(
    *_rows('paper', 'awd_lstm/ablation/no_finetune/ptb_{}', 'awd_lstm/ptb/finetuned/{}', 'awd_lstm/ptb/cache/{}'),
    *_rows('released', *(f'awd_lstm/readme/lstm_ptb/{row}/{{}}' for row in ('base', 'finetune', 'pointer'))),
    *_rows('qrnn', *(f'awd_lstm/readme/qrnn_ptb/{row}/{{}}' for row in ('base', 'finetune', 'pointer'))),
  ),
  runs=(*_runs('paper', 2000), *_runs('released', 500), *_runs('qrnn', 500)),
  note="The README's figures are approximate; its authors saw them move with PyTorch and GPU.",
)
