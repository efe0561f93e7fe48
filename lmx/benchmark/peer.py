"""The other library of a comparison: its interpreter, chosen by its packages, and its process.

The scripts that it runs are files of this folder which import nothing from lmx; `peer_protocol` has the protocol.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import subprocess
from collections.abc import Sequence
from typing import Any

from lmx.errors import InputError

# The status is 0 if all are there. A module is looked for (parents of a dotted one are imported). An attribute after
# a colon is loaded: a library may be installed next to another that it cannot be used with.
_FIND = """
import importlib, importlib.util, sys
def found(name):
  module, _, attribute = name.partition(':')
  try:
    if attribute:
      getattr(importlib.import_module(module), attribute)
    return importlib.util.find_spec(module) is not None
  except Exception:
    return False
sys.exit(not all(map(found, sys.argv[1:])))
"""


class Missing(InputError):
  """No given interpreter has the packages of a comparison."""


def script(name: str) -> str:
  """Return the path of a peer's script."""
  return os.fspath(pathlib.Path(__file__).with_name(name))


def environment() -> dict[str, str]:
  """Return the environment without this interpreter's module path, which the peer must not use."""
  return {k: v for k, v in os.environ.items() if k not in ('PYTHONPATH', 'PYTHONHOME')}


def choose(pythons: str, packages: Sequence[str]) -> str:
  """Return the first interpreter that has all the packages.

  Args:
    pythons: interpreters, separated by commas.
    packages: names of modules, or `module:attribute`.

  Raises:
    Missing: none has them.
    InputError: an interpreter cannot be run.
  """
  for python in (part.strip() for part in pythons.split(',')):
    if _has(python, tuple(packages)):
      return python
  raise Missing(f'--peer: got {pythons}; expected an interpreter with {", ".join(packages)}; install them there')


@functools.cache
def _has(python: str, packages: tuple[str, ...]) -> bool:
  command = [python, '-c', _FIND, *packages]
  try:
    done = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False)
  except OSError as error:
    raise _cannot_run(python, error) from None
  return not done.returncode


def _cannot_run(python: str, error: OSError) -> InputError:
  return InputError(f'cannot run the peer {python}: {error}')


class Peer:
  """The process of a peer's script, as a context manager.

  Attributes:
    peak_bytes: its largest resident set until the last answer, None if unknown.
  """

  def __init__(self, python: str, name: str = 'torch_step.py'):
    self.peak_bytes: int | None = None
    command = [python, script(name)]
    try:
      self._process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding='utf-8', errors='replace', env=environment()
      )
    except OSError as error:
      raise _cannot_run(python, error) from None
    self._input: Any = self._process.stdin
    self._output: Any = self._process.stdout

  def __enter__(self) -> Peer:
    return self

  def __exit__(self, *_: Any) -> None:
    with contextlib.suppress(BrokenPipeError):  # it may have ended already
      self._input.close()
    self._process.wait(timeout=60)

  def send(self, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request and return the answer; raise InputError with the peer's error message."""
    try:
      self._input.write(json.dumps(request) + '\n')
      self._input.flush()
      line = self._output.readline()
    except BrokenPipeError:
      line = ''
    if not line:
      raise InputError('the peer ended before it answered; its output is above')
    answer = json.loads(line)
    if 'error' in answer:
      raise InputError(f'the peer cannot do this: {answer["error"]}')
    self.peak_bytes = answer.pop('peak_bytes', None)
    return answer
