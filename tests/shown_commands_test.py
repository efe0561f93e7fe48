"""Every command and Python block of the documents: it runs on a tiny run, runs dry, or its config resolves."""

from __future__ import annotations

import ast
import collections
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from lmx.cli import main
from tests import documents_test, pages_test, shown_commands

ROOT = documents_test.ROOT
SHOWN = shown_commands.all_shown()

# Tiny trainings that stand for the runs of the pages: name -> arguments of `lmx train`.
TRAINED = {
  'gpt2': ['experiments/gpt2/quickstart.py:tiny'],
  'profiled': ['experiments/gpt2/quickstart.py:tiny', '--config.train.profile=5:8'],
  'words': ['experiments/gpt2/quickstart.py:tiny', '--config.checkpoint.at_words=(400,1_200)'],
  'lstm': ['experiments/rnn_lm/quickstart.py:tiny'],
  'awd': ['experiments/awd_lstm/quickstart.py:tiny'],
  'txl': ['experiments/transformer_xl/quickstart.py:tiny'],
  'elmo': ['experiments/elmo/text.py:tiny'],
  'bert': ['experiments/bert/pretrain.py:tiny'],
  'classifier': ['experiments/bert/tasks.py:tiny', '--config.evaluation.save_rows=true'],
  'classifier_1': ['experiments/bert/tasks.py:tiny', '--config.evaluation.save_rows=true', '--config.seed=1'],
  'translator': ['experiments/bahdanau/quickstart.py:tiny', '--config.evaluation.beam=0'],
  'answers': ['experiments/bert/squad.py:tiny'],
  'segmenter': ['experiments/cfnet/own.py:tiny'],
  'tagger': ['experiments/elmo/wnut17.py:tiny'],
}


class Page(NamedTuple):
  """What a page needs.

  Attributes:
    runs: directory -> name in TRAINED.
    changed: words of its commands -> those of the tiny variant.
    skipped: commands that need more than this machine, with the reason.
  """

  runs: dict[str, str] = {}
  changed: dict[str, str] = {}
  skipped: dict[str, str] = {}


PAGES = {
  'README.md': Page({'runs/mine': 'gpt2', 'runs/labels': 'classifier', 'DIR': 'exported', 'GPT2': 'gpt2'}),
  'docs/babylm.md': Page(
    {'runs/babylm': 'words', 'runs/babylm_elmo': 'elmo'},
    {'words:1000000': 'words:400', 'words:10000000': 'words:1200'},
  ),
  'docs/concepts.md': Page({'runs/concepts': 'gpt2'}),
  'docs/configuration.md': Page(),
  'docs/from_pytorch.md': Page({'runs/small': 'gpt2'}),
  'docs/hardware.md': Page(),
  'docs/harness.md': Page(
    {'runs/gpt2': 'gpt2'},
    skipped={'lambada_openai': 'downloads its data', 'ls tasks': 'needs the extra harness', 'tasks/blimp': 'the same'},
  ),
  'docs/launch.md': Page({'runs/a': 'gpt2'}),
  'docs/notes/awd_lstm.md': Page({'DIR': 'awd'}, {'--cache=500,0.1,1.0': '--cache=50,0.1,1.0'}),
  'docs/notes/fine_tuning.md': Page({'DIR/0': 'classifier', 'DIR/1': 'classifier_1'}, {'DIR/*': 'DIR/0 DIR/1'}),
  'docs/notes/transformer_xl.md': Page(
    {'runs/fast': 'txl', 'runs/alone': 'txl'},
    {'--which=2000': '--which=20', '--lengths=32:192:32': '--lengths=8:24:8', '--tokens=4000': '--tokens=200'},
  ),
  'docs/notes/weights.md': Page({'runs/bert': 'bert', 'DIR': 'exported'}),
  'docs/own_data.md': Page({'runs/mine_too': 'translator', 'runs/answers': 'answers', 'runs/streets': 'segmenter'}),
  'docs/pod.md': Page({'runs/pod/gpt2': 'gpt2'}, skipped={'gs://': 'needs a bucket'}),
  'docs/profile.md': Page({'runs/profiled': 'profiled'}),
  'docs/python.md': Page(
    {'GPT2': 'gpt2', 'BERT': 'bert', 'CLASSIFIER': 'classifier', 'SEGMENTER': 'segmenter', 'TRANSLATOR': 'translator'}
  ),
  'docs/quickstart.md': Page({'runs/quickstart': 'lstm'}),
  'docs/scoring.md': Page(
    {'runs/gpt2': 'gpt2', 'runs/bert': 'bert', 'runs/a': 'gpt2', 'runs/b': 'words', 'GPT2': 'gpt2'},
    {'experiments/gpt2/quickstart.py': 'experiments/gpt2/quickstart.py:tiny'},
  ),
  'docs/statistics.md': Page(
    {
      'runs/a': 'classifier',
      'runs/b': 'classifier_1',
      'runs/c': 'classifier_1',
      'rows/b': 'rows_1',
      'rows/c': 'rows_1',
    },
    {'--metric=f1': '--metric=macro_f1'},
  ),
  'docs/which_model.md': Page({'runs/tagger': 'tagger'}),
  'docs/zero_shot.md': Page({'DIR': 'exported'}),
}

# Code that is a part of a file, or that another test runs.
FRAGMENTS = ('docs/add_data_set.md', 'docs/code.md', 'docs/contract.md', 'docs/add_model.md', 'docs/fine_tune.md')
WITH_LIBRARIES = ('transformers',)  # blocks that import these run where the library is installed


def test_every_command_of_a_document_has_its_check(bucket):
  counts = collections.Counter()
  for shown in (one for one in SHOWN if not one.python):
    kind = shown_commands.treatment(shown)
    counts[kind] += 1
    if kind == 'run':
      assert shown.document in PAGES, f'{shown.document}: `{shown.text}`: add its runs to PAGES'
    elif kind == 'form':
      with located(shown):
        check_form(shown)
    elif kind == 'config':
      with located(shown):
        documents_test.check_command(shown.words[1:])
    elif kind == 'file':
      assert (ROOT / shown.words[1]).exists(), shown
  assert min(counts[kind] for kind in ('run', 'form', 'config', 'launch', 'elsewhere')) > 20, counts


def test_every_python_block_of_a_document_has_its_check():
  for shown in (one for one in SHOWN if one.python):
    assert shown.document in PAGES or shown.document in FRAGMENTS, f'{shown.document}: add it to PAGES'
    if shown.document in PAGES:
      ast.parse(shown.text)


@contextlib.contextmanager
def located(shown: shown_commands.Shown):
  """Name the document and the command in an error."""
  try:
    yield
  except (Exception, SystemExit) as error:
    error.add_note(f'{shown.document}: `{shown.text}`')
    raise


def check_form(shown: shown_commands.Shown) -> None:
  """Parse the form of a command; its placeholders stay, except for numbers."""
  words = [re.sub(r'=N$', '=2', word.split('[')[0]) for word in shown.words[1:] if word not in ('...', '--help')]
  if shown.words[0] != 'lmx':
    parsers = dict(pages_test.hook('command_pages').launcher_parsers())
    parsers[words[1].removeprefix('launch.')].parse_args(words[2:])
  elif words[1:]:
    main.parse(words)


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  """Return a function of a name in TRAINED that trains the run once; also its export and its saved rows."""
  folder = tmp_path_factory.mktemp('trained')

  def get(name: str) -> pathlib.Path:
    if not (folder / name).exists():
      if name == 'exported':
        call(f'lmx export --workdir={get("gpt2")} --to={folder / name}')
      elif name == 'rows_1':
        call(f'lmx evaluate --workdir={get("classifier_1")} --split=valid --save_rows={folder / name}')
      else:
        config, *overrides = TRAINED[name]
        call(shlex.join(['lmx', 'train', f'--config={ROOT / config}', f'--workdir={folder / name}', *overrides]))
    return folder / name

  return get


def call(command: str) -> None:
  """Run an lmx command in this process."""
  words = shlex.split(command)
  assert main.main(words[1:]) == 0, command


def write_files(folder: pathlib.Path) -> None:
  """Write the small inputs that the pages name."""
  good, bad = 'The method returns a string.', 'The method return a string.'
  pairs = [{'sentence_good': f'{good} {i}', 'sentence_bad': f'{bad} {i}', 'UID': uid, 'pairID': str(i)}
           for uid in ('island_effects_1', 'agreement_1') for i in range(4)]  # fmt: skip
  for pair in pairs:
    pair |= {'linguistics_term': pair['UID'].removesuffix('_1'), 'field': 'syntax'}
  files = {
    'sentences.txt': f'{good}\n{bad}\n',
    'sentences.csv': f'sentence\n{good}\n{bad}\n',
    'test.txt': f'{good}\n{bad}\n',
    'new.csv': 'text\nreads a file\nopens a socket\n',
    'new.conll': 'the\nfile\nopens\n\na\nsocket\n',
    'mine.csv': f'right,wrong,kind\n{good},{bad},agreement\n{good} x,{bad} x,agreement\n',
    'notes.md': 'A BERT to try.\n',
    'blimp_babylm_filtered.tsv': 'UID\tpairID\n' + ''.join(f'{pair["UID"]}\t{pair["pairID"]}\n' for pair in pairs),
    'questions.json': json.dumps({'version': 'v2.0', 'data': [{'title': 't', 'paragraphs': [
      {'context': 'The method returns a string.', 'qas': [{'id': 'q', 'question': 'Which value?', 'answers': []}]}
    ]}]}),
  }  # fmt: skip
  for name in ('DIR/blimp/x.jsonl', 'data/blimp/x.jsonl'):
    files[name] = ''.join(json.dumps(pair) + '\n' for pair in pairs)
  files['DIR/blimp_babylm_filtered.tsv'] = files.pop('blimp_babylm_filtered.tsv')
  for name, text in files.items():
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
  for name, shape in (('FOLDER', (40, 50, 3)), ('FOLDER_OF_TRUE_MASKS', (40, 50))):
    (folder / name).mkdir()
    Image.fromarray(np.zeros(shape, np.uint8)).save(folder / name / 'street.png')


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize('document', PAGES)
def test_commands_of_page_run(document, trained, tmp_path, monkeypatch, capsys):
  page = PAGES[document]
  (tmp_path / 'experiments').symlink_to(ROOT / 'experiments')
  write_files(tmp_path)
  for name, run in page.runs.items():
    shutil.copytree(trained(run), tmp_path / name, dirs_exist_ok=True)
  monkeypatch.chdir(tmp_path)
  in_sentences_last = sorted(shown_commands.of(document), key=lambda shown: not shown.block)
  for shown in in_sentences_last:
    if shown.python:
      run_block(shown.text)
    elif shown_commands.treatment(shown) == 'run' and not any(part in shown.text for part in page.skipped):
      command = shown.text.removeprefix('.venv/bin/')
      for old, new in page.changed.items():
        command = re.sub(rf'{re.escape(old)}(?=\s|$)', new, command)
      given, _, command = command.rpartition(' | ')
      given = given.removeprefix('echo ').strip("'")
      monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(f'{given}\n'.encode())))
      call(command)


def run_block(text: str) -> None:
  """Run Python code; a block that imports a library which is not installed is only compiled."""
  code = compile(text, 'block', 'exec')
  if all(importlib.util.find_spec(name) for name in WITH_LIBRARIES if f'from {name}' in text):
    exec(code, {})


PLACEHOLDERS = r'\b(NAME|ZONE|IMAGE|QUEUE|BUCKET)\b'  # names that a cluster gives, in small letters
ZONE = 'us-central1-c'
READ_ONLY = ('--list', '--feasible')
OWN_TESTS = ('--check', '--pages', '--collect', '--commands=FILE')  # tests/launch


@pytest.mark.slow
def test_launch_commands_run_dry(tmp_path, bucket, monkeypatch, capsys):
  (tmp_path / 'experiments').symlink_to(ROOT / 'experiments')
  (tmp_path / 'DIR').mkdir()
  for git in (['init', '-q'], ['commit', '-q', '--allow-empty', '-m', 'Begin']):  # of which tpu_vm copies a commit
    subprocess.run(['git', '-c', 'user.name=x', '-c', 'user.email=x@example.com', *git], cwd=tmp_path, check=True)
  before = sorted(os.listdir(tmp_path))
  monkeypatch.chdir(tmp_path)
  parsers = dict(pages_test.hook('command_pages').launcher_parsers())
  for shown in SHOWN:
    if shown.python or shown_commands.treatment(shown) != 'launch':
      continue
    filled = lambda match: ZONE if match[0] == 'ZONE' else match[0].lower()
    name, *words = [re.sub(PLACEHOLDERS, filled, word) for word in shown.words[2:]]
    name = name.removeprefix('launch.')
    if any(word.startswith(OWN_TESTS) for word in words):
      parsers[name].parse_args(words)
      continue
    dry = [] if any(word.startswith((*READ_ONLY, '--dry_run')) for word in words) else ['--dry_run']
    folder = (ROOT / 'launch' / name).is_dir()
    program = importlib.import_module(f'launch.{name}.__main__' if folder else f'launch.{name}')
    assert program.main([*dry, *words]) == 0, shown
    assert capsys.readouterr().out, shown
    assert sorted(os.listdir(tmp_path)) == before, shown
