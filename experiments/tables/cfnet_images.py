"""CFNet on PASCAL Context and ADE20K, compared with the released models."""

from experiments.tables import GPUS, Row, Run, Table, Unmeasured, manual_dir, measured

_WHOLE = (  # of an evaluation: whole images at the released scales, also mirrored
  '--config.data.batching.evaluation=whole',
  '--config.data.eval_length=520',
  '--config.objective.scales=0.5,0.75,1.0,1.25,1.5,1.75',
  '--config.objective.flip=True',
)
_DIFFERS = (
  'printed: windows of the crop of larger images, and a backbone whose stem is three convolutions of 3x3; here the '
  "whole image at every scale, and torchvision's backbone of ImageNet"
)


_FCN = (
  'model.pool=False',
  'model.auxiliary_width=0',
  'objective.auxiliary=0',
)  # of the released command, without --aux


def _run(dataset: str, variant: str, *options: str) -> Run:
  config = ','.join([f'experiments/cfnet/{dataset}.py:{variant}', *options])
  settings = (manual_dir(dataset), f'train.init_from={{data.{variant}}}', *(_FCN if 'head=fcn' in options else ()))
  name = '_'.join([dataset, variant, *(option.partition('=')[2] for option in options)])
  return Run(f'cfnet/{name}', config, settings, (measured('valid', *_WHOLE, file='whole'),), needs=GPUS)


TABLE = Table(
  'CFNet on PASCAL Context and ADE20K',
  'Zhang, Zhang, Wang and Xie 2019 (CVPR), abstract, and the released models',
  rows=(
    Row(
      'cfnet/abstract/pascal_context',
      'cfnet/pascal_context_resnet101',
      'miou_with_background',
      'whole',
      differs=_DIFFERS + '; whether background counts is not said there',
    ),
    Row('cfnet/abstract/ade20k', 'cfnet/ade20k_resnet101', 'miou', 'whole', differs=_DIFFERS),
    *(
      Row(f'cfnet/zoo/ade20k/fcn_resnet50s/{column}', 'cfnet/ade20k_resnet50_fcn', metric, 'whole', differs=_DIFFERS)
      for column, metric in (('pixacc', 'pixel_accuracy'), ('miou', 'miou'))
    ),
  ),
  runs=(
    _run('pascal_context', 'resnet101'),
    _run('ade20k', 'resnet101'),
    _run('ade20k', 'resnet50', 'head=fcn'),
  ),
  note='Every run needs a backbone trained on ImageNet: train.init_from=resnet101.pth of torchvision.',
  prints=(('Zhang et al. 2019', 'text'), ('Zhang et al. (released models)', 'text')),
  context=('cfnet/zoo/*/encnet_*',),
  unmeasured=(Unmeasured('cfnet/abstract/voc2012', 'it is pre-trained on COCO, whose masks lmx does not read'),),
)
