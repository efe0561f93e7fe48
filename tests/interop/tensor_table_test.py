"""The table of an import: one line a kind of tensor, with layers folded, and totals."""

from __future__ import annotations

from lmx.interop import tensor_table
from lmx.interop.tensor_table import NEW, READ, RENAMED, UNUSED, Row


def table(*rows):
  return [line.split() for line in tensor_table.lines(rows)]


def test_layers_are_folded_into_one_line():
  rows = [Row(READ, f'h.{i}.{name}.weight', (2, 3), 'float16') for i in range(12) for name in ('ln_1', 'ln_2')]
  assert table(*rows) == [
    ['tensor', 'shape', 'type', 'numbers'],
    ['read', 'h.{0..11}.ln_1.weight', '12', 'of', '2x3', 'float16', '72'],
    ['read', 'h.{0..11}.ln_2.weight', '12', 'of', '2x3', 'float16', '72'],
    ['total:', '24', 'read', '(144', 'numbers)'],
  ]


def test_different_layers_are_not_folded():
  rows = [Row(READ, f'h.{i}.w', (2 + i // 2,), dtype) for i, dtype in enumerate(['float32', 'float16', 'float16'])]
  assert [line[1] for line in table(*rows)[1:-1]] == ['h.0.w', 'h.1.w', 'h.2.w']
  rows = [Row(RENAMED, f'layer_{i}/k', (2,), 'float32', f'layer.{i}.{kind}') for i, kind in enumerate('ab')]
  assert [line[-1] for line in table(*rows)[1:-1]] == ['layer.0.a', 'layer.1.b']


def test_numbers_out_of_sequence_are_listed():
  fold = lambda *numbers: table(*(Row(READ, f'a{i}', (), 'float32') for i in numbers))[1][1]
  assert fold(0, 2) == 'a{0,2}' and fold(0, 1) == 'a{0,1}' and fold(3, 1, 2) == 'a{1..3}'
  assert fold(*range(0, 20, 2)) == 'a{0,2..18}'


def test_statuses_are_in_order_with_their_notes():
  rows = [
    Row(NEW, 'model/pooler', (2, 2), 'float32'),
    Row(UNUSED, 'mask', (4,), 'uint8', 'a constant'),
    Row(RENAMED, 'gamma', (1,), 'float32', 'weight'),
  ]
  lines = tensor_table.lines(rows)
  assert [line.split('  ')[0] for line in lines[1:-1]] == ['renamed', 'unused', 'newly initialised']
  assert lines[1].endswith('as weight') and lines[2].endswith('a constant')
  assert lines[-1] == 'total: 1 renamed (1 numbers), 1 unused (4 numbers), 1 newly initialised (4 numbers)'
