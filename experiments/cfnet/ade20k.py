"""CFNet (Zhang et al. 2019) on ADE20K, in the released recipe. It needs a backbone trained on ImageNet.

  lmx train --config=experiments/cfnet/ade20k.py:resnet101 --workdir=runs/cfnet --config.data.manual_dir=DIR
    --config.train.init_from=resnet101.pth

DIR holds ADEChallengeData2016, with images and annotations (lmx/data/builders/descriptions.md).
resnet101.pth is torchvision's, also as .safetensors, or with --config.model.stem=deep PyTorch-Encoding's resnet101s:
lmx has no images to train a backbone. Variants: resnet50,
resnet101, tiny (generated scenes: seconds, a smoke test). Options: head=fcn, the network without co-occurrent
features; m, the mixture components of each head; epochs, lr.

150 classes; other pixels are ignored. Recipe: experiments/cfnet/recipe.py, 180 epochs at 0.004 (heads ten times that).
Validation during training uses one crop per image. The final evaluation is the released one: original pixels, windows
of 480 at six scales, mirrored too (recipe.windows). A run of an earlier version is evaluated so by `lmx evaluate` with
--config.evaluation.images=windows --config.objective.scales="(0.5,0.75,1.0,1.25,1.5,1.75)" --config.objective.flip=True

The paper prints 44.89 mIoU with ResNet-101 (its abstract); the released models are FCN 78.7 pixel accuracy and 38.5
mIoU, EncNet 80.1 and 41.5, both of ResNet-50, and EncNet 81.3 and 44.4 of ResNet-101. We have not measured these
metrics.
"""

from __future__ import annotations

from experiments import config
from experiments.cfnet import recipe

VARIANTS = ('resnet50', 'resnet101', 'tiny')


@config.arguments(VARIANTS, epochs=180.0, lr=0.004, head=('cfnet', 'fcn'), m=1)
def get_config(variant, options):
  base = {
    'name': f'cfnet_ade20k_{variant}',
    'model': {'head': options.head, 'm': options.m},
    'evaluation': {'split': 'valid'},
  }
  settings = recipe.released(variant, options.lr, options.epochs)
  return config.merge(settings, base, recipe.tiny() if variant == 'tiny' else recipe.windows())


def sweep():
  yield from config.grid(model__m=[1, 2, 4], seed=[0, 1, 2])
