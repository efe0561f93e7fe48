"""`lmx config FILE[:variant]`: every key of a config, with its value, default and help.

FILE is an experiment file, a config.json or a run's work directory. Further arguments select keys or sections:
`lmx config FILE optim data.length`. `--diff=OTHER` shows the keys with other values in OTHER, `--changed` the keys with
non-default values.
"""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from lmx import storage
from lmx.errors import InputError, nearest
from lmx.redaction import redact

_MISSING = 'no such key'  # a config of another model


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('file', metavar='FILE[:variant]', help='experiment file, config.json, or work directory of a run')
  parser.add_argument('keys', nargs='*', metavar='KEY', help='only this key, or the keys of this section')
  parser.add_argument('--diff', metavar='OTHER', help='show differences from another config')
  parser.add_argument('--changed', action='store_true', help='only keys with non-default values')


def run(args: argparse.Namespace) -> int:
  from lmx.config import schema

  source, is_run = _source('FILE', args.file)
  schema.check(source, args.overrides)
  from lmx.config import deferred, fields, resolve  # imports JAX

  config = resolve.resolve(source, args.overrides, saved=is_run)
  sections, values = fields.sections(config), resolve.flatten(config)
  known = [field.key for section in sections for field in section.fields]
  for key in args.keys:
    if not _chosen(known, [key]):
      parts = [*known, *(section.name for section in sections)]
      raise InputError(f'KEY: got "{key}"; expected a key or section of {args.file}{nearest(key, parts)}')
  if args.diff:
    differences(args.file, values, args.diff, resolve.flatten(_read('--diff', args.diff)), args.keys)
    return 0
  notes = {} if is_run else deferred.notes(resolve.to_run(config), resolve.inherited(source, args.overrides))
  print(f'{args.file}: set a key by --config.KEY=VALUE')
  for section in sections:
    lines = list(_lines(section, values, args.keys, args.changed, notes))
    if lines:
      print(f'\n{section.name or "run"}: {section.summary}')
      print('\n'.join(lines))
  return 0


def _source(option: str, file: str) -> tuple[Mapping[str, Any], bool]:
  """Return the settings of an experiment file, a config.json or a work directory, and whether they are of a run."""
  from lmx.config import experiment, run_files

  is_run = os.path.isdir(storage.expand(file)) or storage.is_remote(file)
  if is_run:
    storage.check_path(option, file)
  else:
    experiment.split(file, option)
  return (run_files.read_config(file) if is_run else experiment.read(file)), is_run


def _read(option: str, file: str) -> Any:
  """Return the resolved config of `_source`."""
  from lmx.config import resolve

  source, is_run = _source(option, file)
  return resolve.resolve(source, saved=is_run)


def _chosen(keys: Any, names: list[str]) -> list[str]:
  """Return the keys that are selected by name or section; all keys without names."""
  return [key for key in keys if not names or any(f'{key}.'.startswith(f'{name}.') for name in names)]


def settings(section: Any, values: Mapping[str, Any]) -> Iterator[tuple[Any, str, str]]:
  """Yield (field, value, default) for each key in a section; the default is '' if it equals the value."""
  for field in section.fields:
    value, default = _value(values, field.key), _plain(field.default)
    yield field, _show(value), _show(default) if value != default else ''


def _lines(
  section: Any, values: Mapping[str, Any], keys: list[str], changed: bool, notes: Mapping[str, str]
) -> Iterator[str]:
  """Yield a line for each chosen key, and below it the note on a value that is not final, and its help."""
  for field, value, default in settings(section, values):
    if not _chosen([field.key], keys) or (changed and not default):
      continue
    about = f'  (default {default})' if default not in ('', repr(None)) else ''
    yield f'  {field.key}={value}{about}'
    if field.key in notes:
      yield f'      {notes[field.key]}'
    yield from textwrap.wrap(field.help, 112, initial_indent='      ', subsequent_indent='      ')


def _value(values: Mapping[str, Any], key: str) -> Any:
  """Return a key's value in a flat config; for a section, all its keys."""
  if key in values:
    return values[key]
  return {name.removeprefix(f'{key}.'): value for name, value in values.items() if name.startswith(f'{key}.')}


def _plain(value: Any) -> Any:
  """Return lists for tuples, as in a flat config."""
  return [_plain(x) for x in value] if isinstance(value, list | tuple) else value


def _show(value: Any) -> str:
  """Return a value as the command line takes it."""
  if isinstance(value, list):
    return f'({", ".join(map(repr, redact(value)))}{"," * (len(value) == 1)})'
  value = redact(value)
  return repr(value) if value is None or not isinstance(value, str) or not value else value


def differences(name: str, ours: Mapping[str, Any], other: str, theirs: Mapping[str, Any], keys: list[str]) -> None:
  """Print the keys with different values, one per line, in columns."""
  every = _chosen(dict.fromkeys([*ours, *theirs]), keys)
  rows = [('key', name, other)]
  for key in every:
    one, two = (_show(values[key]) if key in values else _MISSING for values in (ours, theirs))
    if one != two:
      rows.append((key, one, two))
  if len(rows) == 1:
    print(f'{name} and {other} set the same values')
    return
  widths = [max(len(row[i]) for row in rows) for i in range(2)]
  for row in rows:
    print(f'{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}')
