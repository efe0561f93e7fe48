"""Synthetic text with Zipfian words, for measurements without a download.

The word of rank r has a probability proportional to 1 / r, or to another power of r. Frequent words are short, as in a
language. Words are independent, which does not affect speed, but nothing can be learned from them.
"""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Iterator

import numpy as np

# Parts of a syllable; repeated parts are more frequent.
_ONSETS = [*'bcdfghjklmnprstvwz' * 2, *'ch cl cr fl gr pl pr sh st th tr'.split(), '', '', '', '', '']
_VOWELS = [*'aeiou' * 3, 'ai', 'ea', 'ee', 'ou']
_CODAS = ['', '', '', '', '', *'nnrrsstldm', 'ng', 'st', 'nt', 'ck']


def words(count: int, seed: int = 0) -> np.ndarray:
  """Return `count` distinct words, the most frequent first, of one to five syllables."""
  random = np.random.default_rng(seed)
  syllables = [''.join(parts) for parts in itertools.product(_ONSETS, _VOWELS, _CODAS)]
  known: dict[str, None] = {}
  while len(known) < count:
    long = min(0.6, 0.03 * np.log1p(len(known)))
    block = random.integers(len(syllables), size=(1 + len(known) // 4, 5)).tolist()
    sizes = (1 + random.binomial(4, long, len(block))).tolist()
    for chosen, size in zip(block, sizes, strict=True):
      known.setdefault(''.join(syllables[i] for i in chosen[:size]))
  return np.array(list(known)[:count], dtype=object)


def ranks(random: np.random.Generator, count: int, types: int, exponent: float) -> np.ndarray:
  """Return `count` ranks from 0 to types - 1 by Zipf's law."""
  total_R = np.cumsum(np.arange(1, types + 1) ** -exponent)
  return np.searchsorted(total_R, random.random(count) * total_R[-1]).clip(max=types - 1)


def lines(types: int, words_a_line: int, seed: int = 0, exponent: float = 1.0) -> Iterator[str]:
  """Yield lines without end, each of `words_a_line` words."""
  vocabulary, random = words(types, seed), np.random.default_rng(seed + 1)
  while True:
    block = vocabulary[ranks(random, 256 * words_a_line, types, exponent)].reshape(256, words_a_line)
    for row in block:
      yield ' '.join(row)


def write_sentences(path: pathlib.Path, size: int, types: int = 300_000, seed: int = 0) -> int:
  """Write about `size` bytes of prose: sentences of 8 to 40 words, paragraphs of about 6 of them.

  The exponent of Zipf's law is 1.15, which gives about 80,000 types per million words.

  Returns:
    The number of bytes.
  """
  random = np.random.default_rng(seed + 2)
  with open(path, 'w', encoding='ascii') as file:
    source, written = lines(types, 4096, seed, 1.15), 0
    while written < size:
      tokens = next(source).split(' ')
      lengths = random.integers(8, 41, len(tokens) // 8)
      start, parts = 0, []
      for length, ends in zip(lengths, random.random(len(lengths)) < 1 / 6, strict=True):
        sentence = tokens[start : start + length]
        if len(sentence) < length:
          break
        start += length
        middle = length // 2
        text = ' '.join(sentence[:middle]) + ', ' + ' '.join(sentence[middle:])
        parts.append(text[0].upper() + text[1:] + ('.\n\n' if ends else '. '))
      written += file.write(''.join(parts))
  return os.path.getsize(path)
