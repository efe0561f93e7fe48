"""Limits of a sweep: the time of a session, and a budget of run hours or FLOPs over all sessions."""

from __future__ import annotations

import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

from launch.sweep import metrics
from lmx import records
from lmx.errors import InputError

_SECONDS = {'s': 1.0, '': 1.0, 'm': 60.0, 'h': 3600.0, 'd': 86400.0}


def _amount(text: str, units: str) -> tuple[float, str] | None:
  """Return the number, finite and above 0, and the unit of a text such as 2h; None if it is none."""
  match = re.fullmatch(rf'(\d+\.?\d*(?:e\+?\d+)?)({units})', text.strip().lower())
  if not match or not 0 < float(match[1]) < math.inf:
    return None
  return float(match[1]), match[2]


def seconds(option: str, text: str) -> float:
  """Return the seconds of 90, 90s, 30m, 2h or 1d. Raises InputError."""
  found = _amount(text, '[smhd]?')
  if found is None:
    raise InputError(f'{option}: got {text!r}; expected a time above 0, such as 90 (seconds), 30m, 2h or 1d')
  return found[0] * _SECONDS[found[1]]


class Budget(NamedTuple):
  """Budget of a sweep, over all its sessions.

  Attributes:
    amount: in seconds or FLOPs.
    unit: 'h' for the time of all runs, summed, or 'flops'.
  """

  amount: float
  unit: str

  @classmethod
  def parse(cls, text: str) -> Budget:
    """Parse '10h' or '1e18flops'. Raises InputError."""
    if (found := _amount(text, 'trials?')) is not None:
      raise InputError(f'--budget: got {text!r}; expected hours or FLOPs; give --trials={found[0]:g}')
    found = _amount(text, 'flops?|h')
    if found is None:
      raise InputError(f'--budget: got {text!r}; expected hours of runs, such as 10h, or FLOPs, such as 1e18flops')
    return cls(found[0] * 3600, 'h') if found[1] == 'h' else cls(found[0], 'flops')

  def show(self, spent: float) -> str:
    """Return how much of the budget is spent."""
    if self.unit == 'h':
      return f'{spent / 3600:.3g} of {self.amount / 3600:g} hours'
    return f'{spent:.3g} of {self.amount:g} FLOPs'


def count_flops(workdirs: list[Any]) -> float:
  """Return the training FLOPs of a trial's runs so far: `lmx describe` of the first by the updates of all.

  Raises:
    InputError: they cannot be counted.
  """
  updates = sum(_updates(folder) for folder in workdirs)
  if not updates or not (workdirs[0] / 'config.json').exists():
    return 0.0
  with tempfile.TemporaryDirectory() as folder:
    output = pathlib.Path(folder, 'counts.json')
    words = ['-m', 'lmx.cli.main', 'describe', f'--workdir={workdirs[0]}', f'--output={output}']
    env = {**os.environ, 'JAX_PLATFORMS': 'cpu'}
    done = subprocess.run(
      [sys.executable, *words], env=env, capture_output=True, encoding='utf-8', errors='replace', check=False
    )
    counted = records.read_json(output) if done.returncode == 0 else {}
  if 'training_flops' not in counted:
    reason = done.stderr.strip().splitlines()[-1:] or ['no number of updates']
    raise InputError(f'--budget: cannot count the FLOPs of {workdirs[0]} ({reason[0]}); give hours, such as 10h')
  return counted['training_flops'] / counted['updates'] * updates


def _updates(folder: Any) -> int:
  try:
    return max((int(record['step']) for record in metrics.read_records(folder)), default=0)
  except InputError:  # damaged, as the end of the trial reports
    return 0
