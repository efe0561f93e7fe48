"""Bundles of Pallas kernels: libtpu's text, and the cycles of a call."""

from __future__ import annotations

import dataclasses
import functools
import json

import pytest

from lmx.compilation import bundles, hlo, report, slices
from lmx.kernels import score_rows

# A kernel as libtpu writes it: 2 bundles, then a loop of 12, whose body has a region of 3 and one of 2 bundles within a
# region that holds the whole body.
TEXT = """
LB: loop body
   0x0   :  { %0 = smov 0 } /* Start region 1 */
   0x1   :  { %1 = smov 0 }
   0x2 LB: > { %2 = sadd 1 }
   0x3   : > { %3 = sbr.rel (%p0) target = $region9 }
   0x4   : > { %4 = sbr.rel (%p1) target = $region5 }
   0x5   : > { %5 = vld }
   0x6   : > { %6 = vld }
   0x7   : > { %7 = vst } /* End region 4 */
   0x8 PF: > { %8 = vld } /* Start/End empty region 5 :: Start region 6 */
   0x9   : > { %9 = sbr.rel (%p2) target = $region7 }
   0xa   : > { %10 = vld }
   0xb   : > { %11 = vst }
   0xc PF: > { %12 = sadd 1 } /* Start region 7 */
   0xd PF: > { %13 = sbr.rel (!%p3) target = $region2 } /* Start region 9 :: End region 2 */
"""


def kernel(name, *schedule):
  metadata = score_rows.schedule(*schedule) if schedule else {}
  return hlo.Kernel(name, 1, f'jit(f)/{name}/pallas_call', ((1, 1, 64, 256),), metadata)


def test_regions_are_those_within_the_loop():
  assert bundles.parse(TEXT) == bundles.Bundles(before=2, body=12, regions=(3, 2))


def test_cycles_count_each_branch_in_the_steps_that_run_it(tmp_path):
  (tmp_path / '1790-kernel.2-03-final_bundles.txt').write_text(TEXT)
  (tmp_path / '1790-kernel.2-02-schedule-analysis_final_bundles.txt').write_text('')
  found = bundles.read(str(tmp_path))
  assert list(found) == ['kernel.2']
  count = lambda *schedule: bundles.cycles([kernel('kernel.2', *schedule)], found)[0]
  assert count(10) == 2 + 10 * 12
  assert count(10, [0.5, 0.25]) == 2 + 10 * (12 - 1.5 - 1.5)
  assert count(10, [0.5]) == 2 + 10 * (12 - 1.5)
  assert count() == bundles.cycles([kernel('another', 10)], found)[0] == 0


def test_equal_calls_are_scheduled_once(tmp_path):
  (tmp_path / '1790-kernel.2-03-final_bundles.txt').write_text(TEXT)
  same = dataclasses.replace(kernel('kernel.3', 10), op_name='jit(f)/second/kernel.2/pallas_call')
  other = dataclasses.replace(same, shapes=((1, 1, 64, 512),))
  found = bundles.read(str(tmp_path))
  assert bundles.cycles([other, same, kernel('kernel.2', 10)], found) == [0, 122, 122]


PROGRAM = """
ENTRY %main (x: bf16[1,1,64,256]) -> bf16[1,1,64,256] {
  %x = bf16[1,1,64,256]{3,2,1,0} parameter(0)
  %first = bf16[1,1,64,256]{3,2,1,0} custom-call(%x), custom_call_target="tpu_custom_call", SHAPES, NAME, METADATA
  ROOT %second = bf16[1,1,64,256]{3,2,1,0} custom-call(%first), custom_call_target="tpu_custom_call", SHAPES, NAME
}
"""


def test_cores_of_a_chip_share_a_kernel():
  assert [slices.CHIPS[name].cores for name in ('v4', 'v5e', 'v5p', 'tpu7x')] == [2, 1, 2, 1]


@pytest.mark.parametrize('topology', ['v5e-1', 'v5p-4'])
def test_report_says_how_each_call_was_counted(topology):
  shape = 'bf16[1,1,64,256]{3,2,1,0}'
  words = {
    'SHAPES': f'operand_layout_constraints={{{shape}, {shape}}}',
    'NAME': 'op_name="jit(f)/row_attention_forward/pallas_call"',
    'METADATA': f'kernel_metadata={json.dumps(score_rows.schedule(100))}',
  }
  text = functools.reduce(lambda text, word: text.replace(word, words[word]), words, PROGRAM)
  slice_ = slices.parse(topology)
  clock, peak, cores = slice_.chip.clock, slice_.chip.peak, slice_.chip.cores
  found = report.read(text, 1e9, slice_, scheduled={'first': bundles.Bundles(8, 50, ())})
  by_bundles, at_half_peak = (8 + 100 * 50) / clock / cores, 2 * 2 * 64 * 256 * 256 / (peak / 2)
  assert found['estimate']['pallas_seconds'] == pytest.approx(by_bundles + at_half_peak)
  about = dict.fromkeys(('model', 'topology', 'mode', 'dtype'), '') | {
    'mesh': {},
    'notes': [],
    'model_flops_per_chip': 1,
  }
  about |= dict.fromkeys(('parameters', 'rows', 'length', 'microbatches'), 1)
  kinds = '1 calls by their scheduled bundles, 1 calls without bundles at 50% of the peak'
  assert [line for line in report.lines(about | found) if line.endswith(kinds)]
  without = report.lines(about | report.read(text, 1e9, slice_))
  assert [line for line in without if line.endswith(' s; 2 calls without bundles at 50% of the peak')]


def test_dump_is_added_to_the_flags_that_are_set(monkeypatch):
  monkeypatch.setenv('LIBTPU_INIT_ARGS', '--one')
  assert bundles.flags('/there').startswith('--one --xla_jf_dump_to=/there ')


@pytest.mark.parametrize(('length', 'ends'), [(1024, [256, 512, 768, 1024]), (256, [256])])
def test_keys_end_at_the_last_that_a_block_attends_to(length, ends):
  assert score_rows.ends(range(256, length + 256, 256), length) == ends


def test_a_kernel_has_few_branches():
  of_block = score_rows.ends(range(128, 4096 + 128, 128), 4096)
  assert len(set(of_block)) == score_rows.BRANCHES
  assert all(end >= 128 * (i + 1) for i, end in enumerate(of_block))
