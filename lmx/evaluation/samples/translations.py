"""First pairs of the evaluated split with their translations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lmx.config import schema
from lmx.data.corpus import Corpus
from lmx.decoding import translate
from lmx.evaluation import translation
from lmx.types import Params


def check(run: schema.Run, corpus: Any) -> None:
  """Raise InputError if the split could not be translated."""
  if not run.evaluation.beam:  # otherwise the evaluation checks it
    translation.check(run, corpus)


def generate(
  run: schema.Run, corpus: Corpus, params: Params, prompts: Sequence[str], outputs: Sequence[Any], workdir: Any
) -> Iterator[str]:
  """Yield the first pairs of the evaluated split with their translations."""
  del prompts, workdir
  count, split = run.samples.count, run.evaluation.split
  translations = list(outputs)
  if not translations:
    translator = translate.build_translator(run, params['model'], corpus.tokenizer)
    translations = translation.translate_split(run, corpus, translator, split, count)
  for one in translations[:count]:
    yield f'source       {one.source}\ntranslation  {one.translation}\nreference    {one.reference}'
