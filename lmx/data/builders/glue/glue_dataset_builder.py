"""GLUE (Wang et al. 2019, arXiv 1804.07461): nine tasks of one sentence or two, each a config of its own."""

from __future__ import annotations

from lmx.data.builders import table_builder

NAMES = ('cola', 'sst2', 'mrpc', 'qqp', 'stsb', 'mnli', 'qnli', 'rte', 'wnli')


class Builder(table_builder.TableBuilder):
  """One task; the layout of its files and their sizes are those of `tables.TABLES`."""

  BUILDER_CONFIGS = table_builder.configs(*(f'glue/{name}' for name in NAMES))
