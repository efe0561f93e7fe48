"""Small images with masks in memory, whose left third is dark and has class 0."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from lmx.data import image_corpus, image_files

CLASSES = image_files.Classes(('left', 'right'), image_files.colour_map(2))


def png(array):
  buffer = io.BytesIO()
  Image.fromarray(array).save(buffer, 'PNG')
  return buffer.getvalue()


def row(name, size=(12, 8), value=200):
  width, height = size
  mask_YX = np.ones((height, width), np.uint8)
  mask_YX[:, : width // 3] = 0
  image_YXC = np.repeat((mask_YX * value)[:, :, None], 3, 2)
  return {'id': name.encode(), 'image': png(image_YXC), 'mask': png(mask_YX)}


def corpus(train=5, size=(12, 8), held_out=3):
  splits = {
    'train': [row(f'{i}', size, 100 + i) for i in range(train)],
    **{split: [row(f'{split}{i}', size, 200 + i) for i in range(held_out)] for split in ('valid', 'test')},
  }
  return image_corpus.build(splits, CLASSES, {'name': 'small_images'})
