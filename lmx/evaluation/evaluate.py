"""Exact evaluation: every token of a split counts once, state carries over between batches, and division is last."""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lmx import objectives
from lmx.config.schema import Run
from lmx.data import pipeline
from lmx.engine import precision, sharding, state, step
from lmx.errors import InputError, InputWarning
from lmx.metrics import by_class, metric, writing_systems
from lmx.models import registry
from lmx.reporting import waiting
from lmx.types import Array, Batch, Params, State, Totals

_SAMPLE = 20_000  # number of tokens that decides whether a text has spaces between words
_LONGEST_WORD = 20  # mean characters between spaces; more than in any language with spaces
_SMALL = 1024  # batch rows that are allowed for any split


def measure(
  eval_step: Any,
  params: Params,
  begin: Callable[[int], State],
  batches: Any,
  engine: sharding.Engine,
  *,
  title: str = '',
) -> Totals:
  """Run `eval_step` over all of `batches`.

  Args:
    eval_step: compiled, (params, model_state, batch) -> (metrics {name: (sum, weight)}, model_state).
    params: parameters to evaluate.
    begin: returns the initial state for a number of rows.
    batches: an evaluation `Batches`; rows of weight 0 are added if the devices cannot share its rows evenly.
    engine: places batches on the devices.
    title: title of the progress bar; '' for no bar.

  Returns:
    Sums and weights over the whole split, and its array metrics concatenated over batches, in float64.

  Raises:
    InputError: rows have no label.
  """
  pairs: dict[str, np.ndarray] = {}
  arrays: dict[str, list[np.ndarray]] = {}
  _check_labels(batches)
  batches = batches.pad_rows(engine.row_shards)
  rows = engine.process_rows(batches.padded_rows)
  model_state = engine.build_rows(lambda: begin(batches.padded_rows), batches.padded_rows)
  pending = None
  with pipeline.prefetch(batches, 0, batches.steps, rows) as stream, waiting.Bar(batches.steps, title) as progress:
    for _, batch in stream:
      with progress.compiling(eval_step, batch):
        metrics, model_state = eval_step(params, model_state, engine.put_batch(batch))
      _add(pairs, arrays, pending)  # the previous batch, while this one is computed
      pending = metrics
      progress.update(1)
  _add(pairs, arrays, pending)
  sums = {name: (float(pair[0]), float(pair[1])) for name, pair in pairs.items()}
  return {**sums, **{name: np.concatenate(parts) for name, parts in arrays.items()}}


@functools.lru_cache(maxsize=2)
def compiled_step(
  model_name: str, model_cfg: Any, objective_name: str, objective_cfg: Any, engine: sharding.Engine
) -> Any:
  """Return the evaluation step of a model and an objective, compiled once per engine."""
  parts = registry.get(model_name), model_cfg, objectives.get(objective_name), objective_cfg
  return engine.compile_eval(step.make_eval_step(*parts))


def compute_totals(run: Run, params: Params, batches: Any, engine: sharding.Engine, *, title: str = '') -> Totals:
  """Return the sums of the metrics of a run over all of `batches`; see `measure`."""
  eval_step = compiled_step(run.model_name, run.measured, run.objective_name, run.objective, engine)
  begin = lambda rows: registry.get(run.model_name).init_state(run.measured, rows)
  return measure(eval_step, params, begin, batches, engine, title=title)


def check(run: Run, batches: Any) -> None:
  """Check the batches of an evaluation.

  Raises:
    InputError: rows have no label, or a batch has far more rows than the split fills; names the field.
  """
  _check_labels(batches, run)
  filled = -(-batches.tokens_per_epoch // batches.length) if batches.stateful else batches.examples
  most = max(filled, run.data.batch_size, _SMALL)
  for field, rows in (
    ('evaluation.batch_size', run.evaluation.batch_size),
    ('data.eval_batch_size', run.data.eval_batch_size),
  ):
    if rows == batches.batch_size and rows > most:
      raise InputError(
        f'{field}: got {rows:,}; expected at most {most:,}, because the split fills {filled:,} rows of '
        f'length {batches.length}; lower it'
      )


def _check_labels(batches: Any, run: Run | None = None) -> None:
  """Raise InputError if rows have no label and so cannot be evaluated; with `run` the message gives their lines."""
  if not batches.unlabelled:
    return
  lines, column = '', ''
  if run is not None:
    lines = pipeline.unlabelled_rows(run.data, batches.split)
    if run.data.dataset == 'table_files' and batches.unlabelled == batches.examples:
      column = 'name the column of the labels by --config.data.label=, '
  raise InputError(
    f'split {batches.split}: got {batches.unlabelled:,} rows without a label{lines}, so it cannot be measured; {column}'
    'label or remove them, or let lmx predict label them'
  )


def _add(pairs: dict[str, np.ndarray], arrays: dict[str, list[np.ndarray]], metrics: Mapping[str, Any] | None) -> None:
  """Add the (sum, weight) pairs of a batch to `pairs`, and append its arrays to `arrays`."""
  for name, value in (jax.device_get(metrics) or {}).items():
    if isinstance(value, tuple):
      pairs[name] = pairs.get(name, np.zeros(2)) + np.asarray(value, np.float64)
    else:
      arrays.setdefault(name, []).append(np.asarray(value, np.float64))


def compute_loss(run: Run, totals: Totals) -> float:
  """Return the training loss over the whole split: the sum of the means of its terms."""
  terms = objectives.get(run.objective_name).terms(run.objective)
  return sum(objectives.mean(totals[term]) for term in terms)


def metric_captions(run: Run, manifest: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, str]:
  """Return captions for metrics whose names are unclear, '' for hidden ones; a class is shown by its label."""
  objective, labels = objectives.get(run.objective_name), manifest.get('label_names', ())
  texts = metric.class_captions(objective.METRICS, labels)
  texts |= {'f1': f'f1 of {positive}'} if (positive := _positive(run, manifest, metrics)) else {}
  return texts | objective.captions(run.objective, metrics, labels)


def _positive(run: Run, manifest: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
  """Return the label of the class whose F1 is among the metrics, '' if there is none."""
  objective = objectives.get(run.objective_name)
  return objective.positive(run.objective, manifest.get('label_names', ())) if 'f1' in metrics else ''


def check_finite(run: Run, totals: Totals, params: Params, where: str) -> None:
  """Check the loss of a whole split.

  Args:
    run: the run.
    totals: result of `measure`.
    params: the evaluated parameters.
    where: name of the evaluation for messages, such as 'split test'.

  Raises:
    NonFiniteLoss: a term of the loss is NaN or infinite; names the parameters that are not finite.
  """
  if not all(math.isfinite(totals[term][0]) for term in objectives.get(run.objective_name).terms(run.objective)):
    raise state.nonfinite_error(f'the loss of {where} is', params)


def report(run: Run, counts: Mapping[str, int], totals: Totals) -> dict[str, Any]:
  """Return the metrics of `results.json` from totals, as the objective names them.

  Of windows that are drawn at random, the words and characters are not counted.

  Raises:
    ValueError: the objective does not declare one of them in METRICS.
  """
  objective = objectives.get(run.objective_name)
  metrics = dict(objective.report(run.objective, totals, {} if _drawn(run) else counts))
  metrics |= {'macro_f1': by_class.macro_f1(classes)} if (classes := _classes(run, totals)) else {}
  if undeclared := [name for name in metrics if metric.find(objective.METRICS, name) is None]:
    raise ValueError(f'METRICS: got none for {", ".join(undeclared)}; declare them in objective "{run.objective_name}"')
  return metrics


def _drawn(run: Run) -> int:
  """Return the number of windows that an evaluation draws at random; 0 reads the whole split."""
  return getattr(run.data.batching, 'drawn', 0)


def _classes(run: Run, totals: Totals, labels: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
  """Return precision, recall and F1 of each class if the objective counts classes; without labels by number."""
  counts = objectives.get(run.objective_name).by_class(run.objective, totals, labels)
  return by_class.table(counts) if counts else {}


def score_name(run: Run, params: Params, batches: Any, counts: Mapping[str, int], predicted: Sequence[str] = ()) -> str:
  """Return the metric of the validations that `train.best_by` names.

  Args:
    run: the run.
    params: shapes of its parameters.
    batches: batches of the validation split.
    counts: its counts of words and characters.
    predicted: further metrics of the validations, from predictions of the whole split.

  Raises:
    InputError: the validations have no such metric, or it is not known whether it is better higher or lower.
  """
  if run.train.best_by == 'loss':
    return 'loss'
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  begin = jax.eval_shape(lambda: model.init_state(run.measured, batches.batch_size))
  one_step = step.make_eval_step(model, run.measured, objective, run.objective)
  metrics, _ = jax.eval_shape(one_step, params, begin, batches(0))
  totals = {key: (1.0, 1.0) if isinstance(value, tuple) else np.ones(value.shape) for key, value in metrics.items()}
  with warnings.catch_warnings(action='ignore', category=InputWarning):  # of scores that are equal, as they are here
    scores = report(run, counts, totals)
  name = objective.headline(run.objective, scores) if run.train.best_by == 'headline' else run.train.best_by
  declared = {key: metric.find(objective.METRICS, key) for key in (*scores, *predicted)}
  names = [key for key, one in declared.items() if one is not None and one.higher_is_better is not None]
  if name not in names:
    raise InputError(f'train.best_by: got "{run.train.best_by}"; expected headline or {", ".join(names)}')
  return name


def text_counts(corpus: Any, split: str, cfg: pipeline.Config | None = None) -> dict[str, int]:
  """Return the counts of a split for `language.report`; without words if it is written without spaces between them.

  Args:
    corpus: the data.
    split: name of the split.
    cfg: the `data` section, to count the unknown words; None does not count them.
  """
  data = corpus.split(split)
  counts = dict(data.counts)
  if cfg is not None and (unknown := pipeline.unknown_words(cfg, corpus, split)):
    counts |= dict(zip(('unknown_words', 'unknown_bytes'), unknown, strict=True))
  if not counts.get('words') or not hasattr(corpus.tokenizer, 'decode'):
    return counts
  long_words = counts.get('characters', 0) > _LONGEST_WORD * counts['words']
  if long_words or writing_systems.is_unspaced(_sample_texts(corpus.tokenizer, data)):
    counts.pop('words')
  return counts


def words_counted(corpus: Any, scores: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Any]:
  """Return the denominator of the perplexity per word with the rule that counted it, {} without such a metric."""
  known = 'perplexity_per_word' in scores and 'word_rule' in corpus.manifest
  return {'words_counted': counts['words'], 'word_rule': corpus.manifest['word_rule']} if known else {}


def _sample_texts(tokenizer: Any, data: Any) -> list[str]:
  """Return the text of the first tokens of a split; of pairs in two vocabularies, of each document."""
  tokens = np.asarray(data.tokens[:_SAMPLE])
  if not tokenizer.is_separate:
    return [tokenizer.decode(tokens.tolist())]
  ends = np.asarray(data.offsets[1 : len(tokens)])
  parts = np.split(tokens, ends[ends < len(tokens)])
  return [(tokenizer.target if i % 2 else tokenizer).decode(part.tolist()) for i, part in enumerate(parts)]


def final_data(run: Run) -> pipeline.Config:
  """Return the data section of the final evaluation: with the `evaluation.batch_size`, `stride` and `images` given."""
  evaluation = run.evaluation
  given = {'stride': evaluation.stride, 'evaluation': evaluation.images}
  batching = dataclasses.replace(run.data.batching, **{name: value for name, value in given.items() if value})
  rows = evaluation.batch_size or run.data.eval_batch_size
  return dataclasses.replace(run.data, eval_batch_size=rows, batching=batching)


def final_batches(run: Run, corpus: Any, split: str) -> pipeline.Batches:
  """Return the batches of the final evaluation; runs of other seeds draw other windows (`data.batching.drawn`)."""
  seed = run.seed if _drawn(run) else pipeline.EVAL_SEED
  return pipeline.batches(final_data(run), corpus, split, seed, train=False)


def compute_results(
  run: Run, corpus: Any, split: str, totals: Totals, scores: dict[str, Any] | None = None
) -> dict[str, Any]:
  """Return the metrics of a split, the number and unit of scored tokens, and the protocol."""
  batches = final_batches(run, corpus, split)
  objective = objectives.get(run.objective_name)
  first = objective.terms(run.objective)[0]
  counts = text_counts(corpus, split, run.data if objective.score is not None else None)
  scores = report(run, counts, totals) if scores is None else scores
  headline, labels = objective.headline(run.objective, scores), corpus.manifest.get('label_names', ())
  if classes := _classes(run, totals, labels):
    scores |= {'classes': classes}
  positive = _positive(run, corpus.manifest, scores)
  for note in objective.undefined(run.objective, totals, labels, split):
    warnings.warn(note, InputWarning, stacklevel=2)
  return {
    'name': run.name,
    'model': registry.label(run.model_name, run.variant, run.model),
    'dataset': run.data.dataset,
    'split': split,
    'metric': headline,
    **scores,
    **({'positive': positive} if positive else {}),
    'tokens_counted': int(totals[first][1]),
    'unit': objective.UNIT,
    **words_counted(corpus, scores, counts),
    'protocol': describe_protocol(run, batches) + _unspaced_note(run, counts, corpus.split(split).counts),
    **_unknown_charged(run, counts),
    'data_hash': corpus.hash,
    'matmul_precision': run.matmul_precision,
  }


def _unspaced_note(run: Run, counts: Mapping[str, int], all_counts: Mapping[str, int]) -> str:
  is_language_model = objectives.get(run.objective_name).score is not None
  left_out = is_language_model and 'words' in all_counts and 'words' not in counts
  return '; no perplexity per word, because the text has no spaces between words' * left_out


def _unknown_charged(run: Run, counts: Mapping[str, int]) -> dict[str, bool]:
  """Return whether metrics charge the spelling of unknown words, {} if there are none."""
  if objectives.get(run.objective_name).score is None or counts.get('unknown_words') == 0:
    return {}
  return {'unknown_charged': 'unknown_words' in counts and not _drawn(run)}


@dataclasses.dataclass(frozen=True)
class _PositionTokenizer:
  """Stand-in for the tokenizer of a split whose token ids are replaced by their positions in the split."""

  vocab_size: int
  eos_id: int = 0
  kind: str = 'positions'


def check_scored(run: Run) -> None:
  """Raise InputError unless the objective is a left-to-right language model's."""
  if objectives.get(run.objective_name).score is None:
    raise InputError(f'the objective "{run.objective_name}" does not predict each token of a text from those before it')


@functools.lru_cache(maxsize=2)
def _compiled_losses(model_name: str, model_cfg: Any, objective_name: str, objective_cfg: Any) -> Any:
  """Return a compiled function (params, batch, state) -> (negative log-likelihood of each target (B, T), state)."""
  model, score = registry.get(model_name), objectives.get(objective_name).score
  assert score is not None  # `check_scored` has rejected others

  @jax.jit
  def losses_of(params: Params, batch: Batch, state: State) -> tuple[Array, State]:
    nll_BT, _, state = score(objective_cfg, model, model_cfg, params, batch, state)
    return nll_BT, state

  return losses_of


@precision.run_scope
def token_nll(run: Run, corpus: Any, params: Params, split: str) -> np.ndarray:
  """Return the negative log-likelihood of every token of a split, in order and under the run's own protocol.

  A second set of batches holds the positions of the tokens in place of their ids. It maps each loss to its token, for
  any batching.

  Args:
    run: the run; its objective must export `scored`, as causal_lm does.
    corpus: its data.
    params: {'model': ..., 'objective': ...}.
    split: name of the split.

  Returns:
    (tokens,) float64 in nats; NaN for tokens that are never predicted, such as the first of a stream.

  Raises:
    InputError: the objective is no left-to-right language model's, there is no such split, or windows are drawn.
  """
  check_scored(run)
  if _drawn(run):
    raise InputError(
      f'data.batching.drawn: got {_drawn(run)}; expected 0, because every token of the split is needed; leave out the '
      'baselines (--no-baselines, evaluation.baselines=false)'
    )
  losses_of = _compiled_losses(run.model_name, run.measured, run.objective_name, run.objective)
  batches = final_batches(run, corpus, split)
  data = corpus.splits[split]
  positions = dataclasses.replace(data, tokens=np.arange(len(data.tokens)))
  numbered = dataclasses.replace(corpus, splits={split: positions}, tokenizer=_PositionTokenizer(len(data.tokens)))
  where = final_batches(run, numbered, split)

  losses = np.full(len(data.tokens), np.nan)
  state = registry.get(run.model_name).init_state(run.measured, batches.batch_size)
  for i in waiting.bar(range(batches.steps), f'{split} by token', batches.steps):
    batch, position = batches(i), where(i)
    nll_BT, state = losses_of(params, batch, state)
    counts_BT = batch['weights_BT'] > 0
    losses[position['targets_BT'][counts_BT]] = np.asarray(nll_BT)[counts_BT]
  return losses


def describe_protocol(run: Run, batches: Any) -> str:
  """Return a description of the protocol; metrics are comparable if their protocols are equal."""
  words = [f'{run.data.batching.name}, batch {batches.batch_size}, length {batches.length}', *batches.protocol]
  changed = run.evaluation.model
  words += [f'measured with {", ".join(f"{name} {value}" for name, value in changed.items())}'] if changed else []
  return '; '.join(words + objectives.get(run.objective_name).protocol(run.objective, final_data(run), batches))
