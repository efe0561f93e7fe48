"""SWAG (Zellers et al. 2018, arXiv 1808.05326): the correct one of four endings after a sentence."""

from __future__ import annotations

from lmx.data.builders import table_builder


class Builder(table_builder.TableBuilder):
  """The context is the first sentence, the question the start of the second."""

  BUILDER_CONFIGS = table_builder.configs('swag')
