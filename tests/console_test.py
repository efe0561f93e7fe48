"""Output that is gone: a training continues in a log, and other commands end with a code of their own."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

import lmx
from lmx import console
from lmx.cli import main
from lmx.errors import InputError

ROOT = os.path.dirname(lmx.__path__[0])
# Prints more than a pipe holds, so that the write itself fails; `keep` gives the log.
PROGRAM = """
import pathlib, sys
from lmx import console, errors
with console.Console(own_process=True) as streams:
  if sys.argv[1:]:
    streams.keep(pathlib.Path(sys.argv[1]))
  if sys.argv[2:]:
    pathlib.Path(sys.argv[1]).parent.mkdir()
    print('begun')
    pathlib.Path(sys.argv[1]).parent.rmdir()
  try:
    for number in range(20000):
      print('line', number)
    sys.stdout.flush()
  except errors.ReaderGone:
    code = console.UNREAD
  else:
    code = 0
sys.exit(code)
"""


def run(*arguments: str) -> subprocess.Popen:
  command = [sys.executable, '-c', PROGRAM, *arguments]
  process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  assert process.stdout is not None and process.stdout.readline() in ('line 0\n', 'begun\n')
  process.stdout.close()  # as `head` does
  return process


def test_closed_pipe_ends_a_command_without_a_log_and_without_a_traceback():
  process = run()
  assert process.wait(30) == console.UNREAD and process.stderr.read() == ''


def test_output_continues_in_the_log_after_a_closed_pipe(tmp_path):
  process = run(str(tmp_path / 'run' / 'output.log'))
  assert process.wait(30) == 0 and process.stderr.read() == ''
  lines = (tmp_path / 'run' / 'output.log').read_text().splitlines()
  assert 'standard output failed (Broken pipe); it continues here' in lines[0] and lines[-1] == 'line 19999'


def test_log_does_not_recreate_a_removed_folder(tmp_path):
  process = run(str(tmp_path / 'run' / 'output.log'), 'removed')
  assert process.wait(30) == 0 and process.stderr.read() == '' and not (tmp_path / 'run').exists()


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='needs /dev/full')
def test_full_disk_is_an_input_error():
  with open('/dev/full', 'w') as full:
    stream = console.Stream(full, 'standard output', is_required=True)
    stream.write('text')
    with pytest.raises(InputError, match='standard output: .*No space left'):
      stream.flush()


def test_lost_output_is_a_failure():
  environment = {name: value for name, value in os.environ.items() if name != 'PYTHONUNBUFFERED'}
  program = [sys.executable, '-m', 'lmx.cli.main']
  read, write = os.pipe()
  os.close(read)
  with open(write, 'w') as unread, open('/dev/full', 'w') as full:
    for words, stdout, code, message in (
      (['--version'], unread, console.UNREAD, ''),
      (['runs', ROOT + '/docs'], full, 2, 'standard output: cannot be written (No space left'),
      (['runs', ROOT + '/docs', '--output=/dev/stdout'], unread, console.UNREAD, ''),
    ):
      done = subprocess.run([*program, *words], stdout=stdout, stderr=subprocess.PIPE, env=environment, cwd=ROOT)
      assert done.returncode == code and message in done.stderr.decode(), (words, done)
      assert message or not done.stderr


def test_character_that_cannot_be_encoded_is_escaped():
  inner = io.TextIOWrapper(io.BytesIO(), encoding='ascii')
  stream = console.Stream(inner, 'standard error')
  stream.write('Stra\u00dfe \ud800\n')
  stream.flush()
  assert inner.buffer.getvalue() == b'Stra\\xdfe \\ud800\n' and stream.error is None


@pytest.mark.parametrize(('command', 'code'), [('preflight', 0), ('list', console.UNREAD)])
def test_command_with_dependents_is_completed(command, code, monkeypatch):
  module = main._module(command)
  monkeypatch.setattr(module, 'run', lambda args: print('done') or 0)
  words = {'preflight': ['--config=experiments/gpt2/quickstart.py', '--workdir=w']}
  read, write = os.pipe()
  os.close(read)
  with open(write, 'w') as unread:
    monkeypatch.setattr(sys, 'stdout', unread)
    assert main.main([command, *words.get(command, [])]) == code
