"""GLUE's BiLSTM baselines, and the rows that later papers quote of them."""

from experiments.tables import BEST, Computed, Row, Run, Table, Unmeasured, elmo, from_run, manual_dir, measured

TASKS = {  # task -> (column of table 6, metric)
  'cola': (('cola', 'matthews'),),
  'sst2': (('sst2', 'accuracy'),),
  'mrpc': (('mrpc_accuracy', 'accuracy'), ('mrpc_f1', 'f1')),
  'qqp': (('qqp_accuracy', 'accuracy'), ('qqp_f1', 'f1')),
  'stsb': (('stsb_pearson', 'pearson'), ('stsb_spearman', 'spearman')),
  'mnli': (('mnli', 'accuracy'),),
  'qnli': (('qnli', 'accuracy'),),
  'rte': (('rte', 'accuracy'),),
  'wnli': (('wnli', 'accuracy'),),
}
_SYSTEMS = {  # row of table 6 -> options of the experiment
  'bilstm': ('elmo=false', 'fixed', 'attention=false'),
  'elmo': ('attention=false',),
  'attn': ('elmo=false', 'fixed'),
  'attn_elmo': (),
}
_SINGLE = ('cola', 'sst2')
_BOTH = 'mean of both parts, as in the release; ours stops and selects by the matched part'


def _of(task: str, system: str) -> str:
  """Return the system that is trained: a task of one text has no attention."""
  return {'attn': 'bilstm', 'attn_elmo': 'elmo'}.get(system, system) if task in _SINGLE else system


def _name(task: str, system: str) -> str:
  return f'glue_bilstm/{_of(task, system)}_{task}'


def _run(task: str, system: str = 'attn_elmo') -> Run:
  """Return the three runs of a task; without ELMo its words are GloVe's."""
  start = from_run('elmo/lm1b') if 'elmo' in system else 'data.vectors={data.glove_840b}'
  options = (text for text in _SYSTEMS[_of(task, system)] if text != 'attention=false' or task not in _SINGLE)
  config = ','.join([f'experiments/glue_bilstm/tasks.py:{task}', *options])
  more = (measured('valid_mismatched'),) if task == 'mnli' else ()
  return Run(_name(task, system), config, (manual_dir('glue'), start), more, seeds=3)


def _row(task: str, system: str, column: str, metric: str) -> Row:
  """Return the row of a column of table 6. Its MNLI is of both validation parts (GLUE-baselines, src/tasks.py:196)."""
  file, note = ('results,valid_mismatched', _BOTH) if task == 'mnli' else ('results', '')
  return Row(f'glue/dev/{system}/{column}', _name(task, system), metric, file, note=note, statistic=BEST)


def quoted(prefix: str, columns: dict[str, tuple[str, str]], differs: str) -> tuple[Row, ...]:
  """Return the rows of "BiLSTM+ELMo+Attn" that a later paper quotes.

  Args:
    prefix: of their ids.
    columns: column -> (task, metric); 'mnli_mm' is measured on the mismatched part.
    differs: `differs` of each row.
  """
  return tuple(
    Row(
      f'{prefix}/{column}',
      _name(task, 'attn_elmo'),
      metric,
      'valid_mismatched' if column == 'mnli_mm' else 'results',
      differs=differs,
      statistic=BEST,
    )
    for column, (task, metric) in columns.items()
  )


def runs(*tasks: str) -> tuple[Run, ...]:
  """Return the task runs of `quoted`, and the run of their initial biLM."""
  return (elmo.LM1B, *(_run(task) for task in tasks))


TABLE = Table(
  "GLUE's BiLSTM baselines",
  'Wang et al. 2019 (arXiv 1804.07461), table 6, single-task training',
  rows=tuple(
    _row(task, system, column, metric)
    for system in _SYSTEMS
    for task, columns in TASKS.items()
    for column, metric in columns
  ),
  runs=tuple({run.name: run for system in _SYSTEMS for run in (elmo.LM1B, *(_run(t, system) for t in TASKS))}.values()),
  note='Words have GloVe vectors (840B.300d), or only ELMo vectors.',
  prints=(('Wang et al. 2019', '6'),),
  unmeasured=(Unmeasured('glue/dev/*cove/*', 'lmx has no CoVe'),),
  computed=tuple(
    Computed(
      f'glue/dev/{system}/avg',
      'average',
      tuple(tuple(f'glue/dev/{system}/{column}' for column, _ in columns) for columns in TASKS.values()),
    )
    for system in _SYSTEMS
  ),
)
