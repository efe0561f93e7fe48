"""Absent devices: libtpu compiles for a TPU slice description, XLA for a description of NVIDIA cards."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import jax
from jax.experimental import topologies

from lmx.compilation import cards, slices
from lmx.errors import InputError

COMPILER = ('jax_cuda12_plugin', 'nvidia.cuda_nvcc', 'nvidia.cudnn')  # packages of the extra cuda12-aot
# Floats of cuDNN's LSTM for each row and step, in widths of its state: gates, cell and its tanh, output and one spare.
LSTM_STATES = 8
NAMED_CARD = jax.__version_info__ >= (0, 12)  # whether JAX lowers Triton kernels for a card by its name


def devices(topology: slices.Topology | cards.Server) -> Sequence[jax.Device]:
  """Return a slice's or server's devices, for which functions can be compiled but not run.

  Raises:
    InputError: the compiler is not installed, or does not know the slice.
  """
  return _cards(topology) if isinstance(topology, cards.Server) else _slice(topology)


def _slice(topology: slices.Topology) -> Sequence[jax.Device]:
  try:
    import libtpu  # noqa: F401
  except ImportError:
    raise InputError(
      "--topology: libtpu is not installed; install lmx with its extra: pip install 'lmx[tpu]'"
    ) from None
  host = (2, 2, 1) if min(topology.layout[:2]) >= 2 else (1, 1, 1)
  options: dict[str, object] = {'chips_per_host_bounds': host}
  if topology.slices > 1:
    options['num_slices'] = topology.slices
  if topology.generation == 'v4':
    options['chip_config_name'] = 'megacore'
  name = f'{topology.generation}:{"x".join(map(str, topology.layout))}'
  try:
    return topologies.get_topology_desc(platform='tpu', topology_name=name, **options).devices
  except Exception as error:  # JAX's runtime errors have no common public class
    raise InputError(f'--topology: libtpu does not know {topology}: {" ".join(str(error).split())[:300]}') from None


def _cards(server: cards.Server) -> Sequence[jax.Device]:
  missing = [name for name in COMPILER if not is_installed(name)]
  if missing:
    raise InputError(
      f'--topology: {", ".join(missing)} not installed; install lmx with its extra for compilation without a GPU: '
      "pip install 'lmx[cuda12-aot]'"
    )
  description = cards.description(server.chip)
  return topologies.get_topology_desc(
    platform='cuda', target_config=description, topology=f'1x1x{server.chips}'
  ).devices


def options(topology: slices.Topology | cards.Server) -> dict[str, bool]:
  """Return the compiler's options: without a card to time them, XLA's own kernels of products fail at some widths."""
  return {'xla_gpu_enable_triton_gemm': False} if isinstance(topology, cards.Server) else {}


def is_installed(name: str) -> bool:
  """Return True if a package can be imported."""
  try:
    return importlib.util.find_spec(name) is not None
  except ModuleNotFoundError:  # of its parent
    return False


def tracing(topology: slices.Topology | cards.Server) -> AbstractContextManager[None]:
  """Return the context in which a step for absent devices is traced."""
  return _absent_card(topology.chip) if isinstance(topology, cards.Server) else nullcontext()


@contextmanager
def _absent_card(card: cards.Card) -> Iterator[None]:
  """Answer what JAX asks of a card: sizes of cuDNN's LSTM arrays and, from JAX 0.12 on, its kind for Triton kernels."""
  kind = jax.sharding.AbstractDevice(card.kind, num_cores=None, platform='cuda')
  named = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=kind))
  with named if NAMED_CARD else nullcontext(), _assumed_lstm_sizes():
    yield


@contextmanager
def _assumed_lstm_sizes() -> Iterator[None]:
  """Assume the sizes of cuDNN's LSTM arrays that JAX queries from the card: workspace and gradient residuals.

  Both have `LSTM_STATES` floats per row, step and state unit.
  """
  from jaxlib import gpu_rnn

  def sizes(inputs: int, width: int, layers: int, rows: int, steps: int, *rest: object) -> tuple[int, int]:
    del inputs, rest
    assumed = LSTM_STATES * layers * rows * steps * width
    return assumed, assumed

  asked = gpu_rnn.compute_rnn_workspace_reserve_space_sizes
  gpu_rnn.compute_rnn_workspace_reserve_space_sizes = sizes
  try:
    yield
  finally:
    gpu_rnn.compute_rnn_workspace_reserve_space_sizes = asked
