"""Subwords of a text under a Unigram model of SentencePiece (Kudo 2018, arXiv 1804.10959), exactly as its library.

The `tokenizers` library, which encodes other Unigram vocabularies here, normalises characters in other groups and adds
scores in another precision, so that its subwords differ on some texts. Here are SentencePiece's rules, of its versions
0.1.9 to 0.2: `Normalizer.normalize` replaces the longest match of the character map, `Encoder.encode` is the search for
the most probable segmentation, in float32.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from lmx.data.tokenizers import sentencepiece
from lmx.data.tokenizers.character_map import CharacterMap
from lmx.data.tokenizers.subword_models import SPACE
from lmx.errors import InputError

_UNKNOWN_PENALTY = 10.0  # below the least probable subword
_LEAST = 2.0**-126  # the library's initial maximum of scores, which are negative
_FIXED: dict[str, dict[str, Any]] = {
  'trainer_spec': {'treat_whitespace_as_suffix': False, 'byte_fallback': False},
  'normalizer_spec': {'escape_whitespaces': True},
  'denormalizer_spec': {'precompiled_charsmap': b''},
}
_SCORE = ''  # key of a subword's score in the tree of characters


class Encoder:
  """Encoder of a model of SentencePiece.

  Args:
    content: content of the file.
    path: its name, for messages.

  Raises:
    InputError: the file is damaged, or has a rule that is not computed here.
  """

  def __init__(self, content: bytes, path: Any):
    proto = sentencepiece.parse(content, path)
    for part, fields in _FIXED.items():
      for field, expected in fields.items():
        if (got := getattr(getattr(proto, part), field)) != expected:
          got = f'{len(got):,} bytes' if isinstance(got, bytes) else got
          raise InputError(f'{path}: {part}.{field}: got {got}; expected {expected!r}; lmx supports no other')
    self._map = CharacterMap(proto.normalizer_spec.precompiled_charsmap)
    self._prefix, self._squeeze = (
      getattr(proto.normalizer_spec, name) for name in ('add_dummy_prefix', 'remove_extra_whitespaces')
    )
    kinds = {piece.piece: piece.type for piece in proto.pieces}
    self.control = frozenset(piece for piece, kind in kinds.items() if kind == sentencepiece.CONTROL)
    defined = sorted((p for p, kind in kinds.items() if kind == sentencepiece.USER_DEFINED), key=len, reverse=True)
    self._defined = re.compile(b'|'.join(re.escape(piece.encode()) for piece in defined)) if defined else None
    ordinary = [p.score for p in proto.pieces if p.type == sentencepiece.ORDINARY]
    if not ordinary:
      raise InputError(f'{path} has no subwords')
    self._unknown = _single(min(ordinary) - _UNKNOWN_PENALTY)
    highest = max(*ordinary, _LEAST)
    self._tree: dict[str, Any] = {}
    for piece in proto.pieces:
      if piece.type == sentencepiece.ORDINARY:
        self._add(piece.piece, piece.score)
      elif piece.type == sentencepiece.USER_DEFINED:
        self._add(piece.piece, _single(len(piece.piece.encode()) * highest) - 0.1)

  def _add(self, piece: str, score: float) -> None:
    node = self._tree
    for character in piece:
      node = node.setdefault(character, {})
    node[_SCORE] = score

  def encode(self, text: str) -> list[str]:
    """Return the subwords of `text`; neighbouring characters that no subword covers are one."""
    text = self.normalize(text)
    best: list[tuple[float, int, bool] | None] = [None] * (len(text) + 1)  # score, start, is known
    best[0] = (0.0, 0, True)
    for start in range(len(text)):
      before = best[start][0]  # type: ignore[index]  # every character is reached, as unknown at least
      node: Any = self._tree
      alone = False
      for end in range(start + 1, len(text) + 1):
        if (node := node.get(text[end - 1])) is None:
          break
        if _SCORE in node:
          alone |= end == start + 1
          self._improve(best, end, before + node[_SCORE], start, True)
      if not alone:
        self._improve(best, start + 1, _single(before + self._unknown), start, False)
    subwords: list[tuple[str, bool]] = []
    end = len(text)
    while end:
      _, start, known = best[end]  # type: ignore[misc]
      if subwords and not known and not subwords[-1][1]:
        subwords[-1] = (text[start:end] + subwords[-1][0], False)
      else:
        subwords.append((text[start:end], known))
      end = start
    return [subword for subword, _ in reversed(subwords)]

  @staticmethod
  def _improve(best: list[Any], end: int, score: float, start: int, known: bool) -> None:
    if best[end] is None or score > best[end][0]:
      best[end] = (_single(score), start, known)

  def normalize(self, text: str) -> str:
    """Return a text after the character map, with U+2581 for spaces, of which (by default) runs are one."""
    parts: list[str] = []
    spaced = self._squeeze
    for step in self._replaced(text):
      if spaced:
        step = step.lstrip(' ')
      if step:
        parts.append(step.replace(' ', SPACE))
        spaced = self._squeeze and step.endswith(' ')
    whole = SPACE * (self._prefix and bool(text)) + ''.join(parts)
    return whole.rstrip(SPACE) if self._squeeze else whole

  def _replaced(self, text: str) -> list[str]:
    """Return the replacement of each string that the character map or a symbol of the user covers."""
    data, parts, start = text.encode(), [], 0
    while start < len(data):
      symbol = self._defined.match(data, start) if self._defined else None
      replaced = None if symbol else self._map.longest(data, start)
      if replaced is None:
        end = symbol.end() if symbol else start + _length(data[start])
        replaced = data[start:end].decode(), end
      parts.append(replaced[0])
      start = replaced[1]
    return parts


def _length(byte: int) -> int:
  """Return the number of bytes of a UTF-8 character that begins with `byte`."""
  return 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4


def _single(x: float) -> float:
  """Return x in single precision."""
  return float(np.float32(x))
