"""Generated parts of the page of the lineage: the matrix and the findings that are recorded, and the recipes."""

from __future__ import annotations

import pathlib
from typing import Any

import markup

NOTHING = 'Nothing is recorded yet.'
SIZE = 'mini'  # of the recipes
PICTURES = ('lineage.png', 'lineage_phenomena.png')
_KEYS = ('N', 'D', 'H', 'F', 'E', 'M', 'n', 'm', 'h', 'cells', 'projection')
_TEXTS = {
  'streams': 'contiguous text',
  'windows': 'shuffled windows',
  'pairs': 'pairs of sentences',
  'permutations': 'contiguous text, half of it again',
  'both_ways': 'contiguous text, both ways',
  'skipgrams': 'words in windows',
}
_POOLED = {'': 'mean, maximum and last', 'last': 'last token', 'pooled': 'first token'}


def _recorded() -> tuple[Any, Any]:
  """Return the table of what is recorded, and the accuracies on minimal pairs by group."""
  from launch.tables import matrix, paradigms

  one = matrix.table('lineage')
  return one, paradigms.of_table(one, paradigms.recorded())


def result() -> str:
  """Return the recorded matrix with its note."""
  from launch.tables import pages, values

  one, _ = _recorded()
  return f'{pages.matrix_text(one)}\n\n{one.note}' if values.recorded(one) else NOTHING


def shown() -> str:
  """Return the differences on minimal pairs: what is shown, and what is not."""
  from launch.tables import findings

  parts = []
  for group, some, others in findings.sections(*_recorded()):
    parts += [f'### {group[0].upper()}{group[1:]}', _list(some or ['No difference is shown.'])]
    parts += ['Not shown at this size:', _list(others)] if others else []
  return '\n\n'.join(parts) or NOTHING


def _list(texts: list[str]) -> str:
  return '\n'.join(f'- {text}' for text in texts)


def recipes() -> str:
  """Return a table with the recipe of each system."""
  from experiments.lineage import systems
  from experiments.tables import lineage
  from lmx.config import resolve

  rows = ['| System | Model | An update | Text | Predicted | Dropout | On a task |', '|---|---|---|---|---:|---|---|']
  for system in (*systems.SYSTEMS, 'word2vec'):
    arg = f'experiments/lineage/systems.py:{system},size={SIZE}'
    given = systems.get_config(f'{system},size={SIZE}').model
    run = resolve.to_run(resolve.load(arg, ['data.manual_dir=DIR', 'model.V=8199']))
    task = systems.get_config(f'{system},stage=task,size={SIZE}').to_dict()
    cells = (
      lineage.NAMES[system][0],
      _sizes(run.model, given.to_dict()),
      f'{run.data.batch_size} x {run.data.length}',
      _TEXTS[run.data.batching.name],
      f'{systems.predicted(system, SIZE):.0%}' if system in systems.SYSTEMS else 'words around each',
      _dropout(run.model),
      _head(task),
    )
    rows.append(f'| {" | ".join(markup.cell(text) for text in cells)} |')
  return '\n'.join(rows)


def _sizes(model: Any, given: dict[str, Any]) -> str:
  """Return the sizes that the recipe gives, and the number of layers."""
  shown = [key for key in _KEYS if key in given or (key == 'N' and key in vars(model))]
  return ', '.join(f'`{key}` {getattr(model, key)}' for key in shown)


def _dropout(model: Any) -> str:
  rates = {key: value for key, value in vars(model).items() if key.startswith('dropout') and value}
  return ', '.join(f'{key.removeprefix("dropout_")} {value:g}' for key, value in rates.items()) or 'none'


def _head(task: dict[str, Any]) -> str:
  """Return what a classifier reads, and what else differs on a task."""
  model, head = task['model'], task['objective']
  if model['name'] == 'bilstm':
    vectors = 'frozen vectors as inputs' if model.get('elmo') else 'vectors as initial ones'
    return f'{vectors} of a bidirectional LSTM with {model["D"]} cells'
  weight = head.get('lm_weight')
  return _POOLED[head.get('pooling', '')] + (f', auxiliary loss x {weight:g}' if weight else '')


def draw(folder: pathlib.Path) -> list[pathlib.Path]:
  """Draw the recorded pictures into a folder; return their files."""
  from launch.tables import curves, phenomena, values

  one, groups = _recorded()
  if not groups:
    return []
  files = [folder / name for name in PICTURES]
  curves.figure(one, values.recorded(one)).savefig(files[0], dpi=130, metadata={'Software': None})
  phenomena.draw(files[1], one, groups)
  return files


ALL = {'lineage_result': result, 'lineage_findings': shown, 'lineage_recipes': recipes}
