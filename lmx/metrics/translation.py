"""Metrics of translations: BLEU and chrF by sacreBLEU, the tokenised BLEU of papers, BLEU by length, alignment error.

BLEU is Papineni et al. 2002; sacreBLEU (Post 2018, arXiv 1804.08771) fixes its tokens and records the
computation in a signature, so that scores with one signature are comparable. Earlier papers print BLEU over text
tokenised by the Moses scripts, without smoothing (multi-bleu.perl): `tokenised_bleu`. English-German scores (Luong et
al. 2015, Vaswani et al. 2017) split hyphenated compounds first (tensor2tensor's get_ende_bleu.sh); those of other pairs
do not. Scores published on Multi30k have normalised punctuation and lower case (Wu et al. 2021, arXiv 2105.14462: the
tokens of the three test sets in their release are equal to these). The two kinds differ by a point or two and are not
comparable.

sacreBLEU's tokens follow the language of the references (`bleu_tokens`). Without spaces between words (see
lmx/metrics/writing_systems.py) there is no tokenised BLEU, and lengths are in characters.

Deviation: the Moses tokenizer is the sacremoses port. `<unk>` is one token, as in the papers' output.

Axes: T words of the target, S words of the source.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx import documents
from lmx.errors import InputError, InputWarning
from lmx.metrics import writing_systems
from lmx.metrics.metric import Metric

METRICS = tuple(  # shown with their signatures (lmx/evaluation/translation.py)
  Metric(name, True, ',.2f', shown=False)
  for name in ('bleu', 'bleu_tokenised', 'bleu_tokenised_lower', 'chrf', 'bleu_lower', 'bleu_international')
)

_COMPOUND = re.compile(r'(\S)-(\S)')
_UNKNOWN = re.escape('<unk>')
_MECAB = {'ja': 'MeCab', 'ko': 'mecab_ko'}  # language -> library of its tokenizer in sacreBLEU
_LINK = re.compile(r'(\d{1,9})([-p?])(\d{1,9})')
Links = set[tuple[int, int]]  # (word of the source, word of the target), counted from 0


class Bleu(NamedTuple):
  """A BLEU score.

  Attributes:
    score: 0 to 100.
    signature: sacreBLEU's description of the computation.
    brevity_penalty: factor for output shorter than the references; 1 for none.
    ratio: number of output tokens over number of reference tokens.
    precisions: of 1- to 4-grams, in percent.
  """

  score: float
  signature: str
  brevity_penalty: float
  ratio: float
  precisions: tuple[float, ...]


def bleu_tokens(language: str, references: Sequence[str]) -> str:
  """Return sacreBLEU's tokenizer for a target language, as `sacrebleu -l` chooses it.

  'zh' for Chinese; 'ja-mecab' and 'ko-mecab' if their library is installed, else 'char'; 'char' for other text
  without spaces between words; '13a' for the rest.
  """
  code = writing_systems.code(language)
  if code in _MECAB:
    return f'{code}-mecab' if importlib.util.find_spec(_MECAB[code]) else 'char'
  if code == 'zh':
    return 'zh'
  return 'char' if writing_systems.is_unspaced(references, language) else '13a'


def bleu(
  hypotheses: Sequence[str], references: Sequence[str], *, lower_case: bool = False, tokens: str = '13a'
) -> Bleu:
  """Return the BLEU of a corpus of detokenised sentences with sacreBLEU's own tokens.

  Args:
    hypotheses: translations.
    references: the reference of each.
    lower_case: compare without case.
    tokens: sacreBLEU's tokenizer, see `bleu_tokens`.

  Raises:
    InputError: different numbers of sentences, none, or an element that is not a string.
  """
  _check(hypotheses, references)
  metric = _sacrebleu().BLEU(lowercase=lower_case, tokenize=tokens)
  return _bleu(metric.corpus_score(list(hypotheses), [list(references)]), str(metric.get_signature()))


def tokenised_bleu(
  hypotheses: Sequence[str],
  references: Sequence[str],
  *,
  language: str = 'de',
  split_compounds: bool = False,
  lower_case: bool = False,
  normalise: bool = False,
) -> Bleu:
  """Return BLEU as papers before sacreBLEU print it: Moses tokens, no smoothing, as multi-bleu.perl.

  Args:
    hypotheses: translations, not tokenised.
    references: the reference of each, not tokenised.
    language: language of the tokenizer's rules.
    split_compounds: write `a-b` as three tokens, `a ##AT##-##AT## b` (Vaswani et al. 2017, English-German).
    lower_case: lower-case both first.
    normalise: apply Moses' punctuation normalisation to both first; with `lower_case` the convention of Multi30k.

  Raises:
    InputError: as `bleu`.
  """
  _check(hypotheses, references)
  prepared = lambda texts: [moses(text, language, split_compounds, lower_case, normalise) for text in texts]
  metric = _sacrebleu().BLEU(tokenize='none', smooth_method='none', force=True)
  parts = (
    f'tok:moses-{language}',
    'case:lc' if lower_case else 'case:mixed',
    f'punct:{"normalised" if normalise else "raw"}',
    f'compounds:{"split" if split_compounds else "whole"}',
    'smooth:none',
    f'sacremoses:{importlib.metadata.version("sacremoses")}',
  )
  return _bleu(metric.corpus_score(prepared(hypotheses), [prepared(references)]), '|'.join(parts))


def moses(
  text: str, language: str = 'de', split_compounds: bool = False, lower_case: bool = False, normalise: bool = False
) -> str:
  """Return the text as Moses tokens joined by spaces; see `tokenised_bleu`."""
  tokenizer, normalizer = _moses(language)
  text = normalizer.normalize(text) if normalise else text
  text = text.lower() if lower_case else text
  tokens = tokenizer.tokenize(text, escape=False, return_str=True, protected_patterns=[_UNKNOWN])
  return _COMPOUND.sub(r'\1 ##AT##-##AT## \2', tokens) if split_compounds else tokens


def _sacrebleu() -> Any:
  import sacrebleu.metrics  # imported here, as in `_moses`, because it takes a tenth of the startup time of `lmx train`

  return sacrebleu.metrics


@functools.cache
def _moses(language: str) -> Any:
  import sacremoses

  return sacremoses.MosesTokenizer(lang=language), sacremoses.MosesPunctNormalizer(lang=language)


def _bleu(result: Any, signature: str) -> Bleu:
  ratio = result.sys_len / result.ref_len if result.ref_len else 0.0
  return Bleu(float(result.score), signature, float(result.bp), ratio, tuple(map(float, result.precisions)))


def chrf(hypotheses: Sequence[str], references: Sequence[str], *, lower_case: bool = False) -> tuple[float, str]:
  """Return chrF2 (Popovic 2015) of a corpus, 0 to 100, and its signature. Arguments and errors as for `bleu`."""
  _check(hypotheses, references)
  metric = _sacrebleu().CHRF(lowercase=lower_case)
  result = metric.corpus_score(list(hypotheses), [list(references)])
  return float(result.score), str(metric.get_signature())


def from_signature(name: str, signature: str) -> tuple[Any, Callable[[str], str]]:
  """Return (sacreBLEU's metric, preparation of a text) of a metric of `compute_metrics` from its signature."""
  options = dict(part.split(':', 1) for part in signature.split('|'))
  lower_case = options['case'] == 'lc'
  if name == 'chrf':
    return _sacrebleu().CHRF(lowercase=lower_case), str
  if not options['tok'].startswith('moses-'):
    return _sacrebleu().BLEU(lowercase=lower_case, tokenize=options['tok']), str
  language, choices = options['tok'].removeprefix('moses-'), (options['compounds'], options['punct'])
  prepare = lambda text: moses(text, language, choices[0] == 'split', lower_case, choices[1] == 'normalised')
  return _sacrebleu().BLEU(tokenize='none', smooth_method='none', force=True), prepare


def bleu_by_length(
  hypotheses: Sequence[str],
  references: Sequence[str],
  source_lengths: Sequence[int],
  edges: Sequence[int] = (10, 20, 30, 40, 50),
  score: Callable[[Sequence[str], Sequence[str]], Bleu] = bleu,
  unit: str = 'words',
) -> list[dict[str, Any]]:
  """Return the BLEU of the sentences in each range of source lengths (Bahdanau et al. 2014, figure 2).

  Args:
    hypotheses: translations.
    references: the reference of each.
    source_lengths: length of each source sentence.
    edges: upper end of each range, in increasing order; longer sentences are a last range.
    score: metric of a subset.
    unit: unit of the lengths.

  Returns:
    For each range that has sentences {'words' (the range as text), 'unit', 'above', 'up_to' (None: no limit),
    'sentences', 'bleu'}.

  Raises:
    InputError: as `bleu`, another number of lengths, or edges that do not rise.
  """
  _check(hypotheses, references)
  if len(source_lengths) != len(hypotheses):
    raise InputError(f'{len(source_lengths)} source lengths for {len(hypotheses)} translations')
  if not edges or any(low >= high for low, high in zip([0, *edges], edges, strict=False)):
    raise InputError(f'edges of source lengths: got {tuple(edges)}; expected rising numbers above 0')
  range_I = np.searchsorted(edges, source_lengths)
  scores = []
  for number, (above, up_to) in enumerate(zip([0, *edges], [*edges, None], strict=True)):
    indices = np.flatnonzero(range_I == number).tolist()
    if len(indices):
      part = score([hypotheses[i] for i in indices], [references[i] for i in indices])
      least = min(above + 1, *(source_lengths[i] for i in indices))  # 0 in the first range if a source has no words
      words = f'over {above}' if up_to is None else f'{least} to {up_to}'
      row = {'words': words, 'unit': unit, 'above': above, 'up_to': up_to}
      scores.append({**row, 'sentences': len(indices), 'bleu': part.score})
  return scores


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
  for name, texts in (('translations', hypotheses), ('references', references)):
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
      raise InputError(f'the {name} must be a list of strings, one a sentence')
  if len(hypotheses) != len(references):
    raise InputError(f'{len(hypotheses):,} translations for {len(references):,} references')
  if not len(hypotheses):
    raise InputError('there are no translations to score')


def alignment_error_rate(
  alignments: Sequence[Iterable[tuple[int, int]]],
  sure: Sequence[Iterable[tuple[int, int]]],
  possible: Sequence[Iterable[tuple[int, int]]],
) -> float:
  """Return the alignment error rate of a corpus (Och and Ney 2003, section 5.1): 1 - (|A & S| + |A & P|) / (|A| + |S|).

  Args:
    alignments: predicted links of each sentence.
    sure: S, the annotators' sure links.
    possible: P; sure links count as possible too.

  Raises:
    InputError: different numbers of sentences, or no link at all.
  """
  if not len(alignments) == len(sure) == len(possible):
    raise InputError(
      f'alignments of {len(alignments):,} sentences, sure links of {len(sure):,}, possible ones of {len(possible):,}'
    )
  hits = total = 0
  for predicted, certain, maybe in zip(alignments, sure, possible, strict=True):
    links, sure_links = set(predicted), set(certain)
    hits += len(links & sure_links) + len(links & (sure_links | set(maybe)))
    total += len(links) + len(sure_links)
  if not total:
    raise InputError('alignments: got no link, predicted or sure; expected at least one')
  return 1 - hits / total


def parse_alignments(lines: Iterable[str], *, first: int = 0, where: str = 'alignments') -> tuple[list[Links], ...]:
  """Parse links written as `i-j` (sure) and `ipj` or `i?j` (possible), source word first, a sentence a line.

  Args:
    lines: lines of a file of gold or predicted alignments.
    first: index of a sentence's first word in the file, 0 or 1.
    where: name of the file in messages.

  Returns:
    (sure links, possible links, sure ones included) of each sentence, counted from 0.

  Raises:
    InputError: naming the line and its invalid text.
  """
  sure: list[Links] = []
  possible: list[Links] = []
  for number, line in enumerate(lines, 1):
    sure.append(set())
    possible.append(set())
    for text in line.split():
      match = _LINK.fullmatch(text)
      link = (int(match[1]) - first, int(match[3]) - first) if match else (-1, -1)
      if match is None or min(link) < 0:
        raise InputError(
          f'{where}, line {number}: got "{text}"; expected a link i-j, or ipj for a possible one, '
          f'words numbered from {first}'
        )
      possible[-1].add(link)
      if match[2] == '-':
        sure[-1].add(link)
  return sure, possible


def read_alignments(path: str, *, first: int = 0) -> tuple[list[Links], ...]:
  """Apply `parse_alignments` to a file. Raises InputError also if it cannot be read."""
  return parse_alignments(documents.read_lines(path), first=first, where=path)


def between_words(a_TS: np.ndarray, source_starts_S: np.ndarray, target_starts_T: np.ndarray) -> np.ndarray:
  """Return attention between words from that between subwords: summed over the source, averaged over the target.

  Args:
    a_TS: weights, rows of the target.
    source_starts_S: True where a subword begins a word; the first one does.
    target_starts_T: the same for the target.
  """
  source = np.add.reduceat(np.asarray(a_TS, np.float64), np.flatnonzero(source_starts_S), axis=1)
  starts = np.flatnonzero(target_starts_T)
  sizes = np.diff([*starts, len(target_starts_T)])
  return np.add.reduceat(source, starts, axis=0) / sizes[:, None]


def links(a_TS: np.ndarray) -> Links:
  """Link each target word to the source word of largest weight (Luong et al. 2015, section 5.4)."""
  return {(int(source), target) for target, source in enumerate(np.argmax(a_TS, axis=1))}


def compute_metrics(
  hypotheses: Sequence[str],
  references: Sequence[str],
  *,
  sides: Sequence[str] = ('', ''),
  sources: Sequence[str] = (),
  lower_case: bool = False,
  compounds: str = 'en_de',
) -> dict[str, Any]:
  """Return all metrics of a translated corpus, as in `results.json`, each with its signature.

  'bleu_lower' and 'bleu_tokenised_lower' (Multi30k's convention) are for runs that lower-case their text.
  'bleu_international' has the tokens of mteval-v14, as t2t-bleu of tensor2tensor (utils/bleu_hook.py).

  Args:
    hypotheses: translations.
    references: the reference of each.
    sides: languages of source and references. The second one chooses the tokens; without two letters, as for ''
      and for languages without spaces between words, there are no tokenised scores.
    sources: for BLEU by length; () skips it.
    lower_case: also compute 'bleu', by length too, and 'chrf' without case; their signatures record it.
    compounds: whether 'bleu_tokenised' splits hyphenated words: 'en_de' (only that pair), 'always' or 'never'.
  """
  if empty := sum(not text.strip() for text in references):
    note = f'references: got {empty:,} of {len(references):,} without text; translations of these count as wrong'
    warnings.warn(note, InputWarning, stacklevel=2)
  measure = functools.partial(bleu, tokens=bleu_tokens(sides[1], references))
  lowered = measure(hypotheses, references, lower_case=True)
  main = lowered if lower_case else measure(hypotheses, references)
  score, signature = chrf(hypotheses, references, lower_case=lower_case)
  metrics: dict[str, Any] = {
    'bleu': main.score,
    'bleu_signature': main.signature,
    'brevity_penalty': main.brevity_penalty,
    'length_ratio': main.ratio,
    'precisions': list(main.precisions),
    'bleu_lower': lowered.score,
    'bleu_lower_signature': lowered.signature,
    'chrf': score,
    'chrf_signature': signature,
  }
  if bleu_tokens(sides[1], references) == '13a':
    international = bleu(hypotheses, references, lower_case=lower_case, tokens='intl')
    metrics |= {'bleu_international': international.score, 'bleu_international_signature': international.signature}
  if len(sides[1]) == 2 and not writing_systems.is_unspaced(references, sides[1]):
    split = compounds == 'always' or (compounds == 'en_de' and tuple(sides) == ('en', 'de'))
    lower = {'lower_case': True, 'normalise': True}
    for name, options in (('tokenised', {'split_compounds': split}), ('tokenised_lower', lower)):
      result = tokenised_bleu(hypotheses, references, language=sides[1], **options)
      metrics |= {f'bleu_{name}': result.score, f'bleu_{name}_signature': result.signature}
  if len(sources):
    measure_range = functools.partial(measure, lower_case=lower_case)
    lengths, unit = source_lengths(sources, sides[0])
    metrics['bleu_by_length'] = bleu_by_length(hypotheses, references, lengths, score=measure_range, unit=unit)
  return metrics


def source_lengths(sources: Sequence[str], language: str = '') -> tuple[list[int], str]:
  """Return (length of each source, at least 1, their unit): words, or characters without spaces between words."""
  if writing_systems.is_unspaced(sources, language):
    return [max(writing_systems.count_characters(text), 1) for text in sources], 'characters'
  return [max(len(text.split()), 1) for text in sources], 'words'
