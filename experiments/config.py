"""Shared parts of experiment files: the argument of `file.py:arg`, merged settings, grids and the tiny variant.

An experiment lists only what differs from the defaults of `lmx/config/`. Imports no JAX.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_collections

# Weight decay on matrices and embeddings, not on biases, gains and LayerNorm. Each is (regular expression, learning
# rate factor, decay factor); the first expression that matches a parameter's name applies.
DECAY_MATRICES_ONLY = ((r'/(bias|scale)$', 1.0, 0.0), ('.*', 1.0, 1.0))
_OWN = {  # variants for a user's table -> its rows, and experiments with that variant
  'own': ('texts with labels', 'bcn/tasks.py', 'bert/tasks.py'),
  'own_pairs': ('labels of two texts', 'esim/pairs.py', 'bert/tasks.py'),
  'own_scores': ('texts with numeric scores', 'bcn/tasks.py', 'bert/tasks.py'),
}


def parse_arg(arg: str, variants: Sequence[str], **options: Any) -> tuple[str, ml_collections.ConfigDict]:
  """Split 'variant,key=value,flag' into a variant and options.

  Args:
    arg: text after the colon of `--config=file.py:arg`; empty for the defaults.
    variants: allowed names, the default first.
    **options: each option with its default, to whose type the value is converted; a bare name means True. A tuple lists
      the allowed values, the default first.

  Returns:
    (variant, options).

  Raises:
    ValueError: unknown variant or option, or a value of another type than the default's.
  """
  variant, given = _split(arg, variants, options)
  return variant, ml_collections.ConfigDict({**defaults(options), **given})


def arguments(variants: Sequence[str], **options: Any) -> Callable[[Callable], Callable]:
  """Decorate a function of (variant, options), such as `get_config`, as one of the text that `parse_arg` splits.

  An option that is given must count: some other value of it changes the settings, their name apart.

  Args:
    variants: as in `parse_arg`.
    **options: as in `parse_arg`.

  Raises:
    ValueError: as `parse_arg`, or an option that changes nothing of the variant, with those that it changes.
  """

  def decorate(build: Callable[[str, ml_collections.ConfigDict], Any]) -> Callable[[str], Any]:
    def get(arg: str = '') -> Any:
      variant, given = _split(arg, variants, options)
      values = {**defaults(options), **given}
      counts = functools.partial(_counts, build, options)
      built = build(variant, ml_collections.ConfigDict(values))
      for name, value in given.items():
        if not counts(variant, values, name):
          raise ValueError(
            f'option "{name}": got {_text(value)} with {variant}, where it changes nothing; '
            f'expected {_where(counts, variants, options, variant, values, name)}'
          )
      return built

    return get

  return decorate


def _split(arg: str, variants: Sequence[str], options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
  """Return the variant and the options that `arg` names."""
  variant, given = variants[0], {}
  for i, part in enumerate(p.strip() for p in arg.split(',') if p.strip()):
    name, equals, text = part.partition('=')
    if i == 0 and not equals and name not in options:
      if name in _OWN and name not in variants:
        rows, *files = _OWN[name]
        others = ' or '.join(f'experiments/{file}:{name}' for file in files)
        raise ValueError(f'variant: got "{name}", {rows}, which this experiment does not have; expected {others}')
      variant = _check_name(name, variants, 'variant')
    else:
      _check_name(name, options, 'option')
      given[name] = _value(name, text if equals else 'true', options[name])
  return variant, given


def defaults(options: Mapping[str, Any]) -> dict[str, Any]:
  """Return the default of each option, the first of a list."""
  return {name: default[0] if isinstance(default, tuple) else default for name, default in options.items()}


def _others(default: Any, value: Any) -> list[Any]:
  """Return test values of an option: all of a list, or its default and another number or text."""
  if isinstance(default, tuple):
    return [x for x in default if x != value]
  if isinstance(default, bool):
    return [not value]
  other = f'{value}x' if isinstance(default, str) else 2 * value + 1
  return [x for x in (default, other) if x != value]


def _counts(build: Callable, options: Mapping[str, Any], variant: str, values: Mapping[str, Any], name: str) -> bool:
  """Return whether an option changes the config, or all its other values are refused."""

  def built(value: Any) -> Any:
    settings = build(variant, ml_collections.ConfigDict({**values, name: value}))
    return settings if isinstance(settings, list) else {k: v for k, v in settings.items() if k != 'name'}

  refused = True
  try:
    now = built(values[name])
    for other in _others(options[name], values[name]):
      with contextlib.suppress(ValueError):
        if built(other) != now:
          return True
        refused = False
  except ValueError:  # of another variant or option, which `_where` tries
    return False
  return refused


def _where(
  counts: Callable[..., bool],
  variants: Sequence[str],
  options: Mapping[str, Any],
  variant: str,
  values: Mapping[str, Any],
  name: str,
) -> str:
  """Return where an ineffective option would apply: other variants, else another value of one other option."""
  places = [other for other in variants if counts(other, values, name)] or [
    f'{other}={_text(value)}'
    for other, default in options.items()
    if other != name
    for value in _others(default, values[other])
    if value != '' and counts(variant, {**values, other: value}, name)
  ]
  return f'it with {" or ".join(places)}, or left out' if places else 'it left out'


def _text(value: Any) -> str:
  return str(value).lower() if isinstance(value, bool) else str(value)


def _check_name(name: str, names: Sequence[str] | Mapping[str, Any], what: str) -> str:
  if name in names:
    return name
  close = difflib.get_close_matches(name, list(names), n=1)
  hint = f'; did you mean "{close[0]}"?' if close else '; known: ' + ', '.join(names)
  raise ValueError(f'this experiment has no {what} "{name}"{hint}')


def _value(name: str, text: str, default: Any) -> Any:
  if isinstance(default, tuple):
    return _check_name(text, default, f'{name} called')
  kind = type(default)
  try:
    if kind is bool:
      return {'true': True, 'false': False, '1': True, '0': False}[text.lower()]
    return kind(text)
  except (KeyError, ValueError):
    raise ValueError(f'option "{name}": got "{text}"; expected the type {kind.__name__}') from None


def merge(*parts: Mapping[str, Any]) -> ml_collections.ConfigDict:
  """Merge nested settings into one ConfigDict; later ones win."""
  merged: dict[str, Any] = {}
  for part in parts:
    _merge(merged, part)
  return ml_collections.ConfigDict(merged)


def _merge(target: dict[str, Any], part: Mapping[str, Any]) -> None:
  for key, value in part.items():
    if isinstance(value, Mapping):
      _merge(target.setdefault(key, {}), value)
    else:
      target[key] = value


def grid(**values: Sequence[Any]) -> Iterator[dict[str, Any]]:
  """Yield every combination of `section__key=[...]`, as overrides {'section.key': value}."""
  keys = [k.replace('__', '.') for k in values]
  for point in itertools.product(*values.values()):
    yield dict(zip(keys, point, strict=True))


def tiny(**model: Any) -> dict[str, Any]:
  """Return changes that let any experiment run on a laptop in seconds: tiny model, embedded corpus, small batches.

  Args:
    **model: model fields that replace the experiment's.
  """
  return {
    'model': {'variant': 'tiny', **model},
    'data': {'dataset': 'embedded', 'batch_size': 4, 'length': 32, 'eval_batch_size': 32, 'eval_length': 0},
    'train': {'steps': 20, 'eval_every': 10, 'log_every': 5},
    'optim': {'accumulate': 1, 'warmup_steps': 5},
    'evaluation': {'baselines': False},
    'samples': {'count': 1, 'tokens': 20},
  }


def pod(*, fsdp: int = 1, pad_vocabulary: int = 128, model: Mapping[str, Any], **data: Any) -> dict[str, Any]:
  """Return changes for a TPU slice: bfloat16, a padded vocabulary, no gradient accumulation.

  Args:
    fsdp: `parallel.fsdp`; -1 shards parameters and optimizer over all chips, 1 only the optimizer.
    pad_vocabulary: `parallel.pad_vocabulary`; 1 for a model whose tables cannot be padded.
    model: fields of the model: `remat`, and `scan`, which compiles faster but costs time and memory per step.
    **data: fields of the data, such as a `batch_size` that the chips divide.
  """
  return {
    'model': {**model, 'dtype': 'bfloat16'},
    'data': data,
    'optim': {'accumulate': 1},
    'parallel': {'fsdp': fsdp, 'pad_vocabulary': pad_vocabulary},
  }
