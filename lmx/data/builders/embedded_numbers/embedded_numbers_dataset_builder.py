"""Numbers in English words and in digits, to test translation: both directions can be learned in a minute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow_datasets.public_api as tfds

from lmx.data import noise
from lmx.data.builders import pairs, parallel

SIZES = {'train': 20_000, 'valid': 500, 'test': 500}
DIGITS = 6  # largest number of digits
_ONES = (
  'zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen '
  'eighteen nineteen'
).split()
_TENS = 'twenty thirty forty fifty sixty seventy eighty ninety'.split()


class Builder(pairs.PairBuilder):
  """Pairs of words and digits; every number is in one split only."""

  BUILDER_CONFIGS = pairs.configs('words', 'digits')

  def pairs(self, split: str, paths: Any) -> Iterator[parallel.Pair]:
    del paths
    for number in numbers(split):
      forms = {'words': words(number), 'digits': ' '.join(str(number))}
      yield str(number), forms[self.sides[0]], forms[self.sides[1]]

  def _paths(self, dl_manager: tfds.download.DownloadManager) -> Any:
    return dict.fromkeys(SIZES)


def numbers(split: str) -> list[int]:
  """Return the distinct numbers of a split in a drawn order; lengths from 1 to DIGITS are equally likely."""
  draw = noise.generator(0, 'numbers')
  length = draw.integers(1, DIGITS, 4 * sum(SIZES.values()), endpoint=True)
  low = 10 ** (length - 1)
  candidates = draw.integers(low - (length == 1), 10 * low).tolist()  # one digit includes zero
  distinct = list(dict.fromkeys(candidates))[: sum(SIZES.values())]
  distinct = [distinct[i] for i in draw.permutation(len(distinct))]
  held_out = SIZES['valid'] + SIZES['test']
  parts = {
    'valid': distinct[: SIZES['valid']],
    'test': distinct[SIZES['valid'] : held_out],
    'train': distinct[held_out:],
  }
  return parts[split]


def words(number: int) -> str:
  """Return a number from 0 to 999,999 in English words: 312 is 'three hundred and twelve'."""
  thousands, rest = divmod(number, 1000)
  if not thousands:
    return _below_thousand(rest)
  joint = ' ' if rest >= 100 else ' and '
  return _below_thousand(thousands) + ' thousand' + (joint + _below_thousand(rest) if rest else '')


def _below_thousand(number: int) -> str:
  hundreds, rest = divmod(number, 100)
  tens, ones = divmod(rest, 10)
  small = _ONES[rest] if rest < 20 else _TENS[tens - 2] + (f' {_ONES[ones]}' if ones else '')
  if not hundreds:
    return small
  return f'{_ONES[hundreds]} hundred' + (f' and {small}' if rest else '')
