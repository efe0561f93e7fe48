"""Random numbers accessible by index, and the masking of masked language models.

Devlin et al. 2018, arXiv 1810.04805, section 3.1 and appendix A.1, and the whole-word option of the code released with
it (google-research/bert, create_pretraining_data.py). Every random number comes from a Philox generator with key (seed,
purpose) and a counter that starts at the example's index. So the mask of an example does not depend on the step, host
or thread that computes it.

Also the partial prediction of XLNet (Yang et al. 2019, arXiv 1906.08237, section 2.3, and the released data_utils.py):
`choose_spans` chooses the predicted tokens, `factorization_order` their order.

Deviations: none in distribution. As released, a continuation subword at the start of the second segment belongs to the
same word as the subword before the separator.
"""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

_CELLS = 1 << 18  # of `Choice`; a power of two, so that the number of a cell is exact


def generator(seed: int, purpose: str, major: int = 0, minor: int = 0) -> np.random.Generator:
  """Return the generator of (seed, purpose, two counters); equal arguments give equal draws."""
  key = np.array([seed, zlib.crc32(purpose.encode())], np.uint64)
  counter = np.array([0, 0, minor, major], np.uint64)  # draws of one generator advance the low words
  return np.random.Generator(np.random.Philox(key=key, counter=counter))


class Choice:
  """Weighted choice among V items; a value in [0, 1) selects the item whose share of the weights contains it. A table
  over `_CELLS` equal cells of [0, 1) has the item of each cell that is within one item, as nearly all are. Only values
  in other cells need a binary search, which takes many steps for a large vocabulary.

  Args:
    weight_V: weights, not all zero.
  """

  def __init__(self, weight_V: np.ndarray):
    self._cdf_V = np.cumsum(weight_V) / weight_V.sum()
    edges = np.searchsorted(self._cdf_V, np.arange(_CELLS + 1) / _CELLS, 'right')
    self._item_C = np.where(edges[1:] == edges[:-1], edges[:-1], -1).astype(np.int32)

  def __call__(self, draws: np.ndarray) -> np.ndarray:
    """Return the items for values in [0, 1): int32, shaped like `draws`."""
    items = self._item_C[(draws * _CELLS).astype(np.int32)]
    unknown = items < 0
    items[unknown] = np.searchsorted(self._cdf_V, draws[unknown], 'right')
    return items


def uniform(seed: int, purpose: str, index: Iterable[tuple[int, int]], width: int) -> np.ndarray:
  """Return one row of `width` random values in [0, 1) per (major, minor) counter."""
  return np.stack([generator(seed, purpose, *pair).random(width) for pair in index])


def _select_greedily(size_BG: np.ndarray, key_BG: np.ndarray, n_B: np.ndarray) -> np.ndarray:
  """Select groups in the order of their keys, skipping those that would exceed `n_B`; return bool take_BG."""
  order_BG = np.argsort(key_BG, axis=1)
  ordered_BG = np.take_along_axis(size_BG, order_BG, axis=1)
  left_B = n_B.copy()
  take_BG = np.zeros(size_BG.shape, bool)
  for g in range(size_BG.shape[1]):
    take_BG[:, g] = (ordered_BG[:, g] <= left_B) & (ordered_BG[:, g] > 0)
    left_B -= ordered_BG[:, g] * take_BG[:, g]
    if not left_B.any():
      break
  result_BG = np.zeros_like(take_BG)
  np.put_along_axis(result_BG, order_BG, take_BG, axis=1)
  return result_BG


def choose(
  candidates_BT: np.ndarray, n_B: np.ndarray, key_BT: np.ndarray, starts_BT: np.ndarray | None = None
) -> np.ndarray:
  """Choose `n_B` candidates per row, fewer if there are fewer or if whole words do not fit.

  Args:
    candidates_BT: bool, the positions that may be chosen.
    n_B: number to choose per row.
    key_BT: uniform random values; the candidates, or words, with the smallest keys come first.
    starts_BT: bool, True where a token starts a word, to choose whole words; None chooses single tokens.

  Returns:
    chosen_BT, bool.
  """
  B, T = candidates_BT.shape
  if starts_BT is None:
    order_BT = np.argsort(np.where(candidates_BT, key_BT, 2.0), axis=1)
    chosen_BT = np.zeros((B, T), bool)
    np.put_along_axis(chosen_BT, order_BT, np.arange(T) < n_B[:, None], axis=1)
    return chosen_BT & candidates_BT
  first_BT = candidates_BT & (np.cumsum(candidates_BT, axis=1) == 1)
  word_BT = np.maximum(np.cumsum(candidates_BT & (starts_BT | first_BT), axis=1) - 1, 0)
  flat_BT = word_BT + T * np.arange(B)[:, None]
  size_BG = np.bincount(flat_BT[candidates_BT], minlength=B * T).reshape(B, T)
  take_BG = _select_greedily(size_BG, np.where(size_BG > 0, key_BT, 2.0), n_B)
  return np.take_along_axis(take_BG, word_BT, axis=1) & candidates_BT


def mask_tokens(
  tokens_BT: np.ndarray,
  lengths_B: np.ndarray,
  candidates_BT: np.ndarray,
  uniform_BU: np.ndarray,
  *,
  mask_id: int,
  replacements: Sequence[int] | np.ndarray,
  mask_prob: float,
  max_predictions: int,
  starts_BT: np.ndarray | None = None,
  mask_share: float = 0.8,
  random_share: float = 0.1,
) -> dict[str, np.ndarray]:
  """Mask tokens for a masked language model: by default 80% become `mask_id`, 10% stay, 10% become a random token.

  `min(max_predictions, max(1, round(length * mask_prob)))` positions are predicted. Special tokens count in the length,
  as released, and are not candidates.

  Args:
    tokens_BT: int32 token ids.
    lengths_B: number of non-padding tokens per row, special tokens included.
    candidates_BT: bool, the positions that may be predicted (no special tokens, no padding).
    uniform_BU: random values in [0, 1), with U = T + 2 * max_predictions (see `uniform`).
    mask_id: id of the mask token.
    replacements: ids from which a random token is sampled; as released, the whole vocabulary.
    mask_prob: share of the length to predict.
    max_predictions: P, the number of prediction slots per row.
    starts_BT: bool, True where a token starts a word, to mask whole words; None masks single tokens.
    mask_share: share of the predicted tokens that become `mask_id`.
    random_share: share that become a random token; the others stay.

  Returns:
    tokens_BT after masking, positions_BP in ascending order, targets_BP (the original tokens) and weights_BP; unused
    slots have position 0, target 0 and weight 0.
  """
  B, T = tokens_BT.shape
  P = max_predictions
  key_BT, action_BP, draw_BP = uniform_BU[:, :T], uniform_BU[:, T : T + P], uniform_BU[:, T + P : T + 2 * P]
  n_B = np.minimum(P, np.maximum(1, np.rint(lengths_B * mask_prob).astype(np.int64)))  # rint: half to even, as Python
  chosen_BT = choose(candidates_BT, n_B, key_BT, starts_BT)
  row, column = np.nonzero(chosen_BT)
  slot = (np.cumsum(chosen_BT, axis=1) - 1)[row, column]
  action, draw = action_BP[row, slot], draw_BP[row, slot]
  ids = np.asarray(replacements)
  original = tokens_BT[row, column]
  random = ids[(draw * len(ids)).astype(np.int64)]
  noisy_BT = tokens_BT.astype(np.int32)
  noisy_BT[row, column] = np.where(action < mask_share, mask_id, np.where(action < 1 - random_share, original, random))
  positions_BP, targets_BP = np.zeros((B, P), np.int32), np.zeros((B, P), np.int32)
  weights_BP = np.zeros((B, P), np.float32)
  positions_BP[row, slot], targets_BP[row, slot], weights_BP[row, slot] = column, original, 1.0
  return dict(tokens_BT=noisy_BT, positions_BP=positions_BP, targets_BP=targets_BP, weights_BP=weights_BP)


def predict_next(tokens_BT: np.ndarray, valid_BT: np.ndarray) -> dict[str, np.ndarray]:
  """Return a batch for a left-to-right language model in the form of `mask_tokens`, without a mask. Each position
  except the last, (B, T - 1), predicts the next token, with weight 1 unless that is padding.
  """
  B, T = tokens_BT.shape
  return dict(
    tokens_BT=tokens_BT,
    positions_BP=np.tile(np.arange(T - 1, dtype=np.int32), (B, 1)),
    targets_BP=tokens_BT[:, 1:].astype(np.int32),
    weights_BP=valid_BT[:, 1:].astype(np.float32),
  )


def choose_spans(
  length: int,
  count: int,
  random: np.random.Generator,
  starts_T: np.ndarray | None = None,
  *,
  context: int = 6,
  longest: int = 5,
) -> np.ndarray:
  """Choose `count` of `length` tokens in spans of 1 to `longest`, each at random within `context` times its length.

  A span has n tokens with a probability proportional to 1/n. If the text ends too soon, single tokens are sampled for
  the rest. The released code intends to count words but counts subwords, as the paper does, because it repeatedly tests
  the first subword of the span.

  Args:
    length: T.
    count: number of tokens to choose, at most T.
    random: random generator.
    starts_T: bool, True where a word starts: spans start there (released code); None: anywhere (paper).
    context: K; one token in K is predicted.
    longest: maximum span length.

  Returns:
    bool (T,), exactly `count` of them True.
  """
  chosen_T, at, left = np.zeros(length, bool), 0, count
  odds = 1.0 / np.arange(1, longest + 1)
  cumulative = np.cumsum(odds / odds.sum())
  below = (cumulative / cumulative[-1]).tolist()  # as in `Generator.choice`
  starts = None if starts_T is None else np.flatnonzero(starts_T).tolist()
  while left and at < length:
    n = min(bisect.bisect_right(below, random.random()) + 1, left)
    before = int(random.integers(n * context))
    start = at + before
    if starts is not None:
      nth = bisect.bisect_left(starts, start)
      start = starts[nth] if nth < len(starts) else length
    if start + n >= length:
      break
    chosen_T[start : start + n] = True
    left, at = left - n, start + n + n * context - before
  rest = np.flatnonzero(~chosen_T)
  chosen_T[random.permutation(rest)[:left]] = True
  return chosen_T


def factorization_order(length: int, chunk: int, random: np.random.Generator) -> np.ndarray:
  """Return the ranks 0 .. length-1 of tokens in a factorization order.

  Chunks of `chunk` tokens follow one another, each in the same random order (released code); one chunk: any order.
  """
  shuffled = random.permutation(chunk)
  return (np.arange(0, length, chunk)[:, None] + shuffled).reshape(-1)[:length]
