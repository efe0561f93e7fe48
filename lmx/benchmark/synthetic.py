"""A corpus of random tokens with a config's sizes, for measurements without prepared data.

Token r of the vocabulary has a probability proportional to about 1 / r. Sentences have 8 to 40 tokens and documents 32
sentences on average. In translations a document is a sentence. All lengths are in tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lmx.data.corpus import Corpus
from lmx.data.splits import Split
from lmx.data.tokenizers.base import Absent
from lmx.errors import InputError, check_range

TEXTS = ('streams', 'windows', 'packed', 'pairs', 'permutations', 'both_ways', 'skipgrams', 'translation')  # batchings
SENTENCE, SENTENCES = (8, 40), 32  # tokens of a sentence, mean sentences of a document
BATCHES, LEAST = 16, 2**18  # the corpus has the tokens of this many batches, and at least LEAST
_SPECIAL = ('<pad>', '<unk>', '<cls>', '<sep>', '<mask>', '<eos>')
_WITHOUT_END = ('wordpiece', 'gpt_bpe')  # tokenizers without an end-of-text


class RandomTokens(Absent):
  """Placeholder for a tokenizer, with made-up words; two of three tokens start a word."""

  pad_id, unk_id, cls_id, sep_id, mask_id = range(5)

  def __init__(self, kind: str, vocab_size: int, special: Iterable[str] = ()):
    super().__init__(vocab_size)
    self.kind = kind
    names = list(dict.fromkeys([*_SPECIAL, *special]))
    space = '' if kind == 'words' else ' '
    self.tokens = names + [space * (i % 3 > 0) + f'w{i}' for i in range(vocab_size - len(names))]
    self.known = vocab_size
    self.special = len(names)
    self.eos_id = None if kind in _WITHOUT_END else names.index('<eos>')

  def id_to_token(self, index: int) -> str:
    return self.tokens[index]

  def token_id(self, name: str) -> int | None:
    """Return the id of a special token, None if there is none of this name."""
    return self.tokens.index(name, 0, self.special) if name in self.tokens[: self.special] else None

  def spellings(self) -> list[bytes]:
    return [token.encode() for token in self.tokens]

  def content(self) -> dict[str, Any]:
    return {'kind': self.kind, 'tokens': self.tokens}

  def _error(self) -> InputError:
    return InputError('random tokens; prepare the data with `lmx prepare` for real ones')


def vocabulary(tokenizer: str) -> int:
  """Return the size of a vocabulary that the config leaves to the data: 256 characters or bytes, or 32,768 words."""
  return 256 if tokenizer in ('characters', 'bytes') else 32_768


def corpus(data: Any, vocab_size: int) -> Corpus:
  """Return a corpus in memory with a training split for the `data` section.

  Args:
    data: `lmx.data.pipeline.Config`.
    vocab_size: size of the vocabulary.

  Raises:
    InputError: the batching reads labels, which are not generated, or the vocabulary has only special tokens.
  """
  batching = data.batching.name
  if batching not in TEXTS:
    raise InputError(
      f'--config: the data of {data.dataset} are not prepared on this machine, and tokens for data.batching '
      f'"{batching}" are not made up; expected one of {", ".join(TEXTS)}, or prepare the data with `lmx prepare`'
    )
  check_range('data.vocab_size', vocab_size, len(_SPECIAL) + len(data.special_tokens) + 1)
  tokenizer = RandomTokens(data.tokenizer, vocab_size, data.special_tokens)
  pairs = batching == 'translation'
  count = max(BATCHES * max(data.batch_size * data.length, 2 * getattr(data.batching, 'tokens', 0)), LEAST)
  random = np.random.default_rng(0)
  rank = np.exp(random.random(count) * np.log(tokenizer.vocab_size - tokenizer.special + 1))
  tokens = (tokenizer.special - 1 + rank.astype(np.int64)).astype(np.min_scalar_type(tokenizer.vocab_size - 1))
  shortest, longest = SENTENCE
  lengths = random.integers(shortest, longest + 1, count // shortest)
  starts = np.cumsum(np.append(0, lengths))
  starts = starts[starts <= count - longest]
  if pairs:
    starts = starts[: len(starts) // 2 * 2]
  begins = pairs | (random.random(len(starts)) < 1 / SENTENCES)
  begins[0] = True
  offsets = np.append(starts[begins], count)
  if tokenizer.eos_id is not None:
    tokens[offsets[1:] - 1] = tokenizer.eos_id
  sentences = None if pairs else np.append(starts, count)
  split = Split('train', tokens, offsets, sentences, None, {'tokens': count, 'documents': len(offsets) - 1})
  manifest = {
    'dataset': {'name': data.dataset},
    'label_names': [],
    **({'sides': ['source', 'target']} if pairs else {}),
  }
  return Corpus(tokenizer, {'train': split}, manifest, '')
