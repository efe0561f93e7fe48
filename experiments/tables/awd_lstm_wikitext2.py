"""AWD-LSTM on WikiText-2: the paper's recipe, and that of the released code's README."""

from experiments.tables import Row, Run, Table, from_run, manual_dir, measured

_FILE = 'experiments/awd_lstm/wikitext2.py'
_CACHE = tuple(measured(split, '--cache=3785,0.1279,0.662', file=f'cache_{split}') for split in ('valid', 'test'))


def _runs(recipe: str) -> tuple[Run, Run]:
  first, valid = f'awd_lstm/wikitext2_{recipe}', measured('valid')
  return (
    Run(first, f'{_FILE}:{recipe}', (manual_dir('wikitext2'),), (valid,)),
    Run(
      f'{first}_tuned', f'{_FILE}:finetune,of={recipe}', (manual_dir('wikitext2'), from_run(first)), (valid, *_CACHE)
    ),
  )


def _rows(recipe: str, base: str, tuned: str, cache: str) -> list[Row]:
  note = "the paper does not print its cache for this set; the README's is taken" if recipe == 'paper' else ''
  rows = []
  for split, file in (('valid', 'valid'), ('test', 'results')):
    rows += [
      Row(base.format(split), f'awd_lstm/wikitext2_{recipe}', 'ppl', file),
      Row(tuned.format(split), f'awd_lstm/wikitext2_{recipe}_tuned', 'ppl', file),
      Row(cache.format(split), f'awd_lstm/wikitext2_{recipe}_tuned', 'cache_ppl', f'cache_{split}', note=note),
    ]
  return rows


TABLE = Table(
  'AWD-LSTM, WikiText-2',
  'Merity, Keskar and Socher 2018 (arXiv 1708.02182), tables 2 and 4; the README of salesforce/awd-lstm-lm',
  rows=(
    *_rows(
      'paper',
      'awd_lstm/ablation/no_finetune/wt2_{}',
      *(f'awd_lstm/wikitext2/{row}/{{}}' for row in ('finetuned', 'cache')),
    ),
    *_rows('released', *(f'awd_lstm/readme/lstm_wt2/{row}/{{}}' for row in ('base', 'finetune', 'pointer'))),
    *_rows('qrnn', *(f'awd_lstm/readme/qrnn_wt2/{row}/{{}}' for row in ('base', 'finetune', 'pointer'))),
  ),
  runs=(*_runs('paper'), *_runs('released'), *_runs('qrnn')),
)
