"""Questions on passages, one window of a passage per row.

  form      row                                 types    source
  bert      [CLS] question [SEP] window [SEP]   0 0 0 1 1  Devlin et al. 2019, sections 4.2 and 4.3
  xlnet     window <sep> question <sep> <cls>   0 0 1 1 2  zihangdai/xlnet, run_squad.py
  template  as one of these, with the special tokens and types of the tokenizer of imported weights
  separate  window <eos>, and the question in a separate array, for models that read two texts (Seo et al. 2017)

A long passage is split into windows that start `stride` tokens apart (google-research/bert, run_squad.py), one row
each; a question is truncated to its first `question_length` tokens. `starts_B` and `ends_B` are positions in the row.
For a window without the whole answer, and for a question without one, they are the position of [CLS], `null_B`.
`separate` has the question in `tokens_BS` and `valid_BS` of `question_length` positions. Its `null_B` is the position
of the end of text, a token after the passage that no answer contains (Levy et al. 2017, arXiv 1706.04115, append a
learned score instead). A tokenizer without it has [SEP] there. `passage_BT` is the mask of the passage's
tokens. `best_BT` is the mask of those for which this window has the most context of all windows. In evaluation
`index_B` is the row's index; `windows` gives each row's question and start.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from lmx.data.batching import bucketed, texts
from lmx.data.batching.base import sizes
from lmx.data.tokenizers.base import RowTemplate, row_template
from lmx.errors import InputError, check_choice, check_least

CHARACTERS = 'may'
_SPECIAL = {'bert': 3, 'xlnet': 3, 'template': 3, 'separate': 1}  # special tokens of a row


@dataclasses.dataclass(frozen=True)
class Config(bucketed.Config):
  """Questions on passages; the attributes of `bucketed.Config`, and

  Attributes:
    form: 'bert', 'xlnet', 'template' or 'separate', see the module's docstring.
    stride: tokens between the starts of consecutive windows.
    question_length: maximum number of tokens per question.
  """

  name: str = 'questions'
  form: str = 'bert'
  stride: int = 128  # run_squad.py
  question_length: int = 64  # run_squad.py

  def __post_init__(self) -> None:
    super().__post_init__()
    check_least('data.batching', self, stride=1, question_length=1)
    check_choice('data.batching.form', self.form, tuple(_SPECIAL))


class Windows(NamedTuple):
  """The rows of a split.

  Attributes:
    question_F: index of each row's question.
    begin_F: index of the passage's token at which the row's window starts.
    size_F: number of passage tokens in it.
    offset_F: position in the row at which the passage starts.
  """

  question_F: np.ndarray
  begin_F: np.ndarray
  size_F: np.ndarray
  offset_F: np.ndarray


def check(data: Any) -> None:
  """Raise InputError if the `data` section does not fit."""
  if data.batching.form == 'bert' and data.tokenizer != 'wordpiece':
    raise InputError(
      f'data.tokenizer: got "{data.tokenizer}" with data.batching.form "bert"; expected "wordpiece", '
      'with [CLS] and [SEP]'
    )
  if data.reverse:
    raise InputError('data.reverse: got True; expected False with data.batching "questions"')


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Questions:
  """Return the batches of a split according to the `data` section."""
  if not corpus.manifest.get('spans'):
    raise InputError(
      f'data.batching: got "questions" with data set {corpus.manifest["dataset"]["name"]}; expected '
      'questions on passages, as in squad and squad_files'
    )
  tokenizer = corpus.tokenizer
  cfg = data.batching
  if cfg.form != 'separate':
    template = texts.template(data, tokenizer, 2)
    cfg = dataclasses.replace(cfg, form='bert' if template.ids[0] else 'xlnet')
  elif tokenizer.eos_id is not None or tokenizer.sep_id is not None:
    template = row_template([(), (tokenizer.sep_id if tokenizer.eos_id is None else tokenizer.eos_id,)])
  else:
    raise InputError(
      'data.batching.form: got "separate" with a tokenizer without <eos>; expected one that was trained on such a data '
      'set; set data.tokenizer_path to its directory or to ""'
    )
  return Questions(
    corpus.splits[split],
    *sizes(data, train),
    template=template,
    end_id=tokenizer.eos_id,
    cfg=cfg,
    vocab_size=tokenizer.vocab_size,
    seed=seed,
    train=train,
    shuffle=data.shuffle,
  )


def windows(passage_I: np.ndarray, question_I: np.ndarray, length: int, stride: int, *, form: str = 'bert') -> Windows:
  """Split passages into windows.

  Args:
    passage_I: number of tokens per passage.
    question_I: number of tokens per question in a row, after truncation; 0 for 'separate'.
    length: row length, with special tokens and the question.
    stride: tokens between the starts of consecutive windows.
    form: form of a row, see the module's docstring.
  """
  rows: list[tuple[int, int, int, int]] = []
  for i, (passage, question) in enumerate(zip(passage_I.tolist(), question_I.tolist(), strict=True)):
    room, begin = length - question - _SPECIAL[form], 0
    while True:
      size = min(passage - begin, room)
      rows.append((i, begin, size, question + 2 if form == 'bert' else 0))
      if begin + size >= passage:
        break
      begin += min(size, stride)
  return Windows(*np.asarray(rows, np.int64).reshape(-1, 4).T)


class Questions(bucketed.Bucketed):
  """Batches with tokens_BT, valid_BT, types_BT, passage_BT, best_BT, starts_B, ends_B, null_B, row_weights_B, index_B.

  Form 'separate' also has tokens_BS and valid_BS, and no types_BT.

  Args:
    split: a Split of passages, each followed by a question, with the tokens of the answers as labels.
    batch_size: rows of the global batch.
    length: largest number of tokens of a row.
    template: special tokens of a row; for form 'separate' the end of text after the passage.
    end_id: end-of-text id of the corpus's documents, removed here; None for no id.
    cfg: the `batching` section.
    vocab_size: size of the tokenizer's vocabulary.
    seed: seed of the order.
    train: endless shuffled epochs; else one pass.
    shuffle: shuffle; else rows keep the questions' order in the corpus.
  """

  def __init__(
    self,
    split: Any,
    batch_size: int,
    length: int,
    *,
    template: RowTemplate,
    end_id: int | None,
    cfg: Config,
    vocab_size: int,
    seed: int,
    train: bool,
    shuffle: bool = True,
  ):
    super().__init__(split, batch_size, length, vocab_size=vocab_size, seed=seed, train=train, shuffle=shuffle)
    asked = 0 if cfg.form == 'separate' else cfg.question_length  # positions of the row
    if length < asked + _SPECIAL[cfg.form] + 1:
      raise InputError(
        f'data.length: got {length}; expected at least {asked + _SPECIAL[cfg.form] + 1}, for '
        + (f'a question of data.batching.question_length {asked} tokens, ' if asked else '')
        + f'{_SPECIAL[cfg.form]} special tokens and a passage'
      )
    self._cfg, self._template = cfg, template
    begin, end = self._documents(split, end_id)
    self._begin_I2, full_I2 = begin.reshape(-1, 2), (end - begin).reshape(-1, 2)
    self._question_I = np.minimum(full_I2[:, 1], cfg.question_length)
    in_row_I = self._question_I if asked else np.zeros_like(self._question_I)
    self.windows = windows(full_I2[:, 0], in_row_I, length, cfg.stride, form=cfg.form)
    self._answer_I2 = np.asarray(split.labels).reshape(-1, 2)
    self._best_F = _has_most_context(self.windows, full_I2[:, 0])
    self._sizes = in_row_I[self.windows.question_F] + self.windows.size_F + _SPECIAL[cfg.form]
    self._null_F = np.zeros_like(self._sizes) if cfg.form == 'bert' else self._sizes - 1
    truncated = int((full_I2[:, 1] > cfg.question_length).sum())
    more = len(self.windows.begin_F) - len(full_I2)
    self.notes = (
      f'{len(full_I2):,} questions of {split.title} in {len(self._sizes):,} windows '
      f'({more:,} more), {truncated:,} of them truncated to {cfg.question_length} tokens',
    )
    self._arrange(cfg, 'windows')
    if cfg.form == 'separate':
      self._set_size(len(self._sizes), int((self._sizes + self._question_I[self.windows.question_F]).sum()), '1')

  def positions(self) -> int:
    """Return the number of positions in an epoch, padding included."""
    apart = self._cfg.question_length if self._cfg.form == 'separate' else 0
    return super().positions() + self.steps * self.batch_size * apart

  def _row(self, passage: np.ndarray, question: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of a row and their types."""
    if self._cfg.form == 'separate':
      return self._template.row(passage)
    return self._template.row(*((passage, question) if self._cfg.form == 'xlnet' else (question, passage)))

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray, length: int = 0) -> dict[str, np.ndarray]:
    B, T, S = len(example_B), length or self.length, self._cfg.question_length
    tokens_BT, types_BT, tokens_BS = np.zeros((B, T), np.int32), np.zeros((B, T), np.int32), np.zeros((B, S), np.int32)
    passage_BT, best_BT = np.zeros((B, T), bool), np.zeros((B, T), bool)
    null_B = np.where(live_B, self._null_F[example_B], 0).astype(np.int32)
    span_B2 = np.stack([null_B, null_B], axis=1)
    for b, f in enumerate(example_B):
      i, begin, size, offset = (int(x[f]) for x in self.windows)
      question = self._read(self._begin_I2[i, 1] + np.arange(self._question_I[i]))
      passage = self._read(self._begin_I2[i, 0] + begin + np.arange(size))
      tokens_BT[b, : self._sizes[f]], types_BT[b, : self._sizes[f]] = self._row(passage, question)
      tokens_BS[b, : len(question)] = question
      passage_BT[b, offset : offset + size] = True
      best_BT[b, offset : offset + size] = self._best_F[f]
      first, last = self._answer_I2[i]
      if first >= begin and last < begin + size:
        span_B2[b] = first - begin + offset, last - begin + offset
    valid_BT = (np.arange(T) < self._sizes[example_B][:, None]) & live_B[:, None]
    zero = lambda x_BT: np.where(valid_BT, x_BT, np.zeros((), x_BT.dtype))
    if self._cfg.form == 'separate':
      question_B = self._question_I[self.windows.question_F[example_B]]
      valid_BS = (np.arange(S) < question_B[:, None]) & live_B[:, None]
      second = dict(tokens_BS=np.where(valid_BS, tokens_BS, 0), valid_BS=valid_BS)
    else:
      second = dict(types_BT=zero(types_BT))
    return dict(
      tokens_BT=zero(tokens_BT),
      valid_BT=valid_BT,
      **second,
      passage_BT=zero(passage_BT),
      best_BT=zero(best_BT),
      starts_B=np.where(live_B, span_B2[:, 0], 0),
      ends_B=np.where(live_B, span_B2[:, 1], 0),
      null_B=null_B,
      row_weights_B=live_B.astype(np.float32),
    )


def _has_most_context(rows: Windows, passage_I: np.ndarray) -> list[np.ndarray]:
  """Return for each window the mask of the tokens for which it has the most context.

  The context is the smaller number of tokens on either side, plus a hundredth of the window's size (run_squad.py). Ties
  go to the first window.
  """
  score_I = [np.full(size, -np.inf) for size in passage_I]
  winner_I = [np.zeros(size, np.int64) for size in passage_I]
  for f, (i, begin, size, _) in enumerate(zip(*rows, strict=True)):
    at = np.arange(size)
    score = np.minimum(at, size - 1 - at) + 0.01 * size
    part = slice(begin, begin + size)
    better = score > score_I[i][part]
    score_I[i][part] = np.where(better, score, score_I[i][part])
    winner_I[i][part] = np.where(better, f, winner_I[i][part])
  return [winner_I[i][begin : begin + size] == f for f, (i, begin, size, _) in enumerate(zip(*rows, strict=True))]
