"""Runs of a table: missing ones, killed, failed, passed to another launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from launch.tables import needs, runner
from launch.tables import plan as plans
from launch.tables.__main__ import main
from tests.launch import signals
from tests.launch.tables.runs import SMALL, STAND_IN, rows_of, run


def test_missing_runs_are_started_and_compared_with_the_paper(tmp_path, program):
  runs = tmp_path / 'runs'
  assert run(runs, SMALL, '--seeds=2', '--jobs=2') == 0
  assert sorted(line.split()[0] for line in program()) == ['evaluate', 'evaluate', 'train', 'train']
  assert rows_of(runs) == [
    '| non-regularized LSTM | ptb, valid | perplexity | 120.7 | 120.5 ± 0.71 (2 seeds) | -0.2 |  '
    '| yes (114.1 to 126.9) | 1 x stand-in | 2 min |',
    '| non-regularized LSTM | ptb, test | perplexity | 114.5 | 116.1 ± 0.71 (2 seeds) | +1.6 |  '
    '| yes (109.7 to 122.5) | 1 x stand-in | 2 min |',
  ]
  page = (runs / 'tables/rnn_lm_ptb.html').read_text()
  assert '<td class="n">116.1 ± 0.71 (2 seeds)</td>' in page and '<td class="n yes">yes (109.7 to 122.5)</td>' in page
  before = program()
  assert run(runs, SMALL, '--seeds=2') == 0 and program() == before, 'what is finished is run again'
  assert run(runs, SMALL, '--seeds=3') == 0
  assert [line for line in program() if '--config.seed=2' in line] == program()[len(before) : len(before) + 1]


@pytest.mark.parametrize('seeds', [0, 3])
def test_ensemble_needs_the_seeds_that_it_names(tmp_path, seeds):
  name, member = 'rnn_lm/ptb_5_medium', 'rnn_lm/ptb_medium'
  runs = {run.name: run for run in plans.table('rnn_lm_ptb').runs}
  plan = plans.Plan(runs=(tmp_path,), seeds=seeds)
  *members, last = runner.plan_tasks([runs[name]], runs, plan)
  assert {task.key for task in members} == {(member, seed) for seed in range(5)}
  assert last.key == (name, None) and last.after == [(member, seed) for seed in range(5)]
  folders = [f'{tmp_path}/{member}/seed{seed}' for seed in range(5)]
  for command, split in zip(last.commands, ('valid', 'test'), strict=True):
    assert {f'--workdir={folders[0]}', f'--ensemble={",".join(folders[1:])}', f'--split={split}'} <= set(command.words)
  row = next(row for row in plans.table('rnn_lm_ptb').rows if row.run == name)
  alone = next(row for row in plans.table('rnn_lm_ptb').rows if row.run == member)
  five, one = (needs.of_row(each, runs).gpu_hours for each in (row, alone))
  assert five == pytest.approx(5 * one) and one > 0


def test_nothing_is_written_into_a_run_of_the_readme(tmp_path, program, monkeypatch):
  """`lmx train --workdir=runs/quickstart`, as the README has it, and then `python -m launch.tables quickstart`."""
  (tmp_path / 'runs/quickstart').mkdir(parents=True)
  (tmp_path / 'runs/quickstart/config.json').write_text('{}')
  monkeypatch.chdir(tmp_path)
  main(['quickstart', '--rows=word2vec'])
  assert [path.name for path in (tmp_path / 'runs/quickstart').iterdir()] == ['config.json']
  assert (tmp_path / 'runs/tables/quickstart.md').exists() and not (tmp_path / 'runs/tables/tables').exists()
  assert '--workdir=runs/tables/quickstart/word2vec' in program()[0]


def test_runs_of_earlier_versions_are_found(tmp_path, program, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert run('runs', SMALL) == 0  # where they were by default
  before = program()
  assert main(['rnn_lm_ptb', SMALL]) == 0 and program() == before
  assert 'not run' not in rows_of(tmp_path / 'runs')[0]


@pytest.mark.parametrize('last', [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_killed_and_started_again_it_continues(tmp_path, program, root, last):
  """The killed training is started again, what was finished before is not."""
  runs = tmp_path / 'runs'
  assert run(runs, SMALL) == 0
  code = f'import sys; from launch import local; local.PROGRAM = {STAND_IN!r}\n'
  code += 'from launch.tables.__main__ import main; sys.exit(main())'
  words = [sys.executable, '-c', code, 'rnn_lm_ptb', f'--runs={runs}', '--rows=small/*,medium/*']
  environment = {**os.environ, 'MODE': 'hang', 'WHICH': 'medium'}
  null = subprocess.DEVNULL
  child = subprocess.Popen(words, env=environment, cwd=root, stderr=null, stdout=null, preexec_fn=signals.handle)
  once = runs / 'rnn_lm/ptb_medium/seed0/once'
  deadline = time.monotonic() + 120
  while not once.exists() and time.monotonic() < deadline:
    time.sleep(0.05)
  time.sleep(0.2)
  child.send_signal(last)
  assert child.wait(60) == (-last if last == signal.SIGKILL else 75)
  assert run(runs, '--collect') == 0
  assert [line.split(' | ')[4] for line in rows_of(runs)][2:4] == ['unfinished', 'unfinished']
  before = program()
  assert run(runs, '--rows=small/*,medium/*') == 0
  assert [line.split()[0] for line in program()[len(before) :]] == ['train', 'evaluate']
  assert 'ptb_medium/seed0' in program()[-1]


def test_run_that_was_stopped_by_its_machine_is_started_again(tmp_path, program, monkeypatch):
  monkeypatch.setenv('MODE', 'preempt')
  monkeypatch.setenv('WHICH', 'small')
  assert run(tmp_path / 'runs', SMALL) == 0
  assert [line.split()[0] for line in program()] == ['train', 'train', 'evaluate']


def test_input_error_of_one_seed_is_not_repeated_by_the_others(tmp_path, program, monkeypatch, capsys):
  monkeypatch.setenv('MODE', 'refuse')
  monkeypatch.setenv('WHICH', 'small')
  assert run(tmp_path / 'runs', '--rows=small/*,medium/*', '--seeds=3') == 1
  trained = [line for line in program() if line.startswith('train')]
  assert sum(':small' in line for line in trained) == 1 and sum(':medium' in line for line in trained) == 3
  said = capsys.readouterr()
  assert 'seed 1: not begun: ' in (said.out + said.err) and 'input error, which no seed changes' in said.out + said.err


def test_failed_run_skips_only_its_dependents(tmp_path, program, monkeypatch, capsys):
  monkeypatch.setenv('MODE', 'fail')
  monkeypatch.setenv('WHICH', 'paper')
  words = ['awd_lstm_words', f'--runs={tmp_path}/runs', '--rows=awd_lstm/ptb/finetuned/test,lstm_ptb/base/test']
  assert main(words) == 1
  said = capsys.readouterr().err
  assert 'failed (exit code 3): lmx: the loss is not finite; see ' in said
  assert 'awd_lstm/ptb_paper_tuned seed 0: awd_lstm/ptb_paper_tuned seed 0 needs awd_lstm/ptb_paper, which' in said
  assert '2 of 3 runs did not finish' in said
  assert [line.split(' | ')[4] for line in rows_of(tmp_path / 'runs', 'awd_lstm_words')] == ['not run', '60.0 (1 seed)']


def test_each_command_is_passed_to_the_launcher_once(tmp_path, monkeypatch):
  handed: list[list[str]] = []

  class Ended:
    returncode = 0

  monkeypatch.setattr(runner.subprocess, 'run', lambda words: handed.append(words) or Ended)
  table = plans.table('awd_lstm_words')
  plan = plans.Plan((tmp_path,))
  todo = runner.plan_tasks(
    [run for run in table.runs if run.name == 'awd_lstm/ptb_paper_tuned'], {run.name: run for run in table.runs}, plan
  )
  said: list[str] = []
  for _ in range(2):
    assert runner.submit(todo, 'slurm', '--time=24:00:00', said.append, again=False) == 0
  assert len(handed) == 1 and handed[0][1:5] == ['-m', 'launch.slurm', '--time=24:00:00', '--']
  assert handed[0][5:7] == ['train', '--config=experiments/awd_lstm/ptb.py:paper']
  assert 'waits for awd_lstm/ptb_paper' in said[0] and 'results.json was submitted to slurm at' in said[1]
  assert runner.submit(todo, 'slurm', '', said.append, again=True) == 0 and len(handed) == 2


@pytest.mark.slow
def test_row_is_measured(tmp_path, monkeypatch, root):
  """A model trained for two updates comes into the table, and not into that of another protocol."""
  monkeypatch.setenv('PYTHONPATH', str(root))
  monkeypatch.delenv('XLA_FLAGS', raising=False)
  small = ['--config.train.steps=2', '--config.train.eval_every=1']
  words = ['quickstart', f'--runs={tmp_path}', '--rows=word2vec', *small]
  assert main(words) == 0
  cells = rows_of(tmp_path, 'quickstart')[0].split(' | ')
  assert cells[3].endswith('(1 seed)') and float(cells[3].split()[0]) > 0 and 'cpu' in cells[4]
  assert main(['quickstart', f'--runs={tmp_path}', '--collect', '--rows=word2vec']) == 2


# A locale of ASCII only, where Python's own replacement of it is off.
ASCII = {'LC_ALL': 'C', 'PYTHONUTF8': '0', 'PYTHONCOERCECLOCALE': '0', 'PYTHONIOENCODING': 'ascii'}


def test_table_whose_output_is_gone_is_completed(tmp_path, program, unread, root):
  code = 'import sys; from launch import local; from launch.tables import report, __main__; from tests.launch.tables '
  code += 'import runs; local.PROGRAM = runs.STAND_IN; report.draw = lambda *_: None; sys.exit(__main__.main())'
  words = [sys.executable, '-c', code, 'rnn_lm_ptb', f'--runs={tmp_path}', SMALL, '--seeds=1']
  environment = {**os.environ, **ASCII}
  assert subprocess.run(words, cwd=root, stdout=unread, stderr=unread, env=environment).returncode == 0
  folder = tmp_path / 'tables'
  assert '115.6' in (folder / 'rnn_lm_ptb.md').read_text() and len(program()) == 2
  assert 'rnn_lm_ptb.md, .html' in (folder / 'rnn_lm_ptb.log').read_text()
