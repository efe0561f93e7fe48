"""The user's own questions, in SQuAD's format."""

from __future__ import annotations

from lmx.data.builders import question_builder


class Builder(question_builder.QuestionBuilder):
  """Files are assigned to splits by their names."""
