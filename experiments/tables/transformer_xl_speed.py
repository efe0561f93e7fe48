"""Evaluation speed of Transformer-XL: a memory against a window that moves by one token."""

from experiments.tables import Row, Run, Table

_LENGTHS = (800, 1800, 2800, 3800)
_UNKNOWN = 'the paper prints neither the sizes of the two models nor the GPU, and the ratio depends on both'

TABLE = Table(
  'Transformer-XL, evaluation speed',
  'Dai et al. 2019 (arXiv 1901.02860), table 9',
  rows=tuple(
    Row(
      f'transformer_xl/eval_speed/attn{length}',
      'transformer_xl/evaluation_speed',
      'slowdown',
      'speed',
      f'attention_length={length}',
      differs=_UNKNOWN,
    )
    for length in _LENGTHS
  ),
  runs=(
    Run(
      'transformer_xl/evaluation_speed',
      then=(
        f'bench transformer_xl:enwik8_24l --evaluation={",".join(map(str, _LENGTHS))} --batch=1 --length=128 '
        '--json={dir}/speed.json',
      ),
      seeds=0,
    ),
  ),
  note='Time per token with random weights, sizes of the 24 layers; the other model has the same sizes and absolute '
  'positions.',
  prints=(('Dai et al. 2019', '9'),),
)
