"""Builder of the user's sentences with word labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmx.data.builders import base, tagged
from lmx.data.builders.files import Document


class OwnTaggedBuilder(base.OwnFiles, base.TextBuilder, skip_registration=True):  # type: ignore[call-arg]
  """The user's sentences; splits without a file are held out of the training sentences by a hash of their words."""

  def find_files(self, directory: str) -> Any:
    return tagged.find_own(directory, self.source.split_names)

  def documents(self, split: str, paths: Any) -> Iterator[Document]:
    part, belongs = self.rows_of(split)
    first = 0  # of the documents of a file, which are numbered over all files
    for path in paths[part]:
      last = first
      for number, sentence in enumerate(tagged.read_labelled(path)):
        document = None if sentence.document is None else first + sentence.document
        last = max(last, first + 1 if document is None else document + 1)
        text = ' '.join(map(tagged.plain, sentence.words))
        if not belongs(text):
          continue
        assert sentence.tags is not None  # of a labelled file
        yield tagged.name(split, number, document), text, ' '.join(tagged.spans(sentence.tags))
      first = last
