"""Print the files of lmx that training a model enters, and the modules that it imports; fail above the bounds.

`lmx train` trains gpt2/quickstart.py:tiny to results.json in a fresh process, for two updates. A file is entered where
one of its functions is called, as `sys.setprofile` reports it, also while a module is imported. Bodies of modules
and of classes are not calls.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
ENTERED, IMPORTED = 125, 161
WALK = """
import inspect, json, pathlib, sys, threading
root, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
entered = {}
def enter(frame, event, argument):
  code = frame.f_code
  if event == 'call' and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(str(root / 'lmx')):
    entered.setdefault(code.co_filename, set()).add(code.co_qualname)
sys.setprofile(enter)
threading.setprofile(enter)
from lmx.cli import main
code = main.main(command)
sys.setprofile(None)
files = {m.__file__ for name, m in list(sys.modules.items()) if name.split('.')[0] == 'lmx' and m.__file__}
path = lambda file: str(pathlib.Path(file).relative_to(root))
print(json.dumps({
  'code': code,
  'entered': {path(file): sorted(names) for file, names in entered.items()},
  'imported': sorted(map(path, files)),
}))
"""


def walk(folder: pathlib.Path, *overrides: str) -> dict:
  """Return {'entered': {file: functions called}, 'imported': files} of the training of the tiny quickstart."""
  settings = ('train.steps=2', *overrides)
  command = ['train', f'--config={ROOT}/experiments/gpt2/quickstart.py:tiny', f'--workdir={folder / "run"}']
  command += [f'--config.data.cache_dir={folder / "data"}', *(f'--config.{setting}' for setting in settings)]
  done = subprocess.run([sys.executable, '-c', WALK, str(ROOT), *command], capture_output=True, text=True, cwd=ROOT)
  found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {'code': done.returncode}
  assert found['code'] == 0 and (folder / 'run/results.json').exists(), done.stderr
  return found


def lines(files: list[str]) -> int:
  return sum(len((ROOT / file).read_text().splitlines()) for file in files)


def main() -> int:
  """Print the files, in the order of their names, and the two counts; return 1 where one is above its bound."""
  with tempfile.TemporaryDirectory() as folder:
    found = walk(pathlib.Path(folder))
  for file in found['imported']:
    names = found['entered'].get(file, [])
    print(f'{"enters " if names else "imports"}  {file:50} {", ".join(names[:6])}')
  entered, imported = len(found['entered']), len(found['imported'])
  print(f'{entered} files entered (at most {ENTERED}), {imported} modules imported (at most {IMPORTED}), of', end=' ')
  print(f'{lines(found["imported"]):,} lines')
  return int(entered > ENTERED or imported > IMPORTED)


if __name__ == '__main__':
  sys.exit(main())
