"""SST-2, the Stanford Sentiment Treebank with two classes (Socher et al. 2013): whole sentences of film reviews."""

from __future__ import annotations

from lmx.data.builders import sst


class Builder(sst.SstBuilder):
  """Whole sentences only: 6,920 for training."""

  EXPECTED = sst.HELD_OUT | {'train': {'documents': 6_920}}
