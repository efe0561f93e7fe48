"""Rules of docs/code.md that neither ruff nor import-linter checks."""

from __future__ import annotations

import ast
import configparser
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import sysconfig

import pytest

from lmx.models import registry

ROOT = pathlib.Path(__file__).resolve().parents[1]
CODE = sorted(p for folder in ('lmx', 'experiments', 'launch') for p in (ROOT / folder).rglob('*.py'))
# What experiments may import of one another; `common` is there for its errors alone.
SHARED = {f'experiments.{p.stem}' for p in (ROOT / 'experiments').glob('*.py')} - {
  'experiments.__init__',
  'experiments.common',
}
SHARED |= {f'experiments.{p.parent.name}.recipe' for p in (ROOT / 'experiments').glob('*/recipe.py')}
TEXT_ENDINGS = {'.py', '.md', '.cfg', '.toml', '.txt', '.ipynb', '.tsv', '.bib', '.json', ''}


def name(path: pathlib.Path) -> str:
  return str(path.relative_to(ROOT))


def imports(path: pathlib.Path) -> set[str]:
  """Dotted names that a file imports anywhere in it, `from a import b` as both a and a.b."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      found |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, f'{name(path)}: relative import'
      found |= {node.module or ''} | {f'{node.module}.{alias.name}' for alias in node.names}
  return found


def tops(path: pathlib.Path) -> set[str]:
  return {dotted.split('.')[0] for dotted in imports(path)}


def test_experiments_import_only_ml_collections_and_what_they_share():
  allowed = {'__future__', 'ml_collections', 'experiments', 'collections', 'typing', 'math'}
  allowed |= {'contextlib', 'difflib', 'functools', 'itertools'}
  for path in (ROOT / 'experiments').rglob('*.py'):
    assert not tops(path) - allowed, f'{name(path)} imports {sorted(tops(path) - allowed)}'
    shared = {'experiments.tables', 'experiments.lineage'} if path.parent.name == 'tables' else SHARED
    for dotted in (d for d in imports(path) if d.startswith('experiments.')):
      inside = any(f'{dotted}.'.startswith(f'{part}.') or part.startswith(f'{dotted}.') for part in shared)
      assert inside, f'{name(path)} imports {dotted}'


def test_library_reads_no_config_with_a_default_beside_it():
  for path in CODE:
    found = re.search(r'\b(cfg|config)\.get\([^()]*,', path.read_text())
    assert not found, f'{name(path)}: {found.group(0)}... hides a default far from the config'


def test_no_grab_bags_stubs_or_todos():
  for path in CODE:
    assert path.name not in ('utils.py', 'util.py', 'helpers.py', 'misc.py'), name(path)
    assert not (path.name == 'common.py' and name(path).startswith('lmx/')), name(path)
    found = re.search(r'\b(TODO|FIXME|NotImplementedError)\b', path.read_text())
    assert not found, f'{name(path)}: {found.group(0)}'


def test_docstrings_start_with_a_verb_or_a_noun():
  """Their first word is neither a question word nor a verb in the third person: "Return the mask", not "What hides"."""
  wrong = re.compile(r'(What|Which|How|Whether|Where|When|Why|Who|Returns|Raises|Yields|Writes)\b')
  for path in CODE:
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
        text = ast.get_docstring(node) or ''
        assert not wrong.match(text), f'{name(path)}: "{text.splitlines()[0]}"'


def test_functions_stay_small():
  for path in CODE:
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        assert lines <= 70, f'{name(path)}: {node.name} has {lines} lines'


def project_files() -> list[pathlib.Path]:
  """Text files that belong to the project: neither hidden nor made by a run or a tool."""
  skip = {'.git', '.venv', 'venv', 'runs', 'data', 'build', 'dist', 'site', '__pycache__'}
  found = []
  for path in ROOT.rglob('*'):
    parts = path.relative_to(ROOT).parts
    made = parts[0] in skip or any(p == '__pycache__' or p.endswith(('.egg-info', '_cache')) for p in parts)
    if path.is_file() and not made and path.suffix in TEXT_ENDINGS:
      found.append(path)
  return found


def test_paths_of_etils_are_made_by_one_checked_function():
  makers = {name(path) for path in CODE if 'epath.Path(' in path.read_text()}
  assert makers <= {'lmx/storage.py', 'lmx/checkpoint/orbax_format.py'}  # the latter has an empty one


def has_locale_encoding(call: ast.Call) -> bool:
  """Return whether a call opens, reads or writes text in the encoding of the locale."""
  function, given = call.func, {keyword.arg: keyword.value for keyword in call.keywords}
  title = getattr(function, 'attr', getattr(function, 'id', ''))
  owner = getattr(getattr(function, 'value', None), 'id', '')
  if 'encoding' in given or owner in ('run_log', 'archive', 'zstd', 'os', 'tarfile', 'zipfile', 'Image'):
    return False
  if title in ('run', 'Popen', 'check_output') and 'text' in given:
    return True
  if title in ('read_text', 'write_text'):
    return len(call.args) < (2 if title == 'write_text' else 1)
  at = int(isinstance(function, ast.Name) or owner in ('gzip', 'bz2', 'lzma'))
  mode = given.get('mode') or next(
    iter(call.args[at:]), ast.Constant('rb' if owner in ('gzip', 'bz2', 'lzma') else 'r')
  )
  return title == 'open' and isinstance(mode, ast.Constant) and 'b' not in str(mode.value)


def test_text_is_utf_8_in_every_locale():
  for source, expected in (("open('x')", True), ("open('x', 'rb')", False), ("x.open('a')", True)):
    assert has_locale_encoding(ast.parse(source, mode='eval').body) == expected
  for path in CODE:
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
      if isinstance(node, ast.Call) and has_locale_encoding(node):
        raise AssertionError(f"{name(path)}, line {node.lineno}: give encoding='utf-8'")


def test_no_paths_of_one_machine():
  pattern = re.compile(r'(?<![\w.])/(home(?!/kubernetes/bin)|root|Users|work|mnt|opt|private)/\w+')
  for path in project_files():
    found = pattern.search(path.read_text(errors='replace'))
    assert not found, f'{name(path)}: {found.group(0)}'


def test_no_file_is_large():
  for path in project_files():
    assert path.stat().st_size < 500_000, f'{name(path)}: {path.stat().st_size} bytes'


@pytest.mark.parametrize('model', registry.names())
def test_model_file_has_the_contract(model):
  module = registry.get(model)
  assert dataclasses.is_dataclass(module.Config)
  assert module.Config.__dataclass_params__.frozen
  assert isinstance(module.CAUSAL, bool)
  assert (ROOT / f'lmx/objectives/{module.OBJECTIVE}.py').is_file()
  assert 'tiny' in module.VARIANTS
  assert all(isinstance(head, str) for head in module.HEADS)
  for variant, fields in module.VARIANTS.items():
    hash(module.Config(**fields)), variant


@pytest.mark.parametrize('model', registry.names())
def test_model_names_its_paper_and_has_an_experiment(model):
  docstring = ast.get_docstring(ast.parse((ROOT / f'lmx/models/{model}.py').read_text())) or ''
  assert re.search(r'\b(19|20)\d\d\b', docstring), f'models/{model}.py: year of the paper'
  files = list((ROOT / 'experiments' / model).glob('*.py'))
  others = [p for p in (ROOT / 'experiments').glob('*/*.py') if f"'name': '{model}'" in p.read_text()]
  assert files or others, f'no experiment trains {model}'


def test_versions_agree():
  setup = configparser.ConfigParser()
  setup.read(ROOT / 'setup.cfg')
  text = (ROOT / 'lmx/__init__.py').read_text()
  found = re.search(r"__version__ = '([^']+)'", text)
  assert found and found.group(1) == setup['metadata']['version']
  assert f'\nversion: {found[1]}\n' in (ROOT / 'CITATION.cff').read_text()
  latest = re.search(r'(?m)^## (\S+) \(', (ROOT / 'CHANGELOG.md').read_text())
  assert latest and latest[1] == found[1]


@pytest.mark.parametrize('file', ['constraints.txt', 'constraints-newest.txt'])
def test_constraints_hold_exact_versions_and_no_addresses(file):
  lines = (ROOT / file).read_text().splitlines()
  for line in lines:
    if line and not line.startswith('#'):
      assert re.fullmatch(r'[A-Za-z0-9_.-]+==[\w.!+]+( *;.*)?', line), line


def test_optional_names_of_parts_have_a_default_in_their_interface():
  """So nobody asks a model, an objective or a batching whether it has one; fields of a Config are another matter."""
  part = r'((?<!run)\.model|\bmodel|(?<!run)\.objective|\bobjective|(registry|objectives|batching)\.get\([^()]*\))'
  for path in CODE:
    found = re.search(rf'\b(hasattr|getattr)\((\w+(?=\.))?{part},', path.read_text())
    assert not found, f'{name(path)}: {found[0]}'


def test_editable_install_is_a_line_of_the_path():
  """Without `package_dir` setuptools installs an import hook, which Python asks after the folders of sys.path."""
  setup = configparser.ConfigParser()
  setup.read(ROOT / 'setup.cfg')
  assert setup['options']['package_dir'].split() == ['=', '.']


def test_editable_install_wins_over_the_folder_above_a_clone(tmp_path):
  """A clone into a folder lmx is an empty namespace package in the folder above it."""
  site = pathlib.Path(sysconfig.get_paths()['purelib'])
  if not list(site.glob('__editable__*lmx*')):
    pytest.skip('lmx is not installed in editable mode')
  (tmp_path / 'lmx').mkdir()
  given = {key: value for key, value in os.environ.items() if key != 'PYTHONPATH'}
  command = [sys.executable, '-c', 'import lmx; print(lmx.__file__)']
  shown = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, check=True)
  assert shown.stdout.strip().endswith('__init__.py')
