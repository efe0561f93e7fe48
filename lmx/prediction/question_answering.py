"""Answers of a trained run to questions on passages, of a split or a file: the best spans over all windows, and their
figures.

With BERT's head as google-research/bert's run_squad.py does: the `n_best` best places of beginning and of ending in
each window, where a beginning must be in the window that shows the most around it, spans of at most `answer_length`
tokens, scored by the sum of the two. The score of there being no answer is the least of the windows' scores of [CLS],
and its odds what that is above the best span's. With XLNet's head as zihangdai/xlnet's does: spans are those that
`predict` found, by the same rules, and the odds are the least of the windows' own. Where questions without an answer
are among those trained on, '' is said if these odds are above `null_threshold`.
An answer's text is cut out of the passage by the places that its pieces come from.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx.config import run_files, schema
from lmx.data import corpus as corpora
from lmx.data import labels, pipeline
from lmx.data.builders import questions
from lmx.data.builders.questions import Question
from lmx.errors import InputError
from lmx.metrics import squad
from lmx.prediction import batched
from lmx.prediction.batched import Asked
from lmx.runs.restore import Restored
from lmx.types import Params

SHARED = ('text', 'score', 'start', 'end')  # what an answer and its candidates are shown with

UNKNOWN = (
  'the run does not say whether it was trained on questions without an answer, so that "" may be said; '
  '--config.evaluation.null_threshold=1e9 says it never'
)


class Answer(NamedTuple):
  """Answer to a question.

  Attributes:
    id: of the question.
    text: the answer, '' for none.
    best: the best answer that is one.
    null_odds: how much there being none is above the best.
    candidates: the best spans, [{'text', 'probability', 'score', 'start', 'end'}], from where to where in code points.
    truths: the right answers, () for none, None where they are not known.
  """

  id: str
  text: str
  best: str
  null_odds: float
  candidates: list[dict[str, Any]]
  truths: tuple[str, ...] | None


def answer(
  run: schema.Run, corpus: corpora.Corpus, params: Params, split: str, asked: Sequence[Question] | None = None
) -> list[Answer]:
  """Answers every question of a split.

  Args:
    run: the run.
    corpus: its data.
    params: {'model': ..., 'objective': ...}, whole on one device.
    split: name of the split.
    asked: its questions in words; None reads them in the run's data set.
  """
  batches: Any = batched.batches(run, corpus, split)
  asked = _texts(run, split) if asked is None else asked
  found: list[list[Span]] = [[] for _ in asked]
  null = np.full(len(asked), np.inf)
  for batch, made in batched.over(run, batches, params):
    for b in np.flatnonzero(batch['index_B'] >= 0):
      f = int(batch['index_B'][b])
      i, begin, _, place = (int(x[f]) for x in batches.windows)
      none, spans = _window({key: x[b] for key, x in (*batch.items(), *made.items())}, run.evaluation)
      null[i] = min(null[i], none)
      found[i] += [(score, first - place + begin, last - place + begin) for score, first, last in spans]
  with_null, own = _unanswered(corpus) > 0, run.objective.head == 'xlnet'
  places: dict[str, np.ndarray] = {}
  return [
    _answer(run, corpus, one, sorted(spans, key=lambda s: -s[0]), float(null[i]) if with_null else None, own, places)
    for i, (one, spans) in enumerate(zip(asked, found, strict=True))
  ]


def _unanswered(corpus: corpora.Corpus) -> int:
  """Return the number of training questions without an answer."""
  if 'unanswered' in corpus.manifest:
    return int(corpus.manifest['unanswered'])
  return labels.unanswered(corpus.splits['train'].labels)  # tokenised by an earlier lmx, which did not say


def _texts(run: schema.Run, split: str) -> list[Question]:
  """The questions of a split as they stand in the data set."""
  rows = list(pipeline.examples(run.data, split))
  found = []
  for (_, context, _), (_, question, label) in zip(rows[::2], rows[1::2], strict=True):
    about = json.loads(label)
    found.append(Question(about['id'], context, question, tuple((text, begin) for text, begin in about['answers'])))
  return [found[i] for i in pipeline.kept(run.data, split, len(found))]


Span = tuple[float, int, int]  # score, first and last place


def _window(row: Mapping[str, np.ndarray], chosen: Any) -> tuple[float, list[Span]]:
  """(score of no answer, the best spans) of a window, from its row of the batch and what is predicted of it."""
  if 'scores_BT2' in row:
    scores_T2 = row['scores_BT2'].astype(np.float64)
    return float(scores_T2[row['null_B']].sum()), _spans(scores_T2, row['passage_BT'], row['best_BT'], chosen)
  begin_K, end_KE, scores_KE = row['begin_BK'], row['end_BKE'], row['scores_BKE'].astype(np.float64)
  pairs = [
    (float(score), int(a), int(z))
    for a, end_E, scores_E in zip(begin_K, end_KE, scores_KE, strict=True)
    for z, score in zip(end_E, scores_E, strict=True)
    if row['best_BT'][a] and row['passage_BT'][z] and a <= z < a + chosen.answer_length
  ]
  return float(row['odds_B']), sorted(pairs, reverse=True)


def _spans(scores_T2: np.ndarray, passage_T: np.ndarray, best_T: np.ndarray, chosen: Any) -> list[Span]:
  """The best spans of a window."""

  def top(scores_T: np.ndarray, among_T: np.ndarray) -> np.ndarray:
    ranked = np.argsort(-scores_T[among_T], kind='stable')[: chosen.n_best]
    return np.flatnonzero(among_T)[ranked]

  firsts, lasts = top(scores_T2[:, 0], best_T), top(scores_T2[:, 1], passage_T)
  pairs = [
    (float(scores_T2[a, 0] + scores_T2[z, 1]), int(a), int(z))
    for a in firsts
    for z in lasts
    if a <= z < a + chosen.answer_length
  ]
  return sorted(pairs, reverse=True)[: chosen.n_best]


def _answer(
  run: schema.Run,
  corpus: corpora.Corpus,
  asked: Question,
  spans: Sequence[Span],
  null: float | None,
  own: bool,
  places: dict[str, np.ndarray],
) -> Answer:
  """Put the spans of a question into words; `own`: `null` is odds already, and no score beside those of spans."""
  if asked.context not in places:
    places.clear()  # questions on a passage follow one another
    places[asked.context] = corpus.tokenizer.encode_spans(asked.context)[1]
  where = places[asked.context]
  candidates: dict[str, tuple[float, int]] = {}
  for score, first, last in spans:
    whole = asked.context[where[first, 0] : where[last, 1]]
    if whole.strip() and whole.strip() not in candidates:
      candidates[whole.strip()] = score, int(where[first, 0]) + len(whole) - len(whole.lstrip())
  ranked = sorted(candidates.items(), key=lambda item: -item[1][0])[: run.evaluation.n_best]
  best, (score, _) = ranked[0] if ranked else ('', (-np.inf, 0))
  odds = float('-inf') if null is None else null if own else null - score
  rows: list[dict[str, Any]] = [
    {'text': text, 'score': score, 'start': begin, 'end': begin + len(text)} for text, (score, begin) in ranked
  ]
  if null is not None and not own:
    rows.append({'text': '', 'score': null, 'start': None, 'end': None})
  scale = np.exp([row['score'] - max(one['score'] for one in rows) for row in rows])
  listed = [row | {'probability': float(p)} for row, p in zip(rows, scale / max(scale.sum(), 1e-300), strict=True)]
  said = '' if odds > run.evaluation.null_threshold else best
  truths = None if asked.answers is None else tuple(text for text, _ in asked.answers)
  return Answer(asked.id, said, best, odds, sorted(listed, key=lambda row: -row['score']), truths)


def figures(run: schema.Run, found: Sequence[Answer]) -> dict[str, Any]:
  """Return the metrics of the answers of a split, for results.json."""
  truths = {one.id: one.truths or () for one in found}
  scores: dict[str, Any] = squad.figures({one.id: one.text for one in found}, truths)
  if any(np.isfinite(one.null_odds) for one in found):
    scores |= squad.thresholds({one.id: one.best for one in found}, truths, {one.id: one.null_odds for one in found})
    scores['null_threshold'] = run.evaluation.null_threshold
  return scores | {'metric': 'f1'}


def of_file(loaded: Restored, path: str) -> Asked:
  """The questions of a file in the form of SQuAD, whose answers may be left out; see `lmx.data.builders.questions`.

  Raises:
    InputError: the file cannot be read, holds no question, or an answer that does not stand where it is said to.
  """
  batched.ending(path, ('.json', '.jsonl'), 'questions')
  found = list(questions.read(path, known=False))
  if not found:
    raise InputError(f'{path}: the file has no questions')
  texts = [text for one in found for text in (one.context, one.question)]
  made = corpora.Corpus.from_texts({path: texts}, loaded.tokenizer, labels={path: [-1] * len(texts)})
  about = run_files.read_data(loaded.workdir)
  count = about.get('unanswered', 1)
  made = dataclasses.replace(made, manifest={**made.manifest, 'spans': True, 'unanswered': count})
  notes = [] if 'unanswered' in about else [UNKNOWN]
  return Asked(made, path, found, (*notes, *batched.batches(loaded.run, made, path).notes))


def of_split(loaded: Restored, split: str) -> Asked:
  """The questions of a split of the run's data."""
  return Asked(pipeline.load(loaded.run.data), split, _texts(loaded.run, split))


def said(loaded: Restored, asked: Asked) -> list[dict[str, Any]]:
  """{'id', 'text', 'score', 'start', 'end', 'n_best'} of each question, and 'null_odds' where '' is an answer."""
  found = answer(loaded.run, asked.corpus, loaded.params, asked.split, asked.items)
  return [_shown(one) for one in found]


def _shown(one: Answer) -> dict[str, Any]:
  nothing = dict.fromkeys(SHARED) | {'text': ''}
  chosen = next((row for row in one.candidates if row['text'] == one.text), nothing)
  odds = {'null_odds': one.null_odds} if one.null_odds > -np.inf else {}
  return {'id': one.id} | {key: chosen[key] for key in SHARED} | odds | {'n_best': one.candidates}


def judged(loaded: Restored, asked: Asked, found: Sequence[Mapping[str, Any]]) -> str:
  """Exact match and F1 over the questions whose answers are known."""
  del loaded
  truths = {one.id: [text for text, _ in one.answers] for one in asked.items if one.answers is not None}
  if not truths:
    return ''
  scores = squad.figures({row['id']: row['text'] for row in found}, truths)
  return f'exact match {scores["exact_match"]:.2f}, F1 {scores["f1"]:.2f} of {len(truths):,} questions with answers'


def _predictions(loaded: Restored, asked: Asked, found: Sequence[Mapping[str, Any]]) -> str:
  """The file of answers that the official evaluation reads."""
  del loaded, asked
  return _json({row['id']: row['text'] for row in found})


def _null_odds(loaded: Restored, asked: Asked, found: Sequence[Mapping[str, Any]]) -> str:
  """The file that it takes as --na-prob-file: the greater a number, the less is there an answer."""
  del asked
  if not all('null_odds' in row for row in found):
    raise InputError(f'{loaded.workdir} was trained on questions that all have an answer: there are no odds of none')
  return _json({row['id']: row['null_odds'] for row in found})


FORMS: dict[str, batched.Form] = {'squad': _predictions, 'null_odds': _null_odds}


def _json(content: Mapping[str, Any]) -> str:
  return json.dumps(content, indent=1, ensure_ascii=False) + '\n'


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
      (workdir / name).write_text(_json(content))
  except OSError as error:
    raise InputError(f'{workdir} cannot be written: {error}') from None
