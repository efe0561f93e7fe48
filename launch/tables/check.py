"""Check that every line of measured.csv says how to run it again: `python -m launch.tables --check`.

Commands are parsed and their configs resolved, which imports JAX, and nothing is run. With `--data` the data are looked
for too, by the hash of the prepared corpora in the cache.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import io
import json
import math
import pathlib
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

from experiments.tables import DATA
from launch.tables import measured, options, recorded
from launch.tables import plan as plans
from lmx.cli.main import split_overrides
from lmx.errors import InputError, explain, nearest

WITHOUT_FILES = ('embedded', 'generated')  # data that need no files
_NEEDED = ('seeds', 'data', 'commit', 'hours', 'hardware', 'date')
_SPLITS = {'dev': 'valid'}
_HASH = re.compile(r'[0-9a-f]{8,64}')


def run(args: argparse.Namespace, data: Mapping[str, str]) -> int:
  """Print a line for each problem, then the counts; return 0, or 2 if there are problems."""
  lines = select(args.table or '', args.rows)
  everything = {one.id: one for one in measured.measurements()}
  history, note = commits()
  bad: set[int] = set()
  for number, one in lines:
    for text in problems(one, everything, history):
      bad.add(number)
      print(f'{measured.FILE.name}:{number}: {one.id}: {text}')
  missing = _missing_data([one for _, one in lines], data) if args.data else []
  for text in missing:
    print(text)
  print(summary(lines, bad) + (f'; {note}' if note else ''))
  return 2 if bad or missing else 0


def select(table: str, rows: str) -> list[tuple[int, measured.Measurement]]:
  """Return the lines, with their numbers in the file, of a table, or those whose ids `rows` names."""
  numbered = list(enumerate(measured.measurements(), 2))
  ids = {row.id for row in options.select_rows(plans.table(table), rows)} if table else set()
  ids = ids or options.select([one.id for _, one in numbered], rows)
  return [(number, one) for number, one in numbered if one.id in ids]


def summary(lines: Sequence[tuple[int, measured.Measurement]], bad: set[int]) -> str:
  """Return the counts of lines: that --rerun runs, to be run by hand, kept, with problems, and of other programs."""
  good = [one for number, one in lines if number not in bad]
  ours = [one for one in good if one.is_lmx]
  own = [one for one in ours if not one.kept]
  complete = [one for one in own if not recorded.printing(recorded.commands(one))]
  counts = {
    'complete': len(complete),
    'to be run by hand': len(own) - len(complete),
    'kept': len(ours) - len(own),
    'of other programs': len(good) - len(ours),
    'with problems': len(bad),
  }
  unhashed = sum(not one.data_hash and one.data != 'generated' for one in complete)
  texts = [f'{count} {what}' for what, count in counts.items()]
  texts[0] += f' ({unhashed} of them without a data hash)'
  return f'{len(lines)} lines checked: {", ".join(texts)}'


def problems(
  one: measured.Measurement, everything: Mapping[str, measured.Measurement], history: str | None
) -> Iterator[str]:
  """Yield what is wrong with a line.

  Args:
    everything: all lines by id, which `start` may name.
    history: the commits of the repository; None if they are not known.
  """
  yield from cells(one)
  known = history is None or (len(one.commit) >= 7 and f'\n{one.commit}' in history)
  if one.commit and not known and not one.kept:
    yield f'commit: got {one.commit}, which is not in the history of this repository'
  if not one.is_lmx or one.kept:
    return
  missing = [name for name in _NEEDED if not getattr(one, name)]
  if missing:
    yield f'got no {", ".join(missing)}; fill in, or say in "kept" why the line cannot be run again'
  if one.seeds.endswith(('seed', 'seeds')):
    yield f'seeds: got {one.seeds}; expected the seeds themselves, such as "0 1"'
  if one.data_hash and not all(map(_HASH.fullmatch, one.data_hash.split())):
    yield f'data_hash: got {one.data_hash}; expected at least 8 hexadecimal digits'
  wrong = list(_starts(one, everything))
  yield from wrong
  if wrong:
    return
  try:
    found = recorded.commands(one)
  except InputError as error:
    yield str(error)
    return
  yield from _words(one, found)
  found = [[recorded.fill(word, {recorded.SEED: '0'}) for word in words] for words in found]
  for words in found:
    yield from _command(one, words, found, everything)


def cells(one: measured.Measurement) -> Iterator[str]:
  """Yield the cells of a line that cannot be read, or that disagree with the printed figure."""
  try:
    texts = (one.value, one.spread or '0', one.hours.removeprefix('~') or '0', *one.interval.split())
    numbers = [float(text) for text in texts]
    value, *rest = numbers
    ordered = len(rest) < 4 or rest[2] <= value <= rest[3]
    fits = len(rest) in (2, 4) and ordered and min(rest[:2]) >= 0 and one.count >= (2 if one.spread else 1)
    if not fits or not all(map(math.isfinite, numbers)):
      yield 'numbers'
  except ValueError:
    yield 'numbers'
  if not all((one.id, one.row, one.dataset, one.metric)) or re.search(r'[^A-Za-z0-9_./+-]', one.id):
    yield 'no label'
  seeds = one.seeds.split()
  if len(set(seeds)) < len(seeds):
    yield f'seeds {one.seeds}'
  try:
    datetime.date.fromisoformat(one.date or '2000-01-01')
  except ValueError:
    yield f'date {one.date}'
  line = plans.published().get(one.id)
  if line and (one.dataset, one.split, one.metric) != (line.dataset, line.split, line.metric) and not one.differs:
    yield f'not of the printed {line.dataset} {line.split} {line.metric}'
  if one.differs and not line:
    yield 'differs from no printed figure'


def _starts(one: measured.Measurement, everything: Mapping[str, measured.Measurement]) -> Iterator[str]:
  """Yield what is wrong with the runs that a line starts from."""
  for name in starts(one):
    weights = recorded.weights(name)
    if weights and weights not in DATA:
      yield f'start: got {name}; expected a name in DATA{nearest(weights, DATA)}'
    elif not weights and name not in everything:
      yield f'start: got {name}; expected the id of a line{nearest(name, everything)}'
    elif name == one.id or one.id in _ancestors(name, everything):
      yield 'start: got the line itself; expected the line of the run that it starts from'


def _ancestors(name: str, everything: Mapping[str, measured.Measurement]) -> set[str]:
  """Return the lines that a line starts from, and those that they start from."""
  found: set[str] = set()
  left = [name]
  while left:
    line = everything.get(left.pop())
    new = set(starts(line)) - found if line else set()
    found |= new
    left += new
  return found


def starts(one: measured.Measurement) -> list[str]:
  """Return the runs of `start` in order: ids of lines, and 'imported NAME'."""
  return re.findall(r'imported \S+|\S+', one.start)


def _words(one: measured.Measurement, found: Sequence[Sequence[str]]) -> Iterator[str]:
  """Yield the words in capitals that no cell explains, and the directories of one machine."""
  used = recorded.roles(found)
  names = lambda role: [word.name for word in used if word.role == role]
  given = names(recorded.GIVEN)
  named = bool(data_of(one)) and all(name in DATA for name in data_of(one))
  if given and (not data_of(one) or (named and not _is_table(found) and len(given) != len(data_of(one)))):
    yield f'data: got {one.data or "none"}; expected a name for each of these words: {", ".join(given) or "none"}'
  if len(names(recorded.START)) != len(starts(one)) and not _is_table(found):
    texts = ', '.join(names(recorded.START)) or 'no run'
    yield f'start: got {one.start or "none"}; expected a run for each of those that the command starts from: {texts}'
  for text in recorded.literal_paths(found):
    yield f'{text}: expected a word in capitals for the directory, such as DIR or DATA'


def data_of(one: measured.Measurement) -> list[str]:
  """Return the data of a line that are files, in the order of their words in capitals; a description is one."""
  parts = [part for part in one.data.split() if part not in WITHOUT_FILES]
  return parts if all(part in DATA for part in parts) else [one.data]


def _is_table(found: Sequence[Sequence[str]]) -> bool:
  return any(words[:3] == list(recorded.TABLES) for words in found)


def _command(
  one: measured.Measurement,
  words: Sequence[str],
  found: Sequence[Sequence[str]],
  everything: Mapping[str, measured.Measurement],
) -> Iterator[str]:
  """Yield what is wrong with a command of a line."""
  head = tuple(words[:3])
  if head == recorded.TABLES:
    yield from _table_command(one.id, words[3:])
  elif head == recorded.PYTEST:
    file = next((word for word in words[3:] if not word.startswith('-')), '').partition('::')[0]
    if not (plans.ROOT / file).is_file():
      yield f'{shown(words)}: there is no such test file'
  elif words[0] == 'lmx':
    trained = next((other for other in found if other is not words and recorded.is_training(other)), None)
    if not trained and not recorded.option(words, '--config'):
      trained = _training(one, everything)
    if text := _lmx_problem(tuple(words), tuple(trained or ())):
      yield f'{shown(words)}: {text}'
    elif words is found[-1] and words[1] in ('train', 'evaluate') and (split := _split(words, trained)):
      if is_other_split(one.split, split):
        yield f'split: got {one.split}; the last command measures {split}: add the `lmx evaluate` that was run'
  else:
    yield f'command: got {shown(words)}; expected commands of lmx, launch.tables or pytest, semicolons between'


def shown(words: Sequence[str]) -> str:
  """Return the beginning of a command, for messages."""
  return ' '.join(words[:3])


def _training(one: measured.Measurement, everything: Mapping[str, measured.Measurement]) -> list[str] | None:
  """Return the command that trained the first run that a line starts from; None if it is not of lmx or not known."""
  start = everything.get(next(iter(starts(one)), ''))
  if start is None or start.id == one.id or not start.is_lmx:
    return None
  made = [
    [recorded.fill(word, {recorded.SEED: '0'}) for word in words]
    for words in recorded.commands(start)
    if recorded.is_training(words)
  ]
  return made[-1] if made else _training(start, everything)


def _table_command(key: str, words: Sequence[str]) -> Iterator[str]:
  """Yield what is wrong with a command of launch.tables that gave the line `key`."""
  rest, _ = split_overrides(list(words))
  args, text = _parsed(lambda: options.parser().parse_args(rest))
  if text or args is None:
    yield f'launch.tables: {text}'
    return
  try:
    rows = options.select_rows(plans.table(args.table), args.rows)
  except InputError as error:
    yield f'launch.tables: {error}'
    return
  if key not in {row.id for row in rows}:
    yield f'launch.tables {args.table}: has no row {key}{" among --rows" if args.rows else ""}'


@functools.cache
def _lmx_problem(words: tuple[str, ...], trained: tuple[str, ...]) -> str:
  """Return what is wrong with a command of lmx; '' if its options exist and its config can be resolved.

  Args:
    trained: the command that trained the run that this one reads; () if it is not known.
  """
  from lmx.cli import main, pipeline
  from lmx.config import resolve

  args, text = _parsed(lambda: main.parse(list(words[1:])))
  if text or args is None:
    return text
  try:
    with warnings.catch_warnings(action='ignore'):
      if args.command == 'pipeline':
        pipeline.plan(args.config, pathlib.Path(args.workdir), args.overrides)
      elif getattr(args, 'config', ''):
        resolve.load(args.config, _without_start(args.overrides))
      elif trained[:2] == ('lmx', 'train') and args.overrides:
        first = main.parse(list(trained[1:]))
        resolve.load(first.config, [*_without_start(first.overrides), *args.overrides])
  except InputError as error:
    return str(error)
  return ''


def _without_start(overrides: Sequence[str]) -> list[str]:
  """Return overrides without the run that a training starts from, which is not there to take sizes from."""
  return [re.sub(r'^(train.init_from=).*', r'\1', text) for text in overrides]


def is_other_split(recorded_split: str, split: str) -> bool:
  """Return whether a metric of `split` cannot be that of a line: rows of a user may be any split of a data set."""
  ours = _SPLITS.get(recorded_split, recorded_split)
  return ours in ('train', 'valid') and bool(split) and not split.startswith(ours)


def _split(words: Sequence[str], trained: Sequence[str] | None) -> str:
  """Return the split that a training or an evaluation measures; '' if it is not known."""
  from lmx.cli import main
  from lmx.config import resolve

  if recorded.option(words, '--split'):
    return recorded.option(words, '--split')
  if words[1] == 'evaluate':
    return 'test' if not recorded.option(words, '--config') else ''
  args = main.parse(list(words[1:]))
  return str(resolve.load(args.config, _without_start(args.overrides)).evaluation.split) or 'test'


def _parsed(parse: Callable[[], argparse.Namespace]) -> tuple[argparse.Namespace | None, str]:
  """Return parsed options, or what is wrong with them."""
  with contextlib.redirect_stderr(io.StringIO()) as printed:
    try:
      return parse(), ''
    except InputError as error:
      return None, str(error).splitlines()[0]
    except SystemExit:
      return None, re.sub(r'(?s).* error: (.*?)(\n.*|$)', r'\1', printed.getvalue().strip()) or 'shows its help'


def commits() -> tuple[str | None, str]:
  """Return the commits of the repository, each after a line break, and '' or why they are not known."""
  git = lambda *words: (
    subprocess.run(['git', '-C', str(plans.ROOT), *words], capture_output=True, encoding='utf-8', check=True).stdout
  )
  try:
    if git('rev-parse', '--is-shallow-repository').strip() != 'false':
      return None, 'commits not checked: a shallow clone'
    return '\n' + git('rev-list', 'HEAD'), ''
  except OSError as error:
    return None, f'commits not checked: git: {explain(error)}'
  except subprocess.CalledProcessError:
    return None, 'commits not checked: not a clone'


def _missing_data(lines: Sequence[measured.Measurement], data: Mapping[str, str]) -> list[str]:
  """Return a text for each data set that is not there; print those that are."""
  prepared = prepared_corpora()
  missing = []
  wanted = dict.fromkeys((one.data, key) for one in lines for key in one.data_hash.split() or [''] if one.data)
  for name, key in wanted:
    label = f'data {name}' + (f', hash {key[:8]}' if key else '')
    folder = next((path for full, path in prepared.items() if key and full.startswith(key)), None)
    lacking = [part for part in name.split() if part in DATA and not _is_there(data.get(part, ''))]
    if folder:
      print(f'{label}: prepared in {folder}')
    elif name in WITHOUT_FILES or (not lacking and name.split()[0] in DATA):
      print(f'{label}: there, not compared; `lmx prepare` with the config of a line gives its hash')
    else:
      needed = '; '.join(f'{part}: {DATA[part].files} ({DATA[part].terms}), --data={part}=DIR' for part in lacking)
      missing.append(f'{label}: missing{f"; {needed}" if needed else ""}')
  return missing


def _is_there(path: str) -> bool:
  return path.startswith('hub:') or (bool(path) and pathlib.Path(path).exists())


def prepared_corpora() -> dict[str, pathlib.Path]:
  """Return the directories of the prepared corpora in the cache by data hash."""
  from lmx.data import cache, corpus

  found = {}
  for file in sorted(pathlib.Path(cache.root(), 'tokens').glob('*/manifest.json')):
    try:
      manifest = json.loads(file.read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
      print(f'launch.tables: {file} cannot be read: {error}', file=sys.stderr)
      continue
    content = {key: value for key, value in manifest.items() if key not in ('blocks', 'sha256')}
    found[corpus.manifest_hash(content)] = file.parent
  return found
