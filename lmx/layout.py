"""Layout of the parameters that a run stores: layers one by one or stacked, vocabulary with or without padding.

A model initialises `layer_00`, `layer_01`, ... and tables of V rows, which readers, importers and exporters see. A run
may store equal layers as one tree `layers_00_11` of arrays with a leading axis: a scan reads them without copying, and
they are compiled, sharded and saved as few arrays. It may store tables padded with rows of zeros, to a number that the
devices divide.

`Layout.store` and `Layout.view` convert any tree that contains parameters, such as a whole training state, because an
optimizer's moments have the names of their parameters. So the same seed gives the same parameters in every layout.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_LAYER, _STACK = re.compile(r'layer_(\d{2,})'), re.compile(r'layers_(\d{2,})_(\d{2,})')


def layer_name(i: int) -> str:
  """Return the parameter name of layer i."""
  return f'layer_{i:02d}'


def stack_name(first: int, last: int) -> str:
  """Return the name of layers `first` to `last`, stored or computed as one."""
  return f'layers_{first:02d}_{last:02d}'


def depth(path: tuple[str, ...], n_layers: int) -> int:
  """Return the layer number of a parameter: 0 in 'embed' and 'bias', i + 1 in layer i, N + 1 anywhere else."""
  if path[0] in ('embed', 'bias'):
    return 0
  match = _LAYER.fullmatch(path[0])
  return int(match[1]) + 1 if match else n_layers + 1


def stack_range(name: str) -> range:
  """Return the layers that the tree of this name stores; none if it is not a stack."""
  match = _STACK.fullmatch(name)
  return range(int(match[1]), int(match[2]) + 1) if match else range(0)


class Separate(list[Any]):
  """Sequence of the parameters of layers that are stored one by one, from layer `first`."""

  def __init__(self, params: Mapping[str, Any], indices: Sequence[int]):
    super().__init__(params[layer_name(i)] for i in indices)
    self.first = indices[0] if indices else 0


@dataclasses.dataclass(frozen=True)
class Stacked(Sequence[Any]):
  """Sequence of the parameters of layers that are stored as one tree of arrays with a leading axis.

  Attributes:
    tree: the tree.
    first: number of the first layer.
  """

  tree: Any
  first: int = 0

  def __len__(self) -> int:
    return len(jax.tree.leaves(self.tree)[0])

  def __getitem__(self, i: Any) -> Any:
    part = jax.tree.map(lambda x: x[i], self.tree)
    return Stacked(part, self.first + range(len(self))[i][0]) if isinstance(i, slice) else part


def layers(params: Mapping[str, Any], indices: Sequence[int]) -> Sequence[Any]:
  """Return the parameters of consecutive layers of a model, stored one by one or stacked."""
  if not indices or layer_name(indices[0]) in params:
    return Separate(params, indices)
  name, stored = next((name, stack_range(name)) for name in params if indices[0] in stack_range(name))
  whole, start = Stacked(params[name], stored[0]), indices[0] - stored[0]
  return whole if len(indices) == len(stored) else whole[start : start + len(indices)]


def run(function: Callable[..., Any], params: Mapping[str, Any], i: int, *inputs: Any, **named: Any) -> Any:
  """Return function(parameters of layer i, *inputs, **named), whose operations have the layer's name in a profile."""
  return jax.named_scope(layer_name(i))(function)(params[layer_name(i)], *inputs, **named)


def scope(layers: Sequence[Any], i: int | None = None) -> Any:
  """Return the `jax.named_scope` of the i-th of some layers, from `layers`; of all of them if i is None."""
  first = getattr(layers, 'first', 0)
  return jax.named_scope(stack_name(first, first + len(layers) - 1) if i is None else layer_name(first + i))


def resize(x: Any, rows: int) -> Any:
  """Truncate or zero-pad an array to `rows` rows."""
  return jnp.pad(x[:rows], ((0, max(rows - x.shape[0], 0)), *((0, 0),) * (x.ndim - 1)))


def broadcast(factor: Any, x: Any) -> Any:
  """Return a factor of `Layout.factors` that multiplies the array x: a number, or one for each of its layers."""
  return factor if np.ndim(factor) == 0 else jnp.reshape(factor, (-1,) + (1,) * (x.ndim - 1))


@dataclasses.dataclass(frozen=True)
class Layout:
  """Layout of the parameters; the default is that of the models' `init`.

  Attributes:
    vocabulary: names below 'model' of the arrays with a row for each token.
    size: number of tokens, V.
    rows: number of rows that these arrays are stored with, at least `size`.
    stacked: store consecutive layers of equal shapes as one tree.
  """

  vocabulary: tuple[str, ...] = ()
  size: int = 0
  rows: int = 0
  stacked: bool = False

  @property
  def is_own(self) -> bool:
    """True if this is the layout of the models' `init`."""
    return self.rows == self.size and not self.stacked

  def store(self, tree: Any) -> Any:
    """Return a tree of arrays in this layout, from the layout of the models' `init`."""
    return _map_params(lambda model: self._stack(self._resize(model, self.rows), _stack_leaves), tree)

  def view(self, tree: Any) -> Any:
    """Return a tree of arrays in the layout of the models' `init`, from this layout."""
    return _map_params(lambda model: self._resize(_unstack(model), self.size), tree)

  def converter(self, other: Layout) -> Callable[[Any], Any]:
    """Return the function from a tree in this layout to one in another."""
    return lambda tree: tree if self == other else other.store(self.view(tree))

  def factors(self, tree: Any) -> Any:
    """Return a factor for each stored array, from the factors of `init`'s arrays; an array (N,) where layers differ."""
    return _map_params(lambda model: self._stack(model, _stack_numbers), tree)

  def detect(self, shapes: Mapping[str, tuple[int, ...]]) -> Layout:
    """Return the layout of stored arrays, by their names ('.../model/layer_00/...') and shapes."""
    stacked = any(stack_range(part) for name in shapes for part in name.split('/'))
    sizes = {shape[0] for name, shape in shapes.items() for leaf in self.vocabulary if name.endswith(f'model/{leaf}')}
    return dataclasses.replace(self, stacked=stacked, rows=max(sizes, default=self.size))

  def _resize(self, model: dict[str, Any], rows: int) -> dict[str, Any]:
    """Return the model's parameters with `rows` rows in each array of the vocabulary."""
    if self.rows == self.size:
      return model

    def resize_leaf(path: Any, x: Any) -> Any:
      if '/'.join(str(part.key) for part in path) not in self.vocabulary:
        return x
      return resize(x, rows)

    return jax.tree_util.tree_map_with_path(resize_leaf, model)

  def _stack(self, model: dict[str, Any], join: Callable[..., Any]) -> dict[str, Any]:
    """Return the model's parameters with each run of equal layers replaced by one tree, by `join` of their leaves."""
    if not self.stacked:
      return model
    result = {name: x for name, x in model.items() if not _LAYER.fullmatch(name)}
    layers = [model[layer_name(i)] for i in range(len(model) - len(result))]
    start = 0
    for i, layer in enumerate(layers):
      if i + 1 == len(layers) or _shapes(layers[i + 1]) != _shapes(layer):
        result[stack_name(start, i)] = jax.tree.map(join, *layers[start : i + 1])
        start = i + 1
    return result


def _map_params(function: Callable[[dict[str, Any]], Any], tree: Any) -> Any:
  """Apply a function to the model's parameters, wherever they are in a tree."""
  is_params = lambda node: isinstance(node, dict) and 'model' in node and isinstance(node['model'], dict)
  replace = lambda node: {**node, 'model': function(node['model'])} if is_params(node) else node
  return jax.tree.map(replace, tree, is_leaf=is_params)


def _shapes(tree: Any) -> Any:
  return jax.tree.structure(tree), [np.shape(x) for x in jax.tree.leaves(tree)]


def _stack_leaves(*leaves: Any) -> Any:
  return jnp.stack(leaves)


def _stack_numbers(*numbers: Any) -> Any:
  return numbers[0] if len(set(numbers)) == 1 else np.asarray(numbers, np.float32)


def _unstack(model: dict[str, Any]) -> dict[str, Any]:
  result: dict[str, Any] = {}
  for name, tree in model.items():
    layers = stack_range(name)
    for i, layer in enumerate(layers):
      result[layer_name(layer)] = jax.tree.map(lambda x, i=i: x[i], tree)
    if not layers:
      result[name] = tree
  return result
