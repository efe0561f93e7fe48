"""A rule-based sentence splitter for English prose.

A sentence ends at `.`, `!` or `?` (with closing quotes or brackets) before white space and a capital letter, a digit
or an opening quote, unless the previous word is a known abbreviation or an initial. The parts always concatenate to the
text, so encoding sentence by sentence loses nothing.
"""

from __future__ import annotations

import re

ABBREVIATIONS = frozenset(
  'mr mrs ms dr prof rev gen col capt lt sgt sen rep gov hon st jr sr vs etc e.g i.e cf al no vol fig sec ed eds pp p '
  'ch inc ltd co corp dept approx ca u.s u.k u.n jan feb mar apr jun jul aug sep sept oct nov dec'.split()
)
_END = re.compile(r'[.!?]["\'”’)\]]*(\s+)(?=["\'“‘(\[]*[A-Z0-9])')
_WORD_BEFORE = re.compile(r'[\w.]+$')
_FINAL = re.compile(r'[.!?:;]["\'”’)\]]*$')


def split(text: str, mode: str, *, space_leads: bool = False) -> list[str]:
  """Split `text` into sentences; `''.join` of the result is `text`.

  Args:
    text: one document.
    mode: 'lines': each line is a sentence; 'prose': line ends are boundaries, and lines are split by rule; 'wrapped':
      lines are wrapped prose, only an empty line is a boundary.
    space_leads: white space between sentences belongs to the later one (byte-level BPE, whose tokens start with their
      space); else to the earlier one.
  """
  gaps = []  # (start, end) of the white space between two sentences
  if mode != 'lines':
    gaps += [match.span(1) for match in _END.finditer(text) if not _is_abbreviation(text, match.start())]
  gaps += [match.span() for match in re.finditer(r'\s*\n\s*' if mode != 'wrapped' else r'\s*\n\s*\n\s*', text)]
  borders = sorted({start if space_leads else end for start, end in gaps} - {0, len(text)})
  parts = [text[a:b] for a, b in zip([0, *borders], [*borders, len(text)], strict=True)]
  return _join_blank(parts)


def infer_mode(text: str, *, lines: bool) -> str:
  """Infer the mode of a user's document: do its lines end like sentences? `lines`: such lines are the sentences."""
  rows = [row for row in (line.rstrip() for line in text.split('\n')) if row]
  final = sum(bool(_FINAL.search(row)) for row in rows)
  if 2 * final <= len(rows):
    return 'wrapped'
  return 'lines' if lines and len(rows) > 1 else 'prose'


def _is_abbreviation(text: str, stop: int) -> bool:
  if text[stop] != '.':
    return False
  word = _WORD_BEFORE.search(text[max(0, stop - 20) : stop])
  return word is not None and (word[0].lower() in ABBREVIATIONS or len(word[0]) == 1 and word[0].isupper())


def _join_blank(parts: list[str]) -> list[str]:
  joined: list[str] = []
  for part in parts:
    if joined and (not part.strip() or not joined[-1].strip()):
      joined[-1] += part
    else:
      joined.append(part)
  return joined
