"""`lmx compile` for TPU slices, by libtpu; skipped without it."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from benchmarks import slices
from lmx.compilation import flags, hlo
from lmx.compilation.slices import CHIPS

ROOT = pathlib.Path(__file__).parents[2]
ROWS = 7  # of each chip; no other size of the models is 7 times the number of chips
CONFIGS = {
  'gpt2/webtext.py:1558m': ['--config.parallel.fsdp=-1', '--config.model.N=2'],
  'gpt2/webtext.py:124m': ['--config.model.N=2'],
  'bert/pretrain.py:large': ['--config.model.N=2', '--config.data.length=512'],
  'xlnet/pretrain.py:large': ['--config.parallel.fsdp=-1', '--config.model.N=2', '--vocabulary=32000'],
  'transformer_xl/wikitext103.py:large': ['--config.model.N=2', '--vocabulary=267735'],
  'awd_lstm/wikitext2.py': ['--vocabulary=33278'],
}

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(importlib.util.find_spec('libtpu') is None, reason="needs libtpu: pip install 'lmx[tpu]'"),
]


def compiled(tmp_path, config, topology, *options):
  """The report and the program of `lmx compile`."""
  files = [f'--json={tmp_path}/report.json', f'--hlo={tmp_path}/program.hlo']
  command = ['compile', f'--config=experiments/{config}', f'--topology={topology}', *files, *options]
  environment = {name: value for name, value in os.environ.items() if name != 'XLA_FLAGS'}
  environment |= {'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'}
  done = subprocess.run(
    [sys.executable, '-m', 'lmx.cli.main', *command], cwd=ROOT, env=environment, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
  return json.loads((tmp_path / 'report.json').read_text()), hlo.Program((tmp_path / 'program.hlo').read_text())


@pytest.mark.parametrize('name', [name for name, each in flags.PRESETS.items() if each.accelerators[0] in CHIPS])
def test_flags_of_a_preset_compile(name, tmp_path):
  """libtpu ends the process on an unknown flag."""
  config, chips = 'gpt2/webtext.py:124m', 4
  options = [f'--config.data.batch_size={ROWS * chips}', '--config.optim.accumulate=1', *CONFIGS[config]]
  topology = f'{flags.PRESETS[name].accelerators[-1]}-{chips}'
  report, _ = compiled(tmp_path, config, topology, f'--flags={name}', *options)
  assert report['flags'] == ' '.join(flags.PRESETS[name].flags) and f'--flags={name}' in report['notes'][-1]


def test_unknown_flag_is_an_input_error():
  words = ['compile', '--config=experiments/gpt2/quickstart.py:tiny', '--topology=v6e-1', '--flags=--xla_nosuch=1']
  done = subprocess.run([sys.executable, '-m', 'lmx.cli.main', *words], cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 2 and '--flags: got --xla_nosuch=1; libtpu refused it' in done.stderr


@pytest.mark.parametrize('chips', [16, 256])
@pytest.mark.parametrize('config', CONFIGS)
def test_rows_are_sharded_over_the_slice(config, chips, tmp_path):
  batch = [f'--config.data.batch_size={ROWS * chips}', '--config.optim.accumulate=1', '--partition']
  report, program = compiled(tmp_path, config, f'v5e-{chips}', *batch, *CONFIGS[config])
  assert report['rows'] == ROWS * chips and report['chips'] == chips
  of_all = re.compile(rf'\b[a-z]\w*\[([\d,]*,)?{ROWS * chips}(,[\d,]*)?\]')
  assert not [row for row in program.arrays() if of_all.search(row[1])]
  if report['dtype'] == 'bfloat16':
    assert report['float32_share'] < 0.02


@pytest.mark.parametrize(
  'options',
  [
    ['optim.accumulate=4', 'data.batch_size=512'],
    ['optim.accumulate=4', 'data.batch_size=512', 'parallel.reduce_dtype=bfloat16'],
    ['parallel.fsdp=-1', 'optim.accumulate=1', 'data.batch_size=128'],
    ['parallel.fsdp=-1', 'optim.accumulate=1', 'data.batch_size=128', 'parallel.reduce_dtype=bfloat16'],
  ],
  ids=['data, microbatches', 'data, microbatches, bfloat16', 'fsdp', 'fsdp, bfloat16'],
)
def test_step_collectives_match_its_shardings(options, tmp_path):
  """Compiled whole, because XLA moves the reduction out of the loop over microbatches after partitioning."""
  sizes = ('model.N=1', 'model.D=512', 'model.H=8', 'data.vocab_size=8000', 'data.length=256', 'model.dtype=bfloat16')
  overrides = [f'--config.{option}' for option in (*sizes, *options)]
  report, _ = compiled(tmp_path, 'gpt2/webtext.py:124m', 'v5e-16', *overrides)
  assert 0.7 < report['communicated'] / sum(report['bound'].values()) <= 1.2


@pytest.mark.parametrize('row', slices.rows(), ids=lambda row: f'{row["config"]} {row["topology"]}')
def test_record_matches_the_compiled_program(row):
  """To 2%, in minutes each."""
  again = slices.compile_row(row)
  assert again['mesh'] == row['mesh']
  for name in ('gib', 'collectives_mb', 'compute_s', 'mfu'):
    assert float(again[name].replace(',', '')) == pytest.approx(float(row[name].replace(',', '')), rel=0.02), name


def test_one_chip_program_compiles(tmp_path):
  sizes = ('data.batch_size=4', 'optim.accumulate=1', 'model.N=1', 'data.length=256')
  options = [f'--config.{size}' for size in sizes]
  report, program = compiled(tmp_path, 'gpt2/webtext.py:124m', 'v5e-1', *options)
  assert report['fits'] and 0 < report['memory']['total'] < report['memory']['chip']
  assert report['attention'] == {'row_attention_backward': 1, 'row_attention_forward': 1}
  score = 2 * 4 * 12 * 64 * 256 * 256
  assert report['pallas_flops_per_chip'] == (2 + 5) * score and not report['pallas_calls_not_counted']
  assert report['estimate']['cycles'] > 0 and 0 < report['estimate']['mfu_if_not'] < 1
  assert not report['collectives'] and report['program_flops_per_chip'] >= report['model_flops_per_chip'] * 0.99
  assert program.unknown_loops == 0


@pytest.mark.parametrize(
  'config,length,kernels',
  [
    ('bert/pretrain.py:large', 256, ['row_attention_backward', 'row_attention_forward']),  # with dropout
    ('gpt2/webtext.py:124m', 2048, ['splash_mha_dkv_no_residuals', 'splash_mha_fwd_residuals']),
  ],
)
def test_attention_materialises_no_scores(config, length, kernels, tmp_path):
  sizes = ('data.batch_size=4', f'data.length={length}', 'model.N=1', 'model.dtype=bfloat16', 'optim.accumulate=1')
  sizes += ('model.T=2048',) if length > 1024 else ('model.remat=none',)
  report, program = compiled(tmp_path, config, 'v5e-1', *[f'--config.{size}' for size in sizes])
  assert report['attention'] == dict.fromkeys(kernels, 1)
  assert not [row for row in program.arrays() if f'{length},{length}]' in row[1]]


@pytest.mark.parametrize('options', [[], ['--config.parallel.fsdp=4'], ['--config.parallel.tensor=4']])
def test_embedding_table_is_not_copied(options, tmp_path):
  """Its width is no multiple of 128, so by a TPU's default layout it would be transposed twice in each step."""
  vocabulary = 692_000
  report, program = compiled(tmp_path, 'word2vec/news.py:neg5', 'v5e-4', f'--vocabulary={vocabulary}', *options)
  shard = vocabulary // 4 if options else vocabulary
  of_table = re.compile(rf'f32\[{shard},300\]')
  assert [row for row in program.arrays() if of_table.search(row[1])]
  assert report['memory']['temporary'] < 0.01 * report['memory']['arguments']
