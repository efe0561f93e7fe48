"""Check that every line of measured.csv says how to run it again: `python -m launch.tables --check`.

Commands are parsed and their configs resolved, which imports JAX, and nothing is run. With `--data` the data are looked
for too, by the hash of the prepared corpora in the cache.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import json
import math
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from experiments.tables import BEST, DATA, MEAN, MEDIAN
from launch.tables import evaluations, measured, names, options, recorded, trainings, verdict
from launch.tables import plan as plans
from lmx.cli.main import split_overrides
from lmx.errors import InputError, explain, nearest

_NEEDED = ('seeds', 'data', 'commit', 'hours', 'hardware', 'date')
_PROGRAMS = ('gensim ', 'transformers ', 'fairseq')  # with which lmx is compared
_HASH = re.compile(r'[0-9a-f]{8,64}')
_YEAR = 366 * 24  # hours of a seed at most
_COMMIT = re.compile(r'[0-9a-f]{7,40}')


def run(args: argparse.Namespace, data: Mapping[str, str]) -> int:
  """Print a line for each problem, then the counts; return 0, or 2 if there are problems."""
  lines = select(args.table or '', args.rows)
  everything: dict[str, measured.Measurement] = {}
  numbers: dict[str, int] = {}
  for number, one in enumerate(measured.measurements(), 2):
    everything.setdefault(one.id, one)
    numbers.setdefault(one.id, number)
  history, note = commits()
  bad: set[int] = set()
  for number, one in lines:
    again = [] if numbers[one.id] == number else [f'id: got that of line {numbers[one.id]}; expected one line per id']
    for text in (*again, *problems(one, everything, history)):
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
  texts = [f'{count} {what}' for what, count in counts.items()]
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
  known = bool(_COMMIT.fullmatch(one.commit)) and (history is None or f'\n{one.commit}' in history)
  if one.commit and not known and not one.kept:
    yield f'commit: got {one.commit}, which is not in the history of this repository'
  if not one.is_lmx or one.kept:
    return
  missing = [name for name in _NEEDED if not getattr(one, name)]
  if missing:
    yield f'got no {", ".join(missing)}; fill in, or say in "kept" why the line cannot be run again'
  if one.seeds.endswith(('seed', 'seeds')):
    yield f'seeds: got {one.seeds}; expected the seeds themselves, such as "0 1"'
  if not one.data_hash and not recorded.printing(recorded.commands(one)) and not evaluations.is_size(one):
    yield 'data_hash: got none; expected that of results.json'
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
  wrong = [text for words in found for text in _command(one, words, everything)]
  wrong = wrong or list(evaluations.problems(one, everything)) or list(evaluations.hash_problems(one, everything))
  yield from wrong


def cells(one: measured.Measurement) -> Iterator[str]:
  """Yield the cells of a line that cannot be read, or that disagree with the printed figure."""
  try:
    texts = (one.value, one.spread or '0', one.hours.removeprefix('~') or '0', *one.interval.split())
    numbers = [float(text) for text in texts]
    value, *rest = numbers
    ordered = len(rest) < 4 or rest[2] <= value <= rest[3]
    fits = len(rest) in (2, 4) and ordered and min(rest[:2]) >= 0 and one.count >= (2 if one.spread else 1)
    fits = fits and not (one.hours and not 0 < rest[1] < _YEAR * one.count)
    if not fits or not all(map(math.isfinite, numbers)):
      yield 'numbers'
  except ValueError:
    yield 'numbers'
  if not all((one.id, one.row, one.dataset, one.metric)) or re.search(r'[^A-Za-z0-9_./+-]', one.id):
    yield 'no label'
  seeds = one.seeds.split()
  if len(set(seeds)) < len(seeds):
    yield f'seeds {one.seeds}'
  if one.statistic not in ('', BEST, MEDIAN):
    yield f"statistic: got {one.statistic}; expected '' (the mean), {BEST} or {MEDIAN}"
  try:
    tomorrow = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1)
    if datetime.date.fromisoformat(one.date or '2000-01-01') > tomorrow:
      yield f'date {one.date}'
  except ValueError:
    yield f'date {one.date}'
  if one.system not in names.SYSTEMS:
    yield f'system {one.system}'
  if not one.is_lmx and not one.command.startswith(_PROGRAMS):
    yield f'command {one.command}'
  line = plans.published().get(one.id)
  if line and (one.dataset, one.split, one.metric) != (line.dataset, line.split, line.metric) and not one.differs:
    yield f'not of the printed {line.dataset} {line.split} {line.metric}'
  if one.differs and not verdict.printed(one.id):
    yield 'differs from no printed figure'


def _starts(one: measured.Measurement, everything: Mapping[str, measured.Measurement]) -> Iterator[str]:
  """Yield what is wrong with the runs that a line starts from."""
  for name in recorded.starts(one):
    weights = recorded.weights(name)
    if weights and weights not in DATA:
      yield f'start: got {name}; expected a name in DATA{nearest(weights, DATA)}'
    elif not weights and name not in everything:
      yield f'start: got {name}; expected the id of a line{nearest(name, everything)}'
    elif name == one.id or one.id in _ancestors(name, everything):
      yield 'start: got the line itself; expected the line of the run that it starts from'
    elif not weights and (everything[name].kept or not everything[name].is_lmx):
      yield f'start: got {name}, which cannot be run again; expected a run of lmx without a reason in "kept"'


def _ancestors(name: str, everything: Mapping[str, measured.Measurement]) -> set[str]:
  """Return the lines that a line starts from, and those that they start from."""
  found: set[str] = set()
  left = [name]
  while left:
    line = everything.get(left.pop())
    new = set(recorded.starts(line)) - found if line else set()
    found |= new
    left += new
  return found


def _words(one: measured.Measurement, found: Sequence[Sequence[str]]) -> Iterator[str]:
  """Yield the words in capitals that no cell explains, and the directories of one machine."""
  used = recorded.roles(found)
  of_role = lambda role: [word.name for word in used if word.role == role]
  given = of_role(recorded.GIVEN)
  data = recorded.data_of(one)
  if given and (not data or (recorded.is_named(one) and not _is_table(found) and len(given) != len(data))):
    yield f'data: got {one.data or "none"}; expected a name for each of these words: {", ".join(given) or "none"}'
  if len(of_role(recorded.START)) != len(recorded.starts(one)) and not _is_table(found):
    texts = ', '.join(of_role(recorded.START)) or 'no run'
    yield f'start: got {one.start or "none"}; expected a run for each of those that the command starts from: {texts}'
  for text in recorded.literal_paths(found):
    yield f'{text}: expected a word in capitals for the directory, such as DIR or DATA'


def _is_table(found: Sequence[Sequence[str]]) -> bool:
  return any(words[:3] == list(recorded.TABLES) for words in found)


def _command(
  one: measured.Measurement, words: Sequence[str], everything: Mapping[str, measured.Measurement]
) -> Iterator[str]:
  """Yield what is wrong with a command of a line."""
  head = tuple(words[:3])
  if head == recorded.TABLES:
    yield from _table_command(one, words[3:])
  elif head == recorded.PYTEST:
    yield from _test_command(words)
  elif words[0] == 'lmx':
    if text := _lmx_problem(one, words, everything):
      yield f'{shown(words)}: {text}'
  else:
    yield f'command: got {shown(words)}; expected commands of lmx, launch.tables or pytest, semicolons between'


def shown(words: Sequence[str]) -> str:
  """Return the beginning of a command, for messages."""
  return ' '.join(words[:3])


def _table_command(one: measured.Measurement, words: Sequence[str]) -> Iterator[str]:
  """Yield what is wrong with a command of launch.tables that gave a line."""
  rest, settings = split_overrides(list(words))
  args, text = _parsed(lambda: options.parser().parse_args(rest))
  if text or args is None:
    yield f'launch.tables: {text}'
    return
  try:
    rows = {row.id: row for row in options.select_rows(plans.table(args.table, args.options), args.rows)}
  except InputError as error:
    yield f'launch.tables: {error}'
    return
  if one.id not in rows:
    yield f'launch.tables {args.table}: has no row {one.id}{" among --rows" if args.rows else ""}'
    return
  expected = rows[one.id].statistic
  if (one.statistic or MEAN) != expected:
    yield f'statistic: got {one.statistic or MEAN}; expected {expected}, as its row has it; record the line again'
  given = '' if plans.is_study(args.table) else args.options
  changed = plans.Plan(options=given, settings=tuple(settings)).changed
  reason = rows[one.id].differs or (f'the command changes the protocol, {changed}' if changed else '')
  if reason and not one.differs and one.id in plans.published():
    yield f'differs: got none; expected the reason why the printed figure is not compared: {reason}'


def _test_command(words: Sequence[str]) -> Iterator[str]:
  """Yield what is wrong with a command of pytest: its file or test does not exist."""
  file, _, test = next((word for word in words[3:] if not word.startswith('-')), '').partition('::')
  path = (plans.ROOT / file).resolve()
  if not path.is_file() or not path.is_relative_to(plans.ROOT / 'tests'):
    yield f'{shown(words)}: there is no such test file'
  elif test and f'def {test.partition("[")[0]}(' not in path.read_text(encoding='utf-8'):
    yield f'{shown(words)}: there is no test {test} in {file}'


def _lmx_problem(
  one: measured.Measurement, words: Sequence[str], everything: Mapping[str, measured.Measurement]
) -> str:
  """Return what is wrong with a command of lmx; '' if its options exist and its config can be resolved."""
  from lmx.cli import main

  args, text = _parsed(lambda: main.parse(list(words[1:])))
  if text or args is None:
    return text
  which = recorded.option(words, '--which')
  if which and which not in ('best', 'last', 'average') and not which.isdecimal():
    return f"--which: got {which}; expected 'best', 'last', 'average' or a step"
  if (seed := recorded.option(words, '--config.seed')) and recorded.is_training(words) and one.seeds.split() != [seed]:
    if recorded.SEED not in one.command:
      return f'--config.seed: got {seed} with the seeds {one.seeds}; expected these: --config.seed=SEED'
  training = trainings.measured_run(one, everything)
  try:
    evaluations.configs(words, training[0] if training else None)
  except InputError as error:
    return str(error)
  return ''


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
    elif name in recorded.WITHOUT_FILES or (not lacking and name.split()[0] in DATA):
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
