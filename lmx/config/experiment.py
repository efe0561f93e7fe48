"""Import of experiment files and overrides of their settings, without jax, so that launchers start fast."""

from __future__ import annotations

import contextlib
import copy
import difflib
import importlib.util
import pathlib
import traceback
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lmx import cast, documents, records, storage
from lmx.errors import InputError

# Sections and settings that decide how a run is executed and logged and where its files are, not what it computes.
EXECUTION = (
  'parallel',
  'checkpoint',
  'samples',
  'log',
  'train.heartbeat',
  'train.log_every',
  'train.profile',
  'train.profile_hosts',
  'train.watchdog',
  'data.manual_dir',
  'data.cache_dir',
  'data.prefetch',
  'data.workers',
  'data.processes',
)
_FOLDERS = ('bahdanau', 'luong', 'rnn_encdec')  # formerly experiments/seq2seq
_MOVED = {
  f'experiments/seq2seq/{name}.py': ' or '.join(f'experiments/{folder}/{name}.py' for folder in _FOLDERS)
  for name in ('quickstart', 'multi30k', 'wmt14')
}


def split(text: str, field: str = '--config') -> tuple[str, str]:
  """Return (checked path, argument) of `FILE[:ARGUMENT]`. Raises InputError if it can be no path."""
  path, _, arg = text.partition(':')
  return storage.check_path(field, path, storage.FILE), arg


def find(path: str) -> pathlib.Path:
  """Return an experiment file, given by its path or by its path in the repository."""
  local = pathlib.Path(path)
  file = local if local.is_file() else pathlib.Path(__file__).parents[2] / path
  if (new := _MOVED.get(pathlib.Path(path).as_posix())) and not file.is_file():
    raise InputError(f'--config: got {path}; expected {new}; each seq2seq model now has its own file')
  if not file.is_file():
    raise InputError(f'--config: got {path}; expected a config file{_nearest(path)}')
  return file


def load(path: str) -> types.ModuleType:
  """Import the experiment file that `find` returns."""
  file = find(path)
  spec = importlib.util.spec_from_file_location('lmx_experiment', file)
  if spec is None or spec.loader is None:
    raise InputError(f'--config: got {path}; expected a Python file')
  module = importlib.util.module_from_spec(spec)
  with running(path):
    spec.loader.exec_module(module)
  return module


def read(path_and_arg: str) -> Mapping[str, Any]:
  """Return the settings of `experiments/foo/bar.py[:arg]` or of a .json file as they are. Raises InputError."""
  path, arg = split(str(path_and_arg))
  if path.endswith('.json'):
    if not pathlib.Path(path).is_file():
      raise InputError(f'--config: got {path}; expected a config file')
    return records.read(path)
  file = module(path)
  with running(path):
    settings = file.get_config(arg)
  from ml_collections import ConfigDict  # as the experiment did

  if not isinstance(settings, (Mapping, ConfigDict)):
    raise InputError(f'{path}: get_config: got {documents.show(settings)}; expected a dictionary of settings')
  return settings


def module(path: str) -> types.ModuleType:
  """Import an experiment file that has a `get_config`."""
  file = load(path)
  if not hasattr(file, 'get_config'):
    raise InputError(f'--config: got {path} without a function get_config(arg); expected an experiment; add it')
  return file


@contextlib.contextmanager
def running(path: str) -> Iterator[None]:
  """Convert an exception in an experiment file into an InputError that names its line."""
  try:
    yield
  except InputError:
    raise
  except ValueError as error:  # experiments import nothing of lmx, so they cannot raise its errors
    raise InputError(f'{path}: {error}') from None
  except Exception as error:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(path)]
    if isinstance(error, SyntaxError):
      lines.append(error.lineno)
    place = f'{path}, line {lines[-1]}' if lines else path
    raise InputError(f'{place}: {type(error).__name__}: {getattr(error, "msg", error)}; fix this experiment') from error


def _nearest(path: str) -> str:
  """Return the hint of a message: the experiment of lmx whose path ends in `path` or resembles it."""
  root = pathlib.Path(__file__).parents[2]
  known = [file.relative_to(root).as_posix() for file in sorted(root.glob('experiments/*/*.py'))]
  known = [name for name in known if not name.endswith(('/__init__.py', '/recipe.py'))]
  close = [name for name in known if name.endswith(f'/{path}')] or difflib.get_close_matches(path, known, n=1)
  return f'; did you mean "{close[0]}"?' if close else '; `lmx list` shows those that come with lmx'


def set_value(tree: dict[str, Any], path: list[str], value: Any) -> None:
  """Set the value of `path` in nested settings; text is parsed as on the command line."""
  for name in path[:-1]:
    if name == 'batching' and isinstance(tree.get(name), str):
      tree[name] = {'name': tree[name]}
    tree = tree.setdefault(name, {})
    if not isinstance(tree, dict):
      raise InputError(f'{".".join(path)}: got a key of "{name}"; expected a section, which "{name}" is not')
  tree[path[-1]] = cast.parse(value) if isinstance(value, str) else value


def override(settings: dict[str, Any], overrides: Iterable[str]) -> None:
  """Set each 'section.key=value' in `settings`."""
  for text in overrides:
    path, equals, value = text.partition('=')
    if not equals:
      raise InputError(f'override "{text}": got no value; expected section.key=value')
    if path.split('.')[0] == 'semantics':
      raise InputError(f'override "{text}": got a rule; rules follow from the run\'s start date and cannot be set')
    set_value(settings, path.split('.'), value)


def flatten(tree: Mapping[str, Any], prefix: str = '') -> Iterator[tuple[str, Any]]:
  """Yield ('section.key', value) for each leaf of nested settings."""
  for key, value in tree.items():
    if isinstance(value, Mapping):
      yield from flatten(value, f'{prefix}{key}.')
    else:
      yield prefix + key, value


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
  """Return a copy of settings as nested dicts."""
  if hasattr(config, 'to_dict'):  # a ConfigDict
    return dict(config.to_dict())
  return copy.deepcopy(dict(config))
