"""Time and memory of whole processes."""

from __future__ import annotations

import sys

import pytest

from lmx.benchmark import whole_process
from lmx.errors import InputError

MANY = 'import time; x = b"x" * 80_000_000; time.sleep(0.4)'


def test_peak_memory_includes_child_processes():
  alone = whole_process.run([sys.executable, '-S', '-c', f'{MANY}; print(1); print("{{}}")'])
  assert 0.4 < alone.seconds < 30 and 80e6 < alone.peak_bytes < 120e6 and alone.answer() == {}
  program = f'import subprocess, sys; p = [subprocess.Popen([sys.executable, "-S", "-c", {MANY!r}]) for _ in range(2)]'
  several = whole_process.run([sys.executable, '-S', '-c', f'{program}; [q.wait() for q in p]'])
  assert 160e6 < several.peak_bytes < 240e6


def test_failed_process_raises_with_its_output():
  with pytest.raises(InputError, match='(?s)ended with status 3.*broken'):
    whole_process.run([sys.executable, '-S', '-c', 'import sys; print("broken", file=sys.stderr); sys.exit(3)'])
  with pytest.raises(InputError, match='cannot run /no/such'):
    whole_process.run(['/no/such'])
