"""A split translated by a run and measured: BLEU with its signature, chrF, and BLEU by the length of the source."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx import config, decode, translate, translation_pictures
from lmx.data import corpus as corpora
from lmx.data import sources, views
from lmx.errors import InputError, nearest
from lmx.metrics import translation as metrics
from lmx.types import Params


def options(run: config.Run) -> translate.Options:
  """How the `evaluation` section of a run translates."""
  chosen = run.evaluation
  return translate.Options(
    beam=max(chosen.beam, 1), alpha=chosen.alpha, penalty=chosen.penalty, max_extra=chosen.max_extra
  )  # fmt: skip


def texts(run: config.Run, corpus: corpora.Corpus, split: str) -> tuple[list[str], list[str]]:
  """(sources, references) of a split as they stand in the data set, in the order of the corpus.

  Raises:
    InputError: the data set has no pairs, or no such split.
  """
  if not corpus.manifest.get('sides'):
    raise InputError(f'data set {run.data.dataset} has no pairs of a source and its translation')
  if split not in corpus.splits:
    raise InputError(f'the data set has no split "{split}"{nearest(split, corpus.splits)}')
  examples = sources.open_splits(corpora.Spec(**run.data.spec()).data_set(), run.data.cache_dir)
  names = run.data.train_splits if split == 'train' else (split,)
  documents = [text for name in names for _, text, _ in examples[name]]
  pairs = list(zip(documents[::2], documents[1::2], strict=True))
  if run.data.fraction < 1:
    pairs = [pairs[i] for i in np.flatnonzero(views.kept(len(pairs), run.data.fraction))]
  return [source for source, _ in pairs], [target for _, target in pairs]


def scores(
  hypotheses: Sequence[str],
  references: Sequence[str],
  lines: Sequence[str] = (),
  language: str = '',
  lower_case: bool = False,
) -> dict[str, Any]:
  """Figures of translations.

  Args:
    hypotheses: one for each line.
    references: the same.
    lines: the sources, for BLEU by their length in words; () leaves that out.
    language: of the references, two letters, for the tokenised BLEU; others leave that out.
    lower_case: BLEU without case (its signature says so), for a run that has none.
  """
  lengths = [max(len(line.split()), 1) for line in lines]
  language = language if len(language) == 2 else ''
  found = metrics.figures(
    hypotheses, references, language=language, source_lengths=lengths, lower_case=lower_case
  )  # fmt: skip
  same = sum(a.strip() == b.strip() for a, b in zip(hypotheses, references, strict=True))
  return found | {'exact_match': same / len(references), 'sentences': len(references)}


def measure(
  run: config.Run, corpus: corpora.Corpus, params: Params, split: str, title: str = ''
) -> tuple[dict[str, Any], list[str]]:
  """Translates a split as `evaluation` says.

  Args:
    run: the run.
    corpus: its data.
    params: {'model': ..., 'objective': ...}, whole on one device.
    split: name of the split.
    title: of the progress bar, none if empty.

  Returns:
    (figures for results.json, the translations in the order of the split).
  """
  translator, chosen = translate.of(run, params['model'], corpus.tokenizer), options(run)
  lines, references = texts(run, corpus, split)
  found = translate.translate(translator, lines, chosen, truncate=True, title=title)
  hypotheses = [each[0].text for each in found]
  limit = decode.window(run.model)
  cut = 0 if limit is None else sum(len(ids) >= limit for ids in corpus.tokenizer.encode_batch(lines))
  how = f'beam {chosen.beam}, {chosen.penalty} length penalty {chosen.alpha:g}, up to {chosen.max_extra} tokens more'
  figures = scores(hypotheses, references, lines, corpus.manifest['sides'][1], run.data.lower_case)
  return figures | {'metric': 'bleu', 'decoding': how} | ({'sources_cut': cut} if cut else {}), hypotheses


def write(path: Any, hypotheses: Sequence[str]) -> None:
  """Writes translations, one a line. Raises InputError."""
  try:
    with open(path, 'w', encoding='utf-8', errors='surrogateescape') as file:
      file.writelines(f'{text}\n' for text in hypotheses)
  except OSError as error:
    raise InputError(f'{path}: cannot be written ({error.strerror})') from None


def keep(workdir: Any, found: Mapping[str, Any], hypotheses: Sequence[str]) -> None:
  """Leaves translations.txt and bleu_by_length.png in a work directory."""
  write(workdir / 'translations.txt', hypotheses)
  draw(workdir / 'bleu_by_length.png', found)


def draw(path: Any, found: Mapping[str, Any], workdirs: Sequence[Any] = ()) -> None:
  """Draws BLEU by the length of the source, of one measurement and of the runs that are to stand beside it.

  Args:
    path: picture to write.
    found: figures of `measure`, with the names of `evaluate.figures`.
    workdirs: of the other runs; their results.json is read.

  Raises:
    InputError: one of them has no such figures, or those of another split.
  """
  rows = {found['name']: found['bleu_by_length']}
  for workdir in workdirs:
    try:
      other = json.loads((pathlib.Path(workdir) / 'results.json').read_text())
    except (OSError, json.JSONDecodeError) as error:
      raise InputError(f'{workdir}: results.json cannot be read ({error})') from None
    if 'bleu_by_length' not in other:
      raise InputError(f'{workdir}: its results have no BLEU by length; it was measured without evaluation.beam')
    if (other['dataset'], other['split']) != (found['dataset'], found['split']):
      raise InputError(f'{workdir} was measured on {other["dataset"]}/{other["split"]}, not on '
                       f'{found["dataset"]}/{found["split"]}')  # fmt: skip
    name = other['name'] if other['name'] not in rows else f'{other["name"]} ({workdir})'
    rows[name] = other['bleu_by_length']
  translation_pictures.by_length(path, rows)


def summary(found: Mapping[str, Any]) -> list[str]:
  """Lines that show the figures of `scores`, the signature beside each score."""
  lines = []
  for name in ('bleu', 'bleu_tokenised', 'bleu_tokenised_lower', 'chrf'):
    if name in found:
      lines.append(f'  {name.replace("_", " "):24} {found[name]:12.2f}   {found[f"{name}_signature"]}')
  lines.append(f'  {"exact match":24} {found["exact_match"]:12.1%}')
  for row in found.get('bleu_by_length', ()):
    reach = f'over {row["above"]}' if row['up_to'] is None else f'{row["above"] + 1} to {row["up_to"]}'
    lines.append(f'  {"bleu, " + reach + " words":24} {row["bleu"]:12.2f}   {row["sentences"]:,} sentences')
  return lines
