"""Published accuracies on BLiMP in percent, of models trained on other corpora.

The models: corrected results of Warstadt et al. 2020 (arXiv 1912.00582), raw_results/summary/models_summary.jsonl of
github.com/alexwarstadt/blimp at 3e56b06f, CC BY 4.0; a phenomenon is the mean of its paradigms. GPT-2 is the release
with 774M parameters, Transformer-XL that of WikiText-103, LSTM that of Gulordava et al. 2018 (Wikipedia), the 5-gram
model of Gigaword. People: single judgements, table 3 of the paper.
"""

from __future__ import annotations

from typing import NamedTuple

NOTE = 'other corpus'


class Published(NamedTuple):
  """Accuracies of a system.

  Attributes:
    name: of the system.
    overall: mean of the 67 paradigms.
    phenomena: mean of the paradigms of each phenomenon; {} where it is not listed.
  """

  name: str
  overall: float
  phenomena: dict[str, float]


_PHENOMENA = (
  'anaphor_agreement',
  'argument_structure',
  'binding',
  'control_raising',
  'determiner_noun_agreement',
  'ellipsis',
  'filler_gap_dependency',
  'irregular_forms',
  'island_effects',
  'npi_licensing',
  'quantifiers',
  'subject_verb_agreement',
)


def _published(name: str, overall: float, *phenomena: float) -> Published:
  return Published(name, overall, dict(zip(_PHENOMENA, phenomena, strict=True)) if phenomena else {})


BLIMP = (
  _published('5-gram', 61.2, 47.9, 71.9, 64.4, 68.5, 70.1, 36.9, 60.2, 79.5, 57.2, 45.5, 53.5, 60.3),
  _published('LSTM', 69.8, 91.7, 73.2, 73.5, 67.0, 85.4, 67.6, 73.9, 89.0, 46.6, 51.7, 64.5, 80.1),
  _published('Transformer-XL', 69.6, 94.1, 72.2, 74.7, 71.5, 83.0, 77.2, 66.6, 78.1, 48.3, 55.2, 69.3, 75.9),
  _published('GPT-2', 83.0, 99.3, 81.8, 80.9, 81.9, 95.8, 89.3, 81.3, 91.9, 72.7, 76.8, 79.0, 86.4),
  _published('people', 88.6),
)
