"""Scorers: what turns a text into a row of tokens, and rows into log-probabilities, for a run or an n-gram model."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx.data.tokenizers import word_characters
from lmx.data.tokenizers.base import Tokenizer
from lmx.data.tokenizers.words import Words
from lmx.decoding.generate import window
from lmx.errors import InputError, check_choice
from lmx.runs.restore import RestoredRun
from lmx.scoring import both_ways, causal, masked, permutation
from lmx.scoring.rows import Done, Row, Scored, ignore
from lmx.types import Model, State

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
    end: the end of a text is scored too.
    continues: texts continue a context, see `read_context`.
    source: the checkpoint or file of the model, for the user.
  """

  tokenizer: Tokenizer
  name: str
  method: str
  start: str = ''
  prefix_id: int | None = None
  positions: int | None = None
  end: bool = False
  continues: bool = False
  source: str = ''

  @abc.abstractmethod
  def row(self, text: str, name: str = '') -> Row:
    """Return a text as a row; `name` is its place for messages.

    Raises:
      InputError: the text has no token, or more than the model has positions.
    """

  @abc.abstractmethod
  def score(self, rows: Sequence[Row], *, greedy: bool = False, done: Done = ignore) -> list[Scored]:
    """Return the scores of rows, in order.

    Args:
      rows: the rows.
      greedy: also return whether all tokens of a row are the most probable ones.
      done: reports progress.

    Raises:
      InputError: a row is too long.
    """

  def read_context(self, text: str) -> None:
    """Let every text continue `text`. Raises InputError if the method reads no context."""
    del text
    raise InputError(f'--context: got it with --method={self.method}; expected causal; omit it')

  def _set_start(self, start: str, reason: str) -> None:
    """Set `start`, 'auto' by whether there is a start symbol; `reason` says why there is none."""
    self.start = start if start != 'auto' else 'none' if self.prefix_id is None else 'symbol'
    if self.start == 'symbol' and self.prefix_id is None:
      raise InputError(f'--start: got "symbol"; expected "none", because {reason}')

  def _check_end(self) -> None:
    if self.end and self.method not in ('causal', 'forward', 'backward', 'both'):
      raise InputError(f'--end: got it with --method={self.method}, which predicts no end of a text; omit it')
    if self.end and self.method == 'causal' and self.tokenizer.eos_id is None:
      raise InputError('--end: got it with a tokenizer without an end symbol; omit it')

  def _encode(self, text: str, name: str) -> np.ndarray:
    """Return the tokens of a text, with its end if that is scored. Raises InputError if it has none."""
    ids = np.asarray(self.tokenizer.encode(text), np.int32)
    check_tokens(len(ids), name)
    return np.asarray([*ids, self.tokenizer.eos_id], np.int32) if self.end else ids

  def tokens(self, row: Row) -> list[str]:
    """Return the tokens of a row in print."""
    return self.tokenizer.ids_to_tokens(row.ids_T) if row.words is None else list(row.words)

  def starts_word(self, row: Row) -> np.ndarray:
    """Return whether each token of a row starts a word, (T,) bool."""
    return self.tokenizer.starts_word(row.ids_T, joins_space=True) if row.starts_T is None else row.starts_T

  def spans(self, text: str, row: Row) -> np.ndarray | None:
    """Return the offsets (start, end) in a text of each token of its row, (T, 2) in code points.

    The end of the text has those of the empty string after it. None: the tokenizer changes the text before it is split.
    """
    if not self.tokenizer.has_spans:
      return None
    _, spans_T2 = self.tokenizer.encode_spans(text)
    if row.words is not None and isinstance(self.tokenizer, Words):
      spans_T2 = spans_T2[[word not in word_characters.LINE_ENDS for word in self.tokenizer.split(text)]]
    assert len(spans_T2) in (len(row.ids_T), len(row.ids_T) - 1), f'{row.name}: {len(spans_T2)} offsets'
    end = np.full((len(row.ids_T) - len(spans_T2), 2), len(text), np.int32)
    return np.concatenate([spans_T2, end])

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
    start = 'after a context' if self.continues else starts[self.start]
    return ', '.join(filter(None, (METHODS[self.method].about, start, 'with the end' * self.end)))


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
    if reason := obstacle(loaded.model, loaded.cfg, loaded.run.model_name, loaded.run.objective_name):
      raise InputError(f'{_place(loaded)}: cannot score: {reason}')
    self.loaded, self.name, self.tokenizer = loaded, loaded.run.name, loaded.tokenizer
    steps = loaded.averaged or (loaded.step,)
    checkpoint = '' if loaded.files else f'step {", ".join(f"{step:,}" for step in steps)} of '
    self.source = f'{checkpoint}{_place(loaded)}'
    self.method = able[0] if method == 'auto' else method
    check_choice('--method', self.method, able)
    check_choice('--start', start, STARTS)
    self.end, self.prefix_id = end, _start_symbol(loaded.tokenizer)
    self.positions = window(loaded.run.measured)
    self._state: State = ()
    self._context = np.zeros(0, np.int32)
    self._start: list[Any] = []  # tokens before a text
    if self.method == 'causal':
      own = self.tokenizer.templates[0].ids[0] if self.tokenizer.templates else ()
      self.prefix_id = own[0] if own else self.prefix_id
      self._set_start(start, 'the tokenizer has no start or end symbol')
      self._start = [] if self.start == 'none' else [*own] or [self.prefix_id]
    elif start != 'auto':
      raise InputError(f'--start: got "{start}" with --method={self.method}; expected auto; omit it')
    self._check_end()

  def read_context(self, text: str) -> None:
    """Let every text continue `text`: from the state after it, or after its last tokens where the model has positions.

    Raises:
      InputError: the method reads no context.
    """
    if self.method != 'causal':
      super().read_context(text)
    ids = np.asarray(self.tokenizer.encode(text), np.int32)
    check_tokens(len(ids), '--context')
    self.continues = True
    self._context = np.concatenate([self._start, ids]).astype(np.int32)
    if len(self._context) > 1 and not self.positions:
      # All but the last token, which each row reads to predict its first.
      self._state = causal.read_stream(self.loaded, self._context[:-1])
      self._context = self._context[-1:]

  def row(self, text: str, name: str = '') -> Row:
    if self.method in ('forward', 'backward', 'both'):
      return self._spelled(text, name)
    ids = self._encode(text, name)
    row = Row(ids, self._before(len(ids)), name)
    if self.method == 'causal':
      causal.check_length(row, self.positions)
      return row
    if self.method in ('left_to_right', 'permutation_pll'):
      permutation.check_length(row)
    if self.method != 'left_to_right':
      masked.read(self.loaded, row)
    return row

  def _before(self, count: int) -> np.ndarray:
    """Return the tokens that are read before `count` tokens of a text."""
    if len(self._context):
      most = self.positions
      return self._context[-max(1, most + 1 - count) :] if most else self._context
    return np.asarray(self._start, np.int32)

  def _spelled(self, text: str, name: str) -> Row:
    words, ids_T, characters_TC, starts_T = word_characters.read(self.tokenizer, text, self.loaded.run.data.characters)
    check_tokens(len(words), name)
    if self.end:
      end = word_characters.BEGIN if self.method == 'backward' else word_characters.END
      words = [*words, word_characters.NAMES[end]]
      ids_T, starts_T = np.append(ids_T, np.int32(end)), np.append(starts_T, True)
    return Row(ids_T, name=name, words=words, characters_TC=characters_TC, starts_T=starts_T)

  def score(self, rows: Sequence[Row], *, greedy: bool = False, done: Done = ignore) -> list[Scored]:
    if not rows:
      return []
    options: dict[str, Any] = {'done': done}
    if self.method == 'causal':
      options |= {'greedy': greedy, 'state': self._state}
    return METHODS[self.method].function(self.loaded, rows, **options)


def check_tokens(count: int, name: str) -> None:
  """Raise InputError if a text has no tokens."""
  if not count:
    raise InputError(f'{name or "text"}: got a text without a token; expected at least one; remove the line')


def _place(loaded: RestoredRun) -> str:
  """Return the folder of a run or of published weights."""
  return str(getattr(loaded.files, 'source', loaded.workdir))


def _start_symbol(tokenizer: Tokenizer) -> int | None:
  """Return the token that starts a text: the start symbol, else that between documents."""
  return tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id


def methods(loaded: RestoredRun) -> list[str]:
  """Return the names in METHODS of the ways to score texts under a run, the default first; [] if there is none."""
  return _methods(loaded.model, loaded.cfg, loaded.run.objective_name)


def obstacle(model: Model, cfg: Any, name: str, objective: str) -> str:
  """Return why runs of the model `name` and an objective assign no score to a text, '' if they do."""
  if _methods(model, cfg, objective):
    return ''
  return (
    f'model "{name}" with objective "{objective}" assigns no probability to a text; expected a language model, such as '
    'gpt2, rnn_lm, bert, xlnet or elmo'
  )


def _methods(model: Model, cfg: Any, objective: str) -> list[str]:
  if not model.WORDS:
    return []
  if model.READS == 'characters':
    return ['both', 'forward', 'backward'] if objective == 'bidirectional_lm' else []
  if model.READS != 'tokens':
    return []
  if model.CAUSAL:
    return ['causal'] if getattr(cfg, 'causal', True) else []
  return {
    'masked_lm': ['pll', 'pll_word_l2r'],
    'permutation_lm': ['left_to_right', 'permutation_pll'],
  }.get(objective, [])
