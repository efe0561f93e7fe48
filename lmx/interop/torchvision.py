"""torchvision's ResNets as backbones of image models: a .safetensors, or a .pth read without torch.

    conv1, bn1                          stem/conv_1            the 7x7 convolution
    conv1.{0,3,6}, conv1.{1,4}, bn1     stem/conv_{1,2,3}      three 3x3 convolutions: PyTorch-Encoding's resnet50s
    layer<i>.<j>.conv<k>, .bn<k>        layer_<i-1>/block_<j>/conv_<k>
    layer<i>.<j>.downsample.{0,1}       layer_<i-1>/block_<j>/shortcut

Batch normalisation's running mean and variance are read with its scale and bias. `fc` (ImageNet's classes) and
`num_batches_tracked` are not.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from lmx.errors import InputError
from lmx.interop import mapped, torch_file

ENDINGS = ('.safetensors', '.pth', '.pt')
_NORM = {'scale': 'weight', 'bias': 'bias', 'mean': 'running_mean', 'variance': 'running_var'}
_UNUSED = re.compile(r'fc\..*|.*\.num_batches_tracked')
_WRAPPER = 'module.'  # of torch.nn.DataParallel


class Backbone(NamedTuple):
  """A backbone that was read.

  Attributes:
    leaves: path in the model -> array, float32.
    unused: names of the tensors that are not read.
  """

  leaves: dict[str, np.ndarray]
  unused: list[str]


def read(path: str, shapes: Mapping[str, tuple[int, ...]]) -> Backbone:
  """Return the backbone in a file.

  Args:
    path: the file.
    shapes: backbone leaf path (stem/..., layer_00/...) -> its shape.

  Raises:
    InputError: the file is damaged or has no tensors; a tensor is missing, unknown, of another shape or not finite. Its
      name is in the message.
  """
  tensors = _tensors(path)
  names = {leaf: _name(leaf, shapes) for leaf in shapes}
  if missing := [name for name in names.values() if name not in tensors]:
    raise InputError(
      f'{path}: got no tensor "{missing[0]}"{_more(missing)}; expected those of a ResNet of torchvision with the '
      "model's blocks; choose the model.variant, model.blocks and model.stem of the file"
    )
  others = [name for name in tensors if name not in {*names.values()}]
  if unknown := [name for name in others if not _UNUSED.fullmatch(name)]:
    raise InputError(
      f'{path}: got tensor "{unknown[0]}"{_more(unknown)}, which the model has not; choose the model.variant, '
      'model.blocks and model.stem of the file'
    )
  leaves = {leaf: _convert(path, name, tensors[name], shapes[leaf]) for leaf, name in names.items()}
  return Backbone(leaves, others)


def name_of(blocks: Iterable[int], block: str) -> str:
  """Return torchvision's name of a network, '' if it has none."""
  known: dict[tuple[str, tuple[int, ...]], str] = {
    ('basic', (2, 2, 2, 2)): 'ResNet-18',
    ('basic', (3, 4, 6, 3)): 'ResNet-34',
    ('bottleneck', (3, 4, 6, 3)): 'ResNet-50',
    ('bottleneck', (3, 4, 23, 3)): 'ResNet-101',
    ('bottleneck', (3, 8, 36, 3)): 'ResNet-152',
  }
  return known.get((block, tuple(blocks)), '')


def _tensors(path: str) -> dict[str, np.ndarray]:
  """Return {name: array} of a file, without the prefix of a wrapper."""
  if not path.endswith(ENDINGS):
    raise InputError(f'{path}: got another file type; expected {" or ".join("*" + ending for ending in ENDINGS)}')
  if path.endswith('.safetensors'):
    tensors = mapped.read_safetensors(pathlib.Path(path))
  else:
    content = torch_file.read(path)
    content = content.get('state_dict', content) if isinstance(content, Mapping) else content
    if not torch_file.are_tensors(content):
      raise InputError(f'{path}: got no tensors by name; expected a state_dict, as torch.save writes it')
    tensors = dict(content)
  return {name.removeprefix(_WRAPPER): x for name, x in tensors.items()}


def _name(leaf: str, shapes: Mapping[str, tuple[int, ...]]) -> str:
  """Return the name in torchvision of a leaf such as layer_00/block_01/conv_2/norm/scale."""
  *unit, part = leaf.split('/')
  is_norm = unit[-1] == 'norm'
  unit, ending = (unit[:-1], _NORM[part]) if is_norm else (unit, 'weight')
  if unit[0] == 'stem':
    number, is_deep = int(unit[1].removeprefix('conv_')), 'stem/conv_2/kernel' in shapes
    last = not is_deep or number == 3
    if is_norm:
      return f'{"bn1" if last else f"conv1.{3 * number - 2}"}.{ending}'
    return f'conv1.{3 * number - 3}.{ending}' if is_deep else f'conv1.{ending}'
  stage, block = (int(name.rpartition('_')[2]) for name in unit[:2])
  prefix = f'layer{stage + 1}.{block}'
  if unit[2] == 'shortcut':
    return f'{prefix}.downsample.{int(is_norm)}.{ending}'
  return f'{prefix}.{"bn" if is_norm else "conv"}{unit[2].removeprefix("conv_")}.{ending}'


def _convert(path: str, name: str, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
  """Return a tensor as float32 with its axes in the model's order."""
  order = (2, 3, 1, 0) if x.ndim == 4 else tuple(range(x.ndim))
  found = tuple(x.shape[axis] for axis in order)
  if found != tuple(shape):
    expected = tuple(shape[order.index(axis)] for axis in range(len(order))) if len(order) == len(shape) else shape
    raise InputError(
      f'{path}: tensor "{name}": got shape {tuple(x.shape)}; expected {expected}; choose the model.variant, '
      'model.widths and model.stem of the file'
    )
  y = np.ascontiguousarray(np.transpose(np.asarray(x, np.float32), order))
  mapped.release(x)
  if not np.isfinite(y).all():
    raise InputError(f'{path}: tensor "{name}": got NaN or infinity; expected finite values')
  if name.endswith('running_var') and (y < 0).any():
    raise InputError(f'{path}: tensor "{name}": got a variance of {y.min()}; expected none below 0')
  return y


def _more(names: list[str]) -> str:
  return f' and {len(names) - 1:,} more' if len(names) > 1 else ''
