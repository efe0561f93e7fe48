"""GLUE (Wang et al. 2019, arXiv 1804.07461): nine tasks on one or two sentences, one config each."""

from __future__ import annotations

from lmx.data.builders import table_builder

NAMES = ('cola', 'sst2', 'mrpc', 'qqp', 'stsb', 'mnli', 'qnli', 'rte', 'wnli')


class Builder(table_builder.TableBuilder):
  """One task; `tables.TABLES` has the layout of its files and their sizes."""

  BUILDER_CONFIGS = table_builder.configs(*(f'glue/{name}' for name in NAMES))
