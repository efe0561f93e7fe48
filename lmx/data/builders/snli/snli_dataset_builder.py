"""SNLI (Bowman et al. 2015, arXiv 1508.05326): entailment, contradiction or neither between two sentences."""

from __future__ import annotations

from lmx.data.builders import table_builder


class Builder(table_builder.TableBuilder):
  """Rows without an agreed label ("-") are skipped."""

  BUILDER_CONFIGS = table_builder.configs('snli')
