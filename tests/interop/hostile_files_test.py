"""Damaged files of other programs are read as they say, or refused; none takes long, much memory, or runs code."""

from __future__ import annotations

import pytest

from tests.interop import hostile_files

COUNTS = {**dict.fromkeys(hostile_files.VECTORS, 25), 'GPT of OpenAI': 12, 'ELMo': 12}  # others start a process a case
MANY = [pytest.param(name, 170, marks=pytest.mark.slow, id=f'{name}, many') for name in hostile_files.FORMATS]


@pytest.mark.parametrize(
  ('name', 'count'), [*((name, COUNTS.get(name, 2)) for name in hostile_files.FOLDERS | hostile_files.VECTORS), *MANY]
)
def test_damaged_files_are_read_or_refused(name, count, tmp_path, monkeypatch):
  if name in hostile_files.TENSORFLOW:
    pytest.importorskip('tensorflow')
  hostile_files.quiet(monkeypatch)
  tried, outcomes, wrong = hostile_files.Tried(name, tmp_path), [], []
  for seed in range(count):
    outcome, fault = tried.case(seed)
    outcomes.append(outcome)
    wrong += [fault] * bool(fault)
  assert not wrong, '\n'.join(wrong)
  assert outcomes.count('refused') > count / 3
