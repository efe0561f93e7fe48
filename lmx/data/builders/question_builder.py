"""Shared parts of builders of questions: an example is two documents, the passage and then the question."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets.public_api as tfds

from lmx.data.builders import base, questions
from lmx.errors import InputError


@dataclasses.dataclass
class QuestionConfig(base.TextConfig):
  """Options of a data set of questions.

  Attributes:
    pattern: squad_files: directory with the user's files.
    split_names: squad_files: see `split_files.find_splits`.
  """

  pattern: str = ''
  split_names: str = 'words'


class QuestionBuilder(base.TextBuilder, skip_registration=True):  # type: ignore[call-arg]
  """The passage's label is the span of the first answer; the question's label is all answers and the id."""

  BUILDER_CONFIGS = [QuestionConfig(name='default'), QuestionConfig(name='unchecked', check_sizes=False)]

  def documents(self, split: str, paths: Any) -> Iterator[base.Document]:
    count = 0
    for path in paths[split]:
      before = count
      for question in questions.read(path):
        yield f'{question.id}.0', question.context, question.span
        yield f'{question.id}.1', question.question, question.label
        count += 1
      if count == before:
        raise InputError(f'{path}: the file has no questions')
    published = questions.PUBLISHED.get(self.name, {}).get(split, count)
    if self.builder_config.check_sizes and count != published:
      raise InputError(
        f'data set {self.name}, split {split}: got {count:,} questions in '
        f'{", ".join(paths[split])}; expected {published:,}; check the files, or set data.check_sizes=False'
      )

  def sizes(self, text: Any) -> dict[str, int]:
    del text
    return {}

  def urls(self) -> dict[str, str]:
    return {}

  def find_downloads(self, paths: dict[str, str]) -> Any:
    del paths
    raise InputError(f'data set {self.name} is not downloaded: set data.manual_dir to the directory of its files')

  def find_files(self, directory: str) -> Any:
    return questions.find(self.name, self.builder_config.pattern or directory, self.builder_config.split_names)

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
    paths = self._paths(dl_manager)
    return {split: self._generate_examples(split, paths) for split in paths}
