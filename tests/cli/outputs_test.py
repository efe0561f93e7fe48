"""Outputs are checked before the work: nothing that a command reads, writes or records is overwritten."""

from __future__ import annotations

import argparse
import os

import pytest

from lmx.cli import main as cli
from lmx.cli import outputs
from lmx.errors import InputError


def refused(**options: str) -> str:
  with pytest.raises(InputError) as error:
    outputs.check(argparse.Namespace(**options))
  return str(error.value)


@pytest.fixture
def files(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'rows.csv').write_text('text,label\na,b\n')
  (tmp_path / 'link.csv').symlink_to('rows.csv')
  (tmp_path / 'run' / 'checkpoints').mkdir(parents=True)
  (tmp_path / 'run' / 'config.json').write_text('{}')
  return tmp_path


def test_output_that_is_an_input_is_rejected(files):
  for output in ('rows.csv', './rows.csv', 'link.csv', str(files / 'rows.csv')):
    assert '--output: got' in refused(input='rows.csv', output=output)
  assert 'the file of --input' in refused(input='other.txt,link.csv', output='rows.csv')
  assert '--null_odds: got rows.csv, the file of --input' in refused(
    input='rows.csv', output='new', null_odds='rows.csv'
  )
  assert 'the file of --reference' in refused(reference='rows.csv', metrics='rows.csv')


def test_two_outputs_in_one_file_are_rejected(files):
  message = '--null_odds: got both.json, the file of --output; expected two files'
  assert message in refused(output='./both.json', null_odds='both.json')


@pytest.mark.parametrize('name', ['config.json', 'results.json', 'checkpoints/x/y.json', 'tokenizer/a'])
def test_run_records_are_rejected_as_output(files, name):
  assert f'--output: got run/{name}, a record of the run' in refused(output=f'run/{name}')


def test_output_that_cannot_be_written_is_rejected_before_the_work(files):
  assert 'rows.csv is a file' in refused(output='rows.csv/folder/x.json')
  if os.getuid():  # the superuser writes everywhere
    (files / 'run').chmod(0o500)
    assert 'cannot be written' in refused(output='run/new.json')


@pytest.mark.parametrize('command', ['evaluate', 'embed', 'vectors', 'predict', 'results', 'ngrams'])
def test_file_needs_a_folder_that_exists(files, command):
  message = '--output: got new/x.json; expected a file in a folder that exists; create new'
  assert message in refused(command=command, output='new/x.json')


def test_folders_that_a_command_creates_are_accepted(files):
  for command, option in (*outputs.CREATED, ('predict', 'output')):
    outputs.check(argparse.Namespace(command=command, **{option: 'new/folder'}))


def test_other_outputs_are_accepted(files):
  given = {'input': 'rows.csv', 'output': 'run/predictions.jsonl', 'metrics': 'metrics.json', 'json': True}
  outputs.check(argparse.Namespace(**given))
  for output in ('', '-', '/dev/stdout', 'gs://bucket/x', 'rows.jsonl'):
    outputs.check(argparse.Namespace(input='rows.csv', output=output))


def test_phrases_keeps_a_text_that_is_input_and_output(files, capsys):
  before = (files / 'rows.csv').read_bytes()
  assert cli.main(['phrases', '--input=rows.csv', '--output=rows.csv']) == 2
  assert (files / 'rows.csv').read_bytes() == before and 'its content is lost' in capsys.readouterr().err
