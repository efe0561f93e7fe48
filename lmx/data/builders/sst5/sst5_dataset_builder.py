"""SST-5, the Stanford Sentiment Treebank with five classes (Socher et al. 2013): sentences of film reviews."""

from __future__ import annotations

from lmx.data.builders import sst


class Builder(sst.TreesBuilder):
  """Whole sentences only: 8,544 for training."""

  EXPECTED = {split: {'documents': count} for split, count in sst.SENTENCES.items()}
