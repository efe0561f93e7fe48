"""Pictures of the concepts page: inline SVG, 360 units wide to fit a phone, in the colours of the page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

WIDTH = 360
LINE = 15  # units from one line of text to the next


def svg(height: float, about: str, parts: Iterable[str]) -> str:
  """Return a picture; `about` describes it to those who don't see it."""
  head = f'<svg class="lmx-picture" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{html.escape(about)}">'
  tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
  tip += '<path d="M0,0 L8,4 L0,8 z" fill="currentColor"/></marker>'
  return f'{head}<defs>{tip}</defs>{"".join(parts)}</svg>'


def text(x: float, y: float, words: str, kind: str = '', anchor: str = 'middle') -> str:
  """Return a line of text; `kind` is 'code', 'note' or ''."""
  return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{html.escape(words)}</text>'


def box(x: float, y: float, width: float, lines: Sequence[str], kind: str = '', height: float = 0) -> str:
  """Return a box with centred lines; the first is code, the others are notes; `kind` is 'strong', 'open' or ''."""
  height = height or LINE * len(lines) + 11
  first = y + (height - LINE * len(lines)) / 2 + 11
  shown = (text(x + width / 2, first + LINE * i, line, 'note' if i else 'code') for i, line in enumerate(lines))
  return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" class="{kind}"/>{"".join(shown)}'


def arrow(*points: tuple[float, float], kind: str = '') -> str:
  """Return a line through points with a tip at its end; `kind` 'dashed' or ''."""
  path = ' '.join(f'{"L" if i else "M"}{x:g},{y:g}' for i, (x, y) in enumerate(points))
  return f'<path d="{path}" class="arrow {kind}" marker-end="url(#tip)"/>'


def run() -> str:
  """Return the picture of a run: config and data, training, its directory, and the commands that read it."""
  parts = [
    box(10, 8, 150, ['config', 'experiments/…/x.py:tiny']),
    box(200, 8, 150, ['data', 'a data set or your files']),
    arrow((85, 49), (85, 62), (150, 62), (150, 74)),
    arrow((275, 49), (275, 62), (210, 62), (210, 74)),
    box(110, 76, 140, ['lmx train'], 'strong'),
    arrow((180, 102), (180, 118)),
    box(60, 120, 240, ['runs/a', 'the work directory']),
  ]
  names = ('evaluate', 'generate', 'predict', 'report', 'export')
  for i, name in enumerate(names):
    x = 8 + i * 69
    parts += [arrow((180, 161), (180, 172), (x + 33, 172), (x + 33, 184)), box(x, 186, 66, [name], 'strong')]
  return svg(220, 'A config and data go into lmx train, which writes a work directory; other commands read it.', parts)


def directory() -> str:
  """Return the picture of a work directory: when its files are written."""
  rows = (
    ('at the start', (('config.json', 'every key with its value'), ('data.json, tokenizer/', 'what was read'))),
    ('while it trains', (('metrics.jsonl', 'losses by update'), ('checkpoints/', 'parameters, optimizer, position'))),
    ('at the end', (('results.json', 'the metrics: it is finished'), ('samples.txt, loss.png', 'to look at'))),
  )
  parts, y = [], 8.0
  for i, (when, files) in enumerate(rows):
    parts.append(text(46, y + 28, when, 'note'))
    parts.append(f'<rect x="96" y="{y:g}" width="256" height="48" rx="3"/>')
    for j, (name, about) in enumerate(files):
      parts.append(text(104, y + 19 + 19 * j, name, 'code', 'start') + text(346, y + 19 + 19 * j, about, 'note', 'end'))
    parts += [arrow((46, y + 36), (46, y + 70))] if i < 2 else []
    y += 58
  return svg(y, 'Files of a work directory in the order in which they are written.', parts)


def config() -> str:
  """Return the picture of the layers of a config, later ones replacing earlier ones."""
  rows = (
    ('defaults', 'lmx/config and the parts: optim.lr = 3e-4'),
    ('variant of the model', 'gpt2:124m: model.D = 768'),
    ('experiment file', 'get_config: optim.lr = 2e-3'),
    ('file.py:VARIANT,OPTION=…', 'fast: model.D = 192'),
    ('--config.KEY=VALUE', '--config.optim.lr=1e-3'),
  )
  parts = []
  for i, (name, example) in enumerate(rows):
    y = 8 + 54 * i
    parts += [box(30, y, 300, [name, example]), arrow((180, y + 41), (180, y + 52))]
  y = 8 + 54 * len(rows)
  parts.append(box(30, y, 300, ['config.json', 'optim.lr = 1e-3, model.D = 192, …'], 'strong'))
  return svg(y + 49, 'Layers of a config; each replaces values of those above it.', parts)


def objective() -> str:
  """Return the picture of an objective between model and update."""
  parts = [
    box(10, 8, 100, ['batch', 'tokens_BT, …']),
    arrow((110, 28), (128, 28)),
    box(130, 8, 100, ['model.apply', 'gpt2, bert, …'], 'strong'),
    arrow((230, 28), (248, 28)),
    box(250, 8, 100, ['features', 'hidden states']),
    arrow((300, 49), (300, 68)),
    box(240, 70, 110, ['objective.loss', 'causal_lm, tag, …'], 'strong'),
    arrow((240, 90), (222, 90)),
    box(120, 70, 100, ['sum / weight', 'one division']),
    arrow((120, 90), (102, 90)),
    box(10, 70, 90, ['update', 'optim'], 'strong'),
    arrow((60, 49), (60, 58), (270, 58), (270, 68), kind='dashed'),
  ]
  return svg(120, 'The model computes features of a batch, the objective sums a loss, one division, an update.', parts)


def protocol() -> str:
  """Return the picture of protocols: which context each token of a split is predicted from."""
  parts, y = [], 16.0
  kinds = (
    ('windows', 'each window begins without context', [(0, 5), (5, 10), (10, 15)], ()),
    ('windows, stride 3', 'only the new tokens of a window count', [(0, 5), (3, 8), (6, 11), (9, 14)], (2,)),
    ('streams', 'the state or memory goes on', [(0, 5), (5, 10), (10, 15)], ('memory',)),
  )
  for name, about, windows, extra in kinds:
    parts += [text(10, y, name, 'code', 'start'), text(350, y, about, 'note', 'end')]
    for row, (first, last) in enumerate(windows):
      top = y + 8 + (11 * row if extra == (2,) else 0)
      skipped = extra[0] if extra == (2,) and row else 0
      for i in range(first, last):
        kind = 'open' if i - first < skipped else 'strong'
        parts.append(f'<rect x="{12 + 22.4 * i:.1f}" y="{top:g}" width="19" height="9" class="{kind}"/>')
      if 'memory' in extra and row:
        x = 12 + 22.4 * first
        parts.append(arrow((x - 14, top + 9), (x - 14, top + 18), (x + 9, top + 18), (x + 9, top + 11)))
    y += 8 + (11 * len(windows) if extra == (2,) else 20) + 28
  return svg(y - 14, 'Three protocols: windows, overlapping windows, and streams with memory.', parts)


def resume() -> str:
  """Return the picture of a run that is killed and resumed."""
  scale = lambda step: 20 + step * 0.32
  parts = [text(20, 14, 'a checkpoint every 250 updates; killed at 730', 'note', 'start')]
  parts += [arrow((scale(0), 34), (scale(730), 34)), text(scale(730) + 12, 39, '×', 'code')]
  for step in (250, 500):
    parts += [f'<circle cx="{scale(step):g}" cy="34" r="5" class="strong"/>', text(scale(step), 54, f'{step}', 'note')]
  parts += [arrow((scale(500), 58), (scale(500), 86), kind='dashed')]
  parts += [text(20, 82, 'the same command', 'note', 'start'), arrow((scale(500), 94), (scale(1000), 94))]
  for step in (750, 1000):
    parts += [f'<circle cx="{scale(step):g}" cy="94" r="5" class="strong"/>', text(scale(step), 114, f'{step}', 'note')]
  parts += [text(20, 114, 'updates 501 to 730 again, bit-equal', 'note', 'start')]
  return svg(122, 'A run is killed after its checkpoint at 500; the same command continues from there.', parts)


ALL = {f'picture_{made.__name__}': made for made in (run, directory, config, objective, protocol, resume)}
