"""Attention weights of a trained run on a few rows, with the tokens that each query and key is computed from."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lmx.config import resolve
from lmx.data.tokenizers import word_characters
from lmx.decoding import translate
from lmx.engine import precision
from lmx.errors import InputError
from lmx.evaluation import evaluate
from lmx.prediction import batched, contextual_embeddings, tasks
from lmx.reporting.html_report import AttentionMap, AttentionRow, sections
from lmx.types import AttentionWeights

_MOST_WEIGHTS = 400_000  # of a row that are shown, over all layers and heads
_REACH = 24  # keys before the first query that are shown: of a memory


class _Axis(NamedTuple):
  """Tokens of an axis, and the indices of those that are no padding."""

  tokens: tuple[str, ...]
  shown: np.ndarray


class _Layer(NamedTuple):
  """Weights of one layer (H, T, S) with the axes of its queries and keys."""

  title: str
  number: int
  queries: _Axis
  keys: _Axis
  weights_HTS: Any


def of_texts(loaded: Any, texts: Sequence[str]) -> list[AttentionRow]:
  """Return the maps of each text; an encoder-decoder translates it, and the target is its best translation.

  Args:
    loaded: the run.
    texts: a text each, or the two texts of a row separated by a tab.

  Raises:
    InputError: a text is empty, the model has no attention, or it reads another number of texts.
  """
  if not all(text.strip() for text in texts):
    raise InputError('--attention: got an empty text; expected a text, or the option without one for evaluated rows')
  if loaded.model.READS == 'source':
    batches = _translated(loaded, texts)
  else:
    has_rows = loaded.objective.PREDICTION in ('classification', 'question_answering')
    batches = [_pair(loaded, text) if has_rows and '\t' in text else _single(loaded, text) for text in texts]
  return [_row(loaded, text, batch, (), []) for text, batch in zip(texts, batches, strict=True)]


def _single(loaded: Any, text: str) -> dict[str, np.ndarray]:
  """Return a batch of one text."""
  if contextual_embeddings.reads_pairs(loaded.model, loaded.cfg):
    raise InputError(
      f'--attention: got one text; model {loaded.run.model_name} reads two; separate them by a tab, '
      "--attention=$'TEXT\\tTEXT', or omit the text for rows of the evaluated split"
    )
  loaded.check('embed')
  words, arrays = contextual_embeddings.from_run(loaded).read(text, 1)
  return {**{name: x[None] for name, x in arrays.items()}, 'valid_BT': np.ones((1, len(words)), bool)}


def _pair(loaded: Any, text: str) -> dict[str, np.ndarray]:
  """Return a batch of the row that `lmx predict` makes of two texts, separated by a tab."""
  try:
    inputs = tasks.get(loaded).read_inputs(loaded, [tuple(text.split('\t'))])
  except InputError as error:
    raise InputError(str(error).replace('inputs, line 1', '--attention')) from None
  batch = batched.batches(loaded.run, inputs.corpus, inputs.split)(0)
  (b,) = np.flatnonzero(batch['index_B'] == 0)
  arrays = loaded.objective.model_batch(loaded.run.objective, batch)
  return {name: np.asarray(x[b : b + 1]) for name, x in arrays.items()}


def of_split(loaded: Any, count: int) -> list[AttentionRow]:
  """Return the maps of the first rows of the evaluated split, or of the second segments if segments have a memory.

  Raises:
    InputError: the model has no attention, or its rows are no tokens.
  """
  run, model, objective = loaded.run, loaded.model, loaded.objective
  corpus, before_BT = loaded.corpus(), None
  split = resolve.measured_split(run, corpus)
  batches = evaluate.final_batches(run, corpus, split)
  batch: Mapping[str, Any] = objective.model_batch(run.objective, batches(0))
  if 'tokens_BT' not in batch:
    raise InputError(f'--attention: rows of data set {run.data.dataset} are no tokens, so no attention is shown')
  state = model.init_state(loaded.cfg, len(batch['tokens_BT'])) if model.READS != 'source' else ()
  if jax.tree.leaves(state) and batches.steps > 1:
    with precision.scope(run.matmul_precision):
      state = jax.jit(model.apply, static_argnums=0)(loaded.cfg, loaded.params['model'], batch, state)[1]
    before_BT, batch = batch['tokens_BT'], objective.model_batch(run.objective, batches(1))
  rows = []
  for b in range(min(count, len(batch['tokens_BT']), batches.examples)):
    one = {name: np.asarray(x[b : b + 1]) for name, x in batch.items()}
    before = [] if before_BT is None else _tokens(loaded, before_BT[b], 'T')
    title = f'row {b + 1} of {split}'
    rows.append(_row(loaded, title, one, jax.tree.map(lambda leaf, b=b: leaf[b : b + 1], state), before))
  return rows


def _translated(loaded: Any, texts: Sequence[str]) -> list[dict[str, np.ndarray]]:
  """Return a batch of each text and its best translation."""
  translator = loaded.translator()
  found = loaded.translations(texts, translator=translator)
  batches = []
  for source_S, hypotheses in zip(translator.sources(texts), found, strict=True):
    target_T = np.asarray(hypotheses[0].tokens, np.int32)
    tokens_T = np.append(loaded.tokenizer.target.start_id, target_T[:-1]).astype(np.int32)
    valid = {'source_valid_BS': np.ones((1, len(source_S)), bool), 'valid_BT': np.ones((1, len(target_T)), bool)}
    batches.append({'source_BS': source_S[None], 'tokens_BT': tokens_T[None], 'targets_BT': target_T[None], **valid})
  return batches


def _tokens(loaded: Any, ids: Any, side: str) -> list[str]:
  """Return the tokens of the first or second axis, as labels."""
  is_target = side == 'T' and loaded.model.READS == 'source'
  labels = translate.token_labels(loaded.tokenizer.target if is_target else loaded.tokenizer, ids)
  return [label or '␣' for label in labels]


def _axis(loaded: Any, batch: Mapping[str, np.ndarray], side: str) -> _Axis:
  """Return axis T or S of a batch of one row; the tokens of a target are the predicted ones."""
  is_source = loaded.model.READS == 'source'
  names = ('targets_BT', 'tokens_BT') if side == 'T' and is_source else ('source_BS', f'tokens_B{side}')
  ids = next(batch[name][0] for name in names if name in batch)
  letters = batch.get(f'characters_B{side}C')  # with them, ids are of fewer words than the tokenizer's
  tokens = _tokens(loaded, ids, side) if letters is None else word_characters.spelled(letters[0])
  masks = [batch[name][0] for name in ('source_valid_BS', f'valid_B{side}') if name in batch and name[-1] == side]
  return _Axis(tuple(tokens), np.flatnonzero(masks[0] if masks else np.ones(len(ids), bool)))


def _row(loaded: Any, title: str, batch: Mapping[str, np.ndarray], state: Any, before: Sequence[str]) -> AttentionRow:
  """Return the maps of a batch of one row; `before` are the tokens of the segment before it."""
  with precision.scope(loaded.run.matmul_precision):
    found = loaded.model.attention_weights(loaded.cfg, loaded.params['model'], batch, state)
  if not found:
    raise InputError(f'--attention: model {loaded.model.name} has no attention; omit the option')
  size = min(sections.MOST_TOKENS, math.isqrt(_MOST_WEIGHTS // sum(one.weights_BHTS.shape[1] for one in found)))
  groups: dict[Any, list[_Layer]] = {}
  for layer in _layers(loaded, batch, found, before):
    groups.setdefault((layer.title, layer.keys.tokens), []).append(layer)
  maps = []
  for (heading, _), layers in groups.items():
    queries, keys = layers[0].queries, layers[0].keys
    in_memory = len(before) if len(keys.tokens) > len(queries.tokens) and before else 0
    at_T, at_S = queries.shown[:size], keys.shown[max(in_memory - _REACH, 0) :][: size + min(in_memory, _REACH)]
    weights_NHTS = np.stack([np.asarray(one.weights_HTS)[:, at_T][:, :, at_S] for one in layers])
    labels = [queries.tokens[i] for i in at_T], [keys.tokens[i] for i in at_S]
    maps.append(AttentionMap(heading, labels[0], labels[1], [one.number for one in layers], weights_NHTS))
  return AttentionRow(title, maps)


def _layers(
  loaded: Any, batch: Mapping[str, np.ndarray], found: Sequence[AttentionWeights], before: Sequence[str]
) -> Iterator[_Layer]:
  """Yield the recorded weights of a row with the axes that they are of."""
  is_source = loaded.model.READS == 'source'
  first = _axis(loaded, batch, 'T')
  second = _axis(loaded, batch, 'S') if {'source_BS', 'tokens_BS'} & {*batch} else first
  is_mutual = sum(len(one.weights_BHTS) for one in found if one.kind == 'cross') > 1  # each text attends to the other
  counts: collections.Counter[str] = collections.Counter()
  directions = itertools.cycle(((first, second, 'first text to second'), (second, first, 'second text to first')))
  for i, (kind, a_BHTS) in enumerate(found):
    counts[kind] += 1
    if kind == 'cross' and (is_source or not is_mutual):
      yield _Layer('Cross-attention', counts[kind], first, second, a_BHTS[0])
    elif kind == 'cross':
      for a_HTS in a_BHTS:
        queries, keys, between = next(directions)
        yield _Layer(f'Cross-attention, {between}', 1, queries, keys, a_HTS)
    elif is_source:
      side, axis = ('Decoder', first) if found[i + 1].kind == 'cross' else ('Encoder', second)
      counts[side] += 1
      yield _Layer(f'{side} self-attention', counts[side], axis, axis, a_BHTS[0])
    else:
      yield from _self_attention(batch, counts[kind], first, a_BHTS[0], before)


def _self_attention(
  batch: Mapping[str, np.ndarray], number: int, axis: _Axis, a_HTS: Any, before: Sequence[str]
) -> Iterator[_Layer]:
  """Yield the weights of a layer of self-attention: over a memory, to compressed keys, or of two streams."""
  T, (_, X, S) = len(axis.tokens), a_HTS.shape
  title, keys = 'Self-attention', axis
  if S > T:  # the last keys of the memory are those of the segment before
    kept = before[-(S - T) :]
    tokens = ('',) * (S - T - len(kept)) + tuple(kept) + axis.tokens
    keys = _Axis(tokens, np.concatenate([np.arange(S - T - len(kept), S - T), S - T + axis.shown]))
  elif S < T:  # the first token, and the blocks of consecutive ones
    size = T // (S - 1)
    blocks = [' '.join(axis.tokens[j * size : (j + 1) * size]) for j in range(S - 1)]
    whole = [j + 1 for j in range(S - 1) if (j + 1) * size - 1 in axis.shown]
    title, keys = 'Self-attention to compressed keys', _Axis((axis.tokens[0], *blocks), np.array([0, *whole]))
  if X > T:  # of XLNet, the queries of the predicted positions follow
    yield _Layer('Self-attention of the content stream', number, axis, keys, a_HTS[:, :T])
    tokens = tuple(axis.tokens[t] for t in batch['positions_BP'][0])
    is_predicted_P = batch['weights_BP'][0] > 0 if 'weights_BP' in batch else np.ones(len(tokens), bool)
    title, axis = 'Self-attention of the query stream', _Axis(tokens, np.flatnonzero(is_predicted_P))
    a_HTS = a_HTS[:, T:]
  yield _Layer(title, number, axis, keys, a_HTS)
