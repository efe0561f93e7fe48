"""CFNet on generated scenes: does a pixel find the distant object of its own area?"""

from experiments.tables import CORES, Row, Run, Table

_HEADS = ('fcn', 'pool', 'm1', 'm4')
_SHUFFLED = ('fcn', 'm1', 'm4')  # the control: objects are sampled independently of the classes


def _scenes(name: str, options: str = '') -> Run:
  return Run(f'cfnet/scenes_{name}', f'experiments/cfnet/scenes.py:{name.split("_")[0]}{options}', seeds=3, needs=CORES)


TABLE = Table(
  'CFNet',
  'Generated scenes are only measured here; the system is from Zhang, Zhang, Wang and Xie 2019 (CVPR)',
  rows=(
    *(Row(f'cfnet/scenes/{head}/far', f'cfnet/scenes_{head}', 'far_accuracy') for head in _HEADS),
    *(Row(f'cfnet/scenes/{head}/miou', f'cfnet/scenes_{head}', 'miou') for head in _HEADS),
    *(Row(f'cfnet/scenes/{head}_shuffled/far', f'cfnet/scenes_{head}_shuffled', 'far_accuracy') for head in _SHUFFLED),
  ),
  runs=(
    *(_scenes(head) for head in _HEADS),
    *(_scenes(f'{head}_shuffled', ',shuffled') for head in _SHUFFLED),
  ),
  note='Accuracy at ambiguous pixels, sea or water, more than 24 px from any object; half of the pictures have an '
  'area of each. Fixed before the first run, for the means over three seeds: a fully convolutional network '
  '(fcn) at most 55%; with global pooling (pool) 60 to 85%, where knowing only the set of objects gives 75%; '
  'with the aggregated co-occurrent feature module (m1, m4: one and four mixture components) at least 95%; and '
  'with objects independent of the classes (shuffled) m1 and m4 within 3% of fcn.',
)
