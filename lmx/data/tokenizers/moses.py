"""Text of fairseq's releases: the tokenizer of Moses, then byte-pair encoding within words (Sennrich et al. 2016).

Moses' rules are those of sacremoses, with aggressive hyphens ('well @-@ known') and escaped characters ('&apos;'), as
fairseq applies them (from memory). Punctuation is not normalised. A subword that is not the last of its word ends with
'@@'. Decoding joins subwords and undoes Moses' rules.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lmx.data.tokenizers import subword_models
from lmx.data.tokenizers.base import Tokenizer
from lmx.errors import InputError

_END, _JOINT = '</w>', '@@'
_SPECIAL = ('<s>', '<pad>', '<eos>', '<unk>')


class Moses(Tokenizer):
  """Subwords of two languages; `encode` reads the source's, and `target` is the same of the target's.

  Args:
    content: `languages` (of the source and of the target), `codes` (pairs of symbols in the order in which they are
      merged; the last character of a word has `</w>` after it), `vocabularies` (the subwords of the source and of the
      target in the order of their ids, or one list of both).
    side: 0 for the source, 1 for the target.
  """

  kind = 'moses'

  def __init__(self, content: Mapping[str, Any], side: int = 0):
    self._content, self._side = dict(content), side
    self._tokens: Sequence[str] = content['vocabularies'][side if len(content['vocabularies']) > 1 else 0]
    self._ids = {token: i for i, token in enumerate(self._tokens)}
    if missing := [token for token in _SPECIAL if token not in self._ids]:
      raise InputError(f'the vocabulary has no {", ".join(missing)}')
    self.vocab_size = len(self._tokens)
    self.pad_id, self.eos_id, self.unk_id = (self._ids[token] for token in _SPECIAL[1:])
    self._ranks = {(first, second): i for i, (first, second) in reversed([*enumerate(content['codes'])])}
    self._language = content['languages'][side]
    self._subwords = functools.lru_cache(maxsize=1 << 16)(self._encode_word)

  @functools.cached_property
  def target(self) -> Moses:
    return self if self._side else Moses(self._content, 1)

  @functools.cached_property
  def _rules(self) -> tuple[Any, Any]:
    """Moses' tokenizer and detokenizer, which take a second to import."""
    import sacremoses

    return sacremoses.MosesTokenizer(self._language), sacremoses.MosesDetokenizer(self._language)

  def split(self, text: str) -> list[str]:
    """Return the words of a text, special characters escaped."""
    text = subword_models.SURROGATE.sub('\ufffd', text)
    return self._rules[0].tokenize(text, aggressive_dash_splits=True, return_str=False, escape=True)

  def encode(self, text: str) -> np.ndarray:
    subwords = [subword for word in self.split(text) for subword in self._subwords(word)]
    return np.asarray([self._ids.get(subword, self.unk_id) for subword in subwords], np.int32)

  def _encode_word(self, word: str) -> list[str]:
    """Return the subwords of a word: the pair of the lowest rank is merged wherever it is, until none is left."""
    symbols = [*word[:-1], word[-1] + _END]
    while len(symbols) > 1:
      pairs = [*zip(symbols, symbols[1:], strict=False)]
      best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
      if best not in self._ranks:
        break
      merged: list[str] = []
      i = 0
      while i < len(symbols):
        joins = tuple(symbols[i : i + 2]) == best
        merged.append(''.join(symbols[i : i + 1 + joins]))
        i += 1 + joins
      symbols = merged
    symbols[-1] = symbols[-1].removesuffix(_END)
    return [symbol + _JOINT for symbol in symbols[:-1]] + symbols[-1:]

  def decode(self, ids: Iterable[int]) -> str:
    tokens = [self._tokens[i] for i in self._check_ids(ids)]
    text = ' '.join(token for token in tokens if token not in _SPECIAL[:3])
    words = f'{text} '.replace(f'{_JOINT} ', '').split()
    return self._rules[1].detokenize(words)

  def id_to_token(self, index: int) -> str:
    return self._tokens[index]

  def content(self) -> dict[str, Any]:
    return {'kind': self.kind, **self._content}

  @functools.cached_property
  def _word_tables(self) -> tuple[np.ndarray, np.ndarray]:
    ends = np.asarray([not token.endswith(_JOINT) for token in self._tokens])
    return np.zeros(self.vocab_size, bool), ends
