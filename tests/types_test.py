"""The protocols of models and objectives, as mypy reads them."""

from __future__ import annotations

import pathlib

import pytest

from tests import contract_types

ROOT = pathlib.Path(__file__).parents[1]


def test_every_model_and_objective_is_checked():
  source = contract_types.source()
  for protocol, folder, part in (('Model', 'models', 'gpt2'), ('Objective', 'objectives', 'causal_lm')):
    assert f'from lmx.{folder} import {part} as {protocol}_{part}\n' in source
    assert f'{part}_: {protocol} = {protocol}_{part}\n' in source


@pytest.mark.slow
def test_a_module_without_a_name_of_the_contract_is_refused(tmp_path, monkeypatch):
  api = pytest.importorskip('mypy.api')
  text = (ROOT / 'lmx/models/nplm.py').read_text()
  (tmp_path / 'whole.py').write_text(text)
  (tmp_path / 'part.py').write_text(text.replace('def nll(', 'def nil('))
  check = 'import part, whole\nfrom lmx.types import Model\na: Model = whole\nb: Model = part\n'
  (tmp_path / 'check.py').write_text(check)
  monkeypatch.setenv('MYPYPATH', str(tmp_path))
  report, _, code = api.run([str(tmp_path / 'check.py')])
  assert code == 1 and report.count('error:') == 1 and 'nll' in report and ':4: error' in report
