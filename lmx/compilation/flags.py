"""Compiler flags by accelerator that published recipes train with, for `lmx compile --flags` and the launchers.

libtpu reads the flags of TPUs from LIBTPU_INIT_ARGS, XLA those of GPUs from XLA_FLAGS. They suit the models of their
recipes; compile a step with and without them before a long run. Imports no JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from lmx.compilation import slices
from lmx.errors import InputError, nearest

_MAXTEXT = 'github.com/AI-Hypercomputer/maxtext at e591f30c, '
_TPU_RECIPES = 'github.com/AI-Hypercomputer/tpu-recipes at c8cfe2f6, '
_GPU_RECIPES = 'github.com/AI-Hypercomputer/gpu-recipes at 2e1fd5ef, '


@dataclasses.dataclass(frozen=True)
class Preset:
  """Flags of a recipe.

  Attributes:
    accelerators: keys of `slices.CHIPS` or `cards.CARDS` that it is for.
    flags: the flags.
    source: repository, commit and file.
  """

  accelerators: tuple[str, ...]
  flags: tuple[str, ...]
  source: str


_FUSED = (  # collectives that run during computation
  '--xla_enable_async_all_gather=true',
  '--xla_tpu_overlap_compute_collective_tc=true',
  '--xla_tpu_enable_async_collective_fusion=true',
  '--xla_tpu_enable_async_collective_fusion_multiple_steps=true',
  '--xla_tpu_enable_async_collective_fusion_fuse_all_gather=true',
)
_SLICES = (  # all-reduces between slices
  '--xla_tpu_enable_data_parallel_all_reduce_opt=true',
  '--xla_tpu_data_parallel_opt_different_sized_ops=true',
)
_PIPELINED = (
  '--xla_gpu_enable_latency_hiding_scheduler=true',
  '--xla_gpu_enable_triton_gemm=false',
  '--xla_gpu_enable_while_loop_double_buffering=true',
  '--xla_gpu_enable_all_gather_combine_by_dim=false',
  '--xla_gpu_enable_reduce_scatter_combine_by_dim=false',
  '--xla_disable_hlo_passes=rematerialization',
)

PRESETS = {
  'v5e': Preset(('v5e',), _FUSED + _SLICES, _MAXTEXT + 'src/maxtext/configs/tpu/v5e/llama2_7b.sh'),
  'v5p': Preset(
    ('v5p',),
    (
      *_FUSED,
      *_SLICES,
      '--xla_tpu_megacore_fusion_allow_ags=false',
      '--xla_enable_async_collective_permute=true',
      '--xla_tpu_enable_ag_backward_pipelining=true',
    ),
    _MAXTEXT + 'src/maxtext/configs/tpu/v5p/llama2_7b.sh',
  ),
  'v6e': Preset(
    ('v6e',),
    ('--xla_tpu_scoped_vmem_limit_kib=98304', *_FUSED),
    _MAXTEXT + 'src/maxtext/configs/tpu/v6e/llama2_7b_4096.sh',
  ),
  'v6e-slices': Preset(
    ('v6e',),
    (
      '--xla_tpu_scoped_vmem_limit_kib=98304',
      '--xla_tpu_use_minor_sharding_for_major_trivial_input=true',
      '--xla_tpu_relayout_group_size_threshold_for_reduce_scatter=1',
      *_FUSED,
      *_SLICES,
    ),
    _MAXTEXT + 'src/maxtext/configs/tpu/v6e/gpt3_175b.sh',
  ),
  'sparsecore': Preset(
    ('v5p', 'v6e', 'tpu7x'),
    (
      '--xla_tpu_enable_async_collective_fusion_fuse_all_gather=false',
      '--xla_tpu_enable_async_collective_fusion_fuse_all_reduce=false',
      '--xla_tpu_enable_async_collective_fusion_fuse_reduce_scatter=false',
      '--xla_tpu_enable_sparse_core_collective_offload_all_gather=true',
      '--xla_tpu_enable_sparse_core_collective_offload_reduce_scatter=true',
      '--xla_tpu_enable_sparse_core_collective_offload_all_reduce=true',
      '--xla_tpu_enable_all_gather_offload_tracing=true',
      '--xla_tpu_enable_reduce_scatter_offload_tracing=true',
      '--xla_tpu_enable_all_reduce_offload_tracing=true',
      '--xla_tpu_use_tc_device_shape_on_sc=true',
      '--xla_sc_enable_instruction_fusion=false',
      '--xla_sc_disjoint_spmem=false',
      '--xla_sc_disable_megacore_partitioning=true',
    ),
    _MAXTEXT + 'benchmarks/xla_flags_library.py, ENABLE_SPARSECORE_OFFLOADING_FOR_RS_AG_AR',
  ),
  'tpu7x': Preset(
    ('tpu7x',),
    (
      '--xla_tpu_scoped_vmem_limit_kib=61440',
      '--xla_tpu_bf16_emission_mode=NATIVE_EMISSION',
      '--xla_tpu_enable_sparse_core_collective_offload_all_reduce=true',
      '--xla_tpu_use_single_sparse_core_for_all_gather_offload=true',
    ),
    _TPU_RECIPES + 'training/ironwood/llama3.1-70b/8k-bf16-tpu7x-4x4x4/xpk/run_recipe.sh',
  ),
  'a3': Preset(  # without xla_gpu_pipeline_*, which the XLA of JAX 0.10 does not know
    ('h100',),
    (
      *_PIPELINED,
      '--xla_gpu_enable_highest_priority_async_stream=true',
      '--xla_gpu_enable_command_buffer=',
      '--xla_gpu_all_reduce_combine_threshold_bytes=1073741824',
      '--xla_gpu_all_gather_combine_threshold_bytes=134217728',
      '--xla_gpu_reduce_scatter_combine_threshold_bytes=134217728',
    ),
    _MAXTEXT + 'src/maxtext/configs/gpu/a3/llama_2_7b/16vm.sh',
  ),
  'a4': Preset(
    ('h200', 'b200'),
    (
      *_PIPELINED,
      '--xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL',
      '--xla_gpu_all_reduce_combine_threshold_bytes=2147483648',
      '--xla_gpu_all_gather_combine_threshold_bytes=2147483648',
      '--xla_gpu_reduce_scatter_combine_threshold_bytes=16777216',
      '--xla_gpu_enable_pipelined_all_gather=true',
      '--xla_gpu_enable_pipelined_reduce_scatter=true',
      '--xla_gpu_enable_pipelined_all_reduce=true',
    ),
    _GPU_RECIPES + 'training/a4/llama3-1-70b/maxtext-pretraining-gke/values.yaml',
  ),
}

VARIABLES = {'tpu': 'LIBTPU_INIT_ARGS', 'gpu': 'XLA_FLAGS'}


def resolve(text: str, accelerator: str = '', kind: str = '') -> dict[str, str]:
  """Return the variable of the environment that has the flags, and its value.

  Args:
    text: name of a preset, or flags.
    accelerator: key of `slices.CHIPS` or `cards.CARDS` that the flags are for; '' if it is not known.
    kind: 'tpu' or 'gpu'; '' if it is not known, which takes flags as a GPU's.

  Raises:
    InputError: there is no such preset, or it is for other accelerators.
  """
  if text.startswith('--'):
    return {VARIABLES[kind or 'gpu']: ' '.join(text.split())}
  if text not in PRESETS:
    raise InputError(
      f'--flags: got "{text}"; expected flags, which begin with --, or one of {", ".join(PRESETS)}'
      f'{nearest(text, [*PRESETS])}'
    )
  preset = PRESETS[text]
  if accelerator and accelerator not in preset.accelerators:
    fits = [name for name, each in PRESETS.items() if accelerator in each.accelerators]
    raise InputError(
      f'--flags: got {text}, which is for {", ".join(preset.accelerators)}; expected '
      f'{", ".join([*fits, "flags that begin with --"])} for {accelerator}'
    )
  own = _kind(preset)
  if kind and kind != own:
    fits = [name for name, each in PRESETS.items() if _kind(each) == kind]
    raise InputError(
      f'--flags: got {text}, which is for {", ".join(preset.accelerators)}; expected '
      f'{", ".join([*fits, "flags that begin with --"])} for {kind.upper()}s'
    )
  return {VARIABLES[own]: ' '.join(preset.flags)}


def _kind(preset: Preset) -> str:
  return 'tpu' if preset.accelerators[0] in slices.CHIPS else 'gpu'


def joined(found: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
  """Return flags with those that an environment has already; the last ones win."""
  return {name: f'{value} {environment.get(name, "")}'.strip() for name, value in found.items()}
