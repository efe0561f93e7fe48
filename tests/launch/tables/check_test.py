"""`--check`: what a line of measured.csv lacks to be run again, its commands, its data, and the counts."""

from __future__ import annotations

import csv
import json
import subprocess

import pytest

from launch.tables import check, measured
from launch.tables import plan as plans
from launch.tables.__main__ import main
from lmx.data import corpus

TRAIN = 'lmx train --config=experiments/rnn_lm/ptb.py:small --workdir=DIR --config.data.manual_dir=DATA'
GOOD = measured.Measurement(
  **dict.fromkeys(measured.Measurement._fields, '')
  | {'id': 'rnn_lm/ptb/small/test', 'system': 'rnn_lm', 'row': 'small', 'dataset': 'ptb', 'split': 'test'}
  | {'metric': 'ppl', 'value': '115.6', 'seeds': '0', 'command': TRAIN, 'data': 'ptb', 'commit': 'f887147'}
  | {'data_hash': '32a3634e'}
  | {'hours': '0.85', 'hardware': 'two CPU cores', 'date': '2026-11-29'}
)
OWN = GOOD._replace(id='rnn_lm/ptb/epochs3', metric='perplexity')
KEPT = OWN._replace(id='kept', kept='its text is lost')
WIKITEXT2 = {
  'data': 'wikitext2',
  'dataset': 'wikitext2',
  'command': TRAIN.replace('rnn_lm/ptb.py:small', 'awd_lstm/wikitext2.py'),
}
TABLE = {'id': 'quickstart/gpt2', 'metric': 'bits per character', 'dataset': 'embedded', 'data': 'embedded'}
TABLE |= {'command': 'python -m launch.tables quickstart --rows=quickstart/gpt2', 'data_hash': '7e3ce305'}
BROWN = {'id': 'nplm/brown/mlp9/test', 'metric': 'ppl', 'dataset': 'brown', 'data': 'brown', 'data_hash': '14223e81'}
BROWN |= {'command': 'python -m launch.tables nplm_brown --rows=nplm/brown/mlp9/test', 'differs': 'another edition'}
SIZE = {
  'metric': 'parameters',
  'split': '',
  'data': 'generated',
  'data_hash': '',
  'command': 'lmx describe rnn_lm:small',
}
COPY = 'python -m launch.tables ntm --rows=ntm/params_feedforward/copy'


def found(one: measured.Measurement, *others: measured.Measurement, history: str = '\nf887147a') -> list[str]:
  return list(check.problems(one, {line.id: line for line in (GOOD, KEPT, one, *others)}, history))


def test_every_measured_line_can_be_run_again_or_says_why_not(capsys):
  assert main(['--check']) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
  'change',
  [
    {},
    {'seeds': '0 1', 'command': f'{TRAIN} --config.seed=SEED; lmx evaluate --workdir=DIR --split=test'},
    {
      'split': 'valid',
      'command': f'{TRAIN}; lmx evaluate --workdir=DIR --split=valid --config.evaluation.batch_size=20',
    },
    {'command': 'lmx evaluate --workdir=DIR --cache=500,0.1,1.0', 'start': GOOD.id},
    {
      'command': 'lmx context --workdirs=ONE,TWO --split=test --lengths=8:32:8 --output=OWN',
      'start': f'{GOOD.id} {GOOD.id}',
    },
    {'command': f'{TRAIN} --config.train.init_from=BERT', 'start': 'imported bert_tiny'},
    {'command': 'python -m pytest tests/launch/tables/check_test.py -m real_data'},
    {'kept': 'its commit was never pushed', 'command': 'lmx train', 'hours': '', 'data': '', 'commit': 'abcdef0'},
    {'command': 'gensim 4.4.0, then lmx vectors', 'hours': '', 'seeds': '3 seeds'},
    {'data': 'the first of the files'},
    {'data_hash': '32a3634e ba0cfcab'},  # files of other names with the same tokens
    TABLE,
    BROWN,
    SIZE,
    {'data': 'ptb trec', 'command': f'{TRAIN} --config.data.vectors=TREC'.replace('DATA', 'A')},
  ],
)
def test_complete_lines_have_no_problems(change):
  assert found(OWN._replace(**change)) == []


@pytest.mark.parametrize(
  ('change', 'problem'),
  [
    ({'hours': '', 'date': ''}, 'got no hours, date; fill in'),
    ({'seeds': '3 seeds'}, 'seeds: got 3 seeds; expected the seeds themselves'),
    ({'commit': 'abcdef0'}, 'commit: got abcdef0, which is not in the history'),
    ({'data_hash': '?'}, 'data_hash: got ?'),
    ({'statistic': 'worst'}, "statistic: got worst; expected '' (the mean), best or median"),
    ({**BROWN, 'statistic': 'best'}, 'statistic: got best; expected mean, as its row has it'),
    ({'data': 'generated'}, 'data: got generated; expected a name for each of these words: DATA'),
    ({'data': 'ptb trec'}, 'data: got ptb trec; expected a name for each of these words: DATA'),
    ({'command': f'{TRAIN} --config.train.init_from=START'}, 'start: got none; expected a run for each'),
    (
      {'start': GOOD.id},
      f'start: got {GOOD.id}; expected a run for each of those that the command starts from: no run',
    ),
    ({'command': 'lmx evaluate --workdir=DIR', 'start': 'rnn_lm/small'}, 'start: got rnn_lm/small; expected the id'),
    ({'command': 'lmx evaluate --workdir=DIR', 'start': OWN.id}, 'start: got the line itself'),
    ({'command': 'lmx evaluate --workdir=DIR', 'start': 'imported brt'}, 'start: got imported brt; expected a name in'),
    ({'command': f"{TRAIN} --config.name='a"}, 'close its quotes'),
    ({'command': TRAIN.replace('=DIR', '=runs/a')}, '--workdir=runs/a: expected a word in capitals'),
    ({'command': TRAIN.replace(':small', ':smal')}, 'smal'),
    ({'command': TRAIN.replace('ptb.py', 'pbt.py')}, 'experiments/rnn_lm/pbt.py'),
    ({'command': f'{TRAIN} --config.model.M=8'}, 'model.M'),
    ({'command': f'{TRAIN} --seed=8'}, 'unknown option "--seed=8"'),
    ({'command': 'lmx train --workdir=DIR'}, '--config'),
    ({'command': 'lmx '}, 'expected a command of lmx'),
    ({'commit': GOOD.commit[:2]}, 'which is not in the history'),
    ({'command': f'{TRAIN}; lmx evaluate --workdir=DIR --config.evaluation.modl.M=8'}, 'evaluation.modl'),
    ({'command': 'lmx evaluate --workdir=DIR --config.model.M=8', 'start': GOOD.id}, 'model.M'),
    ({'split': 'valid'}, 'split: got valid; the last command measures test'),
    ({'command': 'python -m pytest tests/no_test.py'}, 'there is no such test file'),
    ({'command': f'{TRAIN}; python evaluate.py'}, 'expected commands of lmx'),
    ({'command': 'python -m launch.tables rnn_lm'}, 'unknown table "rnn_lm"'),
    ({'command': 'python -m launch.tables rnn_lm_ptb --row=a'}, 'unrecognized arguments: --row=a'),
    ({'command': 'python -m launch.tables rnn_lm_ptb --rows=a'}, 'no row "a"'),
    ({'command': 'python -m launch.tables rnn_lm_ptb'}, f'has no row {OWN.id}'),
    ({'metric': 'banana'}, 'metric: got banana; expected a metric that lmx writes'),
    ({'metric': 'F1'}, 'metric: got F1; expected one that the last command reports'),
    ({'metric': 'perplexity with a cache'}, 'metric: got perplexity with a cache; expected one that the last command'),
    ({'split': 'banana'}, 'split: got banana; the last command measures test'),
    ({'split': ''}, 'split: got none; the last command measures test'),
    ({'command': f'{TRAIN} --config.evaluation.split=valid'}, 'split: got test; the last command measures valid'),
    ({'command': f'{TRAIN}; lmx evaluate --workdir=DIR --split=valid'}, 'split: got test; the last command'),
    ({'command': f'{TRAIN}; lmx evaluate --workdir=DIR --split=banana'}, 'got the split banana; expected one of'),
    ({'command': f'{TRAIN}; lmx evaluate --workdir=DIR --which=abc'}, '--which: got abc'),
    (
      {'command': 'lmx ngrams --config=experiments/rnn_lm/ptb.py --split=train --config.data.manual_dir=DATA'},
      'split: ',
    ),
    ({'data': 'wikitext2'}, 'data: got wikitext2; expected the data of the data set ptb'),
    ({'data': 'ptbb'}, 'data: got ptbb; expected the data of the data set ptb'),
    ({'dataset': 'imagenet'}, 'dataset: got imagenet; expected a name of the data that the last command reads, ptb'),
    ({'data_hash': ''}, 'data_hash: got none'),
    ({'data_hash': 'fded5c80'}, f'data_hash: got fded5c80; expected 32a3634e as of {GOOD.id}, with the same data'),
    (WIKITEXT2, f'data_hash: got 32a3634e, the hash of ptb ({GOOD.id}); expected the hash of wikitext2'),
    ({'command': f'{TRAIN} --config.seed=3'}, '--config.seed: got 3 with the seeds 0'),
    ({'commit': 'f887147\nf887147'}, 'which is not in the history'),
    ({'command': 'python -m pytest tests/launch/tables/check_test.py::test_no'}, 'there is no test test_no'),
    ({'command': 'python -m pytest tests/../setup.cfg'}, 'there is no such test file'),
    ({'command': 'lmx evaluate --workdir=DIR', 'start': 'kept'}, 'start: got kept, which cannot be run again'),
    ({**SIZE, 'data': 'ptb'}, 'data: got ptb; expected generated without a hash'),
    ({**SIZE, 'data_hash': 'fded5c80'}, 'data: got generated fded5c80; expected'),
    ({**SIZE, 'split': 'test'}, 'split: got test; the last command measures'),
    ({'command': 'lmx predict --workdir=DIR --input=DATA', 'start': GOOD.id, 'split': 'no'}, 'split: got no; expected'),
    ({**TABLE, 'metric': 'F1'}, 'metric: got F1; expected the metric of its row: bits per character, bpc'),
    ({**TABLE, 'split': 'valid'}, 'split: got valid; the last command measures test'),
    (
      {**TABLE, 'dataset': 'ptb'},
      'dataset: got ptb; expected a name of the data that the last command reads, embedded',
    ),
    ({**TABLE, 'data': 'ptb'}, 'data: got ptb; expected the data of the data set embedded'),
    (
      {**BROWN, 'differs': ''},
      'differs: got none; expected the reason why the printed figure is not compared: the corp',
    ),
    ({'id': 'ntm/params_feedforward/sort', 'metric': 'parameters', 'differs': 'x', 'command': COPY}, 'among --rows'),
  ],
)
def test_each_fault_is_one_problem(change, problem):
  line = OWN._replace(**change)
  texts = found(line)
  assert problem in ' | '.join(texts) and len(texts) <= 2


def test_command_says_what_becomes_of_its_words():
  from launch.tables import recorded

  line = OWN._replace(
    command='lmx train --config=a.py --workdir=LM/SEED --config.data.manual_dir=TEXT --config.train.init_from=GENERAL; '
    "lmx evaluate --workdir=LM/0 --ensemble=LM/1,OTHER --config.name='a;b' --analogies=FILES/q.txt --config.seed SEED"
  )
  commands = recorded.commands(line)
  assert len(commands) == 2 and commands[1][4] == '--config.name=a;b'
  roles = {word.name: word.role for word in recorded.roles(commands)}
  assert roles == {'LM': 'own', 'TEXT': 'data', 'GENERAL': 'start', 'OTHER': 'start', 'FILES': 'data'}
  assert recorded.fill('--ensemble=LM/1,OTHER', {'LM': 'a', 'OTHER': 'b'}) == '--ensemble=a/1,b'
  assert dict(recorded.options(commands[1]))['--config.seed'] == 'SEED'


@pytest.fixture
def file(tmp_path, monkeypatch):
  """A measured.csv with a complete line, an incomplete one, and those kept, of another program, and run by hand."""
  path = tmp_path / 'measured.csv'
  other = GOOD._replace(id='word2vec/gensim', command='gensim 4.4.0', dataset='MEN')
  kept = OWN._replace(id='rnn_lm/ptb/kept', kept='its text is lost')
  by_hand = OWN._replace(id='rnn_lm/ptb/test', command='python -m pytest tests/records_test.py')
  with path.open('w', newline='') as opened:
    csv.writer(opened).writerows([measured.Measurement._fields, GOOD, OWN._replace(hours=''), kept, other, by_hand])
  monkeypatch.setattr(measured, 'FILE', path)
  monkeypatch.setattr(check, 'commits', lambda: (None, 'commits not checked: a shallow clone'))
  measured.measurements.cache_clear()
  yield path
  measured.measurements.cache_clear()


def test_problems_and_counts_are_printed(file, capsys):
  assert main(['--check']) == 2
  problem, counts = capsys.readouterr().out.splitlines()
  assert problem.startswith('measured.csv:3: rnn_lm/ptb/epochs3: got no hours')
  assert counts == (
    '5 lines checked: 1 complete, 1 to be run by hand, 1 kept, 1 of other programs, 1 with problems; '
    'commits not checked: a shallow clone'
  )
  assert main(['--check', '--rows=kept,word2vec/*']) == 0
  assert capsys.readouterr().out.startswith('2 lines checked')
  assert main(['rnn_lm_ptb', '--check']) == 0
  assert main(['--check', '--rows=none']) == 2
  assert main(['--check', '--list']) == 2
  assert '--list, --check: expected one of these' in capsys.readouterr().err
  file.write_text(file.read_text() + file.read_text().splitlines()[1] + '\n')
  measured.measurements.cache_clear()
  assert main(['--check', '--rows=small/test']) == 2
  assert 'measured.csv:7: rnn_lm/ptb/small/test: id: got that of line 2' in capsys.readouterr().out


def test_data_are_found_by_their_hash_or_named(file, tmp_path, monkeypatch, capsys):
  monkeypatch.setenv('LMX_CACHE', str(tmp_path / 'cache'))
  folder = tmp_path / 'cache/tokens/ptb-1'
  folder.mkdir(parents=True)
  manifest = {'format': 1, 'dataset': {'name': 'ptb'}}
  (folder / 'manifest.json').write_text(json.dumps({**manifest, 'blocks': None, 'sha256': 'x'}))
  (tmp_path / 'data/ptb').mkdir(parents=True)
  assert main(['--check', f'--data={tmp_path}', '--rows=small/test']) == 2
  assert 'data ptb, hash 32a3634e: missing; ptb: ptb.train.txt' in capsys.readouterr().out
  assert main(['--check', f'--data=ptb={tmp_path}/no', '--rows=small/test']) == 2
  assert 'data ptb, hash 32a3634e: missing' in capsys.readouterr().out
  assert main(['--check', f'--data={tmp_path}/data', '--rows=small/test']) == 0
  assert 'data ptb, hash 32a3634e: there, not compared' in capsys.readouterr().out
  key = corpus.manifest_hash(manifest)
  file.write_text(file.read_text().replace(',ptb,32a3634e,f887147', f',ptb,{key[:12]},f887147'))
  measured.measurements.cache_clear()
  assert main(['--check', f'--data={tmp_path}', '--rows=small/test']) == 0
  assert f'data ptb, hash {key[:8]}: prepared in {folder}' in capsys.readouterr().out


def test_commits_are_looked_up_in_a_clone_with_its_history(tmp_path, monkeypatch):
  monkeypatch.setattr(plans, 'ROOT', tmp_path)
  assert check.commits()[0] is None
  git = ['git', '-C', str(tmp_path), '-c', 'user.name=a', '-c', 'user.email=a@b']
  subprocess.run([*git, 'init', '-q'], check=True)
  subprocess.run([*git, 'commit', '-q', '--allow-empty', '-m', 'first'], check=True)
  head = subprocess.run([*git, 'rev-parse', 'HEAD'], check=True, capture_output=True, encoding='utf-8').stdout.strip()
  assert check.commits() == (f'\n{head}\n', '')
  subprocess.run(['git', 'clone', '-q', '--depth=1', f'file://{tmp_path}', str(tmp_path / 'shallow')], check=True)
  monkeypatch.setattr(plans, 'ROOT', tmp_path / 'shallow')
  assert check.commits() == (None, 'commits not checked: a shallow clone')
