"""The scripts of examples/ run, and a wheel has all that a training needs."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from lmx.cli import main

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / 'examples').glob('*.py'))


def run(folder, name, *arguments, changes=()):
  """Run an example in a folder, with fewer steps."""
  text = (ROOT / 'examples' / name).read_text()
  for old, new in changes:
    assert old in text
    text = text.replace(old, new)
  (folder / name).write_text(text)
  path = os.pathsep.join([str(ROOT), *os.environ.get('PYTHONPATH', '').split(os.pathsep)])
  variables = os.environ | {'PYTHONPATH': path, 'XLA_FLAGS': '', 'JAX_PLATFORMS': 'cpu', 'MPLBACKEND': 'agg'}
  command = [sys.executable, str(folder / name), *map(str, arguments)]
  return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=500)


def test_there_are_five_short_scripts():
  assert [path.name for path in EXAMPLES] == ['attention.py', 'cluster.py', 'iterator.py', 'objective.py', 'train.py']
  assert max(len(path.read_text().splitlines()) for path in EXAMPLES) <= 40
  page = (ROOT / 'docs/python.md').read_text()
  assert [path.name for path in EXAMPLES if f'examples/{path.name}' not in page] == []


@pytest.mark.parametrize('name', ['attention.py', 'cluster.py'])
def test_scripts_without_arguments_say_how_they_are_used(name, tmp_path):
  done = run(tmp_path, name)
  assert done.returncode == 1 and f'usage: python examples/{name} RUN' in done.stderr


@pytest.mark.slow
def test_model_is_trained_from_a_config_and_its_lines_are_clustered(tmp_path):
  done = run(
    tmp_path,
    'train.py',
    tmp_path / 'run',
    changes=[("'train.steps=300'", "'train.steps=40', 'model.D=32', 'model.E=32'")],
  )
  assert done.returncode == 0, done.stderr
  assert re.search(r'^perplexity per word \d+\.\d on 28,8\d\d words\na 5-gram has 95\.9\n- The method', done.stdout)
  done = run(tmp_path, 'cluster.py', tmp_path / 'run')
  assert done.returncode == 0, done.stderr
  assert len(re.findall(r'^group \d$', done.stdout, re.MULTILINE)) == 3 and done.stdout.count('\n  ') == 7


@pytest.mark.slow
def test_custom_objective_trains(tmp_path):
  done = run(tmp_path, 'objective.py', changes=[('range(200)', 'range(60)')])
  assert done.returncode == 0, done.stderr
  losses = [float(text) for text in re.findall(r'([\d.]+) nats', done.stdout)]
  assert len(losses) == 3 and losses[-1] < losses[0] - 0.5


@pytest.mark.slow
def test_custom_iterator_trains_addition(tmp_path):
  done = run(tmp_path, 'iterator.py')
  assert done.returncode == 0 and done.stdout.endswith('100% of 64 new sums are right\n'), done.stderr


@pytest.mark.slow
def test_translation_attention_is_plotted(tmp_path):
  quick = ['train.steps=4', 'samples.count=0', 'evaluation.beam=0', 'parallel.data=1']
  command = ['train', '--config=experiments/bahdanau/quickstart.py:tiny', f'--workdir={tmp_path}/run']
  assert main.main([*command, *(f'--config.{key}' for key in quick)]) == 0
  done = run(tmp_path, 'attention.py', tmp_path / 'run', 'eight hundred and seven', tmp_path / 'a.png')
  assert done.returncode == 0 and done.stdout.endswith('a.png)\n'), done.stderr
  assert (tmp_path / 'a.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.slow
def test_installed_wheel_trains_the_quickstart(tmp_path):
  pip = [sys.executable, '-m', 'pip', '--disable-pip-version-check']
  where = {'cwd': tmp_path, 'check': True, 'capture_output': True, 'timeout': 500}
  source = tmp_path / 'source'  # an earlier build beside the checkout would give the wheel files that it misses
  for name in ('lmx', 'experiments', 'launch'):
    shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns('__pycache__'))
  for name in ('setup.cfg', 'pyproject.toml', 'README.md', 'LICENSE'):
    shutil.copy(ROOT / name, source)
  subprocess.run([*pip, 'wheel', '--no-deps', f'--wheel-dir={tmp_path}/wheel', str(source)], **where)
  (wheel,) = (tmp_path / 'wheel').glob('lmx-*.whl')
  subprocess.run([*pip, 'install', '--no-deps', f'--target={tmp_path}/site', str(wheel)], **where)
  variables = os.environ | {'PYTHONPATH': str(tmp_path / 'site'), 'XLA_FLAGS': '', 'JAX_PLATFORMS': 'cpu'}
  lmx = [sys.executable, '-m', 'lmx']
  found = subprocess.run([sys.executable, '-c', 'import lmx; print(lmx.__file__)'], env=variables, text=True, **where)
  assert found.stdout.strip() == f'{tmp_path}/site/lmx/__init__.py'
  listed = subprocess.run([*lmx, 'list', 'experiments'], env=variables, text=True, **where).stdout
  assert listed.count('experiments/') > 60
  command = ['train', '--config=experiments/rnn_lm/quickstart.py:tiny', '--workdir=run', '--config.train.steps=5']
  subprocess.run([*lmx, *command], env=variables, **where)
  assert (tmp_path / 'run/results.json').exists()
  subprocess.run([*lmx, 'report', 'run'], env=variables, **where)
  assert '<section id="curves">' in (tmp_path / 'run/report.html').read_text()
