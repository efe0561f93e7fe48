"""Sea or water: does a pixel find the object of its own area, far away, among the others? On generated scenes.

  lmx train --config=experiments/cfnet/scenes.py:m1 --workdir=runs/m1            a minute or two on two cores
  lmx train --config=experiments/cfnet/scenes.py:tiny --workdir=runs/tiny        seconds: does it run at all

Variants are heads of one small residual network, whose pixels depend on others up to 24 px away in a direction: fcn, a
convolution; pool, with features of the whole image by global average pooling; m1 and m4, with the aggregated
co-occurrent feature module of Zhang et al. 2019 (CVPR) of one and four mixture components, without that pooling. After
the variant come
  shuffled        draw the objects independently of the classes of their areas: the control
  steps=N         number of updates

The pictures are those of lmx/data/batching/scenes.py, new ones for every update. The figure is the accuracy at
ambiguous pixels, those of sea and water, more than 24 px from any object (accuracy_beyond_24), on the 1,000 pictures of
the test split. An estimator of the set of objects alone is right at 0.75 of them, and one of nothing at 0.5.

Fixed before the first run with seeds 0, 1 and 2, for the mean over these three:
  fcn at most 0.55, pool 0.60 to 0.85, m1 and m4 at least 0.95; shuffled, m1 and m4 within 0.03 of fcn.
The settings were chosen with seeds from 100 on, on the validation split. measured.csv has the results.
"""

from __future__ import annotations

from experiments import config
from experiments.cfnet import recipe

VARIANTS = ('m1', 'm4', 'pool', 'fcn', 'tiny')
HEADS = {
  'fcn': {'head': 'fcn', 'pool': False},
  'pool': {'head': 'fcn', 'pool': True},
  'm1': {'head': 'cfnet', 'pool': False, 'm': 1},
  'm4': {'head': 'cfnet', 'pool': False, 'm': 4},
}


@config.arguments(VARIANTS, shuffled=False, steps=400)
def get_config(variant, options):
  own = {
    'name': f'cfnet_scenes_{variant}' + ('_shuffled' if options.shuffled else ''),
    'model': HEADS['m4' if variant == 'tiny' else variant],
    'data': {'batching': {'shuffled': options.shuffled}},
    'train': {'steps': options.steps, 'eval_every': max(1, options.steps // 2)},
  }
  return config.merge(recipe.scenes(), own, recipe.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(seed=[0, 1, 2], optim__lr=[0.02, 0.05])
