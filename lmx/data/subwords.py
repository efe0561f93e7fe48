"""Byte-level BPE (GPT-2's) and WordPiece (BERT's) models of the `tokenizers` library, made the same each time."""

from __future__ import annotations

import collections
import re
import string
import unicodedata
from collections.abc import Iterable

import tokenizers as hf

from lmx.errors import InputError

END_OF_TEXT = '<|endoftext|>'
BERT_SPECIALS = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')


def bpe(model: hf.models.BPE) -> hf.Tokenizer:
  """Puts GPT-2's splitting and byte alphabet around a model."""
  tokenizer = hf.Tokenizer(model)
  tokenizer.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
  tokenizer.decoder = hf.decoders.ByteLevel()
  return tokenizer


def train_bpe(texts: Iterable[str], vocab_size: int, min_count: int) -> hf.Tokenizer:
  """Learns merges; id 0 is `<|endoftext|>`, then come the bytes."""
  if vocab_size < 257:
    raise InputError(f'vocab_size {vocab_size}: byte-level BPE needs 256 bytes and {END_OF_TEXT}')
  tokenizer = bpe(hf.models.BPE())
  trainer = hf.trainers.BpeTrainer(
    vocab_size=vocab_size,
    min_frequency=max(min_count, 2),
    special_tokens=[END_OF_TEXT],
    show_progress=False,
    initial_alphabet=sorted(hf.pre_tokenizers.ByteLevel.alphabet()),
  )
  tokenizer.train_from_iterator(texts, trainer)
  return tokenizer


def wordpiece(model: hf.models.WordPiece, lower_case: bool) -> hf.Tokenizer:
  """Puts BERT's cleaning and splitting around a model."""
  tokenizer = hf.Tokenizer(model)
  tokenizer.normalizer = hf.normalizers.BertNormalizer(lowercase=lower_case)
  tokenizer.pre_tokenizer = hf.pre_tokenizers.BertPreTokenizer()
  tokenizer.decoder = hf.decoders.WordPiece()
  return tokenizer


def train_wordpiece(texts: Iterable[str], vocab_size: int, min_count: int, lower_case: bool) -> hf.Tokenizer:
  """Trains WordPiece. The library numbers the `##c` pieces in hash order and breaks ties by number, so they are given
  first, sorted, as if they were special tokens, and the model is rebuilt from the vocabulary that results."""
  texts = list(texts)
  tokenizer = wordpiece(hf.models.WordPiece(unk_token='[UNK]'), lower_case)
  alphabet, inner = _alphabet(texts, tokenizer.normalizer)
  trainer = hf.trainers.WordPieceTrainer(
    vocab_size=vocab_size,
    min_frequency=max(min_count, 2),
    show_progress=False,
    initial_alphabet=alphabet,
    limit_alphabet=len(alphabet),
    special_tokens=[*BERT_SPECIALS, *('##' + c for c in inner)],
  )
  tokenizer.train_from_iterator(texts, trainer)
  return wordpiece(hf.models.WordPiece(tokenizer.get_vocab(), unk_token='[UNK]'), lower_case)


def _alphabet(
  texts: Iterable[str], normalizer: hf.normalizers.Normalizer, limit: int = 1000
) -> tuple[list[str], list[str]]:
  """The `limit` (BERT's) most frequent characters, sorted, and those of them that continue a word."""
  counts: collections.Counter[str] = collections.Counter()
  inner: set[str] = set()
  for text in texts:
    text = normalizer.normalize_str(text)
    counts.update(text)
    inner.update(re.findall(r'(?<=\S)\S', text))
  frequent = sorted(counts, key=lambda c: (-counts[c], c))[:limit]
  kept = sorted(c for c in frequent if not c.isspace())
  return kept, [
    c for c in kept if c in inner and not unicodedata.category(c).startswith('P') and c not in string.punctuation
  ]
