"""Image and mask files: decoding, class colours, and masks as PNG.

A mask has one value per pixel: its class index, or IGNORED for a pixel without a class. EXIF orientation is not
applied, because masks match the pixels as stored.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from lmx.errors import InputError, explain

IGNORED = 255  # in masks; -1 in batches
MOST = 255  # classes, because a pixel of a PNG with a palette has 8 bits
IMAGES, MASKS = ('.jpg', '.jpeg', '.png'), ('.png',)
_INDICES = ('L', 'P', '1', 'I', 'I;16')  # Pillow's modes of masks with one number for each pixel
_GREY_FACTORS = {'L;2': 85, 'L;4': 17}  # Pillow multiplies grey samples of fewer than 8 bits, 255 being white


class Classes(NamedTuple):
  """A data set's classes.

  Attributes:
    names: their names in order.
    colours_C3: their colours, uint8.
    first: the first class's value in masks; pixels with smaller values are ignored.
    is_coloured: masks have these colours, so a palette in another order is an error.
  """

  names: tuple[str, ...]
  colours_C3: np.ndarray
  first: int = 0
  is_coloured: bool = False

  def formatted_colours(self) -> list[str]:
    """Return the colours as `#rrggbb`."""
    return [format_colour(colour) for colour in self.colours_C3]


def colour_map(count: int = 256) -> np.ndarray:
  """Return the colours (count, 3) of PASCAL VOC: bit b of an index is bit 7 - b // 3 of channel b % 3."""
  index_C = np.arange(count)
  colours_C3 = np.zeros((count, 3), np.uint8)
  for bit in range(8):
    colours_C3[:, bit % 3] |= ((index_C >> bit & 1) << (7 - bit // 3)).astype(np.uint8)
  return colours_C3


def open_image(source: Any, where: str) -> Image.Image:
  """Return a decoded image as RGB; transparency is dropped.

  Args:
    source: the bytes of a file, or its path.
    where: its name in messages.

  Raises:
    InputError: the file is damaged or truncated, or grey with more than 8 bits. Of colours with 16 bits the upper 8 are
      read.
  """
  image, _ = _decode(source, where)
  if image.mode[0] in 'IF':
    raise InputError(f'{where}: got pixels of mode {image.mode}; expected 8 bits for each channel; convert the image')
  return (image.convert('RGBA') if 'transparency' in image.info else image).convert('RGB')


def open_mask(source: Any, where: str, classes: Classes) -> np.ndarray:
  """Return a mask (Y, X), uint8: indices of `classes.names`, IGNORED elsewhere.

  Args:
    source: the bytes of a file, or its path: palette or grey indices of any bit depth, or RGB with the colours of the
      classes.
    where: its name in messages.
    classes: the classes.

  Raises:
    InputError: the file is damaged, has an index or a colour that no class has, or a palette in another order.
  """
  mask, samples = _decode(source, where)
  if mask.mode in _INDICES:
    labels_YX = _index(np.asarray(mask).astype(np.int64) // _GREY_FACTORS.get(samples, 1), where, classes)
    if mask.mode == 'P' and classes.is_coloured:
      _check_palette(mask, np.unique(labels_YX), where, classes)
    return labels_YX
  if samples.startswith('RGB;16'):  # Pillow drops the lower 8 bits, which may be all that differs
    raise InputError(f'{where}: got RGB with 16 bits for each channel; expected 8; convert it')
  if mask.mode != 'RGB':
    raise InputError(f'{where}: got pixels of mode {mask.mode}; expected grey or palette indices, or RGB; convert it')
  return _index_colours(np.asarray(mask), where, classes)


def encode_mask(labels_YX: np.ndarray, colours_C3: np.ndarray) -> bytes:
  """Return a mask as PNG with the class colours as palette, and VOC's colour for IGNORED."""
  palette = colour_map()
  palette[: len(colours_C3)] = colours_C3
  image = Image.fromarray(labels_YX.astype(np.uint8)).convert('L')
  image.putpalette(palette.tobytes())
  buffer = io.BytesIO()
  image.save(buffer, 'PNG')
  return buffer.getvalue()


def parse_colour(text: str, where: str) -> tuple[int, int, int]:
  """Return (red, green, blue) of `#rrggbb`. Raises InputError."""
  digits = text.removeprefix('#')
  try:
    value = int(digits, 16)
  except ValueError:
    value = -1
  if not text.startswith('#') or len(digits) != 6 or value < 0:
    raise InputError(f'{where}: got colour "{text}"; expected #rrggbb, such as #80c000')
  return value >> 16, value >> 8 & 255, value & 255


def format_colour(colour: Sequence[int] | np.ndarray) -> str:
  """Return `#rrggbb`."""
  return '#' + ''.join(f'{int(part):02x}' for part in colour)


def read_size(source: Any, where: str) -> tuple[int, int]:
  """Return the (width, height) in an image's header; arguments and errors as in `open_image`."""
  with _opened(source, where) as image:
    return image.size


def _decode(source: Any, where: str) -> tuple[Image.Image, str]:
  """Return (a decoded image, Pillow's name of the samples in the file, such as 'L;4' for grey of 4 bits)."""
  with _opened(source, where) as image:
    samples = str(image.tile[0][3]) if image.tile else ''  # loading empties the list
    image.load()
    return image, samples


@contextlib.contextmanager
def _opened(source: Any, where: str) -> Iterator[Image.Image]:
  """Open an image; raise InputError if that, or reading it inside the context, fails."""
  try:
    with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
      yield image
  except Exception as error:  # Pillow raises every kind of error for damaged files
    raise InputError(
      f'{where}: got an image that cannot be read ({explain(error)}); expected an image; replace the file'
    ) from None


def _index(value_YX: np.ndarray, where: str, classes: Classes) -> np.ndarray:
  last = classes.first + len(classes.names) - 1
  bad_YX = (value_YX > last) & (value_YX != IGNORED)
  if bad_YX.any():
    y, x = map(int, np.argwhere(bad_YX)[0])
    raise InputError(
      f'{where}: got index {value_YX[y, x]} at row {y}, column {x}; expected at most {last}, for '
      f'{len(classes.names)} classes, or {IGNORED} for a pixel to ignore'
    )
  ignored_YX = (value_YX == IGNORED) | (value_YX < classes.first)
  return np.where(ignored_YX, IGNORED, value_YX - classes.first).astype(np.uint8)


def _check_palette(mask: Image.Image, used: np.ndarray, where: str, classes: Classes) -> None:
  """Raise InputError if an index in use has the colour of another class, as if a program had sorted the palette."""
  palette = np.array(mask.getpalette(), np.uint8).reshape(-1, 3)
  colours = [tuple(colour) for colour in classes.colours_C3.tolist()]
  for label in used[used != IGNORED].tolist():
    index = label + classes.first
    found = tuple(palette[index].tolist()) if index < len(palette) else colours[label]
    if found != colours[label] and found in colours:
      raise InputError(
        f'{where}: index {index} of the palette: got the colour of class "{classes.names[colours.index(found)]}"; '
        f'expected that of "{classes.names[label]}", {format_colour(colours[label])}; save the mask as RGB'
      )


def _index_colours(rgb_YXC: np.ndarray, where: str, classes: Classes) -> np.ndarray:
  code = lambda rgb: rgb.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
  known = np.append(code(classes.colours_C3), code(colour_map()[IGNORED]))
  order = np.argsort(known, kind='stable')
  code_YX = code(rgb_YXC)
  place_YX = order[np.minimum(np.searchsorted(known[order], code_YX), len(known) - 1)]
  bad_YX = known[place_YX] != code_YX
  if bad_YX.any():
    y, x = map(int, np.argwhere(bad_YX)[0])
    raise InputError(
      f'{where}: got colour {format_colour(rgb_YXC[y, x])} at row {y}, column {x}; expected the colour of a class, or '
      'a mask of palette or grey indices; give the colours in classes.txt'
    )
  return np.where(place_YX == len(classes.names), IGNORED, place_YX).astype(np.uint8)
