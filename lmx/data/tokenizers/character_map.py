"""Character maps of SentencePiece, as compiled in its files: from strings of characters to their replacements."""

from __future__ import annotations

import struct

import numpy as np

from lmx.errors import InputError


class CharacterMap:
  """Character map of a file: a double-array trie (Darts) of UTF-8 strings, and their replacements.

  Args:
    content: the compiled map; b'' maps every character to itself.

  Raises:
    InputError: it is truncated.
  """

  def __init__(self, content: bytes):
    size = struct.unpack('<I', content[:4])[0] if len(content) >= 4 else 0
    if content and (size % 4 or not 0 < size <= len(content) - 4):
      raise InputError(f'the character map is damaged: {len(content):,} bytes, {size:,} of them for its tree')
    self._units = np.frombuffer(content[4 : 4 + size], '<u4').tolist()
    self._replacements = content[4 + size :]

  def longest(self, text: bytes, start: int) -> tuple[str, int] | None:
    """Return the replacement of the longest string of the map at `start`, and that string's end; None without one."""
    units, best = self._units, None
    if not units:
      return None
    try:
      node = _offset(units[0])
      for i in range(start, len(text)):
        node ^= text[i]
        unit = units[node]
        if unit & 0x800000FF != text[i]:
          break
        node ^= _offset(unit)
        if unit >> 8 & 1:
          best = units[node] & 0x7FFFFFFF, i + 1
    except IndexError:
      raise InputError('the character map is damaged: its tree points outside itself') from None
    if best is None:
      return None
    end = self._replacements.find(b'\0', best[0])
    return self._replacements[best[0] : end if end >= 0 else None].decode(errors='replace'), best[1]


def _offset(unit: int) -> int:
  """Return the offset of a node's children."""
  return (unit >> 10) << ((unit & 1 << 9) >> 6)
