"""Compiled scoring functions are kept between calls."""

from __future__ import annotations

from lmx.scoring import causal, sentences
from lmx.scoring.program import compiled
from lmx.scoring.scorer import RunScorer
from tests import drawn, untrained


def test_a_second_call_compiles_nothing():
  run = untrained.load('experiments/rnn_lm/quickstart.py:tiny')
  run = untrained.load('experiments/rnn_lm/quickstart.py:tiny', params={'model': drawn.params(run.model.init, run.cfg)})
  for text in ('abc', 'abd'):
    list(sentences.score(RunScorer(run), [text]))
  assert compiled(causal._scored, run, greedy=False)._cache_size() == 1
