"""Neural Turing Machine: parameter counts, as in the paper's tables, and bits per sequence by task."""

from experiments.tables import CORES, Row, Run, Table

_TASKS = {'copy': 'copy', 'repeat_copy': 'repeat', 'recall': 'recall', 'ngrams': 'ngrams', 'sort': 'sort'}
_NETWORKS = {'ff': 'params_feedforward', 'lstm': 'params_lstm_controller', 'baseline': 'params_lstm_baseline'}


_EXTRA = 'the paper counts parameters beyond a learned memory that it does not explain'
_DIGITS = "the paper's sizes give our count, which has the digits of the printed one in another order"


def _outside(task: str, network: str) -> str:
  """Return why a parameter count differs from the paper's; '' where it does not."""
  return _EXTRA if network != 'baseline' else _DIGITS if task == 'sort' else ''


def _counted(task: str, network: str) -> Run:
  learned = '' if network == 'baseline' else '--set=memory=learned '
  command = f'describe ntm:{_TASKS[task]}_{network} {learned}--output={{dir}}/described.json'
  return Run(f'ntm/described_{task}_{network}', then=(command,), seeds=0, needs=CORES)


TABLE = Table(
  'Neural Turing Machine',
  'Graves, Wayne and Danihelka 2014 (arXiv 1410.5401), tables 1 to 3',
  prints=tuple(('Graves et al. 2014', str(number)) for number in (1, 2, 3)),
  rows=(
    *(
      Row(
        f'ntm/{table}/{"associative" if task == "recall" else task}',
        f'ntm/described_{task}_{network}',
        'parameters',
        'described',
        outside=_outside(task, network),
      )
      for network, table in _NETWORKS.items()
      for task in _TASKS
    ),
    *(Row(f'ntm/bits/{task}_{network}', f'ntm/{task}_{network}', 'bits') for task in _TASKS for network in _NETWORKS),
  ),
  runs=(
    *(_counted(task, network) for network in _NETWORKS for task in _TASKS),
    *(
      Run(f'ntm/{task}_{network}', f'experiments/ntm/tasks.py:{task},network={network}', needs=CORES)
      for task in _TASKS
      for network in _NETWORKS
    ),
  ),
  note=f'{_EXTRA[0].upper()}{_EXTRA[1:]}, so the machines have fewer here (lmx/models/ntm.py). '
  'Learning speed is only in its figures: bits per sequence are not printed.',
)
