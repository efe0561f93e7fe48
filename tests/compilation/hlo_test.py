"""Reading of HLO text: loops multiply, fusions store nothing, a channel counts once; and of a program compiled here."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from lmx.compilation import hlo, report, slices

TEXT = """HloModule jit_step

%fused (p0: bf16[8,16], p1: bf16[16,32]) -> f32[8,32] {
  %p0 = bf16[8,16]{1,0} parameter(0)
  %p1 = bf16[16,32]{1,0} parameter(1)
  ROOT %dot.1 = f32[8,32]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (state: (s32[], f32[8,32])) -> (s32[], f32[8,32]) {
  %state = (s32[], f32[8,32]{1,0}) parameter(0)
  %a = bf16[8,16]{1,0} constant({...})
  %b = bf16[16,32]{1,0} constant({...})
  %fusion.1 = f32[8,32]{1,0:T(8)} fusion(%a, %b), calls=%fused, metadata={op_name="f/dot"}, x={"estimated_cycles":"100"}
  %all-reduce.1 = f32[8,32]{1,0} all-reduce(%fusion.1), channel_id=1, to_apply=%add, metadata={op_name="f/psum"}
  ROOT %tuple.1 = (s32[], f32[8,32]{1,0}) tuple(%i, %all-reduce.1)
}

%condition (state: (s32[], f32[8,32])) -> pred[] {
  %state.1 = (s32[], f32[8,32]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  %n = s32[] constant(12)
  ROOT %less = pred[] compare(%i.1, %n), direction=LT
}

ENTRY %main (x: f32[4,6]) -> f32[8,32] {
  %x = f32[4,6]{1,0} parameter(0)
  %y = f32[6,10]{1,0} constant({...})
  %dot.2 = f32[4,10]{1,0} dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %start = (f32[4,10]{1,0}, f32[16,10]{1,0}) all-gather-start(%dot.2), channel_id=2, dimensions={0}
  %done = f32[16,10]{1,0} all-gather-done(%start), channel_id=2
  %loop = (s32[], f32[8,32]{1,0}) while(%init), condition=%condition, body=%body
  %kernel = bf16[64,128]{1,0} custom-call(%x), custom_call_target="tpu_custom_call"
  ROOT %result = f32[8,32]{1,0} get-tuple-element(%loop), index=1
}
"""


def test_loop_body_counts_trip_count_times():
  program = hlo.Program(TEXT)
  assert program.runs['body'] == program.runs['fused'] == 12 and program.runs['main'] == 1
  assert program.unknown_loops == 0
  assert program.products() == {'bf16': 12 * 2 * 8 * 32 * 16, 'f32': 2 * 4 * 10 * 6}
  assert hlo.float32_share(program.products()) == pytest.approx(480 / (12 * 8192 + 480))
  assert program.cycles()['f/dot'] == 1200


def test_known_trip_count_is_used():
  given = TEXT.replace('body=%body', 'body=%body, backend_config={"known_trip_count":{"n":"5"}}')
  assert hlo.Program(given).runs['body'] == 5


def test_loop_of_unknown_length_counts_once_and_is_reported():
  program = hlo.Program(TEXT.replace('constant(12)', 'add(%i.1, %i.1)'))
  assert program.runs['body'] == 1 and program.unknown_loops == 1


def test_loop_of_an_adaptive_softmax_counts_as_expected():
  name = 'f/transpose(jvp(expected_trips_3))/while'
  given = TEXT.replace('constant(12)', 'add(%i.1, %i.1)').replace('body=%body', f'body=%body, op_name="{name}"')
  program = hlo.Program(given)
  assert (program.runs['body'], program.expected_loops, program.unknown_loops) == (3, 1, 0)
  assert hlo.Program(given.replace('/while', '/while/body/other')).unknown_loops == 1


def test_kernel_metadata_may_contain_brackets():
  """Splash attention's are JSON in JSON."""
  text = r'custom-call(%q), frontend_attributes={kernel_metadata={"xprof_metadata":"{\"block_q\": 512}"}}, metadata={}'
  assert hlo.metadata(text) == {'xprof_metadata': '{"block_q": 512}'}


def test_collective_counts_its_larger_side_once_per_channel():
  reduce, gather = hlo.Program(TEXT).collectives()
  assert (reduce.kind, reduce.count, reduce.size, reduce.total) == ('all-reduce', 12, 1024, 12 * 1024)
  assert reduce.op_name == 'f/psum'
  assert (gather.kind, gather.count, gather.size) == ('all-gather', 1, 640)  # 16 x 10, not with its operand


def test_split_collective_counts_once():
  two = TEXT.replace(
    '  ROOT %tuple.1',
    '  %all-reduce.2 = f32[8,32]{1,0} all-reduce(%all-reduce.1), channel_id=1, to_apply=%add\n  ROOT %tuple.1',
  )
  assert [one.count for one in hlo.Program(two).collectives()] == [12, 12, 1]
  part = TEXT.replace(
    '  %done =', '  %part = f32[8,32]{1,0} all-reduce(%result), channel_id=1, to_apply=%add\n  %done ='
  )
  assert [one.count for one in hlo.Program(part).collectives()] == [1, 1]


def test_collective_on_a_sparse_core_counts():
  """Of a TPU7x, whose reductions run in a called computation."""
  text = """HloModule jit_step

%called (x: f32[8,4], t: token[]) -> f32[2,4] {
  %t = token[] parameter(1)
  %x = f32[8,4]{1,0} parameter(0)
  ROOT %scatter = f32[2,4]{1,0} reduce-scatter(%x), channel_id=3, replica_groups={{0,1,2,3}}, to_apply=%add
}, execution_thread="sparsecore"

ENTRY %main (y: f32[8,4]) -> f32[2,4] {
  %y = f32[8,4]{1,0} parameter(0)
  %start = ((f32[8,4]{1,0}, token[]), f32[2,4]{1,0}) call-start(%y), async_execution_thread="sparsecore", \
to_apply=%called
  ROOT %done = f32[2,4]{1,0} call-done(%start)
}
"""
  (found,) = hlo.Program(text).collectives()
  assert (found.kind, found.count, found.size) == ('reduce-scatter', 1, 4 * 32)


def test_equal_collectives_of_a_partitioned_program_count_once():
  line = (
    '  %all-reduce.1 = f32[8,32]{1,0} all-reduce(%fusion.1), channel_id=1, to_apply=%add, metadata={op_name="f/psum"}\n'
  )
  assert line in TEXT
  again = hlo.Program(TEXT.replace(line, line + line.replace('.1 =', '.2 =').replace('channel_id=1', 'channel_id=3')))
  assert [one.count for one in again.collectives()] == [12, 12, 1]
  assert [one.count for one in again.collectives(merged=True)] == [12, 1]


def test_all_reduce_fused_with_the_slice_of_its_result_is_a_reduce_scatter():
  fused = TEXT.replace('%body', '%all-reduce-scatter.1').replace('all-reduce-scatter.1, x', 'body, x')
  assert [one.kind for one in hlo.Program(fused).collectives()] == ['reduce-scatter', 'all-gather']
  two = fused.replace('ROOT %result', '%again = f32[8,32]{1,0} fusion(%x), calls=%all-reduce-scatter.2\n  ROOT %result')
  other = """
%all-reduce-scatter.2 (p: f32[8,32]) -> f32[8,32] {
  %p = f32[8,32]{1,0} parameter(0)
  ROOT %all-reduce.9 = f32[8,32]{1,0} all-reduce(%p), channel_id=1, to_apply=%add
}
"""  # of the same channel
  kinds = [one.kind for one in hlo.Program(two.replace('\nENTRY', f'{other}\nENTRY')).collectives()]
  assert kinds == ['reduce-scatter', 'reduce-scatter', 'all-gather']


@pytest.mark.parametrize(
  'text, wanted',
  [
    ('replica_groups={{0,1},{2,3}}, dimensions={0}', ((0, 1), (2, 3))),
    ('source_target_pairs={{0,1},{1,0}}', ((0, 1), (1, 0))),
    ('replica_groups=[2,3]<=[6], dimensions={0}', ((0, 1, 2), (3, 4, 5))),
    ('replica_groups=[2,3]<=[3,2]T(1,0), dimensions={0}', ((0, 2, 4), (1, 3, 5))),
    ("replica_groups=mesh['a'=2,'b'=3] {'b'}, dimensions={0}", ((0, 1, 2), (3, 4, 5))),
    ("replica_groups=mesh['a'=2,'b'=3] {'a','b'}", ((0, 1, 2, 3, 4, 5),)),
    ("replica_groups=mesh['a'=3,'b'=2], device_ids=([2,3]T(1,0)) {'a'}, dimensions={0}", ((0, 1, 2), (3, 4, 5))),
    ("replica_groups=mesh['a'=4,'b'=2] {'a':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
    ('replica_groups={}, dimensions={0}', ()),
  ],
)
def test_replica_groups(text, wanted):
  assert hlo.groups(text) == wanted


def test_cross_slice_traffic_is_reported_separately():
  """Two slices of 4 chips. All 8 reduce 1,024 bytes: a chip sends on a quarter; those of a slice gather 640."""
  groups = ('{0,1,2,3,4,5,6,7}', '{0,1,2,3},{4,5,6,7}')
  text = TEXT
  for channel, group in enumerate(groups, 1):
    text = text.replace(f'channel_id={channel}, ', f'channel_id={channel}, replica_groups={{{group}}}, ')
  of = lambda topology, text: report.read(text, 1.0, slices.parse(topology), estimated=False)
  two = of('2xv5e-4', text)
  within = {'all-reduce': {'count': 12, 'bytes': 12 * 1024}, 'all-gather': {'count': 1, 'bytes': 640}}
  assert two['collectives'] == within == of('v5e-8', text)['collectives']
  assert two['between_slices'] == {'all-reduce': {'count': 12, 'bytes': 12 * 256}}
  assert two['communicated'] == 12 * 1024 + 640 and not of('v5e-8', text)['between_slices']
  across = text.replace(groups[0], '{0,4},{1,5},{2,6},{3,7}')  # chips of different slices alone
  assert of('2xv5e-4', across)['collectives'].keys() == {'all-gather'}
  assert of('2xv5e-4', across)['between_slices'] == {'all-reduce': {'count': 12, 'bytes': 12 * 1024}}
  compiled = text.replace('all-reduce(%fusion.1), channel_id=1', 'send(%fusion.1, %token), channel_id=1').replace(
    'metadata={op_name="f/psum"}',
    '_xla_host_transfer_handler_name="xla_megascale_runtime",_xla_megascale_transfer_type="ALL_REDUCE"',
  )
  assert of('2xv5e-4', compiled)['between_slices'] == {'all-reduce': {'count': 12, 'bytes': 12 * 1024}}
  assert of('2xv5e-4', compiled)['collectives'].keys() == {'all-gather'}


def test_only_materialised_arrays_count():
  arrays = hlo.Program(TEXT).arrays()
  assert arrays[0][:2] == (64 * 128 * 2, 'bf16[64,128]{1,0}')
  assert (1024, 'f32[8,32]{1,0:T(8)}', 'f/dot') in arrays
  assert not any('dot.1' in shape or 'parameter' in shape for _, shape, _ in arrays)
  assert [kernel.count for kernel in hlo.Program(TEXT).kernels()] == [1]


@pytest.mark.parametrize(
  'text, size',
  [('bf16[3,5]', 30), ('(f32[2], s8[4])', 12), ('pred[7]', 7), ('f8e4m3fn[10]', 10), ('c64[2]', 16), ('u32[]', 4)],
)
def test_type_sizes(text, size):
  assert hlo.size(text) == size


def test_convolution_counts_overlapping_pairs():
  """Of a window of 3 over 8 positions padded by 1, the two at the ends meet 2 inputs."""
  x, kernel = jnp.zeros((2, 8, 5)), jnp.zeros((3, 5, 7))
  convolve = lambda x, k: jax.lax.conv_general_dilated(x, k, (1,), 'SAME', dimension_numbers=('NWC', 'WIO', 'NWC'))
  text = jax.jit(convolve).lower(x, kernel).compile().as_text()
  assert hlo.Program(text).products() == {'f32': 2 * 2 * 7 * 5 * (3 * 8 - 2)}


def test_locally_compiled_sharded_program():
  """The shapes are those of one device; the sum over 8 shards of a contraction is one all-reduce."""
  mesh = jax.make_mesh((8,), ('data',), axis_types=(AxisType.Auto,))
  rows = NamedSharding(mesh, PartitionSpec('data'))
  whole = NamedSharding(mesh, PartitionSpec())
  step = jax.jit(lambda x: x.T @ x, out_shardings=whole)
  text = step.lower(jax.ShapeDtypeStruct((16, 32), np.float32, sharding=rows)).compile().as_text()
  program = hlo.Program(text)
  assert program.products() == {'f32': 2 * 32 * 32 * 2}
  (one,) = program.collectives()
  assert (one.kind, one.count, one.size) == ('all-reduce', 1, 32 * 32 * 4)
