"""First pairs of the evaluated split with their translations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmx.config import schema
from lmx.decoding import translate
from lmx.evaluation import translation
from lmx.evaluation.samples import Trained


def check(run: schema.Run, corpus: Any) -> None:
  """Raise InputError if the split could not be translated."""
  if not run.evaluation.beam:  # otherwise the evaluation checks it
    translation.check(run, corpus)


def generate(trained: Trained) -> Iterator[str]:
  """Yield the first pairs of the evaluated split with their translations."""
  run, corpus, params, outputs, *_ = trained
  count, split = run.samples.count, run.evaluation.split
  translations = list(outputs)
  if not translations:
    translator = translate.build_translator(run, params['model'], corpus.tokenizer)
    translations = translation.translate_split(run, corpus, translator, split, count)
  for one in translations[:count]:
    yield f'source       {one.source}\ntranslation  {one.translation}\nreference    {one.reference}'
