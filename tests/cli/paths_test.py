"""Every option, key and variable of lmx that is a path refuses what can be none, and makes nothing."""

from __future__ import annotations

import argparse
import re

import pytest

from lmx import storage
from lmx.cli import main as cli
from lmx.cli import outputs
from lmx.compilation import cache as programs
from lmx.config import paths
from lmx.data import cache
from lmx.errors import InputError, InputWarning
from tests import bad_paths


def path_options():
  """Yield (command, option) of every option that is a path."""
  for command in cli.COMMANDS:
    parser = argparse.ArgumentParser()
    cli._module(command).add_arguments(parser)
    for action in parser._actions:
      is_path = action.dest in (*outputs.OUTPUTS, *outputs.INPUTS, *outputs.FOLDERS)
      if is_path and action.nargs != 0 and action.type is None:
        yield command, action


PLACES = {
  'FILE',
  'FILES',
  'DIR',
  'FOLDER',
  'PATH',
  'file',
  'files',
  'folder',
  'directory',
  'directories',
  'runs',
  'picture',
}
OPTIONS = {f'{command} {action.dest}': (command, action) for command, action in path_options()}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  bad_paths.make(tmp_path)
  yield tmp_path
  assert bad_paths.is_untouched(tmp_path)


def expand(command, action, value):
  args = argparse.Namespace(command=command, **{action.dest: [value] if action.nargs else value})
  outputs.expand(args, [action])


def test_option_rejects_invalid_paths():
  for command, action in OPTIONS.values():
    check_option(command, action)


def check_option(command: str, action: argparse.Action) -> None:
  name = action.option_strings[0] if action.option_strings else action.metavar
  kind = outputs._kind(command, action.dest)
  wrong = {storage.FILE: {'folder': 'folder'}, storage.FOLDER: {'file': 'file'}}.get(kind, {})
  for title, value in {**bad_paths.BAD, **wrong}.items():
    if title == 'published weights' and (command, action.dest) in outputs.HUB:
      expand(command, action, value)
      continue
    if title == bad_paths.LATIN and kind != storage.FOLDER:
      continue  # a file of this machine can have such a name
    with pytest.raises(InputError, match=f'^{name}: got '):
      expand(command, action, value)


def test_every_path_option_is_checked():
  """An option whose help or placeholder names a file, folder or run is checked."""
  others = {'config', 'file', 'diff', 'max_shard_size'}  # configs are checked by experiment.split
  for command in cli.COMMANDS:
    parser = argparse.ArgumentParser()
    cli._module(command).add_arguments(parser)
    for action in parser._actions:
      words = re.findall(r'\w+', f'{action.metavar or ""} {re.split("[,;(]", action.help or "")[0]}')
      if PLACES & set(words) and action.nargs != 0 and action.type is None and action.dest not in others:
        assert f'{command} {action.dest}' in OPTIONS, (command, action.dest)


@pytest.mark.parametrize('option', ['FILE', '--diff'])
def test_config_names_its_option(option, capsys):
  first = ['experiments/gpt2/quickstart.py', '--diff'] if option == '--diff' else []
  for title, value in bad_paths.BAD.items():
    assert cli.main(['config', *first, value]) == 2, title
    message = capsys.readouterr().err
    assert message.startswith(f'lmx: {option}: ') or 'expected a config file' in message, message


def test_config_key_rejects_invalid_paths():
  for key, kind in paths.KINDS.items():
    section, _, name = key.partition('.')
    for title, value in bad_paths.BAD.items():
      if key == 'log.mlflow_uri' and ':' in value or title == bad_paths.LATIN and kind != storage.FOLDER:
        continue  # an address of a server, a file
      with pytest.raises(InputError, match=f'^{key}: got '):
        paths.check({section: {name: value}}, [key])


def test_environment_variable_rejects_invalid_paths(monkeypatch):
  for title, value in bad_paths.BAD.items():
    if title in ('zero byte', 'surrogate'):
      continue  # an environment cannot have it
    monkeypatch.setenv('LMX_COMPILATION_CACHE', value)
    with pytest.warns(InputWarning, match='^LMX_COMPILATION_CACHE: got'):
      assert not programs.prepare()
    monkeypatch.setenv('LMX_CACHE', value)
    if not storage.is_remote(value):
      with pytest.raises(InputError, match='^LMX_CACHE: got '):
        cache.root()
