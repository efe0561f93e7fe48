"""Tables of papers: what is run, resumed, collected and shown, with a program in the place of lmx; one for real."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from experiments.tables import Curve, Row, Run, Table
from launch import local, tables
from launch.tables import collected, rendered, running
from launch.tables import plan as plans

STAND_IN = (sys.executable, str(pathlib.Path(__file__).with_name('stand_in.py')))
SMALL = '--rows=small/*'


@pytest.fixture
def program(tmp_path, monkeypatch, root):
  """Puts the stand-in in lmx's place; returns what says which commands it was given."""
  calls = tmp_path / 'calls'
  monkeypatch.setattr(local, 'PROGRAM', STAND_IN)
  monkeypatch.setenv('CALLS', str(calls))
  monkeypatch.setenv('PYTHONPATH', str(root))
  return lambda: calls.read_text().splitlines() if calls.exists() else []


def run(folder: pathlib.Path, *words: str) -> int:
  return tables.main(['rnn_lm_ptb', f'--runs={folder}', *words])


def rows_of(folder: pathlib.Path, name: str = 'rnn_lm_ptb') -> list[str]:
  text = (folder / f'tables/{name}.md').read_text()
  return [line for line in text.partition('\n## ')[0].splitlines() if line.startswith('| ')][1:]


def test_runs_what_is_missing_and_sets_it_beside_the_paper(tmp_path, program):
  runs = tmp_path / 'runs'
  assert run(runs, SMALL, '--seeds=2', '--jobs=2') == 0
  assert sorted(line.split()[0] for line in program()) == ['evaluate', 'evaluate', 'train', 'train']
  assert rows_of(runs) == [
    '| non-regularized LSTM | ptb, valid | perplexity | 120.7 | 120.5 ± 0.71 (2 seeds) | -0.2 |  | yes (±2.4) '
    '| 1 x stand-in | 2 min |',
    '| non-regularized LSTM | ptb, test | perplexity | 114.5 | 116.1 ± 0.71 (2 seeds) | +1.6 |  | yes (±2.3) '
    '| 1 x stand-in | 2 min |',
  ]
  page = (runs / 'tables/rnn_lm_ptb.html').read_text()
  assert '<td class="n">116.1 ± 0.71 (2 seeds)</td>' in page and '<td class="n yes">yes (±2.3)</td>' in page
  assert (runs / 'tables/rnn_lm_ptb.png').read_bytes()[:4] == b'\x89PNG'
  before = program()
  assert run(runs, SMALL, '--seeds=2') == 0 and program() == before, 'what is finished is run again'
  assert run(runs, SMALL, '--seeds=3') == 0
  assert [line for line in program() if '--config.seed=2' in line] == program()[len(before) : len(before) + 1]


def test_a_table_says_what_was_not_run_and_how_each_row_is_measured(tmp_path, program):
  assert run(tmp_path, '--collect') == 0 and not program()
  assert all('| not run |' in line for line in rows_of(tmp_path)) and len(rows_of(tmp_path)) == 6
  text = (tmp_path / 'tables/rnn_lm_ptb.md').read_text()
  assert 'lmx train --config=experiments/rnn_lm/ptb.py:large --workdir=DIR/rnn_lm/ptb_large/seed0' in text
  assert '--split=valid --which=last --no-baselines --output=DIR/rnn_lm/ptb_large/seed0/valid.json' in text
  assert "| ptb | ptb.train.txt, ptb.valid.txt, ptb.test.txt | LDC's licence" in text
  assert 'Published: Zaremba et al. 2014, table 1 (checked' in text


def test_nothing_is_written_into_a_run_of_the_readme(tmp_path, program, monkeypatch):
  """`lmx train --workdir=runs/quickstart`, as the README has it, and then `python -m launch.tables quickstart`."""
  (tmp_path / 'runs/quickstart').mkdir(parents=True)
  (tmp_path / 'runs/quickstart/config.json').write_text('{}')
  monkeypatch.chdir(tmp_path)
  tables.main(['quickstart', '--rows=word2vec'])
  assert [path.name for path in (tmp_path / 'runs/quickstart').iterdir()] == ['config.json']
  assert (tmp_path / 'runs/tables/quickstart.md').exists() and not (tmp_path / 'runs/tables/tables').exists()
  assert '--workdir=runs/tables/quickstart/word2vec' in program()[0]


def test_runs_of_earlier_versions_are_found(tmp_path, program, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert run('runs', SMALL) == 0  # where they were by default
  before = program()
  assert tables.main(['rnn_lm_ptb', SMALL]) == 0 and program() == before
  assert 'not run' not in rows_of(tmp_path / 'runs')[0]


@pytest.mark.parametrize('last', [signal.SIGKILL, signal.SIGTERM])
def test_killed_and_started_again_it_goes_on(tmp_path, program, root, last):
  """The killed training is started again, what was finished before is not."""
  runs = tmp_path / 'runs'
  assert run(runs, SMALL) == 0
  code = f'import sys; from launch import local, tables; local.PROGRAM = {STAND_IN!r}; sys.exit(tables.main())'
  words = [sys.executable, '-c', code, 'rnn_lm_ptb', f'--runs={runs}', '--rows=small/*,medium/*']
  environment = {**os.environ, 'MODE': 'hang', 'WHICH': 'medium'}
  child = subprocess.Popen(words, env=environment, cwd=root, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
  once = runs / 'rnn_lm/ptb_medium/seed0/once'
  deadline = time.monotonic() + 120
  while not once.exists() and time.monotonic() < deadline:
    time.sleep(0.05)
  time.sleep(0.2)
  child.send_signal(last)
  assert child.wait(60) == (75 if last == signal.SIGTERM else -last)
  assert run(runs, '--collect') == 0
  assert [line.split(' | ')[4] for line in rows_of(runs)][2:4] == ['unfinished', 'unfinished']
  before = program()
  assert run(runs, '--rows=small/*,medium/*') == 0
  assert [line.split()[0] for line in program()[len(before) :]] == ['train', 'evaluate']
  assert 'ptb_medium/seed0' in program()[-1]


def test_a_run_that_was_stopped_by_its_machine_is_started_again(tmp_path, program, monkeypatch):
  monkeypatch.setenv('MODE', 'preempt')
  monkeypatch.setenv('WHICH', 'small')
  assert run(tmp_path / 'runs', SMALL) == 0
  assert [line.split()[0] for line in program()] == ['train', 'train', 'evaluate']


def test_a_failed_run_does_not_stop_the_others_and_what_needs_it_is_left(tmp_path, program, monkeypatch, capsys):
  monkeypatch.setenv('MODE', 'fail')
  monkeypatch.setenv('WHICH', 'paper')
  words = ['awd_lstm_ptb', f'--runs={tmp_path}/runs', '--rows=awd_lstm/ptb/finetuned/test,lstm_ptb/base/test']
  assert tables.main(words) == 1
  said = capsys.readouterr().err
  assert 'failed (exit code 3): lmx: the loss is not finite; see ' in said
  assert 'awd_lstm/ptb_paper_tuned seed 0: awd_lstm/ptb_paper_tuned seed 0 needs awd_lstm/ptb_paper, which' in said
  assert '2 of 3 runs did not end' in said
  assert [line.split(' | ')[4] for line in rows_of(tmp_path / 'runs', 'awd_lstm_ptb')] == ['not run', '60.0 (1 seed)']


def test_work_directories_are_known_by_what_they_are(tmp_path, program):
  """Copied from elsewhere under other names, each is found for its row and seed, and nothing is run."""
  assert run(tmp_path / 'runs', '--seeds=2', '--rows=small/*,large/*') == 0
  copy = tmp_path / 'copied/from a cluster'
  for i, folder in enumerate(sorted((tmp_path / 'runs').glob('rnn_lm/*/seed?'))):
    shutil.copytree(folder, copy / f'job{i}')
  before = program()
  assert run(tmp_path / 'copied', '--seeds=2', '--rows=small/*,large/*') == 0 and program() == before
  assert rows_of(tmp_path / 'copied') == rows_of(tmp_path / 'runs')


def test_what_began_from_another_run_is_not_taken_for_what_began_from_nothing(tmp_path):
  """Their configs differ in nothing else, and both read the pieces of one run."""
  for rate, loss in (('low', 0.7), ('high', 0.6)):
    put(tmp_path, f'lineage/gpt_0_trec_{rate}', 'results', accuracy=0.8, validation_loss=loss, split='test')
    moved = (tmp_path / f'lineage/gpt_0_trec_{rate}').rename(tmp_path / f'lineage/gpt_1_trec_{rate}')
    file = moved / 'seed0/config.json'
    config = json.loads(file.read_text())
    config['train']['init_from'] = str(tmp_path / 'lineage/gpt_1')
    file.write_text(json.dumps(config))
  words = ['lineage', f'--runs={tmp_path}', '--collect', '--seeds=1', '--rows=gpt/?/trec']
  assert tables.main(words) == 0
  assert [line.split(' | ')[3] for line in rows_of(tmp_path, 'lineage')] == ['not run', '80.00 (1 seed)', 'not run']


def test_a_table_of_which_nothing_is_published_compares_nothing(tmp_path):
  assert tables.main(['quickstart', f'--runs={tmp_path}', '--rows=*gpt2*', '--collect']) == 0
  text, page = ((tmp_path / f'tables/quickstart.{end}').read_text() for end in ('md', 'html'))
  for word in ('Published', 'Difference', 'In spreads', 'band'):
    assert word not in text and word not in page
  assert '<ul>' not in page and '.png' not in page and not (tmp_path / 'tables/quickstart.png').exists()
  assert '| Row | Data | Figure | Ours | Measured on | Time |\n|---|---|---|---:|---|---:|' in text
  assert len(rows_of(tmp_path, 'quickstart')[0].split(' | ')) == 6


def test_results_of_another_config_are_not_counted(tmp_path, program, capsys):
  runs = tmp_path / 'runs'
  assert run(runs, SMALL) == 0
  file = runs / 'rnn_lm/ptb_small/seed0/config.json'
  config = json.loads(file.read_text())
  config['optim']['lr'] = 0.25
  file.write_text(json.dumps(config))
  before = program()
  assert run(runs, SMALL) == 2 and program() == before
  assert 'ptb_small/seed0 holds a run of another config: optim.lr 0.25 there, 20.0 here' in capsys.readouterr().err
  assert all('| not counted |' in line for line in rows_of(runs))
  capsys.readouterr()
  assert run(runs, SMALL, '--config.optim.lr=0.25', '--config.data.workers=2', '--collect') == 0
  assert '| 114.5 * | 115.6 (1 seed) |  |  |  |' in rows_of(runs)[1]
  assert '* Not compared: ours is of runs with --config.optim.lr=0.25.' in capsys.readouterr().out


@pytest.mark.parametrize(
  'key, message', [('data_hash', 'data_hash aaaa and bbbb'), ('default', 'model.dropout 0.1 and 0.2'), ('', '')]
)
def test_seeds_of_other_data_or_settings_are_not_averaged(tmp_path, program, capsys, key, message):
  runs = tmp_path / 'runs'
  assert run(runs, SMALL, '--seeds=2') == 0
  for seed in range(2):
    where = runs / f'rnn_lm/ptb_small/seed{seed}'
    result, config = (json.loads((where / f'{name}.json').read_text()) for name in ('results', 'config'))
    result['data_hash'] = 'ab'[seed * (key == 'data_hash')] * 4
    config['model']['dropout'] = (0.1, 0.2)[seed * (key == 'default')]  # a default of lmx, none of the table
    config['model'] |= {'a_later_field': 1} if seed else {}
    (where / 'results.json').write_text(json.dumps(result))
    (where / 'config.json').write_text(json.dumps(config))
  assert run(runs, SMALL, '--seeds=2', '--collect') == (2 if message else 0)
  assert message in capsys.readouterr().err
  assert ('not counted' if message else '116.1') in rows_of(runs)[1]


def test_a_file_that_was_cut_off_is_told(tmp_path, program, capsys):
  runs = tmp_path / 'runs'
  assert run(runs, SMALL) == 0
  (runs / 'rnn_lm/ptb_small/seed0/valid.json').write_text('{"perplexity_per_tok')
  assert run(runs, SMALL, '--collect') == 2
  assert 'seed0/valid.json cannot be read' in capsys.readouterr().err
  assert '| not counted |' in rows_of(runs)[0] and '115.6 (1 seed)' in rows_of(runs)[1]


def put(folder: pathlib.Path, name: str, file: str, **figures) -> None:
  run = {run.name: run for table in plans.names() for run in plans.table(table).runs}[name]
  where = plans.usual(run, 0, folder)
  where.mkdir(parents=True, exist_ok=True)
  tree: dict = {}
  for key, value in {**plans.configs(run, 0, plans.Plan())[''], 'seed': 0}.items():
    *sections, last = key.split('.')
    part = tree
    for section in sections:
      part = part.setdefault(section, {})
    part[last] = value
  (where / 'config.json').write_text(json.dumps(tree))
  (where / f'{file}.json').write_text(json.dumps(figures))


def test_differences_are_in_units_of_the_published_spread(tmp_path):
  put(tmp_path, 'bert/large_squad', 'results', f1=91.0, exact_match=84.0, split='valid')
  words = ['bert_squad', f'--runs={tmp_path}', '--collect', '--seeds=1', '--rows=bert/nvidia_seeds/*']
  assert tables.main(words) == 0
  em, f1 = (line.split(' | ') for line in rows_of(tmp_path, 'bert_squad'))
  assert em[3:8] == ['83.96 ± 0.266', '84.00 (1 seed)', '+0.04', '+0.2', 'yes (±0.53)']
  assert f1[3:8] == ['90.68 ± 0.16', '91.00 (1 seed)', '+0.32', '+2.0', 'yes (±0.32)']


def test_what_was_measured_otherwise_is_shown_and_not_compared(tmp_path, capsys):
  put(tmp_path, 'bert/base_cola', 'results', matthews=0.583, split='valid')
  assert tables.main(['bert_glue', f'--runs={tmp_path}', '--collect', '--seeds=1', '--rows=glue_test/base/cola']) == 0
  cells = rows_of(tmp_path, 'bert_glue')[0].split(' | ')
  assert cells[3:8] == ['52.1 *', '58.3 (1 seed)', '', '', '']
  assert "* Not compared: printed: GLUE's test server; ours: the validation split." in capsys.readouterr().out


def test_a_figure_of_another_split_is_not_taken(tmp_path, capsys):
  put(tmp_path, 'bert/large_squad', 'results', f1=91.0, exact_match=84.0, split='test')
  assert tables.main(['bert_squad', f'--runs={tmp_path}', '--collect', '--seeds=1', '--rows=bert/nvidia_seeds/*']) == 2
  assert 'is of the split test; bert/nvidia_seeds/squad_large/em is of valid' in capsys.readouterr().err


def test_records_are_picked_from_a_list(tmp_path):
  where = tmp_path / 'nplm/brown_ngrams'
  where.mkdir(parents=True)
  records = [
    {'model': m, 'split': s, 'perplexity_per_token': v}
    for m, s, v in (('trigram', 'test', 338.0), ('kn3', 'valid', 1.0), ('kn3', 'test', 325.0))
  ]
  (where / 'ngrams.json').write_text(json.dumps(records))
  words = ['nplm_brown', f'--runs={tmp_path}', '--collect', '--rows=nplm/brown/del_int/test,nplm/brown/kn3/test']
  assert tables.main(words) == 0
  cells = [line.split(' | ')[3:6] for line in rows_of(tmp_path, 'nplm_brown')]
  assert cells == [['336', '338', '+2.0'], ['323', '325', '+2.0']]


def _tries(folder: pathlib.Path, **given: tuple[tuple[float, float], ...]) -> tuple[Table, plans.Plan]:
  """A table of one row with two tries, 'low' and 'high', and of each seed (validation loss, accuracy)."""
  for name, seeds in given.items():
    for seed, (loss, accuracy) in enumerate(seeds):
      where = folder / name / f'seed{seed}'
      where.mkdir(parents=True, exist_ok=True)
      (where / 'results.json').write_text(json.dumps({'accuracy': accuracy, 'validation_loss': loss, 'split': 'test'}))
  runs = tuple(
    Run(name, then=('evaluate --workdir={dir} --output={dir}/results.json',), seeds=2) for name in ('low', 'high')
  )
  row = Row('made/up', 'low', 'accuracy', tries=('high',))
  compute = Row('made/compute', 'low', 'accuracy')
  curves = (Curve('p', 'one', 'made/compute', 'made/up'), Curve('q', 'two', 'made/compute', 'not/run'))
  table = Table('A', 'B', (row, compute), runs, curves=curves)
  return table, plans.Plan(runs=(folder,))


def test_of_several_tries_the_one_of_the_lowest_validation_loss_counts(tmp_path):
  """In the mean over seeds, and not the one of the best figure."""
  table, plan = _tries(tmp_path, low=((0.5, 0.9), (0.6, 0.8)), high=((0.7, 0.7), (0.2, 0.6)))
  found = collected.collect(table, list(table.rows[:1]), plan)[0]
  assert (found.run, found.state, found.mean) == ('high', collected.DONE, pytest.approx(65.0))
  assert rendered.lines([found])[0].cells[1] == 'high'


def test_until_all_tries_are_done_none_is_chosen(tmp_path):
  table, plan = _tries(tmp_path, low=((0.5, 0.9), (0.6, 0.8)), high=((0.7, 0.7),))
  found = collected.collect(table, list(table.rows[:1]), plan)[0]
  assert found.state == collected.PART and not found.figures
  todo = running.tasks(list(table.runs), {run.name: run for run in table.runs}, plan)
  assert [task.key for task in todo] == [('high', 1)]


def test_a_try_without_a_validation_loss_is_told(tmp_path):
  table, plan = _tries(tmp_path, low=((0.5, 0.9), (0.6, 0.8)), high=((0.7, 0.7), (0.2, 0.6)))
  (tmp_path / 'low/seed0/results.json').write_text('{"accuracy": 0.5}')
  found = collected.collect(table, list(table.rows[:1]), plan)[0]
  assert found.state == collected.WRONG and 'has no validation loss' in found.problems[0]


def test_a_table_with_curves_draws_them(tmp_path):
  table, plan = _tries(tmp_path, low=((0.5, 0.9), (0.6, 0.8)), high=((0.7, 0.7), (0.2, 0.6)))
  found = collected.collect(table, list(table.rows), plan)
  axes, *others = rendered._curves(table, found).axes
  assert not others, 'a panel without a figure'
  assert [text.get_text() for text in axes.get_legend().get_texts()] == ['one']
  line, bars = axes.containers[0].lines[0], axes.containers[0].lines[2][0]
  assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([pytest.approx(85.0)], [pytest.approx(65.0)])
  low, high = bars.get_segments()[0][:, 1]
  assert high - low == pytest.approx(2 * found[0].deviation) and axes.get_xscale() == 'log'
  rendered.draw(tmp_path / 'curves.png', table, found)
  assert (tmp_path / 'curves.png').read_bytes()[:4] == b'\x89PNG'
  nothing = collected.collect(table, list(table.rows), plans.Plan((tmp_path / 'no',)))
  rendered.draw(tmp_path / 'empty.png', table, nothing)
  assert (tmp_path / 'empty.png').exists()


@pytest.mark.parametrize(
  'words,message',
  [
    (['bert_gleu'], 'unknown table "bert_gleu"; did you mean "bert_glue"?'),
    (['bert_glue', '--rows=bert/glue_test/base/colla'], 'did you mean "bert/glue_test/base/cola"?'),
    (['bert_glue', '--data=glu=DIR'], 'unknown data set "glu"; did you mean "glue"?'),
    (['bert_glue', '--config.optim.lr'], 'option "--config.optim.lr" has no value'),
    (['rnn_lm_ptb', '--where=slrum'], 'there is no launcher "slrum"'),
    (['rnn_lm_ptb', '--options=epoch=6'], 'no option'),
  ],
)
def test_what_is_wrong_says_what_to_do(tmp_path, capsys, words, message):
  assert tables.main([f'--runs={tmp_path}', *words]) == 2
  assert message in capsys.readouterr().err


def test_data_that_must_be_given_is_asked_for(tmp_path, program, capsys):
  words = ['bert_squad', f'--runs={tmp_path}', '--rows=squad1.1/base/dev_f1', '--seeds=1']
  assert tables.main(words) == 1 and not program()
  said = capsys.readouterr().err
  assert 'imported/bert_base needs weights of BERT base' in said and '--data=bert_base=DIR' in said


def test_dry_run_prints_the_commands_in_order(tmp_path, program, capsys):
  words = ['awd_lstm_ptb', '--runs=R', '--rows=awd_lstm/ptb/finetuned/test', '--dry_run', '--data=ptb=a b']
  assert tables.main(words) == 0 and not program()
  lines = capsys.readouterr().out.splitlines()
  assert lines[0] == (
    'lmx train --config=experiments/awd_lstm/ptb.py:paper --workdir=R/awd_lstm/ptb_paper/seed0 '
    "'--config.data.manual_dir=a b' --config.seed=0"
  )
  assert lines[2].startswith('lmx train --config=experiments/awd_lstm/ptb.py:finetune,of=paper')
  assert '--config.train.init_from=R/awd_lstm/ptb_paper/seed0' in lines[2]


def test_another_launcher_is_handed_each_command_once(tmp_path, monkeypatch):
  handed: list[list[str]] = []

  class Ended:
    returncode = 0

  monkeypatch.setattr(running.subprocess, 'run', lambda words: handed.append(words) or Ended)
  table = plans.table('awd_lstm_ptb')
  plan = plans.Plan((tmp_path,))
  todo = running.tasks(
    [run for run in table.runs if run.name == 'awd_lstm/ptb_paper_tuned'], {run.name: run for run in table.runs}, plan
  )
  said: list[str] = []
  for _ in range(2):
    assert running.submit(todo, 'slurm', '--time=24:00:00', said.append, again=False) == 0
  assert len(handed) == 1 and handed[0][1:5] == ['-m', 'launch.slurm', '--time=24:00:00', '--']
  assert handed[0][5:7] == ['train', '--config=experiments/awd_lstm/ptb.py:paper']
  assert 'waits for awd_lstm/ptb_paper' in said[0] and 'results.json was handed to slurm at' in said[1]
  assert running.submit(todo, 'slurm', '', said.append, again=True) == 0 and len(handed) == 2


def test_list_shows_every_table_and_what_one_needs(tmp_path, capsys):
  assert tables.main(['--list', f'--runs={tmp_path}']) == 0
  assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == plans.names()
  assert tables.main(['--list', 'bert_squad', f'--runs={tmp_path}']) == 0
  said = capsys.readouterr().out
  assert '0 of 12 rows' in said and '--data=squad=DIR: train-v1.1.json, dev-v1.1.json; CC BY-SA' in said


def test_numbers_of_parameters_are_whole_and_what_reads_no_data_says_so(tmp_path):
  rows = {'copy': ('lstm_controller', 65_817), 'repeat_copy': ('lstm_baseline', 5_312_007)}
  for task, (network, count) in rows.items():
    folder = tmp_path / f'ntm/described_{task}_{network.partition("_")[2].replace("controller", "lstm")}'
    folder.mkdir(parents=True)
    (folder / 'described.json').write_text(json.dumps({'parameters': count}))
  wanted = ','.join(f'params_{network}/{task}' for task, (network, _) in rows.items())
  assert tables.main(['ntm', f'--runs={tmp_path}', f'--rows={wanted}', '--collect']) == 0
  text = (tmp_path / 'tables/ntm.md').read_text()
  assert '| parameters | 67,561 | 65,817 | -1,744 |  | no |' in text
  assert '| parameters | 5,312,007 | 5,312,007 | +0 |  | yes |' in text
  assert '## How each is measured' in text and '## Data' not in text
  assert '<h2>Data</h2>' not in (tmp_path / 'tables/ntm.html').read_text()


def test_a_reader_that_has_gone_is_no_error(root):
  words = [sys.executable, '-m', 'launch.tables', '--list']
  with subprocess.Popen(words, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as shown:
    shown.stdout.close()
    assert not shown.stderr.read() and shown.wait() == 0


def test_bands_are_of_the_row_of_the_spread_or_of_the_metric():
  printed = plans.published()
  row = next(row for row in plans.table('bert_squad').rows if row.id == 'bert/nvidia_seeds/squad_large/f1')
  assert rendered.band(row, printed[row.id]) == pytest.approx(0.32)
  assert rendered.band(row._replace(band=1.5), printed[row.id]) == 1.5
  ppl = plans.table('rnn_lm_ptb').rows[1]
  assert rendered.band(ppl, printed[ppl.id]) == pytest.approx(0.02 * 114.5)


def test_starts_without_jax(root):
  code = 'import sys; from launch import tables; tables.main(["--list"]); assert "jax" not in sys.modules'
  subprocess.run([sys.executable, '-c', code], cwd=root, check=True, stdout=subprocess.DEVNULL)


def test_a_row_for_real(tmp_path, monkeypatch, root):
  """A model trained for two updates comes into the table, and not into that of another protocol."""
  monkeypatch.setenv('PYTHONPATH', str(root))
  monkeypatch.delenv('XLA_FLAGS', raising=False)
  small = ['--config.train.steps=2', '--config.train.eval_every=1']
  words = ['quickstart', f'--runs={tmp_path}', '--rows=word2vec', *small]
  assert tables.main(words) == 0
  cells = rows_of(tmp_path, 'quickstart')[0].split(' | ')
  assert cells[3].endswith('(1 seed)') and float(cells[3].split()[0]) > 0 and 'cpu' in cells[4]
  assert tables.main(['quickstart', f'--runs={tmp_path}', '--collect', '--rows=word2vec']) == 2
