"""Names of NVIDIA servers, and cuDNN's kernels in a program."""

from __future__ import annotations

import pytest

from lmx.compilation import cards, hlo, slices, topology
from lmx.errors import InputError

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
LSTM = """HloModule jit_step

ENTRY %main (x: f32[2,7,5], h: f32[1,2,3]) -> f32[2,7,3] {
  %x = f32[2,7,5]{2,1,0} parameter(0)
  %h = f32[1,2,3]{2,1,0} parameter(1)
  %y = (f32[2,7,3]{2,1,0}, f32[336]{0}) custom-call(%x, %h, %h), custom_call_target="cudnn_rnn_ffi"
  %dy = f32[2,7,3]{2,1,0} get-tuple-element(%y), index=0
  ROOT %d = (f32[2,7,5]{2,1,0}) custom-call(%dy, %h, %h, %x, %h, %h), custom_call_target="cudnn_rnn_bwd_ffi"
}
"""


@pytest.mark.parametrize('text', ['h100x8', 'h100x1', 'a100x4'])
def test_a_server_is_read(text):
  server = slices.parse(text)
  assert isinstance(server, cards.Server) and str(server) == text and server.chips == int(text[-1])


@pytest.mark.parametrize('text', ['h100', 'h100-8', 'h100x3', 'h100x16', 'a1000x8', 'h100x8\n'])
def test_another_server_is_refused(text):
  with pytest.raises(InputError, match='one of h100, a100 and x1, x2, x4 or x8'):
    slices.parse(text)


def test_without_the_compiler_the_extra_is_named(monkeypatch):
  monkeypatch.setattr(topology, 'is_installed', lambda name: name != 'nvidia.cudnn')
  with pytest.raises(InputError, match=r"nvidia.cudnn not installed.*pip install 'lmx\[cuda12-aot\]'"):
    topology.devices(slices.parse('h100x8'))


def test_the_attention_kernel_is_named_and_counted():
  program = hlo.Program(ATTENTION)
  assert program.attention() == {'__cudnn$fmhaScaleBiasSoftmax': 1, '__cudnn$fmhaSoftmaxBackward': 1}
  scores = 2 * 3 * 8 * 12
  assert program.products() == {'bf16': (2 + 5) * 2 * scores * 16}


def test_the_lstm_is_counted_forward_once_and_backward_twice():
  assert hlo.Program(LSTM).products() == {'f32': 3 * 2 * (2 * 7) * (4 * 3) * (5 + 3)}
  assert not hlo.Program(LSTM).attention()


def test_what_a_card_would_decide_is_said():
  card = cards.CARDS['h100']
  few, many = (cards.notes(text, n, card) for text, n in ((LSTM, 2**30), (ATTENTION, 70 * 2**30)))
  assert any('LSTM are assumed' in note for note in few) and not any('MEM_FRACTION' in note for note in few)
  assert any('workspace of cuDNN' in note for note in many) and any('MEM_FRACTION' in note for note in many)
