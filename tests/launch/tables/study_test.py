"""A table whose runs depend on choices: the order of its runs, what is chosen, and its matrix."""

from __future__ import annotations

import json
import pathlib
import random
import types

import pytest

from experiments.tables import Choice, lineage
from launch.tables import matrix as matrix_of
from launch.tables import measured, pages, paradigms, runner, study, values
from launch.tables import plan as plans
from launch.tables.__main__ import main
from lmx import objectives
from lmx.errors import InputError
from lmx.evaluation import parts
from lmx.metrics import bag_of_words, published_pairs
from tests import minimal_pairs
from tests.pages_test import hook

OPTIONS = '--options=systems=nplm+gpt2+bert,budget=1+4,tasks=imdb'
BEST = {'gpt2': '1e-3', 'bert': '1e-2'}  # bert's is at the edge of the grid
METRICS = {
  'accuracy': 0.7,
  'bits_per_byte': 1.25,
  'parameters_without_embeddings': 3_159_552,
  'parameters_with_heads': 5_291_264,
  'training_flops': 3.3e13,
  'tokens': 999_424,
  'train_tokens': 1_188_072,
  'train_words': 750_000,
  'majority_accuracy': 0.5,
  'bag_of_words': {'naive_bayes': 0.8, 'tfidf': 0.85},
  'paradigms': [{'phenomenon': 'binding', 'name': f'paradigm_{i}', 'accuracy': 0.7 + 0.01 * i} for i in range(3)],
  'split': 'test',
}


def loss_of(name: str) -> float:
  """Return a validation loss that is least at the best rate."""
  best = '3e-4' if 'imdb' in name else BEST['gpt2' if 'gpt2' in name else 'bert']
  rates = sorted(lineage.systems.RATES, key=float)
  return 3.0 + abs(rates.index(name.rpartition('_lr')[2]) - rates.index(best))


def train(words: tuple[str, ...], where: pathlib.Path) -> None:
  """Write config.json and results.json of a training."""
  settings = [word.removeprefix('--config.') for word in words if word.startswith('--config.')]
  seed = int(settings.pop().removeprefix('seed='))
  path, _, arg = words[1].removeprefix('--config=').partition(':')
  flat = plans.configs(plans.Run('', f'{path}:{arg}', tuple(settings)), plans.Plan())['']
  tree: dict = {'seed': seed}
  for key, value in flat.items():
    *sections, last = key.split('.')
    part = tree
    for section in sections:
      part = part.setdefault(section, {})
    part[last] = value
  where.mkdir(parents=True, exist_ok=True)
  (where / 'config.json').write_text(json.dumps(tree))
  results = {'validation_loss': loss_of(where.parent.name), 'training_seconds': 360.0, 'split': 'valid', 'seed': seed}
  results['epochs'] = 0.8412
  (where / 'results.json').write_text(json.dumps(results))


@pytest.fixture
def program(monkeypatch):
  """Replaces the processes of lmx by the files that they leave; returns the commands, and names of runs that fail."""
  calls: list[str] = []
  failing: list[str] = []

  def process(self, command, log, slot):
    del self, slot
    where = next((word.partition('=')[2] for word in command.words if word.startswith('--workdir=')), '')
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text('lmx: the loss is not finite\n')
    if any(name in where for name in failing):
      return 3
    calls.append(f'{command.words[0]} {"/".join(pathlib.Path(where).parts[-2:])}')
    if command.words[0] == 'train':
      train(command.words, pathlib.Path(where))
    else:
      command.proof.parent.mkdir(parents=True, exist_ok=True)
      command.proof.write_text(
        json.dumps([METRICS | {'dataset': 'text_files'}] if command.words[0] == 'ngrams' else METRICS)
      )
    return 0

  monkeypatch.setattr(runner.Runner, '_process', process)
  monkeypatch.setattr(bag_of_words, 'is_installed', lambda: True)
  return calls, failing


def run(folder: pathlib.Path, *words: str) -> int:
  data = [f'--data={name}={folder}' for name in ('corpus', 'blimp', 'imdb')]
  return main(['lineage', f'--runs={folder}/runs', OPTIONS, *data, *words])


def matrix(folder: pathlib.Path) -> list[str]:
  text = (folder / 'runs/tables/lineage.md').read_text()
  return [line for line in text.partition('\n## ')[0].splitlines() if line.startswith('| ')]


def test_study_chooses_rates_and_continues(tmp_path, program, capsys):
  calls, failing = program
  failing.append('bert_4m')
  assert run(tmp_path) == 1
  said = capsys.readouterr().err
  first, last = said.index('two cores'), said.index('done in')
  assert first < last, 'the cost comes before the first run'
  assert 'bert_4m_lr1e-2 seed 0: failed (exit code 3)' in said
  done = [line for line in said.splitlines() if ': done in' in line]
  chosen = next(i for i, line in enumerate(done) if 'nplm_4m_lr1e-2 seed 0' in line)
  before, after = (line.rpartition('estimated ')[2] for line in done[chosen - 1 : chosen + 1])
  assert before != after, 'the hours of a rate that was not assumed'
  trained = [call.removeprefix('train ') for call in calls if call.startswith('train')]
  rates = [name.partition('/')[0].rpartition('_lr')[2] for name in trained if name.startswith('gpt2_1m')]
  assert rates == ['3e-4', '1e-3', '3e-3', '1e-2']
  rates = [name.partition('/')[0].rpartition('_lr')[2] for name in trained if name.startswith('bert_1m')]
  assert rates == ['3e-4', '1e-3', '3e-3', '1e-2', '3e-2'], 'an edge won'
  assert 'gpt2_4m_lr1e-3/seed0' in trained, 'the rate of the smaller budget'
  assert any(name.startswith('gpt2_4m_lr1e-3_imdb_lr3e-4') for name in trained)
  assert [line.split(' | ')[11] for line in matrix(tmp_path) if line.startswith('| BERT')] == ['–', '–']
  assert [line.split(' | ')[12] for line in matrix(tmp_path) if line.startswith('| BERT')] == ['70.00', 'not run']

  failing.clear()
  before = list(calls)
  assert run(tmp_path) == 0
  assert {call.split()[1].partition('_')[0] for call in calls[len(before) :]} == {'bert'}, 'nothing is run twice'
  trained = [call for call in calls if call.startswith('train')]
  assert len(trained) == len(set(trained))
  before = list(calls)
  assert run(tmp_path) == 0 and calls == before

  gpt2 = next(line for line in matrix(tmp_path) if line.startswith('| GPT-2'))
  assert gpt2.split(' | ')[1:] == [
    *('2019', '3,159,552', '5,291,264', '1.00', '100%', '0.75', '0.84', '3.30e+13'),
    *('0.10', '1e-3', '1.250', '70.00', '–', '1 |'),
  ]
  bags = [line for line in matrix(tmp_path) if line.startswith('| TF-IDF')]
  assert bags[0].split(' | ')[-2] == '85.00'


def test_recorded_matrix_is_that_of_the_runs(tmp_path, program, monkeypatch):
  """The rates that were chosen are read from the recorded options, for each system."""
  monkeypatch.setattr(measured, 'FILE', tmp_path / 'measured.csv')
  monkeypatch.setattr(paradigms, 'FILE', tmp_path / 'paradigms.csv')
  monkeypatch.setattr(paradigms, 'COUNT', 3)
  measured.measurements.cache_clear()
  try:
    assert matrix_of.table('lineage') is lineage.TABLE
    assert run(tmp_path, '--seeds=2', '--record') == 0
    one = matrix_of.table('lineage')
    lines = [f'| {" | ".join(line.cells)} |' for line in matrix_of.lines(one, values.recorded(one))]
    assert [line for line in lines if '**' not in line and 'million' not in line and 'tasks only' not in line] == [
      line for line in matrix(tmp_path)[1:] if '**' not in line
    ]
    assert any('| BERT | 2018 | 3,159,552' in line and '| 1e-2 |' in line and line.endswith('| 2 |') for line in lines)
    assert set(one.curves) == set(lineage.build(OPTIONS.partition('=')[2], assume=True).curves)
    assert values.recorded(one)['lineage/mini/tokens/1/bert/blimp'] == (70.0, 0.0, 2, 0)
    page = pages.pages()['lineage.md']
    assert all(line in page for line in lines if line.startswith('| BERT'))
    of_page = hook('lineage_page')
    assert of_page.result().startswith(f'| {" | ".join(title for title, _ in matrix_of.heads(one))} |')
    assert '### 4 million tokens\n\n- No difference is shown.\n\nNot shown at this size:\n\n- ' in of_page.shown()
    assert 'unigrams' not in of_page.shown() and '; 2 seeds each)' in of_page.shown()
    assert [file.read_bytes()[:4] for file in of_page.draw(tmp_path)] == [b'\x89PNG'] * 2
  finally:
    measured.measurements.cache_clear()


def test_stages_are_recorded_one_after_the_other(tmp_path, program, monkeypatch, capsys):
  """More seeds of a row replace its line, fewer do not; a directory without runs shows nothing that is recorded."""
  monkeypatch.setattr(measured, 'FILE', tmp_path / 'measured.csv')
  monkeypatch.setattr(paradigms, 'FILE', tmp_path / 'paradigms.csv')
  monkeypatch.setattr(paradigms, 'COUNT', 3)
  measured.measurements.cache_clear()
  try:
    words = ['--options=systems=gpt2,budget=1,tasks=none', '--record']
    assert run(tmp_path, *words) == 0
    assert run(tmp_path, *words, '--seeds=2') == 0
    known = measured.by_row()
    assert known['lineage/mini/tokens/1/gpt2/blimp'].seeds == '0 1' and '--seeds' not in str(
      known['lineage/ngrams/1/5/bits']
    )
    assert (known['lineage/ngrams/1/5/bits'].split, known['lineage/ngrams/1/5/bits'].dataset) == ('test', 'text_files')
    assert run(tmp_path, *words) == 2
    assert 'expected one line per row, and' in capsys.readouterr().err
    assert main(['lineage', f'--runs={tmp_path}/none', '--collect', words[0]]) == 0
    assert '70.00' not in capsys.readouterr().out
  finally:
    measured.measurements.cache_clear()


def test_recorded_groups_have_the_ngram_models_of_their_text():
  stages = ('size=tiny,budget=1,systems=gpt2,lr=3e-3', 'budget=4,design=flops,systems=gpt2,lr=1e-3')
  rows = [row for stage in stages for row in lineage.build(f'{stage},tasks=none', assume=True).rows]
  table = lineage.of_rows({row.id: row.options for row in rows})
  ngrams = ['unigrams', '5-gram, Kneser-Ney']
  groups: dict[str, list[str]] = {}
  for row in table.matrix.rows:
    groups.setdefault(row.group, []).append(row.cells[0])
  assert groups == {
    '': ['chance'],
    '1 million tokens': ngrams,
    '4 million tokens': ngrams,
    "operations of GPT-2's 4 million tokens": [*ngrams, 'GPT-2'],
    'tiny, 1 million tokens': [*ngrams, 'GPT-2'],
  }
  assert table.note.startswith('Sizes mini and tiny.')


def test_recorded_options_without_the_row_are_refused():
  with pytest.raises(InputError, match=r'lineage: got the row lineage/x with the options budget=1,systems=gpt2'):
    plans.of_rows('lineage', {'lineage/x': 'budget=1,systems=gpt2'})


def test_further_seeds_only_train_the_chosen_rate(tmp_path, program):
  calls, _ = program
  words = ['--options=systems=gpt2,budget=1,tasks=none']
  assert run(tmp_path, *words) == 0
  before = len(calls)
  assert run(tmp_path, *words, '--seeds=2') == 0
  assert [call for call in calls[before:] if call.startswith('train')] == ['train gpt2_1m_lr1e-3/seed1']


def test_systems_are_run_one_after_another(tmp_path, program):
  """What only later runs need, such as the minimal pairs, fails in minutes; an interruption leaves whole lines."""
  calls, _ = program
  assert run(tmp_path, '--options=systems=nplm+gpt2,budget=1+4,tasks=imdb') == 0
  trained = [call.removeprefix('train ') for call in calls if call.startswith('train')]
  systems = [name.partition('_')[0] for name in trained]
  assert systems == sorted(systems, reverse=True) and {*systems} == {'nplm', 'gpt2'}, 'all of NPLM, then GPT-2'
  scored = [i for i, call in enumerate(calls) if call == 'evaluate model' or call.endswith('/model')]
  assert scored and scored[-1] < calls.index(f'train {trained[0]}'), 'n-gram models are scored before any training'


@pytest.mark.parametrize(
  ('data', 'message'),
  [
    ({}, '--data=blimp=DIR'),
    ({'blimp': 'nowhere'}, '--data=blimp: got nowhere; there is no such file or folder; check the path'),
  ],
)
def test_missing_data_of_later_runs_end_the_command_at_once(tmp_path, program, capsys, data, message):
  calls, _ = program
  given = [f'--data={name}={path}' for name, path in ({'corpus': tmp_path} | data).items()]
  assert main(['lineage', f'--runs={tmp_path}/runs', '--options=systems=nplm,budget=1,tasks=none', *given]) == 2
  assert message in capsys.readouterr().err and calls == []


def test_missing_library_of_a_later_run_ends_the_command_at_once(tmp_path, program, monkeypatch, capsys):
  calls, _ = program
  monkeypatch.setattr(bag_of_words, 'is_installed', lambda: False)
  assert run(tmp_path) == 2 and calls == []
  assert "needs scikit-learn: pip install 'lmx[baselines]'" in capsys.readouterr().err
  objective = objectives.get('classify')
  asked = types.SimpleNamespace(evaluation=types.SimpleNamespace(bag_of_words=True, cache=(), mixture=''))
  with pytest.raises(InputError, match='evaluation.bag_of_words: got True; expected scikit-learn'):
    parts.check_options(asked, objective)


def test_another_config_in_a_directory_is_refused(tmp_path, program, capsys):
  words = ['--options=systems=gpt2,budget=1,tasks=none']
  assert run(tmp_path, *words) == 0
  file = next((tmp_path / 'runs/lineage/mini').glob('gpt2_1m_lr3e-4/seed0/config.json'))
  file.write_text(file.read_text().replace('"D": 256', '"D": 128'))
  assert run(tmp_path, *words) == 2
  assert 'is a run of another config: model.D 128 there, 256 here; move it elsewhere' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('losses', 'failed', 'wanted'),
  [
    ({}, (), ('', ['b', 'c'])),
    ({'b': 1.0}, (), ('', ['c'])),
    ({'b': 1.0, 'c': 2.0}, (), ('', ['a'])),
    ({'a': 1.5, 'b': 1.0, 'c': 2.0}, (), ('b', [])),
    ({'a': 0.5, 'b': 1.0, 'c': 2.0}, (), ('a', [])),
    ({'b': 2.0, 'c': 1.0}, (), ('', ['d'])),
    ({'b': 2.0, 'c': float('inf')}, (), ('', ['a'])),
    ({'b': 2.0, 'c': 1.0}, ('d',), ('c', [])),
    ({}, ('b', 'c'), ('', [])),
  ],
)
def test_choice_widens_at_an_edge(losses, failed, wanted):
  choice = Choice('rate', ('a', 'b', 'c', 'd'), 1, 3)
  assert study.choose(choice, {name: losses.get(name, float('nan')) for name in 'abcd'}, failed) == wanted


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ('size=large', 'option "size": got large; expected mini or small'),
    ('budget=2', 'option "budget": got 2; expected 1 or 4'),
    ('systems=gpt2+gpt2', 'option "systems": got gpt2+gpt2'),
    ('lr=1e-4+1e-3', 'option "lr": got 1e-4+1e-3; expected neighbours of'),
    ('size=tiny,design=flops', 'option "design": got flops with size=tiny'),
    ('budgets=1', 'option "budgets": unknown; expected one of size, budget'),
    ('size=mini,size=small', 'option "size": got it twice'),
  ],
)
def test_wrong_options_are_refused(tmp_path, capsys, options, message):
  assert main(['lineage', f'--runs={tmp_path}', f'--options={options}']) == 2
  assert message in capsys.readouterr().err


def test_study_runs_on_this_machine(tmp_path, capsys):
  assert main(['lineage', f'--runs={tmp_path}', '--where=slurm']) == 2
  assert '--where: got slurm with lineage' in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tiny_study_runs_from_text_to_matrix(tmp_path):
  """No process is replaced: four systems learn from made-up text, are scored on pairs, and drawn."""
  rng = random.Random(0)
  words = [''.join(rng.choices('abcdefgh', k=5)) for _ in range(500)]
  text = lambda count: '\n'.join(' '.join(rng.choices(words, k=10)) + '.' + '\n' * (i % 9 == 0) for i in range(count))
  (tmp_path / 'text').mkdir()
  for split, count in (('train', 80_000), ('valid', 200), ('test', 200)):
    (tmp_path / f'text/{split}.txt').write_text(text(count) + '\nan unknown word' * (split == 'test'))
  words_of = ['lineage', f'--runs={tmp_path}/runs', f'--data=corpus={tmp_path}/text', '--config.train.steps=4']
  words_of += [f'--data=blimp={minimal_pairs.blimp(tmp_path / "blimp")}', '--config.train.eval_every=4']
  options = 'size=tiny,budget=1,systems=lstm+elmo+bert+gpt2+xlnet+lstm_words,lr=1e-3,tasks=none'
  assert main([*words_of, f'--options={options}']) == 0
  lines = matrix(tmp_path)
  assert [line.split(' | ')[0] for line in lines[3:]] == [
    *('| unigrams', '| 5-gram, Kneser-Ney', '| LSTM', '| ELMo', '| BERT', '| GPT-2', '| XLNet', '| LSTM, words')
  ]
  assert 'not run' not in ''.join(lines)
  bits = [float(line.split(' | ')[11]) for line in lines[3:] if line.split(' | ')[11] != '–']
  assert len(bits) == 5 and all(1 < value < 5 for value in bits)
  assert (tmp_path / 'runs/tables/lineage.png').exists()


def test_options_of_a_row_give_its_run_without_a_choice():
  """So a recorded line can be checked and run again."""
  table = lineage.build('budget=4+16,systems=nplm+gpt2', assume=True)
  for row in table.rows:
    one = plans.table('lineage', row.options)
    runs = {run.name: run for run in one.runs}
    assert not one.choices and next(other for other in one.rows if other.id == row.id).run == row.run
    assert runs[row.run] == next(run for run in table.runs if run.name == row.run)


def test_marks_of_the_pictures_are_the_published_accuracies():
  found = {mark.label: mark.y for mark in lineage.build().marks}
  assert found == {f'{one.name}, {published_pairs.NOTE}': one.overall for one in published_pairs.BLIMP if one.phenomena}


def test_recipes_have_the_sizes_of_the_configs():
  found = {line.split(' | ')[0]: line for line in hook('lineage_page').recipes().splitlines()}
  assert len(found) == 12
  assert (
    '| `N` 2, `D` 444, `E` 444 | 32 x 64 | contiguous text | 100% | none | mean, maximum and last |' in found['| LSTM']
  )
  assert '| 15% | none | first token |' in found['| BERT'] and '`M` 128' in found['| XLNet']
