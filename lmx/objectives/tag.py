"""Sequence labelling with any model: a linear layer, then a CRF or a softmax per word.

As in the named-entity models of Peters et al. 2018 (arXiv 1802.05365, appendix A.6) and Lample et al. 2016 (arXiv
1603.01360): linear-chain CRF (Lafferty et al. 2001; Huang et al. 2015, arXiv 1508.01991) in training, Viterbi in
decoding. If the labels mark spans (O, B-, I-), spans are
evaluated as in CoNLL, and decoding may be restricted to sequences in which an I follows its own type. If they mark the
roles of a predicate, `scorer` counts its arguments as the script of the task does.

The reported loss is per word: the summed negative log-likelihood is divided by the total number of words. If
words are split into subwords, the first subword represents the word, and the CRF and the spans are over these only
(Devlin et al. 2019, arXiv 1810.04805, section 5.3, with a softmax and dropout of 0.1 before the linear layer).
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from lmx import ranges
from lmx.errors import InputError, InputWarning, check_choice, check_range
from lmx.layers import char_cnn
from lmx.metrics import roles, spans
from lmx.metrics.by_class import MACRO_F1
from lmx.metrics.metric import ACCURACY, ERROR_PERCENT
from lmx.objectives import head_input, mean
from lmx.ops import dropout
from lmx.types import Array, Batch, Features, Model, Output, Params, State

METRICS = (ERROR_PERCENT, ACCURACY, MACRO_F1, *spans.METRICS)
PREDICTION = ROWS = 'tagging'
SCORERS = ('conlleval', 'srl_eval')
_COUNTED = ('right', 'predicted', 'true')
_NEVER = -1e9  # score of a forbidden transition; finite, so that differences are not NaN


@dataclasses.dataclass(frozen=True)
class Config(head_input.Config):
  """Options of the objective, in addition to those of `head_input.Config`.

  Attributes:
    labels: names of the labels in their order; () takes them from the data set.
    crf: use a CRF over the row; otherwise words are independent.
    scorer: 'conlleval' counts spans (lmx/metrics/spans.py); 'srl_eval' the arguments of a predicate, which may be
      several spans each, without the predicate (lmx/metrics/roles.py).
    constrained: decode only sequences in which an I follows a B or I of its own type; for labels of spans.
    init_std: standard deviation of the linear layer's kernel.
    dropout: dropout rate of the linear layer's input.
  """

  labels: Annotated[tuple[Annotated[str, ranges.Text()], ...], ranges.Distinct()] = ()
  crf: bool = True
  scorer: str = 'conlleval'
  constrained: bool = True
  init_std: float = 0.05
  dropout: float = 0.0

  def __post_init__(self) -> None:
    super().__post_init__()
    check_choice('objective.scorer', self.scorer, SCORERS)
    check_range('objective.init_std', self.init_std, 0)
    check_range('objective.dropout', self.dropout, 0, 1)
    if self.crf and self.reduction == 'row_means':
      raise InputError(
        'objective.reduction: got "row_means" with a CRF, whose likelihood is that of a whole row; expected "rows", or '
        'objective.crf=false'
      )
    if self.labels and len(self.labels) < 2:
      raise InputError(f'objective.labels: got one, {self.labels[0]}; expected at least 2')


def resolve(cfg: Config, manifest: Any) -> Config:
  """Return the config with the labels of a data set; raise InputError if it has none, or others than given."""
  names = tuple(manifest.get('token_label_names', ()))
  if len(names) < 2:
    raise InputError(
      f'data set {manifest["dataset"]["name"]} has no word labels; objective "tag" needs one such as wnut17'
    )
  if cfg.labels not in ((), names):
    raise InputError(f'objective.labels: got {", ".join(cfg.labels)}, but the data set has {", ".join(names)}')
  odd = [name for name in names if not spans.marks_span(name)]
  if 'O' in names and odd and len(odd) < len(names) / 2:
    shown = ', '.join(odd[:5])
    note = 'labels mark spans but for these, so words are measured, not spans; correct them'
    warnings.warn(f'{manifest["dataset"]["name"]}: got the labels {shown}; {note}', InputWarning, stacklevel=2)
  if cfg.scorer == 'srl_eval' and not spans.is_scheme(names):
    raise InputError(f'objective.scorer: got "srl_eval" with labels {", ".join(names)}; expected O, B-role and I-role')
  return dataclasses.replace(cfg, labels=names)


def count_spans(cfg: Config, predicted_BT: Array, true_BT: Array, valid_BT: Array) -> Array:
  """Return the counts (right, predicted, true) of each type for precision, recall and F1, by `scorer`."""
  if cfg.scorer == 'srl_eval':
    return roles.count_arguments(roles.scheme(cfg.labels), predicted_BT, true_BT, valid_BT)
  return spans.count_spans(spans.scheme(cfg.labels), predicted_BT, true_BT, valid_BT)


def types(cfg: Config) -> tuple[str, ...]:
  """Return the types that `count_spans` counts, by index."""
  return roles.scheme(cfg.labels).names if cfg.scorer == 'srl_eval' else spans.scheme(cfg.labels).names


def _sizes(cfg: Config, model: Model, model_cfg: Any) -> tuple[int, int, int]:
  """Return `head_input.sizes`, from a trace of one word."""

  def one_word(key: Array) -> Features:
    batch = head_input.one_token(model, model_cfg, shapes(Config(), 1, 1))
    params = {'model': model.init(model_cfg, key)}
    return head_input.apply(cfg, model, model_cfg, params, batch, model.init_state(model_cfg, 1), None)[0]

  return head_input.sizes(cfg, jax.eval_shape(one_word, jax.random.key(0)))


def init(cfg: Config, model: Model, model_cfg: Any, key: Array) -> Params:
  """Initialise the head: {'kernel' (D, L), 'bias' (L,)}, with a CRF {'crf': see `init_crf`}, and `head_input.init`."""
  if len(cfg.labels) < 2:
    raise InputError('objective.labels: got no label; expected at least 2')
  kernel_key, crf_key = jax.random.split(key)
  read, width, layers = _sizes(cfg, model, model_cfg)
  shape = (read, len(cfg.labels))
  head: dict[str, Any] = {
    'kernel': cfg.init_std * jax.random.normal(kernel_key, shape, jnp.float32),
    'bias': jnp.zeros(shape[1], jnp.float32),
  }
  head |= head_input.init(cfg, width, layers, key)
  return head | ({'crf': init_crf(crf_key, shape[1])} if cfg.crf else {})


def labels(cfg: Config, recorded: Callable[[], list[str]]) -> list[str]:
  """Return the labels in the order of the logits."""
  del recorded
  return list(cfg.labels)


def undefined(cfg: Config, totals: Mapping[str, tuple[float, float]], names: Sequence[str], split: str) -> list[str]:
  """Return a note if F1 is 0 only because the split has no spans."""
  del cfg, names
  if totals.get('spans_true', (1.0, 1.0))[0]:
    return []
  return [f'span_f1: split {split} has no spans; undefined values are 0, as in seqeval']


def labelled(cfg: Config) -> dict[str, tuple[int, ...]]:
  """Return the leaves of the head with an axis over labels -> these axes."""
  del cfg
  return {'kernel': (1,), 'bias': (0,), 'crf/transitions': (0, 1), 'crf/start': (0,), 'crf/end': (0,)}


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return {'nll': number of words}."""
  del cfg
  return {'nll': jnp.sum(batch['weights_BT'], dtype=jnp.float32)}


def _scores(cfg: Config, params: Params, features: Features, batch: Batch, key: Array | None = None) -> Array:
  """Return the logits of the labels, (B, T, L) float32."""
  head = params['objective']
  x_BTD = head_input.read(cfg, head, features, batch['valid_BT'])
  return dropout.dropout(x_BTD.astype(jnp.float32), cfg.dropout, key) @ head['kernel'] + head['bias']


def _gather_words(counted_BT: Array, *arrays: Array) -> tuple[Array, ...]:
  """Move word positions to the front of each row; return (True at words, the reordered arrays)."""
  order_BT = jnp.argsort(~counted_BT, axis=1, stable=True)
  pick = lambda x: jnp.take_along_axis(x, order_BT.reshape(order_BT.shape + (1,) * (x.ndim - 2)), axis=1)
  return (pick(counted_BT), *(pick(x) for x in arrays))


def _decode(cfg: Config, params: Params, x_BTL: Array, valid_BT: Array) -> Array:
  """Return the best labels, (B, T) int32."""
  allowed = None
  if cfg.constrained and spans.is_scheme(cfg.labels):
    moves, starts = spans.allowed_transitions(cfg.labels)
    allowed = jnp.asarray(moves), jnp.asarray(starts)
  if cfg.crf:
    return viterbi(params['objective']['crf'], x_BTL, valid_BT, allowed)
  L = len(cfg.labels)
  nothing = {'transitions': jnp.zeros((L, L)), 'start': jnp.zeros(L), 'end': jnp.zeros(L)}
  return viterbi(nothing, x_BTL, valid_BT, allowed)


def loss(
  cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None
) -> Output:
  """Return the negative log-likelihood of the labels in nats.

  Args:
    params: {'model': ..., 'objective': the head}.
    batch: valid_BT, labels_BT, weights_BT and the model's other inputs.
    state: passed through; every sentence starts from a fresh state.
    key: PRNG key of dropout; None at evaluation, when the labels are decoded and counted.

  Returns:
    Output with sums {'nll'}; metrics 'nll', at evaluation also 'accuracy' and, for labels of
    spans, 'spans_right', 'spans_predicted' and 'spans_true' with weight 1, and of type r 'spans_right_<r>' and so on.
  """
  begin = model.init_state(model_cfg, batch['labels_BT'].shape[0])
  body_key, head_key = (key, None) if not cfg.dropout else dropout.split(key, 2)
  features, _ = head_input.apply(cfg, model, model_cfg, params, batch, begin, body_key)
  x_BTL = _scores(cfg, params, features, batch, head_key)
  counted_BT, x_BTL, labels_BT, weights_BT = _gather_words(  # a padding row is not a sentence
    batch['weights_BT'] > 0, x_BTL, batch['labels_BT'], batch['weights_BT']
  )
  if cfg.crf:
    total = jnp.sum(crf_nll(params['objective']['crf'], x_BTL, labels_BT, counted_BT))
  else:
    log_p_BT = jnp.take_along_axis(jax.nn.log_softmax(x_BTL), labels_BT[..., None], axis=-1)[..., 0]
    total = -jnp.sum(log_p_BT * weights_BT)
  count = weights(cfg, batch)['nll']
  metrics = {'nll': (total, count)}
  if key is None:
    found_BT = _decode(cfg, params, x_BTL, counted_BT)
    metrics['accuracy'] = (jnp.sum((found_BT == labels_BT) * weights_BT), count)
    if spans.is_scheme(cfg.labels):
      numbers_3R, one = count_spans(cfg, found_BT, labels_BT, counted_BT), jnp.ones((), jnp.float32)
      for name, number_R in zip(_COUNTED, numbers_3R, strict=True):
        metrics[f'spans_{name}'] = (jnp.sum(number_R), one)
        metrics |= {f'spans_{name}_{r}': (number, one) for r, number in enumerate(number_R)}
  return Output({'nll': total}, metrics, state, features=features)


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return ({'labels_BT': best labels, int32, 'scores_BTL': logits, 'words_BT': True at words}, state), words first
  in their rows; without weights_BT every valid position is a word."""
  begin = model.init_state(model_cfg, batch['valid_BT'].shape[0])
  features, _ = head_input.apply(cfg, model, model_cfg, params, batch, begin, None)
  counted_BT = batch['weights_BT'] > 0 if 'weights_BT' in batch else batch['valid_BT']
  words_BT, x_BTL = _gather_words(counted_BT, _scores(cfg, params, features, batch))
  return {'labels_BT': _decode(cfg, params, x_BTL, words_BT), 'scores_BTL': x_BTL, 'words_BT': words_BT}, state


def headline(cfg: Config, metrics: Any) -> str:
  """Return 'span_f1' if the labels mark spans, else 'error_percent' of the words."""
  del metrics
  return 'span_f1' if spans.is_scheme(cfg.labels) else 'error_percent'


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Mapping[str, int]) -> dict[str, float]:
  """Return {'loss', 'accuracy', 'error_percent'}, and precision, recall and F1 of spans in percent."""
  del counts
  accuracy = mean(totals['accuracy'])
  metrics = {'loss': mean(totals['nll']), 'accuracy': accuracy, 'error_percent': 100 * (1 - accuracy)}
  if spans.is_scheme(cfg.labels):
    metrics |= spans.compute_scores(*(totals[f'spans_{name}'][0] for name in _COUNTED))
  return metrics


def by_class(
  cfg: Config, totals: Mapping[str, tuple[float, float]], names: Sequence[str] | None
) -> dict[str, list[float]]:
  """Return {type of spans: (right, predicted, true)} of the types that occur or are predicted."""
  del names
  if not spans.is_scheme(cfg.labels):
    return {}
  counts = {kind: [totals[f'spans_{name}_{r}'][0] for name in _COUNTED] for r, kind in enumerate(types(cfg))}
  return {kind: numbers for kind, numbers in counts.items() if any(numbers)}


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: the context, the decoding of labels and their counts."""
  del batches
  words = ['in the context of its document'] * getattr(data, 'keeps_file_documents', False)
  words += ['CRF' if cfg.crf else 'each word by itself']
  if spans.is_scheme(cfg.labels):
    scored = (
      'arguments without V, C-X as a part of X, as srl-eval'
      if cfg.scorer == 'srl_eval'
      else 'exact spans, as conlleval'
    )
    words += ['I after its own type only'] * cfg.constrained + [scored]
  return words


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch of sentences with 50 characters a word, as in ELMo's release."""
  del cfg
  leaf = lambda dtype, *sizes: jax.ShapeDtypeStruct((batch_size, length, *sizes), dtype)
  return {
    'tokens_BT': leaf(jnp.int32),
    'characters_BTC': leaf(jnp.int32, char_cnn.WORD_LENGTH),
    'valid_BT': leaf(jnp.bool_),
    'labels_BT': leaf(jnp.int32),
    'weights_BT': leaf(jnp.float32),
  }


def init_crf(key: Array, labels: int) -> Params:
  """Initialise {'transitions': (L, L), 'start': (L,), 'end': (L,)}, normal with standard deviation 0.1."""
  shapes = {'transitions': (labels, labels), 'start': (labels,), 'end': (labels,)}
  keys = jax.random.split(key, len(shapes))
  return {n: 0.1 * jax.random.normal(k, s, jnp.float32) for k, (n, s) in zip(keys, shapes.items(), strict=True)}


def _time_first(x_BTL: Array, valid_BT: Array) -> tuple[Array, Array]:
  return x_BTL.swapaxes(0, 1).astype(jnp.float32), valid_BT.T


def log_partition(params: Params, x_BTL: Array, valid_BT: Array) -> Array:
  """Return the logarithm of the sum over all paths of exp(score), (B,): the forward algorithm."""
  x_TBL, valid_TB = _time_first(x_BTL, valid_BT)

  def step(total_BL: Array, inputs: Any) -> Any:
    x_BL, valid_B = inputs
    new_BL = jax.nn.logsumexp(total_BL[:, :, None] + params['transitions'], axis=1) + x_BL
    return jnp.where(valid_B[:, None], new_BL, total_BL), None

  total_BL, _ = jax.lax.scan(step, params['start'] + x_TBL[0], (x_TBL[1:], valid_TB[1:]))
  return jax.nn.logsumexp(total_BL + params['end'], axis=-1)


def path_score(params: Params, x_BTL: Array, labels_BT: Array, valid_BT: Array) -> Array:
  """Return the score of one path y in each row, (B,).

  start[y_1] + sum_t x_t[y_t] + sum_t transitions[y_(t-1), y_t] + end[y_n]; invalid positions come last in
  their row and are not part of a path.
  """
  x_BT = jnp.take_along_axis(x_BTL.astype(jnp.float32), labels_BT[..., None], axis=-1)[..., 0]
  moves_BT = params['transitions'][labels_BT[:, :-1], labels_BT[:, 1:]]
  last_B = jnp.maximum(jnp.sum(valid_BT, axis=1) - 1, 0)
  ends_B = params['start'][labels_BT[:, 0]] + params['end'][jnp.take_along_axis(labels_BT, last_B[:, None], 1)[:, 0]]
  inside = jnp.sum(jnp.where(valid_BT, x_BT, 0.0), axis=1)
  return inside + jnp.sum(jnp.where(valid_BT[:, 1:], moves_BT, 0.0), axis=1) + ends_B


def crf_nll(params: Params, x_BTL: Array, labels_BT: Array, valid_BT: Array) -> Array:
  """Return the negative log-likelihood of a row's labels in nats, (B,) float32; 0 for a row without valid positions."""
  found_B = log_partition(params, x_BTL, valid_BT) - path_score(params, x_BTL, labels_BT, valid_BT)
  return jnp.where(jnp.any(valid_BT, axis=1), found_B, 0.0)


def viterbi(params: Params, x_BTL: Array, valid_BT: Array, allowed: tuple[Array, Array] | None = None) -> Array:
  """Return the best path of each row by Viterbi's algorithm, (B, T) int32; 0 where not valid.

  Args:
    params: from `init_crf`.
    x_BTL: scores of the labels.
    valid_BT: bool, valid positions first.
    allowed: (moves (L, L), starts (L,)) bool: allowed transitions and first labels; None: all.
  """
  x_TBL, valid_TB = _time_first(x_BTL, valid_BT)
  moves, start = params['transitions'], params['start']
  if allowed is not None:
    moves, start = jnp.where(allowed[0], moves, _NEVER), jnp.where(allowed[1], start, _NEVER)

  def forward(best_BL: Array, inputs: Any) -> Any:
    x_BL, valid_B = inputs
    through_BLL = best_BL[:, :, None] + moves
    new_BL = jnp.max(through_BLL, axis=1) + x_BL
    from_BL = jnp.where(valid_B[:, None], jnp.argmax(through_BLL, axis=1), jnp.arange(x_BL.shape[-1]))
    return jnp.where(valid_B[:, None], new_BL, best_BL), from_BL

  best_BL, from_TBL = jax.lax.scan(forward, start + x_TBL[0], (x_TBL[1:], valid_TB[1:]))
  last_B = jnp.argmax(best_BL + params['end'], axis=-1)

  def back(label_B: Array, from_BL: Array) -> Any:
    before_B = jnp.take_along_axis(from_BL, label_B[:, None], axis=1)[:, 0]
    return before_B, label_B

  first_B, rest_TB = jax.lax.scan(back, last_B, from_TBL, reverse=True)
  path_BT = jnp.concatenate([first_B[None], rest_TB]).T
  return jnp.where(valid_BT, path_BT, 0).astype(jnp.int32)
