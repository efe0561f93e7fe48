"""Every variant of the experiments runs on pods of 64 and 256 chips."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.compilation import pods
from tests.experiments_test import variants


@pytest.mark.slow
def test_every_variant_compiles_for_a_pod(root, capsys):
  flags = f'--xla_force_host_platform_device_count={max(pods.CHIPS)}'
  environment = {**os.environ, 'XLA_FLAGS': flags, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(root)}
  command = [sys.executable, '-m', 'tests.compilation.pods']
  done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr[-3000:]
  lines = [json.loads(line) for line in done.stdout.splitlines()]
  names = {f'{path}:{variant}' for path, variant in variants()}
  for chips in pods.CHIPS:
    found = {line['variant']: line for line in lines if line['chips'] == chips}
    assert found.keys() == names
    assert all(line['rows'] <= line['padded'] and line['share'] >= 1 for line in found.values())
    whole = sum(line['rows'] == line['padded'] for line in found.values())
    with capsys.disabled():
      print(f'\n{len(found)} of {len(names)} variants run on {chips} chips, {whole} without rows of padding', end='')
