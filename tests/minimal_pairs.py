"""Small folders of minimal pairs for tests."""

from __future__ import annotations

import json
import pathlib

# paradigm -> (phenomenon, field, pairs)
PARADIGMS = {
  'agreement_1': ('agreement', 'morphology', [('the cat sits', 'the cat sit'), ('a dog runs', 'a dog run')]),
  'agreement_2': ('agreement', 'morphology', [('cats sit', 'cats sits'), ('dogs run', 'dogs runs'), ('a b', 'a b')]),
  'island_1': ('islands', 'syntax', [('what did she see', 'what she did see'), ('who ran', 'ran who')]),
}


def blimp(folder: pathlib.Path) -> str:
  """Write the pairs as BLiMP's files and return the folder."""
  folder.mkdir(parents=True)
  for paradigm, (phenomenon, field, pairs) in PARADIGMS.items():
    rows = [
      {'sentence_good': good, 'sentence_bad': bad, 'field': field, 'linguistics_term': phenomenon}
      | {'UID': paradigm, 'pairID': str(i)}
      for i, (good, bad) in enumerate(pairs)
    ]
    (folder / f'{paradigm}.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return str(folder)
