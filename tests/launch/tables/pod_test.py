"""Rows on a pod: what a dry run prints for them, and their rehearsal on two processes with a folder for the bucket."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml

from launch.tables import options, plan, pod
from launch.tables.__main__ import main
from lmx.data import corpus
from tests import documents_test
from tests.launch.tables import runs

GKE = '--launch=--name=x --image=IMAGE --accelerator={}'
HEADLINES = {  # table -> rows, slice, their first training, its compiled step and updates
  'gpt2_webtext': ('*repro_124m*', 'v5litepod-64', 'gpt2/webtext_124m seed 0', 'gpt2/webtext.py:124m,pod', 600_000),
  'bert_ablation': (
    '*l12_h768_a12/mlm_ppl',
    'v5litepod-16',
    'bert/pretrain_base',
    'bert/pretrain.py:base,pod',
    900_000,
  ),
  'transformer_xl_words': (
    'transformer_xl/wikitext103/standard',
    'v5litepod-4',
    'transformer_xl/wikitext103_base seed 0',
    'transformer_xl/wikitext103.py:base,pod',
    400_000,
  ),
  'xlnet_ablation': (
    'xlnet/ablation/4_k6/sst2',
    'v5litepod-16',
    'xlnet/ablation_xlnet',
    'xlnet/pretrain.py:base,pod',
    1_000_000,
  ),
  'transformer_mt': (
    '*mt/base/bleu_ende',
    'v5litepod-16',
    'transformer/wmt14_base_en_de seed 0',
    'transformer/wmt14.py:base,pod',
    100_000,
  ),
}


def lines_of(text, title):
  """Return the lines of a training: [(first word, rest)]."""
  own = text.partition(f'{title}\n')[2]
  own = re.match(r'(?:  .*\n)*', own)[0]
  return [tuple(line.split(maxsplit=1)) for line in own.splitlines()]


@pytest.mark.parametrize('name', HEADLINES)
def test_dry_run_has_every_step_of_a_pod_row(name, bucket, capsys):
  rows, accelerator, title, config, updates = HEADLINES[name]
  words = [name, f'--rows={rows}', '--where=gke', GKE.format(accelerator), '--runs=gs://B/runs', '--dry_run']
  assert main(words) == 0
  text = capsys.readouterr().out
  found = dict(reversed(lines_of(text, title)))
  assert re.search(r'\d GB', found['data'])
  prepare, train = found['prepare'].split(' -- lmx ')[1], found['train'].split(' -- ')[1]
  assert found['prepare'].startswith('kubectl create job prepare-') and '--image=IMAGE' in found['prepare']
  assert found['train'].startswith('python -m launch.gke --name=x-') and '--workdir=gs://B/runs/' in train
  for command in (prepare, train):
    assert '--config.data.cache_dir=gs://B/runs/cache' in command
    documents_test.check_commands(f'lmx {command}')
  slice_name = accelerator.replace('litepod', 'e')
  step = next(one for one in pod.record() if (one.config, one.topology) == (config, slice_name))
  assert found['compiled'].startswith(f'{config} on {step.topology}: {step.gib:g} GiB a chip')
  hours = updates * step.seconds * step.chips / 3600
  assert found['chips'] == f'{hours:,.0f} chip-hours of v5e for {updates:,} such updates'
  assert 'hours of one H100' in found['estimate']
  assert lines_of(text, f'collect {name}') == [
    ('copy', f"gcloud storage rsync --recursive '{pod.COPY}' gs://B/runs runs/{name}"),
    (
      'table',
      f'python -m launch.tables {name} {shlex.quote(f"--rows={rows}")} --runs=runs/{name} --collect',
    ),
  ]


def test_data_is_prepared_with_the_cluster_options_of_the_training(bucket, capsys):
  launch = '--name=x --image=IMAGE --accelerator=v5litepod-64 --namespace lab --queue=tpus --priority=high'
  words = ['gpt2_webtext', '--rows=*repro_124m*', '--where=gke', '--runs=gs://B/runs', '--dry_run']
  assert main([*words, f'--launch={launch} --service_account=trainer']) == 0
  prepare = dict(reversed(lines_of(capsys.readouterr().out, 'gpt2/webtext_124m seed 0')))['prepare']
  create, *edits, last = prepare.split(' | ')
  assert re.match(r'kubectl create job prepare-\S+ --image=IMAGE --namespace=lab .* -- lmx prepare --config=', create)
  assert [edit.partition(' --local')[0] for edit in edits] == [
    'kubectl set serviceaccount trainer',
    'kubectl label kueue.x-k8s.io/queue-name=tpus kueue.x-k8s.io/priority-class=high',
  ]
  assert last == 'kubectl create --filename=-'
  if not shutil.which('kubectl'):
    pytest.skip('needs kubectl to run the pipeline without a cluster')
  shown = subprocess.run(['bash', '-c', ' | '.join([create, *edits])], capture_output=True, text=True, check=True)
  job = yaml.safe_load(shown.stdout)
  assert job['metadata']['namespace'] == 'lab' and job['metadata']['labels']['kueue.x-k8s.io/queue-name'] == 'tpus'
  assert job['spec']['template']['spec']['serviceAccountName'] == 'trainer'


def test_printed_collection_counts_the_runs_of_the_printed_trainings(bucket, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  words = ['gpt2_webtext', '--rows=*repro_124m*', '--where=gke', '--runs=gs://B/runs', '--dry_run']
  assert main([*words, '--options=pod', '--seeds=2', '--config.optim.lr=0.001', '--config.log.group=a b']) == 0
  collect = dict(lines_of(capsys.readouterr().out, 'collect gpt2_webtext'))
  *program, name = shlex.split(collect['table'])[:4]
  assert (program, name) == (['python', '-m', 'launch.tables'], 'gpt2_webtext')
  changed = plan.Plan(options='pod', settings=('optim.lr=0.001',))
  for seed in (0, 1):
    runs.put(tmp_path / 'runs/gpt2_webtext', 'gpt2/webtext_124m', 'results', seed, changed, loss=3.0, split='valid')
  given = shlex.split(collect['table'])[4:]
  assert main([name, *given]) == 0
  row = runs.rows_of(tmp_path / 'runs/gpt2_webtext', name)
  assert len(row) == 1 and '3.00 ± 0.000 (2 seeds)' in row[0], row
  assert main([name, *(word for word in given if word != '--options=pod')]) == 2
  assert 'is a run of another config' in capsys.readouterr().err
  pattern = re.compile(shlex.split(collect['copy'])[4].removeprefix('--exclude='))
  kept = ['gpt2/webtext_124m/seed0/results.json', 'gpt2/webtext_124m/seed0/config.json']
  assert not any(map(pattern.match, kept))
  assert pattern.match('cache/tokens/a/train.tokens') and pattern.match('gpt2/webtext_124m/seed0/checkpoints/step_1/x')


@pytest.mark.parametrize('runs', ['runs/tables,runs', '/shared/runs'])
def test_runs_of_a_disk_are_collected_where_they_are(runs, capsys):
  more = [f'--runs={runs}'] * (runs != options.RUNS)
  assert main(['gpt2_webtext', '--rows=*repro_124m*', '--where=slurm', '--dry_run', *more]) == 0
  text = capsys.readouterr().out
  assert f'--workdir={runs.partition(",")[0]}/gpt2/webtext_124m/seed0 ' in text
  (line,) = lines_of(text, 'collect gpt2_webtext')
  collect = f"python -m launch.tables gpt2_webtext '--rows=*repro_124m*' --runs={runs} --collect"
  assert line == ('table', collect)


def test_slice_without_a_recorded_step_also_shows_the_recorded_one(bucket, capsys):
  words = ['gpt2_webtext', '--rows=*repro_124m*', '--where=gke', GKE.format('v5litepod-16'), '--runs=gs://B/runs']
  assert main([*words, '--dry_run']) == 0
  lines = lines_of(capsys.readouterr().out, 'gpt2/webtext_124m seed 0')
  compiled = [text for title, text in lines if title == 'compiled']
  assert compiled[0].startswith('not recorded on v5e-16; `lmx compile --topology=v5e:4x4 ')
  assert compiled[1].startswith('gpt2/webtext.py:124m,pod on v5e-64: ')
  assert re.match(r'[\d,]+ chip-hours of v5e for 600,000', dict(reversed(lines))['chips'])


@pytest.mark.parametrize('change', ['model.N=24', 'data.batch_size=64', 'parallel.fsdp=8', 'model.remat=full'])
def test_step_of_other_settings_is_not_that_of_the_record(change, bucket, capsys):
  words = ['gpt2_webtext', '--rows=*repro_124m*', '--where=gke', '--runs=gs://B/runs', '--dry_run']
  assert main([*words, f'--config.{change}']) == 0
  found = dict(reversed(lines_of(capsys.readouterr().out, 'gpt2/webtext_124m seed 0')))
  assert found['compiled'].startswith('not recorded; ') and f'--config.{change}' in found['compiled']
  assert 'chips' not in found


def test_step_of_another_depth_in_a_table_is_not_that_of_the_record(bucket, capsys):
  words = ['bert_ablation', '--rows=*l3_h768_a12/mlm_ppl', '--where=gke', '--runs=gs://B/runs', '--dry_run']
  assert main(words) == 0
  text = capsys.readouterr().out
  assert '--config.model.N=3' in text and 'chip-hours' not in text


def test_chip_hours_are_of_the_updates_of_the_command_line(bucket, capsys):
  words = ['gpt2_webtext', '--rows=*repro_124m*', '--where=gke', '--runs=gs://B/runs', '--dry_run']
  assert main([*words, '--config.train.steps=60_000']) == 0
  lines = lines_of(capsys.readouterr().out, 'gpt2/webtext_124m seed 0')
  assert next(text for title, text in lines if title == 'chips') == '84 chip-hours of v5e for 60,000 such updates'
  assert all('with another value of model.bias' in text for title, text in lines if title == 'compiled')
  assert 'estimate' not in dict(lines) or dict(lines)['estimate'] != '180 hours of one H100 (launch/tables/hours.py)'


def test_runs_of_a_bucket_are_collected_from_a_copy(bucket, capsys):
  assert main(['gpt2_webtext', '--runs=gs://B/runs', '--collect']) == 2
  assert '--runs: got gs://B/runs with --collect; expected a local folder; copy it' in capsys.readouterr().err
  given = options.parser().parse_args(['gpt2_webtext', '--runs=gs://B/runs'])
  own = options.plan(given, ['data.cache_dir=gs://C'])
  assert own.settings == ('data.cache_dir=gs://C',) and str(own.runs[0]) == 'gs://B/runs'
  assert str(plan.path('--runs', 'runs')) == 'runs'


@pytest.mark.parametrize('option', ['--collect', '--where=gke', '--config.optim.lr=1', '--data=ptb=x', '--seeds=2'])
def test_rehearsal_has_its_own_runs_and_data(option, tmp_path, capsys):
  assert main(['gpt2_webtext', f'--rehearse={tmp_path}', option]) == 2
  assert f'{option.partition("=")[0].partition(".")[0]}: got it with --rehearse' in capsys.readouterr().err


def test_rehearsal_shows_its_commands(tmp_path, capsys):
  assert main(['bert_ablation', '--rows=*l12_h768_a12/mlm_ppl', f'--rehearse={tmp_path / "r"}', '--dry_run']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert [line.split()[2:4] for line in lines] == [['lmx.cli.main', 'prepare'], ['launch.local', '--processes=2']] * 2
  assert all('--config.data.manual_dir=gs://rehearsal/text' in line for line in lines) and not (tmp_path / 'r').exists()
  assert f'--config.train.init_from={tmp_path}/r/runs/bert/pretrain_base' in lines[3]


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize('name', HEADLINES)
def test_rehearsal_runs_the_commands_of_a_row(root, tmp_path, name):
  words = ['-m', 'launch.tables', name, f'--rows={HEADLINES[name][0]}', f'--rehearse={tmp_path}']
  environment = os.environ | {'PYTHONPATH': str(root), 'XLA_FLAGS': ''}
  done = subprocess.run([sys.executable, *words], cwd=root, env=environment, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert '4 x cpu (cpu)' in done.stdout and '2 processes' in done.stdout and 'a rehearsal with the tiny' in done.stdout
  prepared = {folder.name for folder in (tmp_path / 'buckets/rehearsal/cache/tokens').iterdir()}
  read = [*(tmp_path / 'cache_of_hosts/tokens').iterdir()]
  assert prepared == {folder.name for folder in read}
  for folder in read:  # from the bucket
    assert not (folder / 'train.tokens').exists()
    assert np.fromfile(folder / 'train.tokens.read.blocks', np.uint8).all()
    corpus.read(str(tmp_path / 'cache_of_preparation/tokens' / folder.name))  # whole
