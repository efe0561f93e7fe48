"""Answers of a trained run to questions on passages: the best spans over all windows, and their figures.

As google-research/bert's run_squad.py does: the `n_best` best places of beginning and of ending in each window, where a
beginning must be in the window that shows the most around it, spans of at most `answer_length` tokens, scored by the
sum of the two. The score of there being no answer is the least of the windows' scores of [CLS]. Where questions without
an answer are among those trained on, '' is said if that score is above the best span's by more than `null_threshold`.
An answer's text is cut out of the passage by the places that its pieces come from.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lmx import config, evaluate, objectives
from lmx.data import corpus as corpora
from lmx.data import pipeline, sources, views
from lmx.errors import InputError
from lmx.metrics import squad
from lmx.models import registry
from lmx.types import Params


class Answer(NamedTuple):
  """What is said of a question.

  Attributes:
    id: of the question.
    text: the answer, '' for none.
    best: the best answer that is one.
    null_odds: score of there being none over that of the best.
    candidates: the best spans, [{'text', 'probability', 'score'}].
    truths: the right answers, () for none.
  """

  id: str
  text: str
  best: str
  null_odds: float
  candidates: list[dict[str, Any]]
  truths: tuple[str, ...]


def answer(run: config.Run, corpus: corpora.Corpus, params: Params, split: str) -> list[Answer]:
  """Answers every question of a split.

  Args:
    run: the run.
    corpus: its data.
    params: {'model': ..., 'objective': ...}, whole on one device.
    split: name of the split.
  """
  batches: Any = pipeline.batches(run.data, corpus, split, evaluate.SEED, train=False)
  objective, model = objectives.get(run.objective_name), registry.get(run.model_name)
  predict = jax.jit(functools.partial(objective.predict, run.objective, model, run.model))
  asked = _texts(run, corpus, split)
  found: list[list[Span]] = [[] for _ in asked]
  null = np.full(len(asked), np.inf)
  for step in range(batches.steps):
    batch = batches(step)
    scores_BT2 = np.asarray(predict(params, batch, ())[0]['scores_BT2'], np.float64)
    for b in np.flatnonzero(batch['index_B'] >= 0):
      f = int(batch['index_B'][b])
      i, begin, _, place = (int(x[f]) for x in batches.windows)
      null[i] = min(null[i], scores_BT2[b, 0].sum())
      spans = _spans(scores_BT2[b], batch['passage_BT'][b], batch['best_BT'][b], run.evaluation)
      found[i] += [(score, first - place + begin, last - place + begin) for score, first, last in spans]
  with_null = bool((np.asarray(corpus.splits['train'].labels) < 0).any())
  places: dict[str, np.ndarray] = {}
  return [
    _answer(run, corpus, one, sorted(spans, key=lambda s: -s[0]), float(null[i]) if with_null else None, places)
    for i, (one, spans) in enumerate(zip(asked, found, strict=True))
  ]


class _Asked(NamedTuple):
  id: str
  context: str
  truths: tuple[str, ...]


def _texts(run: config.Run, corpus: corpora.Corpus, split: str) -> list[_Asked]:
  """The questions of a split as they stand in the data set."""
  examples = sources.open_splits(corpora.Spec(**run.data.spec()).data_set(), run.data.cache_dir)[split]
  rows = list(examples)
  found = []
  for (_, context, _), (_, _, label) in zip(rows[::2], rows[1::2], strict=True):
    about = json.loads(label)
    found.append(_Asked(about['id'], context, tuple(text for text, _ in about['answers'])))
  if run.data.fraction < 1:
    found = [found[i] for i in np.flatnonzero(views.kept(len(found), run.data.fraction))]
  return found


Span = tuple[float, int, int]  # score, first and last place


def _spans(scores_T2: np.ndarray, passage_T: np.ndarray, best_T: np.ndarray, chosen: Any) -> list[Span]:
  """The best spans of a window."""

  def top(scores_T: np.ndarray, among_T: np.ndarray) -> np.ndarray:
    ranked = np.argsort(-scores_T[among_T], kind='stable')[: chosen.n_best]
    return np.flatnonzero(among_T)[ranked]

  firsts, lasts = top(scores_T2[:, 0], best_T), top(scores_T2[:, 1], passage_T)
  pairs = [
    (float(scores_T2[a, 0] + scores_T2[z, 1]), int(a), int(z))
    for a in firsts for z in lasts if a <= z < a + chosen.answer_length
  ]  # fmt: skip
  return sorted(pairs, reverse=True)[: chosen.n_best]


def _answer(
  run: config.Run, corpus: corpora.Corpus, asked: _Asked, spans: Sequence[Span], null: float | None,
  places: dict[str, np.ndarray],
) -> Answer:  # fmt: skip
  """Puts the spans of a question into words."""
  if asked.context not in places:
    places.clear()  # questions on a passage follow one another
    places[asked.context] = corpus.tokenizer.encode_spans(asked.context)[1]
  where = places[asked.context]
  candidates: dict[str, float] = {}
  for score, first, last in spans:
    text = asked.context[where[first, 0] : where[last, 1]].strip()
    if text and text not in candidates:
      candidates[text] = score
  ranked = sorted(candidates.items(), key=lambda item: -item[1])[: run.evaluation.n_best]
  best, score = ranked[0] if ranked else ('', -np.inf)
  odds = float('-inf') if null is None else null - score
  rows = [*ranked, *([('', null)] if null is not None else [])]
  scale = np.exp(np.asarray([s for _, s in rows]) - max(s for _, s in rows)) if rows else np.zeros(0)
  listed = [
    {'text': text, 'probability': float(p), 'score': float(s)}
    for (text, s), p in zip(rows, scale / max(scale.sum(), 1e-300), strict=True)
  ]
  said = '' if odds > run.evaluation.null_threshold else best
  return Answer(asked.id, said, best, odds, sorted(listed, key=lambda row: -row['score']), asked.truths)


def figures(run: config.Run, found: Sequence[Answer]) -> dict[str, Any]:
  """What results.json has of the answers of a split."""
  truths = {one.id: one.truths for one in found}
  scores: dict[str, Any] = squad.figures({one.id: one.text for one in found}, truths)
  if any(np.isfinite(one.null_odds) for one in found):
    scores |= squad.thresholds({one.id: one.best for one in found}, truths, {one.id: one.null_odds for one in found})
    scores['null_threshold'] = run.evaluation.null_threshold
  return scores | {'metric': 'f1'}


def keep(workdir: Any, found: Sequence[Answer]) -> None:
  """Leaves predictions.json, nbest_predictions.json and, with questions without an answer, null_odds.json."""
  files: dict[str, Mapping[str, Any]] = {
    'predictions.json': {one.id: one.text for one in found},
    'nbest_predictions.json': {one.id: one.candidates for one in found},
  }
  if any(np.isfinite(one.null_odds) for one in found):
    files['null_odds.json'] = {one.id: one.null_odds for one in found}
  try:
    for name, content in files.items():
      (workdir / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + '\n')
  except OSError as error:
    raise InputError(f'{workdir} cannot be written: {error}') from None
