"""WikiText-2 (Merity et al. 2016, arXiv 1609.07843), from the first author's mirror."""

from __future__ import annotations

from lmx.data.builders import wikitext


class Builder(wikitext.Wikitext):
  """Articles in the order of the file."""

  URLS = {'archive': 'https://wikitext.smerity.com/wikitext-2-v1.zip'}
  EXPECTED = {'train': {'tokens': 2_088_628}, 'valid': {'tokens': 217_646}, 'test': {'tokens': 245_569}}
