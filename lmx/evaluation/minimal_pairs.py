"""Accuracy on minimal pairs: the share of pairs whose acceptable sentence has the higher score.

A score is the sum of log-probabilities over the predicted tokens; the mean per token is measured too. The accuracy of a
phenomenon, of a field and of all pairs is the mean over paradigms.

Two standard errors and 95% intervals are from bootstraps with a fixed seed. Over pairs, the pairs of each paradigm are
resampled: what other sentences of these paradigms would give. Over paradigms, the paradigms' accuracies are resampled:
what other paradigms would give.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx.data.minimal_pairs import MinimalPairs, Pair
from lmx.errors import InputError, check_choice
from lmx.reporting import waiting
from lmx.scoring import loading
from lmx.scoring.rows import Row
from lmx.scoring.scorer import RunScorer, Scorer
from lmx.statistics import LEVEL, RESAMPLES

_CHUNK = 20_000  # rows whose batches are made together
_ENDS = ('causal', 'forward', 'backward', 'both')  # methods that can score the end of a text


class Protocol(NamedTuple):
  """Settings of a pipeline for minimal pairs.

  Attributes:
    start: of causal scores: 'auto', 'symbol' or 'none', see `Scorer`.
    end: the end symbol is scored too, by methods that predict one.
    space: a space precedes each sentence.
    tie: what a pair with equal scores counts.
    about: the pipeline.
  """

  start: str
  end: bool
  space: bool
  tie: float
  about: str


PROTOCOLS = {
  'lmx': Protocol('auto', False, False, 0.5, 'after a start symbol if there is one; ties count half'),
  'blimp': Protocol('symbol', True, False, 0.0, 'jiant, branch blimp-and-npi: GPT-2 and Transformer-XL of BLiMP'),
  'babylm2025': Protocol('none', False, False, 1.0, "BabyLM's evaluation-pipeline-2025"),
  'harness': Protocol('symbol', False, True, 1.0, 'lm-evaluation-harness 0.4, task blimp'),
}


class PairScores(NamedTuple):
  """Scores of N pairs, in their order.

  Attributes:
    sums_N2: sum over the tokens of the good and the bad sentence, nats.
    tokens_N2: number of predicted tokens.
    is_equal_N: both sentences have the same tokens.
    is_unknown_N: a sentence has an unknown word.
  """

  sums_N2: np.ndarray
  tokens_N2: np.ndarray
  is_equal_N: np.ndarray
  is_unknown_N: np.ndarray


def load(
  workdir: Any,
  which: str | int = 'measured',
  overrides: Sequence[str] = (),
  *,
  protocol: str = 'lmx',
  method: str = 'auto',
  start: str = 'auto',
  end: bool = False,
) -> Scorer:
  """Return the scorer of a folder with a protocol's start and end, where its method has them.

  Args:
    workdir: see `loading.load`.
    which: see `loading.load`.
    overrides: see `loading.load`.
    protocol: key of PROTOCOLS.
    method: see `loading.load`.
    start: replaces the protocol's start, unless it is 'auto'.
    end: also score the end.

  Raises:
    InputError: see `loading.load`, or the model's tokenizer lacks a symbol of the protocol.
  """
  check_choice('--protocol', protocol, PROTOCOLS)
  own = PROTOCOLS[protocol]
  scorer = loading.load(workdir, which, overrides, method=method)
  begin = start if start != 'auto' or scorer.method != 'causal' else own.start
  ends = end or (own.end and scorer.method in _ENDS)
  if (begin, ends) == ('auto', False):
    return scorer
  try:
    if isinstance(scorer, RunScorer):
      return RunScorer(scorer.loaded, scorer.method, begin, end=ends)
    return loading.load(workdir, which, overrides, method=scorer.method, start=begin, end=ends)
  except InputError as error:
    raise InputError(str(error) if protocol == 'lmx' else f'--protocol={protocol}: {error}') from None


def score(scorer: Scorer, pairs: Sequence[Pair], space: bool = False) -> PairScores:
  """Score pairs; each distinct row of tokens is scored once, so equal rows have equal scores.

  Args:
    scorer: the model and the method.
    pairs: the pairs.
    space: put a space before each sentence.

  Raises:
    InputError: a sentence has no token or is too long, or a score is not finite.
  """
  index: dict[bytes, int] = {}
  rows: list[Row] = []
  row_of: dict[str, int] = {}
  for pair in pairs:
    for text in (pair.good, pair.bad):
      if text not in row_of:
        row = scorer.row(' ' * space + text, f'{pair.paradigm}, pair {pair.id}')
        key = row.ids_T.tobytes() + (b'' if row.characters_TC is None else row.characters_TC.tobytes())
        if (number := index.setdefault(key, len(rows))) == len(rows):
          rows.append(row)
        row_of[text] = number
  of_pair_N2 = np.asarray([[row_of[pair.good], row_of[pair.bad]] for pair in pairs])
  sums, tokens = _score_rows(scorer, rows)
  is_unknown = np.asarray([scorer.is_unknown(row).any() for row in rows])
  return PairScores(
    sums[of_pair_N2],
    tokens[of_pair_N2],
    of_pair_N2[:, 0] == of_pair_N2[:, 1],
    is_unknown[of_pair_N2].any(axis=1),
  )


def _score_rows(scorer: Scorer, rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
  """Return the sum and the number of predicted tokens of each row; the longest are scored first."""
  sums, tokens = np.empty(len(rows)), np.empty(len(rows), np.int64)
  order = sorted(range(len(rows)), key=lambda i: -len(rows[i].ids_T))
  with waiting.Bar(sum(len(row.ids_T) for row in rows), f'score {scorer.name}', ' tokens') as bar:
    for begin in range(0, len(rows), _CHUNK):
      some = order[begin : begin + _CHUNK]
      for i, scored in zip(some, scorer.score([rows[i] for i in some], done=bar.update), strict=True):
        unscored = int(scorer.start == 'none' and not len(rows[i].context_S))
        log_p_T = scored.log_p_T[unscored:]
        if not np.isfinite(log_p_T).all():
          raise InputError(
            f'{rows[i].name}: got a score that is not finite; expected finite parameters; see lmx describe'
          )
        sums[i], tokens[i] = scored.sum, len(log_p_T)
  return sums, tokens


def correct(scores_N2: np.ndarray, tie: float) -> np.ndarray:
  """Return what each pair counts, (N,): 1 if the good sentence's score is higher, 0 if it is lower, else `tie`."""
  good_N, bad_N = scores_N2.T
  return np.where(good_N > bad_N, 1.0, np.where(good_N == bad_N, tie, 0.0))


def per_token(scores: PairScores) -> np.ndarray:
  """Return the mean per predicted token, (N, 2); 0 of a sentence without one."""
  return scores.sums_N2 / np.maximum(scores.tokens_N2, 1)


class Group(NamedTuple):
  """Accuracy of a paradigm, a phenomenon, a field or of all pairs.

  Attributes:
    name: its name.
    paradigms, pairs, ties: their numbers.
    accuracy: by sums, the mean over paradigms.
    accuracy_per_token: by means per token.
    standard_error, interval: over pairs.
    paradigm_error, paradigm_interval: over paradigms; None for one paradigm.
  """

  name: str
  paradigms: int
  pairs: int
  ties: int
  accuracy: float
  accuracy_per_token: float
  standard_error: float
  interval: tuple[float, float]
  paradigm_error: float | None = None
  paradigm_interval: tuple[float, float] | None = None


def measure(pairs: Sequence[Pair], scores: PairScores, tie: float, seed: int = 0) -> dict[str, Any]:
  """Return the accuracies of scored pairs.

  Args:
    pairs: the pairs.
    scores: of the pairs.
    tie: what a tie counts.
    seed: of the bootstraps.

  Returns:
    `overall`, a `Group`; `fields`, `phenomena` and `paradigms`, lists of them.
  """
  names = list(dict.fromkeys(pair.paradigm for pair in pairs))
  of_pair_N = np.asarray([names.index(pair.paradigm) for pair in pairs])
  sums_N, means_N = correct(scores.sums_N2, tie), correct(per_token(scores), tie)
  ties_N = scores.sums_N2[:, 0] == scores.sums_N2[:, 1]
  size_P = np.bincount(of_pair_N)
  counts_P3 = np.stack(
    [np.bincount(of_pair_N, weights, len(names)) for weights in ((sums_N == 1) & ~ties_N, ties_N)], axis=1
  )
  counts_P3 = np.column_stack([counts_P3, size_P - counts_P3.sum(axis=1)])
  rng = np.random.default_rng(seed)
  # Resampled pairs of a paradigm differ only in how many are correct, tied and wrong.
  drawn_RP = rng.multinomial(size_P, counts_P3 / size_P[:, None], (RESAMPLES, len(names))) @ (1, tie, 0) / size_P
  by_sum_P, by_mean_P = (np.bincount(of_pair_N, weights) / size_P for weights in (sums_N, means_N))

  def group(name: str, members: Iterable[int]) -> Group:
    some = np.asarray(list(members))
    over_paradigms: tuple[Any, Any] = (None, None)
    if len(some) > 1:
      over_paradigms = _spread(by_sum_P[some[rng.integers(len(some), size=(RESAMPLES, len(some)))]].mean(axis=1))
    return Group(
      name,
      len(some),
      int(size_P[some].sum()),
      int(counts_P3[some, 1].sum()),
      float(by_sum_P[some].mean()),
      float(by_mean_P[some].mean()),
      *_spread(drawn_RP[:, some].mean(axis=1)),
      *over_paradigms,
    )

  first = {pair.paradigm: pair for pair in reversed(pairs)}
  return {
    'overall': group('overall', range(len(names))),
    'fields': [group(*one) for one in _members(names, {name: pair.field for name, pair in first.items()})],
    'phenomena': [group(*one) for one in _members(names, {name: pair.phenomenon for name, pair in first.items()})],
    'paradigms': [group(name, [p]) for p, name in enumerate(names)],
  }


def _members(names: Sequence[str], of: Mapping[str, str]) -> list[tuple[str, list[int]]]:
  """Return (name, paradigms) of each phenomenon or field, by name, without those that are not named."""
  groups = sorted({of[name] for name in names} - {''})
  return [(one, [p for p, name in enumerate(names) if of[name] == one]) for one in groups]


def _spread(values: np.ndarray) -> tuple[float, tuple[float, float]]:
  """Return the standard error and the 95% interval of resampled values."""
  low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
  return float(values.std(ddof=1)), (float(low), float(high))


class Evaluated(NamedTuple):
  """Metrics of minimal pairs, as in pairs.json, and the scores with what each pair counts by sums and by means."""

  metrics: dict[str, Any]
  scores: PairScores
  correct_N: np.ndarray
  correct_per_token_N: np.ndarray


def evaluate(scorer: Scorer, dataset: MinimalPairs, protocol: str = 'lmx') -> Evaluated:
  """Evaluate a scorer on minimal pairs.

  Args:
    scorer: see `load`.
    dataset: the pairs.
    protocol: key of PROTOCOLS.

  Raises:
    InputError: see `score`.
  """
  rule = PROTOCOLS[protocol]
  scores = score(scorer, dataset.pairs, rule.space)
  measured = measure(dataset.pairs, scores, rule.tie)
  overall = measured['overall']
  ties = 'half' if rule.tie == 0.5 else 'as correct' if rule.tie else 'as wrong'
  settings = [scorer.protocol, 'a space first' * rule.space]
  means_N2 = per_token(scores)
  correct_N, correct_per_token_N = correct(scores.sums_N2, rule.tie), correct(means_N2, rule.tie)
  loaded = getattr(scorer, 'loaded', None)  # an n-gram model has no run
  metrics = {
    'name': scorer.name,
    'model': scorer.name if loaded is None else loaded.run.model_name,
    **({} if loaded is None else {'step': loaded.step}),
    **({'averaged_steps': list(loaded.averaged)} if loaded is not None and loaded.averaged else {}),
    'dataset': dataset.name,
    'split': dataset.subset,
    'metric': 'accuracy',
    'accuracy': overall.accuracy,
    'accuracy_per_token': overall.accuracy_per_token,
    'accuracy_pairs': float(correct_N.mean()),
    'standard_error': overall.standard_error,
    'interval': list(overall.interval),
    'paradigm_error': overall.paradigm_error,
    'paradigm_interval': overall.paradigm_interval and list(overall.paradigm_interval),
    'pairs': len(dataset.pairs),
    'ties': overall.ties,
    'ties_per_token': int((means_N2[:, 0] == means_N2[:, 1]).sum()),
    'equal_sentences': sum(pair.good == pair.bad for pair in dataset.pairs),
    'equal_tokens': int(scores.is_equal_N.sum()),
    'unknown_pairs': int(scores.is_unknown_N.sum()),
    'pipeline': protocol,
    'method': scorer.method,
    'protocol': f'{protocol}: {", ".join(filter(None, settings))}; sum in nats; ties count {ties}',
    'subset': dataset.about,
    'dropped_paradigms': list(dataset.dropped),
    'data_hash': dataset.hash,
  }
  lists = {name: [one._asdict() for one in measured[name]] for name in ('fields', 'phenomena', 'paradigms')}
  kinds = {pair.paradigm: {'field': pair.field, 'phenomenon': pair.phenomenon} for pair in dataset.pairs}
  lists['paradigms'] = [one | kinds[one['name']] for one in lists['paradigms']]
  return Evaluated({**metrics, **lists}, scores, correct_N, correct_per_token_N)


def table(metrics: Mapping[str, Any], published: Iterable[Any] = ()) -> str:
  """Return the metrics as text; `published` are accuracies of other systems for comparison."""
  names = [one['name'] for name in ('fields', 'phenomena', 'paradigms') for one in metrics[name]]
  width = max(map(len, ['overall', *names]))
  head = f'  {"":{width}} {"sum":>6}  {"95% over pairs":16} {"over paradigms":16} {"mean":>6} {"pairs":>7} {"ties":>5}'
  of = f', subset {metrics["split"]}' if metrics['split'] != 'all' else ''
  lines = [f'accuracy in percent on the minimal pairs of {metrics["dataset"]}{of}: {metrics["name"]}', head]
  lines.append(_line({**metrics, 'name': 'overall'}, width))
  for name in ('fields', 'phenomena', 'paradigms'):
    lines += [name, *(_line(one, width) for one in metrics[name])] if metrics[name] else []
  lines.append(f'overall, phenomena and fields are means of paradigms; {metrics["protocol"]}')
  if metrics['subset']:
    lines.append(f'subset {metrics["split"]}: {metrics["subset"]}')
  if dropped := metrics['dropped_paradigms']:
    lines.append(f'{len(dropped)} paradigms have no pair in the subset and are in no mean: {", ".join(dropped)}')
  lines.append(
    f'pairs: {metrics["pairs"]:,}; ties: {metrics["ties"]:,} (by means {metrics["ties_per_token"]:,}); equal after '
    f'tokenization: {metrics["equal_tokens"]:,} (equal sentences {metrics["equal_sentences"]:,}); with an unknown '
    f'word: {metrics["unknown_pairs"]:,}'
  )
  known = [f'{one.name} {one.overall:.1f}' for one in published]
  lines += [f'published, other corpus: {", ".join(known)}'] * bool(known)
  return '\n'.join(lines)


def _line(one: Mapping[str, Any], width: int) -> str:
  spans = [_span(one['interval']), _span(one.get('paradigm_interval'))]
  return (
    f'  {one["name"]:{width}} {100 * one["accuracy"]:6.2f}  {spans[0]:16} {spans[1]:16} '
    f'{100 * one["accuracy_per_token"]:6.2f} {one["pairs"]:7,} {one["ties"]:5,}'
  )


def _span(interval: Sequence[float] | None) -> str:
  return (
    ''
    if interval is None or any(map(math.isnan, interval))
    else '{:.2f} to {:.2f}'.format(*(100 * x for x in interval))
  )
