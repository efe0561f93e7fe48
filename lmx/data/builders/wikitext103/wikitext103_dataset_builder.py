"""WikiText-103 (Merity et al. 2016, arXiv 1609.07843), from the first author's mirror."""

from __future__ import annotations

from lmx.data.builders import wikitext


class Builder(wikitext.Wikitext):
  """Articles in the order of the file."""

  URLS = {'archive': 'https://wikitext.smerity.com/wikitext-103-v1.zip'}
  EXPECTED = {'train': {'tokens': 103_227_021}, 'valid': {'tokens': 217_646}, 'test': {'tokens': 245_569}}
