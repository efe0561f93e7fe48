"""SST-2 as in GLUE (Wang et al. 2019): all phrases of the training sentences' trees that have a class."""

from __future__ import annotations

from lmx.data.builders import sst


class Builder(sst.SstBuilder):
  """Phrases and sentences: 67,349 for training; the other splits are whole sentences."""

  EXPECTED = sst.HELD_OUT | {'train': {'documents': 67_349}}
