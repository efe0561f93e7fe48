"""Scorers: what turns a text into a row of tokens, and rows into log-probabilities, for a run or an n-gram model."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx.data.tokenizers import word_characters
from lmx.data.tokenizers.base import Tokenizer
from lmx.decoding.generate import window
from lmx.errors import InputError, check_choice
from lmx.runs.restore import RestoredRun
from lmx.scoring import both_ways, causal, masked, permutation
from lmx.scoring.rows import Row, Scored
from lmx.types import State

STARTS = ('auto', 'symbol', 'none')


class Method(NamedTuple):
  """A way of scoring.

  Attributes:
    about: what the sum over a text is.
    probability: exp of the sum is a probability, so bits a byte and perplexities have a meaning.
    function: (run, rows) -> `Scored` of each row.
  """

  about: str
  probability: bool
  function: Callable[..., list[Scored]]


METHODS = {
  'causal': Method('log-likelihood', True, causal.score),
  'pll': Method('pseudo-log-likelihood', False, masked.score),
  'pll_word_l2r': Method(
    'pseudo-log-likelihood, the rest of the word masked', False, functools.partial(masked.score, word_l2r=True)
  ),
  'left_to_right': Method('log-likelihood from left to right', True, permutation.left_to_right),
  'permutation_pll': Method('pseudo-log-likelihood', False, permutation.pseudo),
  'both': Method('sum of both log-likelihoods', False, functools.partial(both_ways.score, direction='both')),
  'forward': Method('log-likelihood', True, functools.partial(both_ways.score, direction='forward')),
  'backward': Method(
    'log-likelihood from right to left', True, functools.partial(both_ways.score, direction='backward')
  ),
}


class Scorer(abc.ABC):
  """Scores texts.

  Attributes:
    tokenizer: of the texts.
    name: of the model, for tables.
    method: one of METHODS, or 'causal' of an n-gram model.
    start: 'symbol': a start symbol is read first; 'none': the first token is not predicted; '' where the method has
      neither.
    prefix_id: the start symbol, else the end of a document, else None.
    positions: most tokens that the model reads at once; None: any number.
  """

  tokenizer: Tokenizer
  name: str
  method: str
  start: str = ''
  prefix_id: int | None = None
  positions: int | None = None

  @abc.abstractmethod
  def row(self, text: str, name: str = '') -> Row:
    """Return a text as a row; `name` is its place for messages. Raises InputError for a text without tokens."""

  @abc.abstractmethod
  def score(self, rows: Sequence[Row], *, greedy: bool = False) -> list[Scored]:
    """Return the scores of rows, in order. Raises InputError for a row that is too long."""

  def tokens(self, row: Row) -> list[str]:
    """Return the tokens of a row in print."""
    return self.tokenizer.ids_to_tokens(row.ids_T) if row.words is None else list(row.words)

  def starts_word(self, row: Row) -> np.ndarray:
    """Return whether each token of a row starts a word, (T,) bool."""
    return self.tokenizer.starts_word(row.ids_T) if row.words is None else np.ones(len(row.words), bool)

  def is_unknown(self, row: Row) -> np.ndarray:
    """Return whether each token of a row is an unknown word, (T,) bool."""
    unknown = self.tokenizer.unk_id if row.words is None else word_characters.UNKNOWN
    return np.zeros(len(row.ids_T), bool) if unknown is None else row.ids_T == unknown

  @property
  def is_probability(self) -> bool:
    """exp of a row's sum is a probability."""
    return METHODS[self.method].probability

  @property
  def protocol(self) -> str:
    """Description of the sum; scores are comparable if these are equal."""
    starts = {'symbol': 'after a start symbol', 'none': 'without the first token', '': ''}
    return ', '.join(filter(None, (METHODS[self.method].about, starts[self.start])))


class RunScorer(Scorer):
  """Scores texts under a trained run.

  Args:
    loaded: the run.
    method: one of `methods(loaded)`, 'auto' for the first of them.
    start: of causal scores, 'symbol' or 'none'; 'auto' is 'symbol' where the tokenizer has one.
    end: also score the end of a text.

  Raises:
    InputError: the run assigns no probabilities to texts, or has no such method, start or end.
  """

  def __init__(self, loaded: RestoredRun, method: str = 'auto', start: str = 'auto', *, end: bool = False):
    able = methods(loaded)
    if not able:
      model, objective = loaded.run.model_name, loaded.run.objective_name
      raise InputError(
        f'{loaded.workdir}: got model "{model}" with objective "{objective}", which assigns no probability to a text; '
        'expected a language model, such as gpt2, rnn_lm, bert, xlnet or elmo'
      )
    self.loaded, self.name, self.tokenizer = loaded, loaded.run.name, loaded.tokenizer
    self.method = able[0] if method == 'auto' else method
    check_choice('--method', self.method, able)
    check_choice('--start', start, STARTS)
    self.end, self.prefix_id = end, _start_symbol(loaded.tokenizer)
    self.positions = window(loaded.run.measured)
    self._state: State = ()
    self._context = np.zeros(0, np.int32)
    if self.method == 'causal':
      self.start = start if start != 'auto' else 'none' if self.prefix_id is None else 'symbol'
      if self.start == 'symbol' and self.prefix_id is None:
        raise InputError('--start: got "symbol"; expected "none", because the tokenizer has no start or end symbol')
    elif start != 'auto':
      raise InputError(f'--start: got "{start}" with --method={self.method}; expected auto; omit it')
    self._check_end()

  def _check_end(self) -> None:
    if self.end and self.method not in ('causal', 'forward', 'backward', 'both'):
      raise InputError(f'--end: got it with --method={self.method}, which predicts no end of a text; omit it')
    if self.end and self.method == 'causal' and self.tokenizer.eos_id is None:
      raise InputError('--end: got it with a tokenizer without an end symbol; omit it')

  def read_context(self, text: str) -> None:
    """Let every text continue `text`: from the state after it, or after its last tokens where the model has positions.

    Raises:
      InputError: the method reads no context.
    """
    if self.method != 'causal':
      raise InputError(f'--context: got it with --method={self.method}; expected causal; omit it')
    ids = np.asarray(self.tokenizer.encode(text), np.int32)
    begin = [] if self.start == 'none' else [self.prefix_id]
    self._context = np.concatenate([begin, ids]).astype(np.int32)
    if len(self._context) > 1 and not self.positions:
      # All but the last token, which each row reads to predict its first.
      self._state = causal.read_stream(self.loaded, self._context[:-1])
      self._context = self._context[-1:]

  def row(self, text: str, name: str = '') -> Row:
    if self.method in ('forward', 'backward', 'both'):
      return self._spelled(text, name)
    ids = np.asarray(self.tokenizer.encode(text), np.int32)
    _check_tokens(len(ids), name)
    if self.end:
      ids = np.asarray([*ids, self.tokenizer.eos_id], np.int32)
    return Row(ids, self._before(len(ids)), name)

  def _before(self, count: int) -> np.ndarray:
    """Return the tokens that are read before `count` tokens of a text."""
    if len(self._context):
      most = self.positions
      return self._context[-max(1, most + 1 - count) :] if most else self._context
    return np.asarray([self.prefix_id] if self.start == 'symbol' else [], np.int32)

  def _spelled(self, text: str, name: str) -> Row:
    tokenizer: Any = self.tokenizer  # words
    size = self.loaded.run.data.characters
    words = [word for word in tokenizer.split(text) if word not in ('\n', '<eos>')]
    _check_tokens(len(words), name)
    known = word_characters.create(tokenizer, size)
    ids = known.word_ids(np.asarray([int(tokenizer.encode(word)[0]) for word in words]))
    letters = word_characters.character_ids([word.encode('utf-8', 'replace') for word in words], size)
    return Row(ids.astype(np.int32), name=name, words=words, characters_TC=letters)

  def score(self, rows: Sequence[Row], *, greedy: bool = False) -> list[Scored]:
    if not rows:
      return []
    options: dict[str, Any] = {}
    if self.method == 'causal':
      options = {'greedy': greedy, 'state': self._state}
    elif self.method in ('forward', 'backward', 'both'):
      options = {'end': self.end}
    return METHODS[self.method].function(self.loaded, rows, **options)


def _check_tokens(count: int, name: str) -> None:
  if not count:
    raise InputError(f'{name or "text"}: got a text without a token; expected at least one; remove the line')


def _start_symbol(tokenizer: Tokenizer) -> int | None:
  """Return the token that starts a text: the start symbol, else that between documents."""
  return tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id


def methods(loaded: RestoredRun) -> list[str]:
  """Return the names in METHODS of the ways to score texts under a run, the default first; [] if there is none."""
  model, objective = loaded.model, loaded.run.objective_name
  if not model.WORDS:
    return []
  if model.READS == 'characters':
    return ['both', 'forward', 'backward'] if objective == 'bidirectional_lm' else []
  if model.READS != 'tokens':
    return []
  if model.CAUSAL:
    return ['causal'] if getattr(loaded.cfg, 'causal', True) else []
  return {
    'masked_lm': ['pll', 'pll_word_l2r'],
    'permutation_lm': ['left_to_right', 'permutation_pll'],
  }.get(objective, [])
