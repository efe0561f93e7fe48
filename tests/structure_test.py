"""Holds the code to the map in CONTRIBUTING.md by reading its syntax; nothing is imported but the models."""

from __future__ import annotations

import ast
import configparser
import dataclasses
import pathlib
import re

import pytest

from lmx.models import registry

ROOT = pathlib.Path(__file__).resolve().parents[1]
CODE = sorted(p for folder in ('lmx', 'experiments', 'launch') for p in (ROOT / folder).rglob('*.py'))
TEXT_ENDINGS = {'.py', '.md', '.cfg', '.toml', '.txt', '.ipynb', '.tsv', '.bib', '.json', ''}

# Part of lmx -> other parts that it may import.
LEAVES = {
  'errors': set(),
  'types': set(),
  'parts': {'errors'},
  'memory': set(),
  'processor': set(),
  'layers': {'types', 'errors', 'processor'},
  'models': {'types', 'errors', 'parts', 'layers'},
  'objectives': {'types', 'errors', 'parts', 'layers', 'metrics'},
  'documents': {'errors'},
  'data': {'errors', 'parts', 'documents'},
  'optim': {'types', 'errors'},
  'metrics': {'types', 'errors', 'documents'},
  'parallel': {'types', 'errors', 'precision'},
  'interop': {'types', 'errors', 'documents'},
  'state': {'types', 'errors'},
  'step': {'types', 'errors', 'optim', 'state'},
  'sparse_step': {'types', 'errors', 'optim', 'state', 'step'},
  'sampling': {'types', 'errors'},
  'decode': {'types', 'errors', 'sampling'},
  'beam': {'types', 'errors', 'decode'},
  'cost': {'types', 'errors'},
  'log': {'errors', 'loss_curve', 'mirror', 'processor'},
  'loss_curve': set(),
  'mirror': set(),
  'ranges': set(),
  'run_files': {'errors', 'documents', 'mirror', 'data'},
  'pictures': {'errors'},
  'checksum': {'errors'},
  'stop': set(),
  'rendezvous': {'errors'},
  'fields': {'errors'},
  'semantics': {'data'},
  'precision': set(),
  'experiment_file': {'errors', 'fields'},
  'commit': {'errors', 'checksum'},
  'checkpoint': {'errors', 'checksum', 'commit'},
}
# Parts that put the others together: only they may import one another, and only the last two import train.
TOGETHER = {
  'answers',
  'config',
  'restored',
  'exchanged',
  'evaluate',
  'inference',
  'predictions',
  'tags',
  'translate',
  'translated',
  'pointer',
  'mixture',
  'context',
  'contextual',
  'wordvectors',
  'preflight',
  'results',
  'samples',
  'train',
  'cli',
  '__init__',
}
JAX = {'jax', 'jaxlib', 'flax', 'optax', 'orbax'}
PICKLES = {'pickle', 'cPickle', 'dill', 'cloudpickle', 'joblib', 'shelve', 'marshal'}


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


def part(path: pathlib.Path) -> str:
  """'layers' for lmx/layers/scaled_dot.py, 'state' for lmx/state.py."""
  return path.relative_to(ROOT / 'lmx').parts[0].removesuffix('.py')


def parts_imported(path: pathlib.Path) -> set[str]:
  """Parts of lmx that a file imports."""
  found = {dotted.split('.')[1] for dotted in imports(path) if dotted.startswith('lmx.')}
  return {p for p in found if (ROOT / 'lmx' / p).is_dir() or (ROOT / 'lmx' / f'{p}.py').is_file()}


@pytest.mark.parametrize('folder', sorted(LEAVES))
def test_imports_follow_the_map(folder):
  paths = [p for p in CODE if name(p).startswith('lmx/') and part(p) == folder]
  assert paths, f'lmx/{folder} is in the map and not in the code'
  for path in paths:
    extra = parts_imported(path) - LEAVES[folder] - {folder}
    assert not extra, f'{name(path)} imports {sorted(extra)}, which {folder} must not know'


def test_every_part_has_its_place_on_the_map():
  parts = {part(p) for p in CODE if name(p).startswith('lmx/')}
  assert parts <= LEAVES.keys() | TOGETHER, f'new parts: {sorted(parts - LEAVES.keys() - TOGETHER)}'


def test_only_commands_know_the_loop():
  for path in CODE:
    if name(path).startswith('lmx/') and part(path) not in ('train', 'cli', '__init__'):
      assert 'train' not in parts_imported(path), f'{name(path)} imports the loop'


def test_a_model_file_imports_no_other_model():
  for model in registry.names():
    other = {d for d in imports(ROOT / f'lmx/models/{model}.py') if d.startswith('lmx.models')}
    assert not other, f'models/{model}.py imports {sorted(other)}'


def test_data_experiments_and_launch_are_free_of_jax():
  for path in CODE:
    if name(path).startswith(('lmx/data/', 'experiments/', 'launch/')):
      assert not tops(path) & JAX, f'{name(path)} imports {sorted(tops(path) & JAX)}'


def test_experiments_import_only_ml_collections_and_what_they_share():
  allowed = {'__future__', 'ml_collections', 'experiments', 'collections', 'typing', 'math'}
  allowed |= {'difflib', 'itertools'}
  for path in (ROOT / 'experiments').rglob('*.py'):
    assert not tops(path) - allowed, f'{name(path)} imports {sorted(tops(path) - allowed)}'
    beside = {f'experiments.{part.stem}' for part in (ROOT / 'experiments').glob('*.py')}
    shared = {'experiments.tables'} if path.parent.name == 'tables' else beside
    other = {d for d in imports(path) if d.startswith('experiments.')} - shared
    assert not {d for d in other if not d.startswith(tuple(f'{part}.' for part in shared))}, name(path)


def test_nothing_pickles():
  for path in CODE:
    assert not tops(path) & PICKLES, f'{name(path)} imports {sorted(tops(path) & PICKLES)}'
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.keyword) and node.arg == 'allow_pickle':
        value = node.value
        assert isinstance(value, ast.Constant) and value.value is False, name(path)


def test_library_reads_no_config_with_a_default_beside_it():
  for path in CODE:
    found = re.search(r'\b(cfg|config)\.get\([^()]*,', path.read_text())
    assert not found, f'{name(path)}: {found.group(0)}... hides a default far from the config'


def test_no_grab_bags_stubs_or_todos():
  for path in CODE:
    assert path.name not in ('utils.py', 'util.py', 'helpers.py', 'misc.py'), name(path)
    assert not (path.name == 'common.py' and name(path).startswith('lmx/')), name(path)
    found = re.search(r'\b(TODO|FIXME|XXX|NotImplementedError)\b', path.read_text())
    assert not found, f'{name(path)}: {found.group(0)}'


def test_every_file_and_public_function_says_what_it_is():
  for path in CODE:
    tree = ast.parse(path.read_text())
    if not tree.body:
      continue  # an empty __init__.py
    assert ast.get_docstring(tree), f'{name(path)} has no docstring'
    for node in tree.body:
      kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
      if isinstance(node, kinds) and not node.name.startswith('_'):
        if name(path).startswith('experiments/') and node.name in ('get_config', 'sweep'):
          continue  # the file's docstring is theirs
        if name(path).startswith('lmx/cli/') and node.name in ('add_arguments', 'run'):
          continue  # likewise, and lmx/cli/main.py says what the two are
        assert ast.get_docstring(node), f'{name(path)}: {node.name} has no docstring'


def test_functions_stay_small():
  for path in CODE:
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        assert lines <= 70, f'{name(path)}: {node.name} has {lines} lines'


def project_files() -> list[pathlib.Path]:
  """Text files that belong to the project: neither hidden nor made by a run or a tool."""
  skip = {'.git', '.venv', 'venv', 'runs', 'data', 'build', 'dist', '__pycache__'}
  found = []
  for path in ROOT.rglob('*'):
    parts = path.relative_to(ROOT).parts
    made = parts[0] in skip or any(p == '__pycache__' or p.endswith(('.egg-info', '_cache')) for p in parts)
    if path.is_file() and not made and path.suffix in TEXT_ENDINGS:
      found.append(path)
  return found


def test_no_paths_of_one_machine():
  pattern = re.compile(r'(?<![\w.])/(home|root|Users|work|mnt|opt|private)/\w+')
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
  signatures = {
    'init': ['cfg', 'key'],
    'init_state': ['cfg', 'batch_size', 'length'],
    'apply': ['cfg', 'params', 'batch', 'state', 'key', 'all_layers'],
    'logits': ['cfg', 'params', 'features'],
    'nll': ['cfg', 'params', 'features', None],
    'depth': ['cfg', 'path'],
  }
  tree = ast.parse(pathlib.Path(module.__file__).read_text())
  functions = {n.name: n.args for n in tree.body if isinstance(n, ast.FunctionDef)}
  for function, wanted in signatures.items():
    assert function in functions, f'models/{model}.py has no {function}'
    args = functions[function]
    given = [a.arg for a in args.args + args.kwonlyargs]
    wanted = [g if w is None else w for g, w in zip(given, wanted, strict=False)] + wanted[len(given) :]
    assert given == wanted, f'models/{model}.py: {function}({", ".join(given)})'


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


def test_constraints_hold_exact_versions_and_no_addresses():
  lines = (ROOT / 'constraints.txt').read_text().splitlines()
  for line in lines:
    if line and not line.startswith('#'):
      assert re.fullmatch(r'[A-Za-z0-9_.-]+==[\w.!+]+( *;.*)?', line), line
