"""`lmx list`, and commands that end before JAX is imported."""

from __future__ import annotations

import ast
import json
import pathlib
import subprocess
import sys

import pytest

from lmx.cli import list as list_command
from lmx.cli import main as cli

FRESH = """
import contextlib, io, sys
from lmx.cli.main import main
for argv in sys.argv[1].split('|'):
  shown = io.StringIO()
  with contextlib.suppress(SystemExit), contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
    main(argv.split())
  assert shown.getvalue(), argv
  assert 'jax' not in sys.modules, argv
"""


def uncounted() -> list[str]:
  """The models whose sizes the file of parameters does not have, which JAX counts."""
  known = json.loads(list_command.PARAMETERS.read_text())
  digests = {path.stem: list_command.digest(ast.parse(path.read_text())) for path in list_command.model_files()}
  return [name for name, digest in digests.items() if known.get(name, {}).get('digest') != digest]


def test_commands_that_need_no_jax_do_not_import_it():
  failing = ['train --config=none.py --workdir=x', 'train --nothing', 'bench --steps=0', 'describe none', 'none']
  helped = [f'{command} --help' for command in cli.COMMANDS]
  listed = 'list experiments' if uncounted() else 'list'
  subprocess.run([sys.executable, '-c', FRESH, '|'.join([listed, '--help', *failing, *helped])], check=True)


def test_models_and_experiments(capsys):
  assert cli.main(['list']) == 0
  text = capsys.readouterr().out
  assert (
    '    gpt2:124m                     124,439,808 parameters\n' in text and 'experiments/gpt2/quickstart.py' in text
  )
  assert '/recipe.py' not in text
  assert cli.main(['list', 'experiments']) == 0
  assert '124,439,808' not in capsys.readouterr().out


@pytest.mark.slow
def test_parameter_counts_file_is_current():
  known, counted = json.loads(list_command.PARAMETERS.read_text()), list_command.count_all()
  current = {name: known[name] for name in known if name not in uncounted()}
  assert current == {name: counted[name] for name in current} and len(current) > 20, 'run python -m lmx.cli.list'


def test_changed_model_is_recounted(capsys, monkeypatch, tmp_path):
  known = json.loads(list_command.PARAMETERS.read_text())
  known['nplm'] = {'digest': '', 'variants': {'tiny': 1}}
  monkeypatch.setattr(list_command, 'PARAMETERS', tmp_path / 'parameters.json')
  list_command.PARAMETERS.write_text(json.dumps(known))
  assert cli.main(['list', 'models']) == 0
  assert '    nplm:tiny                           3,453 parameters\n' in capsys.readouterr().out


def test_digest_depends_only_on_fields_and_constants():
  text = pathlib.Path(list_command.ROOT / 'lmx/models/nplm.py').read_text()
  digest = list_command.digest(ast.parse(text))
  for old, new, same in (('\ndef init(', '\n# a comment\ndef init(', True), ("'tiny': ", "'small': ", False)):
    assert old in text
    assert (list_command.digest(ast.parse(text.replace(old, new))) == digest) == same


def test_summary_ends_with_a_full_sentence():
  assert list_command.summary('GPT-2 (Radford et al. 2019) in small. More.') == 'GPT-2 (Radford et al. 2019) in small'
  assert list_command.summary(None) == ''
