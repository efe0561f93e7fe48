"""Commands that pass those of a table to a launcher, and the options that it needs.

Kubernetes refuses a second JobSet of the same name, so launch.gke gets a name for each command: the given one, the run,
its seed, its evaluation, and a digest of the path of its result. It is the same at every call. The other launchers keep
the given name: launch.tpu_vm and launch.gce use the machine of that name again. Imports no JAX.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import re
from collections.abc import Mapping

from launch import wait
from launch.gke.job import NAME_LENGTH
from launch.tables.plan import Command
from lmx.errors import InputError

# Options that a launcher needs, with their placeholders in a dry run.
REQUIRED: Mapping[str, Mapping[str, str]] = {
  'slurm': {},
  'gke': {'name': 'NAME', 'image': 'IMAGE', 'accelerator': 'ACCELERATOR'},
  'tpu_vm': {'name': 'NAME', 'zone': 'ZONE', 'accelerator': 'ACCELERATOR'},
  'gce': {'name': 'NAME', 'project': 'PROJECT', 'zone': 'ZONE', 'accelerator': 'ACCELERATOR'},
}
_DIGEST = 6  # characters
_OWN_NAMES = ('gke',)


def parse(where: str, options: str) -> argparse.Namespace:
  """Return the options of a launcher as it parses them, '' for a required one that is missing.

  Raises:
    InputError: there is no such launcher, or the options are no words of a shell.
    SystemExit: the launcher refuses them.
  """
  typed = wait.launcher_command(where, options, ())[3:-1]
  parser = importlib.import_module(f'launch.{where}.__main__').parser()
  return parser.parse_args([*(f'--{name}=' for name in REQUIRED[where]), *typed])


def missing(where: str, options: str) -> dict[str, str]:
  """Return the required options that are not given, with their placeholders."""
  given = parse(where, options)
  return {name: text for name, text in REQUIRED[where].items() if not getattr(given, name)}


def require(where: str, options: str) -> None:
  """Raise InputError if an option is missing that the launcher needs."""
  if found := missing(where, options):
    needed = ' '.join(f'--{name}={text}' for name, text in found.items())
    raise InputError(f"--launch: got '{options}'; expected {needed} too, which launch.{where} needs; add it")


def with_placeholders(where: str, options: str, accelerator: str = '') -> str:
  """Return the options with placeholders for missing ones; `accelerator` is that of its option."""
  found = missing(where, options)
  if 'accelerator' in found and accelerator:
    found['accelerator'] = accelerator
  return ' '.join([*(f'--{name}={text}' for name, text in found.items()), *filter(None, [options])])


def launcher_command(where: str, options: str, run: str, seed: int | None, command: Command) -> list[str]:
  """Return the command that passes `command` of a run to `python -m launch.WHERE`, with its own name for a JobSet."""
  words = wait.launcher_command(where, options, command.words)
  if where not in _OWN_NAMES:
    return words
  name, end = job_name(parse(where, options).name, run, seed, command), words.index('--')
  own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
  own.add_argument('--name')
  return [*words[:3], f'--name={name}', *own.parse_known_args(words[3:end])[1], *words[end:]]


def job_name(given: str, run: str, seed: int | None, command: Command) -> str:
  """Return the name of a command's job.

  Raises:
    InputError: the given name is too long to add to.
  """
  longest = NAME_LENGTH - _DIGEST - 1
  if len(given) > longest:
    raise InputError(
      f'--launch: got --name={given} of {len(given)} characters; expected at most {longest}: each job adds to it'
    )
  parts = [run.rpartition('/')[2], '' if seed is None else f's{seed}']
  if command.words[0] != 'train':
    parts.append(command.words[0] if command.proof.name == 'config.json' else command.proof.stem)
  slug = re.sub(r'[^a-z0-9]+', '-', '-'.join(filter(None, parts)).lower())
  digest = hashlib.sha256(str(command.proof).encode()).hexdigest()[:_DIGEST]
  slug = slug[: max(0, longest - len(given) - 1)].strip('-')
  return '-'.join(filter(None, (given, slug, digest)))
