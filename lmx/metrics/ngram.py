"""Count-based baselines: unigram, and Kneser-Ney n-grams, interpolated or backing off.

Kneser & Ney (1995); Chen & Goodman (1999), "An empirical study of smoothing techniques for language
modeling", Computer Speech and Language 13, section 3: the interpolated form, with three discounts
for each order (equation 26, `modified=True`, the default) or with one, D = n1 / (n1 + 2 n2).

    P_k(w | h) = (a(h w) - D(a)) / sum_v a(h v) + gamma(h) P_{k-1}(w | h'),     P_0(w) = 1 / V

a is the count for the highest order and the number of distinct tokens to the left for the others;
h' is h without its first token. As in SRILM and KenLM, an n-gram at the start of a
document has no left context and uses its count. The vocabulary is closed: all V ids share the
probability, including those absent from training.

`backoff=True` is the back-off form, as in SRILM (without -interpolate) and in Bengio et al. (2003),
section 4.2: seen n-grams keep their share, and only unseen ones get the probability of a shorter context,

    P_k(w | h) = (a(h w) - D(a)) / sum_v a(h v)  if h w was seen, else  beta(h) P_{k-1}(w | h')

with beta(h) = gamma(h) / (1 - sum of P_{k-1}(v | h') over the v seen after h). After a context that saw all V tokens
no mass remains to distribute, and the shares are scaled up to 1. In such a model a singleton that keeps only 1 - D of
its count is less probable than an unseen n-gram. Hence SRILM drops n-grams of order 3 and above with count 1, as
`minimum=2` does; their whole count goes to the shorter context.

Boundaries: 'stream' reads the tokens as one text, in which the context crosses line ends, as in
recurrent models on Penn Treebank and WikiText; 'document' restarts at each offset. With one
line a document and 5 tokens, 'document' gives 141.19 on the test part of Penn Treebank, where
Mikolov & Zweig (2012) report 141.2 for KN5; 'stream' gives 141.06.

If a discount cannot be estimated (no n-gram has count 1, or none count 2), KenLM's fallback
0.5, 1, 1.5 is used. The implementation sorts and searches packed ids: an n-gram is
(dense id of its first n-1 tokens) * (V + 1) + token.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lmx.errors import InputError
from lmx.metrics import language

_CHUNK = 1 << 20  # tokens scored at a time
_FALLBACK = (0.5, 1.0, 1.5)
_PARTS = ('keys', 'share', 'rest')  # arrays of an order


@dataclasses.dataclass(frozen=True)
class _Order:
  """One order k of the model.

  Attributes:
    keys: sorted packed k-grams, (grams,) int64; the index of a k-gram here is its dense id.
    share: max(a - D, 0) / sum a of each k-gram.
    rest: gamma of each context (back-off: beta), indexed by the dense id of order k-1.
    discounts: discounts of counts 1, 2, and 3 or more.
  """

  keys: np.ndarray
  share: np.ndarray
  rest: np.ndarray
  discounts: tuple[float, float, float]


@dataclasses.dataclass(frozen=True)
class KneserNey:
  """N-gram model; built by `kneser_ney`, used by `score`.

  Attributes:
    V: vocabulary size.
    first: P_1, (V,) float64.
    first_discounts: discounts of order 1.
    orders: orders 2 to n.
    backoff: use a shorter context only for n-grams that the longer one has not seen.
  """

  V: int
  first: np.ndarray
  first_discounts: tuple[float, float, float]
  orders: tuple[_Order, ...]
  backoff: bool = False

  @property
  def discounts(self) -> list[tuple[float, float, float]]:
    """Discounts of each order, from the first."""
    return [self.first_discounts, *(order.discounts for order in self.orders)]


def _with_starts(tokens: np.ndarray, offsets: np.ndarray | None, boundaries: str, V: int) -> np.ndarray:
  """Return the tokens, int64, with the id V before each document (or once, for a stream)."""
  if boundaries not in ('stream', 'document'):
    raise InputError(f"boundaries: got '{boundaries}'; expected 'stream' or 'document'")
  if boundaries == 'document' and offsets is None:
    raise InputError("offsets: got None; expected the offsets of the documents, because boundaries is 'document'")
  tokens = np.asarray(tokens)
  if tokens.ndim != 1 or not tokens.size:
    raise InputError(f'tokens: got shape {tokens.shape}; expected a 1-D array with at least one token')
  if tokens.min() < 0 or tokens.max() >= V:
    raise InputError(f'token ids: got {tokens.min()} to {tokens.max()}; expected 0 to {V - 1}')
  starts = np.zeros(1, np.int64) if boundaries == 'stream' else np.unique(np.asarray(offsets)[:-1])
  return np.insert(tokens.astype(np.int64), starts[starts < len(tokens)], V)


def _discounts(counts: np.ndarray, modified: bool) -> tuple[float, float, float]:
  """Return the discounts for counts 1, 2 and 3+ (Chen & Goodman 1999, section 3)."""
  n1, n2, n3, n4 = (int(np.sum(counts == i)) for i in (1, 2, 3, 4))
  if not n1 or not n2:
    return _FALLBACK if modified else (_FALLBACK[0],) * 3
  Y = n1 / (n1 + 2 * n2)
  if not modified:
    return (Y, Y, Y)
  if not n3:
    return _FALLBACK
  estimates = (1 - 2 * Y * n2 / n1, 2 - 3 * Y * n3 / n2, 3 - 4 * Y * n4 / n3)
  # In natural text, counts of counts decrease; otherwise the estimates can leave their range.
  return estimates if all(0 < D <= i for i, D in enumerate(estimates, 1)) else _FALLBACK


def _smooth(counts: np.ndarray, context: np.ndarray, contexts: int, modified: bool, minimum: int = 1) -> Any:
  """Return (share of each n-gram, rest of each context, discounts)."""
  discounts = _discounts(counts, modified)
  # No discount exceeds its count: both the fallback for a count of 1 and the estimates are lower.
  discount = np.array((0.0, *discounts))[np.minimum(counts, 3)]
  discount = np.where(counts < minimum, counts, discount)
  total = np.bincount(context, counts, contexts)
  denominator = np.maximum(total, 1)
  rest = np.where(total > 0, np.bincount(context, discount, contexts) / denominator, 1.0)
  return (counts - discount) / denominator[context], rest, discounts


def kneser_ney(
  tokens: np.ndarray,
  vocab_size: int,
  *,
  order: int = 5,
  modified: bool = True,
  boundaries: str = 'stream',
  offsets: np.ndarray | None = None,
  backoff: bool = False,
  minimum: int = 1,
) -> KneserNey:
  """Estimate a Kneser-Ney model.

  Args:
    tokens: (tokens,) ids in 0 to vocab_size - 1.
    vocab_size: V.
    order: n, at least 1.
    modified: three discounts per order; False: one.
    boundaries: 'stream' or 'document' (see the module's docstring).
    offsets: (documents + 1,) start of each document, and the end; for 'document'.
    backoff: use the back-off form instead of the interpolated one.
    minimum: n-grams of order 3 and above with a smaller count are dropped; 2 in SRILM.

  Raises:
    InputError: ids outside the vocabulary, no tokens, order below 1.
  """
  if order < 1:
    raise InputError(f'order: got {order}; expected at least 1')
  V = vocab_size
  x = _with_starts(tokens, offsets, boundaries, V)
  gram = x  # dense id of the k-gram that ends at each position; -1 if it crosses a boundary
  starts = x == V
  keys, raw = np.arange(V + 1), np.bincount(x, minlength=V + 1)
  begins = np.arange(V + 1) == V
  grams = []
  for k in range(1, order + 1):
    if k < order:
      inside = np.flatnonzero((gram[:-1] >= 0) & ~starts[1:]) + 1
      packed = gram[inside - 1] * (V + 1) + x[inside]
      next_keys, first, dense, next_raw = np.unique(packed, True, True, True)
      first = inside[first]
      left = np.bincount(gram[first], minlength=len(keys))
      counts = np.where(begins, raw, left)
      next_begins = begins[gram[first - 1]] if k > 1 else starts[first - 1]
    else:
      counts = raw
    grams.append((keys, counts))
    if k < order:
      gram = np.full(len(x), -1, np.int64)
      gram[inside] = dense
      keys, raw, begins = next_keys, next_raw, next_begins
  model = _model(grams, V, modified, minimum)
  return _back_off(model, x) if backoff else model


def _model(counted_grams: list[tuple[np.ndarray, np.ndarray]], V: int, modified: bool, minimum: int) -> KneserNey:
  """Turn (packed n-grams, counts) of each order into probabilities."""
  counts = counted_grams[0][1][:V]
  share, rest, first_discounts = _smooth(counts, np.zeros(V, np.int64), 1, modified)
  orders = []
  for k, ((below, _), (keys, counts)) in enumerate(itertools.pairwise(counted_grams), 2):
    least = minimum if k > 2 else 1
    orders.append(_Order(keys, *_smooth(counts, keys // (V + 1), len(below), modified, least)))
  return KneserNey(V, share + rest[0] / V, first_discounts, tuple(orders))


def _back_off(model: KneserNey, x: np.ndarray) -> KneserNey:
  """Turn gamma into beta, from the lowest order up; `x` is the training text, which contains every n-gram."""
  P, gram, orders = np.append(model.first, 1.0)[x], x, []
  for order in model.orders:
    gram, context = _extend(order, gram, x, model.V)
    ids, first = np.unique(gram, return_index=True)
    first = first[(ids >= 0) & (order.share[ids] > 0)]
    unseen_mass = 1 - np.bincount(context[first], P[first], len(order.rest))
    full = (unseen_mass < 1e-9) & (order.rest < 1)
    rest = np.where(full, 0.0, order.rest / np.maximum(unseen_mass, 1e-9))
    scale = np.where(full, 1 - order.rest, 1.0)[order.keys // (model.V + 1)]
    orders.append(dataclasses.replace(order, share=order.share / scale, rest=rest))
    P = _add_order(orders[-1], gram, context, P, backoff=True)
  return dataclasses.replace(model, orders=tuple(orders), backoff=True)


def _find(keys: np.ndarray, packed: np.ndarray) -> np.ndarray:
  """Return the index of each of `packed` in the sorted `keys`, -1 if absent."""
  if not len(keys):
    return np.full(len(packed), -1, np.int64)
  index = np.searchsorted(keys, packed)
  index[index == len(keys)] = 0
  return np.where(keys[index] == packed, index, -1)


def _extend(order: _Order, gram: np.ndarray, x: np.ndarray, V: int) -> tuple[np.ndarray, np.ndarray]:
  """Return (dense id of the k-gram that ends at each position, of its context), from those of k-1; -1 if unseen."""
  context = np.append(-1, gram[:-1])
  return np.where(context >= 0, _find(order.keys, context * (V + 1) + x), -1), context


def _add_order(order: _Order, gram: np.ndarray, context: np.ndarray, P: np.ndarray, *, backoff: bool) -> np.ndarray:
  """Return P_k at each position from P_{k-1}."""
  share, rest = np.append(order.share, 0.0)[gram], np.append(order.rest, 1.0)[context]
  return np.where(share > 0, share, rest * P) if backoff else rest * P + share


def _probabilities(model: KneserNey, x: np.ndarray, gram: np.ndarray | None = None) -> np.ndarray:
  """Return P(x[i] | its context in x); values at document starts are undefined.

  Args:
    model: the model.
    x: ids, V before a document.
    gram: x, but -1 where no context reaches further back; None: x.
  """
  P = np.append(model.first, 1.0)[x]
  gram = x if gram is None else gram
  for order in model.orders:
    gram, context = _extend(order, gram, x, model.V)
    P = _add_order(order, gram, context, P, backoff=model.backoff)
  return P


def score(
  model: KneserNey,
  tokens: np.ndarray,
  *,
  boundaries: str = 'stream',
  offsets: np.ndarray | None = None,
) -> tuple[float, np.ndarray]:
  """Score a text.

  Returns:
    (total negative log-likelihood in nats, (tokens,) float64 of each token).
  """
  x = _with_starts(tokens, offsets, boundaries, model.V)
  context = len(model.orders)
  parts = []
  for start in range(0, len(x), _CHUNK):
    begin = max(start - context, 0)
    part = x[begin : start + _CHUNK]
    nll = -np.log(_probabilities(model, part))
    parts.append(nll[start - begin :][part[start - begin :] != model.V])
  nll = np.concatenate(parts)
  return float(nll.sum()), nll


def log_probabilities(model: KneserNey, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
  """Return the log-probability of each token given those before it in its row, (T,) float64 in nats.

  Args:
    model: the model.
    rows: (T,) ids each; V is the start of a document, whose own value is undefined.
  """
  found: list[np.ndarray] = []
  for some in _chunks(rows):
    x = np.concatenate([part for row in some for part in ([model.V], row)]).astype(np.int64)
    ends = np.cumsum([len(row) + 1 for row in some])
    gram = x.copy()
    gram[[0, *ends[:-1]]] = -1
    log_p = np.log(_probabilities(model, x, gram))
    found += [row[1:] for row in np.split(log_p, ends[:-1])]
  return found


def _chunks(rows: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
  """Yield the rows in groups of about `_CHUNK` tokens."""
  some: list[np.ndarray] = []
  size = 0
  for row in rows:
    some.append(row)
    size += len(row)
    if size >= _CHUNK:
      yield some
      some, size = [], 0
  if some:
    yield some


def to_arrays(model: KneserNey) -> dict[str, np.ndarray]:
  """Return the arrays of a model by name, for `from_arrays`."""
  each = {f'{part}_{k}': getattr(order, part) for k, order in enumerate(model.orders, 2) for part in _PARTS}
  return {'first': model.first, **each}


def from_arrays(arrays: Mapping[str, np.ndarray], discounts: Sequence[Sequence[float]], backoff: bool) -> KneserNey:
  """Return the model of `to_arrays`; `discounts` are the three of each order, from the first."""
  first, *others = map(_three, discounts)
  orders = []
  for k, three in enumerate(others, 2):
    keys, share, rest = (arrays[f'{part}_{k}'] for part in _PARTS)
    orders.append(_Order(keys, share, rest, three))
  return KneserNey(len(arrays['first']), arrays['first'], first, tuple(orders), backoff)


def _three(values: Sequence[float]) -> tuple[float, float, float]:
  one, two, three = map(float, values)
  return one, two, three


def unigram(train_tokens: np.ndarray, vocab_size: int, add: float = 1.0) -> np.ndarray:
  """Return P(w) = (count(w) + add) / (tokens + add V), (V,) float64; add = 0 is maximum
  likelihood."""
  counts = np.bincount(train_tokens, minlength=vocab_size)
  if len(counts) > vocab_size:
    raise InputError(f'token id {len(counts) - 1} is outside the vocabulary of {vocab_size}')
  return (counts + add) / (counts.sum() + add * vocab_size)


def baselines(
  train_tokens: np.ndarray,
  vocab_size: int,
  texts: Mapping[str, tuple[np.ndarray, Mapping[str, float]]],
  *,
  order: int = 5,
) -> tuple[dict[str, dict[str, dict[str, Any]]], dict[str, np.ndarray]]:
  """Estimate both baselines once and score several texts.

  Args:
    train_tokens: (tokens,) ids of one stream.
    vocab_size: V, closed.
    texts: name of a text -> ((tokens,) ids; its words, characters and bytes, where known (`language.report`)).
    order: n of the Kneser-Ney model.

  Returns:
    (name of a text -> {'unigram': ..., 'kneser_ney': ...}, each with the metrics of `language.report` and a description
    of the model; name -> the Kneser-Ney model's negative log-likelihood of each token, (tokens,) float64 in nats).
  """
  with np.errstate(divide='ignore'):
    log_P = np.log(unigram(train_tokens, vocab_size))
  model = kneser_ney(train_tokens, vocab_size, order=order)
  each = model.discounts
  about = {'order': order, 'boundaries': 'stream', 'discounts': [[round(D, 4) for D in three] for three in each]}
  found: dict[str, dict[str, dict[str, Any]]] = {}
  each_nll = {}
  for name, (tokens, counts) in texts.items():
    nll, each_nll[name] = score(model, tokens)
    found[name] = {
      'unigram': {'add': 1, **language.report(float(-log_P[np.asarray(tokens)].sum()), len(tokens), counts)},
      'kneser_ney': {**about, **language.report(nll, len(tokens), counts)},
    }
  return found, each_nll
