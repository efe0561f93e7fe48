"""SQuAD 2.0 (Rajpurkar, Jia & Liang 2018, arXiv 1806.03822): some questions have no answer."""

from __future__ import annotations

from lmx.data.builders import question_builder


class Builder(question_builder.QuestionBuilder):
  """train-v2.0.json and dev-v2.0.json."""
