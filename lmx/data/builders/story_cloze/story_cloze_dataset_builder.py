"""The Story Cloze Test (Mostafazadeh et al. 2016, arXiv 1604.01696): which of two endings a story has."""

from __future__ import annotations

from lmx.data.builders import table_builder


class Builder(table_builder.TableBuilder):
  """Its validation file is trained on, as Radford et al. 2018 do, and every tenth row of it held out."""

  BUILDER_CONFIGS = table_builder.configs('story_cloze')
