"""Exact match, F1 and the best thresholds against the rules of the official scripts, restated and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.metrics import squad


def test_answers_are_compared_without_articles_punctuation_and_case():
  assert squad.normalise('The  U.S. Army, an "army"!') == 'us army army'
  assert squad.normalise('Anthem of the band') == 'anthem of band'
  assert squad.exact_match('the Cat.', 'cat') == 1 and squad.exact_match('cats', 'cat') == 0
  assert squad.f1('the black cat sat', 'a cat sat down') == pytest.approx(2 * (2 / 3) * (2 / 3) / (4 / 3))
  assert squad.f1('to be to be', 'to be') == pytest.approx(2 * 0.5 * 1 / 1.5)
  assert squad.f1('', '') == 1 and squad.f1('', 'x') == 0 and squad.f1('x', '') == 0 and squad.f1('the', '') == 1


def test_best_of_the_answers_counts_and_no_answer_is_one():
  truths = {'a': ('a dog', 'cat'), 'b': (), 'c': ('the', 'bird')}  # 'the' alone is nothing, so it is left out
  found = squad.compute_metrics({'a': 'the cat', 'b': '', 'c': 'blue bird'}, truths)
  assert found['exact_match'] == pytest.approx(200 / 3) and found['questions'] == 3
  assert found['f1'] == pytest.approx(100 * (1 + 1 + 2 / 3) / 3)
  assert (found['answered_questions'], found['unanswered_questions'], found['unanswered_f1']) == (2, 1, 100)
  assert 'answered_f1' not in squad.compute_metrics({'a': 'x'}, {'a': ('x',)})


def best_by_trying(said, truths, odds, measure):
  """The figure of every threshold there is."""

  def at(threshold):
    return np.mean(
      [max(measure('' if odds[q] > threshold else said[q], t) for t in (truths[q] or ('',))) for q in truths]
    )

  return 100 * max(at(threshold) for threshold in [-np.inf, *odds.values()])


@pytest.mark.parametrize('seed', range(5))
def test_best_threshold_is_the_best_of_all(seed):
  draw = np.random.default_rng(seed)
  words = list('wxyz')
  truths = {str(i): () if draw.random() < 0.4 else (' '.join(draw.choice(words, 2)),) for i in range(40)}
  said = {q: ' '.join(draw.choice(words, 2)) for q in truths}
  odds = {q: float(draw.normal() + (0.7 if not truths[q] else 0)) for q in truths}
  found = squad.compute_thresholds(said, truths, odds)
  assert found['best_exact_match'] == pytest.approx(best_by_trying(said, truths, odds, squad.exact_match))
  assert found['best_f1'] == pytest.approx(best_by_trying(said, truths, odds, squad.f1))
  kept = {q: '' if odds[q] > found['best_f1_threshold'] else said[q] for q in truths}
  assert squad.compute_metrics(kept, truths)['f1'] == pytest.approx(found['best_f1'])


def test_answers_without_spaces_are_compared_by_character():
  truths = {'a': ('北京大学',), 'b': ('三本书。',), 'c': ()}
  found = squad.compute_metrics({'a': '北京', 'b': '三本书', 'c': ''}, truths)
  assert found['answered_f1'] == pytest.approx(100 * (2 * 2 / 6 + 1) / 2)
  assert found['answered_exact_match'] == pytest.approx(50)
  odds = dict.fromkeys(truths, -1.0) | {'c': 1.0}
  best = squad.compute_thresholds({'a': '北京', 'b': '三本书', 'c': 'x'}, truths, odds)
  assert best['best_f1'] == pytest.approx(found['f1'])
  assert not squad.counts_characters({'a': ('the cat 猫',), 'b': ()}) and not squad.counts_characters({'a': ()})
