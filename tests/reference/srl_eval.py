"""Counting of arguments as the script srl-eval.pl of CoNLL-2005 does it, from columns of brackets."""

from __future__ import annotations


def brackets(labels) -> list[str]:
  """The column of a sentence's labels: (A0*, *, *), (A1*)."""
  cells = []
  for t, label in enumerate(labels):
    before = labels[t - 1] if t else 'O'
    after = labels[t + 1] if t + 1 < len(labels) else 'O'
    begins = label != 'O' and (label[0] == 'B' or before == 'O' or before[2:] != label[2:])
    ends = label != 'O' and (after[0] in 'OB' or after[2:] != label[2:])
    cells.append(f'({label[2:]}' * begins + '*' + ')' * ends)
  return cells


def phrases(cells) -> list[tuple[str, int, int]]:
  """(type, first word, last word) of each phrase of a column."""
  found, open_ = [], None
  for t, cell in enumerate(cells):
    opening, closing = cell.split('*')
    if opening:
      assert open_ is None
      open_ = opening[1:], t
    if closing:
      found.append((*open_, t))
      open_ = None
  assert open_ is None
  return found


def arguments(cells) -> list[dict]:
  """Arguments of a column: type, and the list of its phrases; C-X goes to the last X."""
  found, last = [], {}
  for kind, first, end in phrases(cells):
    if kind.startswith('C-') and kind[2:] in last:
      last[kind[2:]]['phrases'].append((first, end))
      continue
    argument = {'type': kind[2:] if kind.startswith('C-') else kind, 'phrases': [(first, end)]}
    found.append(argument)
    last[argument['type']] = argument
  return found


def counts(pairs, kind: str = '') -> tuple[int, int, int]:
  """(right, predicted, true) over (predicted cells, true cells), without V; with `kind` of that type."""
  of = lambda argument: argument['type'] != 'V' and kind in ('', argument['type'])
  right = excess = missed = 0
  for predicted, gold in pairs:
    at = {(a['phrases'][0][0], a['phrases'][-1][1]): a for a in arguments(gold)}
    for a in arguments(predicted):
      place = (a['phrases'][0][0], a['phrases'][-1][1])
      true = at.get(place)
      single = true is not None and len(true['phrases']) == len(a['phrases']) == 1
      several = true is not None and min(len(true['phrases']), len(a['phrases'])) > 1
      same = single or (several and set(true['phrases']) == set(a['phrases']))
      if same and true['type'] == a['type']:
        right += of(a)
        del at[place]
      else:
        excess += of(a)
    missed += sum(map(of, at.values()))
  return right, right + excess, right + missed
