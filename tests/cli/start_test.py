"""Start of the commands: a first line and errors of the user before JAX is imported."""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lmx.cli import main as cli
from lmx.cli import outputs
from lmx.config import resolve, schema

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICKSTART, STAGES = 'experiments/rnn_lm/quickstart.py:tiny', 'experiments/ulmfit/quickstart.py'
RUNS = ('context', 'describe', 'embed', 'evaluate', 'export', 'generate', 'predict', 'score', 'translate', 'vectors')
HEAVY = ('flax', 'grain', 'jax', 'matplotlib', 'optax', 'orbax', 'scipy', 'tensorflow_datasets')
# Runs commands in one process; prints for each its code, its messages, and the libraries that it has imported. Standard
# error knows whether JAX was imported before its first line.
PROBE = """
import io, json, sys
from lmx.cli import main
class Messages(io.StringIO):
  was_early = None
  def write(self, text):
    if self.was_early is None:
      self.was_early = 'jax' not in sys.modules
    return super().write(text)
found = []
for command in json.load(sys.stdin):
  sys.stderr = messages = Messages()
  try:
    code = main.main(command)
  except SystemExit as end:
    code = end.code
  finally:
    sys.stderr = sys.__stderr__
  heavy = [name for name in sys.argv[1:] if name in sys.modules]
  found.append([code, messages.getvalue(), messages.was_early, heavy])
print(json.dumps(found))
"""


def probe(commands: list[list[str]]) -> list[tuple[int, str, bool, list[str]]]:
  """Return (code, messages, JAX was imported after the first line, libraries imported so far) of each command."""
  done = subprocess.run(
    [sys.executable, '-c', PROBE, *HEAVY], input=json.dumps(commands), capture_output=True, text=True, cwd=ROOT
  )
  assert done.returncode == 0, done.stderr
  return [tuple(one) for one in json.loads(done.stdout.splitlines()[-1])]


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """The records of a run that an error before its weights are read needs."""
  folder = tmp_path_factory.mktemp('run')
  (folder / 'config.json').write_text(json.dumps(resolve.load(QUICKSTART).to_dict()))
  (folder / 'data.json').write_text('{}')
  return folder


def sections() -> list[tuple[str, str]]:
  """Return an unknown key and a wrong type of each section that is not of the model, with a part of the message."""
  keys = [(f'{name}.unknown=1', f'{name}.unknown: got a key that the config does not have') for name in schema.SECTIONS]
  types = [
    *('train.steps=many', 'data.length=long', 'data.batching.stride=far', 'optim.lr=fast', 'parallel.tensor=all'),
    *('checkpoint.every_steps=few', 'evaluation.beam=wide', 'samples.count=some', 'log.project=(1,2)', 'seed=one'),
    *('matmul_precision=exact', 'evaluation.cache=(1.5,1,1)', 'samples.temperature=1e-9', 'trian=3'),
  ]
  return [*keys, *((text, f'{text.partition("=")[0]}: ') for text in types)]


def test_errors_are_reported_before_jax_is_imported(run, tmp_path):
  changed = [name for name in RUNS if name not in cli.WITHOUT_CONFIG]
  train = ['train', f'--config={QUICKSTART}', f'--workdir={tmp_path / "new"}']
  more = {'context': ['--output=o'], 'export': ['--to=o'], 'predict': ['--split=test']}
  text = tmp_path / 'text.txt'
  text.write_text('one\n')
  more |= {'embed': [f'--input={text}', '--output=o.npz'], 'score': [f'--input={text}']}
  named = lambda name, folder: [name, f'--workdir{"s" * (name == "context")}={folder}', *more.get(name, ())]
  cases = [([*train, f'--config.{text}'], message) for text, message in sections()]
  cases += [
    (['trian'], 'unknown command "trian"; did you mean "train"?'),
    ([*train[:2], '--wrkdir=x', '--workdir=y'], 'unknown option "--wrkdir=x"; did you mean "--workdir"?'),
    (['train', '--config=none.py', '--workdir=x'], '--config: got none.py; expected a config file'),
    (['train', f'--config={QUICKSTART}x', '--workdir=x'], 'did you mean "tiny"'),
    ([*train, '--config.optim.weight_decy=0.1'], 'did you mean "weight_decay"?'),
    *(([name, train[1], '--config.data.lenth=3'], 'data.lenth: got a key') for name in ('prepare', 'ngrams')),
    (['preflight', *train[1:], '--config.data.lenth=3'], 'did you mean "length"?'),
    (['config', QUICKSTART, '--config.train.stepz=3'], 'did you mean "steps"?'),
    (['config', str(run), '--config.train.stepz=3'], 'did you mean "steps"?'),
    (['pipeline', f'--config={STAGES}', '--workdir=x', '--config.train.stepz=3'], 'did you mean "steps"?'),
    (['pipeline', f'--config={QUICKSTART}', '--workdir=x'], 'has no stages'),
    (['evaluate', f'--workdir={run}', f'--config={QUICKSTART}', '--config.data.lenth=3'], 'did you mean "length"?'),
    *((named(name, tmp_path / 'none'), 'none: got no config.json, and there is no such file') for name in RUNS),
    *(([*named(name, run), '--config.evaluation.bem=3'], 'did you mean "beam"?') for name in changed),
    (['report', f'{tmp_path}/none'], 'none: got no config.json'),
    (['report', str(run), f'{tmp_path}/none', '--output=o.html'], 'none: got no config.json'),
    *(([name, f'{tmp_path}/none', f'{tmp_path}/none2'], 'none') for name in ('compare', 'results', 'runs')),
    *(
      ([name, f'--workdir={run}', f'--ensemble={run},{tmp_path}'], 'no config.json')
      for name in ('evaluate', 'translate')
    ),
    *(([name, '--nosuch=1'], '') for name in cli.COMMANDS if name not in cli.PASS_ON),
  ]
  for (command, message), (code, said, _, heavy) in zip(cases, probe([case[0] for case in cases]), strict=True):
    assert code == 2 and message in said, (command, code, said)
    assert heavy == [], (command, heavy)


def missing_inputs(run: pathlib.Path, text: pathlib.Path, folder: pathlib.Path) -> Iterator[tuple[list[str], str]]:
  """Yield a command with a missing file or run for each option that names one to read, and its part of the message."""
  none = str(folder / 'none')
  values = {'config': QUICKSTART, 'file': QUICKSTART, 'workdir': str(run), 'workdirs': str(run)}
  for command in cli.COMMANDS:
    parser = argparse.ArgumentParser()
    cli._module(command).add_arguments(parser)
    groups = [group._group_actions for group in parser._mutually_exclusive_groups if group.required]
    for action in parser._actions:
      is_run = action.dest in ('workdir', 'workdirs', 'folders') and command not in cli.STARTS_RUNS
      if action.nargs == 0 or action.type or not (action.dest in outputs.INPUTS or is_run):
        continue
      needed = [one for one in parser._actions if one.required]
      needed += [group[0] for group in groups if action not in group]
      words = [command, *words_of(action, none)]
      for one in needed:
        to = text if one.dest in outputs.INPUTS else folder / 'out.json'
        words += [] if one is action else words_of(one, values.get(one.dest, str(to)))
      name = f'{action.option_strings[0]}: got {none}; expected an existing ' if action.option_strings else none
      yield words, none if is_run else name


def words_of(action: argparse.Action, value: str) -> list[str]:
  return [f'{action.option_strings[0]}={value}' if action.option_strings else value]


def test_missing_inputs_of_every_option_are_reported_before_jax_is_imported(run, tmp_path):
  text = tmp_path / 'text.txt'
  text.write_text('one\n')
  cases = [*missing_inputs(run, text, tmp_path)]
  for (command, message), (code, said, _, heavy) in zip(cases, probe([case[0] for case in cases]), strict=True):
    assert code == 2 and message in said, (command, code, said)
    assert heavy == [], (command, heavy)
  assert {word.partition('=')[0] for (_, word, *_), _ in cases} >= {'--pairs', '--from', '--ensemble', '--rows'}


def test_training_announces_itself_before_jax_is_imported(run, tmp_path):
  config, wrong = f'--config={QUICKSTART}', '--config.model.unknown=1'
  commands = [['train', config, f'--workdir={folder}', wrong] for folder in (tmp_path / 'new', run)]
  (code, new, was_early, heavy), (_, resumed, _, _) = probe(commands)
  assert was_early and new.splitlines()[0] == f'train {QUICKSTART}: new run in {tmp_path / "new"}'
  assert resumed.splitlines()[0] == f'train {QUICKSTART}: resumes the run in {run}'
  # A key of the model needs its file, which imports JAX, and nothing that only a step needs.
  assert code == 2 and 'model.unknown: got a key that the config does not have' in new and heavy == ['jax']


def test_only_process_0_announces_a_training(monkeypatch, capsys):
  command = ['train', f'--config={QUICKSTART}', '--workdir=x', '--config.model.unknown=1']
  for process, lines in (('0', 2), ('1', 1)):
    monkeypatch.setenv('LMX_PROCESS_ID', process)
    assert cli.main(command) == 2 and len(capsys.readouterr().err.splitlines()) == lines
