"""Rows of Transformer-XL's table 6 in miniature, on the embedded prose."""

from experiments.tables import CORES, Row, Run, Table, measured

# Row -> attention length of the evaluation: the shortest of the best on the validation split with seed 0, of 64, 128
# and 192 with recurrence and of 32, 48, 64 and 96 without.
_ARMS = {'fast': 64, 'shaw': 64, 'half': 192, 'alone': 32, 'alone_half': 32, 'vaswani_half': 32}
_RECURRENT = ('fast', 'shaw', 'half')
_STRIDE = 16
_SETTINGS = (
  'model.N=2',
  'train.steps=400',
  'train.eval_every=400',
  'evaluation.split=valid',
  'evaluation.baselines=false',
  'samples.count=0',
)
_BESIDE = measured('test', '--config.evaluation.stride=0', '--config.data.eval_length=64', file='beside')


def _run(arm: str, length: int) -> Run:
  setting = f'evaluation.model.M={length}' if arm in _RECURRENT else f'data.eval_length={length + _STRIDE - 1}'
  return Run(
    f'transformer_xl/miniature_{arm}',
    f'experiments/transformer_xl/quickstart.py:{arm}',
    _SETTINGS,
    (measured('test', f'--config.{setting}'), *(() if arm in _RECURRENT else (_BESIDE,))),
    seeds=2,
    needs=CORES,
  )


TABLE = Table(
  'Transformer-XL, ablation in miniature',
  'Measured here; the rows follow Dai et al. 2019 (arXiv 1901.02860), table 6',
  rows=(
    *(Row(f'quickstart/table6/{arm}', f'transformer_xl/miniature_{arm}', 'ppl', 'test') for arm in _ARMS),
    *(
      Row(f'quickstart/table6/{arm}/side_by_side', f'transformer_xl/miniature_{arm}', 'ppl', 'beside')
      for arm in _ARMS
      if arm not in _RECURRENT
    ),
  ),
  runs=tuple(_run(arm, length) for arm, length in _ARMS.items()),
  note='2 layers of 128, 400 updates of 16 segments of 64 subwords. Without recurrence, windows start every 16 '
  'subwords, so that a prediction sees at least the attention length; adjacent windows of 64 give it 32 on '
  'average.',
)
