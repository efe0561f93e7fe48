"""SST-5, the Stanford Sentiment Treebank with five classes (Socher et al. 2013): phrases of four words or more."""

from __future__ import annotations

from lmx.data.builders import sst


class Builder(sst.TreesBuilder):
  """Whole training sentences and their phrases of four or more words (McCann et al. 2017; Peters et al. 2018)."""

  MIN_WORDS = 4
