"""A WordPiece tokenizer whose tokens are numbered, for tests of batches whose token ids follow a rule."""

from __future__ import annotations

from collections.abc import Callable

from tokenizers import models

from lmx.data.tokenizers import subword, subword_models


def wordpiece(
  size: int, special_at: int = 0, starts_word: Callable[[int], bool] = lambda i: i % 3 != 0
) -> subword.WordPiece:
  """Return a tokenizer of `size` tokens, with [PAD] [UNK] [CLS] [SEP] [MASK] from id `special_at`."""
  names = [f'w{i}' if starts_word(i) else f'##w{i}' for i in range(size)]
  names[special_at : special_at + 5] = subword_models.BERT_SPECIALS
  model = models.WordPiece({name: i for i, name in enumerate(names)}, unk_token='[UNK]')
  return subword.WordPiece(subword_models.wordpiece(model, lower_case=False))
