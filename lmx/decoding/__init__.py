"""Sampling, generation, beam search and translation; here the options that a config may name."""

from __future__ import annotations

from lmx.errors import InputError, check_range

PENALTIES = ('gnmt', 'power')  # of the length; see beam_search.py
STOPS = ('bound', 'current', 'full')


def check_ratios(section: str, min_ratio: float, max_ratio: float) -> None:
  """Check the least and most target tokens per source token, 0 for no bound. Raises InputError naming the field."""
  check_range(f'{section}min_ratio', min_ratio, 0, 100)
  check_range(f'{section}max_ratio', max_ratio, 0, 100)
  if max_ratio and min_ratio > max_ratio:
    raise InputError(
      f'{section}min_ratio: got {min_ratio:g}; expected at most {section}max_ratio, {max_ratio:g}; '
      'lower it, or set it to 0 for no minimum length'
    )
