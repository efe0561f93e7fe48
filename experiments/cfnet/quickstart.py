"""CFNet (Zhang, Zhang, Wang and Xie 2019, CVPR) on generated scenes: sea or water, told apart by boats and ducks.

  lmx train --config=experiments/cfnet/quickstart.py --workdir=runs/cfnet         minutes on two cores
  lmx train --config=experiments/cfnet/quickstart.py:fcn --workdir=runs/fcn       without context: a coin for far pixels
  lmx train --config=experiments/cfnet/quickstart.py:tiny --workdir=runs/tiny     a smoke test

Variants: cfnet (aggregated co-occurrent features and global pooling, as released) and fcn, on one small residual
network. Options: m=N             mixture components of the attention of cfnet
  shuffled        objects that do not depend on their areas
  steps=N         number of updates

lmx/data/batching/scenes.py describes the pictures; there are no published metrics. accuracy_beyond_24 is the accuracy
at sea and water pixels more than 24 px from any object. fcn hardly sees an object from there, so it is at 0.5.
segmentations.png shows test pictures with truth, prediction, and the attention of the pixel that is farthest from any
object.
"""

from __future__ import annotations

from experiments import config
from experiments.cfnet import recipe

VARIANTS = ('cfnet', 'fcn', 'tiny')


@config.arguments(VARIANTS, m=1, shuffled=False, steps=400)
def get_config(variant, options):
  head = {'head': 'fcn', 'pool': False} if variant == 'fcn' else {'m': options.m}
  own = {
    'name': f'cfnet_quickstart_{variant}',
    'model': head,
    'data': {'batching': {'shuffled': options.shuffled}},
    'train': {'steps': options.steps, 'eval_every': max(1, options.steps // 4)},
  }
  return config.merge(recipe.scenes(), own, recipe.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[0.02, 0.05], model__m=[1, 4])
