"""`python -m launch.tables`: its options and messages."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from launch.tables import plan as plans
from launch.tables.__main__ import main
from tests.launch.tables.runs import put, rows_of


@pytest.mark.parametrize(
  'words,message',
  [
    (['bert_gleu'], 'unknown table "bert_gleu"; did you mean "bert_glue"?'),
    (['bert_glue', '--rows=bert/glue_test/base/colla'], 'did you mean "bert/glue_test/base/cola"?'),
    (['bert_glue', '--data=glu=DIR'], 'unknown data set "glu"; did you mean "glue"?'),
    (['bert_glue', '--config.optim.lr'], '--config.optim.lr: got no value'),
    (['rnn_lm_ptb', '--where=slrum'], 'there is no launcher "slrum"'),
    (['rnn_lm_ptb', '--options=epoch=6'], 'no option'),
    (['--seeds'], 'the tables of the decks are shown by --decks'),
    (['rnn_lm_ptb', '--runs=~/x', '--where=gke'], '--runs: got ~/x with --where=gke; expected no ~'),
    (['rnn_lm_ptb', '--runs=runs/x', '--where=gke'], '--runs: got runs/x; expected gs://BUCKET/PATH'),
    (['rnn_lm_ptb', '--runs=runs/x', '--where=gce', '--dry_run'], '--runs: got runs/x; expected gs://BUCKET/PATH'),
    (['rnn_lm_ptb', '--data=ptb=text', '--where=tpu_vm', '--dry_run'], '--data=ptb: got text; expected gs://BUCKET'),
    (['rnn_lm_ptb', '--data=docs', '--where=gke', '--dry_run'], '--data: got docs; expected gs://BUCKET/PATH'),
    (['rnn_lm_ptb', '--runs=foo://x'], '--runs: got foo://x; expected a local path'),
    (['rnn_lm_ptb', '--data=ptb=~no_such_user/x'], '--data=ptb: got ~no_such_user/x; expected a user'),
    (['rnn_lm_ptb', '--data=/dev/null'], '--data: got /dev/null, a file; expected a folder'),
    (['rnn_lm_ptb', '--output=/dev/null', '--collect'], '--output: got /dev/null, a file; expected a folder'),
  ],
)
def test_errors_suggest_a_fix(tmp_path, capsys, words, message):
  assert main([f'--runs={tmp_path}', *words]) == 2
  assert message in capsys.readouterr().err


def test_missing_required_data_is_reported(tmp_path, program, capsys):
  words = ['bert_squad', f'--runs={tmp_path}', '--rows=squad1.1/base/dev_f1', '--seeds=1']
  assert main(words) == 1 and not program()
  said = capsys.readouterr().err
  assert 'imported/bert_base needs weights of BERT base' in said and '--data=bert_base=DIR' in said


def test_dry_run_prints_the_commands_in_order(tmp_path, program, capsys):
  words = ['awd_lstm_words', '--runs=R', '--rows=awd_lstm/ptb/finetuned/test', '--dry_run', '--data=ptb=a b']
  assert main(words) == 0 and not program()
  lines = capsys.readouterr().out.splitlines()
  assert lines[0] == (
    'lmx train --config=experiments/awd_lstm/ptb.py:paper --workdir=R/awd_lstm/ptb_paper/seed0 '
    "'--config.data.manual_dir=a b' --config.seed=0"
  )
  assert lines[2].startswith('lmx train --config=experiments/awd_lstm/ptb.py:finetune,of=paper')
  assert '--config.train.init_from=R/awd_lstm/ptb_paper/seed0' in lines[2]


def test_tilde_is_expanded_where_the_path_is_read(tmp_path, program, monkeypatch, capsys):
  monkeypatch.setenv('HOME', str(tmp_path))
  words = ['awd_lstm_words', '--runs=/R', '--rows=awd_lstm/ptb/finetuned/test', '--dry_run', '--data=ptb=~/ptb']
  for where, path in (('local', f'{tmp_path}/ptb'), ('tpu_vm', '~/ptb')):
    assert main([*words, f'--where={where}']) == 0 and not program()
    assert f'--config.data.manual_dir={path}' in capsys.readouterr().out


def test_list_shows_every_table_and_what_one_needs(tmp_path, capsys):
  assert main(['--list', f'--runs={tmp_path}']) == 0
  head, *lines = capsys.readouterr().out.splitlines()
  assert head.split()[:2] == ['table', 'printed'] and head.split()[-3:] == ['run', 'comparable', 'reproduced']
  names = [line.split()[0] for line in lines if not line.startswith((' ', 'decks:', 'all '))]
  assert tuple(names) == plans.names()
  places = sum(len(plans.table(name).prints) for name in names)
  assert sum(line.startswith('  ') for line in lines) == places
  decks = [line.partition(' table ')[2].split() for line in lines if line.startswith('decks:')]
  assert sum(int(words[1]) for words in decks) == 264
  assert main(['--list', 'bert_squad', f'--runs={tmp_path}']) == 0
  said = capsys.readouterr().out
  assert '--data=squad=DIR: train-v1.1.json, dev-v1.1.json; CC BY-SA' in said


def test_feasible_rows_match_the_hardware(capsys):
  found = {}
  for hardware in ('2cores', '1gpu', 'pod'):
    assert main([f'--feasible={hardware}']) == 0
    found[hardware] = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith('  ')}
  assert 'nplm/brown/mlp10/test' in found['2cores'] < found['1gpu'] < found['pod']
  assert found['pod'] == {row.id for name in plans.names() for row in plans.table(name).rows}
  assert main(['--feasible=2cores', 'quickstart']) == 0
  assert capsys.readouterr().out.startswith('quickstart: ')


def test_closed_reader_is_a_failure(root):
  words = [sys.executable, '-m', 'launch.tables', '--list', 'quickstart']
  environment = {name: value for name, value in os.environ.items() if name != 'PYTHONUNBUFFERED'}
  with subprocess.Popen(words, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as shown:
    shown.stdout.close()
    assert not shown.stderr.read() and shown.wait() == 141


def test_starts_without_jax(root):
  code = 'import sys; from launch.tables.__main__ import main; main(["--list"]); assert "jax" not in sys.modules'
  subprocess.run([sys.executable, '-c', code], cwd=root, check=True, stdout=subprocess.DEVNULL)


def test_table_that_cannot_be_written_names_its_folder(tmp_path, program, capsys):
  (tmp_path / 'quickstart.md').mkdir()
  assert main([f'--runs={tmp_path}', 'quickstart', '--collect', f'--output={tmp_path}']) == 2
  assert f'--output={tmp_path}: cannot be written (Is a directory)' in capsys.readouterr().err


def test_plan_and_table_say_how_many_seeds_the_best_is_of(tmp_path, program, capsys):
  """A best of another number of seeds is not the paper's."""
  words = ['glue_bilstm', f'--runs={tmp_path}', '--rows=glue/dev/bilstm/rte,glue/dev/bilstm/mrpc_*']
  assert main([*words, '--dry_run']) == 0 and not program()
  said = capsys.readouterr()
  assert '3 rows: best of 3 seeds' in said.err and len(said.out.splitlines()) == 6
  for seed, accuracy in enumerate((0.55, 0.585, 0.56)):
    put(tmp_path, 'glue_bilstm/bilstm_rte', 'results', seed=seed, accuracy=accuracy, split='valid')
  assert main([*words, '--collect']) == 0
  cells = rows_of(tmp_path, 'glue_bilstm')[2].split(' | ')
  assert cells[2:8] == ['accuracy, %, best of 3 seeds', '58.5', '58.5 (best of 3 seeds)', '+0.0', '', 'yes (±1)']
  assert main([*words, '--collect', '--seeds=2']) == 0
  assert rows_of(tmp_path, 'glue_bilstm')[2].split(' | ')[3:6] == ['58.5 *', '58.5 (best of 2 seeds)', '']
  assert 'printed: the best of 3 seeds; ours: the best of 2 seeds' in capsys.readouterr().out
