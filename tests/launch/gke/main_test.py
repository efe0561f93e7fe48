"""`python -m launch.gke`: its options, secrets and messages."""

from __future__ import annotations

import os

import pytest

from launch.gke.__main__ import main
from tests.launch.gke.manifests import check, container


def play(folder, name, code=0):
  """A program that notes its arguments and what it reads."""
  path = folder / name
  path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/{name}.argv\ncat > {folder}/{name}.stdin\nexit {code}\n')
  path.chmod(0o755)


def test_secrets_are_passed_by_name(monkeypatch, capsys):
  monkeypatch.setenv('WANDB_API_KEY', 'hidden-value')
  argv = ['--name=a', '--image=i', '--accelerator=v6e-4', '--secret=WANDB_API_KEY', '--secrets_of=keys']
  assert main([*argv, '--dry_run', '--', 'list']) == 0
  text = capsys.readouterr().out
  assert 'hidden-value' not in text
  wanted = {'name': 'WANDB_API_KEY', 'valueFrom': {'secretKeyRef': {'name': 'keys', 'key': 'WANDB_API_KEY'}}}
  assert container(check(text))['env'] == [wanted]
  assert main([*argv, '--through=xpk', '--cluster=c', '--dry_run', '--', 'list']) == 2
  assert 'use kubectl' in capsys.readouterr().err


def test_table_lists_its_commands(tmp_path, monkeypatch, capsys):
  monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
  play(tmp_path, 'kubectl')
  play(tmp_path, 'xpk', 1)
  argv = ['--name=a', '--image=i', '--accelerator=v6e-4', '--namespace=lab']
  assert main([*argv, '--', 'list']) == 0
  assert (tmp_path / 'kubectl.argv').read_text().split() == ['create', '-f', '-']
  assert check((tmp_path / 'kubectl.stdin').read_text())['metadata']['namespace'] == 'lab'
  said = capsys.readouterr().out
  assert 'kubectl logs -n lab --follow' in said and 'kubectl delete -n lab jobset a' in said
  assert main([*argv[:3], '--through=xpk', '--cluster=c', '--', 'list']) == 2
  assert (tmp_path / 'xpk.argv').read_text().startswith('workload\ncreate\n--workload=a\n')


@pytest.mark.parametrize(
  'argv, message',
  [
    (['--accelerator=v6e-17'], 'GKE: no accelerator "v6e-17"; did you mean "v6e-16"?'),
    (['--accelerator=h100-80gb-4x'], 'did you mean "h100-80gb-4"?'),
    (['--accelerator=v3-8'], 'GKE: no accelerator "v3-8"'),
    (['--accelerator=v6e-16', '--nodes=2'], '--nodes is for GPUs; v6e-16 has 4 machines'),
    (['--accelerator=l4-1', '--slices=2'], '--slices is for TPUs'),
    (['--accelerator=v6e-16', '--networks=none'], '--networks: got none with v6e-16'),
    (['--accelerator=h100-80gb-8', '--networks=a,b,c,d,e', '--through=xpk', '--cluster=c'], '--networks is not passed'),
    (['--accelerator=v6e-1', '--cluster=c'], '--cluster is for --through=xpk'),
    (['--accelerator=v6e-1', '--queue=a\nb'], '--queue: got'),
    (['--accelerator=v6e-1', '--image=a b'], 'expected the name of an image'),
    (['--accelerator=v6e-1', '--through=xpk'], '--through=xpk needs --cluster'),
    (['--accelerator=v6e-1', '--through=xpk', '--cluster=c', '--spot'], '--spot is not passed on to xpk'),
    (['--accelerator=v6e-1'], 'there is no `kubectl` here: run `gcloud components install'),
    (['--accelerator=v6e-1', '--through=xpk', '--cluster=c'], 'there is no `xpk` here: run `pip install xpk`'),
  ],
)
def test_invalid_input_is_reported(argv, message, capsys, monkeypatch):
  monkeypatch.setenv('PATH', '/nowhere')
  assert main(['--name=a', '--image=i', *argv, '--', 'list']) == 2
  assert message in capsys.readouterr().err
