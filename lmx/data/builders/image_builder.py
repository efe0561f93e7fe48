"""Images with masks of classes: the user's own folders, PASCAL VOC 2012, PASCAL Context and ADE20K."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence

import tensorflow_datasets.public_api as tfds

from lmx import documents
from lmx.data import image_files
from lmx.data.builders import base, files, segmentation
from lmx.errors import InputError


class ImageBuilder(base.TextBuilder, skip_registration=True):  # type: ignore[call-arg]
  """Images as stored, in the order of their names, with masks of class indices."""

  FEATURES = ('id', 'image', 'mask')

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
    del dl_manager
    layout = segmentation.find(self.source.manual_dir)
    for split, size in layout.sizes.items() if self.source.check_sizes else ():
      files.check_size(self.source.dataset, split, 'images', len(layout.pairs[split]), size, [self.source.manual_dir])
    pairs = dict(layout.pairs)
    if missing := self.source.held_out_splits():
      pairs |= _hold_out(pairs['train'], missing, self.source.split_fraction)
    return {split: _examples(some, layout.classes) for split, some in pairs.items()}


def _examples(pairs: Sequence[segmentation.Pair], classes: image_files.Classes) -> Iterator:
  """Yield (number, record) for each image and mask. Raises InputError if one is damaged or their sizes differ."""
  for number, (image_path, mask_path) in enumerate(pairs):
    content = documents.read_bytes(image_path)
    width, height = image_files.open_image(content, image_path).size
    labels_YX = image_files.open_mask(documents.read_bytes(mask_path), mask_path, classes)
    if labels_YX.shape != (height, width):
      raise InputError(
        f'{mask_path}: got {labels_YX.shape[1]} x {labels_YX.shape[0]} pixels; expected {width} x {height}, the size '
        f'of {image_path}'
      )
    mask = image_files.encode_mask(labels_YX, classes.colours_C3)
    yield number, {'id': os.path.basename(image_path), 'image': content, 'mask': mask}


def _hold_out(
  pairs: Sequence[segmentation.Pair], missing: list[str], fraction: float
) -> dict[str, list[segmentation.Pair]]:
  """Return the training images and the held-out images of the `missing` splits: by a hash, or the last of few."""
  splits = ['train', *missing]
  held: dict[str, list[segmentation.Pair]] = {split: [] for split in splits}
  for pair in pairs:
    digest = hashlib.sha256(documents.read_bytes(pair[0])).hexdigest()
    held[files.hashed_split(digest, missing, fraction)].append(pair)
  if len(pairs) * fraction >= files.ENOUGH and all(held.values()):
    return held
  count = math.ceil(len(pairs) * fraction)
  if len(pairs) <= count * len(missing):
    raise InputError(
      f'{os.path.dirname(pairs[0][0])}: {len(pairs)} images are too few to hold out {" and ".join(missing)} images; '
      'make folders images/valid and images/test, or set data.split_fraction=0'
    )
  edges = [0, *(len(pairs) - count * n for n in range(len(missing), 0, -1)), len(pairs)]
  return {split: list(pairs[edges[i] : edges[i + 1]]) for i, split in enumerate(splits)}
