"""Masks passwords and tokens in text that lmx shows: logs, messages, printed commands, reports, recorded settings."""

from __future__ import annotations

import re
from typing import Any

MASK = '***'
_NAME = (
  r'(?:[\w-]+[_-])?'
  r'(?:pass(?:word|wd|phrase)?|pwd|secret|token|credentials?|(?:api_?|access_?)?key|sig(?:nature)?|auth)'
)
# scheme://user:password@host, but not host:80/path@; https://token@host; ?token=...
_PATTERNS = (
  re.compile(r'(://[^\s:/?#@]*:)(?!\d+[/?#])([^\s/?#]*|\S*)(?=@)'),
  re.compile(r'(https?://)([^/?#\s@:]+)(?=@)', re.IGNORECASE),
  re.compile(rf"""((?:[?&;]|%26|%3F){_NAME}(?:=|%3D))([^&\s;#"'<>]+)""", re.IGNORECASE),
)


def redact(value: Any) -> Any:
  """Return a text with `***` for each password and token in its URLs; a list or dict with all its texts redacted."""
  if isinstance(value, str):
    for pattern in _PATTERNS:
      value = pattern.sub(rf'\g<1>{MASK}', value)
    return value
  if isinstance(value, dict):
    return {name: redact(item) for name, item in value.items()}
  return type(value)(map(redact, value)) if type(value) in (list, tuple) else value


def has_secret(text: str) -> bool:
  """Return whether a text has a URL with a password or a token that is not masked."""
  return redact(text) != text


def is_masked(text: str) -> bool:
  """Return whether a URL in a text has lost its password or token to `redact`."""
  return any(match[2] == MASK for pattern in _PATTERNS for match in pattern.finditer(text))
