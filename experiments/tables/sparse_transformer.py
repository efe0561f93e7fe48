"""Sparse Transformer: enwik8, the patterns, and the least context of an evaluated byte."""

from experiments.tables import GPUS, Row, Run, Table, Unmeasured, manual_dir

_FILE = 'experiments/sparse_transformer/enwik8.py'
_CONTEXTS = (6144, 9216, 10752, 11904, 12096, 12160)
_PATTERNS = ('fixed', 'strided', 'dense')
_SPLIT = 'table 2 names neither the split nor the least context of a byte; ours: the test split, 6,144'
_IMAGES = (
  "lmx's images are for segmentation: it reads neither CIFAR-10 nor ImageNet 64x64 as a sequence of bytes, and has no "
  'embedding of row, column and channel'
)
_MUSIC = 'the recordings were not released, and lmx reads no audio'


def _measured(context: int) -> str:
  return (
    f'evaluate --workdir={{dir}} --config={_FILE}:fixed,context={context} --split=test --config.{manual_dir("enwik8")} '
    f'--output={{dir}}/context_{context}.json'
  )


TABLE = Table(
  'Sparse Transformer, enwik8',
  'Child et al. 2019 (arXiv 1904.10509), tables 1 to 4 and section 7.2',
  rows=(
    Row('sparse_transformer/enwik8/sparse_fixed', 'sparse_transformer/enwik8_fixed', 'bpb', 'context_12160'),
    Row(
      'sparse_transformer/seeds/enwik8',
      'sparse_transformer/enwik8_fixed',
      'bpb',
      'context_12160',
      note='section 7.2 does not state the minimum context; we take the best of table 3',
    ),
    *(
      Row(f'sparse_transformer/min_context/{context}', 'sparse_transformer/enwik8_fixed', 'bpb', f'context_{context}')
      for context in _CONTEXTS
    ),
    *(
      Row(f'sparse_transformer/patterns_enwik8/{name}/loss', f'sparse_transformer/enwik8_{name}', 'bpb', note=_SPLIT)
      for name in _PATTERNS
    ),
  ),
  runs=tuple(
    Run(
      f'sparse_transformer/enwik8_{name}',
      f'{_FILE}:{name}',
      (manual_dir('enwik8'),),
      tuple(map(_measured, _CONTEXTS)) if name == 'fixed' else (),
      seeds=3 if name == 'fixed' else 1,
      needs=GPUS,
    )
    for name in _PATTERNS
  ),
  note='Batch and rate are not printed for this set.',
  prints=tuple(('Child et al. 2019', table) for table in ('1', 'text', '2', '3', '4')),
  context=(
    *(f'sparse_transformer/cifar10/{name}' for name in ('pixelcnn', 'pixelcnnpp', 'image_transformer', 'pixelsnail')),
    *(f'sparse_transformer/enwik8/{name}' for name in ('alrfou', 'txl_*')),
    *(f'sparse_transformer/imagenet64/{name}' for name in ('pixelcnn', 'parallel_multiscale', 'glow', 'spn')),
  ),
  unmeasured=(
    Unmeasured('sparse_transformer/*/sparse_strided', _IMAGES),
    Unmeasured('sparse_transformer/seeds/cifar10', _IMAGES),
    Unmeasured('sparse_transformer/patterns_cifar10/*', _IMAGES),
    Unmeasured('sparse_transformer/music*', _MUSIC),
    Unmeasured(
      'sparse_transformer/patterns_enwik8/*/time',
      'table 2 names neither the unit of time nor the batch of an iteration on 8 V100 GPUs',
    ),
  ),
)
