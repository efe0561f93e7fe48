"""Words and punctuation: how a text is split into them, and how they are joined to read as prose."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_JOINERS = '\u200c\u200d'
# Vowel signs of Hindi, accents that stand apart; beyond the basic plane they would make `re` slow.
_MARKS = ''.join(c for c in map(chr, range(0x300, 0x10000)) if unicodedata.category(c)[0] == 'M')


def _rule(inside: str, hanging: bool = False) -> str:
  """Pattern of a word or a sign; `inside` are signs within words that are no letters."""
  letters = rf'\w+(?:[{inside}]+\w*)*'
  word = rf"{letters}(?:[-.'’]{letters})*"
  if hanging:
    word = rf'(?:(?<![\w-])-)?{word}(?:-(?![\w-]))?'
  return rf'\n|<unk>|(?:[A-Za-z]\.){{2,}}|{word}|\.{{3}}|--+|[^\w\s]'


_PROSE = re.compile(_rule(_MARKS + _JOINERS))
# A hyphen that hangs on a word is a part of it, as for Moses' tokenizer: German `Obst- und Gemüse`. For Oniguruma, to
# which marks are letters.
HANGING = _rule(_JOINERS, hanging=True)
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
