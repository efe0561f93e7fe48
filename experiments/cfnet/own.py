"""CFNet (Zhang et al. 2019) on images and masks of yours, from a backbone trained on ImageNet.

  lmx prepare --config=experiments/cfnet/own.py --config.data.manual_dir=DIR
  lmx train --config=experiments/cfnet/own.py --workdir=runs/own --config.data.manual_dir=DIR
    --config.train.init_from=resnet50.pth
  lmx predict --workdir=runs/own --input=FOLDER --output=masks

DIR holds images/train, masks/train and classes.txt, or PASCAL VOC 2012, PASCAL Context or ADE20K as unpacked:
lmx/data/builders/segmentation_files/README.md. resnet50.pth is a ResNet-50 of torchvision, also as .safetensors. Its
parameters have a tenth of the rate of the heads. Without one the network has nothing to tell things by but your images:
thousands of them, and a higher rate.

Variants: resnet50, resnet101, tiny (generated scenes: seconds, does it run at all). Recipe of the released code
(PyTorch-Encoding, experiments/segmentation/train.py, its PASCAL Context): crops of 480 of images scaled to 0.5 to 2
times 520, 16 a batch, SGD with momentum 0.9 and weight decay 1e-4, rate 0.001 (heads 0.01) times (1 - t/T)^0.9, 80
epochs, auxiliary loss 0.2. Option `epochs`.
"""

from __future__ import annotations

from experiments import config
from experiments.cfnet import recipe

VARIANTS = ('resnet50', 'resnet101', 'tiny')


@config.arguments(VARIANTS, epochs=80.0)
def get_config(variant, options):
  base = {'name': f'cfnet_own_{variant}', 'evaluation': {'split': 'test,valid'}}
  return config.merge(recipe.released(variant, 0.001, options.epochs), base, recipe.tiny() if variant == 'tiny' else {})


def sweep():
  yield from config.grid(optim__lr=[0.001, 0.004], model__m=[1, 4])
