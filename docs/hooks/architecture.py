"""Figures of architectures: a list of blocks, from input to output, becomes an SVG drawing for a page.

A block is a mapping from its kind to its label, with further keys. Labels and details may name fields of the model's
Config, `'{V:,} x {D}'`. docs/models/NAME.yml has the blocks of a model.

  input, output      text without a box
  table, attention, feed, recurrent, convolution, norm, pool, loss, block      a box; the kind is its colour
    detail: a second line        loop: True draws the state that returns at the next position
    mask: one of MASKS, drawn as queries (rows) by keys (columns)      memory: what the block also reads, and
    writes: True if it writes there too      reads: True for a block that the end of the column before it enters
  residual: [blocks]             blocks, to whose output their input is added
  repeat: label, of: [blocks]    layers
  beside: [[blocks], [blocks]]   columns; the next block reads the ends of all, or of the last one if a column is read
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

WIDTH = 380  # of the drawing, in its own units; a phone shows them as pixels
BOXES = ('table', 'attention', 'feed', 'recurrent', 'convolution', 'norm', 'pool', 'loss', 'block')
_GAP, _PAD, _INSET = 15, 8, 15  # between blocks, inside a frame of layers, on both sides of a residual connection
_MARGIN, _GUTTER = 13, 28  # on both sides, and between columns
_LINE, _SMALL = 15, 13  # heights of lines
_CHARACTER = 6.6  # mean width of a character of a label
_CELL = 5  # of a mask
_KEYS = 9  # keys and queries of a mask
_ORDER = (3, 7, 0, 5, 2, 8, 1, 6, 4)  # place of each position in the factorisation order that is drawn
_HEAD = (
  '<defs><marker id="lmx-head" viewBox="0 0 6 6" refX="5.5" refY="3" markerWidth="5" markerHeight="5" orient="auto">'
  '<path class="lmx-head" d="M0 0L6 3L0 6z"/></marker></defs>'
)

Block = Mapping[str, Any]


def _permuted(queries: np.ndarray, keys: np.ndarray, strict: bool) -> np.ndarray:
  order = np.array(_ORDER)
  return order[keys] < order[queries] if strict else order[keys] <= order[queries]


MASKS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
  'full': lambda t, s: (t >= 0) & (s >= 0),
  'others': lambda t, s: t != s,
  'causal': lambda t, s: s <= t,
  'memory': lambda t, s: s <= t,  # keys of the memory have negative positions
  'content': lambda t, s: _permuted(t, s, strict=False),
  'query': lambda t, s: _permuted(t, s, strict=True),
  'fixed': lambda t, s: (s <= t) & ((s // 3 == t // 3) | (s % 3 == 2)),
  'local': lambda t, s: (s <= t) & (s // 3 == t // 3),
  'compressed': lambda t, s: 3 * s <= t,  # lmx.ops.patterns.Compressed, of stride 3
  'window': lambda t, s: abs(t - s) <= 2,
}


def mask(kind: str) -> np.ndarray:
  """Return the mask that is drawn for a kind, True where a query attends to a key."""
  first, last = (-4 if kind == 'memory' else 0), (_KEYS // 3 if kind == 'compressed' else _KEYS)
  return MASKS[kind](np.arange(_KEYS)[:, None], np.arange(first, last)[None])


def figure(blocks: Sequence[Block], values: Mapping[str, Any], title: str) -> str:
  """Return the drawing as an element for a page, on one line.

  Args:
    blocks: from input to output.
    values: fields that labels may name.
    title: text for readers who do not see it.
  """
  drawing = _Drawing(values)
  height = drawing.stack(blocks, _MARGIN, 4, WIDTH - 2 * _MARGIN) + 6
  return (
    f'<svg class="lmx-figure" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{html.escape(title)}">'
    f'{_HEAD}{"".join(drawing.parts)}</svg>'
  )


def masks_in(blocks: Sequence[Block]) -> list[str]:
  """Return the kinds of masks in a figure, in order."""
  return [block['mask'] for block in walk(blocks) if 'mask' in block]


def walk(blocks: Sequence[Block]) -> list[Block]:
  """Return all blocks, the inner ones too, in order."""
  found: list[Block] = []
  for block in blocks:
    found.append(block)
    for inner in (block.get('residual', ()), block.get('of', ()), *block.get('beside', ())):
      found += walk(inner)
  return found


class _Drawing:
  """Parts of an SVG drawing, in order. Methods draw below `y` and return where they end."""

  def __init__(self, values: Mapping[str, Any]) -> None:
    self.values = values
    self.parts: list[str] = []
    self.entrance: tuple[float, float] | None = None  # of the block that reads the column before

  def stack(self, blocks: Sequence[Block], x: float, y: float, width: float) -> float:
    center, before = x + width / 2, None
    for block in blocks:
      if before is not None and 'beside' not in before:
        if 'beside' not in block:
          self.arrow(f'M{center} {y}V{y + _GAP}')
        y += _GAP
      y = self.block(block, x, y, width, is_first=before is None)
      before = block
    return y

  def block(self, block: Block, x: float, y: float, width: float, is_first: bool) -> float:
    if 'repeat' in block:
      return self.repeat(block, x, y, width)
    if 'residual' in block:
      return self.residual(block['residual'], x, y, width)
    if 'beside' in block:
      return self.beside(block['beside'], x, y, width, is_first)
    kind = next(iter(block))
    if kind in ('input', 'output'):
      return self.text(block[kind], x + width / 2, y, width, 'lmx-label')
    if kind not in BOXES:
      raise ValueError(f'{dict(block)}: got the kind {kind}; expected one of {", ".join(BOXES)}, input, output')
    if 'memory' in block:
      part = width * 0.34
      return self.pair(block, kind, x, y, part, width)
    return self.box(block, kind, x, y, width)

  def box(self, block: Block, kind: str, x: float, y: float, width: float) -> float:
    """Draw a block with its label, detail, mask and loop."""
    grid = mask(block['mask']) if 'mask' in block else np.zeros((0, 0))
    is_wide = width >= 170
    taken = grid.shape[1] * _CELL + 12 if grid.size and is_wide else 0
    at = len(self.parts)
    center = x + (width - taken) / 2
    end = self.text(block[kind], center, y + 5, width - taken - 10, 'lmx-label')
    if 'detail' in block:
      end = self.text(block['detail'], center, end, width - taken - 10, 'lmx-detail')
    end += 6
    if grid.size and is_wide:
      tall = max(end - y, grid.shape[0] * _CELL + 10)
      shift = (tall - (end - y)) / 2
      self.parts[at:] = [f'<g transform="translate(0 {shift:.1f})">', *self.parts[at:], '</g>']
      end = y + tall
      self.grid(grid, x + width - taken + 4, y + (tall - grid.shape[0] * _CELL) / 2, block['mask'])
    elif grid.size:
      self.grid(grid, x + (width - grid.shape[1] * _CELL) / 2, end, block['mask'])
      end += grid.shape[0] * _CELL + 6
    self.parts.insert(at, f'<rect class="lmx-{kind}" x="{x}" y="{y}" width="{width}" height="{end - y}" rx="4"/>')
    middle = (y + end) / 2
    if block.get('loop'):
      right = x + width
      self.arrow(f'M{right} {middle - 7}h9v14h-8.5')
    if block.get('reads'):
      self.entrance = (x, middle)
    return end

  def pair(self, block: Block, kind: str, x: float, y: float, part: float, width: float) -> float:
    """Draw a block, and on its left the memory that it reads."""
    gap = 22
    end = self.box(block, kind, x + part + gap, y, width - part - gap)
    self.parts.append(f'<rect class="lmx-memory" x="{x}" y="{y}" width="{part}" height="{end - y}" rx="4"/>')
    lines = self.lines(block['memory'], part - 8, _CHARACTER * 0.88)
    self.text(block['memory'], x + part / 2, y + (end - y - len(lines) * _SMALL) / 2, part - 8, 'lmx-detail')
    middle = (y + end) / 2
    self.arrow(f'M{x + part} {middle - (5 if block.get("writes") else 0)}h{gap}')
    if block.get('writes'):
      self.arrow(f'M{x + part + gap} {middle + 6}h{-gap}')
    return end

  def repeat(self, block: Block, x: float, y: float, width: float) -> float:
    """Draw the frame of layers around their blocks."""
    at, center, top = len(self.parts), x + width / 2, y + 22
    self.parts.append(f'<text class="lmx-count" x="{x + width - 8}" y="{y + 15}">{self.fill(block["repeat"])}</text>')
    self.arrow(f'M{center} {y}V{top}')
    end = self.stack(block['of'], x + _PAD, top, width - 2 * _PAD)
    self.parts.append(f'<path class="lmx-line" d="M{center} {end}v{_PAD}"/>')
    end += _PAD
    frame = f'<rect class="lmx-layers" x="{x}" y="{y}" width="{width}" height="{end - y}" rx="6"/>'
    self.parts.insert(at, frame)
    return end

  def residual(self, blocks: Sequence[Block], x: float, y: float, width: float) -> float:
    """Draw blocks, and the connection around them that ends in a sum."""
    center, radius = x + width / 2, 6
    self.arrow(f'M{center} {y}v{_GAP - 3}')
    end = self.stack(blocks, x + _INSET, y + _GAP - 3, width - 2 * _INSET) + _GAP - 5
    plus = end + radius
    self.arrow(f'M{center} {end - _GAP + 5}V{end}')
    self.arrow(f'M{center} {y + 3}H{x + 4}V{plus}H{center - radius}')
    self.parts.append(
      f'<circle class="lmx-sum" cx="{center}" cy="{plus}" r="{radius}"/>'
      f'<path class="lmx-line" d="M{center - 3.5} {plus}h7M{center} {plus - 3.5}v7"/>'
    )
    return plus + radius

  def beside(self, columns: Sequence[Sequence[Block]], x: float, y: float, width: float, is_first: bool) -> float:
    """Draw columns, and the lines from the block before them and to the block after them."""
    part = (width - _GUTTER * (len(columns) - 1)) / len(columns)
    centers = [x + i * (part + _GUTTER) + part / 2 for i in range(len(columns))]
    if not is_first:
      for center in centers:
        self.arrow(f'M{x + width / 2} {y - _GAP}v5H{center}V{y}')
    self.entrance, ends = None, []
    for i, column in enumerate(columns):
      ends.append(self.stack(column, x + i * (part + _GUTTER), y, part))
    end = max(ends)
    if self.entrance:
      entry_x, entry_y = self.entrance
      below = ends[0] + 9
      self.arrow(f'M{centers[0]} {ends[0]}V{below}H{x + part + _GUTTER - 9}V{entry_y}H{entry_x}')
      self.entrance = None
      return max(end, below)
    for center, bottom in zip(centers, ends, strict=True):
      self.parts.append(f'<path class="lmx-line" d="M{center} {bottom}V{end + 8}H{x + width / 2}"/>')
    self.arrow(f'M{x + width / 2} {end + 8}v{_GAP - 4}')
    return end + 8 + _GAP - 4

  def text(self, text: str, center: float, y: float, width: float, name: str) -> float:
    """Draw centred lines of text."""
    small = name == 'lmx-detail'
    for line in self.lines(text, width, _CHARACTER * (0.88 if small else 1)):
      y += _SMALL if small else _LINE
      self.parts.append(f'<text class="{name}" x="{center:.1f}" y="{y - 3:.1f}">{html.escape(line)}</text>')
    return y

  def lines(self, text: str, width: float, character: float) -> list[str]:
    """Return a text in lines of at most a width."""
    lines: list[str] = []
    for word in self.fill(text).split():
      if lines and (len(lines[-1]) + 1 + len(word)) * character <= width:
        lines[-1] += f' {word}'
      else:
        lines.append(word)
    return lines

  def fill(self, text: str) -> str:
    return str(text).format_map(self.values)

  def arrow(self, path: str) -> None:
    self.parts.append(f'<path class="lmx-line" marker-end="url(#lmx-head)" d="{path}"/>')

  def grid(self, grid: np.ndarray, x: float, y: float, kind: str) -> None:
    """Draw a mask: the background, and a cell for each key that a query attends to."""
    rows, columns = grid.shape
    parts = [f'<rect class="lmx-hidden" x="{x}" y="{y}" width="{columns * _CELL}" height="{rows * _CELL}"/>']
    old = 4 if kind == 'memory' else 0
    for name, cells in (('lmx-old', range(old)), ('lmx-seen', range(old, columns))):
      path = ''.join(
        f'M{x + s * _CELL} {y + t * _CELL}h{_CELL - 1}v{_CELL - 1}h{1 - _CELL}z'
        for t in range(rows)
        for s in cells
        if grid[t, s]
      )
      if path:
        parts.append(f'<path class="{name}" d="{path}"/>')
    self.parts += parts
