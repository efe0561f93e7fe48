"""Words and punctuation: how a text is split into them, and how they are joined to read as prose."""

from __future__ import annotations

import re
from collections.abc import Sequence

_WORD = r"\w+(?:[-.'’]\w+)*"
_RULE = r'\n|<unk>|(?:[A-Za-z]\.){2,}|%s|\.{3}|--+|[^\w\s]'
_PROSE = re.compile(_RULE % _WORD)
# The same, but a hyphen that hangs on a word is a part of it, as for Moses' tokenizer: German `Obst- und Gemüse`.
HANGING = _RULE % rf'(?:(?<![\w-])-)?{_WORD}(?:-(?![\w-]))?'
_CLOSING = frozenset('. , ; : ! ? ) ] } % ... ’'.split())
_OPENING = frozenset('( [ { $ # @ \\'.split())
_QUOTES = {'"': '"', "'": "'", '`': '`', '„': '“”', '“': '”', '”': '”'}  # what closes a quote: German, English, Swedish


def split(text: str, rule: str, lower_case: bool = False) -> list[str]:
  """Words of `text` under a rule of `Words`."""
  if lower_case:
    text = text.lower()
  if rule == 'prose':
    return _PROSE.findall(text)
  return (text.replace('\n', ' <eos> ') if rule == 'lines' else text).split()


def join(words: Sequence[str]) -> str:
  """Writes words and punctuation as prose: no space before a comma, none inside brackets and quotes."""
  out: list[str] = []
  opened: list[str] = []
  glue = True  # no space before the next word
  for word in words:
    if word in ('\n', '<eos>'):
      out.append('\n' if word == '\n' else '\n\n')
      glue, opened = True, []
      continue
    begun = next((quote for quote in opened[::-1] if word in _QUOTES[quote]), '')
    out.append(word if glue or begun or word in _CLOSING else ' ' + word)
    glue = word in _OPENING or word in _QUOTES and not begun
    if begun:
      opened.remove(begun)
    elif word in _QUOTES:
      opened.append(word)
  return ''.join(out)
