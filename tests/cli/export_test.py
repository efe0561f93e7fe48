"""`lmx export` of models that no other library reads: the message names those that it writes, and commands instead."""

from __future__ import annotations

import pytest

from lmx.cli import main
from lmx.config import resolve
from lmx.interop import huggingface
from lmx.models import registry

USED_BY = {  # recipe of a model without a layout -> what the message suggests
  'esim/pairs.py:tiny': 'lmx predict --workdir={}, or in Python',
  'self_attention/tasks.py:tiny': 'lmx predict --workdir={}, lmx embed',
  'quaternion_transformer/tasks.py:own_scores': 'read; use the run in lmx: lmx predict --workdir={}, lmx embed',
  'nplm/brown.py:tiny': 'lmx generate --workdir={}, lmx score',
  'luong/quickstart.py:tiny': 'lmx translate --workdir={}, or',
  'word2vec/news.py:tiny': 'lmx vectors --workdir={} --export=',
  'ntm/quickstart.py:tiny': 'lmx evaluate --workdir={}, or',
}


@pytest.mark.parametrize('recipe', USED_BY)
def test_export_of_a_model_without_a_layout_names_what_uses_it(recipe, tmp_path, capsys):
  workdir = tmp_path / 'run'
  workdir.mkdir()
  config = resolve.load(f'experiments/{recipe}')
  (workdir / 'config.json').write_text(config.to_json())
  assert main.main(['export', f'--workdir={workdir}', f'--to={tmp_path}/out']) == 2
  message = capsys.readouterr().err
  assert message.startswith(f'lmx: model: got "{config.model.name}"') and USED_BY[recipe].format(workdir) in message
  assert 'expected one of awd_lstm, bert, elmo, gpt, gpt2, transformer, transformer_xl, xlnet,' in message
  assert f"lmx.load('{workdir}')" in message


def test_models_with_a_layout_are_models():
  assert {*huggingface.MODELS} < {*registry.names()}
