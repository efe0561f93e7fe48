"""Perplexity by attention length, and the shortest length of the best (Dai et al. 2019, arXiv 1901.02860, table 6).

A model trained with a memory reads segments over a memory of the attention length, every token attending equally far
back. Another model reads overlapping windows, in which a prediction sees `length` to `length` + stride - 1 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmx.config import schema
from lmx.errors import InputError
from lmx.evaluation import report
from lmx.runs import restore


def overrides_for(run: schema.Run, length: int) -> list[str]:
  """Return the settings that evaluate a run at an attention length.

  Raises:
    InputError: the run has neither a memory nor a stride of windows.
  """
  if getattr(run.model, 'M', 0):
    return [f'evaluation.model.M={length}', 'evaluation.model.same_length=true']
  stride = run.evaluation.stride or getattr(run.data.batching, 'stride', 0)
  if not stride:
    raise InputError(
      f'evaluation.stride: got 0 for {run.model_name} without a memory; expected overlapping windows, in which every '
      'prediction sees as many tokens; add --config.evaluation.stride=16'
    )
  return [f'data.eval_length={length + stride - 1}']


def measure(
  workdir: Any, which: str | int, overrides: Sequence[str], split: str, lengths: Sequence[int]
) -> dict[str, Any]:
  """Evaluate a run on a split at each attention length.

  Args:
    workdir: work directory of a left-to-right language model.
    which: checkpoint, see `lmx.load`.
    overrides: `section.key=value` for every evaluation.
    split: split to evaluate.
    lengths: attention lengths in tokens.

  Returns:
    Metrics at the best length, with `attention_length`, the shortest whose perplexity is the lowest in two decimals,
    and `records`, length and perplexity of all.

  Raises:
    InputError: see `overrides_for`; or the run has no perplexity.
  """
  metrics_of: dict[int, dict[str, Any]] = {}
  run = restore.load(workdir, which, overrides).run
  for length in lengths:
    loaded = restore.load(workdir, which, [*overrides, *overrides_for(run, length)])
    metrics_of[length] = report.evaluate_restored(loaded, split).metrics
    if 'perplexity_per_token' not in metrics_of[length]:
      raise InputError(f'--attention: got {run.model_name}, whose evaluation has no perplexity; omit it')
  perplexity = {length: metrics['perplexity_per_token'] for length, metrics in metrics_of.items()}
  best = min(lengths, key=lambda length: (round(perplexity[length], 2), length))
  records = [{'attention_length': length, 'perplexity_per_token': value} for length, value in perplexity.items()]
  return {**metrics_of[best], 'attention_length': best, 'records': records}


def table(metrics: dict[str, Any]) -> str:
  """Return perplexity per token by attention length as a table."""
  lines = ['perplexity per token by attention length']
  for one in metrics['records']:
    mark = '  best' * (one['attention_length'] == metrics['attention_length'])
    lines.append(f'{one["attention_length"]:8,}{one["perplexity_per_token"]:12,.2f}{mark}')
  return '\n'.join(lines)
