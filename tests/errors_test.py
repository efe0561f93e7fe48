"""Messages of errors: the cause in the words of the system, without those of Python."""

from __future__ import annotations

import urllib.error

import pytest

from lmx.errors import InputError, explain, writing


@pytest.mark.parametrize(
  ('error', 'cause'),
  [
    (FileNotFoundError(2, 'No such file or directory', 'a.txt'), 'No such file or directory'),
    (OSError('truncated'), 'truncated'),
    (ValueError('embedded null byte'), 'embedded null byte'),
    (EOFError(), 'EOFError'),
    (RuntimeError('[Errno -2] Name or service not known'), 'Name or service not known'),
    (urllib.error.URLError(OSError(101, 'Network is unreachable')), 'Network is unreachable'),
    (TypeError("'int' object is not subscriptable"), 'the content has another structure (TypeError)'),
    (KeyError('tokens'), 'the content has another structure (KeyError)'),
  ],
)
def test_cause_has_no_python_class_names(error, cause):
  assert explain(error) == cause


def test_file_that_cannot_be_written_is_reported(tmp_path):
  with pytest.raises(InputError, match=r'^--output: cannot be written \(Is a directory\)$'), writing('--output'):
    tmp_path.write_text('')
