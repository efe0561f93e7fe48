"""The Story Cloze Test (Mostafazadeh et al. 2016, arXiv 1604.01696): the correct one of two endings of a story."""

from __future__ import annotations

from lmx.data.builders import table_builder


class Builder(table_builder.TableBuilder):
  """Its validation file is for training, as in Radford et al. 2018, with every tenth row held out."""

  BUILDER_CONFIGS = table_builder.configs('story_cloze')
