"""The user's own tables: one or two texts, and a label or a score."""

from __future__ import annotations

from lmx.data.builders import table_builder


class Builder(table_builder.OwnTables):
  """Columns are named in the config."""

  BUILDER_CONFIGS = [table_builder.TableConfig(name='default')]
