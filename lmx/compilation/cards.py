"""NVIDIA GPUs in one server, and their descriptions for compilation without them. Imports no JAX.

Units, caches, bandwidths and peaks are from NVIDIA's white papers on the A100 (2020) and H100 (2022), SXM with 80 GB,
and its data sheets of the H200 and the HGX B200 (2024). Multiprocessors, clock and cache of these two are also in XLA's
descriptions (xla/backends/gpu/target_config/specs). Memory is as CUDA reports it.
"""

from __future__ import annotations

import dataclasses
import re

from lmx.errors import InputError, suggest

COUNTS = (1, 2, 4, 8)  # cards of a server that NVLink connects
FALLBACK = '9.0'  # compute capability for which JAX 0.11 compiles Triton kernels without a card
RESERVED = 0.75  # share of the memory that JAX reserves unless XLA_PYTHON_CLIENT_MEM_FRACTION is set


@dataclasses.dataclass(frozen=True)
class Card:
  """A card.

  Attributes:
    kind: its name, as CUDA reports it.
    capability: compute capability, as a proto text.
    multiprocessors: their number.
    lanes: float32 units per multiprocessor.
    shared: KiB of shared memory per multiprocessor; a block can have one less.
    cache: MiB of the L2 cache.
    clock: cycles per second.
    bandwidth: memory bytes per second.
    memory: GiB.
    peak: dense bfloat16 FLOP/s.
    links: bytes per second to other cards, in one direction.
    google: its names in Google Cloud.
  """

  kind: str
  capability: str
  multiprocessors: int
  lanes: int
  shared: int
  cache: float
  clock: float
  bandwidth: float
  memory: float
  peak: float
  links: float
  google: tuple[str, ...]


CARDS = {
  'h100': Card(
    kind='NVIDIA H100 80GB HBM3',
    capability='major: 9 feature_extension: ACCELERATED_FEATURES',
    multiprocessors=132,
    lanes=128,
    shared=228,
    cache=50,
    clock=1.98e9,
    bandwidth=3.35e12,
    memory=79.1,
    peak=989e12,
    links=450e9,
    google=('h100-80gb', 'h100-mega-80gb'),
  ),
  'h200': Card(
    kind='NVIDIA H200',
    capability='major: 9 feature_extension: ACCELERATED_FEATURES',
    multiprocessors=132,
    lanes=128,
    shared=228,
    cache=50,
    clock=1.98e9,
    bandwidth=4.8e12,
    memory=139.8,
    peak=989e12,
    links=450e9,
    google=('h200-141gb',),
  ),
  'b200': Card(
    kind='NVIDIA B200',
    capability='major: 10 feature_extension: ACCELERATED_FEATURES',
    multiprocessors=148,
    lanes=128,
    shared=228,
    cache=126.5,
    clock=1.965e9,
    bandwidth=7.7e12,
    memory=178.4,
    peak=2250e12,
    links=900e9,
    google=('b200',),
  ),
  'a100': Card(
    kind='NVIDIA A100-SXM4-80GB',
    capability='major: 8',
    multiprocessors=108,
    lanes=64,
    shared=164,
    cache=40,
    clock=1.41e9,
    bandwidth=2.04e12,
    memory=79.2,
    peak=312e12,
    links=300e9,
    google=('a100-80gb',),
  ),
}
GOOGLE = {name: key for key, card in CARDS.items() for name in card.google}  # Google's name -> key of CARDS


@dataclasses.dataclass(frozen=True)
class Server:
  """Cards of one kind in a server.

  Attributes:
    name: key of CARDS.
    chips: their number.
  """

  name: str
  chips: int

  @property
  def chip(self) -> Card:
    """Its card."""
    return CARDS[self.name]

  @property
  def devices(self) -> int:
    """Number of JAX devices."""
    return self.chips

  @property
  def notes(self) -> list[str]:
    """Notes on its names and devices: none."""
    return []

  def __str__(self) -> str:
    return f'{self.name}x{self.chips}'


def is_named(text: str) -> bool:
  """Return True if a text begins with the name of a card."""
  return text.startswith((*CARDS, *GOOGLE))


def parse(text: str) -> Server:
  """Read 'h100x8', name and number of cards, or Google's name of the server, 'h100-80gb-8'.

  Raises:
    InputError: an unknown name, or a number of cards that no server has.
  """
  google, _, count = text.rpartition('-')
  if google in GOOGLE:
    name, number = GOOGLE[google], f'x{count}'
  else:
    name, number = re.fullmatch(r'([a-z]*\d*)(.*)', text, re.DOTALL).groups()  # type: ignore[union-attr]
  counts = {f'x{n}': n for n in COUNTS}
  if name not in CARDS or number not in counts:
    expected = f'one of {", ".join(CARDS)} and x1, x2, x4 or x8, such as h100x8'
    suggestion = '' if name in CARDS else suggest(name, CARDS)
    raise InputError(f'--topology: got "{text}"; expected {expected}{suggestion}')
  return Server(name, counts[number])


def notes(text: str, total: int, card: Card) -> list[str]:
  """Return notes on the limits of compilation without a card, for a program (HLO) of `total` bytes."""
  found = ['products are calls of cuBLAS; on the card, XLA times its own kernels against them']
  if '__cudnn$' in text:
    found.append("the workspace of cuDNN's kernels is not in the memory, because cuDNN plans it on the card")
  if 'cudnn_rnn' in text:
    found.append(
      "sizes of the workspace and residuals of cuDNN's LSTM are assumed, because cuDNN gives them on the card"
    )
  capability = '.'.join((re.findall(r': (\d+)', card.capability) + ['0'])[:2])
  if '__gpu$xla.gpu.triton' in text:
    found.append(f'Triton kernels are compiled for compute capability {capability}')
  elif 'triton_kernel_call' in text:  # JAX 0.11 compiles them itself, and knows no absent card
    other = '' if capability == FALLBACK else f', not for {capability}'
    found.append(f'Triton kernels are compiled for compute capability {FALLBACK}{other}')
  if total > RESERVED * card.memory * 2**30:
    found.append(f'JAX reserves {RESERVED:.0%} of the memory unless XLA_PYTHON_CLIENT_MEM_FRACTION is set')
  return found


def description(card: Card) -> str:
  """Return XLA's description of a card, the text of a `stream_executor.GpuTargetConfigProto`."""
  versions = 'driver_version: "12.8.0" runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0"'
  return f"""
gpu_device_info {{
  cuda_compute_capability {{ {card.capability} }}
  core_count: {card.multiprocessors}
  fpus_per_core: {card.lanes}
  clock_rate_ghz: {card.clock / 1e9:.4g}
  memory_bandwidth: {card.bandwidth:.0f}
  device_memory_size: {card.memory * 2**30:.0f}
  l2_cache_size: {card.cache * 2**20:.0f}
  shared_memory_per_core: {card.shared * 2**10}
  shared_memory_per_block_optin: {(card.shared - 1) * 2**10}
  shared_memory_per_block: {48 * 2**10}
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  {versions}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{card.kind}"
"""
