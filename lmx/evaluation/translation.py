"""A split translated by a run and measured: BLEU with its signature, chrF, and BLEU by the length of the source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from lmx.config import schema
from lmx.data import corpus as corpora
from lmx.data import pipeline, sources
from lmx.decoding import beam_search as beam_lib
from lmx.decoding import translate
from lmx.errors import InputError
from lmx.metrics import translation as metrics
from lmx.reporting import plots
from lmx.types import Params


def options(run: schema.Run) -> translate.Options:
  """Return the decoding options of the `evaluation` section of a run."""
  chosen = run.evaluation
  return translate.Options(
    beam=max(chosen.beam, 1),
    alpha=chosen.alpha,
    penalty=chosen.penalty,
    stop=chosen.stop,
    max_extra=chosen.max_extra,
    min_ratio=chosen.min_ratio,
    max_ratio=chosen.max_ratio,
    allow_unk=chosen.allow_unk,
  )


def check(run: schema.Run, corpus: corpora.Corpus) -> None:
  """Raise InputError unless a split of `corpus` can be translated as `evaluation` says."""
  _check_pairs(run, corpus)
  translate.of(run, {}, corpus.tokenizer)
  most = (translate.longest(run.model) or run.data.eval_length or run.data.length) + run.evaluation.max_extra
  beam_lib.check_penalty(options(run).search(()), most)


def _check_pairs(run: schema.Run, corpus: corpora.Corpus) -> None:
  if not corpus.manifest.get('sides'):
    raise InputError(f'data set {run.data.dataset} has no pairs of a source and its translation')


def texts(run: schema.Run, corpus: corpora.Corpus, split: str) -> tuple[list[str], list[str]]:
  """(sources, references) of a split as they stand in the data set, in the order of the corpus.

  Raises:
    InputError: the data set has no pairs, or no such split.
  """
  _check_pairs(run, corpus)
  corpus.split(split)
  examples = sources.open_splits(run.data)
  names = run.data.train_splits if split == 'train' else (split,)
  documents = [text for name in names for _, text, _ in examples[name]]
  pairs = list(zip(documents[::2], documents[1::2], strict=True))
  pairs = [pairs[i] for i in pipeline.kept(run.data, split, len(pairs))]
  return [source for source, _ in pairs], [target for _, target in pairs]


def scores(
  hypotheses: Sequence[str],
  references: Sequence[str],
  lines: Sequence[str] = (),
  sides: Sequence[str] = ('', ''),
  lower_case: bool = False,
  compounds: str = 'en_de',
) -> dict[str, Any]:
  """Figures of translations.

  Args:
    hypotheses: one for each line.
    references: the same.
    lines: the sources, for BLEU by their length in words; () leaves that out.
    sides: languages of source and references; those of references that are not two letters have no tokenised BLEU.
    lower_case: BLEU and chrF (their signatures say so) and exact match without case, for a run that has none.
    compounds: `evaluation.compounds`.
  """
  lengths = [max(len(line.split()), 1) for line in lines]
  sides = (sides[0], sides[1] if len(sides[1]) == 2 else '')
  found = metrics.figures(
    hypotheses, references, sides=sides, source_lengths=lengths, lower_case=lower_case, compounds=compounds
  )
  plain = lambda text: text.strip().lower() if lower_case else text.strip()
  same = sum(plain(a) == plain(b) for a, b in zip(hypotheses, references, strict=True))
  return found | {'exact_match': same / len(references), 'sentences': len(references)}


class Translated(NamedTuple):
  """A pair of the data and what a model made of its source."""

  source: str
  translation: str
  reference: str


def pairs(
  run: schema.Run, corpus: corpora.Corpus, params: Params, split: str, count: int | None = None, title: str = ''
) -> list[Translated]:
  """The first pairs of a split (None: all), translated as `evaluation` says.

  Args:
    run: the run.
    corpus: its data.
    params: {'model': ..., 'objective': ...}, whole on one device.
    split: name of the split.
    count: how many.
    title: of the progress bar, none if empty.
  """
  lines, references = (side[:count] for side in texts(run, corpus, split))
  translator = translate.of(run, params['model'], corpus.tokenizer)
  found = translate.translate(translator, lines, options(run), truncate=True, title=title)
  return [Translated(*each) for each in zip(lines, (best[0].text for best in found), references, strict=True)]


def figures(run: schema.Run, corpus: corpora.Corpus, found: Sequence[Translated]) -> dict[str, Any]:
  """Return the metrics of the translations of a split, as `pairs` gives them, for results.json."""
  chosen, lines = options(run), [each.source for each in found]
  limit = translate.longest(run.model)
  cut = 0 if limit is None else sum(len(ids) >= limit for ids in corpus.tokenizer.encode_batch(lines))
  hypotheses, references = [each.translation for each in found], [each.reference for each in found]
  sides, compounds = corpus.manifest['sides'], run.evaluation.compounds
  scored = scores(hypotheses, references, lines, sides, run.data.lower_case, compounds)
  return scored | {'metric': 'bleu', 'decoding': decoding(chosen)} | ({'sources_cut': cut} if cut else {})


def decoding(chosen: translate.Options) -> str:
  """The search in words, for a report."""
  penalty = f'{chosen.penalty} length penalty {chosen.alpha:g}' if chosen.alpha else 'no length penalty'
  most = f'{chosen.max_ratio:g} times the source' if chosen.max_ratio else f'{chosen.max_extra} tokens more'
  parts = [f'beam {chosen.beam}', penalty, f'up to {most}']
  parts += [f'at least {chosen.min_ratio:g} times'] * bool(chosen.min_ratio)
  parts += [f'stop {chosen.stop}'] * (chosen.stop != 'bound') + ['<unk> allowed'] * chosen.allow_unk
  return ', '.join(parts)


def write(path: Any, found: Sequence[Translated], mode: str = 'w') -> None:
  """Write translations, one a line, behind what is there with the mode 'a'. Raises InputError."""
  try:
    with open(path, mode, encoding='utf-8', errors='surrogateescape') as file:
      file.writelines(f'{each.translation}\n' for each in found)
  except OSError as error:
    raise InputError(f'{path}: cannot be written ({error.strerror})') from None


def keep(workdir: Any, results: Mapping[str, Any], found: Sequence[Translated]) -> None:
  """Leaves translations.txt and bleu_by_length.png in a work directory."""
  write(workdir / 'translations.txt', found)
  draw(workdir / 'bleu_by_length.png', results)


def draw(path: Any, results: Mapping[str, Any], workdirs: Sequence[Any] = ()) -> None:
  """Draws BLEU by the length of the source, of one measurement and of the runs that are to stand beside it.

  Args:
    path: picture to write.
    results: `figures`, with those of `evaluate.results`.
    workdirs: of the other runs; their results.json is read.

  Raises:
    InputError: one of them has no such figures, or those of another split.
  """
  rows = {results['name']: results['bleu_by_length']}
  for workdir in workdirs:
    try:
      other = json.loads((epath.Path(workdir) / 'results.json').read_text())
    except (OSError, ValueError, RecursionError) as error:
      raise InputError(f'{workdir}: results.json cannot be read ({error})') from None
    if 'bleu_by_length' not in other:
      raise InputError(f'{workdir}: its results have no BLEU by length; it was measured without evaluation.beam')
    if (other['dataset'], other['split']) != (results['dataset'], results['split']):
      raise InputError(
        f'{workdir} was measured on {other["dataset"]}/{other["split"]}, not on {results["dataset"]}/{results["split"]}'
      )
    name = other['name'] if other['name'] not in rows else f'{other["name"]} ({workdir})'
    rows[name] = other['bleu_by_length']
  plots.by_length(path, rows)


def summary(found: Mapping[str, Any]) -> list[str]:
  """Lines that show the figures of `scores`, the signature beside each score."""
  lines = []
  for name in ('bleu', 'bleu_tokenised', 'bleu_tokenised_lower', 'chrf'):
    if name in found:
      lines.append(f'  {name.replace("_", " "):24} {found[name]:12.2f}   {found[f"{name}_signature"]}')
  lines.append(f'  {"exact match":24} {found["exact_match"]:12.1%}')
  for row in found.get('bleu_by_length', ()):
    lines.append(f'  {"bleu, " + row["words"] + " words":24} {row["bleu"]:12.2f}   {row["sentences"]:,} sentences')
  return lines
