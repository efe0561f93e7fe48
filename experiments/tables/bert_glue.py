"""BERT fine-tuned on GLUE."""

from experiments.tables import (
  BEST,
  MEAN,
  MEDIAN,
  Computed,
  Row,
  Run,
  Table,
  from_run,
  glue_bilstm,
  imported,
  manual_dir,
  measured,
)
from experiments.tables.xlnet_tasks import GLUE

RATES = ('2e-5', '3e-5', '4e-5', '5e-5')  # section 4.1
_HOURS = {  # H100 hours in float32, for tasks that take more than minutes
  ('base', 'mnli'): 0.22,
  ('base', 'qqp'): 0.16,
  ('large', 'mnli'): 0.66,
  ('large', 'qqp'): 0.48,
  ('large', 'qnli'): 0.22,
  ('large', 'sst2'): 0.1,
}
_TASKS = {
  'mnli': 'accuracy',
  'qqp': 'f1',
  'qnli': 'accuracy',
  'sst2': 'accuracy',
  'cola': 'matthews',
  'stsb': 'spearman',
  'mrpc': 'f1',
  'rte': 'accuracy',
}
_SERVER = {
  'base': "printed: GLUE's test server; ours: the validation split, on which the rate is chosen",
  'large': "printed: GLUE's test server; ours: the validation split, on which the rate and the restart are chosen",
}


def tuned(name: str, start: str, task: str, rate: str = RATES[0], options: str = '') -> Run:
  """Return the fine-tuning of run `start` on a GLUE task by section 4.1's recipe, NAME_TASK or NAME_TASK_RATE, with
  further experiment options.
  """
  more = (measured('valid_mismatched', '--which=last'),) if task == 'mnli' else ()
  lr, suffix = ((), '') if rate == RATES[0] else ((f'optim.lr={rate}',), f'_{rate}')
  settings = (manual_dir('glue'), from_run(start), *lr)
  hours = _HOURS.get(('large' if 'large' in name else 'base', task), 0.0)
  config = ','.join([f'experiments/bert/tasks.py:{task}', *filter(None, [options])])
  seeds = 10 if name == 'bert/large' else 5  # restarts: "several" in section 4.1, ten in XLNet's table 5
  return Run(f'{name}_{task}{suffix}', config, settings, more, seeds=seeds, gpu_hours=hours)


def tuned_at_all_rates(name: str, start: str, task: str, options: str = '') -> tuple[Run, ...]:
  """Return the fine-tunings at the four rates of section 4.1."""
  return tuple(tuned(name, start, task, rate, options) for rate in RATES)


def best(
  id: str, run: str, metric: str, file: str = 'results', *, differs: str = '', note: str = '', statistic: str = MEAN
) -> Row:
  """Return the row with the best of the four learning rates on the validation split."""
  tries = tuple(f'{run}_{rate}' for rate in RATES[1:])
  return Row(id, run, metric, file, differs=differs, note=note, statistic=statistic, tries=tries, chosen=file)


def _server(size: str) -> list[Row]:
  statistic = BEST if size == 'large' else MEAN
  row = lambda column, task, file='results': best(
    f'bert/glue_test/{size}/{column}',
    f'bert/{size}_{task}',
    _TASKS[task],
    file,
    differs=_SERVER[size],
    statistic=statistic,
  )
  rows = [row('mnli_m' if task == 'mnli' else task, task) for task in _TASKS]
  return [rows[0], row('mnli_mm', 'mnli', 'valid_mismatched'), *rows[1:]]


TABLE = Table(
  'BERT, GLUE',
  'Devlin et al. 2019 (arXiv 1810.04805), table 1; Yang et al. 2019, table 5',
  rows=(
    *(row for size in ('base', 'large') for row in _server(size)),
    *glue_bilstm.quoted(
      'bert/glue_test/bilstm_elmo_attn',
      {'mnli_mm': ('mnli', 'accuracy')}
      | {'mnli_m' if task == 'mnli' else task: (task, metric) for task, metric in _TASKS.items()},
      "printed: GLUE's test server; whether models are trained on one task or all is not stated; ours: the "
      'validation split, trained on one task',
    ),
    *(
      best(
        f'xlnet/v2/glue/dev/bert/{column}',
        f'bert/large_{task}',
        metric,
        note="settings not printed; ours are of section 4.1 of BERT's paper",
        statistic=MEDIAN,
      )
      for column, (task, metric) in GLUE.items()
    ),
  ),
  runs=(
    *(
      run
      for size in ('base', 'large')
      for run in (
        imported(f'bert_{size}'),
        *(run for task in _TASKS for run in tuned_at_all_rates(f'bert/{size}', f'imported/bert_{size}', task)),
      )
    ),
    *glue_bilstm.runs(*_TASKS),
  ),
  note="From the released weights: BooksCorpus is no longer distributed. The best of the paper's four learning "
  'rates on the validation split counts. On small tasks seeds differ by points.',
  prints=(('Devlin et al. 2019', '1'),),
  context=('bert/glue_test/pre_openai_sota/*', 'bert/glue_test/bilstm_elmo_attn/avg', 'bert/glue_test/gpt/*'),
  computed=tuple(
    Computed(
      f'bert/glue_test/{size}/avg',
      'average',
      tuple((f'bert/glue_test/{size}/{column}',) for column in ('mnli_m', 'mnli_mm', *list(_TASKS)[1:])),
    )
    for size in ('base', 'large')
  ),
)
