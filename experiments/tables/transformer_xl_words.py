"""Transformer-XL by word: WikiText-103, One Billion Words, Penn Treebank."""

from experiments.tables import GPUS, POD, Row, Run, Table, manual_dir

_LM1B = {
  'base': 'base',
  'large': 'large',
  'ours': 'ablation/ours',
  'shaw': 'ablation/shaw',
  'alone': 'ablation/norecurrence',
}

TABLE = Table(
  'Transformer-XL, WikiText-103, One Billion Words and Penn Treebank',
  'Dai et al. 2019 (arXiv 1901.02860), tables 1, 4, 5 and 7',
  rows=(
    Row('transformer_xl/wikitext103/standard', 'transformer_xl/wikitext103_base', 'ppl'),
    Row('transformer_xl/wikitext103/large', 'transformer_xl/wikitext103_large', 'ppl'),
    *(Row(f'transformer_xl/lm1b/{row}', f'transformer_xl/lm1b_{name}', 'ppl') for name, row in _LM1B.items()),
    Row('transformer_xl/ptb/txl', 'transformer_xl/ptb', 'ppl', note='no configuration was released; ours'),
  ),
  runs=(
    *(
      Run(
        f'transformer_xl/wikitext103_{size}',
        f'experiments/transformer_xl/wikitext103.py:{size}',
        (manual_dir('wikitext103'),),
        needs=GPUS if size == 'base' else POD,
      )
      for size in ('base', 'large')
    ),
    *(
      Run(
        f'transformer_xl/lm1b_{name}',
        f'experiments/transformer_xl/lm1b.py:{name}',
        (manual_dir('lm1b_files'),),
        needs=POD,
      )
      for name in _LM1B
    ),
    Run('transformer_xl/ptb', 'experiments/transformer_xl/ptb.py:24m', (manual_dir('ptb'),), seeds=3),
  ),
  note='WikiText-103: windows of 64 over a memory of 640, distances clamped at 400 (large 128, 1600, 1000). One '
  'Billion Words: windows of 32 over 128, a special token at both ends of a sentence, heldout-00000.',
)
