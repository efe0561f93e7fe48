"""A function whose layers are equal, as a few programs: one for all layers, and one for each stretch between them.

XLA compiles each layer of a stack again. `lmx.ops.layer_loop` traces equal layers once, as one inner function, which is
compiled once here and called for each layer. The programs compile at the same time, each in a thread, because XLA does
not hold Python's lock. The host calls them one after another, which costs a fraction of a millisecond per layer. So
they are for functions that are called a few hundred times, on one device.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax
from jax.extend import core

from lmx import host
from lmx.engine import devices

LEAST_LAYERS = 4  # equal layers, below which they are compiled together with what is around them
# XLA compiles these programs in three fifths of the time with these options, and they run as fast.
_FAST_COMPILATION: dict[str, str | bool] = {
  'xla_cpu_use_fusion_emitters': False,
  'xla_llvm_disable_expensive_passes': True,
  'xla_cpu_parallel_codegen_split_count': '4',  # modules of LLVM's, each with a fixed cost
}
_Value = Any  # core.Var or core.Literal


@dataclasses.dataclass(frozen=True)
class _Call:
  """Call of a program: its variables, and the program once it is compiled."""

  inputs: tuple[_Value, ...]
  outputs: tuple[Any, ...]
  program: futures.Future[Callable[..., Sequence[Any]]]


class _Step(NamedTuple):
  """Call of a program on a list of values, to which its results are appended."""

  inputs: tuple[int, ...]  # positions in the list
  program: futures.Future[Callable[..., Sequence[Any]]]


@dataclasses.dataclass(frozen=True)
class Programs:
  """A function as the calls of its programs, on a list of values: constants, arguments, and results in order.

  Attributes:
    constants: first values of the list.
    steps: calls in their order.
    results: positions of the function's results in the list.
    outputs: tree of the results' shapes and types.
  """

  constants: tuple[Any, ...]
  steps: Sequence[_Step]
  results: Sequence[int]
  outputs: Any

  def __call__(self, *args: Any) -> Any:
    """Compute the function of trees of arrays."""
    values = [*self.constants, *jax.tree.leaves(args)]
    for inputs, program in self.steps:
      values += program.result()(*[values[i] for i in inputs])
    return jax.tree.unflatten(jax.tree.structure(self.outputs), [values[i] for i in self.results])


def prepare(function: Callable[..., Any], setting: Hashable, *args: Any, donated: int | None = None) -> Programs:
  """Return function(setting, *args) as a function of `args`, whose programs are being compiled.

  Args:
    function: a function for `jax.jit`, with a first argument that is fixed.
    setting: that argument; the same function, setting, shapes and types give the same programs.
    args: trees of arrays, or of `jax.ShapeDtypeStruct`.
    donated: number of the argument whose arrays may be overwritten, or None.
  """
  leaves, tree = jax.tree.flatten(args)
  shapes = tuple((x.shape, x.dtype) for x in leaves)
  precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
  return _prepare(function, setting, tree, shapes, donated, precision)


@functools.lru_cache(maxsize=32)
def _prepare(function: Any, setting: Any, tree: Any, shapes: Any, donated: int | None, precision: Any) -> Programs:
  del precision  # of the context, which `trace` reads
  args = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*x) for x in shapes])
  traced = jax.jit(functools.partial(function, setting)).trace(*args)
  invars = iter(traced.jaxpr.jaxpr.invars)
  inputs = [[next(invars) for _ in jax.tree.leaves(arg)] for arg in args]
  free = [] if donated is None else inputs[donated]
  return _number(traced.jaxpr, *_split(traced.jaxpr.jaxpr, free), traced.out_info)


def _number(closed: Any, calls: Sequence[_Call], results: Sequence[_Value], outputs: Any) -> Programs:
  """Return the calls with positions in one list of values instead of variables; literals become constants."""
  used = itertools.chain(results, *(call.inputs for call in calls))
  literals = {id(x): x.val for x in used if isinstance(x, core.Literal)}
  made = (x for call in calls for x in call.outputs)
  order = (*literals, *closed.jaxpr.constvars, *closed.jaxpr.invars, *made)
  position = {x: i for i, x in enumerate(order)}
  find = lambda x: position[id(x) if isinstance(x, core.Literal) else x]
  steps = [_Step(tuple(map(find, call.inputs)), call.program) for call in calls]
  return Programs((*literals.values(), *closed.consts), steps, list(map(find, results)), outputs)


def _split(jaxpr: Any, free: Iterable[Any]) -> tuple[list[_Call], list[_Value]]:
  """Return the calls of programs that compute a jaxpr in order, and the variables of its results.

  Args:
    jaxpr: the jaxpr.
    free: inputs that may be overwritten.
  """
  stretches, alias = _stretches(jaxpr)
  results = [_root(alias, x) for x in jaxpr.outvars]
  needed = {x for x in results if not isinstance(x, core.Literal)}
  kept = {*jaxpr.invars, *jaxpr.constvars} - {*free}
  calls = []
  for eqns, is_layer in reversed(stretches):
    made = dict.fromkeys(x for eqn in eqns for x in eqn.outvars)
    read = [x for eqn in eqns for x in eqn.invars]
    if is_layer:
      inputs, out, function = read, list(made), eqns[0].params['jaxpr']
    else:
      inputs = list(dict.fromkeys(x for x in read if not isinstance(x, core.Literal) and x not in made))
      out = [x for x in made if x in needed]
      function = core.ClosedJaxpr(jaxpr.replace(constvars=[], invars=inputs, outvars=out, eqns=eqns), [])
    program = _compile(function, _overwritten(inputs, out, kept | needed))
    calls.append(_Call(tuple(inputs), tuple(out), program))
    needed = (needed - made.keys()) | {x for x in inputs if not isinstance(x, core.Literal)}
  return calls[::-1], results


def _root(alias: dict[Any, _Value], x: _Value) -> _Value:
  return x if isinstance(x, core.Literal) else alias.get(x, x)


def _stretches(jaxpr: Any) -> tuple[list[tuple[list[Any], bool]], dict[Any, _Value]]:
  """Return the equations in stretches: each repeated inner function, and what is between; and equal variables.

  A result that is an input of an inner function is the input itself, so that overwriting one never destroys the other.
  """
  inner = lambda eqn: id(eqn.params['jaxpr']) if eqn.primitive.name in ('jit', 'pjit') else None
  count = collections.Counter(map(inner, jaxpr.eqns))
  stretches: list[tuple[list[Any], bool]] = []
  alias: dict[Any, _Value] = {}
  for eqn in jaxpr.eqns:
    eqn = eqn.replace(invars=[_root(alias, x) for x in eqn.invars])
    if eqn.primitive.name == 'name':  # of `jax.ad_checkpoint.checkpoint_name`: the identity
      alias[eqn.outvars[0]] = eqn.invars[0]
      continue
    is_layer = inner(eqn) is not None and count[inner(eqn)] >= LEAST_LAYERS
    if is_layer:
      given = dict(zip(eqn.params['jaxpr'].jaxpr.invars, eqn.invars, strict=True))
      for x, result in zip(eqn.outvars, eqn.params['jaxpr'].jaxpr.outvars, strict=True):
        if not isinstance(result, core.Literal) and result in given:
          alias[x] = given[result]
    if is_layer or not stretches or stretches[-1][1]:
      stretches.append(([], is_layer))
    stretches[-1][0].append(eqn)
  return stretches, alias


def _overwritten(inputs: Sequence[_Value], out: Sequence[Any], kept: Any) -> tuple[int, ...]:
  """Return the inputs that are dead after a program and have the shape and type of a result that may replace them."""
  kind = lambda x: (x.aval.shape, x.aval.dtype)
  room = collections.Counter(map(kind, out))
  chosen = []
  for i, x in enumerate(inputs):
    if not isinstance(x, core.Literal) and x not in kept and inputs.count(x) == 1 and room[kind(x)]:
      room[kind(x)] -= 1
      chosen.append(i)
  return tuple(chosen)


@functools.lru_cache(maxsize=128)
def _compile(function: Any, overwritten: tuple[int, ...]) -> futures.Future[Any]:
  """Lower a jaxpr, and compile it in a thread; a layer that is traced again has the same jaxpr."""
  options = devices.compiler_options(jax.default_backend()) | fast_options()
  program = jax.jit(core.jaxpr_as_fun(function), donate_argnums=overwritten, compiler_options=options)
  lowered = program.lower(*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in function.in_avals))
  return _threads().submit(lowered.compile)


@functools.cache
def fast_options() -> dict[str, str | bool]:
  """Return those of `_FAST_COMPILATION` that this version of XLA has."""
  options, empty = dict(_FAST_COMPILATION), jax.jit(lambda: 0).lower()
  while options:
    try:
      empty.compile(compiler_options=options)
    except jax.errors.JaxRuntimeError as error:
      unknown = re.search(r"No such compile option: '(\w+)'", str(error))
      if not unknown or options.pop(unknown.group(1), None) is None:
        raise
    else:
      break
  return options


def clear() -> None:
  """Forget all programs, as `jax.clear_caches` does those of `jax.jit`."""
  _prepare.cache_clear()
  _compile.cache_clear()


@functools.cache
def _threads() -> futures.ThreadPoolExecutor:
  return futures.ThreadPoolExecutor(host.cores(), thread_name_prefix='lmx-compile')
