"""CFNet (Zhang et al. 2019) on your images and masks, from a backbone trained on ImageNet.

  lmx prepare --config=experiments/cfnet/own.py --config.data.manual_dir=DIR
  lmx train --config=experiments/cfnet/own.py --workdir=runs/own --config.data.manual_dir=DIR
    --config.train.init_from=resnet50.pth
  lmx predict --workdir=runs/own --input=FOLDER --output=masks

DIR holds images/train, masks/train and classes.txt, or PASCAL VOC 2012, PASCAL Context or ADE20K as unpacked:
lmx/data/builders/descriptions.md. resnet50.pth is a ResNet-50 of torchvision, also as .safetensors. Its learning rate
is a tenth of the heads'. Training without a backbone needs thousands of images and a higher learning rate.

Variants: resnet50, resnet101, tiny (generated scenes: seconds, a smoke test). Options `epochs`, `lr`. Recipe:
experiments/cfnet/recipe.py, 80 epochs at 0.001 as for PASCAL Context.
"""

from __future__ import annotations

from experiments import config
from experiments.cfnet import recipe

VARIANTS = ('resnet50', 'resnet101', 'tiny')


@config.arguments(VARIANTS, epochs=80.0, lr=0.001)
def get_config(variant, options):
  base = {'name': f'cfnet_own_{variant}', 'evaluation': {'split': 'test,valid'}}
  settings = recipe.released(variant, options.lr, options.epochs)
  return config.merge(settings, base, recipe.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[0.001, 0.004], model__m=[1, 4])
