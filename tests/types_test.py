"""The protocols of models and objectives, as mypy reads them."""

from __future__ import annotations

import pathlib

import pytest

from tests import contract_types

ROOT = pathlib.Path(__file__).parents[1]


def test_every_model_objective_and_batching_is_checked():
  source = contract_types.source()
  for package, (interface, names) in contract_types.INTERFACES.items():
    kind = interface.__name__
    assert names and all(f'\n{name}_{kind}: {kind}_{name} = {package}.{name}\n' in source for name in names)


def test_required_names_and_those_that_a_module_defines_are_checked():
  source = contract_types.source()
  gpt2, bilstm = (source.partition(f'\nclass Model_{name}(')[2].partition('\nimport')[0] for name in ('gpt2', 'bilstm'))
  for name in ('Config', 'VARIANTS', 'CAUSAL', 'OBJECTIVE', 'init', 'apply'):
    assert f'  def {name}(self)' in gpt2 and f'  def {name}(self)' in bilstm
  assert '  def logits(self, cfg' in gpt2 and '  def logits(' not in bilstm


@pytest.mark.slow
@pytest.mark.parametrize(
  'package, file, before, after, name',
  [
    ('lmx.models', 'nplm', 'def init(', 'def start(', 'init'),
    ('lmx.models', 'nplm', 'features: Features, targets_BT: Array', 'features: Features', 'nll'),
    ('lmx.objectives', 'causal_lm', 'state: State, key: Array | None = None', 'state: State', 'loss'),
  ],
)
def test_module_that_breaks_the_contract_is_rejected(package, file, before, after, name, tmp_path, monkeypatch):
  api = pytest.importorskip('mypy.api')
  text = (ROOT / f'{package.replace(".", "/")}/{file}.py').read_text()
  assert before in text
  (tmp_path / 'part.py').write_text(text.replace(before, after))
  interface = contract_types.INTERFACES[package][0]
  monkeypatch.setattr(contract_types, 'INTERFACES', {package: (interface, [file])})
  (tmp_path / 'check.py').write_text(contract_types.source().replace(f'{package}.{file}', 'part'))
  monkeypatch.setenv('MYPYPATH', str(tmp_path))
  report, _, code = api.run([str(tmp_path / 'check.py')])
  assert code == 1 and name in report and 'check.py' in report
