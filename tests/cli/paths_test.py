"""Every option, key and variable of lmx that is a path refuses what can be none, and makes nothing."""

from __future__ import annotations

import argparse

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
      if action.dest in (*outputs.OUTPUTS, *outputs.INPUTS, *outputs.FOLDERS) and action.nargs != 0:
        yield command, action


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
  """An option whose help or placeholder names a file or folder is checked."""
  named = {'config', 'file', 'diff'}  # checked by experiment.split
  for command in cli.COMMANDS:
    parser = argparse.ArgumentParser()
    cli._module(command).add_arguments(parser)
    for action in parser._actions:
      words = f'{action.metavar or ""} {(action.help or "").partition(",")[0]}'.split()
      if {'FILE', 'FILES', 'DIR', 'FILE.png', 'FILE.html', 'FILE,...'} & set(words) and action.dest not in named:
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
