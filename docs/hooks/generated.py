"""Generated pages of the site: commands, configuration, data sets, API, results, and copies.

A page has the lines `<!-- generated: NAME -->` and `<!-- end -->`, between which the site has the text of
`PARTS[NAME]`. `python docs/hooks/generated.py` writes that text between them in the checkout too, without what only the
site shows: anchors, pictures, links to pages without a file (`in_checkout`). Pages without a file in docs/ are
CONTRIBUTING.md, CHANGELOG.md, those of the API, of the commands and of the configuration, and those of docs/results,
which launch.tables renders.
"""

from __future__ import annotations

import ast
import functools
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

import command_pages
import configuration_pages
import lineage_page
import markup
import model_pages
import pictures

ROOT = pathlib.Path(__file__).parents[2]
PART = re.compile(r'(?ms)^<!-- generated: (\w+) -->\n(.*?)^<!-- end -->$')
COPIES = {'contributing.md': 'CONTRIBUTING.md', 'changelog.md': 'CHANGELOG.md'}
API = {
  'api/models.md': (
    'Models',
    'models',
    'A file of `lmx/models` is a paper. Every model has the functions of [the contract](../contract.md).',
  ),
  'api/layers.md': ('Layers', 'layers', 'Parts of networks: pure functions over arrays, each equation once.'),
  'api/ops.md': (
    'Operations',
    'ops',
    'Equations of the layers; see [operations and kernels](../code.md#operations-and-kernels).',
  ),
  'api/objectives.md': (
    'Objectives',
    'objectives',
    'An objective makes a loss of a model and a batch; see [the contract](../contract.md#objectives).',
  ),
}


def on_config(config: Any) -> Any:
  """List the generated pages in the navigation; an event of MkDocs."""
  tabs = {title: part for part in config.nav for title in part}
  tabs['Results']['Results'] = list(results())
  reference = {title: part for part in tabs['Reference']['Reference'] if isinstance(part, dict) for title in part}
  reference['Commands']['Commands'] += command_pages.pages()
  sections, models = configuration_pages.sections(), configuration_pages.models()
  listed = [{page.name.strip('`'): page.path} for page in sections]
  reference['Configuration']['Configuration'] += [*listed, {'model': [{page.name: page.path} for page in models]}]
  return config


def on_files(files: Any, config: Any) -> Any:
  """Add the generated pages; an event of MkDocs."""
  from mkdocs.structure.files import File

  made = {page: (ROOT / path).read_text(encoding='utf-8') for page, path in COPIES.items()}
  made |= {page: api_page(*of) for page, of in API.items()} | results() | command_pages.pages()
  made |= {page.path: page.text for page in configuration_pages.pages()}
  for page, text in made.items():
    if rendered := files.get_file_from_path(page):  # by launch.tables --pages
      files.remove(rendered)
    files.append(File.generated(config, page, content=text))
  return files


@functools.cache
def results() -> dict[str, str]:
  """Return the pages of results: path in the site -> text."""
  from launch.tables import pages

  return {f'results/{name}': text for name, text in pages.pages().items()}


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
  """Put the generated parts into a page; an event of MkDocs."""
  del config, files
  if page.file.src_uri == 'commands.md':
    markdown = re.sub(r'(?m)^\| (`lmx (\w+)[^`]*`) \|', r'| [\1](commands/\2.md) |', markdown)
  return PART.sub(lambda match: PARTS[match[1]](), markdown)


def parts(markdown: str) -> dict[str, str]:
  """Return the generated parts of a page as it has them in the checkout."""
  return dict(PART.findall(markdown))


def in_checkout(name: str) -> str:
  """Return a generated part as its page has it in the checkout. No new model changes it."""
  text = OF_MODELS[name]() if name in OF_MODELS else PARTS[name]()
  text = re.sub(r' \{ #\S+ \.lmx-key \}', '', text)
  text = re.sub(r'(?s)<svg [^>]*?aria-label="([^"]*)".*?</svg>', r'*Picture of the site: \1*', text)
  linked = lambda match: match[0] if (ROOT / 'docs' / match[2]).exists() else match[1]
  return re.sub(r'\[([^\]\n]*)\]\(([^)#\s]+)[^)\s]*\)', linked, text).strip() + '\n'


def write() -> list[pathlib.Path]:
  """Write the generated parts of all pages in the checkout, and pictures; return the files that were written."""
  changed = []
  for path in sorted((ROOT / 'docs').rglob('*.md')):
    text = path.read_text(encoding='utf-8')
    fresh = PART.sub(lambda match: f'<!-- generated: {match[1]} -->\n{in_checkout(match[1])}<!-- end -->', text)
    if fresh != text:
      path.write_text(fresh, encoding='utf-8')
      changed.append(path)
  return [*changed, *lineage_page.draw(ROOT / 'docs')]


def _modules(folder: pathlib.Path) -> list[str]:
  """Return the names of the modules of a folder."""
  skipped = ('__init__', 'registry')
  return sorted(path.stem for path in folder.glob('*.py') if path.stem not in skipped)


def _is_empty(path: pathlib.Path) -> bool:
  nodes = ast.parse(path.read_text(encoding='utf-8')).body
  return not any(isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != '_' for node in nodes)


def api_page(title: str, folder: str, text: str) -> str:
  """Return a page with the documentation of each module of a folder of lmx."""
  parts = [f'# {title}', text]
  for name in _modules(ROOT / 'lmx' / folder):
    if not _is_empty(ROOT / 'lmx' / folder / f'{name}.py'):
      parts.append(f'::: lmx.{folder}.{name}\n    options:\n      heading_level: 2')
  return '\n\n'.join(parts) + '\n'


def data_sets() -> str:
  """Return a table of the data sets."""
  from lmx.data.datasets import DATA_SETS

  rows = ['| `data.dataset` | What it is |', '|---|---|']
  rows += [f'| `{name}` | {markup.cell(DATA_SETS[name].about)} |' for name in sorted(DATA_SETS)]
  return '\n'.join(rows)


PARTS: dict[str, Callable[[], str]] = (
  {
    'launchers': command_pages.launchers,
    'flags': command_pages.flags,
    'configuration': configuration_pages.index,
    'data_sets': data_sets,
    'models': model_pages.cards,
  }
  | lineage_page.ALL
  | pictures.ALL
)
OF_MODELS: dict[str, Callable[[], str]] = {  # in the checkout, where a new model changes the part
  'configuration': lambda: configuration_pages.index(with_models=False),
  'models': lambda: 'The site has a card per model; `lmx list` prints all, [lmx/models](../lmx/models) has the files.',
}


if __name__ == '__main__':
  sys.path.insert(0, str(ROOT))
  print(*(path.relative_to(ROOT) for path in write()), sep='\n')
