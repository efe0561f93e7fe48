"""Paths of a run are found again after it was moved with its data, and named where they are gone."""

from __future__ import annotations

import pytest

from lmx.config import paths
from lmx.errors import InputWarning


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
