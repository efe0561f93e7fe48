"""Sampling, generation, beam search and translation; here the options that a config may name."""

from __future__ import annotations

from collections.abc import Sequence

from lmx.errors import InputError, check_range

PENALTIES = ('gnmt', 'power')  # of the length; see beam_search.py
STOPS = ('bound', 'current', 'full')
_LEAST = 1e-3  # repetition penalty; its inverse is the greatest
_COLDEST = 1e-6  # temperature; its inverse is the greatest


def check_ratios(section: str, min_ratio: float, max_ratio: float) -> None:
  """Check the least and most target tokens per source token, 0 for no bound. Raises InputError naming the field."""
  check_range(f'{section}min_ratio', min_ratio, 0, 100)
  check_range(f'{section}max_ratio', max_ratio, 0, 100)
  if max_ratio and min_ratio > max_ratio:
    raise InputError(
      f'{section}min_ratio: got {min_ratio:g}; expected at most {section}max_ratio, {max_ratio:g}; '
      'lower it, or set it to 0 for no minimum length'
    )


def check_constraints(
  section: str,
  bad_words: Sequence[Sequence[int]],
  min_tokens: int,
  no_repeat_ngram: int,
  repetition_penalty: float,
) -> None:
  """Raise InputError naming the field, after `section`, if a constraint of decoding is outside its range."""
  check_range(f'{section}min_tokens', min_tokens, 0)
  check_range(f'{section}no_repeat_ngram', no_repeat_ngram, 0)
  check_range(f'{section}repetition_penalty', repetition_penalty, _LEAST, 1 / _LEAST)
  if not all(bad_words):
    raise InputError(f'{section}bad_words: got a sequence without ids; expected at least one id; omit the sequence')


def check_temperature(where: str, value: float) -> None:
  """Raise InputError naming `where` unless a temperature is 0 or a valid divisor of float32 logits."""
  if value and not _COLDEST <= value <= 1 / _COLDEST:
    raise InputError(f'{where}: got {value:g}; expected 0 (greedy) or {_COLDEST:g} to {1 / _COLDEST:g}')
