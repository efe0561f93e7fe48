"""Phrases: the paper's score, joining from left to right, several passes; and the command."""

from __future__ import annotations

import gzip

import pytest

from lmx import documents
from lmx.cli import main
from lmx.data import phrases
from lmx.errors import InputError

LINES = ['new york is big', 'in new york city', 'the city is new', 'york is old', 'a new york city']
SENTENCES = [line.split() for line in LINES * 4]


def test_score_matches_the_papers_times_word_count():
  found = phrases.learn(SENTENCES, threshold=0.0, discount=2.0, min_count=2)
  words = sum(map(len, SENTENCES))
  assert found.scores['new', 'york'] == pytest.approx((12 - 2) / (16 * 16) * words)
  assert found.scores['york', 'city'] == pytest.approx((8 - 2) / (16 * 12) * words)
  assert ('big', 'in') not in found.scores  # no pair over the end of a sentence
  assert ('big', 'is') not in found.scores


def test_threshold_discount_and_count_filter_pairs():
  score = phrases.learn(SENTENCES, threshold=0.0, discount=2.0, min_count=2).scores['new', 'york']
  assert ('new', 'york') not in phrases.learn(SENTENCES, threshold=score, discount=2.0, min_count=2).scores
  assert ('new', 'york') in phrases.learn(SENTENCES, threshold=score - 0.01, discount=2.0, min_count=2).scores
  assert ('new', 'york') not in phrases.learn(SENTENCES, threshold=0.0, min_count=13).scores


def test_word_joins_one_pair_per_pass():
  found = phrases.Phrases({('a', 'b'): 1.0, ('b', 'c'): 1.0, ('c', 'c'): 1.0}, '_')
  assert found.apply('x a b c c c y'.split()) == ['x', 'a_b', 'c_c', 'c', 'y']
  assert found.apply([]) == []


def test_later_passes_join_phrases():
  first, second = phrases.passes(lambda: SENTENCES, (1.0, 0.5), discount=2.0, min_count=2)
  joined = second.apply(first.apply('in new york city'.split()))
  assert joined == ['in_new_york_city']


def test_command_prints_the_measurement(tmp_path, capsys):
  source, target = tmp_path / 'text.txt.gz', tmp_path / 'out.txt.xz'
  with gzip.open(source, 'wt') as file:
    file.write('\n'.join(' '.join(s) for s in SENTENCES) + '\n')
  options = ['--thresholds=1,0.5', '--min_count=2', '--discount=2']
  assert main.main(['phrases', f'--input={source}', f'--output={target}', *options]) == 0
  assert 'pass 2' in capsys.readouterr().out
  lines = documents.read_text(target).splitlines()
  assert len(lines) == len(SENTENCES)
  assert [line.replace('_', ' ').split() for line in lines] == SENTENCES
  assert any('new_york' in line for line in lines)
  assert main.main(['phrases', f'--input={source}', f'--output={target}', '--thresholds=high']) == 2
  assert main.main(['phrases', f'--input={tmp_path}/none', f'--output={target}']) == 2


def test_negative_thresholds_are_rejected():
  with pytest.raises(InputError, match='threshold'):
    phrases.learn(SENTENCES, threshold=-1.0)
