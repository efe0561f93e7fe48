"""Counting of spans as the script conlleval does it: one pass over the labels of both sides."""

from __future__ import annotations


def parts(label: str) -> tuple[str, str]:
  return ('O', '') if label == 'O' else (label[0], label[2:])


def ends(before: str, after: str) -> bool:
  """Does a span end between two labels?"""
  (a, a_type), (b, b_type) = parts(before), parts(after)
  return a != 'O' and (b == 'O' or b == 'B' or a_type != b_type)


def begins(before: str, after: str) -> bool:
  (a, a_type), (b, b_type) = parts(before), parts(after)
  return b != 'O' and (b == 'B' or a == 'O' or a_type != b_type)


def counts(sentences, kind: str = '') -> tuple[int, int, int]:
  """(right, predicted, true) over (predicted labels, true labels) of sentences; with `kind` of spans of that type."""
  of = lambda label: not kind or parts(label)[1] == kind
  right = predicted = true = 0
  for found, gold in sentences:
    open_and_equal = False
    last_found = last_gold = 'O'
    for f, g in [*zip(found, gold, strict=True), ('O', 'O')]:
      end_found, end_gold = ends(last_found, f), ends(last_gold, g)
      if open_and_equal:
        if end_found and end_gold and parts(last_found)[1] == parts(last_gold)[1]:
          right, open_and_equal = right + of(last_found), False
        elif end_found != end_gold or parts(f)[1] != parts(g)[1]:
          open_and_equal = False
      start_found, start_gold = begins(last_found, f), begins(last_gold, g)
      if start_found and start_gold and parts(f)[1] == parts(g)[1]:
        open_and_equal = True
      predicted, true = predicted + (start_found and of(f)), true + (start_gold and of(g))
      last_found, last_gold = f, g
  return right, predicted, true
