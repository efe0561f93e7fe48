"""The shared task of WMT 2014, English and German, from the user's files (Bojar et al. 2014)."""

from __future__ import annotations

from lmx.data.builders import pairs


class Builder(pairs.PairBuilder):
  """Pairs in the order of the files; newstest2013 is the validation set, newstest2014 the test set."""
