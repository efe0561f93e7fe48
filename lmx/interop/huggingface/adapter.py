"""Files and fields beside the weights that change them: LoRA adapters of peft, quantisation, pruned heads, code.

LoRA (Hu et al. 2021, arXiv 2106.09685) adds scale · B A to the kernels of some layers, with scale alpha / r, or
alpha / sqrt(r) with `use_rslora`. The sum is computed when the weights are read. Tensors that the adapter has whole, of
`modules_to_save`, replace those of the model. Other adapters and quantised weights are errors. So is a tensor that the
model ties to another, because peft replaces only one of the two.
"""

from __future__ import annotations

import math
import pathlib
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from lmx import documents
from lmx.errors import InputError
from lmx.interop import mapped
from lmx.interop.huggingface.entry import show

FILE = 'adapter_config.json'
WEIGHTS = ('adapter_model.safetensors', 'adapter_model.bin')
QUANTISED = ('quantize_config.json', 'quant_config.json')  # of AutoGPTQ, of AutoAWQ
_QUANTISED_FIELDS = ('quantization_config', 'compression_config')
_PREFIX = 'base_model.model.'
_BASE = 'base_model_name_or_path'
_SETTINGS = (('r', 'rank_pattern'), ('lora_alpha', 'alpha_pattern'))
_FACTOR = re.compile(r'(.+)\.lora_([AB])(?:\.\w+)?\.weight')
_WRAPPER = re.compile(r'\.(?:base_layer|modules_to_save(?:\.default)?)(?=\.)')
_CONV1D = re.compile(r'.*\.(c_attn|c_proj|c_fc)')  # GPT's kernels are (in, out)
_INITIAL = (True, False, 'gaussian', 'orthogonal')  # others change the weights of the model too
# Keys without effect on the sum, or read below; any other must be false or empty.
_KNOWN = frozenset(
  ('alpha_pattern', 'auto_mapping', 'base_model_name_or_path', 'exclude_modules', 'fan_in_fan_out')
  + ('inference_mode', 'init_lora_weights', 'layers_pattern', 'layers_to_transform', 'lora_alpha', 'lora_dropout')
  + ('megatron_core', 'modules_to_save', 'peft_type', 'peft_version', 'qalora_group_size', 'r', 'rank_pattern')
  + ('revision', 'runtime_config', 'target_modules', 'task_type', 'use_rslora', 'ensure_weight_tying')
)


def is_alone(directory: Any) -> bool:
  """Return True for a folder of an adapter without the model's config.json."""
  path = pathlib.Path(directory)
  return (path / FILE).is_file() and not (path / 'config.json').exists()


def check(directory: pathlib.Path, settings: Mapping[str, Any]) -> list[str]:
  """Return notes on a folder; raise InputError if transformers would change its weights as lmx does not."""
  for name in QUANTISED:
    if (directory / name).exists():
      raise InputError(f'{name}: got quantised weights; expected floats; export the model unquantised')
  for name in _QUANTISED_FIELDS:
    if settings.get(name):
      raise InputError(f'config.json: {name}: got {show(settings[name])}; expected none; export the model unquantised')
  if settings.get('pruned_heads'):
    raise InputError(
      f'config.json: pruned_heads: got {show(settings["pruned_heads"])}; expected none, for whole layers'
    )
  if not settings.get('auto_map'):
    return []
  return [
    f'config.json: auto_map: {show(settings["auto_map"])}: code of the folder is not run, as without trust_remote_code'
  ]


def check_alone(directory: pathlib.Path) -> None:
  """Raise InputError for a folder of an adapter without its model."""
  base = documents.convert(documents.read_json(directory / FILE), dict, str(directory / FILE)).get(_BASE)
  raise InputError(
    f'{directory / FILE}: {_BASE}: got {documents.show(base)}; expected config.json and weights of that model beside '
    f'the adapter; copy {FILE} and {WEIGHTS[0]} into its folder and import that'
  )


def merge(
  directory: pathlib.Path,
  layout: ModuleType,
  tensors: dict[str, np.ndarray],
  read_pickle: Callable[[pathlib.Path], dict[str, np.ndarray]],
) -> tuple[list[str], set[str]]:
  """Add the adapter of a folder to its tensors, if there is one; return (notes, names of the changed tensors).

  Args:
    directory: the folder.
    layout: the family of its tensors.
    tensors: the tensors of the model, which are replaced.
    read_pickle: reader of an adapter_model.bin.

  Raises:
    InputError: the adapter is of another kind than LoRA on linear layers, or does not fit the tensors.
  """
  path = directory / FILE
  if not path.exists():
    return [], set()
  settings = documents.convert(documents.read_json(path), dict, FILE)
  _check_config(settings, path)
  weights = next((directory / name for name in WEIGHTS if (directory / name).exists()), None)
  if weights is None:
    raise InputError(f'{WEIGHTS[0]} does not exist; {FILE} needs it')
  factors: dict[str, dict[str, np.ndarray]] = {}
  replaced: set[str] = set()
  for name, x in (mapped.read_safetensors if weights.suffix == '.safetensors' else read_pickle)(weights).items():
    if not name.startswith(_PREFIX):
      raise InputError(f'{weights.name}: tensor "{name}": expected a name that starts with {_PREFIX}')
    own = _WRAPPER.sub('', name.removeprefix(_PREFIX))
    if found := _FACTOR.fullmatch(own):
      factors.setdefault(found[1], {})[found[2]] = x
    else:
      target = _target(own, layout, tensors, weights)
      if tensors[target].shape != x.shape:
        raise InputError(f'{weights.name}: tensor "{name}": got {x.shape}; expected {tensors[target].shape}')
      tensors[target] = x
      replaced.add(target)
  targets = {module: _target(f'{module}.weight', layout, tensors, weights) for module in factors}
  for module, target in targets.items():
    tensors[target] = _sum(tensors[target], factors[module], module, settings, path, weights)
  note = f'{weights.name}: LoRA added to {len(factors):,} kernels, {len(replaced):,} tensors replaced'
  return [note + _where(settings, directory)], replaced | {*targets.values()}


def _where(settings: Mapping[str, Any], directory: pathlib.Path) -> str:
  """Return the model of an adapter for a note if it is not of this folder; raise InputError if it is another one."""
  base = settings.get(_BASE)
  if not base or pathlib.Path(base).resolve() == directory.resolve():
    return ''
  if pathlib.Path(base).is_dir():
    raise InputError(
      f'{FILE}: {_BASE}: got "{base}"; expected this folder, because it has weights too; copy the adapter '
      'into that folder, or remove it here'
    )
  return f'; {_BASE} is "{base}", and the weights of this folder are read'


def _check_config(settings: Mapping[str, Any], path: pathlib.Path) -> None:
  if (kind := settings.get('peft_type')) != 'LORA':
    raise InputError(
      f'{path.name}: peft_type: got {documents.show(kind)}; expected "LORA"; merge the adapter and save the model'
    )
  if settings.get('init_lora_weights', True) not in _INITIAL:
    raise InputError(
      f'{path.name}: init_lora_weights: got {documents.show(settings["init_lora_weights"])}; expected '
      f'{", ".join(map(documents.show, _INITIAL))}, which leave the weights of the model; merge the adapter'
    )
  for key, value in settings.items():
    if key not in _KNOWN and value and (key, value) != ('bias', 'none'):
      raise InputError(
        f'{path.name}: {key}: got {documents.show(value)}; expected none, because lmx adds only B A; merge the '
        'adapter and save the model'
      )


def _target(name: str, layout: ModuleType, tensors: Mapping[str, Any], weights: pathlib.Path) -> str:
  """Return the name of a tensor in the model's file, which may omit or have the prefix of the bare model."""
  names = (name, layout.PREFIX + name, name.removeprefix(layout.PREFIX))
  found = next((one for one in names if one in tensors), None)
  if found is None:
    raise InputError(
      f'{weights.name}: tensor "{name}": the model has none of this name; expected linear layers of the model; merge '
      'the adapter and save the model'
    )
  return found


def _sum(
  kernel: np.ndarray,
  pair: Mapping[str, np.ndarray],
  module: str,
  settings: Mapping[str, Any],
  path: pathlib.Path,
  weights: pathlib.Path,
) -> np.ndarray:
  """Return a kernel plus scale · B A, float32."""
  if {*pair} != {'A', 'B'} or any(x.ndim != 2 for x in pair.values()):
    raise InputError(
      f'{weights.name}: {module}: got lora_{", lora_".join(sorted(pair))}; expected matrices lora_A, lora_B'
    )
  A, B = (np.asarray(pair[side], np.float32) for side in 'AB')
  rank, alpha = (_setting(settings, key, pattern, module, path) for key, pattern in _SETTINGS)
  shape = (B.shape[0], A.shape[1])[:: -1 if _CONV1D.fullmatch(module) else 1]
  if A.shape[0] != rank or B.shape[1] != rank or kernel.shape != shape:
    raise InputError(
      f'{weights.name}: {module}: got lora_A {A.shape} and lora_B {B.shape}; expected rank {rank:g} and a kernel '
      f'{kernel.shape}'
    )
  scale = alpha / (math.sqrt(rank) if settings.get('use_rslora') else rank)
  added = np.float32(scale) * (B @ A)
  total = np.asarray(kernel, np.float32) + (added.T if _CONV1D.fullmatch(module) else added)
  mapped.release(kernel)
  return total


def _setting(settings: Mapping[str, Any], key: str, pattern: str, module: str, path: pathlib.Path) -> float:
  """Return the rank or alpha of a module: that of the first pattern that matches its name, else the general one."""
  patterns = documents.convert(settings.get(pattern) or {}, dict, f'{path.name}: {pattern}')
  named = (value for name, value in patterns.items() if re.match(rf'(.*\.)?({name})$', module))
  value = next(named, settings.get(key, 8))
  if type(value) not in (int, float) or value <= 0:
    raise InputError(f'{path.name}: {key}: got {documents.show(value)} for {module}; expected a positive number')
  return float(value)
