"""Reproducible models of the `tokenizers` library.

They are byte-level BPE (GPT-2's), BPE within words (machine translation's and GPT's), WordPiece (BERT's) and Unigram
(SentencePiece's).
"""

from __future__ import annotations

import collections
import functools
import json
import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

import tokenizers as hf

from lmx.data.tokenizers import words
from lmx.errors import InputError

END_OF_TEXT = '<|endoftext|>'
LONE_BYTE = re.compile('([\udc80-\udcff])')  # a byte that is not UTF-8, in `surrogateescape`
SURROGATE = re.compile('[\ud800-\udfff]')  # not a character, and rejected by the library
WORD_END = '</w>'  # end-of-word suffix of Sennrich et al. and of GPT
SPACE = '▁'  # U+2581, SentencePiece's symbol for a space
_NEVER = -10_000.0  # a log probability
_ASCII = [chr(code) for code in range(33, 127)]
_CHARACTERS = 1000  # in Unigram's subwords, in addition to ASCII
_STEP = 1e-4  # between the log probabilities that the library gives to characters outside the subwords
BERT_SPECIALS = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
# XLNet's, by id (zihangdai/xlnet, data_utils.py): <eod> ends a document, <eop> a paragraph.
XLNET_SPECIALS = ('<unk>', '<s>', '</s>', '<cls>', '<sep>', '<pad>', '<mask>', '<eod>', '<eop>')


def printable(byte: int) -> str:
  """Return GPT-2's form of a byte from 128 on: itself in Latin-1 if printable, else a character after Latin-1
  (openai/gpt-2, encoder.py)."""
  if byte == 0xAD:
    return chr(323)
  return chr(290 + byte - 128) if byte <= 0xA0 else chr(byte)


def bpe(model: hf.models.BPE, lower_case: bool = False, prefix_space: bool = False) -> hf.Tokenizer:
  """Return a model with GPT-2's splitting and byte alphabet; `prefix_space` prepends a space to a text."""
  tokenizer = hf.Tokenizer(model)
  steps = [hf.normalizers.Lowercase()] * lower_case + [hf.normalizers.Prepend(' ')] * prefix_space
  if steps:
    tokenizer.normalizer = hf.normalizers.Sequence(steps) if len(steps) > 1 else steps[0]
  tokenizer.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
  tokenizer.decoder = hf.decoders.ByteLevel()
  if prefix_space:
    tokenizer.decoder = hf.decoders.Sequence([hf.decoders.ByteLevel(), hf.decoders.Strip(' ', 1, 0)])
  return tokenizer


def train_bpe(
  texts: Iterable[str], vocab_size: int, min_count: int, lower_case: bool = False, prefix_space: bool = False
) -> hf.Tokenizer:
  """Train the merges; id 0 is `<|endoftext|>`, then come the bytes. `lower_case` and `prefix_space`: see `bpe`."""
  if vocab_size < 257:
    raise InputError(
      f'data.vocab_size: got {vocab_size}; expected room for 256 bytes and {END_OF_TEXT} of byte-level BPE'
    )
  tokenizer = bpe(hf.models.BPE(), lower_case, prefix_space)
  trainer = hf.trainers.BpeTrainer(
    vocab_size=vocab_size,
    min_frequency=max(min_count, 2),
    special_tokens=[END_OF_TEXT],
    show_progress=False,
    initial_alphabet=sorted(hf.pre_tokenizers.ByteLevel.alphabet()),
  )
  tokenizer.train_from_iterator((LONE_BYTE.sub('', text) for text in texts), trainer)
  return tokenizer


def gpt_bpe(model: hf.models.BPE) -> hf.Tokenizer:
  """Return a model with GPT's normalization; it splits words by BERT's rule, where the authors used spaCy."""
  tokenizer = hf.Tokenizer(model)
  tokenizer.normalizer = hf.normalizers.BertNormalizer(lowercase=True)
  tokenizer.pre_tokenizer = hf.pre_tokenizers.BertPreTokenizer()
  tokenizer.decoder = hf.decoders.BPEDecoder(suffix=WORD_END)
  return tokenizer


def word_bpe(model: hf.models.BPE, lower_case: bool = False) -> hf.Tokenizer:
  """Return a model that splits text into words and punctuation as `words.HANGING` does."""
  tokenizer = hf.Tokenizer(model)
  if lower_case:
    tokenizer.normalizer = hf.normalizers.Lowercase()
  tokenizer.pre_tokenizer = hf.pre_tokenizers.Split(hf.Regex(words.HANGING), 'removed', invert=True)
  tokenizer.decoder = hf.decoders.BPEDecoder(suffix=WORD_END)
  return tokenizer


def read_bpe(vocabulary: str, merges: str, kind: str) -> hf.models.BPE:
  """Return a model from vocab.json and merges.txt."""
  if kind == 'bpe':
    return hf.models.BPE.from_file(vocabulary, merges)
  return hf.models.BPE.from_file(vocabulary, merges, unk_token='<unk>', end_of_word_suffix=WORD_END)


def train_word_bpe(texts: Iterable[str], vocab_size: int, min_count: int, lower_case: bool) -> hf.Tokenizer:
  """Train the merges; id 0 is `<|endoftext|>`, 1 `<unk>`, then come the characters as in `train_gpt_bpe`."""
  special = (END_OF_TEXT, '<unk>')
  trained = _train_in_words(texts, vocab_size, min_count, functools.partial(word_bpe, lower_case=lower_case), special)
  trained.add_special_tokens([END_OF_TEXT])
  return trained


def train_gpt_bpe(texts: Iterable[str], vocab_size: int, min_count: int) -> hf.Tokenizer:
  """Train the merges; id 0 is `<unk>`, then the characters, each by itself and at the end of a word."""
  return _train_in_words(texts, vocab_size, min_count, gpt_bpe, ('<unk>',))


def _train_in_words(
  texts: Iterable[str],
  vocab_size: int,
  min_count: int,
  builder: Callable[[hf.models.BPE], hf.Tokenizer],
  special: Sequence[str],
) -> hf.Tokenizer:
  """Train merges within the words into which the tokenizer of `builder` splits a text.

  The library numbers the characters at the end of a word in hash order. So all are passed first, as if they were
  special tokens, and the model is rebuilt from the result, as for WordPiece.
  """
  texts = list(texts)
  tokenizer = builder(hf.models.BPE(unk_token='<unk>', end_of_word_suffix=WORD_END))
  alphabet, _ = _alphabet(texts, tokenizer.normalizer)
  first = [*special, *alphabet, *(c + WORD_END for c in alphabet)]
  if vocab_size < len(first):
    raise InputError(
      f'data.vocab_size: got {vocab_size}; expected at least {len(first)} for the {len(alphabet)} characters of text'
    )
  trainer = hf.trainers.BpeTrainer(
    vocab_size=vocab_size,
    min_frequency=max(min_count, 2),
    special_tokens=first,
    show_progress=False,
    initial_alphabet=alphabet,
    limit_alphabet=len(alphabet),
    end_of_word_suffix=WORD_END,
  )
  tokenizer.train_from_iterator(texts, trainer)
  merges = [tuple(pair) for pair in json.loads(tokenizer.to_str())['model']['merges']]
  return builder(hf.models.BPE(tokenizer.get_vocab(), merges, unk_token='<unk>', end_of_word_suffix=WORD_END))


def unigram(model: hf.models.Unigram, lower_case: bool) -> hf.Tokenizer:
  """Return a model with SentencePiece's treatment of spaces: each is part of the next word, also the first word's."""
  tokenizer = hf.Tokenizer(model)
  first = hf.normalizers.Prepend(SPACE)
  tokenizer.normalizer = hf.normalizers.Sequence([hf.normalizers.Lowercase(), first]) if lower_case else first
  tokenizer.pre_tokenizer = hf.pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme='never', split=True)
  tokenizer.decoder = hf.decoders.Sequence(
    [hf.decoders.Replace(SPACE, ' '), hf.decoders.ByteFallback(), hf.decoders.Fuse(), hf.decoders.Strip(' ', 1, 0)]
  )
  return tokenizer


def train_unigram(
  texts: Iterable[str], vocab_size: int, lower_case: bool, fixed: Sequence[str] = (END_OF_TEXT, '<unk>')
) -> hf.Tokenizer:
  """Train a Unigram language model of subwords (Kudo 2018, arXiv 1804.10959).

  First come the special tokens `fixed`, `<unk>` among them; no text is encoded as one. Then come the subwords by
  decreasing probability, and 256 bytes that encode uncovered characters. Besides ASCII, subwords contain the most
  frequent 1,000 characters only, or fewer if `vocab_size` is small. The library sums in an order that differs from run
  to run, so probabilities are rounded and ties sorted. It also spreads characters without a subword over a narrow range
  of probabilities in such an order, so here they all get one probability.
  """
  others = [f'<0x{byte:02X}>' for byte in range(256)]
  room = vocab_size - len(fixed) - len(others) - len(_ASCII)
  if room < 1:
    raise InputError(
      f'data.vocab_size: got {vocab_size}; expected room for {len(fixed)} special tokens, 256 bytes, the {len(_ASCII)} '
      'characters of ASCII and subwords'
    )
  trained = unigram(hf.models.Unigram(), lower_case)
  trainer = hf.trainers.UnigramTrainer(
    vocab_size=room + len(_ASCII) + 1,
    show_progress=False,
    special_tokens=['<unk>'],
    unk_token='<unk>',
    initial_alphabet=_ASCII,
  )
  trained.train_from_iterator(_in_characters(list(texts), min(_CHARACTERS, room // 2)), trainer)
  scores = dict(json.loads(trained.to_str())['model']['vocab'][1:])  # the first is <unk>
  lowest = min(scores.values())
  spread = lowest + _STEP * (1 + sum(len(subword) == 1 for subword in scores))
  levelled = {p: lowest if len(p) == 1 and score < spread else score for p, score in scores.items()}
  subwords = sorted(((p, round(score, 4)) for p, score in levelled.items()), key=lambda entry: (-entry[1], entry[0]))
  # So improbable that the same characters in a text are encoded as single-character subwords, which ASCII always has.
  never = [(name, _NEVER) for name in fixed]
  vocabulary = [*never, *subwords, *((name, _NEVER) for name in others)]
  tokenizer = unigram(hf.models.Unigram(vocabulary, unk_id=fixed.index('<unk>'), byte_fallback=True), lower_case)
  tokenizer.add_special_tokens(list(fixed))
  return tokenizer


def split_special_tokens(tokenizer: hf.Tokenizer) -> hf.Tokenizer:
  """Return an imported Unigram tokenizer that encodes no text as XLNet's control symbols, as in SentencePiece.

  They are subwords of its model too, so one that is written out in a text is split after its first character. <eop> is
  not: it may occur in a text (`user_defined_symbols` of the release). Nor are those that are too improbable for a text,
  as in a vocabulary that lmx trained.
  """
  scores = dict(json.loads(tokenizer.to_str())['model']['vocab'])
  inner = '|'.join(t[1:-1] for t in XLNET_SPECIALS if t != '<eop>' and scores.get(t, _NEVER) > _NEVER)
  if not inner:
    return tokenizer
  splitter = hf.pre_tokenizers.Split(hf.Regex(f'<(?=(?:{inner})>)'), 'merged_with_previous')
  before = tokenizer.pre_tokenizer
  tokenizer.pre_tokenizer = splitter if before is None else hf.pre_tokenizers.Sequence([before, splitter])
  return tokenizer


def _in_characters(texts: list[str], most: int) -> Iterator[str]:
  """Yield the texts without words that have characters other than ASCII and the `most` frequent ones."""
  counts: collections.Counter[str] = collections.Counter()
  for text in texts:
    counts.update(text)
  known = {*_ASCII, ' '}
  known |= set(sorted(counts.keys() - known, key=lambda c: (-counts[c], c))[:most])
  for text in texts:
    yield text if known.issuperset(text) else ' '.join(word for word in text.split(' ') if known.issuperset(word))


def wordpiece(model: hf.models.WordPiece, lower_case: bool) -> hf.Tokenizer:
  """Return a model with BERT's normalization and splitting."""
  tokenizer = hf.Tokenizer(model)
  tokenizer.normalizer = hf.normalizers.BertNormalizer(lowercase=lower_case)
  tokenizer.pre_tokenizer = hf.pre_tokenizers.BertPreTokenizer()
  tokenizer.decoder = hf.decoders.WordPiece()
  return tokenizer


def train_wordpiece(texts: Iterable[str], vocab_size: int, min_count: int, lower_case: bool) -> hf.Tokenizer:
  """Train WordPiece.

  The library numbers the `##c` subwords in hash order and breaks ties by number. So they are passed first, sorted, as
  if they were special tokens, and the model is rebuilt from the resulting vocabulary.
  """
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
  texts: Iterable[str], normalizer: hf.normalizers.Normalizer | None, limit: int = 1000
) -> tuple[list[str], list[str]]:
  """Return the `limit` (BERT's) most frequent characters, sorted, and the word-continuing ones among them."""
  counts: collections.Counter[str] = collections.Counter()
  inner: set[str] = set()
  for text in texts:
    text = normalizer.normalize_str(text) if normalizer else text
    counts.update(text)
    inner.update(re.findall(r'(?<=\S)\S', text))
  frequent = sorted(counts, key=lambda c: (-counts[c], c))[:limit]
  alphabet = sorted(c for c in frequent if c == '\n' or not c.isspace())
  return alphabet, [
    c for c in alphabet if c in inner and not unicodedata.category(c).startswith('P') and c not in string.punctuation
  ]
