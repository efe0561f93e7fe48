"""No password or token of a URL is shown or recorded."""

from __future__ import annotations

import json

import pytest

from launch import command as launched
from lmx import redaction
from lmx.cli import main
from lmx.config import resolve, run_files
from lmx.data.tokenizers import build
from lmx.errors import InputError
from lmx.reporting import trackers

SMALL = {'model': {'name': 'rnn_lm', 'variant': 'tiny'}, 'train': {'steps': 3}}
URI = 'http://ann:hunter2@host:5000/mlflow?token=hunter2&x=1'
MASKED = 'http://ann:***@host:5000/mlflow?token=***&x=1'


@pytest.mark.parametrize(
  ('text', 'masked'),
  [
    (URI, MASKED),
    ('see https://hunter2@host/a, b', 'see https://***@host/a, b'),
    ('postgresql://ann:p:w/x@host/db', 'postgresql://ann:***@host/db'),
    (
      'gs://bucket/x?X-Amz-Signature=hunter2&access_token=hunter2',
      'gs://bucket/x?X-Amz-Signature=***&access_token=***',
    ),
    ('https://ann:p/w@x@host', 'https://ann:***@host'),
    ('http://host:80/path@x', 'http://host:80/path@x'),
    ('http://ann:p@w@host/a@b', 'http://ann:***@host/a@b'),
    ('postgresql://ann@host/db', 'postgresql://ann@host/db'),
    ('a?b=c, 3:4@5, tokens=3, key=value', 'a?b=c, 3:4@5, tokens=3, key=value'),
  ],
)
def test_secrets_of_urls_are_masked(text, masked):
  assert redaction.redact(text) == masked == redaction.redact(masked)
  assert redaction.has_secret(text) == (text != masked) == redaction.is_masked(masked)
  assert redaction.redact({'a': [text, 3]}) == {'a': [masked, 3]}


def test_config_is_shown_and_recorded_without_its_password(tmp_path, capsys):
  config = resolve.resolve(SMALL, [f'log.mlflow_uri={URI}', 'log.to=mlflow'])
  assert config.log.mlflow_uri == URI  # the running process has it
  run_files.write(tmp_path / 'run', config.to_dict(), {'hash': '', 'imported_from': 'x'}, build.train('bytes', ['a']))
  assert json.loads((tmp_path / 'run/config.json').read_text())['log']['mlflow_uri'] == MASKED
  (tmp_path / 'old').mkdir()
  (tmp_path / 'old/config.json').write_text(json.dumps(config.to_dict()))  # of an earlier version
  assert main.main(['config', 'experiments/rnn_lm/quickstart.py', 'log', f'--config.log.mlflow_uri={URI}']) == 0
  assert main.main(['config', str(tmp_path / 'old'), 'log']) == 0
  assert main.main(['config', str(tmp_path / 'old'), 'log', '--diff=experiments/rnn_lm/quickstart.py']) == 0
  assert main.main(['config', 'experiments/rnn_lm/quickstart.py', f'--config.log.mlflow_uri.x={URI}']) == 2
  assert main.main(['train', f'--config={URI}', '--workdir=x']) == 2
  shown = capsys.readouterr()
  assert MASKED in shown.out and 'hunter2' not in shown.out + shown.err


def test_masked_address_is_rejected_before_a_training(tmp_path):
  with pytest.raises(InputError, match='log.mlflow_uri: got .*masked.*MLFLOW_TRACKING_PASSWORD'):
    trackers.check(trackers.Config(to=('mlflow',), mlflow_uri=MASKED), tmp_path)


def test_launchers_reject_a_command_with_a_password_and_print_none(capsys):
  with pytest.raises(InputError, match='log.mlflow_uri.*--secret') as error:
    launched.Run(('train', f'--config.log.mlflow_uri={URI}'))
  assert 'hunter2' not in str(error.value)
  launched.Runner(dry_run=True).show(['lmx', 'train', f'--config.log.mlflow_uri={URI}'])
  assert 'hunter2' not in capsys.readouterr().out
  assert 'hunter2' not in str(launched.Failed(['lmx', URI], 1, URI))
