"""Translation of lines of text with a trained encoder-decoder.

Sources are sorted by length and padded to few distinct lengths, so that few programs are compiled. Neither changes a
translation.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lmx import documents, placement
from lmx.decoding import beam_search as beam_lib
from lmx.decoding import check_constraints, check_ratios, ensemble, generate
from lmx.errors import InputError, InputWarning, check_range
from lmx.models import registry
from lmx.ranges import SEEDS
from lmx.reporting import waiting
from lmx.types import Batch, Model, Params

_STEP = 8  # sources are padded to a multiple of this, or of an eighth of their length


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of translation.

  Attributes:
    beam: beam size; 1 is greedy.
    alpha: exponent of the length penalty (lmx/decoding/beam_search.py).
    max_extra: maximum number of tokens beyond the source length (Vaswani et al. 2017, section 6.1: 50).
    min_ratio: minimum tokens before EOS per source token (EOS counted), rounded down; 0 for no bound.
    max_ratio: maximum tokens per source token, EOS counted in both, rounded down; 0 for `max_extra`.
    max_length: maximum tokens of a translation, EOS counted, instead of both; 0 to use them.
    penalty: 'gnmt' or 'power', see lmx/decoding/beam_search.py.
    stop: 'bound', 'current' or 'full', see lmx/decoding/beam_search.py.
    tokens: source positions per batch.
    allow_unk: whether a translation may contain the unknown word.
    forbidden: ids that no translation contains; None forbids padding, the unknown word without `allow_unk`, and rows of
      the model's table beyond the tokenizer's ids. Imported transformers models keep these rows in the search, as
      `generate` does; they decode to the unknown word.
    eos_ids: ids that end a translation; None for the tokenizer's end-of-text token.
    forbidden_first: ids that a translation does not begin with, after `forced_first`.
    bad_words: sequences of ids that are never completed; a sequence of one EOS has no effect.
    min_tokens: minimum tokens of a translation before EOS, with `min_ratio` the larger of both.
    no_repeat_ngram: n; no n-gram of tokens occurs twice in a translation; 0 for none.
    repetition_penalty: see `Constraints` of lmx/decoding/sampling.py; 1 for none.
    renormalise, forced_first, forced_end: `renormalise`, `first` and `force_end` of lmx/decoding/beam_search.py.
    sample: sample translations with `temperature` and `seed` instead of searching for the best.
    temperature: divides the logits in sampling.
    seed: seed of sampling; each line has its own key.
    coverage_penalty: beta of Wu et al. 2016 (arXiv 1609.08144), equation 14: the hypotheses of a line are ranked by log
      P(Y) / lp(Y) + beta sum_i log min(sum_j p_ij, 1), where p_ij is the attention from target token j to source token
      i. Deviation: it only ranks hypotheses that the search returns without it.
    replace_unknown: replace each unknown word of a translation by the source word with the most attention (Luong et al.
      2015, arXiv 1410.8206, section 3; Jean et al. 2015, arXiv 1412.2007, section 3.3).
    dictionary: source word -> translation, instead of copying the word.
  """

  beam: int = 4
  alpha: float = 0.6
  max_extra: int = 50
  penalty: str = 'gnmt'
  stop: str = 'bound'
  min_ratio: float = 0.0
  max_ratio: float = 0.0
  max_length: int = 0
  tokens: int = 4096
  allow_unk: bool = False
  forbidden: tuple[int, ...] | None = None
  eos_ids: tuple[int, ...] | None = None
  forbidden_first: tuple[int, ...] = ()
  bad_words: tuple[tuple[int, ...], ...] = ()
  min_tokens: int = 0
  no_repeat_ngram: int = 0
  repetition_penalty: float = 1.0
  renormalise: bool = False
  forced_first: int | None = None
  forced_end: bool = False
  sample: bool = False
  temperature: float = 1.0
  seed: int = 0
  coverage_penalty: float = 0.0
  replace_unknown: bool = False
  dictionary: Mapping[str, str] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    check_range('coverage_penalty', self.coverage_penalty, 0, float('inf'))
    if self.coverage_penalty and (self.sample or self.beam < 2):
      got = 'sampling' if self.sample else f'beam {self.beam}'
      raise InputError(f'coverage_penalty: got {got}; it ranks the hypotheses of a search, so set a beam of at least 2')
    if self.replace_unknown and not self.allow_unk:
      raise InputError('replace_unknown: got allow_unk false, so no unknown word is written; set allow_unk to true')
    if self.dictionary and not self.replace_unknown:
      raise InputError('dictionary: got one without replace_unknown; set replace_unknown to true')
    check_range('seed', self.seed, 0, SEEDS)
    check_range('max_extra', self.max_extra, 0)
    check_range('max_length', self.max_length, 0)
    if self.sample and (self.forced_first is not None or self.forced_end):
      raise InputError(
        'sample: got true with forced_first or forced_end, which only a search has; set evaluation.forced_first=None '
        'and evaluation.forced_end=False'
      )
    check_ratios('', self.min_ratio, self.max_ratio)
    check_constraints('', self.bad_words, self.min_tokens, self.no_repeat_ngram, self.repetition_penalty)
    check_range('the number of tokens of a batch', self.tokens, 1)
    self.search(())  # checks the rest
    generate.Sampler(temperature=self.temperature)

  @property
  def aligns(self) -> bool:
    """Return whether the attention of the hypotheses is needed."""
    return self.replace_unknown or self.coverage_penalty > 0

  def search(self, forbidden: tuple[int, ...]) -> beam_lib.Beam:
    """Return the options of the beam search."""
    return beam_lib.Beam(
      self.beam,
      self.alpha,
      self.penalty,
      self.stop,
      self.renormalise,
      self.forced_first,
      force_end=self.forced_end,
      **self.constraints(forbidden),
    )

  def constraints(self, forbidden: tuple[int, ...]) -> dict[str, Any]:
    """Return the fields of `sampling.Constraints` that searching and sampling share."""
    names = ('forbidden_first', 'bad_words', 'min_tokens', 'no_repeat_ngram', 'repetition_penalty')
    return {'forbidden': forbidden, **{name: getattr(self, name) for name in names}}

  def ends(self, tokenizer: Any) -> tuple[int, ...]:
    """Return the ids that end a translation; `tokenizer` is the target's."""
    return (tokenizer.eos_id,) if self.eos_ids is None else tuple(dict.fromkeys(self.eos_ids))

  def forbidden_ids(self, tokenizer: Any, vocab_size: int) -> tuple[int, ...]:
    """Return the ids that no translation contains; `tokenizer` is the target's."""
    if self.forbidden is None:
      return generate.forbidden_ids(tokenizer, vocab_size, allow_unk=self.allow_unk)
    return self.forbidden


_RANKING = ('beam', 'alpha', 'penalty', 'stop', 'renormalise')


def check_used(options: Options, given: Collection[str]) -> None:
  """Raise InputError if one of the `given` options has no effect, because of others."""
  conflicts = [(name, 'sample', 'which searches nothing') for name in _RANKING if options.sample]
  if not options.sample:
    conflicts += [(name, 'sample=False', 'which samples nothing') for name in ('temperature', 'seed')]
  elif not options.temperature:
    conflicts += [('seed', 'temperature=0', 'which samples nothing')]
  if not options.alpha:
    conflicts += [('penalty', 'alpha=0', 'which penalises no length')]
  if options.max_length and 'max_length' in given:
    conflicts += [
      (name, f'max_length={options.max_length}', 'which replaces it') for name in ('max_extra', 'max_ratio')
    ]
  if options.max_ratio and 'max_ratio' in given:
    conflicts += [('max_extra', f'max_ratio={options.max_ratio:g}', 'which replaces it')]
  if options.forbidden is not None and 'forbidden' in given:
    conflicts += [('allow_unk', 'forbidden', 'which replaces it')]
  for name, other, reason in conflicts:
    if name in given:
      raise InputError(f'{name}: got {getattr(options, name)} with {other}, {reason}; omit one of them')


@dataclasses.dataclass(frozen=True)
class Translation:
  """Translation of a line.

  Attributes:
    text: text in one line.
    tokens: ids, with EOS last unless the limit came first; () for an empty line.
    log_p: log-probability of these tokens in nats.
    score: score that ranks hypotheses: log_p over the length penalty; log_p if it was sampled.
  """

  text: str
  tokens: tuple[int, ...]
  log_p: float
  score: float


@dataclasses.dataclass(frozen=True)
class Translator:
  """Encoder-decoder with its parameters and its tokenizer.

  Attributes:
    model: module of the model.
    cfg: its Config.
    params: its parameters, without an objective's.
    tokenizer: source tokenizer; its `target` is the translation's tokenizer.
  """

  model: Model
  cfg: Any
  params: Params
  tokenizer: Any

  def sources(self, lines: Sequence[str], *, truncate: bool = False, first: int = 1) -> list[np.ndarray]:
    """Return the ids of each line followed by EOS; no ids for a line without text.

    Args:
      lines: lines of text.
      truncate: truncate lines longer than the model's positions, with a warning, instead of raising InputError.
      first: number of the first line, for messages.

    Raises:
      InputError: a line is longer than the model's positions.
    """
    limit, all_ids = max_source_length(self.cfg), []
    for number, ids in enumerate(self.tokenizer.encode_batch([line.strip() for line in lines]), first):
      if ids.size and limit is not None and len(ids) >= limit:
        if not truncate:
          raise InputError(
            f'line {number} has {len(ids)} tokens, but the model has only {limit} positions, one of '
            'them for the end-of-sequence token; divide it, or truncate it (--truncate)'
          )
        warnings.warn(
          f'line {number} has {len(ids)} tokens and is truncated to {limit - 1}', InputWarning, stacklevel=2
        )
        ids = ids[: limit - 1]
      all_ids.append(np.append(ids, self.tokenizer.eos_id).astype(np.int32) if ids.size else ids)
    return all_ids

  def targets(self, lines: Sequence[str]) -> list[np.ndarray]:
    """Return the ids of each line followed by EOS."""
    target = self.tokenizer.target
    all_ids = target.encode_batch([line.strip() for line in lines])
    return [np.append(ids, target.eos_id).astype(np.int32) for ids in all_ids]

  def text(self, ids: Iterable[int]) -> str:
    """Decode ids, without EOS, to text in one line; an id beyond the tokenizer's is the unknown word."""
    target = self.tokenizer.target
    known = (int(i) if i < target.vocab_size else target.unk_id for i in ids if i != target.eos_id)
    return one_line(target.decode([i for i in known if i is not None]))


def word_starts(tokenizer: Any, line: str, ids: np.ndarray) -> np.ndarray:
  """Return for each id whether it begins a word; words are separated by white space.

  Raises:
    InputError: the ids are not the concatenated ids of the words, for example because a token spans two words.
  """
  # Each word has its preceding white space; tokenizers with `space_first` add a space themselves.
  words = re.findall(r'\s*\S+', line.strip())
  tokens = [tokenizer.encode(word[1:] if i and tokenizer.space_first else word) for i, word in enumerate(words)]
  if words and np.array_equal(np.concatenate(tokens), ids):
    starts = np.zeros(len(ids), bool)
    starts[np.cumsum([0, *(len(ids) for ids in tokens[:-1])])] = True
    return starts
  raise InputError(f'the tokens of "{line}" do not belong to one word each, so words cannot be aligned')


def token_labels(tokenizer: Any, ids: Any) -> list[str]:
  """Return the text of each token for the rows or columns of a map, after a dot if it is a subword within a word."""
  ids = np.asarray(ids, np.int32)
  unknown = tokenizer.eos_id if tokenizer.unk_id is None else tokenizer.unk_id
  ids = np.where(ids < tokenizer.vocab_size, ids, unknown)  # rows of the table beyond the tokenizer
  begins = np.append(True, tokenizer.starts_word(ids)[1:])
  texts = ['<eos>' if i == tokenizer.eos_id else tokenizer.decode([int(i)]).strip() for i in ids]
  if tokenizer.kind in ('bytes', 'characters'):
    return texts
  return [text if first else f'\u00b7{text}' for text, first in zip(texts, begins, strict=True)]


def max_source_length(cfg: Any) -> int | None:
  """Return the most tokens of a source, EOS included: `longest` of a model's Config, else its window; None for no
  limit."""
  return getattr(cfg, 'longest', None) or generate.window(cfg)


def build_translator(run: Any, params: Params, tokenizer: Any) -> Translator:
  """Return the translator of a run.

  Args:
    run: `lmx.config.schema.Run`.
    params: the model's parameters, without the objective's.
    tokenizer: the run's tokenizer.

  Raises:
    InputError: the model is not an encoder-decoder, or the tokenizer has no EOS.
  """
  model = registry.get(run.model_name)
  if model.READS != 'source':
    raise InputError(f'{run.model_name} has no source, so it cannot translate; choose an encoder-decoder run')
  if tokenizer.eos_id is None:
    raise InputError('this tokenizer has no end-of-text token, which a translation starts and ends with')
  return Translator(model, run.model, params, tokenizer)


def combine(translators: Sequence[Translator]) -> Translator:
  """Return the translator of an ensemble (lmx/decoding/ensemble.py), with the tokenizer of the first.

  Raises:
    InputError: the vocabularies differ in size.
  """
  configs = tuple(one.cfg for one in translators)
  for of in (generate.source_size, lambda cfg: cfg.V):
    if len(sizes := sorted({of(cfg) for cfg in configs})) > 1:
      raise InputError(f'--ensemble: got models with vocabularies of {sizes} tokens; expected one size for all')
  least = lambda limits: min((x for x in limits if x is not None), default=None)
  limits = least(map(generate.window, configs)), least(map(max_source_length, configs))
  cfg = ensemble.Config(configs, sizes[0], *limits, source_V=generate.source_size(configs[0]))
  model: Any = ensemble.Ensemble(tuple(one.model for one in translators))
  params: Any = tuple(one.params for one in translators)
  return Translator(model, cfg, params, translators[0].tokenizer)


def padded_length(length: int, limit: int | None) -> int:
  """Return the padded length of a source of `length` tokens, at most the model's positions."""
  step = max(_STEP, 2 ** (length.bit_length() - 3))
  size = -(-length // step) * step
  return size if limit is None else min(size, limit)


def batches(sources: Sequence[np.ndarray], tokens: int, limit: int | None) -> Iterator[tuple[list[int], Any]]:
  """Yield (indices of the sources, {source_BS, source_valid_BS}) of all non-empty sources, short ones first.

  The last rows of a batch may repeat its first one, so that all batches of a length have the same number of rows.
  """
  buckets: dict[int, list[int]] = {}
  for i, ids in enumerate(sources):
    if len(ids):
      buckets.setdefault(padded_length(len(ids), limit), []).append(i)
  for S, members in sorted(buckets.items()):
    rows = max(min(tokens // S, 2 ** (len(members) - 1).bit_length()), 1)
    for start in range(0, len(members), rows):
      chosen = members[start : start + rows]
      source_BS, valid_BS = np.zeros((rows, S), np.int32), np.zeros((rows, S), bool)
      for row in range(rows):
        ids = sources[chosen[row] if row < len(chosen) else chosen[0]]
        source_BS[row, : len(ids)] = ids
        valid_BS[row, : len(ids)] = True
      yield chosen, {'source_BS': source_BS, 'source_valid_BS': valid_BS}


def translate(
  translator: Translator,
  lines: Sequence[str],
  options: Options = Options(),
  *,
  truncate: bool = False,
  first: int = 1,
  title: str = '',
) -> list[list[Translation]]:
  """Translate lines; return the hypotheses of each line, best first.

  Args:
    translator: result of `build_translator`.
    lines: lines of text; a line without text has an empty translation.
    options: options of translation.
    truncate: see `Translator.sources`.
    first: number of the first line, for messages and for the keys of sampling.
    title: title of the progress bar; '' for no bar.

  Raises:
    InputError: a line is longer than the model's positions, or the scores of its translation are not finite.
  """
  sources = translator.sources(lines, truncate=truncate, first=first)
  return translate_ids(translator, sources, options, lines=lines, first=first, title=title)


def translate_ids(
  translator: Translator,
  sources: Sequence[np.ndarray],
  options: Options = Options(),
  *,
  lines: Sequence[str] = (),
  first: int = 1,
  title: str = '',
) -> list[list[Translation]]:
  """Translate ids that `Translator.sources` returned of `lines`, which `replace_unknown` reads; see `translate`."""
  check_options(translator, options)
  translations: list[list[Translation]] = [[Translation('', (), 0.0, 0.0)] for _ in sources]
  limit = max_source_length(translator.cfg)
  forbidden = options.forbidden_ids(translator.tokenizer.target, translator.cfg.V)
  decode = functools.partial(_sample if options.sample else _search, translator, options, forbidden)
  with waiting.Bar(len(sources), title, ' lines') as progress:
    for chosen, source in batches(sources, options.tokens, limit):
      for i, hypotheses in zip(chosen, decode(source, [first + i for i in chosen]), strict=True):
        translations[i] = hypotheses
      progress.update(len(chosen))
  return _align(translator, lines, sources, translations, options) if options.aligns else translations


def _align(
  translator: Translator,
  lines: Sequence[str],
  sources: Sequence[np.ndarray],
  translations: Sequence[Sequence[Translation]],
  options: Options,
) -> list[list[Translation]]:
  """Return the translations ranked with the coverage penalty, their unknown words replaced."""
  flat = [(i, one) for i, hypotheses in enumerate(translations) for one in hypotheses]
  targets = [np.asarray(one.tokens, np.int32) for _, one in flat]
  weights = alignments(translator, [sources[i] for i, _ in flat], targets, options.tokens)
  aligned: list[list[Translation]] = [[] for _ in translations]
  for (i, one), a_TS in zip(flat, weights, strict=True):
    if one.tokens and options.replace_unknown:
      words = translator.tokenizer.split(lines[i].strip())[: len(sources[i]) - 1]
      one = dataclasses.replace(one, text=_replace_unknown(translator, one.tokens, words, a_TS, options.dictionary))
    penalty = options.coverage_penalty * coverage(a_TS) if one.tokens else 0.0
    aligned[i].append(dataclasses.replace(one, score=one.score + penalty))
  return [sorted(hypotheses, key=lambda one: -one.score) for hypotheses in aligned]


def coverage(a_TS: np.ndarray) -> float:
  """Return sum_i log min(sum_j p_ij, 1) of the attention from target to source tokens, both with EOS.

  Wu et al. 2016 (arXiv 1609.08144), equation 14. A source token without attention counts as the smallest float32.
  """
  total_S = np.sum(np.asarray(a_TS, np.float64), axis=0)
  return float(np.sum(np.log(np.clip(total_S, np.finfo(np.float32).tiny, 1.0))))


def _replace_unknown(
  translator: Translator,
  tokens: Sequence[int],
  source: Sequence[str],
  a_TS: np.ndarray,
  dictionary: Mapping[str, str],
) -> str:
  """Return the text of ids, with unknown words replaced by the translation or copy of a source word."""
  tokenizer, words = translator.tokenizer.target, []
  for token, a_S in zip(tokens, a_TS, strict=True):
    if token == tokenizer.unk_id or token >= tokenizer.vocab_size:
      word = source[int(np.argmax(a_S[: len(source)]))]
      words.append(dictionary.get(word, word))
    elif token != tokenizer.eos_id:
      words.append(tokenizer.id_to_token(token))
  return one_line(tokenizer.join(words))


def one_line(text: str) -> str:
  """Return text with spaces for line ends."""
  return re.sub(r'\s*[\n\r]+\s*', ' ', text).strip()


def read_dictionary(path: str) -> dict[str, str]:
  """Return source word -> target word of a file with a pair a line; warn of lines that give a word another target.

  The first pair of a word counts.

  Raises:
    InputError: the file cannot be read, or a line has no two words.
  """
  dictionary: dict[str, str] = {}
  repeated: list[int] = []
  for number, line in enumerate(documents.read_lines(path), 1):
    pair = line.split()
    if len(pair) != 2:
      raise InputError(f'{path}, line {number}: got {len(pair)} words; expected a source word and its translation')
    if dictionary.setdefault(*pair) != pair[1]:
      repeated.append(number)
  if repeated:
    note = f'{path}: got {len(repeated):,} words again with another translation (line {repeated[0]} is the first)'
    warnings.warn(f'{note}; the first translation of each word is taken', InputWarning, stacklevel=2)
  return dictionary


def _limits(length: np.ndarray | int, options: Options) -> Any:
  """Return the maximum translation length for a source of `length` tokens; both counts include EOS."""
  if options.max_length:
    return np.full_like(length, options.max_length)
  if options.max_ratio:
    return np.maximum(options.max_ratio * length, 1).astype(int)
  return length - 1 + options.max_extra


def _search(
  translator: Translator, options: Options, forbidden: tuple[int, ...], source: Batch, numbers: Sequence[int]
) -> list[list[Translation]]:
  """Return the hypotheses of a beam search, at least one, for each of the first `len(numbers)` rows."""
  length_B = np.sum(source['source_valid_BS'], axis=1)
  beams = beam_lib.search(
    translator.model,
    translator.cfg,
    translator.params,
    np.full((len(length_B), 1), translator.tokenizer.target.start_id, np.int32),
    beam=options.search(forbidden),
    limits=_limits(length_B, options),
    least=(options.min_ratio * length_B).astype(int),
    eos_ids=options.ends(translator.tokenizer.target),
    source=source,
    steps=int(_limits(source['source_BS'].shape[1], options)),
  )
  if not beams.counts_BK[:, 0].all():
    if options.search(forbidden).of_text:
      raise InputError(
        f'{generate.name_constraints(options.search(()))}: got values that exclude every token; relax one of them'
      )
    raise InputError("the model's scores are not finite, as after a training that diverged; choose another checkpoint")
  rows = []
  for b in range(len(numbers)):
    each = zip(*(part[b] for part in beams), strict=True)
    rows.append([_build_translation(translator, tokens[:n], log_p, score) for tokens, n, log_p, score in each if n])
  return rows


def _sample(
  translator: Translator, options: Options, forbidden: tuple[int, ...], source: Batch, numbers: Sequence[int]
) -> list[list[Translation]]:
  """Return one sampled translation for each of the first `len(numbers)` rows; a row's key depends on its number."""
  B, S = source['source_BS'].shape
  numbers_B = np.resize(np.asarray(numbers), B)
  keys_B = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(options.seed), numbers_B)
  window, target = generate.window(translator.cfg), translator.tokenizer.target
  steps = int(_limits(S, options))
  steps = steps if window is None else min(steps, window - 1)
  sampled = generate.generate(
    translator.model,
    translator.cfg,
    translator.params,
    np.full((B, 1), target.start_id),
    steps=steps,
    key=keys_B,
    sampler=generate.Sampler(temperature=options.temperature, **options.constraints(forbidden)),
    eos_ids=options.ends(target),
    source=source,
  )
  counts_B = np.minimum(sampled.counts_B, _limits(np.sum(source['source_valid_BS'], axis=1), options))
  rows = [tokens_T[:count] for tokens_T, count in zip(sampled.tokens_BT, counts_B, strict=True)]
  log_p = [float(np.sum(each)) for each in _log_probabilities(translator, source, rows)]
  return [[_build_translation(translator, rows[b], log_p[b], log_p[b])] for b in range(len(numbers))]


def _build_translation(translator: Translator, tokens_T: np.ndarray, log_p: float, score: float) -> Translation:
  return Translation(translator.text(tokens_T), tuple(map(int, tokens_T)), float(log_p), float(score))


def _teacher_forcing_batch(translator: Translator, source: Batch, targets: Sequence[np.ndarray]) -> dict[str, Any]:
  """Return a teacher-forcing batch, which predicts each target token from those before it."""
  limit = generate.window(translator.cfg)
  T = padded_length(max(map(len, targets)), limit)
  tokens_BT, targets_BT = np.zeros((2, len(targets), T), np.int32)
  for b, ids in enumerate(targets):
    if len(ids) > T:
      raise InputError(f'a translation has {len(ids)} tokens, but the model has only {limit} positions')
    targets_BT[b, : len(ids)] = ids
    tokens_BT[b, : len(ids)] = np.append(translator.tokenizer.target.start_id, ids[:-1])
  valid_BT = np.arange(T) < np.array([[len(ids)] for ids in targets])
  return {**source, 'tokens_BT': tokens_BT, 'targets_BT': targets_BT, 'valid_BT': valid_BT}


@functools.partial(placement.jit, static=2)
def _nll(model: Model, cfg: Any, params: Params, batch: Batch) -> Any:
  features, _ = model.apply(cfg, params, batch, model.init_state(cfg, len(batch['tokens_BT'])))
  return model.nll(cfg, params, features, batch['targets_BT'])


@functools.partial(placement.jit, static=2)
def _attention(model: Model, cfg: Any, params: Params, batch: Batch) -> Any:
  return model.alignment(cfg, params, batch)


def _log_probabilities(translator: Translator, source: Batch, targets: Sequence[np.ndarray]) -> list[np.ndarray]:
  batch = _teacher_forcing_batch(translator, source, targets)
  nll_BT = np.asarray(_nll(translator.model, translator.cfg, translator.params, batch))
  return [-row_T[: len(ids)] for row_T, ids in zip(nll_BT, targets, strict=True)]


def log_probabilities(
  translator: Translator, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], tokens: int = 4096
) -> list[np.ndarray]:
  """Return the log-probability of each token of each target given its source, in nats; float32.

  Args:
    translator: result of `build_translator`.
    sources: result of `Translator.sources`.
    targets: result of `Translator.targets`.
    tokens: source positions of a batch.
  """
  log_p = [np.zeros(0, np.float32) for _ in sources]
  for chosen, source in batches(sources, tokens, max_source_length(translator.cfg)):
    rows = [targets[i] for i in np.resize(chosen, len(source['source_BS']))]
    for i, each in zip(chosen, _log_probabilities(translator, source, rows), strict=False):
      log_p[i] = each
  return log_p


def check_options(translator: Translator, options: Options) -> None:
  """Raise InputError if the options need attention that the model lacks, or tokens are not words."""
  if options.aligns:
    check_attention(translator)
  if options.replace_unknown and translator.tokenizer.kind != 'words':
    raise InputError(
      f'replace_unknown: got the tokenizer "{translator.tokenizer.kind}"; expected "words", whose tokens are words'
    )


def check_attention(translator: Translator) -> None:
  """Raise InputError if the model has no attention, and so no alignments."""
  model = translator.model
  source: Any = {'source_BS': np.zeros((1, 1), np.int32), 'source_valid_BS': np.ones((1, 1), bool)}
  forced = _teacher_forcing_batch(translator, source, [np.zeros(1, np.int32)])
  jax.eval_shape(functools.partial(model.alignment, translator.cfg), translator.params, forced)  # designs without one


def alignments(
  translator: Translator, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], tokens: int = 4096
) -> list[np.ndarray]:
  """Return the attention weights of each pair: (target tokens, source tokens) float32, rows sum to 1.

  Args as in `log_probabilities`. Source tokens are in the order of the text.

  Raises:
    InputError: the model has no attention.
  """
  model, cfg = translator.model, translator.cfg
  check_attention(translator)
  weights = [np.zeros((0, 0), np.float32) for _ in sources]
  for chosen, source in batches(sources, tokens, max_source_length(cfg)):
    rows = [targets[i] for i in np.resize(chosen, len(source['source_BS']))]
    a_BTS = np.asarray(
      _attention(model, cfg, translator.params, _teacher_forcing_batch(translator, source, rows)), np.float32
    )
    for i, a_TS in zip(chosen, a_BTS, strict=False):
      weights[i] = a_TS[: len(targets[i]), : len(sources[i])]
  return weights
