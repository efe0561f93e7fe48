"""Documents to token ids, sentence by sentence, in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from lmx.data import document_reader
from lmx.data import sentences as sentence_rules
from lmx.data.splits import Writer
from lmx.data.tokenizers.base import Tokenizer

_CHARACTERS = 1_000_000  # of text encoded at once
_WORDS = 'words'  # mode that encodes word by word, for text with word labels


def mode(cfg: Any, tokenizer: Tokenizer) -> str:
  """Return how documents are divided before they are encoded: a mode of `lmx.data.sentences.split`, '' or 'words'.

  Args:
    cfg: `corpus.Config`.
    tokenizer: the tokenizer of the corpus.
  """
  if cfg.rules.token_labels and tokenizer.kind != 'words':
    return _WORDS
  if tokenizer.kind == 'unigram' or tokenizer.space_first:
    return ''  # every encoded text starts with a space, so a document cannot be encoded sentence by sentence
  if cfg.rules.sentences == 'auto' and cfg.documents in ('auto', 'blank_line'):
    return 'auto_lines'  # one sentence a line is the usual form of such files
  return str(cfg.rules.sentences)


def writer(cfg: Any, name: str, file: BinaryIO, tokenizer: Tokenizer) -> Writer:
  """Return the writer of a split, or of a chunk of it."""
  return Writer(
    name,
    file,
    tokenizer,
    mode(cfg, tokenizer) not in ('', _WORDS),
    line_words=cfg.rules.words == 'lines',
    token_labels=cfg.rules.token_labels,
    predicates=cfg.rules.predicates,
    rows=cfg.rules.table or cfg.rules.token_labels or cfg.rules.spans or cfg.rules.pair,
  )


def write(
  cfg: Any, to: Writer, documents: Iterable[document_reader.Read], tokenizer: Tokenizer, *, ends: bool = True
) -> None:
  """Encode documents and write them; unless it `ends`, the last one is continued by the next part of its split."""
  how = mode(cfg, tokenizer)
  label = None
  for text, next_label, ids in encode_documents(documents, tokenizer, how, cfg.rules.pair and not how):
    if label is not None:
      to.end_document(label)
    to.add(text, _fill_empty(ids, tokenizer) if how == _WORDS else ids)
    label = None if cfg.rules.stream else next_label
  if ends and (cfg.rules.stream or label is not None):
    to.end_document(label or '')


def encode_documents(
  documents: Iterable[document_reader.Read], tokenizer: Tokenizer, how: str, pairs: bool = False
) -> Iterator[tuple[str, str, list[np.ndarray]]]:
  """Yield (text, label, ids of each sentence) for documents (text, text to encode, label); encodes in batches.

  With `pairs` every second document translates the previous one, and none is divided.
  """
  encode = tokenizer.encode_pairs if pairs else tokenizer.encode_batch
  batch: list[tuple[str, str, list[str]]] = []
  size = 0
  for text, read, label in documents:
    batch.append((text, label, _sentences(read, how, tokenizer)))
    size += len(text)
    if size >= _CHARACTERS and not (pairs and len(batch) % 2):
      yield from _encode_batch(batch, encode)
      batch, size = [], 0
  yield from _encode_batch(batch, encode)


def _encode_batch(batch: Any, encode: Any) -> Iterator[tuple[str, str, list[np.ndarray]]]:
  encoded = iter(encode([sentence for _, _, sentences in batch for sentence in sentences]))
  for text, label, sentences in batch:
    yield text, label, [next(encoded) for _ in sentences]


def encode_words(texts: Iterable[Sequence[str]], tokenizer: Tokenizer) -> Iterator[list[np.ndarray]]:
  """Yield the ids of each word in texts given as words, encoded like text with word labels."""
  for _, _, word_ids in encode_documents((('', ' '.join(words), '') for words in texts), tokenizer, _WORDS):
    yield _fill_empty(word_ids, tokenizer)


def _fill_empty(word_ids: Sequence[np.ndarray], tokenizer: Tokenizer) -> list[np.ndarray]:
  """Return the ids of words, `unk_id` for a word that normalises to nothing."""
  return [ids if ids.size else np.asarray([tokenizer.unk_id], np.int32) for ids in word_ids]


def _sentences(text: str, how: str, tokenizer: Tokenizer) -> list[str]:
  if not how:
    return [text]
  if how == _WORDS:  # tokens of byte-level BPE start with their space
    space = '' if tokenizer.space_first or tokenizer.kind == 'wordpiece' else ' '
    return [space * (i > 0) + word for i, word in enumerate(text.split())]
  if how.startswith('auto'):
    how = sentence_rules.infer_mode(text, lines=how == 'auto_lines')
  # Tokens of byte-level BPE start with their space; a split before it gives the tokens of the whole.
  return sentence_rules.split(text, how, space_leads=tokenizer.kind == 'bpe')
