"""Figures against other implementations of the official scripts, on the same predictions: spans of labels against
seqeval, answers against torchmetrics (version 1.1) and the squad_metrics of Transformers before 5 (version 2.0)."""

from __future__ import annotations

import gzip
import json
import types

import numpy as np
import pytest

from lmx.metrics import squad
from lmx.objectives import tag
from lmx.prediction import tagging

pytestmark = pytest.mark.peer
NAMES = ('O', 'B-LOC', 'I-LOC', 'B-PER', 'I-PER', 'B-MISC', 'I-MISC')
WORDS = [
  'The',
  'the',
  'a',
  'an',
  'An',
  'cat',
  'cat.',
  'U.S.',
  'us',
  '1,000',
  '—',
  '“Zoë”',
  'Zoë',
  'ZOË',
  'ﬁne',
  'fine',
  'straße',
  'STRASSE',
  'İ',
  '北京',
  '½',
  "o'clock",
  'and/or',
  '%',
  '\u00a0',
  '...',
  'co-op',
  'the-end',
  'a_b',
]


def labelled(draw, kind):
  """True labels of a sentence: spans in IOB2 (each begins with a B) or IOB1 (only those that follow one of their type),
  or labels in any order, which are no valid spans."""
  found, before = [], ''
  for _ in range(int(draw.integers(1, 6))):
    name, length = str(draw.choice(['LOC', 'PER', 'MISC'])), int(draw.integers(1, 4))
    if kind == 'any':
      found += draw.choice(NAMES, length).tolist()
    elif draw.random() < 0.3:
      found, before = found + ['O'] * length, ''
    else:
      begin = 'B' if kind == 'IOB2' or before == name else 'I'
      found, before = [*found, f'{begin}-{name}', *[f'I-{name}'] * (length - 1)], name
  return found


@pytest.mark.parametrize('kind', ['IOB2', 'IOB1', 'any'])
def test_spans_match_seqeval(kind):
  seqeval = pytest.importorskip('seqeval.metrics')
  draw = np.random.default_rng(0)
  true = [labelled(draw, kind) for _ in range(200)]
  said = [[t if draw.random() < 0.8 else str(draw.choice(NAMES)) for t in one] for one in true]
  found = tagging.compute_metrics(tag.Config(labels=tuple(NAMES)), list(zip(said, true, strict=True)))
  assert found['span_f1'] == pytest.approx(100 * seqeval.f1_score(true, said))
  assert found['span_precision'] == pytest.approx(100 * seqeval.precision_score(true, said))
  assert found['span_recall'] == pytest.approx(100 * seqeval.recall_score(true, said))
  assert found['accuracy'] == pytest.approx(seqeval.accuracy_score(true, said)) and 20 < found['span_f1'] < 95
  # Its strict mode counts no span that an I begins: that is another figure, and not conlleval's.
  from seqeval.scheme import IOB2

  assert found['span_f1'] != pytest.approx(100 * seqeval.f1_score(true, said, mode='strict', scheme=IOB2), abs=0.5)


def made_up(count, seed, answered=0.6):
  """Question -> right answers, and -> what is said of it."""
  draw, truths, said = np.random.default_rng(seed), {}, {}
  text = lambda: ' '.join(draw.choice(WORDS, draw.integers(1, 5)))
  for i in range(count):
    right = [text() for _ in range(draw.integers(1, 4))] if draw.random() < answered else []
    near = ' '.join(draw.permutation(right[0].split())) if right and draw.random() < 0.5 else text()
    truths[str(i)] = [one for one in right if answered < 1 or squad.normalise(one)] or ['cat'] * (answered == 1)
    said[str(i)] = draw.choice([near, near.upper(), f' {near}, ', right[0] if right else '', ''])
  return truths, said


def real(data_dir):
  """The same of real questions: an answer of another annotator or question, cut or between other words."""
  truths, draw = {}, np.random.default_rng(3)
  for name in ('squad2_part/dev', 'xquad_en/test'):
    with gzip.open(data_dir / 'qa' / f'{name}.jsonl.gz', 'rt', encoding='utf-8') as file:
      for qa in (qa for line in file for qa in json.loads(line)['qas']):
        truths[qa['id']] = [answer['text'] for answer in qa['answers']]
  every = [text for some in truths.values() for text in some]

  def altered(some):
    words = (str(draw.choice(some)) if some and draw.random() < 0.7 else str(draw.choice(every))).split()
    begin = int(draw.integers(len(words)))
    return draw.choice(['', ' '.join(words), ' '.join(words[begin:]), f'The {" ".join(words)}!'])

  return truths, {q: str(altered(some)) for q, some in truths.items()}


def both(truths, said, odds, threshold):
  """(figures of lmx, figures of Transformers) with '' where the odds of no answer are above a threshold."""
  theirs = pytest.importorskip('transformers.data.metrics.squad_metrics', reason='Transformers 5 has it no more')
  examples = [types.SimpleNamespace(qas_id=q, answers=[{'text': t} for t in some]) for q, some in truths.items()]
  wanted = theirs.squad_evaluate(examples, said, odds, threshold)
  kept = {q: '' if odds[q] > threshold else text for q, text in said.items()}
  return squad.compute_metrics(kept, truths) | squad.compute_thresholds(said, truths, odds), wanted


def compare(truths, said):
  draw = np.random.default_rng(5)
  odds = {q: float(draw.normal() + (0 if some else 0.8)) for q, some in truths.items()}
  names = {
    'exact_match': 'exact',
    'f1': 'f1',
    'questions': 'total',
    'answered_exact_match': 'HasAns_exact',
    'answered_f1': 'HasAns_f1',
    'unanswered_f1': 'NoAns_f1',
    'unanswered_questions': 'NoAns_total',
    'best_exact_match': 'best_exact',
    'best_exact_threshold': 'best_exact_thresh',
    'best_f1': 'best_f1',
    'best_f1_threshold': 'best_f1_thresh',
  }
  for threshold in (0.3, 1e9):
    found, wanted = both(truths, said, odds, threshold)
    for name, theirs in names.items():
      assert found[name] == pytest.approx(wanted[theirs]), (name, threshold)
  assert 5 < found['exact_match'] < found['f1'] < 95


@pytest.mark.parametrize('seed', range(3))
def test_answers_and_thresholds_match_version_2(seed):
  truths, said = made_up(150, seed)
  # Where a right answer is nothing but an article, '' said above a threshold is wrong in the official script alone.
  compare({q: [t for t in some if squad.normalise(t)] for q, some in truths.items()}, said)
  odds = dict.fromkeys(truths, 0.0)
  found, wanted = both(truths, said, odds, 1.0)
  assert (found['exact_match'], found['f1']) == pytest.approx((wanted['exact'], wanted['f1']))


@pytest.mark.real_data
def test_answers_to_real_questions_are_counted_the_same(data_dir):
  truths, said = real(data_dir)
  compare(truths, said)


def by_torchmetrics(truths, said):
  torchmetrics = pytest.importorskip('torchmetrics.functional.text')
  found = torchmetrics.squad(
    [{'id': q, 'prediction_text': text} for q, text in said.items()],
    [{'id': q, 'answers': {'text': list(some), 'answer_start': [0] * len(some)}} for q, some in truths.items()],
  )
  return {name: float(x) for name, x in found.items()}


@pytest.mark.parametrize('seed', range(2))
def test_answers_match_version_1(seed):
  truths, said = made_up(60, seed, answered=1)
  found, wanted = squad.compute_metrics(said, truths), by_torchmetrics(truths, said)
  assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-5) and 5 < found['f1'] < 95


@pytest.mark.real_data
def test_answers_to_real_questions_match_version_1(data_dir):
  truths, said = real(data_dir)
  truths = {q: some for q, some in list(truths.items())[-400:] if some}
  found, wanted = squad.compute_metrics(said, truths), by_torchmetrics(truths, {q: said[q] for q in truths})
  assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-5)
