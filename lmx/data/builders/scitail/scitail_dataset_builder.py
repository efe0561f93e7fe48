"""SciTail (Khot, Sabharwal & Clark 2018): entailment between scientific sentences."""

from __future__ import annotations

from lmx.data.builders import table_builder


class Builder(table_builder.TableBuilder):
  """Pairs labelled entails or neutral."""

  BUILDER_CONFIGS = table_builder.configs('scitail')
