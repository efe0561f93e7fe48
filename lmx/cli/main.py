"""`lmx COMMAND ...`: each module of this folder is a command, with `add_arguments(parser)` and `run(args) -> int`.

Exit codes: 0 done, 2 bad input (the message says what to fix), 3 the loss is not finite, 75 stopped by SIGTERM or
SIGHUP, a training after saving (start the same command again), 130 interrupted from the keyboard (a training saves
first; a second Ctrl-C ends it at once), 141 the reader of the output closed it. If the output is lost, commands that
write files complete them, and a training continues with `output.log` in its work directory.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import keyword
import os
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NoReturn

from lmx import console, host, signals, storage
from lmx.cli import outputs
from lmx.config import experiment
from lmx.errors import InputError, InputNote, InputWarning, NonFiniteLoss, ReaderGone, disk_fault, nearest
from lmx.redaction import redact

COMMANDS = {
  'train': 'train a model, or resume the run of a work directory',
  'evaluate': 'evaluate a trained model on all of a split',
  'context': 'measure the loss of trained models by context length',
  'ngrams': 'evaluate n-gram models on the data of a config',
  'generate': 'generate text with a trained model',
  'score': 'score texts by their log-probabilities under a language model',
  'translate': 'translate lines of text with a trained encoder-decoder',
  'embed': 'write the hidden states of all layers for the lines of a text file',
  'predict': 'predict labels, tags, answers, scores or masks of new inputs',
  'results': 'show metrics of runs, averaged over seeds of one config on the same data',
  'compare': 'test whether runs differ on the same data',
  'runs': 'list the runs below a folder with their states',
  'report': 'write a run as one HTML page',
  'profile': 'list the operations of a profiled training by time and layer',
  'import': 'convert published weights into a work directory',
  'export': "write the weights of a run in Hugging Face's format",
  'pipeline': 'run the stages of an experiment one after another',
  'config': 'show every key of a config, with its default and its help',
  'describe': 'show the parameters, operations and memory of a model',
  'list': 'list the models and the experiments',
  'harness': 'run lm-evaluation-harness on a trained model',
  'prepare': 'download or read the data of a config and tokenise it',
  'vectors': 'evaluate, show and write the word vectors of a run',
  'phrases': 'join frequent collocations into phrases, for word2vec',
  'preflight': 'check the hosts before training',
  'compile': 'compile the training step for a TPU slice that is not there',
  'bench': 'time the training step, also against PyTorch',
}

# Commands that read or change no config.
WITHOUT_CONFIG = ('results', 'compare', 'runs', 'report', 'profile', 'export', 'describe', 'list', 'phrases', 'harness')

# Commands whose --workdir is written, and need not hold a run.
STARTS_RUNS = ('train', 'pipeline', 'import', 'preflight')

# Commands that pass on the arguments that are not their own.
PASS_ON = ('harness',)

# Commands that use the compilation cache; `bench`, `compile` and `describe` measure compilation itself.
KEEP_PROGRAMS = (
  *('train', 'evaluate', 'context', 'generate', 'score', 'translate', 'embed', 'predict', 'pipeline', 'vectors'),
)

# Setting of the allocator if not `host.keep_heap`: tensors of published weights are large and used once; threads learn
# a vocabulary, for which one heap is one lock.
_ALLOCATORS = {'import': host.return_blocks, 'export': host.return_blocks, 'prepare': lambda: False}

# Commands that continue if their output is lost, because they write files or another command depends on them. The
# others only print, so they continue only with an option of `outputs.OUTPUTS`.
WRITES_FILES = (
  *('train', 'pipeline', 'import', 'export', 'prepare', 'embed', 'phrases', 'report', 'context', 'preflight'),
)

_KEYS = (
  'Any key of the config can be set by --config.KEY=VALUE, such as --config.train.steps=100. `lmx config FILE` shows '
  'the keys with their values, defaults and help.'
)


def main(argv: list[str] | None = None) -> int:
  """Run one command and return its exit code.

  Args:
    argv: arguments; None for this process's own, whose memory allocator is then tuned.
  """
  words = sys.argv[1:] if argv is None else argv
  numbers = (*signals.TERMINATE, signal.SIGINT) if words[:1] in (['train'], ['pipeline']) else (signal.SIGINT,)
  with console.Console(own_process=argv is None) as streams:
    try:
      with signals.StartUp(numbers) if argv is None else contextlib.nullcontext():
        code = _run(words, streams, own_process=argv is None)
    except signals.Stopped as error:
      print(f'lmx: {error.args[0] if error.args else signals.STOPPED}', file=sys.stderr)
      code = signals.PREEMPTED
      if argv is None:
        _leave_others(code)
    except Exception:
      if argv is None and _has_others():
        traceback.print_exc()
        _leave_others(1)
      raise
    if argv is None and code not in (0, signals.PREEMPTED):
      _leave_others(code)
    return code


def _has_others() -> bool:
  """Return True if other processes take part in this command."""
  jax = sys.modules.get('jax')
  return jax is not None and jax.distributed.is_initialized() and jax.process_count() > 1


def _leave_others(code: int) -> None:
  """After a failure exit at once if other processes take part: JAX would wait for them for minutes."""
  if _has_others():
    for stream in (sys.stdout, sys.stderr):
      with contextlib.suppress(OSError, ValueError):
        stream.flush()
    os._exit(code)


def _run(argv: list[str], streams: console.Console, *, own_process: bool) -> int:
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  try:
    try:
      args = parse(argv)
    finally:
      streams.out.flush()  # help, after which SystemExit ends the process
    args.began = host.process_start() if own_process else time.time()
    outputs.expand(args, args.actions)
    _check_config(args)
    outputs.check(args)
    _check_settings(args)
    if args.command == 'train':
      _module('train').announce(args)
    if args.command in WRITES_FILES or outputs.given(args):
      streams.keep(outputs.training_log(args.workdir) if args.command in ('train', 'pipeline') else None)
    if own_process:
      _ALLOCATORS.get(args.command, host.keep_heap)()
    with _plain_warnings():
      if own_process and args.command in KEEP_PROGRAMS:
        importlib.import_module('lmx.compilation.cache').enable()
      code = _module(args.command).run(args)
    streams.out.flush()  # a short output is written only here
    return code
  except InputError as error:
    print(f'lmx: {redact(str(error))}', file=sys.stderr)
    return 2
  except NonFiniteLoss as error:
    print(f'lmx: {redact(str(error))}', file=sys.stderr)
    return 3
  except ReaderGone:
    return console.UNREAD
  except (MemoryError, RuntimeError, AssertionError, OSError) as error:
    if not (message := _of_the_machine(error)):
      raise
    print(f'lmx: {redact(message)}', file=sys.stderr)
    return 2
  except KeyboardInterrupt as error:
    print(f'\nlmx: interrupted{"; " if error.args else ""}{redact(str(error))}', file=sys.stderr)
    return 130


def _of_the_machine(error: Exception) -> str:
  """Return the message for a disk that fails, memory that is full or a device that is missing, '' for another error."""
  if reason := disk_fault(error):
    return reason
  short = ' '.join(str(error).split())[:300]
  if isinstance(error, MemoryError) or re.search('RESOURCE_EXHAUSTED|out of memory', short, re.I):  # the latter of XLA
    return (
      f'out of memory ({short}); lower data.batch_size, data.length or the size of the model; in a measurement '
      'evaluation.batch_size, data.eval_batch_size or the window of evaluation.cache'
    )
  platforms = os.environ.get('JAX_PLATFORMS')
  frames = traceback.extract_tb(error.__traceback__)
  if platforms and frames and frames[-1].filename.endswith('xla_bridge.py'):  # where JAX looks for devices
    return (
      f'JAX_PLATFORMS: got "{platforms}", but JAX finds no such device{short and f" ({short})"}; install the extra of '
      'the device (cuda12, cuda13 or tpu) and its driver, or unset the variable'
    )
  return ''


def _check_config(args: argparse.Namespace) -> None:
  """Raise InputError if the `--config` file does not exist, before anything imports JAX."""
  if getattr(args, 'config', None):
    path, _ = experiment.split(args.config)
    if path.endswith('.py'):
      experiment.find(path)


def _check_settings(args: argparse.Namespace) -> None:
  """Raise InputError for a missing run and for bad settings, before anything imports JAX.

  The commands themselves check keys of `model` and `objective`, whose files import JAX, and the stages of a pipeline.
  """
  if args.command in (*WITHOUT_CONFIG, 'pipeline'):
    return
  file = getattr(args, 'config', None)
  workdirs = [getattr(args, 'workdir', None) or '']
  workdirs += [path for name in ('workdirs', 'ensemble') for path in getattr(args, name, '').split(',')]
  workdirs = [path for path in workdirs if path and args.command not in STARTS_RUNS and not storage.is_remote(path)]
  if not file and not workdirs:
    return
  from lmx.config import paths, run_files, schema

  replaced: dict[str, Any] = {}
  if file and args.command == 'evaluate':  # parts of the run's config are replaced, and then overridden
    settings = schema.check(experiment.read(file))
    replaced = {name: settings[name] for name in ('data', 'evaluation') if name in settings}
  elif file:
    settings = schema.check(experiment.read(file), args.overrides)
    if args.command == 'train' and not run_files.exists(args.workdir):
      paths.check_exist(settings)
  for workdir in workdirs:
    is_weights = workdir.startswith(storage.HUB) or os.path.exists(workdir) and not run_files.is_run(workdir)
    if not (is_weights and (args.command, 'workdir') in outputs.HUB and workdir == args.workdir):
      schema.check({**run_files.read_config(workdir), **replaced}, args.overrides, whole=not replaced)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
  """Show an InputWarning once, and only its message, because its source line means nothing to a user."""
  usual = warnings.formatwarning
  shown: set[str] = set()

  def plain(message: Any, category: Any, filename: Any, lineno: Any, line: Any = None) -> str:
    if issubclass(category, InputWarning):
      kind = '' if issubclass(category, InputNote) else 'warning: '
      text = f'lmx: {kind}{redact(str(message))}\n'
      is_new = text not in shown
      shown.add(text)
      return text * is_new
    return usual(message, category, filename, lineno, line)

  warnings.formatwarning = plain
  try:
    yield
  finally:
    warnings.formatwarning = usual


def parse(argv: list[str]) -> argparse.Namespace:
  """Parse the command line; `--config.section.key=value` and `--config.section.key value` go to `args.overrides`.

  Raises:
    InputError: an unknown command or option (suggests the nearest), or an override for a command of `WITHOUT_CONFIG`.
  """
  from lmx import __version__

  parser = _Parser(
    prog='lmx', description=__doc__.split('\n\n')[1], formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--version', action='version', version=f'lmx {__version__}')
  commands = parser.add_subparsers(dest='command', metavar='COMMAND')
  # Only the command that runs gets a parser and is imported: the others would cost a second of start-up.
  given = argv[0] if argv and argv[0] in COMMANDS else ''
  for name in [given] if given else COMMANDS:
    keys = '' if name in WITHOUT_CONFIG else _KEYS
    command = commands.add_parser(name, help=COMMANDS[name], description=COMMANDS[name], epilog=keys)
  if given:
    _module(given).add_arguments(command)
  if argv and not argv[0].startswith('-') and argv[0] not in COMMANDS:
    raise InputError(f'unknown command "{argv[0]}"{nearest(argv[0], COMMANDS)}')
  rest, overrides = split_overrides(argv)
  args, unknown = parser.parse_known_args(rest)
  if args.command is None:
    parser.print_help()
    print(f'\nexperiments (lmx train --config=FILE --workdir=DIR):\n{_experiments()}')
    raise SystemExit(0)
  if args.command in PASS_ON:
    args.others = unknown
  elif unknown:
    options = [o for action in commands.choices[args.command]._actions for o in action.option_strings]
    raise InputError(f'unknown option "{unknown[0]}"{nearest(unknown[0].split("=")[0], options)}')
  if overrides and args.command in WITHOUT_CONFIG:
    raise InputError(f'--config.{overrides[0]}: got it for lmx {args.command}, which changes no config; omit it')
  for action in (one for one in commands.choices[args.command]._actions if one.option_strings and one.nargs is None):
    value = getattr(args, action.dest, None)
    if value is not action.default and isinstance(value, list) and (not value or [] in value):  # argparse drops --
      raise InputError(f'{"/".join(action.option_strings)}: got --, which ends the options; expected a value')
  args.overrides, args.actions = overrides, commands.choices[args.command]._actions
  return args


class _Parser(argparse.ArgumentParser):
  """Parser that lists the experiments if `--config` is missing, and raises InputError for numbers out of range."""

  def error(self, message: str) -> NoReturn:
    if ': got ' in message:
      raise InputError(message.removeprefix('argument '))
    if message.startswith('the following arguments are required') and '--config' in message:
      listed = _experiments('stages' if self.prog.endswith(' pipeline') else 'get_config')
      message += f'\n--config is an experiment file of yours, or one of:\n{listed}'
    super().error(message)


def _experiments(function: str = 'get_config') -> str:
  return '\n'.join(_module('list').lines(function))


def _module(command: str) -> ModuleType:
  """Import the module of a command; after a Python keyword its name has an underscore."""
  return importlib.import_module(f'lmx.cli.{command}{"_" if keyword.iskeyword(command) else ""}')


def split_overrides(argv: list[str]) -> tuple[list[str], list[str]]:
  """Return (arguments without `--config.` overrides, overrides as 'section.key=value').

  Raises:
    InputError: an override has no value.
  """
  rest: list[str] = []
  overrides: list[str] = []
  words = iter(argv)
  for word in words:
    if not word.startswith('--config.'):
      rest.append(word)
      continue
    text = word.removeprefix('--config.')
    if '=' not in text:
      value = next(words, None)
      if value is None:
        raise InputError(f'{word}: got no value; expected {word}=VALUE')
      text = f'{text}={value}'
    overrides.append(text)
  return rest, overrides


if __name__ == '__main__':
  sys.exit(main())
