"""Beam search with lists and sorting, one row at a time: every extension of every hypothesis is formed and sorted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Hypothesis = tuple[tuple[int, ...], float, float]  # tokens, log-probability, score


def penalty(length: int, alpha: float, form: str) -> float:
  return length**alpha if form == 'power' else ((5 + length) / 6) ** alpha


def search(
  next_log_p: Callable[[tuple[int, ...]], np.ndarray],
  *,
  size: int,
  alpha: float,
  form: str,
  stop: str,
  limit: int,
  eos: int,
  min_length: int = 0,
  forbidden: tuple[int, ...] = (),
  renormalise: bool = False,
  first: int | None = None,
  force_end: bool = False,
) -> list[Hypothesis]:
  """The `size` best hypotheses, best first; `next_log_p` gives the log-probability of each token after a prefix."""

  def choices(tokens: tuple[int, ...], length: int) -> dict[int, float]:
    if force_end and length == limit:
      return {eos: 0.0}
    if first is not None and length == 1:
      return {first: 0.0}
    log_p = next_log_p(tokens)
    allowed = {
      v: float(p) for v, p in enumerate(log_p) if v not in forbidden and not (v == eos and length <= min_length)
    }
    total = np.log(sum(np.exp(p) for p in allowed.values())) if renormalise else 0.0
    return {v: p - total for v, p in allowed.items()}

  live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
  finished: list[Hypothesis] = []
  for length in range(1, limit + 1):
    extended = [((*tokens, v), total + p) for tokens, total in live for v, p in choices(tokens, length).items()]
    extended.sort(key=lambda pair: -pair[1])
    live = []
    for rank, (tokens, total) in enumerate(extended[: 2 * size]):
      if tokens[-1] == eos or length == limit:
        if rank < size:
          finished.append((tokens, total, total / penalty(length, alpha, form)))
      elif len(live) < size:
        live.append((tokens, total))
    finished = sorted(finished, key=lambda h: -h[2])[:size]
    if not live:
      break
    if len(finished) == size:
      reach = {'bound': limit, 'current': length}.get(stop)
      if reach is None or live[0][1] / penalty(reach, alpha, form) <= finished[-1][2]:
        break
  return finished


def exhaustive(
  next_log_p: Callable[[tuple[int, ...]], np.ndarray], *, alpha: float, form: str, limit: int, eos: int
) -> list[Hypothesis]:
  """Every sequence that ends in `eos`, or has `limit` tokens, best score first."""
  found: list[Hypothesis] = []

  def grow(tokens: tuple[int, ...], total: float) -> None:
    if tokens and (tokens[-1] == eos or len(tokens) == limit):
      found.append((tokens, total, total / penalty(len(tokens), alpha, form)))
      return
    for v, p in enumerate(next_log_p(tokens)):
      grow((*tokens, v), total + float(p))

  grow((), 0.0)
  return sorted(found, key=lambda h: -h[2])
