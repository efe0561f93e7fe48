"""Training and evaluation steps on the devices of a run; here the `parallel` section of a config, without JAX."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from lmx import ranges
from lmx.errors import InputError, check_choice

MESH_AXES = ('data', 'fsdp', 'tensor')
PRECISIONS = ('float32', 'tensorfloat32', 'bfloat16', 'default')  # of products, see precision.py
VOCABULARY_TABLE = r'(embed|output|mlm)/(tokens|table)$'  # names of the tables that 'tensor' shards by token
Rule = Annotated[
  tuple[Annotated[str, ranges.Regex()], tuple[Annotated[str, ranges.Choice(MESH_AXES)] | None, ...]],
  ranges.Record(('regex', 'mesh axis of each dimension')),
]


@dataclasses.dataclass(frozen=True)
class Config:
  """Devices of a training, and the sharding of its arrays over them.

  Attributes:
    mode: 'jit' or 'pmap' (data-parallel only).
    data: devices along the axis that shards rows and replicates parameters; -1 is all that the other axes leave.
    fsdp: devices along the axis that shards rows and parameters; -1 is all that the other axes leave, where a `data` of
      -1 is then the number of TPU slices.
    tensor: devices along the axis that shards parameters and replicates rows.
    rules: (regular expression, mesh axis or None for each dimension) for parameters, before the built-in rules; the
      first that matches in a parameter's name ('model/layer_00/...') applies. A rule for a single layer needs
      stack_layers=False if layers are stacked.
    min_size: matrices with fewer elements are not sharded over 'fsdp' unless a rule applies.
    stack_layers: store the layers that `model.scan` loops over as one tree of arrays, which is not copied in every step
      (lmx/layout.py); not with gradual unfreezing, which has a state for each layer.
    pad_vocabulary: multiple to which the rows of the vocabulary's tables are padded, such as 128, so that devices and
      matrix units divide them; 1: no padding. Parameters are initialised, counted and exported without it.
    shard_optimizer: shard the optimizer's state and the average of the parameters (`optim.ema`, `optim.asgd`) over
      'data' too, where their size allows (ZeRO stage 1: Rajbhandari et al. 2020, arXiv 1910.02054). Under 'jit' only.
    reduce_dtype: type in which gradients are reduced over devices, 'float32' or 'bfloat16', which sends half the bytes
      and rounds them; parameters and the optimizer's state stay float32. Without fsdp, microbatches are added in
      float32 before, and each device draws its own dropout, as under 'pmap'. With fsdp, a model in bfloat16 reduces the
      gradients of kernels and vocabulary tables so, once per microbatch. Not with tensor.
    logits_dtype: type in which the training loss stores logits of a bfloat16 model: 'float32', 'bfloat16', or 'auto':
      'bfloat16' on NVIDIA GPUs, where it halves the traffic of the output layer, else 'float32'. Sums over the
      vocabulary are float32, and so are the logits of evaluations.
    equations: operations of lmx/ops that the training step computes by their equation instead of by lmx/kernels, such
      as ('layer_norm',): to time a kernel, or to rule it out as the cause of a fault. Values differ by rounding.
  """

  mode: str = 'jit'
  data: Annotated[int, ranges.Limits(-1)] = -1
  fsdp: Annotated[int, ranges.Limits(-1)] = 1
  tensor: int = 1
  rules: tuple[Rule, ...] = ()
  min_size: int = 1024
  stack_layers: bool = True
  pad_vocabulary: int = 1
  shard_optimizer: bool = True
  reduce_dtype: str = 'float32'
  logits_dtype: str = 'auto'
  equations: tuple[str, ...] = ()

  def __post_init__(self) -> None:
    if self.mode not in ('jit', 'pmap'):
      raise InputError(f'parallel.mode: got "{self.mode}"; expected "jit" or "pmap"')
    if self.tensor < 1:
      raise InputError(f'parallel.tensor: got {self.tensor}; expected at least 1')
    if self.pad_vocabulary < 1:
      raise InputError(f'parallel.pad_vocabulary: got {self.pad_vocabulary}; expected at least 1, which pads nothing')
    for axis in ('data', 'fsdp'):
      if getattr(self, axis) < 1 and getattr(self, axis) != -1:
        raise InputError(f'parallel.{axis}: got {getattr(self, axis)}; expected at least 1, or -1 for all devices')
    if self.mode == 'pmap' and (self.fsdp != 1 or self.tensor > 1 or self.rules):
      raise InputError(
        'parallel.mode: got "pmap" with parallel.fsdp, tensor or rules; expected data parallelism only; set '
        'parallel.mode=jit, or fsdp and tensor to 1 and no rules'
      )
    check_choice('parallel.reduce_dtype', self.reduce_dtype, ('float32', 'bfloat16'))
    if self.reduce_dtype != 'float32' and self.tensor > 1:
      raise InputError(
        f'parallel.reduce_dtype: got "{self.reduce_dtype}" with parallel.tensor={self.tensor}; expected data and fsdp '
        'only; set parallel.reduce_dtype=float32 or parallel.tensor=1'
      )
    check_choice('parallel.logits_dtype', self.logits_dtype, ('auto', 'float32', 'bfloat16'))
    for regex, spec in self.rules:
      unknown = [a for a in spec if a is not None and a not in MESH_AXES]
      if unknown:
        raise InputError(f'parallel.rules "{regex}": unknown axis "{unknown[0]}"; known: {", ".join(MESH_AXES)}')
      axes = [axis for axis in spec if axis is not None]
      if len(set(axes)) < len(axes):
        raise InputError(f'parallel.rules "{regex}": got {spec}; expected each axis of the mesh once')
