"""SNLI (Bowman et al. 2015, arXiv 1508.05326): whether a sentence follows from another, contradicts it, or neither."""

from __future__ import annotations

from lmx.data.builders import table_builder


class Builder(table_builder.TableBuilder):
  """Rows without an agreed label ("-") are left out."""

  BUILDER_CONFIGS = table_builder.configs('snli')
