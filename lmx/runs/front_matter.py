"""Front matter of a model card, the YAML at the start of README.md."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import yaml

from lmx import documents
from lmx.errors import InputError, explain

CARD = 'README.md'
_FRONT = re.compile(r'---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)', re.DOTALL)
_LICENCE = ('license', 'license_name', 'license_link')


def parse(text: str, where: str) -> tuple[dict[str, Any], str]:
  """Return (fields, {} without front matter; the text after it). Raises InputError if it is malformed."""
  front = _FRONT.match(text)
  if not front:
    return {}, text
  try:
    fields = yaml.safe_load(front[1])
  except yaml.YAMLError as error:
    raise InputError(f'{where}: front matter: {explain(error)}; expected YAML between two lines ---') from None
  if not isinstance(fields, dict):
    raise InputError(f'{where}: front matter: got {documents.show(fields)}; expected fields such as license: mit')
  return fields, text[front.end() :]


def read_licence(directory: Any) -> dict[str, str]:
  """Return the fields of the licence in a folder's card, {} without a card, or if it names none."""
  path = pathlib.Path(directory) / CARD
  if not path.is_file():
    return {}
  try:
    fields, _ = parse(path.read_text(encoding='utf-8', errors='replace'), str(path))
  except InputError:
    return {}
  text = lambda value: ', '.join(map(str, value)) if isinstance(value, list) else str(value)
  return {name: text(fields[name]) for name in _LICENCE if fields.get(name)} if fields.get('license') else {}


def show_licence(fields: dict[str, str]) -> str:
  """Return the licence as text, such as 'other (llama2, https://...)'."""
  named, *more = (fields[name] for name in _LICENCE if name in fields)
  return named + (f' ({", ".join(more)})' if more else '')
