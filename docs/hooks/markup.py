"""Markdown of generated pages: text as it is shown, and entries with an anchor each."""

from __future__ import annotations

import re


def escape(text: str) -> str:
  """Return text in which Markdown shows angle brackets and asterisks."""
  return text.replace('<', '&lt;').replace('*', r'\*')


def plain(text: str) -> str:
  """Return text outside code as Markdown shows it, in one paragraph."""
  parts = re.split(r'(`[^`]*`)', ' '.join(text.split()))
  return ''.join(part if part.startswith('`') else escape(part).replace('_', r'\_') for part in parts)


def cell(text: str) -> str:
  """Return text for a table cell."""
  return plain(text).replace('|', r'\|')


def sentence(text: str) -> str:
  """Return a paragraph that begins with a capital, if it begins with a word, and ends with a full stop."""
  text = plain(text)
  text = text[:1].upper() + text[1:] if re.match(r'[a-z]+[ ,;:.]', text) else text
  return text if not text or text[-1] in '.:?!' else f'{text}.'


def entry(name: str, anchor: str, note: str, text: str, level: int = 3) -> str:
  """Return the heading of a key or an option, a line on its type and default, and its help.

  A heading is what the search and the table of contents find; stacked lines fit a phone.
  """
  heading = f'{"#" * level} `{name}` {{ #{anchor} .lmx-key }}'
  return '\n\n'.join(filter(None, [heading, note, sentence(text)]))
