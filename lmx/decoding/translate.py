"""Translation with a trained encoder-decoder: lines of text in, lines of text out.

Sources are sorted by length and padded to one of a few lengths, so that few programs are compiled; neither the order
nor the padding changes a translation.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from lmx.decoding import beam_search as beam_lib
from lmx.decoding import generate
from lmx.errors import InputError, InputWarning, check_range
from lmx.models import registry
from lmx.types import Batch, Model, Params

_STEP = 8  # sources are padded to a multiple of this, or of an eighth of their length


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of translation.

  Attributes:
    beam: hypotheses of the beam search; 1 is greedy.
    alpha: exponent of the length penalty (lmx/decoding/beam_search.py).
    max_extra: a translation has at most so many tokens more than its source (Vaswani et al. 2017, section 6.1: 50).
    min_ratio: the search writes at least so many tokens for each token of the source and its end mark, rounded down,
      before the end mark of the translation; 0 for no such bound.
    max_ratio: most tokens for each token of the source, both end marks counted, rounded down; 0 leaves it to
      `max_extra`.
    penalty: 'gnmt' or 'power', see lmx/decoding/beam_search.py.
    stop: 'bound', 'current' or 'full', see lmx/decoding/beam_search.py.
    tokens: positions of the source in a batch.
    allow_unk: whether a translation may hold the unknown word.
    sample: draw translations with `temperature` and `seed` instead of seeking the best.
    temperature: divides the scores of the tokens drawn.
    seed: of the tokens drawn; a line's draws are its own.
  """

  beam: int = 4
  alpha: float = 0.6
  max_extra: int = 50
  penalty: str = 'gnmt'
  stop: str = 'bound'
  min_ratio: float = 0.0
  max_ratio: float = 0.0
  tokens: int = 4096
  allow_unk: bool = False
  sample: bool = False
  temperature: float = 1.0
  seed: int = 0

  def __post_init__(self) -> None:
    check_range('max_extra', self.max_extra, 0)
    beam_lib.check_ratios('', self.min_ratio, self.max_ratio)
    check_range('the number of tokens of a batch', self.tokens, 1)
    self.search(())  # checks the rest
    generate.Sampler(temperature=self.temperature)

  def search(self, forbidden: tuple[int, ...]) -> beam_lib.Beam:
    """The beam search of these options."""
    return beam_lib.Beam(self.beam, self.alpha, self.penalty, self.stop, forbidden=forbidden)


@dataclasses.dataclass(frozen=True)
class Translation:
  """A translation of a line.

  Attributes:
    text: in one line.
    tokens: its ids, the end mark last unless the limit came first; () of an empty line.
    log_p: log-probability of these tokens in nats.
    score: what hypotheses are ordered by: log_p over the length penalty; log_p where it was drawn.
  """

  text: str
  tokens: tuple[int, ...]
  log_p: float
  score: float


@dataclasses.dataclass(frozen=True)
class Translator:
  """An encoder-decoder with its parameters and its tokenizer.

  Attributes:
    model: its module.
    cfg: its Config.
    params: its parameters, without an objective's.
    tokenizer: of both languages.
  """

  model: Model
  cfg: Any
  params: Params
  tokenizer: Any

  def sources(self, lines: Sequence[str], *, truncate: bool = False, first: int = 1) -> list[np.ndarray]:
    """Ids of each line with the end mark, in the order of the text; of a line without text none at all.

    Args:
      lines: text.
      truncate: cut what is longer than the model's positions, with a warning, instead of refusing it.
      first: number of the first line, for messages.

    Raises:
      InputError: a line is longer than the model's positions.
    """
    limit, found = longest(self.cfg), []
    for number, ids in enumerate(self.tokenizer.encode_batch([line.strip() for line in lines]), first):
      if ids.size and limit is not None and len(ids) >= limit:
        if not truncate:
          raise InputError(
            f'line {number} has {len(ids)} tokens, but the model has only {limit} positions, one of '
            'them for the end mark; divide it, or cut it (--truncate)'
          )
        warnings.warn(f'line {number} has {len(ids)} tokens and is cut to {limit - 1}', InputWarning, stacklevel=2)
        ids = ids[: limit - 1]
      found.append(np.append(ids, self.tokenizer.eos_id).astype(np.int32) if ids.size else ids)
    return found

  def targets(self, lines: Sequence[str]) -> list[np.ndarray]:
    """Ids of each line with the end mark, the end mark alone of an empty one."""
    found = self.tokenizer.encode_batch([line.strip() for line in lines])
    return [np.append(ids, self.tokenizer.eos_id).astype(np.int32) for ids in found]

  def text(self, ids: Iterable[int]) -> str:
    """The text of ids, in one line, without the end mark."""
    kept = [int(i) for i in ids if i != self.tokenizer.eos_id]
    return re.sub(r'\s*[\n\r]+\s*', ' ', self.tokenizer.decode(kept)).strip()


def word_starts(tokenizer: Any, line: str, ids: np.ndarray) -> np.ndarray:
  """Return True for each id that begins a word of the line; words are separated by white space.

  Raises:
    InputError: the ids are not those of the words one after another, as where a piece spans two of them.
  """
  words = re.findall(r'\s*\S+', line.strip())  # each with the white space before it, but for that of `space_first`
  pieces = [tokenizer.encode(word[1:] if i and tokenizer.space_first else word) for i, word in enumerate(words)]
  if words and np.array_equal(np.concatenate(pieces), ids):
    starts = np.zeros(len(ids), bool)
    starts[np.cumsum([0, *(len(piece) for piece in pieces[:-1])])] = True
    return starts
  raise InputError(f'the tokens of "{line}" do not belong to one word each, so words cannot be aligned')


def longest(cfg: Any) -> int | None:
  """Most tokens of a source, its end mark among them: the field or property `longest` of a model's Config, or else its
  window; None for any number."""
  return getattr(cfg, 'longest', None) or generate.window(cfg)


def of(run: Any, params: Params, tokenizer: Any) -> Translator:
  """The translator of a run.

  Args:
    run: `lmx.config.resolve.Run`.
    params: the model's parameters, without the objective's.
    tokenizer: the run's.

  Raises:
    InputError: the model is no encoder-decoder, or the tokenizer has no end mark.
  """
  model = registry.get(run.model_name)
  if getattr(model, 'READS', '') != 'source':
    raise InputError(f'{run.model_name} reads no source text: it cannot translate; choose a run of an encoder-decoder')
  if tokenizer.eos_id is None:
    raise InputError('this tokenizer has no end-of-text mark, which a translation begins after and ends with')
  return Translator(model, run.model, params, tokenizer)


def padded(length: int, limit: int | None) -> int:
  """The length that a source of `length` tokens is padded to, at most the model's positions."""
  step = max(_STEP, 2 ** (length.bit_length() - 3))
  size = -(-length // step) * step
  return size if limit is None else min(size, limit)


def batches(sources: Sequence[np.ndarray], tokens: int, limit: int | None) -> Iterator[tuple[list[int], Any]]:
  """Yield (numbers of the sources, source_BS and source_valid_BS) of all that are not empty, short ones first.

  The last rows of a batch may repeat the first one, so that batches of a length have the same number of rows.
  """
  buckets: dict[int, list[int]] = {}
  for i, ids in enumerate(sources):
    if len(ids):
      buckets.setdefault(padded(len(ids), limit), []).append(i)
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
  """Translate lines; the hypotheses of each, best first, in the order of the lines.

  Args:
    translator: from `of`.
    lines: of text; a line without text has an empty translation.
    options: how.
    truncate: see `Translator.sources`.
    first: number of the first line, for messages and for the draws of a sample.
    title: of the progress bar, none if empty.

  Raises:
    InputError: a line is longer than the model's positions, or what it is translated into has no score.
  """
  sources = translator.sources(lines, truncate=truncate, first=first)
  return list(of_ids(translator, sources, options, first=first, title=title))


def of_ids(
  translator: Translator,
  sources: Sequence[np.ndarray],
  options: Options = Options(),
  *,
  first: int = 1,
  title: str = '',
) -> list[list[Translation]]:
  """As `translate`, from ids as `Translator.sources` makes them."""
  found: list[list[Translation]] = [[Translation('', (), 0.0, 0.0)] for _ in sources]
  limit = longest(translator.cfg)
  forbidden = generate.unwritable(translator.tokenizer, translator.cfg.V, allow_unk=options.allow_unk)
  find = functools.partial(_drawn if options.sample else _sought, translator, options, forbidden)
  with tqdm(total=len(sources), desc=title, unit=' lines', leave=False, disable=None if title else True) as progress:
    for chosen, source in batches(sources, options.tokens, limit):
      for i, hypotheses in zip(chosen, find(source, [first + i for i in chosen]), strict=True):
        found[i] = hypotheses
      progress.update(len(chosen))
  return found


def _limits(length: np.ndarray | int, options: Options) -> Any:
  """Most tokens of a translation, its end mark included, for a source of `length` tokens with its end mark."""
  if options.max_ratio:
    return np.maximum(options.max_ratio * length, 1).astype(int)
  return length - 1 + options.max_extra


def _sought(
  translator: Translator, options: Options, forbidden: tuple[int, ...], source: Batch, numbers: Sequence[int]
) -> list[list[Translation]]:
  """The hypotheses of a beam, at least one, for the first rows, as many as there are numbers."""
  length_B = np.sum(source['source_valid_BS'], axis=1)
  found = beam_lib.search(
    translator.model,
    translator.cfg,
    translator.params,
    beam=options.search(forbidden),
    limits=_limits(length_B, options),
    least=(options.min_ratio * length_B).astype(int),
    eos_id=translator.tokenizer.eos_id,
    source=source,
    steps=int(_limits(source['source_BS'].shape[1], options)),
  )
  if not found.counts_BK[:, 0].all():
    raise InputError("the model's scores are no numbers, as after a training that diverged; choose another checkpoint")
  rows = []
  for b in range(len(numbers)):
    each = zip(*(part[b] for part in found), strict=True)
    rows.append([_of(translator, tokens[:n], log_p, score) for tokens, n, log_p, score in each if n])
  return rows


def _drawn(
  translator: Translator, options: Options, forbidden: tuple[int, ...], source: Batch, numbers: Sequence[int]
) -> list[list[Translation]]:
  """One translation drawn for each of the first rows, as many as there are numbers; a row's key is its number's."""
  B, S = source['source_BS'].shape
  numbers_B = np.resize(np.asarray(numbers), B)
  keys_B = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(options.seed), numbers_B)
  window, eos_id = generate.window(translator.cfg), translator.tokenizer.eos_id
  steps = int(_limits(S, options))
  steps = steps if window is None else min(steps, window - 1)
  found = generate.generate(
    translator.model,
    translator.cfg,
    translator.params,
    np.full((B, 1), eos_id),
    steps=steps,
    key=keys_B,
    sampler=generate.Sampler(temperature=options.temperature, forbidden=forbidden),
    eos_id=eos_id,
    source=source,
  )
  counts_B = np.minimum(found.counts_B, _limits(np.sum(source['source_valid_BS'], axis=1), options))
  rows = [tokens_T[:count] for tokens_T, count in zip(found.tokens_BT, counts_B, strict=True)]
  log_p = [float(np.sum(each)) for each in _scored(translator, source, rows)]
  return [[_of(translator, rows[b], log_p[b], log_p[b])] for b in range(len(numbers))]


def _of(translator: Translator, tokens_T: np.ndarray, log_p: float, score: float) -> Translation:
  return Translation(translator.text(tokens_T), tuple(map(int, tokens_T)), float(log_p), float(score))


def _forced(translator: Translator, source: Batch, targets: Sequence[np.ndarray]) -> dict[str, Any]:
  """A batch that predicts each target token from those before it."""
  limit = generate.window(translator.cfg)
  T = padded(max(map(len, targets)), limit)
  tokens_BT, targets_BT = np.zeros((2, len(targets), T), np.int32)
  for b, ids in enumerate(targets):
    if len(ids) > T:
      raise InputError(f'a translation has {len(ids)} tokens, but the model has only {limit} positions')
    targets_BT[b, : len(ids)] = ids
    tokens_BT[b, : len(ids)] = np.append(translator.tokenizer.eos_id, ids[:-1])
  valid_BT = np.arange(T) < np.array([[len(ids)] for ids in targets])
  return {**source, 'tokens_BT': tokens_BT, 'targets_BT': targets_BT, 'valid_BT': valid_BT}


@functools.partial(jax.jit, static_argnums=(0, 1))
def _nll(model: Model, cfg: Any, params: Params, batch: Batch) -> Any:
  features, _ = model.apply(cfg, params, batch, model.init_state(cfg, len(batch['tokens_BT'])))
  return model.nll(cfg, params, features, batch['targets_BT'])


def _scored(translator: Translator, source: Batch, targets: Sequence[np.ndarray]) -> list[np.ndarray]:
  batch = _forced(translator, source, targets)
  nll_BT = np.asarray(_nll(translator.model, translator.cfg, translator.params, batch))
  return [-row_T[: len(ids)] for row_T, ids in zip(nll_BT, targets, strict=True)]


def log_probabilities(
  translator: Translator, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], tokens: int = 4096
) -> list[np.ndarray]:
  """Log-probability of each token of each target given its source, in nats; float32.

  Args:
    translator: from `of`.
    sources: from `Translator.sources`.
    targets: from `Translator.targets`.
    tokens: positions of the source in a batch.
  """
  found = [np.zeros(0, np.float32) for _ in sources]
  for chosen, source in batches(sources, tokens, longest(translator.cfg)):
    rows = [targets[i] for i in np.resize(chosen, len(source['source_BS']))]
    for i, each in zip(chosen, _scored(translator, source, rows), strict=False):
      found[i] = each
  return found


def check_attention(translator: Translator) -> None:
  """Raise InputError where the model has no attention, and so no alignments."""
  model = translator.model
  source: Any = {'source_BS': np.zeros((1, 1), np.int32), 'source_valid_BS': np.ones((1, 1), bool)}
  if not hasattr(model, 'alignment'):
    raise InputError(f'model "{model.__name__.rsplit(".", 1)[-1]}" has no attention, and so no alignments')
  forced = _forced(translator, source, [np.zeros(1, np.int32)])
  jax.eval_shape(functools.partial(model.alignment, translator.cfg), translator.params, forced)  # designs without one


def alignments(
  translator: Translator, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], tokens: int = 4096
) -> list[np.ndarray]:
  """Return the alignments: for each pair (target tokens, source tokens) float32, rows sum to 1.

  Args and order of the source's tokens as in `log_probabilities`; source tokens stand in the order of the text.

  Raises:
    InputError: the model has no attention.
  """
  model, cfg = translator.model, translator.cfg
  check_attention(translator)
  look = jax.jit(functools.partial(model.alignment, cfg))
  found = [np.zeros((0, 0), np.float32) for _ in sources]
  for chosen, source in batches(sources, tokens, longest(cfg)):
    rows = [targets[i] for i in np.resize(chosen, len(source['source_BS']))]
    a_BTS = np.asarray(look(translator.params, _forced(translator, source, rows)), np.float32)
    for i, a_TS in zip(chosen, a_BTS, strict=False):
      found[i] = a_TS[: len(targets[i]), : len(sources[i])]
  return found
