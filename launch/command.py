"""Shared parts of launchers: a run's command, environment and secrets, quoting, and running or printing commands.

A launcher's own options come first and the lmx command after `--`, as in

  python -m launch.slurm --nodes=2 -- train --config=experiments/gpt2/quickstart.py --workdir=runs/a

Every word of that command reaches lmx unchanged, with any characters: `shlex` quotes words for the shell, and the
transport of the script quotes it once more. `--secret=WANDB_API_KEY` passes on the variable of that name; its value
appears in no argument, no file and no log. Imports no JAX.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO

from launch import accelerators
from lmx import console, ranges
from lmx.compilation import flags
from lmx.errors import InputError, ReaderGone
from lmx.redaction import has_secret, redact

INPUT_ERROR = 2  # exit code of lmx: the message says what to fix
PREEMPTED = 75  # exit code of lmx: stopped by SIGTERM after saving; start the same command again
INTERRUPTED = 130  # from the keyboard: never restarted
MODULE = ('-m', 'lmx.cli.main')

INSTALL = {
  'gcloud': 'install the Google Cloud CLI, https://cloud.google.com/sdk/docs/install, and run `gcloud init`',
  'kubectl': 'run `gcloud components install kubectl gke-gcloud-auth-plugin`, then '
  '`gcloud container clusters get-credentials CLUSTER`',
  'xpk': 'run `pip install xpk`; or omit --through=xpk to use kubectl',
  'sbatch': "run this on a login node of the cluster; on Debian Slurm's commands are in the package slurm-client",
  'git': 'install git: the code is copied at its commit',
}
_NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_]*')
_LOOKS_SECRET = re.compile(r'KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL', re.IGNORECASE)
# Variables of this environment that jobs on other machines get too, if the value is a URL that all can read.
SHARED = ('JAX_COMPILATION_CACHE_DIR',)


@dataclasses.dataclass(frozen=True)
class Run:
  """An lmx command for any machine.

  Attributes:
    words: arguments after `lmx`.
    env: variables to set, by name.
    secrets: names of environment variables to pass on.
    restarts: number of restarts after a preemption.
    preflight: check the hosts before a training begins.
    dry_run: print the commands and run nothing.
  """

  words: tuple[str, ...]
  env: Mapping[str, str] = dataclasses.field(default_factory=dict)
  secrets: tuple[str, ...] = ()
  restarts: int = 3
  preflight: bool = True
  dry_run: bool = False

  def __post_init__(self):
    if self.restarts < 0:
      raise InputError(f'--restarts: got {self.restarts}; expected at least 0')
    for name in (*self.env, *self.secrets):
      if not _NAME.fullmatch(name):
        raise InputError(f'got "{name}"; expected the name of a variable: letters, digits and _, no digit first')
    for name, value in self.env.items():
      if _LOOKS_SECRET.search(name):
        raise InputError(f'--env={name}: got a value that other users could read; export it and give --secret={name}')
      if has_secret(value):
        raise InputError(
          f'--env={name}: got a URL with a password, which other users could read; expected none; export '
          f'{name} and give --secret={name}'
        )
    for text in self.words:
      if has_secret(text):
        raise InputError(
          f'{redact(text)}: got a URL with a password, which other users could read; expected none; export the '
          'variable for it, such as MLFLOW_TRACKING_PASSWORD or MLFLOW_TRACKING_TOKEN, and name it by --secret'
        )
    for text in (*self.words, *self.env.values()):
      if '\0' in text:
        raise InputError('an argument has a zero byte; expected none, because a command line cannot have it')

  def remote_env(self) -> dict[str, str]:
    """Return the variables to set on machines that do not share this one's files: SHARED ones and `env`."""
    shared = {name: os.environ[name] for name in SHARED if '://' in os.environ.get(name, '')}
    return {name: value for name, value in shared.items() if not has_secret(value)} | dict(self.env)

  def secret_values(self) -> dict[str, str]:
    """Return the values of the secrets by name.

    Raises:
      InputError: one is not set, or has several lines.
    """
    for name in self.secrets:
      if name not in os.environ:
        raise InputError(f'--secret={name}: the environment has no {name}; export it first')
      if '\n' in os.environ[name]:
        raise InputError(f'--secret={name}: a value of several lines cannot be passed on')
    return {name: os.environ[name] for name in self.secrets}


def add_arguments(parser: argparse.ArgumentParser, *, restarts: int = 3, poll: float = 10.0) -> None:
  """Add the options that every launcher of jobs has."""
  parser.add_argument('--env', action='append', default=[], metavar='NAME=VALUE', help='variable to set; repeatable')
  parser.add_argument(
    '--secret', action='append', default=[], metavar='NAME', help='variable to pass on unseen; repeatable'
  )
  parser.add_argument(
    '--flags', default='', help=f'compiler flags, or those of a recipe: {", ".join(flags.PRESETS)} (launch.md)'
  )
  parser.add_argument(
    '--restarts', type=ranges.integer(0, 1_000_000), default=restarts, help='times to resume after a preemption'
  )
  parser.add_argument(
    '--preflight', action=argparse.BooleanOptionalAction, default=True, help='check the hosts before training'
  )
  parser.add_argument(
    '--wait',
    default='',
    metavar='FILE',
    help="wait for the job and exit with lmx's exit code; FILE records the job, so that the same command reattaches",
  )
  parser.add_argument('--poll', type=ranges.number(0, 1e6), default=poll, help='seconds between two checks of the job')
  parser.add_argument('--dry_run', action='store_true', help='print the commands and run nothing')


def split(argv: Sequence[str] | None) -> tuple[list[str], tuple[str, ...]]:
  """Return the launcher's own arguments, and the lmx command after the first `--`."""
  argv = list(sys.argv[1:] if argv is None else argv)
  at = argv.index('--') if '--' in argv else len(argv)
  return argv[:at], tuple(argv[at + 1 :])


def parse_run(
  args: argparse.Namespace, words: Sequence[str], slice_: accelerators.Slice | None = None, kind: str = ''
) -> Run:
  """Return the run of parsed arguments.

  Args:
    args: parsed options of `add_arguments`.
    words: arguments after `lmx`.
    slice_: slice or machine that --flags must suit; None if it is not known.
    kind: 'tpu' or 'gpu' without a slice; '' if it is not known either.

  Raises:
    InputError: a variable without a value, or a secret with one.
  """
  for text in args.secret:
    if '=' in text:  # the message omits the value, which would appear in a log
      name = text.partition('=')[0]
      raise InputError(f'--secret={name}: got NAME=VALUE; expected NAME; export {name} and give --secret={name}')
  for text in args.env:
    if '=' not in text:
      raise InputError(f'--env={text}: got no value; give --env={text}=VALUE')
  env = dict(text.split('=', 1) for text in args.env)
  if args.flags:
    name, kind = (slice_.compiled, slice_.kind) if slice_ else ('', kind)
    env |= flags.joined(flags.resolve(args.flags, name, kind), env)
  return Run(tuple(words), env, tuple(args.secret), args.restarts, args.preflight, args.dry_run)


def require_command(words: Sequence[str]) -> None:
  """Raise InputError if there is no command."""
  if not words:
    raise InputError('nothing to run: put the lmx command after --, for example -- train --config=... --workdir=...')


def config_options(words: Sequence[str], *names: str) -> list[str]:
  """Return `--config`, its overrides and the options `names` among a training's arguments, unchanged."""
  options: list[str] = []
  rest = iter(words)
  for word in rest:
    name, equals, _ = word.partition('=')
    if name in ('--config', *names) or name.startswith('--config.'):
      options += [word] if equals else [word, next(rest, '')]
  return options


def lmx_command(words: Sequence[str], python: str = 'python3') -> str:
  """Return the lmx command of `words`, quoted for a shell."""
  return shlex.join([python, *MODULE, *words])


def export_lines(env: Mapping[str, str]) -> list[str]:
  """Return the lines of a shell script that set variables."""
  return [f'export {name}={shlex.quote(value)}' for name, value in env.items()]


def is_restartable(code: int) -> bool:
  """Return whether to restart a process with this exit code: it saved and exited, or a signal killed it."""
  return code == PREEMPTED or (code > 128 and code != INTERRUPTED)


def run_main(name: str, main: Callable[[console.Console], int], own_process: bool = False) -> int:
  """Run a launcher; errors and lost output have the messages and exit codes of lmx.

  Args:
    name: launcher, for messages.
    main: its work; `keep` of its argument lets the launcher continue if its output is lost.
    own_process: the process belongs to the launcher.
  """
  with console.Console(own_process=own_process) as streams:
    try:
      try:
        code = handle_errors(name, lambda: main(streams))
      except SystemExit:  # after the help
        streams.out.flush()
        raise
      streams.out.flush()  # a short output is written only here
      return code
    except ReaderGone:
      return console.UNREAD
    except InputError as error:  # of the flush: a full disk
      return report_error(name, error)


def handle_errors(name: str, main: Callable[[], int]) -> int:
  """Run a launcher's work; an error that the user can fix is one line and exit code 2, as with lmx."""
  try:
    return main()
  except (InputError, Failed) as error:
    return report_error(name, error)
  except KeyboardInterrupt:
    print(f'\nlaunch.{name}: interrupted', file=sys.stderr)
    return INTERRUPTED


def report_error(name: str, error: Exception) -> int:
  """Print an error that the user can fix; return its exit code."""
  print(f'launch.{name}: {redact(str(error))}', file=sys.stderr)
  return INPUT_ERROR


class Failed(RuntimeError):
  """Error of a command that exited with a nonzero code.

  Attributes:
    code: its exit code.
    stderr: its standard error.
  """

  def __init__(self, argv: Sequence[str], code: int, stderr: str):
    super().__init__(redact(f'`{shlex.join(argv)}` ended with {code}: {stderr.strip() or "no message"}'))
    self.code, self.stderr = code, stderr


class Runner:
  """Runner of other programs, which only prints the commands in a dry run.

  Attributes:
    dry_run: print and run nothing.
    detached: start each in its own session, which no signal to the launcher reaches.
  """

  def __init__(self, dry_run: bool = False, detached: bool = False):
    self.dry_run, self.detached = dry_run, detached

  def read(self, argv: Sequence[str], stdin: str | bytes = '', about: str = '') -> str:
    """Return the standard output of a command; '' in a dry run.

    Args:
      argv: program and arguments.
      stdin: its standard input.
      about: description of `stdin` for a dry run, which never prints the text itself.

    Raises:
      Failed: it ended with an error.
      InputError: the program does not exist.
    """
    if self.dry_run:
      self.show(argv, about)
      return ''
    result = subprocess.run(
      list(argv),
      input=stdin.encode() if isinstance(stdin, str) else stdin,
      capture_output=True,
      check=False,
      env={**os.environ, 'PATH': search_path(argv[0])},
      start_new_session=self.detached,
    )
    if result.returncode:
      raise Failed(argv, result.returncode, result.stderr.decode(errors='replace'))
    return result.stdout.decode(errors='replace')

  def follow(self, argv: Sequence[str], handle_line: Callable[[str], None] = lambda line: write(line)) -> int:
    """Pass each line of output to `handle_line` at once; return the exit code, 0 in a dry run."""
    if self.dry_run:
      self.show(argv)
      return 0
    child = subprocess.Popen(
      list(argv),
      stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE,
      env={**os.environ, 'PATH': search_path(argv[0])},
      start_new_session=self.detached,
    )
    assert child.stdout is not None
    for line in child.stdout:
      handle_line(line.decode(errors='replace').rstrip())
    return child.wait()

  def show(self, argv: Sequence[str], about: str = '') -> None:
    """Print a command as typed."""
    print(redact(shlex.join(argv)) + (f'  # reads from standard input: {about}' if about else ''))


def search_path(program: str) -> str:
  """Return PATH; raise InputError if `program` is not on it."""
  if shutil.which(program) is None:
    raise InputError(f'there is no `{program}` here: {INSTALL.get(program, "install it")}')
  return os.environ.get('PATH', os.defpath)


_writing = threading.Lock()


def write(line: str) -> None:
  """Write a line to standard output in a single write."""
  # Without buffering (PYTHONUNBUFFERED), print would write the line's end separately, and another process's line could
  # come between.
  with _writing:
    sys.stdout.write(f'{line}\n')
    sys.stdout.flush()


def pump(lines: IO[bytes], prefix: str) -> None:
  """Write each line at once, prefixed with `prefix`."""
  for line in lines:
    write(f'{prefix}{line.decode(errors="replace").rstrip()}')


def check_directive(option: str, value: str | int) -> str:
  """Return the value of an option as text; check that it needs no quotes in a job script.

  Raises:
    InputError: it has characters that could end the line or begin another option.
  """
  text = str(value)
  if not re.fullmatch(r'[A-Za-z0-9_./:@%+,=\-\[\]*]+', text):
    raise InputError(f'--{option}: got "{text}"; expected only letters, digits and _ . / : @ % + , = - [ ] *')
  return text


def parse_commands(lines: Iterable[str]) -> list[tuple[str, ...]]:
  """Parse one lmx command a line; empty lines and comments are skipped.

  Raises:
    InputError: a line with an open quote.
  """
  commands = []
  for number, line in enumerate(lines, 1):
    try:
      words = tuple(shlex.split(line, comments=True))
    except ValueError as error:
      raise InputError(f'line {number} of the commands: {error}') from None
    if words:
      commands.append(words[1:] if words[0] == 'lmx' else words)
  return commands
