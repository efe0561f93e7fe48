"""Pages of the configuration, one per section and one per model; every key has a heading, which the search finds."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import markup


class Page(NamedTuple):
  """A page: its path in the site, its name in the navigation, one sentence about it, and its entries."""

  path: str
  name: str
  summary: str
  text: str


def pages() -> list[Page]:
  """Return all pages."""
  return [*sections(), *models()]


@functools.cache
def sections() -> list[Page]:
  """Return the pages of the run, the sections, the objectives and the ways to build rows."""
  return [*_sections(), *_kinds()]


def _sections() -> Iterator[Page]:
  from lmx.config import fields, schema

  yield Page('configuration/run.md', 'Run', fields.TOP.summary, _page('The run', fields.TOP))
  for name, cls in schema.SECTIONS.items():
    found = fields.section(name, cls)
    yield Page(f'configuration/{name}.md', f'`{name}`', found.summary, _page(f'`{name}`', found))


def _kinds() -> Iterator[Page]:
  from lmx import objectives
  from lmx.data import batching

  about = 'A training loss with its metrics, a file of lmx/objectives'
  yield Page('configuration/objective.md', '`objective`', about, _kind('objective', about, objectives))
  about = 'A way to build rows from the data, a file of lmx/data/batching'
  yield Page('configuration/batching.md', '`data.batching`', about, _kind('data.batching', about, batching))


def _kind(section: str, about: str, part: Any) -> str:
  """Return the page of a section whose `name` selects the other keys."""
  text = [f'# `{section}`', f'{markup.plain(about)}. `{section}.name` selects one, with the keys below it.']
  for name in part.names():
    found = _own(section, part.get(name).Config)
    text += [f'## {name}', _summary(found), _entries(found, f'{name}.')]
  return '\n\n'.join(text)


@functools.cache
def models() -> list[Page]:
  """Return a page per model."""
  from lmx.cli import list as list_command
  from lmx.models import registry

  found = []
  for name in registry.names():
    module, section = registry.get(name), _own('model', registry.get(name).Config)
    about = list_command.summary(module.__doc__)
    sizes = ', '.join(f'`{variant}`' for variant in module.VARIANTS)
    text = [f'# `model`: {name}', f'{markup.plain(about)}. The defaults are those of the keys, before a variant.']
    text += [markup.entry('model.variant', 'model.variant', "`variant: str = 'tiny'`", f'sizes: {sizes}')]
    found.append(Page(f'configuration/models/{name}.md', name, about, '\n\n'.join([*text, _entries(section)])))
  return found


def _own(section: str, cls: Any) -> Any:
  """Return a section without its `name`."""
  from lmx.config import fields

  found = fields.section(section, cls)
  return found._replace(fields=[field for field in found.fields if field.key != f'{section}.name'])


def _page(title: str, section: Any) -> str:
  return f'# {title}\n\n{_summary(section)}\n\n{_entries(section)}'


def _summary(section: Any) -> str:
  return f'{markup.plain(section.summary)}.'


def _entries(section: Any, prefix: str = '') -> str:
  entries = []
  for field in section.fields:
    default = '' if field.default is None else f' = {field.default!r}'
    note = f'`{field.key.rpartition(".")[2]}: {field.type}{default}`'
    anchor = prefix + field.key.removeprefix(f'{section.name}.') if prefix else field.key
    entries.append(markup.entry(field.key, anchor, note, field.help))
  return '\n\n'.join(entries) or 'No keys.'


def index(*, with_models: bool = True) -> str:
  """Return the list of sections, each with what it holds, and of models unless a page omits their names."""
  lines = [f'* [{page.name}]({page.path}): {markup.plain(page.summary)}' for page in sections()]
  links = ', '.join(f'[{page.name}]({page.path})' for page in models()) if with_models else ''
  return '\n'.join([*lines, f'* `model`, a page per model{f": {links}" if links else ""}'])
