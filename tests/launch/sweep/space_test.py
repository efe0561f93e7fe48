"""`--space`: axes on the command line, beside and without a `sweep()`."""

from __future__ import annotations

import pytest

from experiments import spaces
from launch.sweep import space, study
from lmx import cast
from lmx.errors import InputError
from tests.launch.sweep.place import GRID, HEAD, SEEDS, SPACE

pytest.importorskip('optuna', reason='needs the extra `sweep`')

PLAIN = HEAD.partition('\n\n\ndef sweep')[0] + '\n'

AXES = {
  'optim.lr=log:1e-4..1e-2': spaces.Range(1e-4, 1e-2, True),
  'model.N=log:2..64': spaces.Range(2, 64, True),
  'model.dropout=0..0.5': spaces.Range(0.0, 0.5),
  'model.N=2..8': spaces.Range(2, 8),
  'model.N=int:1e1..1e3': spaces.Range(10, 1000),
  'optim.b=-1.5..-.5': spaces.Range(-1.5, -0.5),
  'model.init=paper, released': ('paper', 'released'),
  'optim.lr=1e-3,0.1': (0.001, 0.1),
  'model.scan=true,false': (True, False),
  'x.y="a,b",c': ('a,b', 'c'),
  "x.y='3',3": ('3', 3),
  'x.y=(1, 2),(3,),[4,"],"]': ((1, 2), (3,), [4, '],']),
  'x.y="",a': ('', 'a'),
  "x.y=don't,it's": ("don't", "it's"),
}


def test_forms_of_axes_and_their_text():
  for text, axis in AXES.items():
    found = space.parse([text])
    key = text.partition('=')[0]
    assert found == {key: axis} and list(map(type, found[key])) == list(map(type, axis)), text
    shown = study.Search.create(found).axes[key]
    again = space.parse([f'{key}={space.format_axis(shown)}'])
    assert again == found, text  # what is shown can be given
    assert space.format_axis(list(shown)) == space.format_axis(shown), text  # as a study stores it
    if not isinstance(axis, spaces.Range):
      assert [cast.parse(value) for value in shown] == list(axis), text


BAD = {
  'optim.lr': 'expected KEY=VALUES',
  '=1,2': 'expected KEY=VALUES',
  'optim.lr=': 'expected KEY=VALUES',
  'optim.lr=0.1': 'fix one value with --config.optim.lr=0.1',
  'optim.lr=log:0..1': 'above 0',
  'optim.lr=1..1e-3': 'the first below the second',
  'optim.lr=log:1e-4..': 'expected a range',
  'optim.lr=uniform:1..2': 'expected a range',
  'optim.lr=0..1/0.1': 'expected a range',
  'optim.lr=log:1e-4..1e-2,1': 'expected a range',
  'optim.lr=1..2,3': 'expected a range',
  'model.N=int:1..1e400': 'expected finite ends',
  'optim.lr=-1e400..1': 'expected finite ends',
  f'model.N=1..{10**309}': 'expected finite ends',
  'model.N=log:1..1' + 5000 * '0': 'expected finite ends',
  'optim.lr=-1e308..1e308': 'expected finite ends',
  'model.N=int:0.5..3': 'expected integers',
  'x.y=a,,b': 'expected a range',
  'x.y=a,b,a': 'a choice twice',
  'x.y=0.1,1e-1': 'a choice twice',
  'x.y="a,b': 'expected " at its end',
  'x.y=(1,2': 'expected ) at its end',
}


def test_bad_axes_name_the_option():
  for text, message in BAD.items():
    with pytest.raises(InputError) as error:
      space.parse([text])
    assert '--space: got ' in str(error.value) and message in str(error.value), text
  with pytest.raises(InputError, match=r'optim\.lr twice'):
    space.parse(['optim.lr=1,2', 'optim.lr=3,4'])


def searched(place, text, *given, fixed=()):
  from launch.sweep import __main__ as sweep

  path = place.argv(text)[0].partition('=')[2]
  return sweep.read_search(path, fixed, space.parse(given))


def test_axes_replace_and_add_to_those_of_sweep(place):
  found = searched(place, SPACE, 'optim.lr=0.1,0.2', 'model.N=2..4')
  assert found.axes == {
    'optim.lr': ('0.1', '0.2'),
    'model.dropout': spaces.Range(0, 0.5),
    'model.N': spaces.Range(2, 4),
  }
  lines = [' '.join(line.split()) for line in found.lines]
  assert lines[1:] == [
    'optim.lr 0.1,0.2 --space, instead of log:0.0001..1.0 in sweep()',
    'model.dropout 0..0.5 sweep()',
    'model.N 2..4 --space',
  ]
  grid = searched(place, SEEDS, 'seed=3,4,5')
  assert [tuple(point.values()) for point in grid.points] == [(lr, s) for lr in ('0.1', '0.01') for s in '345']
  ranged = searched(place, GRID, 'optim.lr=log:1e-3..1.0')
  assert not ranged.points and ranged.axes['model.kind'] == ('a', "'3'", '(1, 2)')


def test_space_needs_no_sweep(place, tmp_path):
  found = searched(place, PLAIN, 'optim.lr=0.1,0.2', 'model.kind=a,"b,c"')
  assert [tuple(point.values()) for point in found.points] == [
    (lr, kind) for lr in ('0.1', '0.2') for kind in ('a', 'b,c')
  ]
  from launch.sweep import __main__ as sweep

  saved = tmp_path / 'config.json'  # of a run
  saved.write_text('{}')
  assert sweep.read_search(str(saved), [], space.parse(['optim.lr=1..2'])).axes == {'optim.lr': spaces.Range(1, 2)}
  with pytest.raises(InputError, match='no function sweep.*--space KEY=VALUES'):
    searched(place, PLAIN)
  with pytest.raises(InputError, match=r'--space: got optim\.lr, which --config\.optim\.lr'):
    searched(place, SPACE, 'optim.lr=1,2', fixed=['optim.lr'])
  different = HEAD + '  return [{"optim.lr": 1}, {"optim.b": 2}]\n'
  with pytest.raises(InputError, match='differ in their keys'):
    searched(place, different, 'model.N=1..2')
  assert len(searched(place, different, 'model.N=1,2').points) == 4


def test_samples_have_each_value():
  search = study.Search.create(space.parse(['a.x=1..3', 'a.y=p,q', 'a.z=0.1,0.2']))
  seen = list(space.samples(search))
  assert len(seen) == 6 and all(len(points) == 4 for points in seen)
  assert [{point['a.x'] for point in points} for points in seen[:2]] == [{'1'}, {'3'}]
  assert [{point['a.y'] for point in points} for points in seen[2:4]] == [{'p'}, {'q'}]
  grid = study.Search.create([{'a.x': 1}, {'a.x': 2, 'a.y': 1}])
  assert list(space.samples(grid)) == [[{'a.x': '1'}], [{'a.x': '2', 'a.y': '1'}], [{'a.x': '2', 'a.y': '1'}]]


def test_resumed_sweep_with_another_space_is_refused(place, capsys):
  place.child(steps=2, seconds=0)
  first = ('--space', 'optim.lr=log:1e-3..1e-2')
  assert place.run(PLAIN, *first, '--trials=1') == 0
  out = capsys.readouterr().out
  assert 'optim.lr  log:0.001..0.01  --space' in out
  assert place.run(PLAIN, '--space', 'optim.lr=log:1e-3..1e-1', '--trials=2') == 2
  error = capsys.readouterr().err
  assert "--space 'optim.lr=log:0.001..0.01' there, --space 'optim.lr=log:0.001..0.1' now" in error
  assert place.run(PLAIN, *first, '--trials=2') == 0 and len(place.table()) == 2
  journal = (place.dir / 'study.journal').read_bytes()
  assert place.run(PLAIN, *first, '--trials=2', '--dry_run') == 0
  capsys.readouterr()
  assert place.run(PLAIN, '--space', 'optim.lr=log:1e-3..1e-1', '--trials=2', '--dry_run') == 2
  assert "--space 'optim.lr=log:0.001..0.01' there" in capsys.readouterr().err
  assert (place.dir / 'study.journal').read_bytes() == journal
