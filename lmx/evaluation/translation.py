"""Translation of a split by a run, and its metrics: BLEU with its signature, chrF, and BLEU by source length."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax

from lmx import documents, records, storage
from lmx.config import schema
from lmx.data import corpus as corpora
from lmx.data import pipeline, sources
from lmx.decoding import beam_search as beam_lib
from lmx.decoding import translate
from lmx.errors import InputError, explain
from lmx.metrics import translation as metrics
from lmx.metrics import writing_systems
from lmx.models import registry
from lmx.reporting import plots


def decoding_options(run: schema.Run) -> translate.Options:
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
    max_length=chosen.max_length,
    forbidden=chosen.forbidden,
    eos_ids=chosen.eos_ids,
    forbidden_first=chosen.forbidden_first,
    bad_words=chosen.bad_words,
    min_tokens=chosen.min_tokens,
    no_repeat_ngram=chosen.no_repeat_ngram,
    repetition_penalty=chosen.repetition_penalty,
    renormalise=chosen.renormalise,
    forced_first=chosen.forced_first,
    forced_end=chosen.forced_end,
    allow_unk=chosen.allow_unk,
    coverage_penalty=chosen.coverage_penalty,
    replace_unknown=chosen.replace_unknown,
    dictionary=translate.read_dictionary(chosen.dictionary) if chosen.dictionary else {},
  )


def check(run: schema.Run, corpus: corpora.Corpus) -> None:
  """Raise InputError unless a split of `corpus` can be translated with the settings of `evaluation`."""
  _check_pairs(run, corpus)
  shapes = jax.eval_shape(functools.partial(registry.get(run.model_name).init, run.model), jax.random.key(0))
  options, translator = decoding_options(run), translate.build_translator(run, shapes, corpus.tokenizer)
  translate.check_options(translator, options)
  if run.evaluation.known_only and corpus.tokenizer.unk_id is None:
    raise InputError('evaluation.known_only: got a tokenizer without an unknown word; set it to false')
  longest = translate.max_source_length(run.model) or run.data.eval_length or run.data.length
  most = run.evaluation.max_length or longest + run.evaluation.max_extra
  beam_lib.check_penalty(options.search(()), most)


def _check_pairs(run: schema.Run, corpus: corpora.Corpus) -> None:
  if not corpus.manifest.get('sides'):
    raise InputError(f'data set {run.data.dataset} has no pairs of a source and its translation')


def read_pairs(run: schema.Run, corpus: corpora.Corpus, split: str) -> tuple[list[str], list[str]]:
  """Return (sources, references) of a split as the data set has them, in the order of the corpus.

  Raises:
    InputError: the data set has no sentence pairs, or no such split.
  """
  _check_pairs(run, corpus)
  corpus.split(split)
  examples = sources.open_splits(run.data)
  names = run.data.train_splits if split == 'train' else (split,)
  texts = [text for name in names for _, text, _ in examples[name]]
  pairs = list(zip(texts[::2], texts[1::2], strict=True))
  pairs = [pairs[i] for i in pipeline.select_documents(run.data, split, len(pairs))]
  return [source for source, _ in pairs], [target for _, target in pairs]


def _select_known(
  corpus: corpora.Corpus, lines: Sequence[str], references: Sequence[str]
) -> tuple[list[str], list[str]]:
  """Return the pairs without an unknown word on either side. Raises InputError if there are none."""
  known = lambda tokenizer, text: tokenizer.unk_id not in tokenizer.encode(text.strip())
  sides = corpus.tokenizer, corpus.tokenizer.target
  pairs = [pair for pair in zip(lines, references, strict=True) if all(map(known, sides, pair))]
  if not pairs:
    raise InputError('evaluation.known_only: got unknown words in all pairs of the split; set it to false')
  return [source for source, _ in pairs], [target for _, target in pairs]


def compute_scores(
  hypotheses: Sequence[str],
  references: Sequence[str],
  lines: Sequence[str] = (),
  sides: Sequence[str] = ('', ''),
  lower_case: bool = False,
  compounds: str = 'en_de',
) -> dict[str, Any]:
  """Return the metrics of translations.

  Args:
    hypotheses: one for each source.
    references: one for each source.
    lines: sources, for BLEU by their length; () skips that metric.
    sides: languages of source and references; see `lmx.metrics.translation.compute_metrics`.
    lower_case: BLEU and chrF (as their signatures state) and exact match ignore case, for a lower-cased run.
    compounds: `evaluation.compounds`.
  """
  metrics_by_name = metrics.compute_metrics(
    hypotheses, references, sides=sides, sources=lines, lower_case=lower_case, compounds=compounds
  )
  unspaced = writing_systems.is_unspaced(references, sides[1])
  plain = lambda text: _plain(text.lower() if lower_case else text, unspaced)
  same = sum(plain(a) == plain(b) for a, b in zip(hypotheses, references, strict=True))
  return metrics_by_name | {'exact_match': same / len(references), 'sentences': len(references)}


def _plain(text: str, unspaced: bool) -> str:
  """Strip surrounding white space; remove all white space in a language written without spaces."""
  return ''.join(text.split()) if unspaced else text.strip()


class TranslatedPair(NamedTuple):
  """Sentence pair of the data, and a model's translation of its source."""

  source: str
  translation: str
  reference: str


def translate_split(
  run: schema.Run,
  corpus: corpora.Corpus,
  translator: translate.Translator,
  split: str,
  count: int | None = None,
  title: str = '',
) -> list[TranslatedPair]:
  """Translate the first pairs of a split (None: all) with the settings of `evaluation`.

  Args:
    run: the run.
    corpus: its data.
    translator: result of `translate.build_translator` or `translate.combine`.
    split: name of the split.
    count: number of pairs.
    title: title of the progress bar; '' for no bar.
  """
  sides = read_pairs(run, corpus, split)
  if run.evaluation.known_only:
    sides = _select_known(corpus, *sides)
  lines, references = (side[:count] for side in sides)
  hypotheses = translate.translate(translator, lines, decoding_options(run), truncate=True, title=title)
  return [TranslatedPair(*each) for each in zip(lines, (best[0].text for best in hypotheses), references, strict=True)]


def compute_metrics(run: schema.Run, corpus: corpora.Corpus, translations: Sequence[TranslatedPair]) -> dict[str, Any]:
  """Return the metrics in results.json of translations that `pairs` returned."""
  search, lines = decoding_options(run), [each.source for each in translations]
  limit = translate.max_source_length(run.model)
  truncated = 0 if limit is None else sum(len(ids) >= limit for ids in corpus.tokenizer.encode_batch(lines))
  hypotheses, references = [each.translation for each in translations], [each.reference for each in translations]
  sides, compounds = corpus.manifest['sides'], run.evaluation.compounds
  scored = compute_scores(hypotheses, references, lines, sides, run.data.lower_case, compounds)
  known = ', pairs without unknown words' * run.evaluation.known_only
  scored |= {'metric': 'bleu', 'decoding': describe_decoding(search) + known}
  return scored | ({'sources_cut': truncated} if truncated else {})


def describe_decoding(options: translate.Options) -> str:
  """Return a description of the beam search, for a report."""
  penalty = f'{options.penalty} length penalty {options.alpha:g}' if options.alpha else 'no length penalty'
  most = f'{options.max_ratio:g} times the source' if options.max_ratio else f'{options.max_extra} tokens more'
  most = f'{options.max_length} tokens' if options.max_length else most
  parts = [f'beam {options.beam}', penalty, f'up to {most}' + ', then the end of text' * options.forced_end]
  parts += [f'begins with token {options.forced_first}'] * (options.forced_first is not None)
  parts += [f'without tokens {", ".join(map(str, options.forbidden or ()))}'] * bool(options.forbidden)
  parts += [f'ends with tokens {", ".join(map(str, options.eos_ids or ()))}'] * (options.eos_ids is not None)
  parts += [f'does not begin with {", ".join(map(str, options.forbidden_first))}'] * bool(options.forbidden_first)
  parts += [f'without {len(options.bad_words)} bad words'] * bool(options.bad_words)
  parts += [f'no {options.no_repeat_ngram}-gram twice'] * bool(options.no_repeat_ngram)
  parts += [f'repetition penalty {options.repetition_penalty:g}'] * (options.repetition_penalty != 1)
  parts += [f'at least {options.min_tokens} tokens'] * bool(options.min_tokens)
  parts += ['renormalised'] * options.renormalise
  parts += [f'at least {options.min_ratio:g} times'] * bool(options.min_ratio)
  parts += [f'stop {options.stop}'] * (options.stop != 'bound') + ['<unk> allowed'] * options.allow_unk
  parts += [f'coverage penalty {options.coverage_penalty:g}'] * bool(options.coverage_penalty)
  parts += ['<unk> replaced' + ' by a dictionary' * bool(options.dictionary)] * options.replace_unknown
  return ', '.join(parts)


def write(path: Any, translations: Sequence[TranslatedPair], mode: str = 'w') -> None:
  """Write translations, one a line; mode 'a' appends. Raises InputError."""
  try:
    with documents.open_to_write(path, mode, errors='surrogateescape') as file:
      file.writelines(f'{each.translation}\n' for each in translations)
  except OSError as error:
    raise InputError(f'{path}: cannot be written ({explain(error)})') from None


def write_files(workdir: Any, results: Mapping[str, Any], translations: Sequence[TranslatedPair]) -> None:
  """Write translations.txt and bleu_by_length.png to a work directory."""
  write(workdir / 'translations.txt', translations)
  draw(workdir / 'bleu_by_length.png', results)


def draw(path: Any, results: Mapping[str, Any], workdirs: Sequence[Any] = ()) -> None:
  """Plot BLEU by source length for one evaluation and for other runs.

  Args:
    path: image file to write.
    results: metrics of `compute_metrics` and of `evaluate.compute_results`.
    workdirs: work directories of the other runs, whose results.json is read.

  Raises:
    InputError: one of them has no BLEU by length, or that of another split.
  """
  rows = {results['name']: results['bleu_by_length']}
  for workdir in workdirs:
    file = storage.path('--beside', workdir, storage.FOLDER) / records.RESULTS
    other = records.read_results_file(file, ('name', 'dataset', 'split'))
    if 'bleu_by_length' not in other:
      raise InputError(f'{workdir}: its results have no BLEU by length; it was measured without evaluation.beam')
    if (other['dataset'], other['split']) != (results['dataset'], results['split']):
      raise InputError(
        f'{workdir} was measured on {other["dataset"]}/{other["split"]}, not on {results["dataset"]}/{results["split"]}'
      )
    name = other['name'] if other['name'] not in rows else f'{other["name"]} ({workdir})'
    rows[name] = other['bleu_by_length']
  plots.bleu_by_length(path, rows)


def summary(results: Mapping[str, Any]) -> list[str]:
  """Return lines with the metrics of `scores`, each followed by its signature."""
  lines = []
  for name in ('bleu', 'bleu_tokenised', 'bleu_tokenised_lower', 'chrf'):
    if name in results:
      lines.append(f'  {name.replace("_", " "):24} {results[name]:12.2f}   {results[f"{name}_signature"]}')
  lines.append(f'  {"exact match":24} {results["exact_match"]:12.1%}')
  for row in results.get('bleu_by_length', ()):
    name = f'bleu, {row["words"]} {row.get("unit", "words")}'
    lines.append(f'  {name:24} {row["bleu"]:12.2f}   {row["sentences"]:,} sentences')
  return lines
