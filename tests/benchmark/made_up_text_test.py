"""Made-up text: distinct words, Zipf's law, the same text for the same seed."""

from __future__ import annotations

import collections
import itertools

import numpy as np

from lmx.benchmark import made_up_text


def test_words_are_distinct_and_the_frequent_ones_short():
  words = made_up_text.words(5000)
  assert len(set(words)) == 5000 and all(word.isalpha() and word.islower() for word in words)
  lengths = [len(word) for word in words]
  assert np.mean(lengths[:500]) < np.mean(lengths[-500:]) - 0.5


def test_word_frequencies_follow_zipfs_law():
  lines = list(itertools.islice(made_up_text.lines(1000, 50), 1000))
  assert lines == list(itertools.islice(made_up_text.lines(1000, 50), 1000))
  assert lines != list(itertools.islice(made_up_text.lines(1000, 50, seed=1), 1000))
  counts = collections.Counter(word for line in lines for word in line.split(' '))
  assert sum(counts.values()) == 50_000
  ranked = [counts[word] for word in made_up_text.words(1000)]
  slope = np.polyfit(np.log(np.arange(1, 101)), np.log(ranked[:100]), 1)[0]
  assert -1.1 < slope < -0.9


def test_generated_text_has_requested_size(tmp_path):
  file = tmp_path / 'text.txt'
  size = made_up_text.write_sentences(file, 300_000, types=2000)
  text = file.read_text()
  assert 300_000 <= size == len(text) < 400_000
  paragraphs = text.split('\n\n')
  sentences = [sentence for paragraph in paragraphs for sentence in paragraph.split('. ') if sentence]
  assert 4 < len(sentences) / len(paragraphs) < 8
  assert all(sentence[0].isupper() and ', ' in sentence for sentence in sentences[:50])
