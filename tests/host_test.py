"""Memory that a step gives back stays with the process."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from lmx import host

# Prints the result of `keep_heap` and the number of page faults when 64 MiB are asked for, filled and given
# back five times more.
PROGRAM = """
import ctypes, resource
from lmx import host
print(host.keep_heap())
library, size = ctypes.CDLL(None), 2**26
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
def once():
  place = library.malloc(size)
  ctypes.memset(place, 1, size)
  library.free(place)
once()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
  once()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def told(root, **settings):
  environment = {k: v for k, v in os.environ.items() if not k.startswith(('MALLOC_', 'GLIBC_'))}
  environment |= {'PYTHONPATH': str(root), **settings}
  done = subprocess.run([sys.executable, '-c', PROGRAM], env=environment, capture_output=True, text=True, check=True)
  said, pages = done.stdout.split()
  return said == 'True', int(pages)


@pytest.mark.skipif(platform.libc_ver()[0] != 'glibc', reason='the C library is not glibc')
def test_memory_transfers_count_once(root):
  kept, pages = told(root)
  assert kept and pages < 100


@pytest.mark.skipif(platform.libc_ver()[0] != 'glibc', reason='the C library is not glibc')
def test_user_settings_are_kept(root):
  kept, pages = told(root, MALLOC_TRIM_THRESHOLD_='131072')
  assert not kept and pages > 5 * 1000


@pytest.mark.parametrize(('text', 'expected'), [('150000 100000', 2), ('50000 100000', 1), ('max 100000', 7)])
def test_containers_quota_is_read(tmp_path, monkeypatch, text, expected):
  monkeypatch.setattr(host, 'cores', lambda: 7)
  (tmp_path / 'cpu.max').write_text(f'{text}\n')
  monkeypatch.setattr(host, '_QUOTA', str(tmp_path / 'cpu.max'))
  assert host.quota() == expected


def test_without_control_groups_there_is_no_quota(monkeypatch):
  monkeypatch.setattr(host, '_QUOTA', '/no/such/file')
  assert host.quota() == host.cores()
