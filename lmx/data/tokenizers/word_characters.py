"""Characters of words for character-level models (ELMo's token-level rule, `UnicodeCharsVocabulary` of its release).

The word tokenizer has an id for every word of the text: first the vocabulary proper by decreasing frequency, then all
other words (`words.with_all_words`). So an input keeps its characters however rare it is, but is `<unk>` as a target
and in an embedding table.

Subwords are read in the same way: each is a word, its bytes are its characters (`Tokenizer.spellings`), and all of them
are in the vocabulary. Byte-level BPE has no `<unk>`, so no target is unknown.

Word ids in a batch, as in the released vocabularies: 0 starts and 1 ends a sentence, 2 is `<unk>`, and words of the
vocabulary start at 3. Character ids: 0 no word, b + 1 byte b of the word's UTF-8, then the special tokens 257 start and
258 end of sentence, 259 start and 260 end of word, 261 padding inside a word. A word longer than C - 2 bytes is
truncated.

The characters of all words are one array of bytes with offsets: about 20 bytes a word, so 50 MB for the 2.4
million words of the 1B Word Benchmark, where a table of ids would take 240 MB. They are gathered for each batch.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

BEGIN, END, UNKNOWN, FIRST = 0, 1, 2, 3  # ids of words
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 257, 258, 259, 260, 261  # ids of characters
NAMES = ('<S>', '</S>', '<unk>')
LINE_ENDS = ('\n', '<eos>')  # words that a sentence end replaces


def character_ids(words: Sequence[bytes], characters: int) -> np.ndarray:
  """Return the ids of the characters of words given as UTF-8, int32 `(words, C)`."""
  return _gather(*_flat(words), np.arange(len(words)), characters)


def spelled(characters_TC: np.ndarray) -> list[str]:
  """Return the words of character ids, truncated as they are; the ends of a sentence by their names."""
  ends = {BEGIN_SENTENCE: NAMES[BEGIN], END_SENTENCE: NAMES[END]}
  words = []
  for ids in characters_TC.tolist():
    letters = bytes(i - 1 for i in ids if 0 < i < BEGIN_SENTENCE).decode(errors='replace')
    words.append(next((name for i, name in ends.items() if i in ids), letters))
  return words


def _flat(words: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
  """Return (concatenated bytes of the words, offsets)."""
  offsets = np.cumsum([0, *map(len, words)])
  return np.frombuffer(b''.join(words) + b'\0', np.uint8), offsets


def _gather(letters: np.ndarray, offsets: np.ndarray, index: np.ndarray, characters: int) -> np.ndarray:
  """Return the characters of the words `index`, int32 index.shape + (C,)."""
  start = offsets[index][..., None]
  length = np.minimum(offsets[index + 1][..., None] - start, characters - 2)
  column_C = np.arange(characters)
  at = np.clip(start + column_C - 1, 0, letters.size - 1)
  ids = np.where((column_C >= 1) & (column_C <= length), letters[at].astype(np.int32) + 1, PAD)
  ids = np.where(column_C == 0, BEGIN_WORD, ids)
  return np.where(column_C == length + 1, END_WORD, ids).astype(np.int32)


def vocabulary(tokenizer: Any) -> list[str]:
  """Return the words of the word ids: the two ends of a sentence, `<unk>`, and the vocabulary proper."""
  return [*NAMES, *map(tokenizer.id_to_token, _proper(tokenizer))]


def _proper(tokenizer: Any) -> list[int]:
  """Return the ids of a tokenizer that have word ids from FIRST on: its vocabulary without `<unk>` and text end."""
  known = getattr(tokenizer, 'known', tokenizer.vocab_size)
  return [i for i in range(known) if i not in (tokenizer.unk_id, tokenizer.eos_id)]


class WordCharacters:
  """Conversion of a tokenizer's ids to word ids and character ids.

  Attributes:
    vocab_size: number of word ids.
    characters: C.
  """

  def __init__(self, tokenizer: Any, characters: int):
    """Args: `tokenizer`: of subwords, or `words.Words` with `known` words first; `characters`: C, at least 4."""
    self.characters = characters
    self._letters, self._offsets = _flat(tokenizer.spellings())
    ids = np.full(tokenizer.vocab_size, UNKNOWN, np.int32)
    vocabulary = np.array(_proper(tokenizer), np.int64)
    ids[vocabulary] = FIRST + np.arange(len(vocabulary))
    if tokenizer.eos_id is not None:
      ids[tokenizer.eos_id] = END
    self._ids, self.vocab_size = ids, FIRST + len(vocabulary)
    self._end = tokenizer.eos_id
    self.boundaries = character_ids([b'', b''], characters)
    self.boundaries[:, 1] = BEGIN_SENTENCE, END_SENTENCE
    self.boundaries[:, 2] = END_WORD

  def word_ids(self, tokens: np.ndarray) -> np.ndarray:
    """Return the word ids, int32 in the shape of `tokens`."""
    return self._ids[tokens]

  def character_ids(self, tokens: np.ndarray) -> np.ndarray:
    """Return the character ids, int32 tokens.shape + (C,); an end-of-text token ends a sentence."""
    characters = _gather(self._letters, self._offsets, tokens, self.characters)
    return (
      characters if self._end is None else np.where((tokens == self._end)[..., None], self.boundaries[1], characters)
    )


@functools.lru_cache(maxsize=4)
def create(tokenizer: Any, characters: int) -> WordCharacters:
  """Return the cached `WordCharacters` of a tokenizer. Raises InputError if its tokens have no characters."""
  return WordCharacters(tokenizer, characters)


class Spelled(NamedTuple):
  """A text as a model reads it.

  Attributes:
    tokens: words, or subwords in print.
    ids_T: their word ids.
    characters_TC: their characters.
    starts_T: whether each starts a word.
  """

  tokens: list[str]
  ids_T: np.ndarray
  characters_TC: np.ndarray
  starts_T: np.ndarray


def read(tokenizer: Any, text: str, characters: int) -> Spelled:
  """Read a new text; words outside the vocabulary keep their characters, and line ends are no words."""
  known, ids_T = create(tokenizer, characters), np.asarray(tokenizer.encode(text), np.int64)
  if tokenizer.kind != 'words':
    tokens, starts_T = tokenizer.ids_to_tokens(ids_T), tokenizer.starts_word(ids_T, joins_space=True)
    return Spelled(tokens, known.word_ids(ids_T), known.character_ids(ids_T), starts_T)
  words = tokenizer.split(text)
  kept = [t for t, word in enumerate(words) if word not in LINE_ENDS]
  words = [words[t] for t in kept]
  letters = character_ids([word.encode('utf-8', 'replace') for word in words], characters)
  return Spelled(words, known.word_ids(ids_T[kept]), letters.reshape(-1, characters), np.ones(len(words), bool))


def boundaries(tokenizer: Any) -> tuple[int, ...]:
  """Return the ids of a tokenizer that a sentence end replaces: line and text ends, subwords of only white space."""
  if tokenizer.kind == 'words':
    return tuple(i for i in range(tokenizer.vocab_size) if tokenizer.id_to_token(i) in LINE_ENDS)
  return tuple(i for i, letters in enumerate(tokenizer.spellings()) if letters.isspace() or i == tokenizer.eos_id)


class WithCharacters:
  """Batches of words with characters_BTC in addition to tokens_BT, with the word ids above; characters_BSC likewise.

  The rest of the batch is unchanged; positions that are not valid have no characters.
  """

  def __init__(self, batches: Any, words: WordCharacters):
    self._batches, self._words = batches, words

  def __getattr__(self, name: str) -> Any:
    return getattr(self._batches, name)

  def pad_rows(self, multiple: int) -> WithCharacters:
    """See `Batches.pad_rows`."""
    return WithCharacters(self._batches.pad_rows(multiple), self._words)

  def pack(self) -> WithCharacters:
    """See `Bucketed.pack`."""
    return WithCharacters(self._batches.pack(), self._words)

  def __call__(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
    """Return the given rows of the batch of `step`."""
    batch = self._batches(step, rows)
    ids: dict[str, np.ndarray] = {}
    for axes in ('BT', 'BS'):
      if f'tokens_{axes}' not in batch:
        continue
      characters_BTC = self._words.character_ids(batch[f'tokens_{axes}'])
      if f'valid_{axes}' in batch:
        characters_BTC *= batch[f'valid_{axes}'][..., None]
      ids |= {f'tokens_{axes}': self._words.word_ids(batch[f'tokens_{axes}']), f'characters_{axes}C': characters_BTC}
    if 'targets_BT' in batch:
      ids['targets_BT'] = self._words.word_ids(batch['targets_BT'])
    return batch | ids
