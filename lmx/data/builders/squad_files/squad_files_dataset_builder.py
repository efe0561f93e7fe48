"""The user's own questions, in the form of SQuAD."""

from __future__ import annotations

from lmx.data.builders import question_builder


class Builder(question_builder.QuestionBuilder):
  """Files are put into splits by their names."""
