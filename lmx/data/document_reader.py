"""Documents of a data set as a tokenizer reads them: unchanged, or detokenized (`data.detokenize`).

Documents of a row that continue its first one (`Rules.continues`: LAMBADA, the Children's Book Test) keep the
blank before them, or none if the rules join them, so that the first and another form one text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lmx.data.datasets import DATA_SETS
from lmx.errors import InputError

if TYPE_CHECKING:
  from lmx.data import detokenize

Row = tuple[str, str, str]  # id, text, label
Read = tuple[str, str, str]  # text in the data set, text to encode, label


class DocumentReader(NamedTuple):
  """Reader of documents, unchanged or detokenized.

  Attributes:
    rules: rules that join tokens; None leaves the text unchanged.
    documents: number of documents per row if the others continue the first, else 1.
  """

  rules: detokenize.Rules | None
  documents: int

  def __call__(self, rows: Iterable[Row]) -> Iterator[Read]:
    """Yield the documents in order."""
    row_iterator = iter(rows)
    while group := list(itertools.islice(row_iterator, self.documents)):
      texts = [text for _, text, _ in group]
      for (_, text, label), read in zip(group, self._read(texts), strict=True):
        yield text, read, label

  def _read(self, texts: Sequence[str]) -> list[str]:
    first, *others = texts
    if self.rules is None:
      return [first, *(' ' * bool(text) + text for text in others)]
    from lmx.data import detokenize

    written = [detokenize.detokenize(self.rules, first)]
    for tokens in (text.split(' ') for text in others):  # each continues the first
      count = len([token for token in tokens if token])
      texts = detokenize.token_texts(self.rules, first.split(' ') + tokens)
      written.append(''.join(texts[-count:]) if count else '')
    return written


def create(source: Any, detokenized: bool) -> DocumentReader:
  """Return the reader of a data set. Raises InputError if no rules can detokenize it."""
  rules = source.rules
  if detokenized and not rules.detokenizer:
    supported = ', '.join(name for name, other in DATA_SETS.items() if other.detokenizer)
    raise InputError(
      f'data.detokenize: got True with data set {source.dataset}, which has no detokenization rules; expected False, '
      f'or one of {supported}'
    )
  count = source.documents_per_example if rules.columns.continues else 1
  if not detokenized:
    return DocumentReader(None, count)
  from lmx.data import detokenize

  return DocumentReader(detokenize.RULES[rules.detokenizer], count)
