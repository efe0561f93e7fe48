"""Parity and the table of benchmarks/gpu.sh, on a CPU."""

from __future__ import annotations

import json
import os
import pathlib
import stat

import numpy as np

from benchmarks import gpu


def test_parity_holds_on_the_same_device_and_not_for_other_parameters(tmp_path, monkeypatch):
  monkeypatch.setattr(gpu, 'CASES', (('float32', 7),))
  gpu.expect(str(tmp_path), 'nplm')
  (row,) = gpu.parity(str(tmp_path), 'nplm')
  assert row['holds'] and row['deviation'] < 1e-6, row
  (file,) = tmp_path.glob('*.npz')
  with np.load(file) as saved:
    arrays = {name: x + (0.1 if name.startswith('after') else 0) for name, x in saved.items()}
  np.savez(file, **arrays)
  (row,) = gpu.parity(str(tmp_path), 'nplm')
  assert not row['holds'] and 'error' not in row


def test_table_has_differences_of_switches_and_what_did_not_run(tmp_path):
  for name, seconds in (('step_gpt2', 0.03), ('switch_gpt2,all_on', 0.03), ('switch_gpt2,norm_off', 0.032)):
    timed = {'step_seconds': seconds, 'tokens_per_second': 1000, 'mfu': None}
    (tmp_path / f'{name}.json').write_text(json.dumps([timed]))
  rows = [{'part': 'parity', 'name': 'bert, float32, 23', 'seconds': 2, 'error': 'ValueError: x', 'holds': False}]
  gpu.write(str(tmp_path / 'parity.jsonl'), iter(rows))
  (tmp_path / 'planned').write_text('step gpt2\nstep bert\nswitch gpt2,norm_off\nparity bert\nparity gpt\n')
  assert gpu.table(str(tmp_path))[2:] == [
    '| parity | bert, float32, 23 | ValueError: x | no |',
    '| step | gpt2 | 30.00 ms, 1,000 tokens/s, MFU unknown | |',
    '| switch | gpt2,all_on | 30.00 ms, 1,000 tokens/s, MFU unknown, +0.00 ms | |',
    '| switch | gpt2,norm_off | 32.00 ms, 1,000 tokens/s, MFU unknown, +2.00 ms | |',
    '| step | bert | no result, see the logs | no |',
    '| parity | gpt | no result, see the logs | no |',
  ]


def test_script_can_be_run():
  script = pathlib.Path(gpu.__file__).with_name('gpu.sh')
  assert os.stat(script).st_mode & stat.S_IXUSR
