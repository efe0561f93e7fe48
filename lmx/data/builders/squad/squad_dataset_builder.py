"""SQuAD 1.1 (Rajpurkar et al. 2016, arXiv 1606.05250): every question has an answer in its passage."""

from __future__ import annotations

from lmx.data.builders import question_builder


class Builder(question_builder.QuestionBuilder):
  """train-v1.1.json and dev-v1.1.json."""
