"""Random tokens in place of data that are not prepared: every batching of texts builds its batches of them."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.benchmark import synthetic
from lmx.data import pipeline
from lmx.errors import InputError

TOKENIZERS = {'pairs': 'wordpiece', 'both_ways': 'words', 'skipgrams': 'words'}


@pytest.mark.parametrize('name', synthetic.TEXTS)
def test_batches_have_the_declared_shapes(name):
  characters = 8 if name == 'both_ways' else 0
  tokenizer = TOKENIZERS.get(name, 'bpe')
  data = pipeline.Config(
    'multi30k' if name == 'translation' else 'embedded',
    tokenizer=tokenizer,
    characters=characters,
    batching=name,
    batch_size=4,
    length=64 if name != 'skipgrams' else 256,
  )
  batches = pipeline.batches(data, synthetic.corpus(data, 500), 'train', 0, train=True)
  assert batches.steps >= synthetic.BATCHES // 2
  for step in (0, batches.steps - 1):
    batch = batches(step)
    ids = [x for key, x in batch.items() if key.startswith(('tokens', 'targets'))]
    assert all(0 <= x.min() and x.max() < 500 for x in ids) and max(len(np.unique(x)) for x in ids) > 20


def test_synthetic_tokens_follow_word_frequencies():
  data = pipeline.Config('embedded', tokenizer='bpe', batching='windows')
  corpus = synthetic.corpus(data, 1000)
  counts = np.bincount(corpus.split('train').tokens, minlength=1000)[corpus.tokenizer.special :]
  assert len(counts) == 994 and counts[0] / counts[9] == pytest.approx(7.27, rel=0.1)  # log 2 / log (11 / 10)
  assert counts[-1] > 20


def test_synthetic_batches_reject_labels():
  data = pipeline.Config('imdb', tokenizer='wordpiece', batching='documents')
  with pytest.raises(InputError, match='the data of imdb are not prepared on this machine'):
    synthetic.corpus(data, 500)


def test_vocabulary_with_only_special_tokens_is_rejected():
  with pytest.raises(InputError, match='data.vocab_size: got 6'):
    synthetic.corpus(pipeline.Config('embedded', tokenizer='bpe', batching='windows'), 6)
