"""Commands that pass those of a table to a launcher, and the options that it needs.

Kubernetes refuses a second JobSet of the same name, so launch.gke gets a name for each command: the given one, the run,
its seed, its evaluation, and a digest of the path of its result. It is the same at every call. The other launchers keep
the given name: launch.tpu_vm and launch.gce use the machine of that name again. Imports no JAX.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

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


def value(where: str, options: str, name: str) -> str:
  """Return the value of `--name` in the options of a launcher as typed, '' without it."""
  typed = _split(where, options)
  for number in reversed(range(len(typed))):
    word, equals, text = typed[number].partition('=')
    if word == f'--{name}':
      return text if equals else ''.join(typed[number + 1 : number + 2])
  return ''


def _split(where: str, options: str) -> list[str]:
  return wait.launcher_command(where, options, ())[3:-1]


def missing(where: str, options: str) -> dict[str, str]:
  """Return the required options that are not given, with their placeholders."""
  _split(where, options)  # raises InputError for another launcher
  return {name: text for name, text in REQUIRED[where].items() if not value(where, options, name)}


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
  given = value(where, options, 'name') if where in _OWN_NAMES else ''
  words = wait.launcher_command(where, options, command.words)
  if not given:
    return words
  name, end = job_name(given, run, seed, command), words.index('--')
  return [*words[:3], f'--name={name}', *_without_name(words[3:end]), *words[end:]]


def _without_name(options: Sequence[str]) -> list[str]:
  kept, rest = [], iter(options)
  for word in rest:
    if word == '--name':
      next(rest, '')
    elif not word.startswith('--name='):
      kept.append(word)
  return kept


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
