"""Folder layouts of images and masks. No TFDS is imported here, so prepared data can be found without it.

The user's own: images/train/*.jpg and masks/train/*.png with equal names, also valid and test, and classes.txt.
PASCAL VOC 2012: JPEGImages, SegmentationClass, ImageSets/Segmentation/{train,val}.txt; 255 is ignored.
PASCAL Context: JPEGImages of VOC 2010, SegmentationClassContext, ImageSets/SegmentationContext/{train,val}.txt, as
  mmsegmentation converts them: 0 is the background and 1 to 59 are the classes. The authors distribute 460 labels as
  .mat files, and CFNet's released code reads a trainval_merged.json; it maps the background to -1, so it has 59
  classes.
ADE20K (ADEChallengeData2016): images/{training,validation}, annotations/{training,validation}, objectInfo150.txt; 0,
  other objects, is ignored and 1 to 150 are the classes.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from lmx import documents
from lmx.data import cache, image_files
from lmx.data.builders import files
from lmx.data.image_files import Classes
from lmx.errors import InputError

CLASSES = 'classes.txt'
_VOC = (
  'background aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person '
  'pottedplant sheep sofa train tvmonitor'
)
_CONTEXT = (
  'background aeroplane bag bed bedclothes bench bicycle bird boat book bottle building bus cabinet car cat ceiling '
  'chair cloth computer cow cup curtain dog door fence floor flower food grass ground horse keyboard light motorbike '
  'mountain mouse person plate platform pottedplant road rock sheep shelves sidewalk sign sky snow sofa table track '
  'train tree truck tvmonitor wall water window wood'
)
_FOLDERS = {'train': 'train', 'valid': 'valid', 'val': 'valid', 'validation': 'valid', 'dev': 'valid', 'test': 'test'}
_ROOTS = ('', 'VOCdevkit/VOC2012', 'VOC2012', 'VOCdevkit/VOC2010', 'VOC2010', 'ADEChallengeData2016')
_OTHERS = ('trainval_merged.json', 'trainval')  # PASCAL Context in forms that are not read
_SHOWN = 5  # names in a message

Pair = tuple[str, str]  # paths of an image and its mask


class Layout(NamedTuple):
  """A data set in folders.

  Attributes:
    kind: 'own', 'voc', 'context' or 'ade20k'.
    classes: its classes.
    pairs: split -> (image, mask) paths, in order.
    sizes: split -> published number of images.
  """

  kind: str
  classes: Classes
  pairs: dict[str, list[Pair]]
  sizes: dict[str, int]

  def held_out_splits(self, fraction: float) -> list[str]:
    """Return the splits to hold out of the user's training images; published data sets have theirs."""
    return files.held_out_splits(self.pairs, fraction) if self.kind == 'own' else []

  def digests(self) -> dict[str, str]:
    """Return {split: digest} of the user's file contents, or of names and sizes in published data sets."""
    describe = _content if self.kind == 'own' else lambda path: str(os.path.getsize(path))
    digests = {}
    for split, pairs in self.pairs.items():
      digest = hashlib.sha256()
      for path in (path for pair in pairs for path in pair):
        digest.update(f'{os.path.basename(path)}\0{describe(path)}\0'.encode())
      digests[split] = digest.hexdigest()
    return digests


def find(directory: str) -> Layout:
  """Return the layout of a directory. Raises InputError with the expected names, or the names that do not match."""
  if not os.path.isdir(directory):
    raise InputError(f'data set segmentation_files: got {directory or "no data.manual_dir"}; expected a directory')
  for root in (os.path.join(directory, name) for name in _ROOTS):
    for mark, read in _LAYOUTS.items():
      if os.path.isdir(os.path.join(root, mark)):
        return read(root)
    other = next((name for name in _OTHERS if os.path.exists(os.path.join(root, name))), '')
    if other and os.path.isdir(os.path.join(root, 'JPEGImages')):
      raise InputError(
        f'{os.path.join(root, other)}: got the labels of PASCAL Context in another form; expected PNG masks in '
        "SegmentationClassContext; convert them with mmsegmentation's tools/dataset_converters/pascal_context.py"
      )
  raise InputError(
    f'data set segmentation_files: {directory} holds no images/train and masks/train with {CLASSES}, nor '
    'SegmentationClass (PASCAL VOC), SegmentationClassContext (PASCAL Context) or annotations/training (ADE20K)'
  )


def _own(root: str) -> Layout:
  classes = _read_classes(os.path.join(root, CLASSES))
  folders = _list(os.path.join(root, 'images'), folders=True)
  unknown = [name for name in folders if name not in _FOLDERS]
  if unknown:
    raise InputError(f'{os.path.join(root, "images")}: got folder {unknown[0]}; expected {", ".join(_FOLDERS)}')
  pairs: dict[str, list[Pair]] = {}
  for name in folders:
    if _FOLDERS[name] in pairs:
      raise InputError(f'{os.path.join(root, "images", name)}: got a second folder for split {_FOLDERS[name]}')
    pairs[_FOLDERS[name]] = _match(os.path.join(root, 'images', name), os.path.join(root, 'masks', name))
  if alone := [name for name in _list(os.path.join(root, 'masks'), folders=True) if name not in folders]:
    raise InputError(f'{os.path.join(root, "masks", alone[0])}: got masks without a folder images/{alone[0]}')
  if 'train' not in pairs:
    raise InputError(f'{root}: got no folder images/train; expected training images')
  return Layout('own', classes, {split: pairs[split] for split in ('train', 'valid', 'test') if split in pairs}, {})


def _pascal(root: str, masks: str, lists: str, names: str, kind: str, sizes: dict[str, int]) -> Layout:
  pairs = {}
  for split, name in (('train', 'train'), ('valid', 'val')):
    path = os.path.join(root, 'ImageSets', lists, f'{name}.txt')
    stems = [line.strip() for line in documents.read_lines(path) if line.strip()]
    if not stems:
      raise InputError(f'{path}: got no names; expected the name of an image on each line')
    pairs[split] = [
      (os.path.join(root, 'JPEGImages', f'{stem}.jpg'), os.path.join(root, masks, f'{stem}.png')) for stem in stems
    ]
    if missing := [path for pair in pairs[split] for path in pair if not os.path.isfile(path)]:
      raise InputError(f'{path}: got names of images without files: {_some(missing)}; expected a file for each')
  return Layout(kind, _classes(names.split())._replace(is_coloured=kind == 'voc'), pairs, sizes)


def _voc(root: str) -> Layout:
  return _pascal(root, 'SegmentationClass', 'Segmentation', _VOC, 'voc', {'train': 1_464, 'valid': 1_449})


def _context(root: str) -> Layout:
  return _pascal(root, 'SegmentationClassContext', 'SegmentationContext', _CONTEXT, 'context', {})


def _ade20k(root: str) -> Layout:
  path = os.path.join(root, 'objectInfo150.txt')
  rows = [[cell.strip() for cell in line.split('\t')] for line in documents.read_lines(path) if line.strip()]
  if not rows or 'Name' not in rows[0]:
    raise InputError(f'{path}: got another first line; expected columns with tabs between, one of them Name')
  column = rows[0].index('Name')
  if short := [row for row in rows[1:] if len(row) <= column]:
    raise InputError(f'{path}: got "{" ".join(short[0])}"; expected {column + 1} columns')
  names = [row[column].partition(',')[0] for row in rows[1:]]
  pairs = {
    split: _match(os.path.join(root, 'images', name), os.path.join(root, 'annotations', name))
    for split, name in (('train', 'training'), ('valid', 'validation'))
  }
  return Layout('ade20k', _classes(names, first=1), pairs, {'train': 20_210, 'valid': 2_000})


_LAYOUTS = {  # folder -> reader of the layout that it identifies
  'SegmentationClassContext': _context,
  'SegmentationClass': _voc,
  'annotations/training': _ade20k,
  'masks': _own,
}


def _classes(names: Sequence[str], first: int = 0) -> Classes:
  return Classes(tuple(names), image_files.colour_map(first + len(names))[first:], first)


def _read_classes(path: str) -> Classes:
  """Return the classes of a file with a name on each line, and optional a tab and a colour."""
  if not os.path.isfile(path):
    raise InputError(f'{path}: missing; expected the name of a class on each line, the class of index 0 first')
  lines = [line.rstrip('\r\n') for line in documents.read_lines(path)]
  while lines and not lines[-1].strip():
    lines.pop()
  rows = [line.partition('\t') for line in lines]
  names = [name.strip() for name, _, _ in rows]
  if '' in names:
    number = names.index('')
    raise InputError(
      f'{path}, line {number + 1}: got no name; expected the class of index {number} in masks; fill or delete the line'
    )
  if not 2 <= len(names) <= image_files.MOST:
    raise InputError(f'{path}: got {len(names)} classes; expected 2 to {image_files.MOST}')
  if repeated := [name for name in names if names.count(name) > 1]:
    raise InputError(f'{path}: got class "{repeated[0]}" twice; expected different names')
  if untabbed := [name for name in names if re.search(r'\s#[0-9a-fA-F]{6}$', name)]:
    raise InputError(f'{path}: got "{untabbed[0]}"; expected a tab between a name and its colour')
  given = [colour.strip() for _, _, colour in rows]
  if not any(given):
    return _classes(names)
  colours = [image_files.parse_colour(text, f'{path}, class "{name}"') for name, text in zip(names, given, strict=True)]
  if repeated := [name for name, colour in zip(names, colours, strict=True) if colours.count(colour) > 1]:
    raise InputError(f'{path}: got one colour for {" and ".join(repeated[:2])}; expected different ones')
  return Classes(tuple(names), np.array(colours, np.uint8), is_coloured=True)


def _match(images: str, masks: str) -> list[Pair]:
  """Return the images of a folder with their masks, in the order of their names. Raises InputError."""
  image_of, mask_of = _by_stem(images, image_files.IMAGES), _by_stem(masks, image_files.MASKS)
  if without := [mask_of[stem] for stem in mask_of if stem not in image_of]:
    raise InputError(f'{masks}: got masks without an image of the same name in {images}: {_some(without)}')
  if without := [image_of[stem] for stem in image_of if stem not in mask_of]:
    raise InputError(f'{images}: got images without a mask of the same name in {masks}: {_some(without)}')
  return [(os.path.join(images, image_of[stem]), os.path.join(masks, mask_of[stem])) for stem in sorted(image_of)]


def _by_stem(folder: str, endings: tuple[str, ...]) -> dict[str, str]:
  """Return {stem: name} for the files in a folder."""
  by_stem: dict[str, str] = {}
  for name in _list(folder):
    stem, ending = os.path.splitext(name)
    if ending.lower() not in endings:
      raise InputError(f'{os.path.join(folder, name)}: got another file type; expected {" or ".join(endings)}')
    if stem in by_stem:
      raise InputError(f'{os.path.join(folder, name)}: got the name of {by_stem[stem]} too; expected different names')
    by_stem[stem] = name
  if not by_stem:
    raise InputError(f'{folder}: got an empty folder; expected {" or ".join("*" + ending for ending in endings)}')
  return by_stem


def _content(path: str) -> str:
  """Return the SHA-256 of a file, which is read again if its size or its time changes."""
  about = os.stat(path)
  return _sha256(path, about.st_size, about.st_mtime_ns)


@functools.lru_cache(1 << 20)
def _sha256(path: str, size: int, time: int) -> str:
  del size, time
  return cache.sha256(path)


def _list(folder: str, *, folders: bool = False) -> list[str]:
  """Return the sorted names of the files, or folders, in a folder, without hidden ones.

  Raises:
    InputError: there is no such folder, or images in it would be skipped: in a folder among files, in a file among
      folders, or behind a broken link.
  """
  if not os.path.isdir(folder):
    raise InputError(f'{folder}: missing; expected a folder')
  wanted = []
  for name in documents.list_names(folder):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
      raise InputError(f'{path}: got a link to no file; expected a file or a folder; delete the link')
    if os.path.isdir(path) == folders:
      wanted.append(name)
    elif not folders:
      raise InputError(f'{path}: got a folder; expected files only, because folders below are not read; move it')
    elif name.lower().endswith(image_files.IMAGES):
      raise InputError(f'{path}: got a file; expected images and masks in folders such as train; move it')
  return wanted


def _some(names: Iterable[str]) -> str:
  names = list(names)
  return ', '.join(names[:_SHOWN]) + (f' and {len(names) - _SHOWN:,} more' if len(names) > _SHOWN else '')
