"""Effective context length of trained models: losses given a fixed number c of preceding tokens, and the gains of a
group of models from longer contexts (lmx/metrics/context_length.py).

A token is predicted from a window of exactly the c tokens before it, at whose start the model's state is empty. (A
memory that is empty there and holds c positions would give the same losses, segment by segment.) With a stride S
above 1 a window predicts its last S tokens, which see c to c + S - 1 tokens, and costs about S times less.

Every model and every c is evaluated on the same tokens, spread evenly over the split in blocks of S. None is nearer to
the split's beginning than the longest context.

Axes: I blocks of tokens, S tokens of a block.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from lmx.decoding import generate
from lmx.engine import precision
from lmx.errors import InputError, check_range
from lmx.metrics import context_length, language
from lmx.models import registry
from lmx.reporting import waiting
from lmx.runs import restore
from lmx.types import Array, Model, Params


def last_nll(model: Any, cfg: Any, params: Params, tokens_BT: Array, targets_BS: Array) -> Array:
  """Return the negative log-likelihood of the targets of a row's last S positions, from an empty state: (B, S) nats."""
  state = model.init_state(cfg, tokens_BT.shape[0])
  features, _ = model.apply(cfg, params['model'], {'tokens_BT': tokens_BT}, state)
  last = features._replace(last_BTD=features.last_BTD[:, -targets_BS.shape[1] :])
  return model.nll(cfg, params['model'], last, targets_BS)


def parse_lengths(option: str, text: str) -> list[int]:
  """Parse FIRST:LAST:STEP. Raises InputError naming the option."""
  parts = text.split(':')
  if len(parts) != 3 or not all(part.isdecimal() and len(part) < 8 for part in parts):
    raise InputError(f'{option}: got "{text}"; expected FIRST:LAST:STEP, such as 100:1000:100')
  first, last, step = map(int, parts)
  if first < 1 or step < 1 or last < first + step:
    raise InputError(f'{option}: got "{text}"; expected at least two lengths, from 1 on')
  return list(range(first, last + 1, step))


def alone(model: Model, cfg: Any) -> Any:
  """Return the Config with which a model sees nothing before a window; `cfg` itself if the model keeps no state."""
  return model.without_memory(cfg)


def block_starts(size: int, longest: int, count: int, stride: int) -> np.ndarray:
  """Return the starts of the blocks of predicted tokens.

  Args:
    size: tokens of the split.
    longest: least number of tokens before the first block.
    count: tokens to predict, rounded up to whole blocks; 0, or more than the split has, takes all.
    stride: tokens of a block.

  Raises:
    InputError: the split is too short for one block.
  """
  available = (size - longest) // stride
  if available < 1:
    raise InputError(
      f'the split has {size:,} tokens, too few for {stride:,} with {longest:,} before them; give shorter contexts'
    )
  count_blocks = min(-(-count // stride) or available, available)
  return longest + stride * (np.arange(count_blocks) * available // count_blocks)


def token_nll(
  model: Any,
  cfg: Any,
  params: Params,
  tokens: np.ndarray,
  first_I: np.ndarray,
  lengths: Sequence[int],
  *,
  stride: int = 1,
  window_tokens: int = 4096,
  title: str = '',
) -> np.ndarray:
  """Return the losses of tokens at each context length.

  Args:
    model: the model's module.
    cfg: its Config in the evaluation.
    params: {'model': ...}.
    tokens: tokens of the split.
    first_I: starts of the blocks of predicted tokens; see `blocks`.
    lengths: context lengths.
    stride: tokens of a block.
    window_tokens: tokens of a batch, rows times length; a batch has at least one row.
    title: title of the progress bar; '' for no bar.

  Returns:
    (lengths, tokens) float64 in nats.
  """
  nll = jax.jit(functools.partial(last_nll, model, alone(model, cfg)))
  read = [length + stride - 1 for length in lengths]
  losses = np.empty((len(read), len(first_I), stride))
  with waiting.Bar(len(first_I) * sum(read), title, ' tokens') as bar:
    for l, T in enumerate(read):
      rows = min(max(1, window_tokens // T), len(first_I))
      for i in range(0, len(first_I), rows):
        # The last batch repeats a row, so that each length has only one shape.
        indices = np.arange(i, i + rows).clip(max=len(first_I) - 1)
        window = tokens[first_I[indices, None] + stride + np.arange(-T - 1, 0)].astype(np.int32)
        losses[l, indices] = nll(params, window[:, :-1], window[:, T - stride + 1 :])
        bar.update(T * (indices[-1] - i + 1))
  return losses.reshape(len(read), -1)


def measure(
  workdirs: Sequence[Any],
  split: str,
  lengths: Sequence[int],
  *,
  tokens: int,
  stride: int = 1,
  shares: Sequence[float] = context_length.SHARES,
  threshold: float = context_length.THRESHOLD,
  which: str | int = 'measured',
  overrides: Sequence[str] = (),
  window_tokens: int = 4096,
) -> dict[str, Any]:
  """Evaluate a group of trained models at each context length.

  Args:
    workdirs: work directories of the runs: left-to-right models with one tokenizer and data set.
    split: split to evaluate.
    lengths: context lengths, rising in equal steps.
    tokens: number of tokens to evaluate, spread over the split; 0 is all.
    stride: see the module's docstring.
    shares: shares of the hardest tokens on which RECL is computed.
    threshold: threshold of RECL.
    which: checkpoint, see `lmx.load`.
    overrides: `section.key=value` for every run.
    window_tokens: see `token_nll`.

  Returns:
    The content of context.json.

  Raises:
    InputError: a run is no such model, or has another tokenizer or other data than the first; a length is longer than
      a model can read; or there is no such split.
  """
  check_range('--stride', stride, 1)
  check_range('--window_tokens', window_tokens, 1)
  check_range('--tokens', tokens, 0)
  check_range('the shortest context', min(lengths, default=0), 1)
  group = [restore.load(workdir, which, overrides) for workdir in workdirs]
  names, corpus = _names(workdirs), _shared_corpus(group, max(lengths), stride)
  data = np.asarray(corpus.split(split).tokens)
  first_I = block_starts(len(data), max(lengths), tokens, stride)
  nll_GLT = np.stack(
    [
      precision.wrap(loaded.run.matmul_precision, token_nll)(
        loaded.model,
        loaded.run.measured,
        loaded.params,
        data,
        first_I,
        lengths,
        stride=stride,
        window_tokens=window_tokens,
        title=name,
      )
      for name, loaded in zip(names, group, strict=True)
    ]
  )
  models = compute_metrics(nll_GLT, lengths, shares, threshold, list(map(_description, names, group)))
  return {
    'dataset': group[0].run.data.dataset,
    'split': split,
    'data_hash': corpus.hash,
    'tokens_counted': nll_GLT.shape[2],
    'protocol': _protocol(stride),
    'lengths': list(lengths),
    'threshold': threshold,
    'models': models,
    'records': records(models, split=split, data_hash=corpus.hash),
  }


def _protocol(stride: int) -> str:
  sees = 'exactly c tokens' if stride == 1 else f'c to c + {stride - 1} tokens'
  return f'each token sees {sees} before it, the model beginning anew at the first'


def records(models: Sequence[dict[str, Any]], **common: str) -> list[dict[str, Any]]:
  """Return the metrics of each model and share as a list, for tables, each with the model's `index` and `common`."""
  return [
    {'index': index, 'share': share, **common, **metrics}
    for index, one in enumerate(models)
    for share, metrics in one['shares'].items()
  ]


def _shared_corpus(group: Sequence[restore.RestoredRun], longest: int, stride: int) -> Any:
  """Return the data of a group of runs. Raises InputError if theirs differ or one cannot read the `longest` context."""
  corpus: Any = None
  for loaded in group:
    own = loaded.corpus()
    corpus = corpus or own
    _check(loaded, own, group[0], corpus)
    limit = generate.window(loaded.run.measured)
    if limit is not None and limit < longest + stride - 1:
      raise InputError(
        f'{loaded.workdir} reads at most {limit:,} tokens; a context of {longest:,} with stride {stride:,} needs '
        f'{longest + stride - 1:,}'
      )
  return corpus


def _description(name: str, loaded: restore.RestoredRun) -> dict[str, Any]:
  """Return the description of a run in context.json."""
  return {
    'name': name,
    'workdir': str(loaded.workdir),
    'model': registry.label(loaded.run.model_name, loaded.run.variant, loaded.run.model),
    'step': loaded.step,
    'measured_with': dict(loaded.run.evaluation.model),
  }


def compute_metrics(
  nll_GLT: np.ndarray, lengths: Sequence[int], shares: Sequence[float], threshold: float, about: Sequence[dict]
) -> list[dict[str, Any]]:
  """Return for each model its `about`, its perplexity per token by context length, and RECL and gains by share."""
  records = [
    {**one, 'perplexity_per_token': [language.perplexity(nll_T.sum(), len(nll_T)) for nll_T in nll_LT], 'shares': {}}
    for one, nll_LT in zip(about, nll_GLT, strict=True)
  ]
  for share in shares:
    gains = context_length.gains(nll_GLT, share)
    recl = context_length.recl(nll_GLT, lengths, share, threshold)
    for one, (length, at_least), relative_L, perplexity_L in zip(records, recl, *gains, strict=True):
      one['shares'][f'{share:g}'] = {
        'recl': length,
        'at_least': at_least,
        'relative_gain': relative_L.tolist(),
        'perplexity_gain': perplexity_L.tolist(),
      }
  return records


def _names(workdirs: Sequence[Any]) -> list[str]:
  """Return the models' names: the last part of each path, or the whole path if two are equal."""
  short = [pathlib.PurePath(str(workdir)).name for workdir in workdirs]
  names = [str(workdir) if short.count(name) > 1 else name for name, workdir in zip(short, workdirs, strict=True)]
  if len(set(names)) < len(names):
    raise InputError(f'a run is named twice: {", ".join(names)}')
  return names


def _check(loaded: Any, own: Any, first: Any, corpus: Any) -> None:
  """Raise InputError unless a run is a left-to-right language model with the tokenizer and data of the first run."""
  if loaded.objective.score is None or not loaded.model.CAUSAL or loaded.model.READS != 'tokens':
    raise InputError(
      f'{loaded.workdir} is a {loaded.run.model_name} trained with {loaded.run.objective_name}: it does not predict '
      'each token of a text from those before it'
    )
  if own.tokenizer.hash != corpus.tokenizer.hash:
    raise InputError(f'{loaded.workdir} has another tokenizer than {first.workdir}, so their losses cannot be compared')
  if own.hash != corpus.hash:
    raise InputError(f'{loaded.workdir} was trained on other data than {first.workdir}; a group is of one data set')


def table(results: dict[str, Any]) -> str:
  """Return RECL and perplexities by context length as a table."""
  models = results['models']
  width = max(len(one['name']) for one in models)
  shares = list(models[0]['shares'])
  split = f'{results["dataset"]}/{results["split"]}'
  lines = [
    f'relative effective context length on {split} ({results["tokens_counted"]:,} tokens)',
    f'  {"":{width}}' + ''.join(f'{"r = " + share:>10}' for share in shares),
  ]
  for one in models:
    cells = [f'{">= " if x["at_least"] else ""}{x["recl"]:,}' for x in one['shares'].values()]
    lines.append(f'  {one["name"]:{width}}' + ''.join(f'{cell:>10}' for cell in cells))
  lines.append('perplexity per token by context length')
  lines.append(f'  {"":{width}}' + ''.join(f'{c:>9,}' for c in results['lengths']))
  for one in models:
    lines.append(f'  {one["name"]:{width}}' + ''.join(f'{x:9,.2f}' for x in one['perplexity_per_token']))
  return '\n'.join([*lines, f'  ({results["protocol"]})'])
