"""Notebooks as pages of the site: their text and code, with the outputs where LMX_DOCS_EXECUTE=1 runs them."""

from __future__ import annotations

import base64
import html
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any

import latex2mathml.converter

ROOT = pathlib.Path(__file__).parents[2]
EXECUTE = 'LMX_DOCS_EXECUTE'
ON_A_RUN = ('quickstart',)  # needs a trained run: that of LMX_RUN, or a tiny one
_BOOST = '---\nsearch:\n  boost: 0.7\n---\n\n'  # the search for a model finds its page first
_MATH = re.compile(r'(\$\$?)([^$\n]+|[^$]+(?=\$\$))\1')
_SECONDS = 900  # most for a cell


def on_files(files: Any, config: Any) -> Any:
  """Add a page for each notebook, and the pictures of its outputs; an event of MkDocs."""
  from mkdocs.structure.files import File

  for path in sorted((ROOT / 'notebooks').glob('*.ipynb')):
    notebook = execute(path) if os.environ.get(EXECUTE) else json.loads(path.read_text(encoding='utf-8'))
    text, pictures = page(path.stem, notebook)
    files.append(File.generated(config, f'notebooks/{path.stem}.md', content=_BOOST + text))
    for name, content in pictures.items():
      files.append(File.generated(config, f'notebooks/{name}', content=content))
  return files


def page(name: str, notebook: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
  """Return a notebook as Markdown, and its pictures by name."""
  parts: list[str] = []
  pictures: dict[str, bytes] = {}
  for cell in notebook['cells']:
    source = ''.join(cell['source'])
    if cell['cell_type'] == 'markdown':
      parts.append(_MATH.sub(_mathml, source))
      continue
    parts.append(f'```python\n{source}\n```')
    for output in cell.get('outputs', ()):
      if output.get('name') == 'stderr':  # progress and warnings
        continue
      data = output.get('data', {})
      if 'image/png' in data:
        picture = f'{name}_{len(pictures)}.png'
        pictures[picture] = base64.b64decode(''.join(data['image/png']))
        parts.append(f'![Output of the cell above]({picture})')
      elif text := ''.join(output.get('text', data.get('text/plain', ''))).rstrip():
        parts.append(f'<pre class="lmx-output">{html.escape(text)}</pre>')
  note = f'This notebook is `notebooks/{name}.ipynb`.'
  first, *rest = parts
  title, _, text = first.partition('\n')
  return '\n\n'.join([title, note, text.strip(), *rest]) + '\n', pictures


def _mathml(match: re.Match[str]) -> str:
  display = 'block' if match[1] == '$$' else 'inline'
  formula = latex2mathml.converter.convert(match[2].strip(), display=display)
  return f'<div class="lmx-math">{formula}</div>' if display == 'block' else formula


def execute(path: pathlib.Path) -> dict[str, Any]:
  """Return a notebook with the outputs of its cells. Needs the extra `notebooks`."""
  import nbclient
  import nbformat

  notebook = nbformat.read(path, as_version=4)
  with tempfile.TemporaryDirectory() as folder:
    changes = {
      'LMX_RUNS': f'{folder}/runs',
      'PYTHONPATH': os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')]),
    }
    if path.stem in ON_A_RUN and not os.environ.get('LMX_RUN'):
      words = ['train', '--config=experiments/rnn_lm/quickstart.py:tiny', f'--workdir={folder}/run']
      subprocess.run([sys.executable, '-m', 'lmx.cli.main', *words], check=True, cwd=ROOT)
      changes['LMX_RUN'] = f'{folder}/run'
    client = nbclient.NotebookClient(notebook, timeout=_SECONDS, kernel_name='python3')
    client.execute(cwd=str(ROOT), env=os.environ | changes)
  return json.loads(nbformat.writes(notebook))
