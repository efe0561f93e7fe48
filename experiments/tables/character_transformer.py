"""Character Transformer: enwik8, text8 and the ablations."""

from experiments.tables import GPU, GPUS, Row, Run, Table, manual_dir, measured

_ABLATION = {
  'baseline': '',
  'no_multiple_positions': ',every_position=false',
  'no_intermediate_losses': ',every_layer=false',
  'no_layer_positions': ',layer_positions=false',
  'no_multiple_targets': ',second_target=false',
  'no_sgd_momentum': ',optimizer=adam',
}

_NEEDS = {'t12': GPU, 't64': GPUS}
_OPTIMIZER = 'the optimizer in the place of momentum SGD is not known here; Adam at 1e-4 stands in for it'


def _run(name: str) -> str:
  return 'character_transformer/text8_t64' + ('' if name == 'baseline' else f'_{name}')


TABLE = Table(
  'Character Transformer',
  'Al-Rfou et al. 2018 (arXiv 1808.04444), tables 2 to 4',
  rows=(
    *(
      Row(f'char_transformer/{data}/{size}', f'character_transformer/{data}_{size}', 'bpc')
      for data in ('enwik8', 'text8')
      for size in ('t12', 't64')
    ),
    *(
      Row(
        f'char_transformer/ablation/{name}',
        _run(name),
        'bpc',
        'valid',
        differs=_OPTIMIZER if name == 'no_sgd_momentum' else '',
      )
      for name in _ABLATION
    ),
  ),
  runs=(
    *(
      Run(
        f'character_transformer/enwik8_{size}',
        f'experiments/character_transformer/enwik8.py:{size}',
        (manual_dir('enwik8'),),
        needs=_NEEDS[size],
      )
      for size in ('t12', 't64')
    ),
    Run(
      'character_transformer/text8_t12',
      'experiments/character_transformer/text8.py:t12',
      (manual_dir('text8'),),
      needs=_NEEDS['t12'],
    ),
    *(
      Run(
        _run(name),
        f'experiments/character_transformer/text8.py:t64{option}',
        (manual_dir('text8'),),
        (measured('valid'),),
        needs=_NEEDS['t64'],
      )
      for name, option in _ABLATION.items()
    ),
  ),
  note='Each byte is predicted at the last position of its own window (stride 1), with 511 bytes before it.',
  prints=(('Al-Rfou et al. 2019', ''),),
)
