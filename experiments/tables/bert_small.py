"""BERT's miniatures of Turc et al. fine-tuned on GLUE."""

from experiments.tables import (
  CORES,
  GPU,
  Computed,
  Row,
  Run,
  Table,
  Unmeasured,
  from_run,
  imported,
  manual_dir,
  measured,
)

_SIZES = ('tiny', 'mini', 'small', 'medium')
_GRID = [(batch, rate) for batch in (32, 8, 16, 64, 128) for rate in ('1e-4', '3e-4', '5e-5', '3e-5')]
_SMALL = ('cola', 'mrpc', 'stsb', 'rte', 'wnli')  # tasks of at most 10,000 rows
_COLUMNS = {  # column -> task, metric
  'cola': ('cola', 'matthews'),
  'sst2': ('sst2', 'accuracy'),
  'mrpc_f1': ('mrpc', 'f1'),
  'mrpc_acc': ('mrpc', 'accuracy'),
  'stsb_p': ('stsb', 'pearson'),
  'stsb_s': ('stsb', 'spearman'),
  'qqp_f1': ('qqp', 'f1'),
  'qqp_acc': ('qqp', 'accuracy'),
  'mnli_m': ('mnli', 'accuracy'),
  'mnli_mm': ('mnli', 'accuracy'),
  'qnli': ('qnli', 'accuracy'),
  'rte': ('rte', 'accuracy'),
  'wnli': ('wnli', 'accuracy'),
}


def _name(size: str, task: str, batch: int, rate: str) -> str:
  return f'bert/{size}_{task}_{batch}x{rate}'


def _run(size: str, task: str, batch: int, rate: str) -> Run:
  more = (measured('valid_mismatched', '--which=last'),) if task == 'mnli' else ()
  settings = (manual_dir('glue'), from_run(f'imported/bert_{size}'), f'data.batch_size={batch}', f'optim.lr={rate}')
  hardware = CORES if size in ('tiny', 'mini') and task in _SMALL else GPU
  name = _name(size, task, batch, rate)
  return Run(name, f'experiments/bert/tasks.py:{task},epochs=4', settings, more, needs=hardware)


def _row(size: str, column: str) -> Row:
  task, metric = _COLUMNS[column]
  first, *others = (_name(size, task, *point) for point in _GRID)
  file = 'valid_mismatched' if column == 'mnli_mm' else 'results'
  return Row(
    f'bert/small/{size}/{column}',
    first,
    metric,
    file,
    differs="printed: GLUE's test server; ours: the validation split, on which batch and rate are chosen",
    tries=tuple(others),
    chosen=file,
  )


def _tasks_of(size: str) -> tuple[tuple[str, ...], ...]:
  """Return the rows of each of the nine tasks of GLUE's score."""
  ids: dict[str, list[str]] = {}
  for column, (task, _) in _COLUMNS.items():
    ids.setdefault(task, []).append(f'bert/small/{size}/{column}')
  return tuple(map(tuple, ids.values()))


TABLE = Table(
  'BERT, miniatures on GLUE',
  'Turc et al. 2019 (arXiv 1908.08962); the README of google-research/bert, smaller models of March 2020',
  rows=tuple(_row(size, column) for size in _SIZES for column in _COLUMNS),
  runs=tuple(
    run
    for size in _SIZES
    for run in (
      imported(f'bert_{size}'),
      *(_run(size, task, *point) for task in dict.fromkeys(task for task, _ in _COLUMNS.values()) for point in _GRID),
    )
  ),
  note='From the released weights, 4 epochs; the best of batches of 8 to 128 rows and learning rates of 3e-5 to '
  '3e-4 on the validation split counts: 20 runs per task.',
  prints=(('Turc et al. 2019', 'text'),),
  unmeasured=tuple(
    Unmeasured(f'bert/small/{size}/ax', 'lmx does not read the diagnostic set of GLUE') for size in _SIZES
  ),
  computed=tuple(Computed(f'bert/small/{size}/score', 'average', _tasks_of(size)) for size in _SIZES),
)
