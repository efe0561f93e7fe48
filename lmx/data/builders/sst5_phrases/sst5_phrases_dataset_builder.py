"""SST-5, the Stanford Sentiment Treebank with five classes (Socher et al. 2013): phrases of all lengths."""

from __future__ import annotations

from lmx.data.builders import sst


class Builder(sst.TreesBuilder):
  """Every phrase of the training trees, words included; the other splits are whole sentences."""

  MIN_WORDS = 1
