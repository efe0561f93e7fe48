"""Devices of TPU slices that are absent: libtpu compiles for a description of a slice."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax.experimental import topologies

from lmx.compilation.slices import Topology
from lmx.errors import InputError


def devices(topology: Topology) -> Sequence[jax.Device]:
  """Return the devices of a slice, for which functions can be compiled but not run.

  Raises:
    InputError: libtpu is not installed, or does not know the slice.
  """
  try:
    import libtpu  # noqa: F401
  except ImportError:
    raise InputError(
      "--topology: libtpu is not installed; install lmx with its extra: pip install 'lmx[tpu]'"
    ) from None
  host = (2, 2, 1) if min(topology.layout[:2]) >= 2 else (1, 1, 1)
  options: dict[str, object] = {'chips_per_host_bounds': host}
  if topology.generation == 'v4':
    options['chip_config_name'] = 'megacore'
  name = f'{topology.generation}:{"x".join(map(str, topology.layout))}'
  try:
    return topologies.get_topology_desc(platform='tpu', topology_name=name, **options).devices
  except Exception as error:  # JAX's runtime errors have no common public class
    raise InputError(f'--topology: libtpu does not know {topology}: {" ".join(str(error).split())[:300]}') from None
