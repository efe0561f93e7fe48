"""Every variant of the experiments on pods of TPUs: the rows of its batch on 64 and 256 devices, none of which is one.

Run as a program, with as many simulated devices, it prints a line of JSON for each variant.
"""

from __future__ import annotations

import json

import jax

from lmx.compilation import program
from lmx.data.batching.base import round_up
from lmx.engine import sharding
from lmx.models import registry
from lmx.runs import training
from tests.experiments_test import to_run, variants

CHIPS = (64, 256)


def division(run, chips: int) -> dict[str, int]:
  """Rows of the batch with and without those of padding, and of each device in a microbatch."""
  engine = sharding.Engine(run.parallel, jax.devices()[:chips])
  rows = program.assumed_rows(run)
  found = training.divide((rows,), 1, run.optim.accumulate, engine.row_shards)
  padded = round_up(rows, found.multiple)
  mine = engine.process_rows(padded)
  assert (mine.start, mine.stop) == (0, padded)
  state = jax.eval_shape(lambda: registry.get(run.model_name).init_state(run.model, padded))
  for x in jax.tree.leaves(engine.abstract((), state)[1]):
    assert x.sharding.shard_shape(x.shape)[0] == padded // engine.row_shards
  share, rest = divmod(padded, engine.row_shards * found.microbatches)
  assert not rest
  return {'chips': chips, 'rows': rows, 'padded': padded, 'share': share}


def main() -> None:
  for path, variant in variants():
    run = to_run(f'{path}:{variant}')
    for chips in CHIPS:
      print(json.dumps({'variant': f'{path}:{variant}'} | division(run, chips)), flush=True)


if __name__ == '__main__':
  main()
