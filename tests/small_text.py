"""Small files of random sentences and of numbers in words and digits, for runs whose text does not matter."""

from __future__ import annotations

import pathlib

import numpy as np

from lmx.data.builders import generated

WORDS = 'the a cat dog list file method value error class returns reads writes is of in to and new first'.split()


def settings(folder: pathlib.Path, words: list[str] = WORDS, lines: int = 120) -> list[str]:
  """Write a file for each split, a document of eight words a line; return the settings that name them."""
  draw = np.random.default_rng(0)
  for split, count in (('train', lines), ('valid', lines // 4), ('test', lines // 4)):
    sentences = (' '.join(draw.choice(words, 8)) for _ in range(count))
    (folder / f'{split}.txt').write_text(''.join(f'{sentence} .\n\n' for sentence in sentences))
  return ['data.dataset=text_files', f'data.manual_dir={folder}']


def numbers(folder: pathlib.Path, train: int = 1000, held_out: int = 60) -> list[str]:
  """Write pairs of files for each split, numbers in words and in digits; return the settings that name them."""
  counts = {'train': train, 'valid': held_out, 'test': held_out}
  for split, count in counts.items():
    chosen = generated.draw_numbers(split)[:count]
    (folder / f'{split}.words').write_text(''.join(f'{generated.spell(n)}\n' for n in chosen))
    (folder / f'{split}.digits').write_text(''.join(f'{" ".join(str(n))}\n' for n in chosen))
  return ['data.dataset=parallel_files', f'data.manual_dir={folder}', 'data.source=words', 'data.target=digits']
