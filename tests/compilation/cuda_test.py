"""`lmx compile` for NVIDIA cards, by XLA's plugin and cuDNN without a GPU; skipped without them."""

from __future__ import annotations

import re

import pytest

from lmx.compilation import topology
from tests.compilation.tpu_test import compiled

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    not all(map(topology.is_installed, topology.COMPILER)),
    reason="needs XLA's compiler for NVIDIA cards: pip install 'lmx[cuda12-aot]'",
  ),
]


@pytest.mark.parametrize('server', ['h100x8', 'a100x1'])
def test_gpt2_compiles_to_fused_attention(server, tmp_path):
  report, _ = compiled(tmp_path, 'gpt2/webtext.py:124m', server, '--config.model.N=2', '--config.optim.accumulate=1')
  assert report['fits'] and report['chips'] == int(server[-1]) and report['dtype'] == 'bfloat16'
  assert report['attention'] == {'__cudnn$fmhaSoftmax': 2, '__cudnn$fmhaSoftmaxBackward': 2}
  assert report['float32_share'] < 0.001
  assert report['program_flops_per_chip'] == pytest.approx(report['model_flops_per_chip'], rel=0.1)
  assert 0 < report['estimate']['mfu_if_overlapped'] < 1
  if server == 'h100x8':
    assert 0.95 < report['communicated'] / sum(report['bound'].values()) < 1.05
  else:
    assert not report['collectives']


@pytest.mark.parametrize(
  'rate, kernel', [(0.1, 'products of chunked_attention'), (0.0, '__cudnn$fmhaScaleBiasSoftmax')]
)
def test_bert_attention_kernel_depends_on_dropout(rate, kernel, tmp_path):
  options = ['--config.model.N=1', f'--config.model.dropout_attention={rate}']
  report, _ = compiled(tmp_path, 'bert/pretrain.py:large', 'h100x8', *options)
  assert kernel in report['attention'] and len(report['attention']) == (1 if rate else 2)


def test_cudnn_lstm_operands_are_row_major(tmp_path):
  report, program = compiled(tmp_path, 'awd_lstm/ptb.py', 'h100x1')
  calls = 0
  for instructions in program.computations.values():
    types = {instruction.name: instruction.result for instruction in instructions}
    for instruction in instructions:
      if 'custom_call_target="cudnn_rnn' in instruction.text:
        calls += 1
        stored = ' '.join([instruction.result, *(types[name] for name in instruction.operands)])
        orders = re.findall(r'\{([\d,]+)\}', stored)
        assert len(orders) > 5
        assert all(order == ','.join(map(str, reversed(range(order.count(',') + 1)))) for order in orders), stored
  assert calls == 6  # three layers, forward and backward
  assert any('LSTM are assumed' in note for note in report['notes'])
