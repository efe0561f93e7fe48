"""GPT as released (openai/finetune-transformer-lm, folder model): params_shapes.json, params_0.npy .. params_9.npy.

The parameters are concatenated in the files in the order of train.py: positions, tokens, and for each layer
attn/c_attn, attn/c_proj, ln_1, mlp/c_fc, mlp/c_proj and ln_2, kernel (1, in, out) or gain before bias. They are
returned under Hugging Face's names (lmx/interop/huggingface/gpt.py). The tokenizer is encoder_bpe_40000.json and
vocab_40000.bpe.
"""

from __future__ import annotations

import math
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmx import documents
from lmx.errors import InputError, explain
from lmx.interop import mapped
from lmx.interop.huggingface.entry import show
from lmx.interop.huggingface.folder import Folder

SHAPES = 'params_shapes.json'
_PART = r'params_(0|[1-9][0-9]{0,8})\.npy'
HEAD_WIDTH = 64  # 768 / 12; the files do not contain it
_LAYER = ('attn.c_attn', 'attn.c_proj', 'ln_1', 'mlp.c_fc', 'mlp.c_proj', 'ln_2')


def is_release(directory: Any) -> bool:
  """Return True if a folder has the files of the release."""
  return (pathlib.Path(directory) / SHAPES).exists()


def read(directory: Any) -> Folder:
  """Read the release.

  Raises:
    InputError: a file is missing or damaged, or the shapes do not match a GPT.
  """
  directory = pathlib.Path(directory)
  shapes = _shapes(directory / SHAPES)
  sizes = [math.prod(shape) for shape in shapes]
  numbers = {int(match[1]): path for path in directory.iterdir() if (match := re.fullmatch(_PART, path.name))}
  paths = [numbers[i] for i in sorted(numbers)]
  if missing := [i for i in range(len(numbers)) if i not in numbers]:
    raise InputError(f'{directory}: params_{missing[0]}.npy: missing; expected all files up to {paths[-1].name}')
  parts = [_part(path) for path in paths]
  size = sum(part.size for part in parts)
  if size != sum(sizes):
    raise InputError(
      f'{directory}: got {size:,} numbers in {len(paths)} files params_*.npy; expected {sum(sizes):,} by {SHAPES}'
    )
  ends = np.cumsum(sizes).tolist()
  arrays = [_cut(parts, end - size, end).reshape(s) for size, end, s in zip(sizes, ends, shapes, strict=True)]
  (T, D), (V, _) = shapes[0], shapes[1]
  tensors = {'positions_embed.weight': arrays[0], 'tokens_embed.weight': arrays[1]}
  layers = range((len(shapes) - 2) // 12)
  parts_of_layers = [f'h.{i}.{part}.{kind}' for i in layers for part in _LAYER for kind in ('weight', 'bias')]
  for name, array in zip(parts_of_layers, arrays[2:], strict=True):
    tensors[name] = array[0] if array.ndim == 3 else array
  fields = {'V': V, 'T': T, 'D': D, 'H': max(D // HEAD_WIDTH, 1), 'N': len(layers)}
  names = {name: f'array {i} of {SHAPES}' for i, name in enumerate(tensors)}
  return Folder('gpt', fields, tensors, 'gpt_bpe', True, names=names)


def _part(path: pathlib.Path) -> np.ndarray:
  """Return a file's values, mapped."""
  try:
    return np.load(path, mmap_mode='r', allow_pickle=False).ravel()
  except Exception as error:  # NumPy's reader of the header raises several kinds
    raise InputError(f'{path} cannot be read ({explain(error)}); it may be truncated') from None


def _cut(parts: Sequence[np.ndarray], begin: int, end: int) -> np.ndarray:
  """Return values from the concatenated rows: a view if they are in one row."""
  pieces, start = [], 0
  for part in parts:
    if start < end and begin < start + part.size:
      pieces.append(part[max(begin - start, 0) : end - start])
    start += part.size
  if len(pieces) == 1:
    return pieces[0]
  joined = np.concatenate(pieces)
  for piece in pieces:
    mapped.release(piece)
  return joined


def _shapes(path: pathlib.Path) -> list[tuple[int, ...]]:
  try:
    shapes: Any = [tuple(shape) for shape in documents.read_json(path)]
  except (ValueError, TypeError) as error:
    raise InputError(f'{path} cannot be read ({error})') from None
  if others := [size for shape in shapes for size in shape if type(size) is not int]:
    raise InputError(f'{path}: got size {show(others[0])}; expected a list of shapes, each a list of whole numbers')
  if any(size < 1 for shape in shapes for size in shape):
    raise InputError(f'{path}: got a size below 1; expected the shapes of a GPT')
  if (
    len(shapes) < 14
    or (len(shapes) - 2) % 12
    or len(shapes[0]) != 2
    or len(shapes[1]) != 2
    or shapes[0][1] != shapes[1][1]
  ):
    raise InputError(f"{path}: got other shapes; expected a GPT's: positions, tokens and 12 per layer")
  return shapes
