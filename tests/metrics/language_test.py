"""Scores with their denominators."""

from __future__ import annotations

import math

import pytest

from lmx.metrics import language


def test_each_score_has_its_own_denominator():
  found = language.report(100.0, 50, {'tokens': 49, 'words': 20, 'characters': 120, 'bytes': 125})
  assert found == {
    'loss': 2.0,
    'perplexity_per_token': pytest.approx(math.exp(2)),
    'perplexity_per_word': pytest.approx(math.exp(5)),
    'bits_per_character': pytest.approx(100 / 120 / math.log(2)),
    'bits_per_byte': pytest.approx(100 / 125 / math.log(2)),
  }


def test_uncharged_unknown_words_are_named():
  found = language.report(100.0, 50, {'words': 20, 'bytes': 125, 'unknown_words': 7, 'unknown_bytes': 9})
  assert found['bits_per_byte_with_spelling'] == pytest.approx((100 + 16 * math.log(257)) / 125 / math.log(2))
  assert not {'bits_per_character', 'bits_per_character_with_spelling'} & {*found}
  remarks = {name: language.describe_uncharged(found, name) for name in found}
  assert {name: remark for name, remark in remarks.items() if remark} == dict.fromkeys(
    ('perplexity_per_word', 'bits_per_byte'), '7 unknown words not charged'
  )
  assert language.describe_uncharged({'unknown_charged': False}, 'bits_per_byte') == '<unk> not charged'
  assert language.describe_uncharged({}, 'bits_per_byte') == ''


def test_zero_count_gives_no_score():
  assert set(language.report(1.0, 5, {'words': 0})) == {'loss', 'perplexity_per_token'}


def test_no_overflow():
  assert language.perplexity(800.0, 1) == language.perplexity(1e9, 1) == math.inf
  assert math.isfinite(language.perplexity(708.0, 1))
  assert language.perplexity(math.inf, 1) == math.inf
  assert math.isnan(language.perplexity(math.nan, 1))
  assert math.isnan(language.perplexity(1.0, 0)) and math.isnan(language.bits(1.0, 0))
  assert math.isnan(language.report(0.0, 0, {})['loss'])
