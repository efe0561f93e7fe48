"""Text classification (Zhang et al. 2015, arXiv 1509.01626): news, articles and reviews, one config each."""

from __future__ import annotations

from lmx.data.builders import table_builder

NAMES = ('ag_news', 'dbpedia', 'yelp_polarity', 'yelp_full', 'amazon_polarity', 'amazon_full')


class Builder(table_builder.TableBuilder):
  """One data set, with the layout and sizes of `tables.TABLES`; the text of a row begins with its title."""

  BUILDER_CONFIGS = table_builder.configs(*(f'zhang2015/{name}' for name in NAMES))
