"""Contextual word embeddings: the outputs of every layer of a model on lines of text.

BERT and XLNet were trained on rows with special tokens, [CLS] text [SEP] and text <sep> <cls>. So a line is read as
such a row, with the segments of one text; other models read only its tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lmx.data.tokenizers import word_characters
from lmx.data.tokenizers.base import row_template
from lmx.decoding import generate
from lmx.engine import precision
from lmx.errors import InputError, check_choice
from lmx.runs import restore
from lmx.types import Params

_ROUND = 16  # row lengths are rounded up to a multiple of this, so that few shapes are compiled
SPECIAL_TOKENS = ('read', 'return', 'none')
Line = tuple[list[str], dict[str, np.ndarray]]  # tokens, and their arrays in a batch


class Reader(NamedTuple):
  """Model and the function that reads its inputs from a line of text.

  Attributes:
    model: module of the model.
    cfg: its Config.
    params: its parameters, without an objective's.
    read: (line, line number) -> `Line`.
    special: number of special tokens before and after a line that are read, but not returned.
    matmul_precision: precision of matrix products, see lmx/engine/precision.py.
  """

  model: Any
  cfg: Any
  params: Params
  read: Callable[[str, int], Line]
  matmul_precision: str = 'float32'
  special: tuple[int, int] = (0, 0)


def reads_pairs(model: Any, cfg: Any) -> bool:
  """Return True for a model that encodes two texts of a row separately."""
  shape = {'tokens_BT': jax.ShapeDtypeStruct((1, 1), np.int32)}
  return 'tokens_BS' in model.read_shapes(cfg, shape)


def from_run(loaded: restore.RestoredRun, special_tokens: str = 'read') -> Reader:
  """Return the reader of a run that `lmx.load` returned.

  Args:
    loaded: the run.
    special_tokens: of BERT and XLNet, 'read' reads the special tokens of a row and returns the vectors of the text,
      'return' also returns the special tokens' vectors, 'none' reads only the text.
  """
  check_choice('special_tokens', special_tokens, SPECIAL_TOKENS)
  tokenizer, limit = loaded.tokenizer, generate.window(loaded.cfg)
  template = row_template([(), ()]) if special_tokens == 'none' else tokenizer.around(loaded.model.SPECIAL_TOKENS)

  def read(line: str, number: int) -> Line:
    words: list[str]
    if loaded.model.READS == 'characters' and loaded.run.data.characters:
      words, ids, characters_TC, _ = word_characters.read(tokenizer, line, loaded.run.data.characters)
      arrays = {'characters_BTC': characters_TC, 'tokens_BT': ids}
    else:
      ids, types = template.row(tokenizer.encode(line))
      words, arrays = tokenizer.ids_to_tokens(ids), {'tokens_BT': ids}
      if types.any():
        arrays['types_BT'] = types
    if limit and len(words) > limit:
      raise InputError(f'line {number} has {len(words)} tokens, but the model has only {limit} positions; divide it')
    return words, arrays

  before, after = map(len, template.ids)
  hidden = (before, after) if special_tokens == 'read' else (0, 0)
  return Reader(loaded.model, loaded.cfg, loaded.params['model'], read, loaded.run.matmul_precision, hidden)


def vectors(
  reader: Reader, lines: Iterable[str], *, size: int = 32, carry: bool = False
) -> Iterator[tuple[list[str], list[np.ndarray]]]:
  """Return an iterator over (tokens, layers) of each line in order; layers are (tokens, width) float32.

  Args:
    reader: result of `from_run`.
    lines: lines of text.
    size: batch size in lines.
    carry: the lines are one text: each continues from the state of the line before.

  Raises:
    InputError: a line is longer than the model's positions.
  """
  read = [reader.read(line, number) for number, line in enumerate(lines, 1)]
  return embed(reader, read, 1 if carry else size, carry=carry)


def embed(
  reader: Reader, lines: Sequence[Line], size: int, *, carry: bool = False
) -> Iterator[tuple[list[str], list[np.ndarray]]]:
  """Yield (tokens, layers) of each line in order; layers are (tokens, width) float32.

  Args:
    reader: the reader of the lines.
    lines: results of its `read`.
    size: batch size in lines.
    carry: each line continues from the state of the line before; needs `size` 1.
  """
  model, cfg, params = reader.model, reader.cfg, reader.params
  state = model.init_state(cfg, size)
  apply = jax.jit(precision.wrap(reader.matmul_precision, functools.partial(model.apply, cfg, all_layers=True)))
  for start in range(0, len(lines), size):
    some = lines[start : start + size]
    longest = max(len(words) for words, _ in some)
    features, after = apply(params, _batch(some, size, max(-(-longest // _ROUND) * _ROUND, _ROUND), cfg), state)
    state = after if carry else state
    layers = [np.asarray(layer, np.float32) for layer in features.layers]
    for row, (words, _) in enumerate(some):
      shown = slice(reader.special[0], len(words) - reader.special[1])
      yield words[shown], [layer[row, shown] for layer in layers]


def _batch(lines: Sequence[Line], rows: int, length: int, cfg: Any) -> dict[str, np.ndarray]:
  """Return a batch of rows padded on the right to `length`, at most the model's positions."""
  length = min(length, generate.window(cfg) or length)
  batch = {'valid_BT': np.zeros((rows, length), bool)}
  for b, (words, arrays) in enumerate(lines):
    batch['valid_BT'][b, : len(words)] = True
    for name, value in arrays.items():
      whole = batch.setdefault(name, np.zeros((rows, length, *value.shape[1:]), np.int32))
      whole[b, : len(words)] = value
  return batch
