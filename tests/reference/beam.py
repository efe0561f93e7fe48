"""Beam search with lists and sorting, one row at a time: every extension of every hypothesis is formed and sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.reference import constraints

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
  prompt: Sequence[int] = (),
  others: Sequence[int] = (),
  repetition_penalty: float = 1.0,
  renormalise: bool = False,
  first: int | None = None,
  force_end: bool = False,
  **rules: Any,
) -> list[Hypothesis]:
  """The `size` best hypotheses, best first; `next_log_p` gives the log-probability of each token after a prefix.

  `others` end a hypothesis too; `rules` are those of constraints.py.
  """
  ends = (eos, *others)

  def choices(tokens: tuple[int, ...], length: int) -> dict[int, float]:
    if force_end and length == limit:
      return dict.fromkeys(ends, 0.0)
    if first is not None and length == 1:
      return {first: 0.0}
    given = {'min_tokens': min_length, 'repetition_penalty': repetition_penalty, 'ends': ends, **rules}
    log_p = constraints.apply(next_log_p(tokens), [*prompt, *tokens], length - 1, **given)
    allowed = {v: float(p) for v, p in enumerate(log_p) if p > -np.inf}
    total = np.log(sum(np.exp(p) for p in allowed.values())) if renormalise else 0.0
    return {v: p - total for v, p in allowed.items()}

  live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
  finished: list[Hypothesis] = []
  for length in range(1, limit + 1):
    extended = [((*tokens, v), total + p) for tokens, total in live for v, p in choices(tokens, length).items()]
    extended.sort(key=lambda pair: -pair[1])
    live = []
    for rank, (tokens, total) in enumerate(extended[: (1 + len(ends)) * size]):
      if tokens[-1] in ends or length == limit:
        if rank < size:
          finished.append((tokens, total, total / penalty(length, alpha, form)))
      elif len(live) < size:
        live.append((tokens, total))
    finished = sorted(finished, key=lambda h: -h[2])[:size]
    if not live:
      break
    if len(finished) == size:
      reach = {'bound': limit if alpha > 0 else length, 'current': length}.get(stop)
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
