"""CFNet (Zhang et al. 2019) on PASCAL Context, in the released recipe. It needs a backbone trained on ImageNet.

  lmx train --config=experiments/cfnet/pascal_context.py:resnet101 --workdir=runs/cfnet --config.data.manual_dir=DIR
    --config.train.init_from=resnet101.pth

DIR holds JPEGImages, and masks of the 59 classes as PNG (lmx/data/builders/descriptions.md).
resnet101.pth is torchvision's, also as .safetensors, or with --config.model.stem=deep PyTorch-Encoding's resnet101s:
lmx has no images to train a backbone. Variants: resnet50,
resnet101, tiny (generated scenes: seconds, a smoke test). Options: head=fcn, the network without co-occurrent
features; m, the mixture components of each head; epochs, lr.

59 classes; background, class 0, is ignored, and `miou_with_background` counts it as a class with IoU 0, as EncNet's
paper does (52.6 x 59 / 60 = 51.7). Recipe: experiments/cfnet/recipe.py, 80 epochs at 0.001 (heads ten times that).
Validation during training uses one crop per image. The final evaluation is the released one: original pixels, windows
of 480 at six scales, mirrored too (recipe.windows). A run of an earlier version is evaluated so by `lmx evaluate` with
--config.evaluation.images=windows --config.objective.scales="(0.5,0.75,1.0,1.25,1.5,1.75)" --config.objective.flip=True

The paper prints 54.0 mIoU with ResNet-101 (its abstract; the released EncNet 51.0 with ResNet-50 and 54.1 with
ResNet-101, of 59 classes). We have not measured these metrics.
"""

from __future__ import annotations

from experiments import config
from experiments.cfnet import recipe

VARIANTS = ('resnet50', 'resnet101', 'tiny')


@config.arguments(VARIANTS, epochs=80.0, lr=0.001, head=('cfnet', 'fcn'), m=1)
def get_config(variant, options):
  base = {
    'name': f'cfnet_pascal_context_{variant}',
    'model': {'head': options.head, 'm': options.m},
    'objective': {'background': 'out'},
    'evaluation': {'split': 'valid'},
  }
  settings = recipe.released(variant, options.lr, options.epochs)
  return config.merge(settings, base, recipe.tiny() if variant == 'tiny' else recipe.windows())


def sweep():
  yield from config.grid(model__m=[1, 2, 4], seed=[0, 1, 2])
