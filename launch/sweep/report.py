"""Report of a sweep: table.md, trials.csv, expected.csv, best.json, parallel.png, importance.png and expected.png."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import spaces
from launch.sweep import expected, study, trial
from lmx import records

STATES = {'COMPLETE': 'done', 'PRUNED': 'pruned', 'FAIL': 'failed', 'RUNNING': 'running', 'WAITING': 'waiting'}


@dataclasses.dataclass(frozen=True)
class Row:
  """Trial: `rank` among those that are done, 0 for others; `value` of a pruned trial is its last metric."""

  rank: int
  number: int
  state: str
  value: float | None
  spread: float | None
  step: int
  seconds: float
  parameters: Mapping[str, str]
  error: str


def rows(store: study.Store, plan: trial.Plan, count: int) -> list[Row]:
  """Return the trials: completed ones by rank, then the others by number.

  Finished trials beyond `count` are included: a sweep repeated with fewer trials keeps the results of all.
  """
  sign = 1 if plan.metric.direction == 'minimize' else -1
  trials = [one for one in store.trials() if one.number < count or one.state.is_finished()]
  done = sorted((t for t in trials if t.state.name == 'COMPLETE'), key=lambda t: (sign * t.value, t.number))
  ranks = {one.number: rank for rank, one in enumerate(done, start=1)}
  return [_row(one, ranks.get(one.number, 0)) for one in [*done, *(t for t in trials if t not in done)]]


def _row(one: Any, rank: int) -> Row:
  attrs, last = one.user_attrs, one.intermediate_values.get(one.last_step)
  state = one.state.name
  return Row(
    rank=rank,
    number=one.number,
    state=state,
    value=one.value if rank else last,
    spread=attrs.get('spread'),
    step=attrs.get('step', one.last_step or 0),
    seconds=attrs.get('seconds', 0.0),
    parameters={key: str(value) for key, value in one.params.items()},
    error=' '.join(attrs.get('error', '').split()),
  )


def _cells(row: Row, keys: Sequence[str], number: str = '.6g') -> list[str]:
  numbers = ['' if x is None else format(x, number) for x in (row.value, row.spread)]
  return [
    str(row.rank or ''),
    f'{row.number:04d}',
    *(row.parameters.get(key, '') for key in keys),
    *numbers,
    str(row.step),
    STATES[row.state],
    f'{row.seconds:.1f}',
  ]


def _short(text: str) -> str:
  """Round a number to six digits; return other text unchanged."""
  number = _number(text)
  return text if number is None or len(text) <= 8 else f'{number:.6g}'


def write(folder: pathlib.Path, trials: Sequence[Row], plan: trial.Plan, command: str) -> None:
  """Write table.md, trials.csv, expected.csv and, if the best trial's work directory is on this machine, best.json."""
  keys = sorted({key for row in trials for key in row.parameters})
  names = ['rank', 'trial', *keys, plan.metric.name, 'spread', 'step', 'state', 'seconds']
  file = io.StringIO()
  writer = csv.writer(file, lineterminator='\n')
  writer.writerow([*names, 'error'])
  writer.writerows([*_cells(row, keys, '.17g'), row.error] for row in trials)
  _replace(folder / 'trials.csv', file.getvalue())
  counts = ', '.join(f'{sum(row.state == state for row in trials)} {name}' for state, name in STATES.items())
  over = f', mean of {plan.seeds} seeds and standard deviation' if plan.seeds > 1 else ''
  where = '' if plan.metric.final else ' on the validation split'
  lines = [
    f'# {plan.config}',
    '',
    f'{plan.metric.name}{where} ({plan.metric.direction}d{over}); {counts}.',
    '',
    '```',
    command,
    '```',
    '',
    '| ' + ' | '.join(names) + ' |',
    '|' + '---|' * len(names),
  ]
  lines += ['| ' + ' | '.join(_escape(_short(cell)) for cell in _cells(row, keys)) + ' |' for row in trials]
  if found := expected.curve(trials, plan):
    lines += expected.table(found, plan)
    _replace(folder / 'expected.csv', expected.csv(found))
  errors = [f'* {row.number:04d}: {row.error}' for row in trials if row.error]
  lines += ['', 'What failed:', '', *errors] if errors else []
  _replace(folder / 'table.md', '\n'.join(lines) + '\n')
  best = _best(trials, plan)
  if best is not None:
    config = records.read_config(best)
    if isinstance(config.get('log'), dict):  # trained again, so it does not belong to the sweep
      config['log'] |= {'run': '', 'group': ''}
    _replace(folder / 'best.json', json.dumps(config, indent=1) + '\n')


def _best(trials: Sequence[Row], plan: trial.Plan) -> Any:
  """Return the work directory of the best trial if it can be read from here, else None."""
  runs = [plan.workdirs(row.number)[0] for row in trials if row.rank == 1]
  return runs[0] if runs and (runs[0] / 'config.json').exists() else None


def _escape(cell: str) -> str:
  return cell.replace('|', '\\|').replace('\n', ' ')


def _replace(path: pathlib.Path, text: str) -> None:
  part = path.with_name(path.name + '.part')
  part.write_text(text, encoding='utf-8')
  os.replace(part, path)


def summarize(folder: pathlib.Path, trials: Sequence[Row], plan: trial.Plan) -> str:
  """Return the best three trials, and the paths of the report."""
  lines = [
    f'  {row.value:12.6g}  trial {row.number:04d}  ' + ' '.join(f'{k}={_short(v)}' for k, v in row.parameters.items())
    for row in trials
    if 1 <= row.rank <= 3
  ]
  if not lines:
    return f'no trial is done; {folder / "table.md"} lists the errors'
  lines = [f'{plan.metric.name}, best first:', *lines]
  if _best(trials, plan) is None:
    lines.append('the best trial ran on another machine, which has best.json')
  else:
    lines.append(f'train it again: lmx train --config={folder / "best.json"} --workdir=...')
  return '\n'.join([*lines, f'the table and the plots are in {folder}'])


def draw(
  folder: pathlib.Path, trials: Sequence[Row], plan: trial.Plan, search: study.Search, store: study.Store
) -> None:
  """Draw parallel.png, expected.png, and importance.png once at least four trials have different values."""
  shown = [row for row in trials if row.value is not None and math.isfinite(row.value)]
  if not any(row.rank for row in shown):
    return
  from matplotlib import figure as figures

  picture = figures.Figure(figsize=(2 + 2 * len(search.axes), 4.5), layout='constrained')
  _parallel(picture, shown, plan, search.axes)
  picture.savefig(folder / 'parallel.png', dpi=120)
  if found := expected.curve(trials, plan):
    expected.draw(folder, found, plan)
  name, importances = store.importances()
  if importances:
    picture = figures.Figure(figsize=(6, 1.2 + 0.4 * len(importances)), layout='constrained')
    axes, ordered = picture.subplots(), sorted(importances.items(), key=lambda item: item[1])
    axes.barh([key for key, _ in ordered], [value for _, value in ordered], color='tab:blue')
    axes.set_xlabel(f'importance for {plan.metric.name} ({name})')
    picture.savefig(folder / 'importance.png', dpi=120)


def _parallel(picture: Any, shown: Sequence[Row], plan: trial.Plan, axes: study.Axes) -> None:
  """Draw a vertical scale for each key and the metric, and a line for each trial, grey for a pruned one."""
  from matplotlib import colormaps

  panel = picture.subplots()
  scales = [_Scale(key, [row.parameters[key] for row in shown if key in row.parameters], axes[key]) for key in axes]
  done = [row for row in shown if row.rank]
  scales.append(_Scale(plan.metric.name, [repr(row.value) for row in done], None))
  colours = colormaps['viridis_r']
  for row in sorted(shown, key=lambda row: -row.rank):
    cells = [row.parameters.get(scale.name) for scale in scales[:-1]] + [repr(row.value) if row.rank else None]
    points = [(x, scale.position(cell)) for x, (scale, cell) in enumerate(zip(scales, cells, strict=True)) if cell]
    colour = colours(1 - (row.rank - 1) / max(1, len(done) - 1)) if row.rank else '0.8'
    width, layer = (2.5 if row.rank == 1 else 1), (2 if row.rank else 0)
    panel.plot(*zip(*points, strict=True), color=colour, linewidth=width, zorder=layer)
  for x, scale in enumerate(scales):
    panel.axvline(x, color='0.3', linewidth=0.8, zorder=3)
    for label, y in scale.ticks():
      panel.text(x + 0.02, y, label, fontsize=8, va='center', zorder=4)
  panel.set_xticks(range(len(scales)), [scale.name for scale in scales])
  panel.set_yticks([])
  panel.set_xlim(-0.1, len(scales) - 0.6)
  panel.set_title(f'{len(done)} trials done, {len(shown) - len(done)} stopped early (grey)', fontsize=10)


class _Scale:
  """Map of values to [0, 1]: numbers on a linear or logarithmic scale, other values in order."""

  def __init__(self, name: str, texts: Sequence[str], axis: spaces.Range | tuple[str, ...] | None):
    self.name, self.log = name, isinstance(axis, spaces.Range) and axis.log
    numbers = [_number(text) for text in texts]
    self.numeric = bool(texts) and all(number is not None for number in numbers)
    from_texts = axis is None or isinstance(axis, spaces.Range)  # a Range is a tuple too
    self.names = [str(name) for name in (sorted(set(texts)) if from_texts else axis or ())]
    self.low, self.high = 0.0, float(max(1, len(self.names) - 1))
    if self.numeric:
      sizes = [self._size(text) for text in texts]
      self.low, self.high = min(sizes), max(sizes)

  def _size(self, text: str) -> float:
    number = _number(text) or 0.0
    return math.log(number) if self.log else number

  def position(self, text: str) -> float:
    size = self._size(text) if self.numeric else float(self.names.index(text))
    return 0.5 if self.high == self.low else (size - self.low) / (self.high - self.low)

  def ticks(self) -> list[tuple[str, float]]:
    if not self.numeric:
      return [(name, self.position(name)) for name in self.names]
    sizes = [self.low, (self.low + self.high) / 2, self.high] if self.high > self.low else [self.low]
    values = [math.exp(size) if self.log else size for size in sizes]
    return [(format(value, '.4g'), self.position(repr(value))) for value in values]


def _number(text: str) -> float | None:
  try:
    return float(text)
  except ValueError:
    return None
