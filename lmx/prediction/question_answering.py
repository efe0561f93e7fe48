"""Answers of a trained run to questions on passages: the best spans over all windows, and their metrics.

BERT's head follows google-research/bert's run_squad.py. Candidates are the `n_best` start and end positions of each
window; a start counts only in its window of maximum context. Spans have at most `answer_length` tokens and are scored
by start plus end logit. The null score, of no answer, is the minimum over the windows' [CLS] scores; the null odds are
its difference from the best span's score. XLNet's head follows zihangdai/xlnet: spans follow `predict`'s rules, and the
null odds are the minimum over the windows. If the training data has questions without an answer, '' is predicted when
the null odds exceed `null_threshold`. An answer's text is the part of the passage between the character offsets of its
first and last token.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx.config import run_files, schema
from lmx.data import corpus as corpora
from lmx.data import labels, pipeline
from lmx.data.builders import questions
from lmx.data.builders.questions import Question
from lmx.errors import InputError, explain
from lmx.metrics import squad
from lmx.prediction import batched
from lmx.prediction.batched import Inputs
from lmx.runs.restore import RestoredRun
from lmx.types import Params

N_BEST = True
SHARED = ('text', 'score', 'start', 'end')  # fields of an answer and of its candidates

UNANSWERED_UNKNOWN = (
  'the run does not record whether it was trained on questions without an answer, so that "" may be predicted; '
  '--config.evaluation.null_threshold=1e9 never predicts it'
)


class Answer(NamedTuple):
  """Answer to a question.

  Attributes:
    id: id of the question.
    text: the predicted answer, '' for none.
    best: the best non-empty answer.
    null_odds: null score minus the best span's score.
    candidates: the best spans, [{'text', 'probability', 'score', 'start', 'end'}], offsets in code points.
    truths: the true answers, () for none, None if they are unknown.
  """

  id: str
  text: str
  best: str
  null_odds: float
  candidates: list[dict[str, Any]]
  truths: tuple[str, ...] | None


def answer(
  run: schema.Run, corpus: corpora.Corpus, params: Params, split: str, questions: Sequence[Question] | None = None
) -> list[Answer]:
  """Answer every question of a split.

  Args:
    run: the run.
    corpus: its data.
    params: {'model': ..., 'objective': ...}, unsharded on one device.
    split: name of the split.
    questions: its questions as text; None reads them from the run's data set.
  """
  batches = batched.batches(run, corpus, split)
  return choose(run, corpus, split, batches, batched.predict(run, batches, params), questions)


def choose(
  run: schema.Run,
  corpus: corpora.Corpus,
  split: str,
  batches: Any,
  predictions: Iterable[tuple[batched.Arrays, batched.Arrays]],
  questions: Sequence[Question] | None = None,
) -> list[Answer]:
  """Return the answers by the scores of all windows of a split: each batch with its predictions; see `answer`."""
  questions = _read_questions(run, split) if questions is None else questions
  spans_by_question: list[list[Span]] = [[] for _ in questions]
  null = np.full(len(questions), np.inf)
  for batch, scores in predictions:
    for b in np.flatnonzero(batch['index_B'] >= 0):
      f = int(batch['index_B'][b])
      i, begin, _, shift = (int(x[f]) for x in batches.windows)
      none, spans = _window({key: x[b] for key, x in (*batch.items(), *scores.items())}, run.evaluation)
      null[i] = min(null[i], none)
      spans_by_question[i] += [(score, first - shift + begin, last - shift + begin) for score, first, last in spans]
  with_null, null_is_odds = _unanswered(corpus) > 0, run.objective.head == 'xlnet'
  offsets: dict[str, np.ndarray] = {}
  return [
    _answer(
      run, corpus, one, sorted(spans, key=lambda s: -s[0]), float(null[i]) if with_null else None, null_is_odds, offsets
    )
    for i, (one, spans) in enumerate(zip(questions, spans_by_question, strict=True))
  ]


def _unanswered(corpus: corpora.Corpus) -> int:
  """Return the number of training questions without an answer."""
  if 'unanswered' in corpus.manifest:
    return int(corpus.manifest['unanswered'])
  return labels.count_unanswered(corpus.splits['train'].labels)  # tokenised by an earlier lmx, which did not record it


def _read_questions(run: schema.Run, split: str) -> list[Question]:
  """Return the questions of a split as the data set has them."""
  rows = list(pipeline.examples(run.data, split))
  questions = []
  for (_, context, _), (_, question, label) in zip(rows[::2], rows[1::2], strict=True):
    about = json.loads(label)
    questions.append(Question(about['id'], context, question, tuple((text, begin) for text, begin in about['answers'])))
  return [questions[i] for i in pipeline.select_documents(run.data, split, len(questions))]


Span = tuple[float, int, int]  # (score, first position, last position)


def _window(row: Mapping[str, np.ndarray], options: Any) -> tuple[float, list[Span]]:
  """Return (null score or odds, best spans) of a window, from its row of the batch and of the predictions."""
  if 'scores_BT2' in row:
    scores_T2 = row['scores_BT2'].astype(np.float64)
    return float(scores_T2[row['null_B']].sum()), _spans(scores_T2, row['passage_BT'], row['best_BT'], options)
  begin_K, end_KE, scores_KE = row['begin_BK'], row['end_BKE'], row['scores_BKE'].astype(np.float64)
  pairs = [
    (float(score), int(a), int(z))
    for a, end_E, scores_E in zip(begin_K, end_KE, scores_KE, strict=True)
    for z, score in zip(end_E, scores_E, strict=True)
    if row['best_BT'][a] and row['passage_BT'][z] and a <= z < a + options.answer_length
  ]
  return float(row['odds_B']), sorted(pairs, reverse=True)


def _spans(scores_T2: np.ndarray, passage_T: np.ndarray, best_T: np.ndarray, options: Any) -> list[Span]:
  """Return the best spans of a window."""

  def top(scores_T: np.ndarray, among_T: np.ndarray) -> np.ndarray:
    ranked = np.argsort(-scores_T[among_T], kind='stable')[: options.n_best]
    return np.flatnonzero(among_T)[ranked]

  firsts, lasts = top(scores_T2[:, 0], best_T), top(scores_T2[:, 1], passage_T)
  pairs = [
    (float(scores_T2[a, 0] + scores_T2[z, 1]), int(a), int(z))
    for a in firsts
    for z in lasts
    if a <= z < a + options.answer_length
  ]
  return sorted(pairs, reverse=True)[: options.n_best]


def _answer(
  run: schema.Run,
  corpus: corpora.Corpus,
  question: Question,
  spans: Sequence[Span],
  null: float | None,
  null_is_odds: bool,
  offsets: dict[str, np.ndarray],
) -> Answer:
  """Return the answer of a question from its spans.

  With `null_is_odds`, `null` is already the null odds, not a score like the spans'.
  """
  if question.context not in offsets:
    offsets.clear()  # questions on the same passage are consecutive
    offsets[question.context] = corpus.tokenizer.encode_spans(question.context)[1]
  spans_T2 = offsets[question.context]
  candidates: dict[str, tuple[float, int]] = {}
  for score, first, last in spans:
    whole = question.context[spans_T2[first, 0] : spans_T2[last, 1]]
    if whole.strip() and whole.strip() not in candidates:
      candidates[whole.strip()] = score, int(spans_T2[first, 0]) + len(whole) - len(whole.lstrip())
  ranked = sorted(candidates.items(), key=lambda item: -item[1][0])[: run.evaluation.n_best]
  best, (score, _) = ranked[0] if ranked else ('', (-np.inf, 0))
  odds = float('-inf') if null is None else null if null_is_odds else null - score
  rows: list[dict[str, Any]] = [
    {'text': text, 'score': score, 'start': begin, 'end': begin + len(text)} for text, (score, begin) in ranked
  ]
  if null is not None and not null_is_odds:
    rows.append({'text': '', 'score': null, 'start': None, 'end': None})
  scale = np.exp([row['score'] - max(one['score'] for one in rows) for row in rows])
  listed = [row | {'probability': float(p)} for row, p in zip(rows, scale / max(scale.sum(), 1e-300), strict=True)]
  predicted = '' if odds > run.evaluation.null_threshold else best
  truths = None if question.answers is None else tuple(text for text, _ in question.answers)
  return Answer(question.id, predicted, best, odds, sorted(listed, key=lambda row: -row['score']), truths)


def compute_metrics(run: schema.Run, answers: Sequence[Answer]) -> dict[str, Any]:
  """Return the metrics of the answers of a split, for results.json."""
  truths = {one.id: one.truths or () for one in answers}
  scores: dict[str, Any] = squad.compute_metrics({one.id: one.text for one in answers}, truths)
  if any(np.isfinite(one.null_odds) for one in answers):
    scores |= squad.compute_thresholds(
      {one.id: one.best for one in answers}, truths, {one.id: one.null_odds for one in answers}
    )
    scores['null_threshold'] = run.evaluation.null_threshold
  unit = {'f1_unit': 'characters'} if squad.counts_characters(truths) else {}
  return scores | unit | {'metric': 'f1'}


def read_file(loaded: RestoredRun, path: str, *, strip: bool = True) -> Inputs:
  """Return the questions of a file in SQuAD's format, in which answers are optional; see `data.builders.questions`.

  Raises:
    InputError: the file cannot be read, has no question, or the offset of an answer is wrong.
  """
  del strip
  batched.check_suffix(path, ('.json', '.jsonl'), 'questions')
  items = list(questions.read(path, require_answers=False))
  if not items:
    raise InputError(f'{path}: the file has no questions')
  texts = [text for one in items for text in (one.context, one.question)]
  corpus = corpora.Corpus.from_texts({path: texts}, batched.tokenizer(loaded, texts), labels={path: [-1] * len(texts)})
  about = run_files.read_data(loaded.workdir)
  count = about.get('unanswered', 1)
  corpus = dataclasses.replace(corpus, manifest={**corpus.manifest, 'spans': True, 'unanswered': count})
  notes = [] if 'unanswered' in about else [UNANSWERED_UNKNOWN]
  return Inputs(corpus, path, items, (*notes, *batched.batches(loaded.run, corpus, path).notes))


def line(loaded: RestoredRun, one: Any, number: int) -> Mapping[str, Any]:
  """Return a pair (question, passage), or a dict of them or of SQuAD's form, as the object of a line."""
  del loaded
  names = ('question', 'context')
  if isinstance(one, Mapping):
    if 'question' not in one:
      return one
    one = [one.get(name) for name in names]
  texts = (one,) if isinstance(one, str) else tuple(one)
  batched.check_count(number, texts, names)
  return {'context': texts[1], 'qas': [{'id': str(number), 'question': texts[0]}]}


def read_split(loaded: RestoredRun, split: str) -> Inputs:
  """Return the questions of a split of the run's data."""
  return Inputs(pipeline.load(loaded.run.data), split, _read_questions(loaded.run, split))


def predict(loaded: RestoredRun, inputs: Inputs) -> list[dict[str, Any]]:
  """Return {'id', 'text', 'score', 'start', 'end', 'n_best'} for each question, and 'null_odds' if '' is possible."""
  answers = answer(loaded.run, inputs.corpus, loaded.params, inputs.split, inputs.items)
  return [_to_json(one) for one in answers]


def _to_json(one: Answer) -> dict[str, Any]:
  nothing = dict.fromkeys(SHARED) | {'text': ''}
  chosen = next((row for row in one.candidates if row['text'] == one.text), nothing)
  odds = {'null_odds': one.null_odds} if one.null_odds > -np.inf else {}
  return {'id': one.id} | {key: chosen[key] for key in SHARED} | odds | {'n_best': one.candidates}


def score(loaded: RestoredRun, inputs: Inputs, predictions: Sequence[Mapping[str, Any]]) -> str:
  """Return a sentence with exact match and F1 over the questions whose answers are known.

  If some are unanswerable, both kinds are also reported separately. `"answers": []` marks an unanswerable question.
  """
  del loaded
  truths = {one.id: [text for text, _ in one.answers] for one in inputs.items if one.answers is not None}
  if not truths:
    return ''
  scores = squad.compute_metrics({row['id']: row['text'] for row in predictions}, truths)
  names = {'': 'questions', 'answered_': 'questions with an answer', 'unanswered_': 'questions without an answer'}
  return '; '.join(
    f'exact match {scores[f"{kind}exact_match"]:.2f}, F1 {scores[f"{kind}f1"]:.2f} of {count:,} {name}'
    for kind, name in names.items()
    if (count := scores.get(f'{kind}questions'))
  )


def _predictions(loaded: RestoredRun, inputs: Inputs, predictions: Sequence[Mapping[str, Any]]) -> str:
  """Return the file of answers that SQuAD's official evaluation reads."""
  del loaded, inputs
  return _json({row['id']: row['text'] for row in predictions})


def _null_odds(loaded: RestoredRun, inputs: Inputs, predictions: Sequence[Mapping[str, Any]]) -> str:
  """Return the file for --na-prob-file of that evaluation: higher values mean no answer."""
  del inputs
  if not all('null_odds' in row for row in predictions):
    raise InputError(f'{loaded.workdir} was trained only on questions with an answer, so it has no null odds')
  return _json({row['id']: row['null_odds'] for row in predictions})


FORMATS: dict[str, batched.Format] = {'squad': _predictions, 'null_odds': _null_odds}


def _json(content: Mapping[str, Any]) -> str:
  return json.dumps(content, indent=1, ensure_ascii=False) + '\n'


def write_files(workdir: Any, answers: Sequence[Answer]) -> None:
  """Write predictions.json, nbest_predictions.json and, with questions without an answer, null_odds.json."""
  files: dict[str, Mapping[str, Any]] = {
    'predictions.json': {one.id: one.text for one in answers},
    'nbest_predictions.json': {one.id: one.candidates for one in answers},
  }
  if any(np.isfinite(one.null_odds) for one in answers):
    files['null_odds.json'] = {one.id: one.null_odds for one in answers}
  try:
    for name, content in files.items():
      (workdir / name).write_text(_json(content), encoding='utf-8')
  except OSError as error:
    raise InputError(f'{workdir} cannot be written: {explain(error)}') from None
