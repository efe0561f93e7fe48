"""Paths of a run are found again after it was moved with its data, and named where they are gone."""

from __future__ import annotations

import pytest

from lmx.config import paths
from lmx.errors import InputError, InputWarning


def test_data_moved_with_the_run_is_found(tmp_path, monkeypatch):
  (tmp_path / 'before/data').mkdir(parents=True)
  (tmp_path / 'before/runs/a').mkdir(parents=True)
  monkeypatch.chdir(tmp_path / 'before')
  config = {'data': {'manual_dir': 'data'}}
  paths.write(tmp_path / 'before/runs/a', config)
  (tmp_path / 'before').rename(tmp_path / 'after')
  monkeypatch.chdir(tmp_path)
  found = paths.locate(config, tmp_path / 'after/runs/a')
  assert found['data']['manual_dir'] == str(tmp_path / 'after/data')
  (tmp_path / 'after/data').rmdir()
  with pytest.warns(InputWarning, match=f'data.manual_dir: got data, .* {tmp_path}/before/data'):
    paths.locate(config, tmp_path / 'after/runs/a')


def test_missing_initial_run_is_not_warned_of(tmp_path, recwarn):
  """A run has its parameters."""
  config = {'train': {'init_from': 'vectors'}}
  paths.write(tmp_path, config)
  assert paths.locate(config, tmp_path) == config and not recwarn.list


def test_missing_tokenizer_is_read_from_the_run(tmp_path, recwarn):
  """Whose initial run, with the tokenizer, may have been removed."""
  workdir, given = tmp_path / 'run', {'data': {'tokenizer_path': f'{tmp_path}/first/tokenizer'}}
  workdir.mkdir()
  paths.write(workdir, given)
  (workdir / 'tokenizer').mkdir()
  assert paths.locate(given, workdir) == {'data': {'tokenizer_path': str(workdir / 'tokenizer')}}
  (tmp_path / 'first/tokenizer').mkdir(parents=True)
  assert paths.locate(given, workdir) == given and not recwarn.list


def test_missing_files_of_a_new_run_are_named(tmp_path):
  (tmp_path / 'a').write_text('')
  here = {'dataset': 'table_files', 'manual_dir': f'{tmp_path},{tmp_path}/*'}
  paths.check_exist({'data': here | {'vectors': ''}, 'train': {'init_from': 'hub:some/model'}})
  paths.check_exist({'data': here, 'train': {'init_from': str(tmp_path)}})
  for key, value in (('data.manual_dir', f'{tmp_path},/none'), ('data.vectors', '/none'), ('train.init_from', '/none')):
    section, name = key.split('.')
    config = {'data': here, 'train': {}}
    config[section] = config[section] | {name: value}
    with pytest.raises(InputError, match=f'{key}: got /none; there is no such file or folder'):
      paths.check_exist(config)
  paths.check_exist({'data': {'dataset': 'ptb', 'manual_dir': '/none'}})  # it may be prepared
