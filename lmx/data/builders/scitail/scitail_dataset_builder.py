"""SciTail (Khot, Sabharwal & Clark 2018): whether a sentence of science follows from another."""

from __future__ import annotations

from lmx.data.builders import table_builder


class Builder(table_builder.TableBuilder):
  """Pairs as entails or neutral."""

  BUILDER_CONFIGS = table_builder.configs('scitail')
