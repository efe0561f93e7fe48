"""Builder of questions: an example is two documents, the passage and then the question.

The passage's label is the span of the first answer; the question's label is all answers and the id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmx.data.builders import base, questions
from lmx.data.builders.files import Document
from lmx.errors import InputError


class QuestionBuilder(base.TextBuilder, skip_registration=True):  # type: ignore[call-arg]
  """Questions in published files, or in the user's, which are assigned to splits by name."""

  def find_files(self, directory: str) -> Any:
    return questions.find(self.source.dataset, self.dataset.layout, directory, self.source.split_names)

  def splits(self, paths: Any) -> list[str]:
    return [*paths]

  def documents(self, split: str, paths: Any) -> Iterator[Document]:
    for path in paths[split]:
      question = None
      for question in questions.read(path):
        yield f'{question.id}.0', question.context, question.span
        yield f'{question.id}.1', question.question, question.label
      if question is None:
        raise InputError(f'{path}: the file has no questions')
