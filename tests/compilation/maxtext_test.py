"""The record of MaxText's compiled steps: its page, MaxText's settings, and the schedule of splash kernels."""

from __future__ import annotations

import json
import types

import numpy as np
import pytest

from benchmarks import maxtext
from lmx.compilation import bundles, hlo
from tests.experiments_test import to_run

BLOCKS = {f'block_{name}': 512 for name in ('q', 'kv', 'q_dkv', 'kv_dkv')}
# Regions of kernels that libtpu 0.0.46.3 compiles for v5e: start, bodies, end.
SPLASH, TOKAMAX = (198, 1229, 509), (198, 1178, 1193, 361)
NAME = 'splash_mha_fwd_segmented_residuals'
METADATA = json.dumps(json.dumps(BLOCKS | {'layout': {'q': 1}}))
PROGRAM = f"""HloModule jit_train_step

ENTRY %main (x: bf16[8,12,1024,64]) -> bf16[8,12,1024,64] {{
  %x = bf16[8,12,1024,64]{{3,2,1,0}} parameter(0)
  ROOT %{NAME}.8 = bf16[8,12,1024,64]{{3,2,1,0}} custom-call(%x, %x), custom_call_target="tpu_custom_call", \
operand_layout_constraints={{s8[1,2,2]{{2,1,0}}, bf16[8,12,1024,64]{{3,2,1,0}}}}, \
frontend_attributes={{kernel_metadata={{
"xprof_metadata":{METADATA}
}}}}, metadata={{op_name="jit(f)/{NAME}/pallas_call"}}
}}
"""


def row(**changed):
  named = dict(program='MaxText', size='124m', topology='v5e-16', layers='scanned', attention='splash', version='1')
  figures = dict(jax='2', libtpu='3', gib='4.00', compute_s='0.1', attention_s='0.02', collectives_s='0.03')
  return named | figures | changed


def test_page_prints_the_record():
  assert maxtext.PAGE.read_text() == maxtext.page(), 'run python -m benchmarks.maxtext'
  assert {(one['size'], one['topology']) for one in maxtext.rows()} <= maxtext.CONFIGS.keys()


@pytest.mark.parametrize(('size', 'topology'), maxtext.CONFIGS)
def test_maxtext_has_the_shapes_of_the_recipe(size, topology):
  config, options, rows = maxtext.CONFIGS[size, topology]
  overrides = [option.removeprefix('--config.') for option in options.split()]
  run = to_run(f'experiments/{config}', *overrides)
  model, chips = run.model, int(topology.rpartition('-')[2])
  given = dict(option.split('=', 1) for option in maxtext.settings(row(size=size, topology=topology)))
  expected = {
    'base_emb_dim': model.D,
    'base_num_decoder_layers': model.N,
    'base_num_query_heads': model.H,
    'vocab_size': model.V,
    'trainable_position_size': model.T,
    'max_target_length': run.data.length,
    'dtype': model.dtype,
    'logits_via_embedding': model.tied,
    'gradient_clipping_threshold': run.optim.clip_norm,
    'opt_type': run.optim.optimizer,
    'scan_layers': True,
    'ici_fsdp_parallelism': chips if run.parallel.fsdp == -1 else 1,
  }
  assert given.items() >= {key: str(value) for key, value in expected.items()}.items()
  assert run.data.batch_size == rows * chips and int(given['per_device_batch_size']) == rows
  assert (given['remat_policy'] == 'full') == (model.remat == 'full')


@pytest.mark.parametrize(('queries', 'keys'), [(512, 512), (256, 512), (512, 128), (1024, 1024)])
def test_visible_blocks_are_those_of_the_mask(queries, keys):
  mask = np.tril(np.ones((1024, 1024), bool)).reshape(1024 // queries, queries, 1024 // keys, keys)
  whole = mask.all((1, 3)).sum()
  assert maxtext.blocks(1024, queries, keys) == (whole, mask.any((1, 3)).sum() - whole)


def test_bodies_run_for_visible_blocks():
  def cycles(kernel, sizes, *, is_tokamax=False, rest=100):
    steps, *shares = maxtext.schedule(kernel, BLOCKS, 96, 1024, sizes, is_tokamax=is_tokamax)
    return bundles.Bundles(7, rest + sum(sizes), sizes).cycles(steps, shares)

  # A start and an end for each of 2 blocks of queries; 2 blocks that the mask divides, and a whole one.
  assert cycles('splash_mha_fwd', SPLASH) == pytest.approx(7 + 96 * (4 * 100 + 2 * 198 + 3 * 1229 + 2 * 509))
  assert cycles('splash_mha_dkv', (2388,)) == pytest.approx(7 + 96 * (4 * 100 + 3 * 2388))
  expected = 7 + 96 * (3 * 100 + 2 * 198 + 1178 + 2 * 1193 + 2 * 361)
  assert cycles('splash_mha_fwd', TOKAMAX, is_tokamax=True) == pytest.approx(expected)
  expected = 7 + 96 * (4 * 100 + 2 * 134 + 2408 + 2 * 2399)
  assert cycles('splash_mha_dkv', (134, 2408, 2399), is_tokamax=True) == pytest.approx(expected)
  unequal = BLOCKS | {'block_q_dkv': 256}  # 4 blocks of queries, of which 2 see the second of 2 blocks of keys
  steps = maxtext.schedule('splash_mha_dkv', unequal, 1, 1024, (9, 99, 9), is_tokamax=False)
  assert steps == [8, 2 / 8, 6 / 8, 2 / 8]
  with pytest.raises(ValueError, match='splash_mha_dq'):
    cycles('splash_mha_dq', SPLASH)
  with pytest.raises(ValueError, match='got 1 regions; expected at least 2'):
    cycles('splash_mha_fwd', (198,), is_tokamax=True)


def test_a_body_is_a_region_however_large():
  lines = ['{ %0 = smov 0 }', '> { %1 = sbr.rel (%p0) target = $region9 }', '> { sbr.rel (%p1) target = $region5 }']
  lines += ['> { %2 = vld }'] * 90 + ['> { %3 = sadd 1 } /* Start region 5 */', '> { } /* Start region 9 */']
  text = '\n'.join(f'   {address:#x}   : {line}' for address, line in enumerate(lines)).replace('0x0 ', '0 ')
  assert maxtext.regions(text) == (90,)


@pytest.mark.parametrize(('sizes', 'attention'), [(SPLASH, 'splash'), (TOKAMAX, 'tokamax')])
def test_kernels_declare_their_schedule(sizes, attention):
  assert hlo.Program(PROGRAM).kernels()[0].metadata.keys() == {'xprof_metadata'}
  found = {f'{NAME}.3': bundles.Bundles(7, 3000, sizes)}  # of another call
  text = maxtext.with_schedules(PROGRAM, found, is_tokamax=attention == 'tokamax')
  kernels = hlo.Program(text).kernels()
  steps, *shares = maxtext.schedule(NAME, BLOCKS, 96, 1024, sizes, is_tokamax=attention == 'tokamax')
  assert json.loads(kernels[0].metadata['schedule']) == [steps, *shares]
  assert bundles.cycles(kernels, {f'{NAME}.8': found[f'{NAME}.3']})[0] > 96 * 3 * 1100


def test_a_report_that_does_not_count_everything_is_refused():
  estimate = dict(compute_seconds=0.1, collective_seconds=0.03, pallas_seconds=0.02, pallas_calls_at_half_peak=0)
  report = dict(estimate=estimate, pallas_calls_not_counted=0, loops_of_unknown_length=0, communicated=996e6)
  report |= dict(memory={'total': 2**32})
  versions = types.SimpleNamespace(version=lambda name: f'{name} 1')
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(maxtext.importlib, 'metadata', versions)
    found = maxtext.figures(report)
    assert found.items() >= {'gib': '4.00', 'collectives_mb': '996', 'compute_s': '0.1000'}.items()
    for key in ('pallas_calls_not_counted', 'loops_of_unknown_length'):
      with pytest.raises(ValueError, match='without bundles'):
        maxtext.figures(report | {key: 1})


def test_page_compares_equal_steps():
  record = [row(program='lmx', compute_s='0.05'), row(), row(topology='v5e-256', program='lmx'), row(compute_s='')]
  ours, peer, _ = maxtext.page_lines(record)[2:]
  assert '| 0.0500 | 0.0800 | - |' in ours and '| 0.1000 | 0.1300 | 2.00, 1.62 |' in peer
