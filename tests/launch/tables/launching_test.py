"""Rows that are passed to a launcher: names of jobs, placeholders of a dry run, missing options, and the bucket."""

from __future__ import annotations

import pathlib
import re

import pytest

from launch.gke import job
from launch.tables import launching, plan, runner
from launch.tables.__main__ import main

ROWS = ['gpt2_webtext', '--rows=*repro_124m*', '--where=gke']
LAUNCH = '--name x --image=IMAGE --accelerator=v5litepod-64'


def names_of(text):
  """Return the names of the jobs in a dry run's lines."""
  return re.findall(r'python -m launch\.gke --name=(\S+) ', text)


def test_each_job_has_a_name_that_launch_gke_takes_and_no_call_changes(bucket, capsys):
  rows = '--rows=transformer_xl/wikitext103/standard'
  words = ['transformer_xl_words', rows, '--where=gke', '--runs=gs://B/runs', '--seeds=2', '--dry_run']
  texts = []
  for _ in range(2):
    assert main([*words, f'--launch={LAUNCH}']) == 0
    texts.append(capsys.readouterr().out)
  names = names_of(texts[0])
  assert names == names_of(texts[1]) and len(set(names)) == len(names) == texts[0].count('launch.gke') >= 3
  assert any('-s0-' in name for name in names) and any('-s1-' in name for name in names)
  kinds = {words.split()[0] for words in re.findall(r'launch\.gke .* -- (\S+)', texts[0])}
  assert {'train', 'evaluate'} <= kinds
  for name in names:
    job.Job(name, 'IMAGE', 'v5litepod-64')  # refuses other names


def test_names_are_short_and_only_those_of_jobsets_change():
  commands = [
    plan.Command(('train',), pathlib.Path('runs/a/seed0/results.json')),
    plan.Command(('evaluate',), pathlib.Path(f'runs/a/seed0/{"long" * 20}_1.json')),
    plan.Command(('evaluate',), pathlib.Path(f'runs/a/seed0/{"long" * 20}_2.json')),
  ]
  names = [launching.job_name('n' * 25, 'gpt2/Webtext_124m', 0, one) for one in commands]
  assert len(set(names)) == 3 and all(len(name) <= job.NAME_LENGTH for name in names)
  with pytest.raises(ValueError, match=r'--launch: got --name=n+ of 34 characters; expected at most 33'):
    launching.job_name('n' * 34, 'a', None, commands[0])
  kept = launching.launcher_command('tpu_vm', '--name=x --zone=z', 'a', 0, commands[0])
  assert kept[3:] == ['--name=x', '--zone=z', '--', 'train']
  assert launching.launcher_command('slurm', '', 'a', 0, commands[0])[3:] == ['--', 'train']


@pytest.mark.parametrize(
  'where,shown',
  [
    ('gke', r'launch\.gke --name=NAME-webtext-124m-s0-\w{6} --image=IMAGE --accelerator=v5litepod-64 -- train'),
    ('tpu_vm', r'launch\.tpu_vm --name=NAME --zone=ZONE --accelerator=v5litepod-64 -- train'),
    ('gce', r'launch\.gce --name=NAME --project=PROJECT --zone=ZONE --accelerator=ACCELERATOR -- train'),  # no v5e
  ],
)
def test_dry_run_without_options_has_placeholders(where, shown, capsys):
  assert main([*ROWS[:2], f'--where={where}', '--dry_run']) == 0  # needs no bucket
  text = capsys.readouterr().out
  assert re.search(rf'{shown} .*--workdir=gs://BUCKET/runs/gpt2/webtext_124m/seed0 ', text)
  assert text.count('--config.data.cache_dir=gs://BUCKET/runs/cache') == 2  # prepare and train
  assert 'gs://BUCKET/runs runs/gpt2_webtext\n' in text


def test_options_are_read_as_the_launcher_reads_them(bucket, capsys):
  words = [*ROWS, '--runs=gs://B/runs', '--dry_run']
  texts = []
  for launch in (LAUNCH, '--im=OTHER --acc=v6e-8 --name=y --name x --image=IMAGE --accel=v5litepod-64'):
    assert main([*words, f'--launch={launch}']) == 0
    texts.append(capsys.readouterr().out)
  cut = lambda text: re.sub(r' --(im|acc)\S*', '', text)
  assert names_of(texts[0])[0].startswith('x-') and cut(texts[0]) == cut(texts[1])
  with pytest.raises(SystemExit, match='2'):
    main([*words, f'--launch={LAUNCH} --acelerator=v6e-8'])
  assert 'launch.gke: error: unrecognized arguments: --acelerator=v6e-8' in capsys.readouterr().err


@pytest.mark.parametrize(
  'more,message',
  [
    ([], "--launch: got ''; expected --name=NAME --image=IMAGE --accelerator=ACCELERATOR too, which launch.gke needs"),
    (['--launch=--name=x --accelerator v6e-8'], 'expected --image=IMAGE too'),
    ([f'--launch={LAUNCH}'], '--runs: got none with --where=gke, whose machines keep no files; give --runs=gs://'),
  ],
)
def test_jobs_without_their_options_are_refused(more, message, monkeypatch, capsys):
  monkeypatch.setattr(runner.subprocess, 'run', lambda words: pytest.fail('submitted'))
  assert main([*ROWS, '--data=webtext=gs://B/webtext', *more]) == 2
  assert message in capsys.readouterr().err


@pytest.mark.parametrize('where,noted', [('gke', ['--runs=/data/runs', '--data=webtext=/text']), ('slurm', [])])
def test_local_paths_that_machines_need_are_noted(where, noted, capsys):
  words = [*ROWS[:2], f'--where={where}', '--runs=/data/runs', '--data=webtext=/text', '--dry_run']
  assert main(words) == 0
  said = capsys.readouterr()
  assert '--workdir=/data/runs/' in said.out
  assert [word for word in said.err.split() if word.startswith('--')] == noted


def test_table_of_a_bucket_is_rendered_here(bucket, tmp_path, monkeypatch, capsys):
  class Ended:
    returncode = 0

  handed = []
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(runner.subprocess, 'run', lambda words: handed.append(words) or Ended)
  words = [*ROWS, f'--launch={LAUNCH}', '--runs=gs://B/submitted', '--data=webtext=gs://B/webtext', '--seeds=2']
  for _ in range(2):
    assert main(words) == 0
  assert (tmp_path / 'runs/gpt2_webtext/tables/gpt2_webtext.md').exists()
  assert len(handed) == 2 and len({one[3] for one in handed}) == 2  # names of two seeds, each submitted once
  assert 'seed1: results.json was submitted to gke' in capsys.readouterr().err.replace('seed 1', 'seed1')
