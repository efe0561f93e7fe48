"""CFNet on PASCAL Context and ADE20K, compared with the released models."""

from experiments.tables import GPUS, Row, Run, Table, Unmeasured, manual_dir

_FCN = (
  'model.pool=False',
  'model.auxiliary_width=0',
  'objective.auxiliary=0',
)  # of the released command, without --aux


def _run(dataset: str, variant: str, *options: str) -> Run:
  config = ','.join([f'experiments/cfnet/{dataset}.py:{variant}', *options])
  backbone = ('model.stem=deep', f'train.init_from={{data.{variant}s}}')
  settings = (manual_dir(dataset), *backbone, *(_FCN if 'head=fcn' in options else ()))
  name = '_'.join([dataset, variant, *(option.partition('=')[2] for option in options)])
  return Run(f'cfnet/{name}', config, settings, needs=GPUS)


TABLE = Table(
  'CFNet on PASCAL Context and ADE20K',
  'Zhang, Zhang, Wang and Xie 2019 (CVPR), abstract, and the released models',
  rows=(
    Row(
      'cfnet/abstract/pascal_context',
      'cfnet/pascal_context_resnet101',
      'miou_with_background',
      note='the abstract does not say whether background counts; here it does, with an IoU of 0',
    ),
    Row('cfnet/abstract/ade20k', 'cfnet/ade20k_resnet101', 'miou'),
    *(
      Row(f'cfnet/zoo/ade20k/fcn_resnet50s/{column}', 'cfnet/ade20k_resnet50_fcn', metric)
      for column, metric in (('pixacc', 'pixel_accuracy'), ('miou', 'miou'))
    ),
  ),
  runs=(
    _run('pascal_context', 'resnet101'),
    _run('ade20k', 'resnet101'),
    _run('ade20k', 'resnet50', 'head=fcn'),
  ),
  note="Every run needs PyTorch-Encoding's backbone of ImageNet, whose stem is three convolutions of 3x3 (resnet101s).",
  prints=(('Zhang et al. 2019', 'text'), ('Zhang et al. (released models)', 'text')),
  context=('cfnet/zoo/*/encnet_*',),
  unmeasured=(Unmeasured('cfnet/abstract/voc2012', 'it is pre-trained on COCO, whose masks lmx does not read'),),
)
