"""Sizes and budgets of the lineage."""

from __future__ import annotations

import pytest

from experiments.lineage import systems
from experiments.tables import Run
from launch.tables import operations
from lmx import objectives
from lmx.cli import describe
from lmx.config import resolve
from lmx.engine import flops
from lmx.models import registry


def body(system: str, size: str) -> int:
  """Return the parameters without embeddings, as `lmx describe` counts them."""
  run = resolve.to_run(
    resolve.load(f'experiments/lineage/systems.py:{system},size={size}', ['data.manual_dir=D', 'model.V=8199'])
  )
  task = flops.Task(registry.get(run.model_name), run.model, objectives.get(run.objective_name), run.objective)
  return describe.counts(task)[1] - describe.embeddings(task)


@pytest.mark.parametrize(('size', 'millions'), [('mini', 3.16), ('small', 10.6), ('medium', 25.2), ('base', 85.1)])
def test_systems_of_a_size_have_equal_parameters(size, millions):
  counts = {system: body(system, size) for system in systems.SYSTEMS}
  assert counts['gpt2'] == pytest.approx(1e6 * millions, rel=0.01)
  assert {system: count for system, count in counts.items() if abs(count / counts['gpt2'] - 1) > 0.03} == {}


@pytest.mark.parametrize('size', systems.OPERATIONS)
def test_operations_are_those_of_describe(size):
  found = {}
  for system in systems.SYSTEMS:
    sizes = operations.sizes(Run('', f'experiments/lineage/systems.py:{system},size={size}'), {})['']
    count = operations.counts().get(operations.digest(sizes))
    if size == 'mini' or count:
      found[system] = systems.OPERATIONS[size][system] / count.operations
  assert found == dict.fromkeys(found, pytest.approx(1, abs=0.01))


def test_designs_have_equal_tokens_or_equal_operations():
  operations_of = systems.OPERATIONS['mini']
  for system in systems.SYSTEMS:
    size = systems.SIZES['mini']
    read = {design: size.tokens * systems.updates(system, 'mini', '4', design) for design in systems.DESIGNS}
    assert read['tokens'] == pytest.approx(4e6, rel=0.001)
    assert read['flops'] * operations_of[system] == pytest.approx(4e6 * operations_of['gpt2'], rel=0.001)
