"""Run the examples of the command pages and write what they print: `python docs/hooks/examples.py`.

examples.txt has the commands, each after `$ `, and their output; those after `$$ ` only prepare others. They run in its
order in one empty folder, offline, on tiny models and the text that ships with Python. Outputs of more than LINES lines
are shortened. To add an example, add its line and run this script.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import command_pages

LINES = 24
ROOT = command_pages.ROOT


def run_all(examples: list[command_pages.Example], folder: pathlib.Path) -> str:
  """Run the commands of examples in an empty folder and return the text of their file.

  Raises:
    RuntimeError: a command fails.
  """
  (folder / 'experiments').symlink_to(ROOT / 'experiments')
  (folder / 'bin').mkdir()
  (folder / 'bin/lmx').write_text(f'#!/bin/sh\nexec {sys.executable} -m lmx.cli.main "$@"\n')
  (folder / 'bin/lmx').chmod(0o755)
  path = f'{folder / "bin"}:{os.environ["PATH"]}'
  cache = str(folder / 'cache')
  settings = os.environ | {'PYTHONPATH': str(ROOT), 'PATH': path, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''}
  settings |= {'LMX_CACHE': cache}
  text = ''
  for command, _, shown in examples:
    done = subprocess.run(
      ['bash', '-c', f'{{ {command}\n}} 2>&1'], cwd=folder, env=settings, stdout=subprocess.PIPE, text=True, timeout=600
    )
    if done.returncode:
      raise RuntimeError(f'{command}: exit code {done.returncode}\n{done.stdout[-3000:]}')
    text += f'$ {command}\n{shorten(done.stdout.replace(cache, "~/.cache/lmx"))}' if shown else f'$$ {command}\n'
  return text


def shorten(output: str) -> str:
  """Return an output, without the middle of a long one."""
  lines = [line.rstrip()[:200] for line in output.rstrip('\n').split('\n')] if output.strip() else []
  if len(lines) > LINES:
    lines = [*lines[: LINES * 2 // 3], '...', *lines[-LINES // 3 :]]
  return ''.join(f'{line}\n' for line in lines)


def comparable(output: str) -> list[str]:
  """Return the lines of an output without what a machine or a moment changes; of a shortened one only its ends."""
  lines = [
    line
    for line in output.splitlines()
    if line and not re.match(r'compiling|\w+: \d+ of|step .*tokens/s| *[\d.]+% ', line)
  ]
  lines = [*lines[:3], *lines[-3:]] if '...' in lines else lines
  return [_normalise(line) for line in lines]


def _normalise(line: str) -> str:
  line = re.sub(r'\b\d{4}-\d\d-\d\d\b( \d\d:\d\d(:\d\d)?)?', 'DATE', line)
  line = re.sub(r'\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7,64}\b', 'HASH', line)
  return re.sub(r'[ -]+', ' ', re.sub(r'\b\d[\d,_]*\.?\d*(e[-+]?\d+)?k?\b', 'N', line))


def recorded() -> list[command_pages.Example]:
  """Return the examples of examples.txt."""
  return command_pages.read_examples(command_pages.EXAMPLES.read_text(encoding='utf-8'))


def main() -> None:
  """Run the commands of examples.txt and write it again."""
  with tempfile.TemporaryDirectory() as folder:
    command_pages.EXAMPLES.write_text(run_all(recorded(), pathlib.Path(folder)), encoding='utf-8')


if __name__ == '__main__':
  main()
