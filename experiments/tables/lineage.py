"""From word2vec to XLNet under one budget: the same text, parameters, tokens, tasks, tries and seeds for each."""

from experiments.tables import CORES, Curve, Row, Run, Table, from_run, manual_dir

_FILE = 'experiments/lineage/systems.py'
_SYSTEMS = ('word2vec', 'elmo', 'ulmfit', 'gpt', 'bert', 'transformer_xl', 'xlnet')
_BUDGETS = ('1', '4', '16')
_UNTRAINED = ('word2vec', 'gpt', 'bert', 'transformer_xl', 'xlnet')  # the other systems require a pre-training
_TASKS = ('trec', 'sst2', 'topics')
_RATES = ('low', 'high')
# Systems that do not take the tokenizer with the model's sizes, and ELMo, which uses the task's words.
_WITH_OWN_TOKENIZER = ('word2vec', 'ulmfit')


def _pretrained(system: str, budget: str) -> Run:
  return Run(
    f'lineage/{system}_{budget}',
    f'{_FILE}:{system},budget={budget}',
    (manual_dir('text'),),
    then=('describe --workdir={dir} --output={dir}/described.json',),
    seeds=0,
    needs=CORES,
  )


def _data(task: str) -> tuple[str, ...]:
  return () if task == 'topics' else (manual_dir(task),)


def _task_text(budget: str, task: str) -> Run:
  start = f'lineage/ulmfit_{budget}'
  settings = (*_data(task), from_run(start), f'data.tokenizer_path={{{start}}}/tokenizer')
  return Run(
    f'lineage/ulmfit_{budget}_{task}_text', f'{_FILE}:ulmfit,stage=text,task={task}', settings, seeds=0, needs=CORES
  )


def _tuned(system: str, budget: str, task: str, rate: str) -> Run:
  start = f'lineage/ulmfit_{budget}_{task}_text' if system == 'ulmfit' else f'lineage/{system}_{budget}'
  tokenizer = f'data.tokenizer_path={{{start}}}/tokenizer'
  if budget == '0':  # the same subwords, newly initialised
    start, tokenizer = '', f'data.tokenizer_path={{lineage/{system}_1}}/tokenizer'
  settings = (*_data(task), *([from_run(start)] if start else []))
  if system in _WITH_OWN_TOKENIZER or not start:
    settings += (tokenizer,)
  config = f'{_FILE}:{system},stage=task,task={task},rate={rate}'
  return Run(f'lineage/{system}_{budget}_{task}_{rate}', config, settings, seeds=2, needs=CORES)


def _budgets(system: str) -> tuple[str, ...]:
  return ('0', *_BUDGETS) if system in _UNTRAINED else _BUDGETS


def _row(system: str, budget: str, task: str) -> Row:
  first, *others = (_tuned(system, budget, task, rate).name for rate in _RATES)
  return Row(f'lineage/{system}/{budget}/{task}', first, 'accuracy', tries=tuple(others))


TABLE = Table(
  'One budget from word2vec to XLNet',
  'Measured here; no paper measures these systems alike',
  rows=(
    *(Row(f'lineage/{s}/parameters', f'lineage/{s}_1', 'all_parameters', 'described') for s in _SYSTEMS),
    *(
      Row(f'lineage/{s}/{b}/compute', f'lineage/{s}_{b}', 'teraflops', 'described') for s in _SYSTEMS for b in _BUDGETS
    ),
    *(_row(s, b, t) for t in _TASKS for s in _SYSTEMS for b in _budgets(s)),
  ),
  runs=(
    *(_pretrained(s, b) for s in _SYSTEMS for b in _BUDGETS),
    *(_task_text(b, t) for t in _TASKS for b in _BUDGETS),
    *(_tuned(s, b, t, rate) for t in _TASKS for s in _SYSTEMS for b in _budgets(s) for rate in _RATES),
  ),
  note='A name is system/budget/figure; budget 16 is sixteen times the tokens of budget 1, and 0 is no '
  'pre-training. Each system is fine-tuned with two learning rates; the one with the lower validation loss '
  'counts. experiments/lineage/systems.py has the sizes: --options=size=medium or base.',
  curves=tuple(
    Curve(t, s, f'lineage/{s}/{b}/compute' if b != '0' else '', f'lineage/{s}/{b}/{t}')
    for t in _TASKS
    for s in _SYSTEMS
    for b in _budgets(s)
  ),
)
