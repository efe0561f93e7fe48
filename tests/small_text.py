"""Three small files of random sentences, for runs whose text does not matter."""

from __future__ import annotations

import pathlib

import numpy as np

WORDS = 'the a cat dog list file method value error class returns reads writes is of in to and new first'.split()


def settings(folder: pathlib.Path, words: list[str] = WORDS, lines: int = 120) -> list[str]:
  """Write a file for each split, a document of eight words a line; return the settings that name them."""
  draw = np.random.default_rng(0)
  for split, count in (('train', lines), ('valid', lines // 4), ('test', lines // 4)):
    sentences = (' '.join(draw.choice(words, 8)) for _ in range(count))
    (folder / f'{split}.txt').write_text(''.join(f'{sentence} .\n\n' for sentence in sentences))
  return ['data.dataset=text_files', f'data.manual_dir={folder}']
