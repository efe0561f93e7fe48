"""Names of NVIDIA servers, and cuDNN's kernels in a program."""

from __future__ import annotations

import dataclasses

import pytest

from lmx.compilation import cards, hlo, report, roofline, slices, topology
from lmx.errors import InputError
from lmx.kernels import chunked_attention, triton

ATTENTION = """HloModule jit_step

ENTRY %main (q: bf16[2,8,3,16], k: bf16[2,12,3,16]) -> bf16[2,3,8,16] {
  %q = bf16[2,8,3,16]{3,2,1,0} parameter(0)
  %k = bf16[2,12,3,16]{3,2,1,0} parameter(1)
  %f = (bf16[2,3,8,16]{3,1,2,0}, u8[0]{0}) custom-call(%q, %k), custom_call_target="__cudnn$fmhaScaleBiasSoftmax", \
backend_config={"intermediate_tensor_shape": {"element_type": "BF16", "dimensions": ["2", "3", "8", "12"]}}
  ROOT %b = (bf16[2,3,8,16]{3,1,2,0}, u8[0]{0}) custom-call(%q, %k), custom_call_target="__cudnn$fmhaSoftmaxBackward", \
backend_config={"intermediate_tensor_shape": {"element_type": "BF16", "dimensions": ["2", "3", "8", "12"]}}
}
"""
GATHER = """HloModule jit_step

%pick (all: bf16[8,96], ids: s32[8]) -> (f32[8], bf16[8,90]) {
  %all = bf16[8,96]{1,0} parameter(0)
  %ids = s32[8]{0} parameter(1)
  %real = bf16[8,90]{1,0} slice(%all), slice={[0:8], [0:90]}
  %float = f32[8,90]{1,0} convert(%real)
  ROOT %found = f32[8]{0} gather(%float, %ids), slice_sizes={1,1}
}

%double (all.1: bf16[8,96]) -> bf16[8,90] {
  %all.1 = bf16[8,96]{1,0} parameter(0)
  %real.1 = bf16[8,90]{1,0} slice(%all.1), slice={[0:8], [0:90]}
  ROOT %sum = bf16[8,90]{1,0} add(%real.1, %real.1)
}

%cast (all.2: bf16[8,90]) -> f32[8,90] {
  %all.2 = bf16[8,90]{1,0} parameter(0)
  ROOT %float.1 = f32[8,90]{1,0} convert(%all.2)
}

ENTRY %main (a: bf16[8,96], i: s32[8]) -> f32[8,90] {
  %a = bf16[8,96]{1,0} parameter(0)
  %i = s32[8]{0} parameter(1)
  %targets = f32[8]{0} fusion(%a, %i), calls=%pick
  %twice = bf16[8,90]{1,0} fusion(%a), calls=%double
  ROOT %whole = f32[8,90]{1,0} fusion(%twice), calls=%cast
}
"""
TRITON = """HloModule jit_step

ENTRY %main (q: f32[2,3]) -> f32[2,3] {
  %q = f32[2,3]{1,0} parameter(0)
  %o = f32[2,3]{1,0} custom-call(%q), custom_call_target="__gpu$xla.gpu.triton", \
operand_layout_constraints={f32[2,3]{1,0}}, metadata={op_name="jit(f)/flash_attention/pallas_call"}, \
backend_config={ir = "ML\\EFR\\0D{", name = "body", serialized_metadata = "{\\22cost\\22: \\22[70000, 3000]\\22}"}
  ROOT %p = f32[2,3]{1,0} custom-call(%o), custom_call_target="triton_kernel_call_ffi", \
operand_layout_constraints={f32[2,3]{1,0}}, metadata={op_name="jit(f)/other/pallas_call"}, backend_config={name = "b"}
}
"""
CUBLAS = """HloModule jit_step

ENTRY %main (x: f32[8,5], w: f32[6,5]) -> (f32[8,6], s8[16]) {
  %x = f32[8,5]{1,0} parameter(0)
  %w = f32[6,5]{1,0} parameter(1)
  ROOT %y = (f32[8,6]{1,0}, s8[16]{0}) custom-call(%x, %w), custom_call_target="__cublas$lt$matmul", \
metadata={op_name="jit(f)/attention/BTHK,BSHK->BHTS/dot_general"}, backend_config={"gemm_backend_config":\
{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["1"]}}}
}
"""
LSTM = """HloModule jit_step

ENTRY %main (x: f32[2,7,5], h: f32[1,2,3]) -> f32[2,7,3] {
  %x = f32[2,7,5]{2,1,0} parameter(0)
  %h = f32[1,2,3]{2,1,0} parameter(1)
  %y = (f32[2,7,3]{2,1,0}, f32[336]{0}) custom-call(%x, %h, %h), custom_call_target="cudnn_rnn_ffi"
  %dy = f32[2,7,3]{2,1,0} get-tuple-element(%y), index=0
  ROOT %d = (f32[2,7,5]{2,1,0}) custom-call(%dy, %h, %h, %x, %h, %h), custom_call_target="cudnn_rnn_bwd_ffi"
}
"""
KERNELS = """HloModule jit_step

%product (p: bf16[64,64], w: bf16[64,64]) -> f32[64,64] {
  %p = bf16[64,64]{1,0} parameter(0)
  %w = bf16[64,64]{1,0} parameter(1)
  ROOT %dot = f32[64,64]{1,0} dot(%p, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%store (all: f32[12,64,64], one: f32[64,64], i: s32[]) -> f32[12,64,64] {
  %all = f32[12,64,64]{2,1,0} parameter(0)
  %one = f32[64,64]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %row = f32[1,64,64]{2,1,0} bitcast(%one)
  ROOT %update = f32[12,64,64]{2,1,0} dynamic-update-slice(%all, %row, %i, %i, %i)
}

%load (all.1: bf16[12,64,64], i.1: s32[]) -> bf16[1,64,64] {
  %all.1 = bf16[12,64,64]{2,1,0} parameter(0)
  %i.1 = s32[] parameter(1)
  ROOT %slice = bf16[1,64,64]{2,1,0} dynamic-slice(%all.1, %i.1, %i.1, %i.1), dynamic_slice_sizes={1,64,64}
}

%body (state: (bf16[12,64,64], f32[12,64,64], s32[])) -> (bf16[12,64,64], f32[12,64,64], s32[]) {
  %state = (bf16[12,64,64], f32[12,64,64], s32[]) parameter(0)
  %all.2 = bf16[12,64,64]{2,1,0} get-tuple-element(%state), index=0
  %out = f32[12,64,64]{2,1,0} get-tuple-element(%state), index=1
  %i.2 = s32[] get-tuple-element(%state), index=2
  %fusion.1 = bf16[1,64,64]{2,1,0} fusion(%all.2, %i.2), calls=%load
  %x = bf16[64,64]{1,0} bitcast(%fusion.1)
  %fusion.2 = f32[64,64]{1,0} fusion(%x, %x), calls=%product
  %fusion.3 = f32[12,64,64]{2,1,0} fusion(%out, %fusion.2, %i.2), calls=%store
  %reduced = f32[64,64]{1,0} all-reduce(%fusion.2), channel_id=1, to_apply=%add
  ROOT %tuple.1 = (bf16[12,64,64], f32[12,64,64], s32[]) tuple(%all.2, %fusion.3, %i.2)
}

ENTRY %main (a: bf16[12,64,64]) -> f32[12,64,64] {
  %a = bf16[12,64,64]{2,1,0} parameter(0)
  %loop = (bf16[12,64,64], f32[12,64,64], s32[]) while(%init), condition=%c, body=%body, \
backend_config={"known_trip_count":{"n":"12"}}
  %loop.1 = f32[12,64,64]{2,1,0} get-tuple-element(%loop), index=1
  ROOT %copy = f32[12,64,64]{2,1,0} copy(%loop.1)
}
"""


@pytest.mark.parametrize('text', ['h100x8', 'h100x1', 'a100x4', 'h200x8', 'b200x2'])
def test_server_is_read(text):
  server = slices.parse(text)
  assert isinstance(server, cards.Server) and str(server) == text and server.chips == int(text[-1])


@pytest.mark.parametrize('text', ['h100', 'h100-8', 'h100x3', 'h100x16', 'a1000x8', 'h100x8\n'])
def test_another_server_is_rejected(text):
  with pytest.raises(InputError, match='one of h100, h200, b200, a100 and x1, x2, x4 or x8') as error:
    slices.parse(text)
  assert ('did you mean "a100"?' in str(error.value)) == text.startswith('a1000')


@pytest.mark.parametrize(
  'google, text',
  [('h100-80gb-8', 'h100x8'), ('h100-mega-80gb-8', 'h100x8'), ('h200-141gb-8', 'h200x8'), ('b200-8', 'b200x8')],
)
def test_server_is_read_by_its_name_in_google_cloud(google, text):
  assert slices.parse(google) == slices.parse(text)


def test_without_the_compiler_the_extra_is_reported(monkeypatch):
  monkeypatch.setattr(topology, 'is_installed', lambda name: name != 'nvidia.cudnn')
  with pytest.raises(InputError, match=r"nvidia.cudnn not installed.*pip install 'lmx\[cuda12-aot\]'"):
    topology.devices(slices.parse('h100x8'))


def test_attention_kernel_is_named_and_counted():
  program = hlo.Program(ATTENTION)
  assert program.attention() == {'__cudnn$fmhaScaleBiasSoftmax': 1, '__cudnn$fmhaSoftmaxBackward': 1}
  scores = 2 * 3 * 8 * 12
  assert program.products() == {'bf16': (2 + 5) * 2 * scores * 16}


def test_cublas_product_is_counted():
  assert hlo.Program(CUBLAS).products() == {'f32': 2 * 8 * 6 * 5}
  assert hlo.Program(CUBLAS).attention() == {'plain products': 1}
  chunked = CUBLAS.replace('BTHK,BSHK->BHTS', f'{chunked_attention.SCOPE}/BQHK,BCHK->BHQC')
  assert hlo.Program(chunked).attention() == {'products of chunked_attention': 1}


def test_lstm_counts_one_forward_and_two_backward():
  assert hlo.Program(LSTM).products() == {'f32': 3 * 2 * (2 * 7) * (4 * 3) * (5 + 3)}
  assert not hlo.Program(LSTM).attention()


def test_autotuned_choices_are_reported():
  card = cards.CARDS['h100']
  few, many = (cards.notes(text, n, card) for text, n in ((LSTM, 2**30), (ATTENTION, 70 * 2**30)))
  assert any('LSTM are assumed' in note for note in few) and not any('MEM_FRACTION' in note for note in few)
  assert any('workspace of cuDNN' in note for note in many) and any('MEM_FRACTION' in note for note in many)


def test_roofline_time_is_bound_by_flops_or_bytes():
  """Of stacked arrays a loop reads and writes one layer at a time."""
  square, scalar = 64 * 64, 4
  card = dataclasses.replace(cards.CARDS['h100'], bandwidth=1.0, peak=1e30)
  load, product, store = 4 * square, 2 * 2 * square + 4 * square, 8 * square
  moved = 12 * (load + product + store) + 2 * 4 * 12 * square  # the last is the copy
  cost = roofline.cost(hlo.Program(KERNELS), card)
  assert cost.seconds == cost.moved == pytest.approx(moved, abs=12 * 3 * scalar) and cost.kernels == 12 * 3 + 1
  card = dataclasses.replace(card, bandwidth=1e30, peak=1.0)
  assert roofline.cost(hlo.Program(KERNELS), card).seconds == pytest.approx(12 * 2 * 64**3)


def test_gather_behind_views_reads_its_elements():
  cost = roofline.cost(hlo.Program(GATHER), dataclasses.replace(cards.CARDS['h100'], bandwidth=1.0))
  ids, found, doubled = 4 * 8, 4 * 8, 2 * 8 * 90
  assert cost.moved == (ids + 2 * 8 + found) + 2 * doubled + (doubled + 2 * doubled)


def test_triton_kernel_costs_what_it_declares():
  card = dataclasses.replace(cards.CARDS['h100'], bandwidth=1.0, peak=10.0)
  assert roofline.cost(hlo.Program(TRITON), card) == (7e4 / 10 + 4 * 6 * 2, 3e3 + 4 * 6 * 2, 2)
  kernels = hlo.Program(TRITON).kernels()
  assert [triton.declared(one.metadata) for one in kernels] == [(70000, 3000), None]
  report_ = report.read(TRITON, 0.0, slices.parse('h100x1'))
  assert report_['pallas_flops_per_chip'] == report_['program_flops_per_chip'] == 7e4
  assert report_['pallas_calls_not_counted'] == 1
  assert report_['attention'] == {'flash_attention': 1}


@pytest.mark.parametrize('name, text', [('h100', '__gpu$xla.gpu.triton'), ('a100', 'triton_kernel_call_ffi')])
def test_capability_of_triton_kernels_is_reported(name, text):
  (note,) = [note for note in cards.notes(text, 0, cards.CARDS[name]) if 'Triton' in note]
  assert ('not for 8.0' in note) == (name == 'a100') and 'compute capability 9.0' in note
