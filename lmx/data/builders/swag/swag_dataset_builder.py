"""SWAG (Zellers et al. 2018, arXiv 1808.05326): which of four endings follows a sentence."""

from __future__ import annotations

from lmx.data.builders import table_builder


class Builder(table_builder.TableBuilder):
  """The context is the first sentence, the question the beginning of the second."""

  BUILDER_CONFIGS = table_builder.configs('swag')
