"""Run lmx in several processes on this machine, like on several hosts.

  python -m launch.local --processes=2 --devices=4 -- train --config=experiments/gpt2/quickstart.py --workdir=DIR

Every process gets LMX_COORDINATOR, LMX_NUM_PROCESSES and LMX_PROCESS_ID. With --devices=N each has N simulated CPU
devices; with 0 (the default) it has the devices that JAX finds. SIGINT, SIGTERM and SIGHUP are forwarded to every
process, unless the launcher ignores them. If one fails, the others are stopped, and the launcher exits with the first
failure's exit code. With --restarts=N all are restarted, up to N times, if the first to end had saved (exit code 75) or
was killed by a signal, unless the signal was sent to the launcher. Imports no JAX.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from launch import command as command_lib
from launch import jobs
from lmx import ranges
from lmx.cli import outputs
from lmx.console import Console
from lmx.redaction import redact

PROGRAM = (sys.executable, *command_lib.MODULE)


def free_port() -> int:
  """Return a free port of this machine."""
  with socket.socket() as s:
    s.bind(('localhost', 0))
    return s.getsockname()[1]


def environment(process: int, processes: int, devices: int, port: int) -> dict[str, str]:
  """Return the variables that process `process` gets in addition to this environment."""
  added = {
    'LMX_COORDINATOR': f'localhost:{port}',
    'LMX_NUM_PROCESSES': str(processes),
    'LMX_PROCESS_ID': str(process),
  }
  if processes == 1:
    added = {}
  if devices:
    flag = f'--xla_force_host_platform_device_count={devices}'
    added['XLA_FLAGS'] = ' '.join(filter(None, [os.environ.get('XLA_FLAGS'), flag]))
    added['JAX_PLATFORMS'] = 'cpu'
    # XLA sizes its thread pool by this; with fewer threads than devices their collectives starve each other.
    added['NPROC'] = str(max(16, 4 * devices))
  return added


def run(
  command: Sequence[str],
  environments: Sequence[Mapping[str, str]],
  *,
  grace: float = 30.0,
  on_signal: Callable[[], None] = lambda: None,
) -> int:
  """Run `command` once per environment; return the exit code of the first failure, 0 if there is none.

  Args:
    command: program and arguments, the same for all.
    environments: additional variables of each process.
    grace: seconds between SIGTERM and SIGKILL when the others are stopped.
    on_signal: called at SIGINT, SIGTERM and SIGHUP.
  """
  children: list[subprocess.Popen] = []
  pumps: list[threading.Thread] = []

  def forward(number, frame):
    del frame
    on_signal()
    for child in children:
      _signal(child, number)

  old = {number: signal.signal(number, forward) for number in jobs.SIGNALS}
  try:
    for number, added in enumerate(environments):
      # Process 0 keeps the terminal for its progress bar; lines of the others are prefixed with their number.
      child = subprocess.Popen(
        command,
        env={**os.environ, **added},
        start_new_session=True,
        stdout=subprocess.PIPE if number else None,
        stderr=subprocess.STDOUT if number else None,
      )
      children.append(child)
      if child.stdout is not None:
        prefix = f'[{number}] '
        pumps.append(threading.Thread(target=command_lib.pump, args=(child.stdout, prefix), daemon=True))
        pumps[-1].start()
    code = _wait(children, grace)
    for pump in pumps:
      pump.join(timeout=5)
    return code
  finally:
    for child in children:
      _signal(child, signal.SIGKILL)
    for number, handler in old.items():
      signal.signal(number, handler)


def run_with_restarts(
  command: Sequence[str], environments: Callable[[], Sequence[Mapping[str, str]]], restarts: int, *, grace: float = 30.0
) -> int:
  """Repeat `run` up to `restarts` times while the exit code asks for a restart; return the last exit code.

  Args:
    command: as in `run`.
    environments: returns the environments of a start; called per start, because a port may be taken by then.
    restarts: number of restarts.
    grace: as in `run`.
  """
  stopped: list[bool] = []
  for left in range(restarts, -1, -1):
    code = run(command, environments(), grace=grace, on_signal=lambda: stopped.append(True))
    if stopped or not left or not command_lib.is_restartable(code):
      break
    print(f'launch.local: ended with {code}; starting again ({left} left)', file=sys.stderr, flush=True)
  return code


def _signal(child: subprocess.Popen, number: int) -> None:
  if child.poll() is None:
    try:
      os.killpg(child.pid, number)
    except ProcessLookupError:
      pass


def _wait(children: Sequence[subprocess.Popen], grace: float) -> int:
  """Wait for all, stop the rest after a failure; return the code of the first failure."""
  first = 0
  deadline = None
  while any(child.poll() is None for child in children):
    failed = [child.returncode for child in children if child.poll()]
    if failed and deadline is None:
      first, deadline = failed[0], time.monotonic() + grace
      for child in children:
        _signal(child, signal.SIGTERM)
    if deadline is not None and time.monotonic() > deadline:
      for child in children:
        _signal(child, signal.SIGKILL)
    time.sleep(0.05)
  first = first or next((child.returncode for child in children if child.returncode), 0)
  return first if first >= 0 else 128 - first


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code."""
  return command_lib.run_main('local', lambda streams: launch(argv, streams), argv is None)


def launch(argv: Sequence[str] | None, streams: Console) -> int:
  """Run the command of the arguments; return the exit code."""
  own, words = command_lib.split(argv)
  parser = argparse.ArgumentParser(
    prog='python -m launch.local',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument('--processes', type=ranges.integer(1, 100_000), default=1, help='number of processes')
  parser.add_argument(
    '--devices', type=ranges.integer(0, 100_000), default=0, help='simulated CPU devices of each, 0 for the real ones'
  )
  parser.add_argument('--port', type=ranges.integer(0, 65_535), default=0, help='of process 0, 0 for a free one')
  parser.add_argument('--grace', type=ranges.number(0, 1e6), default=30.0, help='seconds from SIGTERM to SIGKILL')
  parser.add_argument(
    '--restarts',
    type=ranges.integer(0, 1_000_000),
    default=0,
    help='times to start all again after exit code 75 or a kill',
  )
  parser.add_argument('--dry_run', action='store_true', help='print the commands and run nothing')
  args = parser.parse_args(own)
  if args.processes < 1 or args.devices < 0 or args.restarts < 0:
    parser.error('--processes must be at least 1, --devices and --restarts at least 0')
  if not words:
    parser.error('nothing to run: put the lmx command after --, for example -- train --config=...')
  command = [*PROGRAM, *words]

  def environments() -> list[dict[str, str]]:
    port = args.port or free_port()
    return [environment(p, args.processes, args.devices, port) for p in range(args.processes)]

  if args.dry_run:
    for added in environments():
      settings = [f'{key}={shlex.quote(value)}' for key, value in added.items()]
      print(redact(' '.join(settings + [shlex.join(command)])))
    return 0
  streams.keep(_log(words))
  return run_with_restarts(command, environments, args.restarts, grace=args.grace)


def _log(words: Sequence[str]) -> pathlib.Path | None:
  """Return the file that continues the output of the lmx command `words`: its training's log."""
  if words[0] not in ('train', 'pipeline'):
    return None
  parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
  parser.add_argument('--workdir', default='')
  workdir = parser.parse_known_args(words)[0].workdir
  return outputs.training_log(workdir) if workdir else None


if __name__ == '__main__':
  sys.exit(main())
