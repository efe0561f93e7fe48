"""Commands of gcloud in dry runs, and the flags that the Google Cloud CLI has: recorded, and by its own parser.

`python -m tests.launch.gcloud` records the flags of the installed CLI in gcloud_flags.csv. Rows with `newer` are from
Google's reference of 2026 (cloud.google.com/sdk/gcloud/reference), because that CLI has none of them yet.
"""

from __future__ import annotations

import csv
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile
from typing import Any

FILE = pathlib.Path(__file__).with_name('gcloud_flags.csv')
GOLDEN = pathlib.Path(__file__).parent / 'golden'
OTHER = [['compute', 'tpus', 'tpu-vm', 'start', 'tpu', '--zone=us-central1-a', '--quiet']]  # of a stopped machine
NEWER = (
  ('compute instance-groups managed create', 'target-size-policy-mode', 'individual bulk', '', 'newer'),
  ('compute instance-templates create', 'provisioning-model', 'FLEX_START', '', 'newer'),
)


def commands(text: str) -> list[list[str]]:
  """The gcloud commands in a dry run, whose words have several lines."""
  found, rest = [], ''
  for line in text.splitlines(keepends=True):
    rest += line
    try:
      words = shlex.split(rest, comments=True)
    except ValueError:  # an open quote
      continue
    if words[:1] == ['gcloud']:
      found.append(words[1:])
    rest = ''
  assert not rest, rest
  return found


def of_dry_runs() -> list[list[str]]:
  """The gcloud commands of all dry runs, without the shell scripts of hosts."""
  found = [words for path in sorted(GOLDEN.glob('*.txt')) for words in commands(path.read_text())]
  plain = [tuple('--command=true' if word.startswith('--command=') else word for word in words) for words in found]
  return [*map(list, dict.fromkeys(plain)), *OTHER]


def known() -> dict[str, dict[str, dict[str, str]]]:
  """Recorded flags: command ('' for flags of all) -> flag -> row, with the choices of both versions."""
  found: dict[str, dict[str, dict[str, str]]] = {}
  with FILE.open(newline='') as file:
    for row in csv.DictReader(file):
      flags = found.setdefault(row['command'], {})
      row['choices'] = f'{flags.get(row["flag"], {}).get("choices", "")} {row["choices"]}'.strip()
      flags[row['flag']] = row
  return found


def problems(words: list[str]) -> list[str]:
  """What the recorded flags say against a command."""
  table = known()
  plain = [word for word in words if not word.startswith('--')]
  name = next((n for n in (' '.join(plain[:k]) for k in range(len(plain), 0, -1)) if n in table), '')
  if not name:
    return [f'no command {" ".join(plain)}']
  given = dict(word[2:].partition('=')[::2] for word in words if word.startswith('--'))
  found = [f'{name}: no --{flag}' for flag in given if flag not in {**table[''], **table[name]}]
  for flag, row in table[name].items():
    if row['choices'] and given.get(flag) and given[flag] not in row['choices'].split():
      found.append(f'{name}: --{flag}={given[flag]}: expected {row["choices"]}')
    if row['required'] and flag not in given:
      found.append(f'{name}: --{flag} is required')
  return found


def without_newer(words: list[str]) -> list[str]:
  """A command without flags that the recorded CLI does not have; SPOT in place of its newer provisioning model."""
  newer = {f'--{flag}=' for _, flag, choices, *_ in NEWER if choices != 'FLEX_START'}
  return [word.replace('FLEX_START', 'SPOT') for word in words if not word.startswith(tuple(newer))]


def lint(found: list[list[str]]) -> list[dict[str, Any]]:
  """The answers of gcloud's own parser, which runs nothing and needs no account."""
  with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
    json.dump([{'command_string': shlex.join(['gcloud', *words])} for words in found], file)
    file.flush()
    words = ['gcloud', 'meta', 'lint-gcloud-commands', f'--commands-file={file.name}']
    done = subprocess.run(words, capture_output=True, text=True, check=True)
  return json.loads(done.stdout)


def record() -> None:
  """Write the flags of the installed CLI for the commands of dry runs."""
  version = subprocess.run(['gcloud', 'version'], capture_output=True, text=True, check=True).stdout.split()[3]
  rows = {}
  for answer in lint([without_newer(words) for words in of_dry_runs()]):
    assert answer['success'], answer
    name = answer['command_string_no_args'].removeprefix('gcloud ')
    for one in _arguments(answer['args_structure']):
      if not one.get('positional') and not one['name'].startswith('-'):
        choices = ' '.join(map(str, one.get('choices', [])))
        rows['' if one.get('global') else name, one['name']] = (choices, 'yes' if one.get('required') else '', version)
  with FILE.open('w', newline='') as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(('command', 'flag', 'choices', 'required', 'version'))
    writer.writerows(sorted((*key, *row) for key, row in rows.items()))
    writer.writerows(NEWER)


def _arguments(structure: dict[str, Any]) -> list[dict[str, Any]]:
  found = []
  for one in structure['arguments']:
    if 'group' in one:  # its members are required together only
      found += [{**member, 'required': False} for member in _arguments(one['group'])]
    else:
      found.append(one)
  return found


if __name__ == '__main__':
  sys.exit(record())
