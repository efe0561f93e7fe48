"""An image data set with masks as a corpus.

A document is one token: an image's index over all splits. So views of a corpus (`data.fraction`, `train_documents`,
`train_splits`) work as for text. Images stay encoded on disk until a batch needs them.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from lmx.data import image_files, sources
from lmx.data.builders import segmentation
from lmx.data.corpus import Corpus, manifest_hash
from lmx.data.splits import Split
from lmx.data.tokenizers.base import Absent
from lmx.errors import InputError

FORMAT = 1  # manifest version; increase it when the same files give other indices


@dataclasses.dataclass(frozen=True)
class Example:
  """An image, RGB, and its mask (Y, X), uint8 indices of classes or `image_files.IGNORED`; `name` is its file's."""

  name: str
  image: Image.Image
  labels_YX: np.ndarray


class Images:
  """The examples of all splits by index, decoded when they are read.

  Args:
    splits: rows of each split, {'id', 'image', 'mask'} with encoded files.
    classes: classes of the masks.
  """

  def __init__(self, splits: Sequence[Any], classes: image_files.Classes):
    self.classes, self._splits = classes, splits
    self._ends = list(itertools.accumulate(len(split) for split in splits))

  def __len__(self) -> int:
    return self._ends[-1]

  def __getitem__(self, number: int) -> Example:
    """Return an example. Raises InputError if it is damaged."""
    row = self._row(number)
    name = row['id'].decode()
    image = image_files.open_image(row['image'], name)
    return Example(name, image, image_files.open_mask(row['mask'], f'mask of {name}', self.classes))

  def size(self, number: int) -> tuple[str, tuple[int, int]]:
    """Return an image's name and its (width, height), without decoding it. Raises InputError if it is damaged."""
    row = self._row(number)
    name = row['id'].decode()
    return name, image_files.read_size(row['image'], name)

  def name(self, number: int) -> str:
    """Return the name of an image."""
    return str(self._row(number)['id'].decode())

  def _row(self, number: int) -> Any:
    if not 0 <= number < len(self):
      raise IndexError(f'image {number} of {len(self)}')
    place = bisect.bisect_right(self._ends, number)
    split = self._splits[place]
    return split[number - self._ends[place] + len(split)]


@dataclasses.dataclass(frozen=True)
class ImageCorpus(Corpus):
  """A corpus of images.

  Attributes:
    images: the examples; tokens are their indices.
  """

  images: Any = None


def load(cfg: Any, processes: int = 0) -> ImageCorpus:
  """Return the corpus of a `data` section with images, prepared first if needed. Raises InputError."""
  layout, splits = segmentation.find(cfg.manual_dir), sources.open_splits(cfg)
  prepared = layout.classes._replace(first=0)  # of the masks as the builder wrote them
  return build(splits, prepared, cfg.identity(), sources.prepared_directory(cfg))


def build(
  splits: Mapping[str, Any], classes: image_files.Classes, identity: Mapping[str, Any], directory: str = ''
) -> ImageCorpus:
  """Return a corpus from each split's rows; see `Images`.

  Args:
    splits: name -> rows.
    classes: classes of the masks.
    identity: the data set in the manifest.
    directory: directory of the prepared data, '' for rows in memory.
  """
  starts = np.cumsum([0, *(len(rows) for rows in splits.values())]).tolist()
  arrays = {
    name: _split(name, start, len(rows)) for (name, rows), start in zip(splits.items(), starts[:-1], strict=True)
  }
  tokenizer = Absent(0)
  manifest = {
    'format': FORMAT,
    'dataset': dict(identity),
    'tokenizer': {'kind': tokenizer.kind, 'vocab_size': 0, 'hash': tokenizer.hash},
    'word_rule': '',
    'label_names': list(classes.names),
    'palette': [image_files.format_colour(colour) for colour in classes.colours_C3],
    'splits': {name: {'counts': dict(split.counts)} for name, split in arrays.items()},
  }
  images = Images(list(splits.values()), classes)
  return ImageCorpus(tokenizer, arrays, manifest, manifest_hash(manifest), directory, images)


def is_prepared(cfg: Any) -> bool:
  """Return True if `load` has nothing to prepare. Raises InputError if the files are not on this machine."""
  return os.path.isdir(sources.prepared_directory(cfg))


def _split(name: str, start: int, count: int) -> Split:
  offsets = np.arange(count + 1, dtype=np.int64)
  return Split(name, np.arange(start, start + count, dtype=np.uint32), offsets, None, None, {'documents': count})


def numbers(own: Iterable[str], names: Sequence[str]) -> np.ndarray:
  """Return the label of each mask value (256): its class's index in `names`, -1 for IGNORED.

  Raises:
    InputError: a class is not among the names.
  """
  label_V = np.full(256, -1, np.int32)
  for value, name in enumerate(own):
    if name not in names:
      raise InputError(f'masks: got class "{name}"; expected one of {", ".join(names)}')
    label_V[value] = list(names).index(name)
  return label_V
