"""The lines that a reader of a model opens stay within their bounds."""

from __future__ import annotations

import pytest

from tests import reading_length


def relative(files):
  return {str(file.relative_to(reading_length.ROOT)) for file in files}


def test_every_module_is_followed_except_kernels():
  names = relative(reading_length.opened(reading_length.ROOT / 'lmx/models/gpt2.py'))
  assert {'lmx/models/gpt2.py', 'lmx/ops/attention.py', 'lmx/ops/dense.py', 'lmx/placement.py'} <= names
  assert not names & {'lmx/types.py', 'lmx/layout.py'} and not any('kernels' in name for name in names)
  assert reading_length.is_kernel(reading_length.ROOT / 'lmx/kernels/row_attention.py')
  assert not reading_length.is_kernel(reading_length.ROOT / 'lmx/kernels/dense.py')


def test_fast_paths_behind_are_those_of_the_operations():
  files = reading_length.kernels({reading_length.ROOT / 'lmx/ops/attention.py'})
  assert {'lmx/kernels/attention.py', 'lmx/kernels/row_attention.py'} <= relative(files)
  assert 'lmx/kernels/softmax_loss.py' not in relative(files)


@pytest.mark.parametrize('model', reading_length.lengths())
def test_reading_length(model):
  lines, bound = reading_length.lengths()[model][0], reading_length.BOUNDS.get(model, reading_length.BOUND)
  assert lines <= bound, f'{model}: got {lines} lines; expected at most {bound}'
