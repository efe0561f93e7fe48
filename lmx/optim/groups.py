"""Groups of parameters by name: factors of the rate and of the weight decay, and layer-wise decay of the rate.

A parameter's name is its path in the nested dict joined with '/', for example 'model/layer_03/mlp/in/kernel'.
Layer-wise decay multiplies the rate by a power of `layer_decay`, by depth of N layers:

  form         embeddings   layer n                heads   of
  by_depth     top          top - n                0       rates: discriminative rates (Howard and Ruder 2018, arXiv
                                                           1801.06146, section 3.2: a factor of 1 / 2.6 per layer)
  as_paper     N            N - n                  0       rates (XLNet: Yang et al. 2019, arXiv 1906.08237, table 8)
  as_released  0            N - n                  0       gradients, after clipping (zihangdai/xlnet, model_utils.py);
                                                           Adam's normalisation cancels it

`top` is the highest depth with a matrix: N + 1 under a head, and N if the output matrix is the embedding, whose bias is
not a separate layer. The last layer then has the full rate. `by_depth_of_biases` has N + 1 instead of `top`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax

from lmx.errors import InputError
from lmx.optim import Group
from lmx.types import Params

Depth = Callable[[tuple[str, ...]], int]  # path below params['model'] -> 0 embeddings, ..., N + 1 heads


def path_of(path: Sequence[Any]) -> tuple[str, ...]:
  """Return the key path of a leaf, from `jax.tree_util`, as plain strings."""
  return tuple(str(getattr(k, 'key', getattr(k, 'name', getattr(k, 'idx', k)))) for k in path)


def name_of(path: Sequence[Any]) -> str:
  """Return the name of a leaf: its path joined with '/'."""
  return '/'.join(path_of(path))


def assign(groups: Sequence[Group], params: Params) -> dict[str, Group]:
  """Map each parameter's name to the first group whose expression matches in it (`re.search`).

  Raises:
    InputError: a parameter that no group matches, or a group without parameters.
  """
  names = [name_of(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
  assigned = {name: next((g for g in groups if re.search(g[0], name)), None) for name in names}
  missed = [name for name, group in assigned.items() if group is None]
  if missed:
    regexes = ', '.join(f'"{g[0]}"' for g in groups)
    raise InputError(
      f'optim.groups: got {regexes}; expected a match for every parameter, but these have none: {", ".join(missed)}'
    )
  for group in groups:
    if group not in assigned.values():
      raise InputError(
        f'optim.groups: "{group[0]}" is not the first match of any parameter; the parameters are: ' + ', '.join(names)
      )
  return {name: group for name, group in assigned.items() if group is not None}


def top(form: str, params: Params, depth: Depth, n_layers: int) -> int:
  """Return the depth that `by_depth` and gradual unfreezing count down from; see `exponents` for the arguments."""
  if form != 'by_depth':
    return n_layers + 1
  leaves = jax.tree_util.tree_leaves_with_path(params)
  levels = [level_of(path, depth, n_layers) for path, leaf in leaves if leaf.ndim > 1]
  return max(levels, default=n_layers + 1)


def level_of(path: Sequence[Any], depth: Depth, n_layers: int) -> int:
  """Return the depth of a leaf; an objective's head is at n_layers + 1."""
  parts = path_of(path)
  return depth(parts[1:]) if parts[0] == 'model' else n_layers + 1


def exponents(form: str, params: Params, depth: Depth, n_layers: int) -> Params:
  """Return the power of `layer_decay` for each parameter, a tree of integers shaped like `params`.

  Args:
    form: one of FORMS, see the module's docstring.
    params: {'model': ..., 'objective': ...}, arrays or shapes; an objective's head counts as depth n_layers + 1.
    depth: the model's depth function with its config bound.
    n_layers: number of layers N.
  """

  highest = top(form, params, depth, n_layers)

  def power(path: Any, _: Any) -> Any:
    level = level_of(path, depth, n_layers)
    if form.startswith('by_depth'):
      return max(highest - level, 0)
    return 0 if form == 'as_released' and not level else max(n_layers - level, 0)

  return jax.tree_util.tree_map_with_path(power, params)


def names(indices: Params, count: int) -> list[str]:
  """Return the name of each group, from a tree of its index for each parameter: the parts of the model that it has.

  Of more than three parts, and where another group has the same, it is 'group_' and the index.
  """
  parts: list[dict[str, None]] = [{} for _ in range(count)]
  for path, i in jax.tree_util.tree_leaves_with_path(indices):
    first, *rest = path_of(path)
    parts[i][rest[0] if first == 'model' else first] = None
  found = ['_and_'.join(part) for part in parts]
  distinct = [len(part) <= 3 and found.count(name) == 1 for name, part in zip(found, parts, strict=True)]
  return [name if clear else f'group_{i}' for i, (name, clear) in enumerate(zip(found, distinct, strict=True))]


def multipliers(groups: Sequence[Group], layer_decay: float, powers: Params, params: Params) -> tuple[Params, Params]:
  """Return two trees of floats shaped like `params`: factors of the rate and of the weight decay.

  Args:
    groups: see `assign`.
    layer_decay: factor of the rate per layer; 1 disables it.
    powers: powers of `layer_decay`, see `exponents`.
    params: {'model': ..., 'objective': ...}; only names are used.
  """
  assigned = assign(groups, params)
  rate = lambda path, _, power: assigned[name_of(path)][1] * layer_decay**power
  rates = jax.tree_util.tree_map_with_path(rate, params, powers)
  decays = jax.tree_util.tree_map_with_path(lambda path, _: assigned[name_of(path)][2], params)
  return rates, decays
