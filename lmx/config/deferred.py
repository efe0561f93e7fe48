"""Config values that are determined only when a run starts, by its data, devices or `train.init_from`."""

from __future__ import annotations

from collections.abc import Mapping

from lmx.config import schema
from lmx.models import registry

_BY_DATA = {  # key -> value that the data replaces
  'model.V': (0, 'vocabulary size of the tokenizer'),
  'objective.classes': (0, 'number of labels of the data'),
  'objective.choices': (0, 'choices of the data'),
  'objective.labels': ((), 'labels of the data'),
}


def unknown(run: schema.Run) -> dict[str, str]:
  """Return {'section.key': meaning} for the keys whose values are still to come from the data."""
  parts = {'model': run.model, 'objective': run.objective}
  found = {}
  for key, (value, source) in _BY_DATA.items():
    section, _, name = key.partition('.')
    if getattr(parts[section], name, None) == value:
      found[key] = source
  return found


def notes(run: schema.Run, inherited: Mapping[str, str]) -> dict[str, str]:
  """Return {'section.key': line} for the keys whose value in a run may differ from the one in its config.

  Args:
    run: the config before its run begins.
    inherited: key -> source of the value, see `resolve.inherited`.
  """
  reasons: dict[str, str] = {}
  settled = registry.get(run.model_name).settle(run.model)  # kernels of this machine in place of 'auto'
  for name, value in vars(run.model).items():
    if (chosen := getattr(settled, name)) != value:
      reasons[f'model.{name}'] = f'{chosen} on this machine'
  reasons |= unknown(run)
  if getattr(run.model, 'classes', 0) and not run.model.class_starts:
    reasons['model.class_starts'] = 'equal shares of the words of the training text'
  if run.data.vocabularies == 'separate' and not getattr(run.model, 'source_V', 1):
    reasons['model.source_V'] = "vocabulary size of the source's tokenizer"
  if getattr(run.objective, 'positive', ''):
    reasons['objective.positive_index'] = 'index of objective.positive among the labels of the data'
  if ',' in run.evaluation.split:
    reasons['evaluation.split'] = 'the first of these that the data has, with labels if the objective needs them'
  if not run.train.steps:
    reasons['train.steps'] = f'updates in {run.train.epochs:g} passes over the training data'
  reasons |= inherited
  return {key: f'auto: chosen when the run begins ({reason})' for key, reason in reasons.items()}
