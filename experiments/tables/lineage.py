"""From the 5-gram to XLNet on one text: the same tokenizer, parameters, tokens, tries and tasks for each.

`python -m launch.tables lineage --options=size=mini,budget=1+4` runs a stage (docs/lineage.md). Values of an option are
separated by `+`:

  size     mini, small, medium or base; tiny tries the commands
  budget   millions of tokens: 1, 4, 16, 64 (default 1+4)
  design   tokens (equal tokens), flops (equal operations), or both; the default is tokens
  systems  systems of experiments/lineage/systems.py; all without it
  tasks    imdb, sst2 or none (default imdb+sst2), tuned from the runs of the largest budget
  lr       learning rates tried in pre-training (default 3e-4+1e-3+3e-3+1e-2); a single one is not chosen
  task_lr  the same on each task (default 1e-4+3e-4+1e-3)
  choose   budget at which the learning rate is chosen, on seed 0 of design tokens; the least budget without it

Systems that read words take the rate of their subword system.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments.lineage import systems
from experiments.tables import CORES, GPU, Choice, Curve, Mark, Matrix, MatrixRow, Row, Run, Table, from_run, manual_dir

_FILE = 'experiments/lineage/systems.py'
NAMES = {
  'nplm': ('NPLM', '2003'),
  'lstm': ('LSTM', '2014'),
  'awd_lstm': ('AWD-LSTM', '2017'),
  'elmo': ('ELMo', '2018'),
  'gpt': ('GPT', '2018'),
  'bert': ('BERT', '2018'),
  'gpt2': ('GPT-2', '2019'),
  'transformer_xl': ('Transformer-XL', '2019'),
  'xlnet': ('XLNet', '2019'),
  'nplm_words': ('NPLM, words', '2003'),
  'lstm_words': ('LSTM, words', '2014'),
  'word2vec': ('word2vec', '2013'),
}
_NGRAMS = {1: ('unigrams', ''), 5: ('5-gram, Kneser-Ney', '1995')}
_TASKS = {'imdb': 'IMDB, %', 'sst2': 'SST-2, %'}
_BAGS = {'majority': 'majority class', 'naive_bayes': 'naive Bayes', 'tfidf': 'TF-IDF, logistic regression'}
_WORDS_ONLY = 'tasks only'
_BAG_SYSTEM = 'nplm'  # its tasks are cheap
_RATES = sorted(systems.RATES, key=float)
_TRIED = ('3e-4', '1e-3', '3e-3', '1e-2')
_TASK_TRIED = ('1e-4', '3e-4', '1e-3')
_WINDOWS = ('gpt', 'gpt2')
_NO_BITS = {
  'bert': 'a masked model gives each token a probability, the text none',
  'xlnet': 'its pre-training objective predicts a sixth of the tokens',
  'elmo': 'it reads sentences, and both of their directions',
}
_DASH = '–'
_TITLE, _SOURCE = 'The lineage on one text', 'Measured here; no paper measures these systems alike'
_NOTE = (
  'Parameters and FLOPs are those of the pre-training. A cell is the mean over seeds, with the standard deviation. '
  'Systems that read words are charged for the spelling of unknown ones, which are counted in the test text. No bits a '
  f'byte: {"; ".join(f"{NAMES[name][0]}: {why}" for name, why in _NO_BITS.items())}.'
)
_TOKENIZER = 'lineage/tokenizer'
_NGRAM_ROWS = 'lineage/ngrams/'  # beginning of their ids
_TOKENIZER_PATH = f'data.tokenizer_path={{{_TOKENIZER}}}/model/tokenizer'
# Tokens (8,192 subwords) of the recorded text's splits, and of BLiMP's 134,000 sentences, for the hours.
_TEXT = {'valid': 0.42e6, 'test': 0.5e6}
_BLIMP = 1.7e6
# Operations per second of a training of size mini on two cores, from its processor time.
_RATE = {
  'nplm': 140e9,
  'lstm': 198e9,
  'awd_lstm': 152e9,
  'elmo': 122e9,
  'gpt': 147e9,
  'bert': 140e9,
  'gpt2': 140e9,
  'transformer_xl': 145e9,
  'xlnet': 115e9,
}
_PASSES = {'bert': 13, 'elmo': 1, 'xlnet': 2}  # forward passes of BLiMP's scores, else 1
_COLUMNS = (
  ('System', False),
  ('Year', False),
  ('Parameters', True),
  ('with embeddings', True),
  ('Tokens, millions', True),
  ('predicted', True),
  ('Words, millions', True),
  ('Epochs', True),
  ('FLOPs', True),
  ('Hours', True),
  ('Learning rate', True),
  ('Bits a byte', True),
  ('BLiMP, %', True),
)


class Stage(NamedTuple):
  """Options of a stage of the study; see the module's docstring."""

  size: str
  budget: tuple[str, ...]
  design: tuple[str, ...]
  systems: tuple[str, ...]
  tasks: tuple[str, ...]
  lr: tuple[str, ...]
  task_lr: tuple[str, ...]
  choose: str
  seeds: int
  chosen: Mapping[str, str]
  assume: bool

  def rate(self, choice: str, tried: Sequence[str]) -> str:
    """Return the chosen rate; before the choice the second of those tried in a plan, else ''."""
    if len(tried) == 1:
      return tried[0]
    return self.chosen.get(choice, '').rpartition('_lr')[2] or (tried[1] if self.assume else '')

  def tries(self, runs: Sequence[Run], tried: Sequence[str]) -> Sequence[Run]:
    """Return the runs that a choice may need, in a plan only those of the grid that is not widened."""
    return [run for run, rate in zip(runs, _RATES, strict=True) if rate in tried] if self.assume else runs


def build(options: str = '', chosen: Mapping[str, str] | None = None, seeds: int = 1, *, assume: bool = False) -> Table:
  """Return the table of a stage.

  Args:
    options: as in the module's docstring.
    chosen: the run that each choice has given so far; rows that depend on others are not part of the table.
    seeds: number of seeds of the runs with a chosen rate.
    assume: assume a rate where none is chosen, for a plan of all runs.

  Raises:
    ValueError: unknown option or value.
  """
  stage = _parse(options)._replace(chosen=chosen or {}, seeds=seeds, assume=assume)
  runs = {_TOKENIZER: _tokenizer()}
  rows: list[Row] = []
  choices: list[Choice] = []
  lines: list[MatrixRow] = [_line(stage, ('chance', ''), {'BLiMP, %': '50'})]
  for design in stage.design:
    for budget in stage.budget:
      group = _group(stage.size, design, budget)
      lines += [_ngram(stage, order, budget, runs, rows)._replace(group=group) for order in _NGRAMS]
      for system in (name for name in stage.systems if name != 'word2vec'):
        lines.append(_system(stage, system, budget, design, runs, rows, choices)._replace(group=group))
  if stage.tasks and 'word2vec' in stage.systems:
    lines.append(_word2vec(stage, runs, rows, choices)._replace(group=_WORDS_ONLY))
  lines += _bags(stage, runs, rows)
  return Table(
    _TITLE,
    _SOURCE,
    rows=tuple(rows),
    runs=tuple(runs.values()),
    note=f'Size {stage.size}. {_rates(stage)} {_NOTE}',
    curves=tuple(_curves(rows, [stage.size], stage.systems)),
    choices=tuple(choices),
    matrix=Matrix(_columns(stage), tuple(lines)),
    marks=_MARKS,
  )


def of_rows(options: Mapping[str, str]) -> Table:
  """Return the table of rows of any stages, each system at its own rates.

  Args:
    options: options of each row (`Row.options`), by its id.

  Raises:
    ValueError: unknown option or value, or no such row with these options.
  """
  rows: dict[str, Row] = {}
  runs: dict[str, Run] = {}
  cells: dict[tuple[str, str], dict[str, str]] = {}
  stages = {text: (_parse(text), build(text, assume=True)) for text in dict.fromkeys(options.values())}
  for key, text in options.items():
    one = stages[text][1]
    line = next((line for line in one.matrix.rows if key in line.cells), None) if one.matrix else None
    if not one.matrix or not line:
      raise ValueError(f'got the row {key} with the options {text}, which have no such row')
    found = {title: cell for (title, _), cell in zip(one.matrix.columns, line.cells, strict=True) if cell != _DASH}
    cells[line.group, line.cells[0]] = found | cells.get((line.group, line.cells[0]), {})
    rows |= {row.id: row for row in one.rows if row.id in line.cells}
    runs |= {run.name: run for run in one.runs}
  unique = lambda each: tuple(dict.fromkeys(each))
  every = _parse('')._replace(
    tasks=unique(task for stage, _ in stages.values() for task in stage.tasks),
    systems=unique(system for stage, _ in stages.values() for system in stage.systems),
  )
  trained = [stages[text][0].size for key, text in options.items() if not key.startswith(_NGRAM_ROWS)]
  sizes = [size for size in systems.SIZES if size in trained] or ['mini']
  lines = [_line(every, ('chance', ''), {'BLiMP, %': '50'})]
  for size, design, budget in itertools.product(sizes, systems.DESIGNS, systems.BUDGETS):
    group, counted = _group(size, design, budget), _group('mini', 'tokens', budget)  # n-gram models: of every group
    own = [(group, name) for name, _ in NAMES.values() if (group, name) in cells]
    if own or (size, design) == (sizes[0], 'tokens'):
      own = [(counted, name) for name, _ in _NGRAMS.values() if (counted, name) in cells] + own
    lines += [_line(every, (name, ''), cells[key, name])._replace(group=group) for key, name in own]
  names = [NAMES['word2vec'][0], *_BAGS.values()]
  lines += [
    _line(every, (name, ''), cells[_WORDS_ONLY, name])._replace(group=_WORDS_ONLY)
    for name in names
    if (_WORDS_ONLY, name) in cells
  ]
  return Table(
    _TITLE,
    _SOURCE,
    rows=tuple(rows.values()),
    runs=tuple(runs.values()),
    note=f'{"Sizes" if len(sizes) > 1 else "Size"} {" and ".join(sizes)}. {_NOTE}',
    curves=tuple(_curves(tuple(rows.values()), sizes, every.systems)),
    matrix=Matrix(_columns(every), tuple(lines)),
    marks=_MARKS,
  )


# BLiMP's corrected results (Warstadt et al. 2020), of models of other sizes and texts.
_MARKS = tuple(
  Mark('BLiMP, %', f'{name}, other corpus', value)
  for name, value in (('5-gram', 61.2), ('LSTM', 69.8), ('Transformer-XL', 69.6), ('GPT-2', 83.0))
)


def _parse(options: str) -> Stage:
  every = (*systems.SYSTEMS, *systems.WORD_SYSTEMS, 'word2vec')
  known: dict[str, Sequence[str]] = {
    'size': tuple(systems.SIZES),
    'budget': systems.BUDGETS,
    'design': systems.DESIGNS,
    'systems': every,
    'tasks': (*_TASKS, 'none'),
    'lr': _RATES,
    'task_lr': _RATES,
    'choose': systems.BUDGETS,
  }
  given: dict[str, tuple[str, ...]] = {}
  for part in filter(None, options.split(',')):
    name, _, text = part.partition('=')
    values = tuple(text.split('+'))
    if name not in known:
      raise ValueError(f'option "{name}": unknown; expected one of {", ".join(known)}')
    if name in given:
      raise ValueError(f'option "{name}": got it twice; expected one value, or several with + between')
    wrong = [value for value in values if value not in known[name]]
    if wrong or (name in ('size', 'choose') and len(values) > 1) or len(set(values)) < len(values):
      raise ValueError(f'option "{name}": got {text}; expected {" or ".join(known[name])}')
    given[name] = tuple(value for value in known[name] if value in values)
  for name in ('lr', 'task_lr'):
    tried = [_RATES.index(rate) for rate in given.get(name, ())]
    if tried and tried != list(range(tried[0], tried[-1] + 1)):
      raise ValueError(f'option "{name}": got {"+".join(given[name])}; expected neighbours of {", ".join(_RATES)}')
  budget, size, design = (
    given.get('budget', ('1', '4')),
    given.get('size', ('mini',))[0],
    given.get('design', ('tokens',)),
  )
  systems.tokens('gpt2', size, budget[0], design[-1])  # refuses sizes without counted operations
  return Stage(
    size=size,
    budget=budget,
    design=design,
    systems=given.get('systems', every),
    tasks=tuple(task for task in given.get('tasks', tuple(_TASKS)) if task != 'none'),
    lr=given.get('lr', _TRIED),
    task_lr=given.get('task_lr', _TASK_TRIED),
    choose=given.get('choose', budget)[0],
    seeds=1,
    chosen={},
    assume=False,
  )


def _rates(stage: Stage) -> str:
  if len(stage.lr) == 1:
    return f'The learning rate of the pre-training is {stage.lr[0]}.'
  return (
    f'Learning rates are chosen by the validation loss on seed 0 at {stage.choose} million tokens, from '
    f'{", ".join(stage.lr)}, and more where an edge wins.'
  )


def _group(size: str, design: str, budget: str) -> str:
  """Return the heading of a budget."""
  text = f'{budget} million tokens' if design == 'tokens' else f"operations of GPT-2's {budget} million tokens"
  return text if size == 'mini' else f'{size}, {text}'


def _columns(stage: Stage) -> tuple[tuple[str, bool], ...]:
  unknown = [('Unknown words', True)] if {*stage.systems} & {*systems.WORD_SYSTEMS} else []
  return (*_COLUMNS, *unknown, *((_TASKS[task], True) for task in stage.tasks))


def _line(stage: Stage, name: tuple[str, str], cells: Mapping[str, str]) -> MatrixRow:
  known = {'System': name[0], 'Year': name[1], **cells}
  return MatrixRow(tuple(known.get(title, _DASH) for title, _ in _columns(stage)))


def _add(
  rows: list[Row], run: str, prefix: str, figure: str, metric: str, file: str, pick: str = '', options: str = ''
) -> str:
  """Add a row and return its id."""
  if all(row.id != f'{prefix}/{figure}' for row in rows):
    rows.append(Row(f'{prefix}/{figure}', run, metric, file, pick, options=options))
  return f'{prefix}/{figure}'


def _tokenizer() -> Run:
  """Return the run that trains the tokenizer of all systems: unigrams of the whole text."""
  command = (
    f'ngrams --config={_FILE}:tokenizer --config.{manual_dir("corpus")} --models=ikn1 --split=valid '
    '--save={dir}/model --output={dir}/ngrams.json'
  )
  return Run(_TOKENIZER, then=(command,), seeds=0, needs=CORES)


def _ngram(stage: Stage, order: int, budget: str, runs: dict[str, Run], rows: list[Row]) -> MatrixRow:
  name = f'lineage/ngrams/{order}_{budget}m'
  prefix = f'{_NGRAM_ROWS}{budget}/{order}'
  options = f'budget={budget},systems=nplm,lr=1e-3,tasks=none'
  runs[name] = Run(
    name,
    then=(
      f'ngrams --config={_FILE}:ngrams,budget={budget} --config.{manual_dir("corpus")} --models=ikn{order} '
      f'--config.{_TOKENIZER_PATH} --split=test --save={{dir}}/model --output={{dir}}/ngrams.json',
      'evaluate --workdir={dir}/model --pairs={data.blimp} --output={dir}/blimp.json',
    ),
    seeds=0,
    needs=CORES,
  )
  add = lambda figure, metric, file, pick='split=test': _add(rows, name, prefix, figure, metric, file, pick, options)
  cells = {
    'Tokens, millions': add('tokens', 'text_tokens', 'ngrams'),
    'Words, millions': add('words', 'text_words', 'ngrams'),
    'Epochs': '1',
    'Bits a byte': add('bits', 'bpb', 'ngrams'),
    'BLiMP, %': add('blimp', 'accuracy', 'blimp', ''),
  }
  return _line(stage, _NGRAMS[order], cells)


def _name(stage: Stage, system: str, budget: str, design: str, rate: str) -> str:
  return f'lineage/{stage.size}/{system}_{budget}m{"_flops" if design == "flops" else ""}_lr{rate}'


def _pretraining(stage: Stage, system: str, budget: str, design: str, rate: str) -> Run:
  """Return a pre-training, which is only validated."""
  options = f'size={stage.size},budget={budget},design={design},lr={rate}'
  tokenizer = () if system in systems.WORD_SYSTEMS else (_TOKENIZER_PATH,)
  return Run(
    _name(stage, system, budget, design, rate),
    f'{_FILE}:{system},{options}',
    (manual_dir('corpus'), *tokenizer),
    needs=CORES if stage.size == 'mini' else GPU,
    evaluated=2 * _TEXT['valid'],
    rate=_RATE.get(system.removesuffix('_words'), 0.0) if stage.size == 'mini' else 0.0,
  )


def _system(
  stage: Stage,
  system: str,
  budget: str,
  design: str,
  runs: dict[str, Run],
  rows: list[Row],
  choices: list[Choice],
) -> MatrixRow:
  """Add the runs and rows of a system at a budget; return its line of the matrix."""
  subwords = system.removesuffix('_words')
  choice = f'{stage.size}/{subwords}'
  tries = [_pretraining(stage, subwords, stage.choose, 'tokens', rate) for rate in _RATES]
  if len(stage.lr) > 1 and all(one.name != choice for one in choices):
    choices.append(_choice(choice, tries, stage.lr))
    for run in stage.tries(tries, stage.lr):
      runs.setdefault(run.name, run)
  cells = {'predicted': f'{systems.predicted(system, stage.size):.0%}'}
  rate = stage.rate(choice, stage.lr)
  if not rate:
    return _line(stage, NAMES[system], cells)
  run = _pretraining(stage, system, budget, design, rate)
  # Windows overlap by half, so that a prediction has at least that context.
  stride = systems.SIZES[stage.size].length // 2 if system in _WINDOWS else 0
  test = f'evaluate --workdir={{dir}} --split=test --no-baselines --config.evaluation.stride={stride}'
  bits = [] if system in _NO_BITS else [f'{test} --output={{dir}}/test.json']
  tested = _TEXT['test'] * len(bits) * (2 if stride else 1) + _BLIMP * _PASSES.get(system, 1)
  runs[run.name] = run._replace(
    seeds=stage.seeds,
    then=(
      'describe --workdir={dir} --output={dir}/described.json',
      *bits,
      'evaluate --workdir={dir} --pairs={data.blimp} --output={dir}/blimp.json',
    ),
    evaluated=run.evaluated + tested,
  )
  prefix = f'lineage/{stage.size}/{design}/{budget}/{system}'
  options = f'size={stage.size},budget={budget},design={design},systems={system},lr={rate}'
  add = lambda figure, metric, file: _add(rows, run.name, prefix, figure, metric, file, '', f'{options},tasks=none')
  cells |= {
    'Parameters': add('body', 'body', 'described'),
    'with embeddings': add('parameters', 'all_parameters', 'described'),
    'Tokens, millions': add('tokens', 'tokens_read', 'described'),
    'Words, millions': f'{_NGRAM_ROWS}{budget}/1/words',  # the same text
    'Epochs': add('epochs', 'epochs', 'results'),
    'FLOPs': add('flops', 'training_flops', 'described'),
    'Hours': add('hours', 'hours', 'results'),
    'Learning rate': rate,
    'BLiMP, %': add('blimp', 'accuracy', 'blimp'),
  }
  if bits:
    cells['Bits a byte'] = add('bits', 'bpb_spelled' if system in systems.WORD_SYSTEMS else 'bpb', 'test')
  if system in systems.WORD_SYSTEMS:
    cells['Unknown words'] = add('unknown', 'unknown_words', 'test')
  if budget == stage.budget[-1] and design == stage.design[0] and system in systems.SYSTEMS:
    for task in stage.tasks:
      if found := _task(stage, system, run, task, runs, choices):
        tuned = f'{options},tasks={task},task_lr={found.name.rpartition("_lr")[2]}'
        cells[_TASKS[task]] = _add(rows, found.name, prefix, task, 'accuracy', 'test', options=tuned)
  return _line(stage, NAMES[system], cells)


def _word2vec(stage: Stage, runs: dict[str, Run], rows: list[Row], choices: list[Choice]) -> MatrixRow:
  """Add word2vec, whose own rate is its release's, and its tasks; return its line of the matrix."""
  budget = stage.budget[-1]
  start = Run(
    f'lineage/{stage.size}/word2vec_{budget}m',
    f'{_FILE}:word2vec,size={stage.size},budget={budget}',
    (manual_dir('corpus'),),
    seeds=stage.seeds,
    needs=CORES if stage.size == 'mini' else GPU,
  )
  runs[start.name] = start
  cells: dict[str, str] = {}
  for task in stage.tasks:
    if found := _task(stage, 'word2vec', start, task, runs, choices):
      rate = found.name.rpartition('_lr')[2]
      options = f'size={stage.size},budget={budget},systems=word2vec,tasks={task},task_lr={rate}'
      prefix = f'lineage/{stage.size}/tokens/{budget}/word2vec'
      cells[_TASKS[task]] = _add(rows, found.name, prefix, task, 'accuracy', 'test', '', options)
  return _line(stage, NAMES['word2vec'], cells)


def _choice(name: str, tries: Sequence[Run], tried: Sequence[str]) -> Choice:
  first = _RATES.index(tried[0])
  return Choice(name, tuple(run.name for run in tries), first, first + len(tried))


def _tuning(stage: Stage, system: str, start: Run, task: str, rate: str) -> Run:
  """Return a fine-tuning, which is only validated."""
  settings: tuple[str, ...] = (manual_dir(task), from_run(start.name))
  if system in ('elmo', 'word2vec'):  # another model, which does not take the tokenizer with the sizes
    settings += (f'data.tokenizer_path={{{start.name}}}/tokenizer',)
  return Run(
    f'{start.name}_{task}_lr{rate}',
    f'{_FILE}:{system},stage=task,size={stage.size},task={task},lr={rate}',
    settings,
    needs=start.needs,
    rate=start.rate,
    evaluated={'imdb': 2 * 2500 * 256.0, 'sst2': 2 * 872 * 32.0}[task],
  )


def _task(stage: Stage, system: str, start: Run, task: str, runs: dict[str, Run], choices: list[Choice]) -> Run | None:
  """Add the fine-tunings from a run; return the one with the chosen rate, None before the choice."""
  choice = f'{start.name}/{task}'
  tries = [_tuning(stage, system, start, task, rate) for rate in _RATES]
  if len(stage.task_lr) > 1:
    choices.append(_choice(choice, tries, stage.task_lr))
    for run in stage.tries(tries, stage.task_lr):
      runs.setdefault(run.name, run)
  rate = stage.rate(choice, stage.task_lr)
  if not rate:
    return None
  run = next(one for one, name in zip(tries, _RATES, strict=True) if name == rate)
  bags = '--config.evaluation.bag_of_words=true ' if system == _BAG_SYSTEM else ''
  runs[run.name] = run._replace(
    seeds=stage.seeds,
    then=(f'evaluate --workdir={{dir}} --split=test {bags}--output={{dir}}/test.json',),
    evaluated=run.evaluated + {'imdb': 25_000 * 256.0, 'sst2': 1821 * 32.0}[task],
  )
  return runs[run.name]


def _bags(stage: Stage, runs: Mapping[str, Run], rows: list[Row]) -> list[MatrixRow]:
  """Return the lines of classifiers without a language model, from the tasks of the system that measures them."""
  found = {task: [row for row in rows if row.id.endswith(f'/{_BAG_SYSTEM}/{task}')] for task in stage.tasks}
  lines = []
  for key, title in _BAGS.items() if any(found.values()) else ():
    cells = {
      _TASKS[task]: _add(
        rows, some[0].run, f'lineage/bags/{task}', key, f'{key}_accuracy', 'test', options=some[0].options
      )
      for task, some in found.items()
      if some
    }
    lines.append(_line(stage, (title, ''), cells)._replace(group=_WORDS_ONLY))
  return lines


def _curves(rows: Sequence[Row], sizes: Sequence[str], names: Sequence[str]) -> list[Curve]:
  """Return the points of both pictures: a line of each system over its budgets and designs."""
  ids = {row.id for row in rows}
  points = []
  for title, figure in (('BLiMP, %', 'blimp'), ('Bits a byte', 'bits')):
    for order in (order for order in _NGRAMS if order > 1):
      points += [Curve(title, _NGRAMS[order][0], '', f'{_NGRAM_ROWS}{b}/{order}/{figure}') for b in systems.BUDGETS]
    for size, name, design, budget in itertools.product(sizes, names, systems.DESIGNS, systems.BUDGETS):
      prefix = f'lineage/{size}/{design}/{budget}/{name}'
      label = NAMES[name][0] if size == sizes[0] else f'{NAMES[name][0]}, {size}'
      points.append(Curve(title, label, f'{prefix}/flops', f'{prefix}/{figure}'))
  return [point for point in points if point.y in ids]


TABLE = build(assume=True)
STAGES = tuple(build(f'size={size},budget=16', assume=True) for size in ('small', 'medium', 'base'))
