"""The lines that a reader of a model opens stay within their bounds."""

from __future__ import annotations

import pytest

from tests import reading_length


def test_what_a_file_imports_from_layers_is_followed_and_kernels_are_not():
  files = reading_length.opened(reading_length.ROOT / 'lmx/models/gpt2.py')
  names = {str(file.relative_to(reading_length.ROOT)) for file in files}
  assert {'lmx/models/gpt2.py', 'lmx/ops/attention.py', 'lmx/ops/masks.py'} <= names
  assert not any('kernels' in name for name in names)


@pytest.mark.parametrize('model', reading_length.BOUNDS)
def test_reading_length(model):
  lines, bound = reading_length.lengths()[model], reading_length.BOUNDS[model]
  assert lines <= bound, f'{model}: got {lines} lines; expected at most {bound}'
