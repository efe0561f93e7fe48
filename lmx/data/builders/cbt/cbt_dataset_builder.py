"""The Children's Book Test (Hill et al. 2015, arXiv 1511.02301): which of ten words is missing from a sentence."""

from __future__ import annotations

from lmx.data.builders import table_builder

KINDS = ('cn', 'ne', 'v', 'p')  # common nouns, named entities, verbs, prepositions


class Builder(table_builder.TableBuilder):
  """One class of words; `tables.TABLES` has the layout of its files and their sizes."""

  BUILDER_CONFIGS = table_builder.configs(*(f'cbt/{kind}' for kind in KINDS))
