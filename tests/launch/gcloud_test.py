"""Commands of gcloud in dry runs against its recorded flags, and its own parser where it is installed."""

from __future__ import annotations

import shutil

import pytest

from tests.launch import gcloud

WRONG = (
  (
    ['compute', 'tpus', 'tpu-vm', 'create', 'a', '--version=v', '--zone=z', '--acceleratortype=v6e-8'],
    '--acceleratortype',
  ),
  (['compute', 'instance-groups', 'managed', 'create', 'a', '--template=t', '--zone=z'], '--size'),
  (['compute', 'instance-templates', 'create', 'a', '--provisioning-model=FLEXIBLE'], '--provisioning-model'),
)


def test_dry_runs_have_the_recorded_flags():
  found = gcloud.of_dry_runs()
  assert {' '.join(words[:4]) for words in found} >= {
    'compute tpus queued-resources create',
    'compute tpus tpu-vm delete',
  }
  assert [problem for words in found for problem in gcloud.problems(words)] == []


def test_recorded_flags_refuse_wrong_commands():
  for words, flag in WRONG:
    assert [problem for problem in gcloud.problems(words) if flag in problem], words
  assert gcloud.problems(['compute', 'tpus', 'tpu-vms', 'create']) == ['no command compute tpus tpu-vms create']


@pytest.mark.slow
def test_gcloud_parses_the_dry_runs():
  if not shutil.which('gcloud'):
    pytest.skip('needs gcloud: https://cloud.google.com/sdk/docs/install')
  found = gcloud.of_dry_runs()
  answers = gcloud.lint([gcloud.without_newer(words) for words in found] + [words for words, _ in WRONG])
  assert [each['command_string'] for each in answers[: len(found)] if not each['success']] == []
  assert [each['success'] for each in answers[len(found) :]] == [False] * len(WRONG)
