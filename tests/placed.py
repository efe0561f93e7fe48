"""Placements of tests: a platform on any number of this process's devices."""

from __future__ import annotations

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from lmx import placement
from lmx.engine import MESH_AXES
from lmx.kernels import implementations


def on(platform='cpu', kind='', devices=1, **axes):
  """A scope of `devices` rows of `platform`, or of the mesh with these axes."""
  return placement.scope(at(platform, kind, devices, **axes))


def at(platform='cpu', kind='', devices=1, **axes):
  """The placement of `on`."""
  sizes = [axes.get(name, 1) for name in MESH_AXES] if axes else [devices, 1, 1]
  devices = np.array(jax.devices()[: np.prod(sizes)]).reshape(sizes)
  mesh = Mesh(devices, MESH_AXES, axis_types=(AxisType.Auto,) * 3)
  return placement.Placement(platform, kind, mesh, implementation=implementations.find)
