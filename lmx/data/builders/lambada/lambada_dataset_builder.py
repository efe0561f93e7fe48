"""LAMBADA (Paperno et al. 2016, arXiv 1606.06031): the last word of a passage, unpredictable from its last sentence."""

from __future__ import annotations

from lmx.data.builders import table_builder


class Builder(table_builder.TableBuilder):
  """A row is the text before the word, and the word."""

  BUILDER_CONFIGS = table_builder.configs('lambada')
