"""RACE (Lai et al. 2017, arXiv 1704.04683): questions on passages of English examinations, with four choices."""

from __future__ import annotations

from lmx.data.builders import table_builder


class Builder(table_builder.TableBuilder):
  """Passages for middle schools first, then those for high schools."""

  BUILDER_CONFIGS = table_builder.configs(
    'race', *(f'race/{name}' for name in ('joined', 'middle', 'high', 'joined_middle', 'joined_high'))
  )
