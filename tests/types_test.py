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
@pytest.mark.parametrize(
  'protocol, file, before, after, name',
  [
    ('Model', 'models/nplm', 'def nll(', 'def nil(', 'nll'),
    ('Objective', 'objectives/causal_lm', 'state: State, key: Array | None = None', 'state: State', 'loss'),
  ],
)
def test_a_module_that_breaks_the_contract_is_refused(protocol, file, before, after, name, tmp_path, monkeypatch):
  api = pytest.importorskip('mypy.api')
  text = (ROOT / f'lmx/{file}.py').read_text()
  (tmp_path / 'whole.py').write_text(text)
  assert before in text
  (tmp_path / 'part.py').write_text(text.replace(before, after))
  check = f'import part, whole\nfrom lmx.types import {protocol}\na: {protocol} = whole\nb: {protocol} = part\n'
  (tmp_path / 'check.py').write_text(check)
  monkeypatch.setenv('MYPYPATH', str(tmp_path))
  report, _, code = api.run([str(tmp_path / 'check.py')])
  assert code == 1 and report.count('error:') == 1 and name in report and ':4: error' in report
