"""Epochs of gensim's word2vec, run by another interpreter, for `lmx bench --preset=word2vec_...`.

It imports nothing from lmx; its interpreter needs gensim. Protocol: peer_protocol.py's, with these requests.

1. A model and its text, one sentence per line:
   {"kind": "word2vec", "file": "train.txt", "sg": 1, "hs": 0, "threads": 2}
   sg       1: skip-gram, 0: CBOW
   hs       1: hierarchical softmax, 0: noise words
   D, window, negative, sample, min_count   (100, 5, 5, 1e-3, 5)
   lines    read the sentences with a Python loop (true) or in each thread from the file (false, gensim's faster way)
   Answer: {"gensim": version, "threads": n, "vocabulary": size}
2. {"epochs": k}: trains for k epochs. Answer: {"seconds": of all of them}
"""

from __future__ import annotations

import time
from typing import Any

import peer_protocol

DEFAULTS = {'D': 100, 'window': 5, 'negative': 5, 'sample': 1e-3, 'min_count': 5, 'threads': 2, 'lines': False}


def build(spec: Any) -> Any:
  """Return (function that trains for some epochs, answer to the request)."""
  import gensim
  from gensim.models import word2vec

  spec = {**DEFAULTS, **spec}
  model = word2vec.Word2Vec(
    vector_size=spec['D'],
    window=spec['window'],
    min_count=spec['min_count'],
    sample=spec['sample'],
    sg=spec['sg'],
    hs=spec['hs'],
    negative=0 if spec['hs'] else spec['negative'],
    alpha=0.025 if spec['sg'] else 0.05,
    workers=spec['threads'],
    seed=0,
  )
  text: dict[str, Any] = {'corpus_file': spec['file']}
  if spec['lines']:
    with open(spec['file'], encoding='utf-8') as file:
      text = {'corpus_iterable': [line.split() for line in file]}
  model.build_vocab(**text)
  sizes = {'total_examples': model.corpus_count, 'total_words': model.corpus_total_words}
  train = lambda epochs: model.train(**text, **sizes, epochs=epochs)
  return train, {'gensim': gensim.__version__, 'threads': spec['threads'], 'vocabulary': len(model.wv)}


def run(train: Any, request: Any) -> Any:
  """Train for some epochs; return the answer to the request."""
  start = time.perf_counter()
  train(request['epochs'])
  return {'seconds': time.perf_counter() - start}


if __name__ == '__main__':
  peer_protocol.serve(__doc__, build, run)
