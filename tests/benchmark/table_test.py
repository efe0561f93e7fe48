"""The table of presets: processes of their own, rows that fail, interpreters that lack something."""

from __future__ import annotations

import json
import sys

import pytest

from lmx.benchmark import generation, row, table
from lmx.errors import InputError


def test_every_notation_is_registered_by_name():
  assert table.parse('all') == list(table.NAMES) and len(set(table.NAMES)) == len(table.NAMES)
  assert {'gpt2_124m', 'word2vec_cbow_tree', 'generate_8', 'beam_4', 'fine_tuning', 'prepare'} <= set(table.NAMES)
  assert table.parse('prepare, beam_4') == ['prepare', 'beam_4']
  with pytest.raises(InputError, match='did you mean "beam_4"'):
    table.parse('prepare,beam_5')


def test_failing_preset_drops_only_its_row(tmp_path, monkeypatch, capsys):
  program = tmp_path / 'python'
  lines = [
    f'#!{sys.executable} -S',
    'import json, sys',
    'words = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[4:])',
    'assert sys.argv[1:4] == ["-m", "lmx", "bench"] and words["rounds"] == "2", sys.argv',
    f'row = {row.make("x", "s", [1.0])!r}',
    'json.dump([{**row, "name": words["preset"]}], open(words["json"], "w"))',
    'if words["preset"] == "beam_4": sys.exit("no room")',
  ]
  program.write_text('\n'.join(lines))
  program.chmod(0o755)
  monkeypatch.setattr(sys, 'executable', str(program))
  rows = table.measure_all(['prepare', 'beam_4', 'generate_1'], ['--rounds=2'])
  assert [one['name'] for one in rows] == ['prepare', 'beam_4', 'generate_1']
  assert rows[1] == {'name': 'beam_4', 'error': 'no room'} and rows[2]['ours']['median'] == 1.0
  said = capsys.readouterr().out
  assert '[2 of 3] beam_4' in said and 'beam_4: failed: no room' in said


def test_preset_without_peer_packages_measures_only_lmx(peer, monkeypatch):
  calls = []

  def measure(name, rounds, python):
    calls.append((rounds, python))
    return [row.make(name, 's', [1.0])]

  monkeypatch.setattr(generation, 'measure', measure)
  monkeypatch.setattr(generation, 'PACKAGES', ('absent',))
  (found,) = table.measure('beam_4', table.Options(rounds=4, peers=sys.executable))
  assert found['missing'] == 'absent' and calls == [(4, None)]
  assert table.measure('beam_4', table.Options(peers=peer))[0]['missing'] == '' and calls[1] == (3, peer)
  assert table.measure('beam_4', table.Options())[0]['missing'] == '' and calls[2] == (3, None)


def test_non_table_files_are_not_combined(tmp_path):
  good, bad = tmp_path / 'good.json', tmp_path / 'bad.json'
  good.write_text(json.dumps([row.make('a', 's', [1.0]), {'name': 'b', 'error': 'x'}]))
  bad.write_text(json.dumps([{'name': 'a', 'step_seconds': 1.0}]))
  assert [one['name'] for one in table.read(str(good))[0]] == ['a', 'b']
  with pytest.raises(InputError, match='--combine: got .*bad.json'):
    table.read(f'{good},{bad}')
