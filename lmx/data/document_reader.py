"""Documents of a data set in the form that a tokenizer reads: unchanged, or detokenized (`data.detokenize`).

Documents of a row that continue its first one (`Rules.continues`: LAMBADA, the Children's Book Test) keep the
blank before them, or none if the rules join them, so that the first and another form one text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lmx.data import detokenize
from lmx.data.datasets import RULES
from lmx.errors import InputError

Row = tuple[str, str, str]  # id, text, label
Read = tuple[str, str, str]  # text in the data set, text to encode, label


class DocumentReader(NamedTuple):
  """Reader of documents, unchanged or detokenized.

  Attributes:
    rules: rules that join tokens; None leaves the text unchanged.
    together: documents of a row if the others continue the first, else 1.
  """

  rules: detokenize.Rules | None
  together: int

  def __call__(self, rows: Iterable[Row]) -> Iterator[Read]:
    """Yield the documents in order."""
    row_iterator = iter(rows)
    while group := list(itertools.islice(row_iterator, self.together)):
      texts = [text for _, text, _ in group]
      for (_, text, label), read in zip(group, self._read(texts), strict=True):
        yield text, read, label

  def _read(self, texts: Sequence[str]) -> list[str]:
    first, *others = texts
    if self.rules is None:
      return [first, *(' ' * bool(text) + text for text in others)]
    first_tokens = first.split(' ')
    after = [self._after(first_tokens, text.split(' ')) for text in others]
    return [detokenize.write(self.rules, first), *after]

  def _after(self, begun: list[str], tokens: list[str]) -> str:
    """Return the written text of `tokens` after the tokens `begun`."""
    assert self.rules is not None
    count = len([token for token in tokens if token])
    return ''.join(detokenize.pieces(self.rules, begun + tokens)[-count:]) if count else ''


def create(source: Any, detokenized: bool) -> DocumentReader:
  """Return the reader of a data set. Raises InputError if no rules can detokenize it."""
  rules = source.rules
  if detokenized and not rules.detokenizer:
    known = [name for name, other in RULES.items() if other.detokenizer]
    raise InputError(
      f'data.detokenize: nothing is known of how {source.dataset} was cut into tokens; set it to False, or take one of '
      + ', '.join(known)
    )
  together = source.documents_together if rules.continues else 1
  return DocumentReader(detokenize.RULES[rules.detokenizer] if detokenized else None, together)
