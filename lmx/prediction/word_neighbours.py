"""Nearest neighbours of a few words, by the cosine of the rows of a run's embedding tables of words or subwords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx.data import stop_words
from lmx.data.tokenizers import word_characters
from lmx.decoding import translate
from lmx.errors import InputError, nearest
from lmx.metrics.embeddings import Vectors
from lmx.reporting.html_report import Neighbours
from lmx.runs.restore import RestoredRun

_TABLES = ('tokens', 'table', 'source', 'target')
_SHORTEST = 4  # letters of a default word
_WORDS, _NEAREST = 12, 8


def find(loaded: RestoredRun, words: Sequence[str] = ()) -> list[Neighbours]:
  """Return the neighbours of words in each embedding table of a run.

  Args:
    loaded: the run.
    words: words that are one token each; by default the first content words of the vocabulary, which has the most
      frequent ones first.

  Raises:
    InputError: the model has no embedding table of tokens, or a word is no token of any of its tables.
  """
  tables = _tables(loaded.params['model'].get('embed', {}))
  if not tables:
    raise InputError(f'--words: model {loaded.model.name} has no table of word embeddings; omit the option')
  found, known = [], set[str]()
  for name, table_VD in tables.items():
    is_target = loaded.model.READS == 'source' and name != 'source' and loaded.tokenizer.is_separate
    tokenizer = loaded.tokenizer.target if is_target else loaded.tokenizer
    if loaded.run.data.characters:  # a row for each word id, not for each token
      words_V = word_characters.vocabulary(tokenizer)[: len(table_VD)]
      vectors = Vectors(words_V, table_VD[: len(words_V)])
    else:
      vectors = _vectors(tokenizer, table_VD)
    texts = {*vectors.words}
    tokens = {word: next((text for text in (word, f'·{word}') if text in texts), '') for word in words}
    tokens = tokens or {word: word for word in _content_words(vectors)}
    known |= {word for word, token in tokens.items() if token}
    if any(tokens.values()):
      rows = [(token, vectors.nearest(token, _NEAREST)) for token in tokens.values() if token]
      found.append(Neighbours(f'embed/{name}', rows))
  for word in words:
    if word not in known:
      raise InputError(f'--words: got "{word}", which is no token of the vocabulary{nearest(word, vectors.words)}')
  if not found:
    raise InputError(f'--words: the vocabulary of {loaded.workdir} has no letters; name some of its tokens')
  return found


def _tables(embed: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Return the embedding tables by name; clusters of adaptive embeddings are projected and joined to one."""
  tables = {name: np.asarray(embed[name], np.float32) for name in _TABLES if np.ndim(embed.get(name, 0)) == 2}
  clusters = [np.asarray(embed[f'tokens_{i}'], np.float32) for i in range(len(embed)) if f'tokens_{i}' in embed]
  if clusters:
    projected = [x @ np.asarray(embed.get(f'projection_{i}', np.eye(x.shape[1]))) for i, x in enumerate(clusters)]
    tables['tokens'] = np.concatenate(projected)
  return tables


def _vectors(tokenizer: Any, table_VD: np.ndarray) -> Vectors:
  """Return the vectors of a table with the texts of its tokens; after a dot if a token continues a word."""
  ids = np.arange(min(tokenizer.vocab_size, len(table_VD)))
  after = np.full_like(ids, len(ids) // 2)  # an ordinary token before each
  labels = translate.token_labels(tokenizer, np.stack([after, ids], axis=1).ravel())[1::2]
  return Vectors(labels, table_VD[: len(ids)])


def _content_words(vectors: Vectors) -> list[str]:
  """Return the first words in lower case that are no stop words; of a vocabulary without words the first letters."""
  texts = [text for text in vectors.words if text.lstrip('·').isalpha() and text.islower()]
  words = [text for text in texts if len(text) >= _SHORTEST and text.isalpha() and text not in stop_words.WORDS]
  return list(dict.fromkeys(words or texts))[:_WORDS]
