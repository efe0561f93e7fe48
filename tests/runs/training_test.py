"""Updates at which checkpoints are kept for good."""

from __future__ import annotations

import pytest

from lmx.data import corpus, pipeline
from lmx.data.tokenizers import build
from lmx.errors import InputError
from lmx.runs import training

TEXT = ['a b c d e f g h i j'] * 50


@pytest.fixture(scope='module')
def data():
  return corpus.Corpus.from_texts({'train': TEXT}, build.train('words', TEXT, rule='space'))


def batches(data, **settings):
  return pipeline.batches(pipeline.Config(batch_size=2, length=8, **settings), data, 'train', 0, train=True)


def test_words_of_every_epoch_count(data):
  made = batches(data)
  steps = training.steps_of_words((1000, 1, 500, 250), made, 500, 2 * made.steps)
  assert list(steps.items()) == [(1, 1), (-(-made.steps // 2), 250), (made.steps, 500), (2 * made.steps, 1000)]
  assert training.steps_of_words((), made, 0, 62) == {}


def test_epoch_may_have_several_passes(data):
  made = batches(data)
  made.passes = 10
  assert training.steps_of_words((5000,), made, 500, made.steps) == {made.steps: 5000}


def test_epochs_may_differ_in_length(data):
  made = batches(data, batching={'name': 'streams', 'random_length': True})
  ends = [made.steps_in(epoch) for epoch in (1, 2, 3)]
  assert ends[0] != ends[1] - ends[0]
  assert training.steps_of_words((500, 1000, 1500), made, 500, ends[-1]) == dict(
    zip(ends, (500, 1000, 1500), strict=True)
  )


@pytest.mark.parametrize(
  ('amounts', 'words', 'message'),
  [
    ((1001,), 500, 'got 1,001, which update'),
    ((251, 252), 500, 'got 251 and 252, both reached by update'),
    ((10,), 0, 'not counted'),
  ],
)
def test_words_that_no_update_reaches_are_refused(data, amounts, words, message):
  made = batches(data)
  with pytest.raises(InputError, match=f'checkpoint.at_words: .*{message}'):
    training.steps_of_words(amounts, made, words, 2 * made.steps)


def test_words_that_a_resumed_run_is_past_are_reported():
  (line,) = training.past_words({1: 10, 5: 50, 9: 90}, 6, [5])
  assert line == 'checkpoint.at_words: the run is past 10; no checkpoint is kept for them'
  assert not training.past_words({1: 10, 9: 90}, 6, [1])
