"""BERT large over seeds, as NVIDIA measured it."""

from experiments.tables import Row, Run, Table, Unmeasured, from_run, imported, manual_dir
from experiments.tables.bert_squad import HOURS

_START = from_run('imported/bert_large')
_WEIGHTS = 'the README does not say from which weights'


def _glue(task: str, batch: int, seeds: int, suffix: str = '') -> Run:
  settings = (manual_dir('glue'), _START, f'data.batch_size={batch}', 'optim.lr=2.4e-5')
  return Run(f'bert/nvidia_{task}{suffix}', f'experiments/bert/tasks.py:{task}', settings, seeds=seeds)


TABLE = Table(
  'BERT large over seeds, NVIDIA',
  'NVIDIA/DeepLearningExamples, PyTorch/LanguageModeling/BERT, README: training stability test',
  rows=(
    Row('bert/nvidia_seeds/squad_large/em', 'bert/nvidia_squad', 'exact_match', note=_WEIGHTS),
    Row('bert/nvidia_seeds/squad_large/f1', 'bert/nvidia_squad', 'answer_f1', note=_WEIGHTS),
    Row('bert/nvidia_seeds/mrpc_large', 'bert/nvidia_mrpc', 'accuracy', note=_WEIGHTS),
    Row('bert/nvidia_seeds/mrpc_large_100seeds', 'bert/nvidia_mrpc_100', 'accuracy', note=_WEIGHTS),
    Row('bert/nvidia_seeds/sst2_large', 'bert/nvidia_sst2', 'accuracy', note=f'rate unprinted; {_WEIGHTS}'),
  ),
  runs=(
    imported('bert_large'),
    Run(
      'bert/nvidia_squad',
      'experiments/bert/squad.py:squad,lr=3e-5,epochs=2',
      (manual_dir('squad'), _START),
      seeds=10,
      gpu_hours=round(HOURS['large'] * 2 / 3, 2),
    ),
    _glue('mrpc', 128, 10),
    _glue('mrpc', 128, 100, '_100'),
    _glue('sst2', 1024, 10),
  ),
  note='Batches of eight GPUs together: 32, 128 and 1,024; the default rates and epochs of scripts/run_squad.sh (3e-5, '
  '2) and scripts/run_glue.sh (2.4e-5, 3). Half precision there.',
  prints=(('NVIDIA DeepLearningExamples BERT (code)', 'text'),),
  unmeasured=(
    Unmeasured(
      'bert/nvidia_seeds/pretrain_final_loss', 'pre-trained by LAMB in batches of 65,536 rows; lmx has no LAMB'
    ),
  ),
)
