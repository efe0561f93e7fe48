"""BERT's masks and left-to-right ablation (tables 5 and 8) in miniature, from pre-training on."""

from experiments.tables import CORES, Row, Run, Table, from_run, manual_dir

_ARMS = {  # row -> option of the pre-training, option of the tasks
  'base': ('', ''),
  'no_nsp': (',no_nsp', ''),
  'ltr_no_nsp': (',left_to_right', ',left_to_right'),
  '100_0_0': (',masks=100_0_0', ''),
  '0_0_100': (',masks=0_0_100', ''),
}
_MASKS = ('100_0_0', '0_0_100')  # of table 8, which has other tasks
_TASKS = {'sst2': 1, 'mrpc': 4}  # epochs
_FLOAT32 = 'model.dtype=float32'
_SETTINGS = (
  manual_dir('corpus'),
  _FLOAT32,
  'data.vocab_size=8192',
  'data.batch_size=32',
  'optim.lr=1e-3',
  'optim.warmup_steps=200',
  'optim.end_fraction=0',
  'train.steps=2000',
  'train.eval_every=1000',
)


def _pretrained(arm: str) -> Run:
  config = f'experiments/bert/pretrain.py:mini{_ARMS[arm][0]}'
  return Run(f'bert/miniature_{arm}', config, _SETTINGS, seeds=0, needs=CORES)


def _task(arm: str, task: str) -> Run:
  config = f'experiments/bert/tasks.py:{task},epochs={_TASKS[task]},lr=1e-4{_ARMS[arm][1]}'
  settings = (manual_dir('glue'), from_run(f'bert/miniature_{arm}'), _FLOAT32)
  return Run(f'bert/miniature_{arm}_{task}', config, settings, seeds=3, needs=CORES)


TABLE = Table(
  'BERT, ablations in miniature',
  'Measured here; the rows follow Devlin et al. 2019 (arXiv 1810.04805), tables 5 and 8',
  rows=tuple(
    Row(
      f'bert/miniature/{arm}/{task}',
      f'bert/miniature_{arm}_{task}',
      'accuracy',
      differs=''
      if arm in _MASKS
      else 'printed: BERT base, 3,300 million words; ours: 4 layers of 256, 8 million subwords',
      like='' if arm in _MASKS else f'bert/ablation_tasks/{arm}/{task}',
    )
    for arm in _ARMS
    for task in _TASKS
  ),
  runs=(*map(_pretrained, _ARMS), *(_task(arm, task) for arm in _ARMS for task in _TASKS)),
  note='4 layers of 256, 2,000 updates of 32 rows of 128 subwords; then an epoch of SST-2 with its phrases and four of '
  'MRPC, at one rate, on the validation split. Left to right, the last token is classified.',
)
