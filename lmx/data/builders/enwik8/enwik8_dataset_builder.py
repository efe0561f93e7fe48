"""enwik8 (Mahoney 2011)."""

from __future__ import annotations

from lmx.data.builders import mahoney


class Builder(mahoney.Mahoney):
  """The file in order."""

  URLS = {'archive': 'http://mattmahoney.net/dc/enwik8.zip'}
