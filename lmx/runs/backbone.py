"""Initialisation of an image model's backbone from a torchvision ResNet file in `train.init_from`."""

from __future__ import annotations

import os
from typing import Any

from flax.traverse_util import flatten_dict, unflatten_dict

from lmx.config import schema
from lmx.errors import InputError
from lmx.interop import torchvision
from lmx.types import Params

_PARTS = ('stem', 'layer_')  # top-level names of a backbone's parameters


def take(run: schema.Run, shapes: Params, corpus: Any = None, key: Any = None) -> tuple[Params, str]:
  """Return the backbone of the file in `train.init_from`; the heads keep their own initialisation.

  Args:
    run: the run.
    shapes: shapes of its parameters.
    corpus: unused.
    key: unused.

  Returns:
    (the leaves of the backbone, a nested dict; a line for the log).

  Raises:
    InputError: `train.init_parts` names parts, the model is normalised by groups, or `torchvision.read` raises.
  """
  path = os.path.expanduser(run.train.init_from)
  if run.train.init_parts:
    raise InputError(
      f'train.init_parts: got {", ".join(run.train.init_parts)} with train.init_from={path}, a backbone file; '
      'expected none; set train.init_parts=()'
    )
  if run.model.norm != 'batch':
    raise InputError(
      f'train.init_from: got {path} with model.norm "{run.model.norm}"; expected "batch", the file\'s '
      'normalisation; set model.norm=batch'
    )
  ours = {'/'.join(leaf): tuple(x.shape) for leaf, x in flatten_dict(dict(shapes['model'])).items()}
  wanted = {leaf: shape for leaf, shape in ours.items() if leaf.startswith(_PARTS)}
  backbone = torchvision.read(path, wanted)
  name = torchvision.name_of(run.model.blocks, run.model.block) or 'backbone'
  unused = sorted({'fc' if tensor.startswith('fc.') else 'num_batches_tracked' for tensor in backbone.unused})
  count = len(flatten_dict(dict(shapes)))
  note = f'{name} of {path}: {len(backbone.leaves)} of {count} arrays taken, the heads are newly initialised'
  note += f'; not read: {", ".join(unused)}' if unused else ''
  return {'model': unflatten_dict({tuple(leaf.split('/')): x for leaf, x in backbone.leaves.items()})}, note
