"""Table rows of one or two texts with a label or score, in the input formats of pre-trained models.

  form   one text              two texts
  bert   [CLS] a [SEP]         [CLS] a [SEP] b [SEP], of token types 0 0 0 1 1     (Devlin et al. 2019, figure 4)
  gpt    start a classify      start a delimiter b classify                        (Radford et al. 2018, figure 1)
  xlnet  a <sep> <cls>         a <sep> b <sep> <cls>, of segments 0 0 1 1 2  (zihangdai/xlnet, classifier_utils.py)
  plain  a                     a b                                                 (classes of transformers on GPT-2)
  template                     as the tokenizer of imported weights makes rows of one text and of two
  separate                     a and b in separate arrays, for models that read two texts (Chen et al. 2017, ESIM)

`separate` has the first text in `tokens_BT` and `valid_BT` and the second in `tokens_BS` and `valid_BS`, each of at
most `data.length` tokens, without special tokens; S = T in a batch.

A pair whose second text has no tokens is a row of one text for `bert` and `xlnet`, as in both codes (`if tokens_b`).
A row of a question with choices is one sequence per choice. For `bert`, `xlnet` and `template` a is the context and b
the question with a choice (Devlin et al. 2019, section 4.4); otherwise a is the context with the question and b a
choice (Radford et al. 2018, section 3.3). If the choices are already part of the question (`race/joined`), b is a
choice.

`bert` represents the row by its first token, the other forms by the last. The three special tokens of `gpt` are
`data.special_tokens` in this order. With `both_orders`, for similarity of sentences in either order (section 3.3), a
row has both orders; a row of one text has the same sequence twice. If a row has several sequences, the keys have an
axis G after the rows: `tokens_BGT`, `valid_BGT`, `types_BGT`. Labelled documents that are not from tables are rows of
one text.

A sequence that is too long loses tokens one by one at the end of whichever text is longer (google-research/bert,
`_truncate_seq_pair`), or at the end of the first of the documents that form a text.
With `second_length` at most that many last tokens of b are kept, and the end of a is truncated to make room
(zihangdai/xlnet, run_race.py). The number of truncated rows is reported before a run starts. Order and buckets are as
in `bucketed`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from lmx import ranges
from lmx.data.batching import bucketed
from lmx.data.batching.base import is_labelled, note_of_truncation, sizes, special_token_id
from lmx.data.tokenizers.base import RowTemplate, row_template
from lmx.errors import InputError, check_choice, check_least

CHARACTERS = 'may'
FORMS = ('bert', 'gpt', 'xlnet', 'plain', 'template', 'separate')
_DROPS = ('bert', 'xlnet', 'template')  # an empty second text makes a row of one text
Layout = tuple[tuple[int, ...], ...]  # for each text, the documents of the row that form it


@dataclasses.dataclass(frozen=True)
class Config(bucketed.Config):
  """Rows of one or two texts; the attributes of `bucketed.Config`, and

  Attributes:
    form: 'bert', 'gpt', 'xlnet', 'plain', 'template' or 'separate', see the module's docstring.
    both_orders: include a row of two texts in both orders.
    second_length: maximum number of last tokens of the second text; then only the first text is truncated to
      data.length. 0 truncates the longer text.
    empty_second: 'dropped' reads a pair with an empty second text as one text; 'marked' keeps the special token between
      the two for `bert` and `xlnet`, as in runs of lmx from before this field.
    truncation: 'released' removes tokens one by one from the longer text, on a tie from the second (google-research/
      bert). 'tokenizers' is the `longest_first` of that library: if both texts are truncated to an odd number of
      tokens together, the longer text keeps one more, on a tie the second.
    pad_id: rows lose the tokens with this id at their end, except the first token of all, as GPT and GPT-2 classifiers
      of transformers are read at the last token that is not `pad_token_id`; -1 for none.
    packed: pack the rows of a training batch end to end into as few sequences as possible, of the bucket or
      `data.length` with the least padding, for one update of the whole batch. For models that export `pool` (bert), on
      one device without `optim.accumulate`; otherwise use `groups`.
  """

  name: str = 'texts'
  form: str = 'bert'
  both_orders: bool = False
  second_length: int = 0
  empty_second: str = 'dropped'
  truncation: str = 'released'
  pad_id: Annotated[int, ranges.Limits(-1)] = -1
  packed: bool = False

  def __post_init__(self) -> None:
    super().__post_init__()
    check_choice('data.batching.form', self.form, FORMS)
    check_choice('data.batching.empty_second', self.empty_second, ('dropped', 'marked'))
    check_choice('data.batching.truncation', self.truncation, ('released', 'tokenizers'))
    check_least('data.batching', self, second_length=0)
    if self.second_length and self.truncation != 'released':
      raise InputError(
        f'data.batching.truncation: got "{self.truncation}" with data.batching.second_length; expected "released"; '
        'omit one of the two'
      )


def check(data: Any) -> None:
  """Raise InputError if the `data` section does not fit."""
  cfg = data.batching
  if cfg.form == 'bert' and data.tokenizer != 'wordpiece' and not {'<cls>', '<sep>'} <= {*data.special_tokens}:
    raise InputError(
      f'data.tokenizer: got "{data.tokenizer}" with data.batching.form "bert"; expected "wordpiece", '
      'with [CLS] and [SEP], or <cls> and <sep> in data.special_tokens'
    )
  if cfg.form == 'gpt' and len(data.special_tokens) != 3:
    raise InputError(
      'data.batching.form "gpt" needs three data.special_tokens: start, delimiter and classify, such as '
      '_start_, _delimiter_ and _classify_'
    )
  if cfg.form == 'separate':
    for name in ('both_orders', 'second_length'):
      if getattr(cfg, name):
        raise InputError(
          f'data.batching.{name}: got {getattr(cfg, name)} with form "separate", whose texts are no one row; omit it'
        )
    if cfg.packed:
      raise InputError('data.batching.packed: got True with form "separate", whose texts are no one row; omit it')
  if data.reverse:
    raise InputError('data.reverse: got True; expected False with data.batching "texts"')


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Texts:
  """Return the batches of a split according to the `data` section."""
  cfg, tokenizer = data.batching, corpus.tokenizer
  documents, choices = corpus.manifest.get('texts', 1), corpus.manifest.get('choices', 0)
  if cfg.both_orders and (documents != 2 or choices):
    raise InputError(
      f'data.batching.both_orders: got rows of {"choices" if choices else documents}; expected rows of two texts'
    )
  if cfg.form == 'separate' and choices:
    raise InputError(f'data.batching.form: got "separate" with {choices} choices of a question; expected another form')
  if cfg.second_length and documents == 1:
    raise InputError('data.batching.second_length: got rows of one text; expected two texts, or choices; set it to 0')
  layouts = sequences(cfg, documents, choices)
  return Texts(
    corpus.splits[split],
    *sizes(data, train),
    sequences=layouts,
    documents=documents,
    templates={n: template(data, tokenizer, n) for n in {1, len(layouts[0])}},
    end_id=tokenizer.eos_id,
    cfg=cfg,
    vocab_size=tokenizer.vocab_size,
    seed=seed,
    train=train,
    shuffle=data.shuffle,
  )


def template(data: Any, tokenizer: Any, texts: int) -> RowTemplate:
  """Return the special tokens of a sequence of `texts` texts according to the `data` section."""
  form, between = data.batching.form, texts - 1
  if form == 'template':
    return tokenizer.template(texts)
  if form == 'gpt':
    start, delimiter, classify = (tokenizer.token_id(name) for name in data.special_tokens)
    return row_template([(start,), *[(delimiter,)] * between, (classify,)])
  if form not in ('bert', 'xlnet'):
    return row_template([()] * (texts + 1))
  cls, sep = special_token_id(tokenizer, 'cls'), special_token_id(tokenizer, 'sep')
  last = int(texts == 2)  # the type of the second of two texts
  if form == 'bert':
    return row_template([(cls,), *[(sep,)] * texts], [[0], *[[0]] * between, [last]], last)
  return row_template([(), *[(sep,)] * between, (sep, cls)], [[], *[[0]] * between, [last, 2]], last)


def sequences(cfg: Config, documents: int, choices: int = 0) -> tuple[Layout, ...]:
  """Return the layout of each sequence in a row: the document indices of each text.

  Args:
    cfg: the `batching` section.
    documents: number of documents per row.
    choices: number of choices per row; its documents are then the context, the question if any, and the choices.
  """
  if choices:
    shared = tuple(range(documents - choices))  # the context, and the question if any
    a, b = (shared[:1], shared[1:]) if cfg.form in _DROPS else (shared, ())
    return tuple((a, (*b, len(shared) + choice)) for choice in range(choices))
  in_order = tuple((document,) for document in range(documents))
  if cfg.form == 'separate':
    return tuple((text,) for text in in_order)
  return (in_order, in_order[::-1]) if cfg.both_orders else (in_order,)


class Texts(bucketed.Bucketed):
  """Batches with tokens_BT, valid_BT, types_BT, row_weights_B, index_B and labels_B or scores_B.

  Rows without a label (as in a published test set) have label -1, or score NaN; they can only be predicted.

  Args:
    split: a Split in which each row is `documents` consecutive documents, the first with the label.
    batch_size: rows of the global batch.
    length: maximum number of tokens per sequence.
    sequences: layouts of a row, see `sequences`.
    documents: number of documents of a row.
    templates: number of texts -> special tokens of such a sequence.
    end_id: end-of-text id of the corpus's documents, removed here; None for no id.
    cfg: the `batching` section.
    vocab_size: size of the tokenizer's vocabulary.
    seed: seed of the order.
    train: endless shuffled epochs; else one pass.
    shuffle: shuffle; else rows keep the table's order.
  """

  def __init__(
    self,
    split: Any,
    batch_size: int,
    length: int,
    *,
    sequences: tuple[Layout, ...],
    documents: int,
    templates: Mapping[int, RowTemplate],
    end_id: int | None,
    cfg: Config,
    vocab_size: int,
    seed: int,
    train: bool,
    shuffle: bool = True,
  ):
    super().__init__(split, batch_size, length, vocab_size=vocab_size, seed=seed, train=train, shuffle=shuffle)
    self._cfg, self._templates, self._sequences = cfg, templates, sequences
    begin, end = self._documents(split, end_id)
    self._begin_IN, full_IN = begin.reshape(-1, documents), (end - begin).reshape(-1, documents)
    texts = len(sequences[0])
    around = templates[texts].special
    if length < texts + around:
      raise InputError(
        f'data.length: got {length}; expected at least {texts + around}, for {texts} texts and {around} special tokens'
      )
    is_dropped = texts == 2 and cfg.form in _DROPS and cfg.empty_second == 'dropped'
    seconds = [sequences[0 if cfg.both_orders else g][-1] for g in range(len(sequences))]
    self._alone_GI = [is_dropped & (full_IN[:, list(second)].sum(axis=1) == 0) for second in seconds]
    around_GI = [np.where(alone_I, templates[1].special, around) for alone_I in self._alone_GI]
    self._kept_ranges = [
      _kept_ranges(full_IN, sequence, length - around_I, cfg)
      for sequence, around_I in zip(sequences, around_GI, strict=True)
    ]
    totals = [np.sum([kept_I for text in kept for _, kept_I in text], axis=0) for kept in self._kept_ranges]
    self._sizes = np.max(np.add(totals, around_GI), axis=0)
    self._labels = None if split.labels is None else np.asarray(split.labels)[::documents]
    full_lengths = [full_IN[:, [n for text in sequence for n in text]].sum(axis=1) for sequence in sequences]
    truncated = int((np.stack(full_lengths) > np.stack(totals)).any(axis=0).sum())
    if truncated:
      note = f'{truncated:,} of {len(full_IN):,} rows of {split.title} are longer than {length} and truncated'
      self.notes = note_of_truncation(note, train=train)
    self.unlabelled = int(len(full_IN) if self._labels is None else (~is_labelled(self._labels)).sum())
    if train and self.unlabelled:
      raise InputError(
        f'{split.title}: got rows without a label; expected labels in data.batching "texts", as in '
        'glue/sst2 and table_files'
      )
    self.packable = train and cfg.packed
    self._arrange(cfg, 'rows')
    if cfg.form == 'separate':
      self._set_size(len(full_IN), int(np.sum(totals)), '1')

  def positions(self) -> int:
    """Return the number of positions in an epoch, padding included."""
    return super().positions() * (len(self._sequences) if self._cfg.form == 'separate' else 1)

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray, length: int = 0) -> dict[str, np.ndarray]:
    T = length or self.length
    arrays = [self._sequence(g, example_B, live_B, T) for g in range(len(self._sequences))]
    batch = arrays[0]
    if self._cfg.form == 'separate':  # a sequence is a text; they have no types
      texts = zip('TS', arrays, strict=False)
      batch = {f'{key}_B{axis}': array[f'{key}_BT'] for axis, array in texts for key in ('tokens', 'valid')}
    elif len(arrays) > 1:
      batch = {key.replace('_B', '_BG', 1): np.stack([array[key] for array in arrays], axis=1) for key in batch}
    batch['row_weights_B'] = live_B.astype(np.float32)
    if self._labels is not None:
      labels_B = np.where(live_B, self._labels[example_B], 0)
      batch['scores_B' if labels_B.dtype.kind == 'f' else 'labels_B'] = labels_B
    return batch

  def _sequence(self, g: int, example_B: np.ndarray, live_B: np.ndarray, T: int) -> dict[str, np.ndarray]:
    """Return sequence g of each row."""
    tokens_BT, types_BT = np.zeros((len(example_B), T), np.int32), np.zeros((len(example_B), T), np.int32)
    size_B = np.zeros(len(example_B), np.int64)
    for b, i in enumerate(example_B):
      is_alone = self._alone_GI[g][i]
      order = 0 if self._cfg.both_orders and is_alone else g  # one text is the same in both orders
      texts = [
        np.concatenate(
          [
            self._read(self._begin_IN[i, part] + skipped_I[i] + np.arange(kept_I[i]))
            for part, (skipped_I, kept_I) in zip(text, kept, strict=True)
          ]
        )
        for text, kept in zip(self._sequences[order], self._kept_ranges[order], strict=True)
      ]
      tokens, types = self._templates[1].row(texts[0]) if is_alone else self._templates[len(texts)].row(*texts)
      size_B[b] = 1 + np.flatnonzero(tokens != self._cfg.pad_id).max(initial=0)
      tokens_BT[b, : len(tokens)], types_BT[b, : len(tokens)] = tokens, types
    valid_BT = (np.arange(T) < size_B[:, None]) & live_B[:, None]
    zero = lambda x_BT: np.where(valid_BT, x_BT, 0)
    return dict(tokens_BT=zero(tokens_BT), valid_BT=valid_BT, types_BT=zero(types_BT))


def _kept_ranges(
  full_IN: np.ndarray, sequence: Layout, most_I: np.ndarray, cfg: Config
) -> list[list[tuple[np.ndarray, np.ndarray]]]:
  """Return (tokens skipped at the start, tokens kept) per row, for each document in each text of a sequence."""
  size_IN = np.stack([full_IN[:, list(text)].sum(axis=1) for text in sequence], axis=1)
  second_length = cfg.second_length
  if second_length:
    text_IN = _room_for_second(size_IN, most_I, second_length)
  else:
    text_IN = truncate_sizes(size_IN, most_I, longer=cfg.truncation == 'tokenizers')
  ranges = []
  for n, text in enumerate(sequence):
    left_I, parts = text_IN[:, n], []
    for part in reversed(text):
      kept_I = np.minimum(full_IN[:, part], left_I)
      parts.append((full_IN[:, part] - kept_I if second_length and n else np.zeros_like(kept_I), kept_I))
      left_I = left_I - kept_I
    ranges.append(parts[::-1])
  return ranges


def truncate_sizes(size_IN: np.ndarray, most_I: np.ndarray | int, *, longer: bool = False) -> np.ndarray:
  """Return the number of tokens kept per text if a row may have `most_I` tokens.

  The longer text, on a tie the second, loses its last token until they fit. With `longer` the longer text, on a tie the
  second, keeps one more of an odd number of tokens.
  """
  most_I = np.broadcast_to(most_I, len(size_IN))
  if size_IN.shape[1] == 1:
    return np.minimum(size_IN, most_I[:, None])
  first_I, second_I = size_IN.T
  over_I = first_I + second_I > most_I
  half_I = most_I // 2 + (longer & (second_I >= first_I)) * (most_I % 2)
  kept_I = np.where(over_I, np.minimum(second_I, np.maximum(most_I - first_I, half_I)), second_I)
  return np.stack([np.where(over_I, most_I - kept_I, first_I), kept_I], axis=1)


def _room_for_second(size_IN: np.ndarray, most_I: np.ndarray, second_length: int) -> np.ndarray:
  """Return the number of tokens kept per text: at most `second_length` of the second, then the first fills `most_I`."""
  second_I = np.minimum(size_IN[:, 1], np.minimum(second_length, most_I))
  return np.stack([np.minimum(size_IN[:, 0], most_I - second_I), second_I], axis=1)
