"""Direction in which a metric is better, higher or lower, by its name."""

from __future__ import annotations

LOWER_IS_BETTER = ('loss', 'nll', 'perplexity', 'bits', 'error', 'cost')  # beginnings of names
HIGHER_IS_BETTER = (
  'accuracy',
  'f1',
  'macro_f1',
  'bleu',
  'matthews',
  'pearson',
  'spearman',
  'exact_match',
  'best_f1',
  'mlm_accuracy',
  'nsp_accuracy',
  'token_accuracy',
  'filtered_accuracy',
  'answered_f1',
  'span_f1',
  'miou',
  'pixel_accuracy',
)
_SERIES = ('accuracy_beyond_',)  # beginnings of names, of which higher is better


def is_higher_better(name: str) -> bool | None:
  """Return True or False, None for a metric that is not known."""
  higher = name in HIGHER_IS_BETTER or name.startswith(_SERIES)
  return True if higher else False if name.startswith(LOWER_IS_BETTER) else None


def lower_is_better(name: str, value: float) -> float:
  """Return a value of a metric with the sign that makes lower better; it is its own inverse."""
  return -value if is_higher_better(name) else value
