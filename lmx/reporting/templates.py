"""Jinja2 templates: texts are escaped in HTML, and control characters are visible."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import jinja2
from markupsafe import Markup

# Control characters, lone surrogates, and characters that reverse the direction of the text after them.
_INVISIBLE = re.compile('[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]')


def environment(folder: pathlib.Path) -> jinja2.Environment:
  """Return the environment for a folder's templates, NAME.html.jinja and others; a missing variable is an error."""
  return jinja2.Environment(
    loader=jinja2.FileSystemLoader(folder),
    autoescape=jinja2.select_autoescape(['html.jinja']),
    finalize=_finalize,
    lstrip_blocks=True,
    trim_blocks=True,
    undefined=jinja2.StrictUndefined,
  )


def visible(text: str) -> str:
  """Return a text with control characters replaced by their code points, such as [U+202E]."""
  return _INVISIBLE.sub(lambda match: f'[U+{ord(match[0]):04X}]', str(text))


def _finalize(value: Any) -> Any:
  """Return a template value as visible text; Markup stays Markup."""
  return Markup(visible(value)) if isinstance(value, Markup) else visible(str(value))
