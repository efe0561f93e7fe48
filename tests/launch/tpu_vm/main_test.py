"""`python -m launch.tpu_vm`: its options and messages."""

from __future__ import annotations

import pathlib

import pytest

from launch.tpu_vm.__main__ import main


def test_command_line_deletes_at_the_end(cloud, capfd):
  argv = ['--name=tpu', '--zone=z', '--project=p', '--accelerator=v5litepod-16', '--poll=0.05']
  assert main([*argv, '--delete', '--', 'exit', '3']) == 3
  assert cloud.calls()[-1] == 'tpu-vm delete' and not (cloud.folder / 'vm').exists()
  assert all('--zone=z' in call and '--project=p' in call and '--quiet' in call for call in cloud.argv())
  assert main([*argv, '--', 'exit', '0']) == 0
  assert 'tpu is kept' in capfd.readouterr().err
  assert main([*argv, '--delete']) == 0
  assert not (cloud.folder / 'vm').exists()


def test_uncommitted_changes_are_reported(cloud, capfd):
  pathlib.Path('constraints.txt').write_text('changed')
  argv = ['--name=tpu', '--zone=z', '--accelerator=v5litepod-16', '--poll=0.05']
  assert main([*argv, '--', 'exit', '0']) == 2
  assert 'uncommitted changes' in capfd.readouterr().err
  assert main([*argv, '--commit=HEAD', '--', 'exit', '0']) == 0


@pytest.mark.parametrize(
  'argv, message',
  [
    (['--accelerator=v5litepod-17'], 'TPU VMs: no accelerator "v5litepod-17"; did you mean "v5litepod-16"?'),
    (['--accelerator=v5e-8'], 'did you mean "v5litepod-8"?'),
    (['--accelerator=h100-80gb-8'], 'no accelerator "h100-80gb-8"'),
    (['--accelerator=v6e-8', '--name=A b'], '--name: got "A b"'),
    (['--accelerator=v6e-8'], 'there is no `gcloud` here: install the Google Cloud CLI'),
  ],
)
def test_invalid_input_is_reported(argv, message, capsys, monkeypatch):
  monkeypatch.setenv('PATH', '/nowhere')
  assert main(['--name=tpu', '--zone=z', *argv, '--', 'list']) == 2
  assert message in capsys.readouterr().err
