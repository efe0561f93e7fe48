"""WikiText-2 and WikiText-103 (Merity et al. 2016, arXiv 1609.07843): a document is an article."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lmx import documents
from lmx.data.builders.files import Document

_TITLE = re.compile(r' ?= [^=].* = ?\n')


def articles(lines: Iterator[str]) -> Iterator[str]:
  """Yield articles: the lines split before each title, a ` = Title = ` line between blank lines, without loss."""
  article: list[str] = []
  blank, pending = True, ''  # the line before was blank; a title that waits for its blank line
  in_article = False
  for line in lines:
    if pending and not line.strip() and in_article:
      yield ''.join(article[:-1])
      article = article[-1:]
    in_article = in_article or bool(pending)
    article.append(line)
    pending = line if blank and _TITLE.fullmatch(line) else ''
    blank = not line.strip()
  if article:
    yield ''.join(article)


def read(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the articles in the order of the file."""
  del source
  for index, text in enumerate(articles(documents.read_lines(paths[split]))):
    yield f'{split}-{index}', text, ''
