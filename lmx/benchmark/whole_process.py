"""Time and peak memory of a whole process with the processes that it starts, from its start to its end."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lmx import host
from lmx.errors import InputError, explain

_INTERVAL = 0.1  # polling interval of the memory, in seconds
_TAIL = 2000  # characters of the output in a message


class Finished(NamedTuple):
  """A process that ended with status 0.

  Attributes:
    seconds: wall time.
    peak_bytes: for one process its largest resident set; for several the largest total memory, polled every 0.1
      seconds, with shared memory counted once. None if unknown.
    output: its standard output.
  """

  seconds: float
  peak_bytes: int | None
  output: str

  def answer(self) -> dict[str, Any]:
    """Return the JSON object in the last line of the output."""
    return json.loads(self.output.strip().rsplit('\n', 1)[-1])


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Finished:
  """Run a command to its end.

  Raises:
    InputError: it cannot be run, or its status is not 0; with the end of its output.
  """
  peak = 0
  output = functools.partial(tempfile.TemporaryFile, 'w+', encoding='utf-8', errors='replace')
  with output() as out, output() as log:
    start = time.perf_counter()
    try:
      process = subprocess.Popen(command, stdout=out, stderr=log, stdin=subprocess.DEVNULL, env=environment)
    except OSError as error:
      raise InputError(f'cannot run {command[0]}: {explain(error)}') from None
    try:
      while process.poll() is None:
        peak = max(peak, memory(process.pid) or 0)
        try:
          process.wait(_INTERVAL)
        except subprocess.TimeoutExpired:
          continue
    except BaseException:
      process.kill()
      process.wait()
      raise
    seconds = time.perf_counter() - start
    texts = []
    for file in (out, log):
      file.seek(0)
      texts.append(file.read())
  if process.returncode:
    raise InputError(f'{" ".join(command)}: ended with status {process.returncode}:\n{"".join(texts)[-_TAIL:]}')
  return Finished(seconds, peak or None, texts[0])


def peak(runs: Sequence[Finished]) -> int | None:
  """Return the largest peak of several runs, None if unknown."""
  return max((done.peak_bytes for done in runs if done.peak_bytes), default=None)


def memory(process: int) -> int | None:
  """Return a single process's peak memory, or the current memory of a process with its children; None if unknown."""
  processes = list(family(process))
  if len(processes) == 1:
    return host.peak_memory(process)
  sizes = [size for one in processes if (size := _proportional(one)) is not None]
  return sum(sizes) if sizes else None


def family(process: int) -> Iterator[int]:
  """Yield a process and all that descend from it."""
  yield process
  try:
    lists = list(pathlib.Path(f'/proc/{process}/task').glob('*/children'))
    children = [int(child) for file in lists for child in file.read_text(encoding='utf-8').split()]
  except OSError:  # it has ended
    return
  for child in children:
    yield from family(child)


def _proportional(process: int) -> int | None:
  """Return the memory of a process in bytes; a page of n processes counts as 1 / n."""
  if not os.path.exists(f'/proc/{process}/smaps_rollup'):
    return None
  try:
    lines = pathlib.Path(f'/proc/{process}/smaps_rollup').read_text(encoding='utf-8').splitlines()
  except OSError:  # it has ended
    return None
  return next((1024 * int(line.split()[1]) for line in lines if line.startswith('Pss:')), None)
