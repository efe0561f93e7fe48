"""Attention of runs on texts that the user gives: one text, or two that a row has."""

from __future__ import annotations

import pytest

from lmx.data.tokenizers import build
from lmx.errors import InputError
from lmx.evaluation import attention_maps
from lmx.runs import init
from tests import drawn, untrained

TEXTS = ['a man plays', 'the woman plays a flute']
SIZES = ('model.D=8', 'model.E=8', 'model.F=8', 'data.length=32')


RECIPE = 'experiments/esim/pairs.py:own_scores'


@pytest.fixture(scope='module')
def loaded():
  tokenizer = build.train('words', TEXTS)
  run = untrained.load(RECIPE, *SIZES, tokenizer=tokenizer).run
  return untrained.load(RECIPE, *SIZES, tokenizer=tokenizer, params=drawn.params(init.init_params, run))


@pytest.mark.slow
def test_two_texts_are_separated_by_a_tab(loaded):
  (row,) = attention_maps.of_texts(loaded, ['\t'.join(TEXTS)])
  first, second = (text.split() for text in TEXTS)
  assert [(list(one.queries), list(one.keys)) for one in row.maps] == [(first, second), (second, first)]


def test_number_of_texts_that_a_model_does_not_read_is_refused(loaded):
  cases = {TEXTS[0]: 'got one text; model esim reads two; separate', 'a\tb\tc': 'got 3 texts; expected 2', ' ': 'empty'}
  for text, message in cases.items():
    with pytest.raises(InputError, match=f'--attention: .*{message}'):
      attention_maps.of_texts(loaded, [text])
