"""Links of the pages that leave docs/: those to pages of the site go there, those to other files to the repository.

Without the repository's address (frame.py), a link to another file becomes the file's path. A link to measured.csv,
which a checkout has, leads to the page of results of its anchor: measured.csv#word2vec to results/word2vec.md.
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
COPIES = {'README.md': 'index.md', 'CONTRIBUTING.md': 'contributing.md', 'CHANGELOG.md': 'changelog.md'}
MEASURED = 'experiments/tables/measured.csv'  # what the pages of results are rendered from
_LINK = re.compile(r'(?<!!)\[([^\]\n]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)')


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
  """Rewrite the links of a page; an event of MkDocs."""
  del files
  return rewrite(markdown, page.file.src_uri, config.repo_url or '')


def rewrite(markdown: str, page: str, repository: str = '') -> str:
  """Return the text of a page with links that stay inside the site, or lead to files of the repository.

  Args:
    markdown: the text.
    page: its path below docs/; that of a copy of a file of the repository's folder is in COPIES.
    repository: address of the repository, '' without one.
  """
  inside = page not in COPIES.values() or page == 'index.md'
  folder = os.path.dirname(f'docs/{page}') if inside else ''

  def replace(match: re.Match[str]) -> str:
    text, target, anchor = match.groups()
    path = os.path.normpath(os.path.join(folder, target))
    if page.startswith('notebooks/') and page != 'notebooks/index.md':
      path = os.path.normpath(os.path.join('notebooks', target))
    if path in COPIES:
      uri = COPIES[path]
    elif path == MEASURED:
      uri, anchor = f'results/{(anchor or "#README")[1:]}.md', ''
    elif path.startswith('notebooks/'):
      uri = path.removesuffix('.ipynb') + '.md'
    elif path.startswith('docs/'):
      uri = path.removeprefix('docs/')
    elif repository and (ROOT / path).exists():
      return f'[{text}]({repository}/{"tree" if (ROOT / path).is_dir() else "blob"}/main/{path}{anchor or ""})'
    else:
      return f'{text} (`{path}`)' if (ROOT / path).exists() and path != text.strip('`') else f'`{path}`'
    return f'[{text}]({os.path.relpath(uri, os.path.dirname(page) or ".")}{anchor or ""})'

  fenced = re.split(r'(?ms)(^```.*?^```\s*$)', markdown)
  return ''.join(part if part.startswith('```') else _LINK.sub(replace, part) for part in fenced)
