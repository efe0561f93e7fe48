"""The JobSet as YAML against its schema, and as Kubernetes and bash read it."""

from __future__ import annotations

import base64
import os
import re
import subprocess

import jsonschema
import pytest
import yaml

from launch import accelerators, command
from launch.gke import job
from lmx.errors import InputError
from tests.launch.gke.manifests import LAUNCH, SCHEMA, check, container, job_of, run_of

GOLDEN = LAUNCH / 'golden'
NASTY = (
  "it's",
  '"',
  '$(HOME)',
  '$$(HOME)',
  '$HOME',
  '`x`',
  'a\nb: c',
  '- x',
  ';',
  '{{x}}',
  '&a',
  '#',
  '*',
  '%',
  '|',
  'é',
  '\t',
  '',
  ' ',
  'no',
  '1e3',
  '\x07',
  'a: b',
  '\u2028',
)
JOBS = {
  'gke_tpu': dict(accelerator='v6e-1'),
  'gke_multislice': dict(accelerator='v5litepod-16', slices=2, queue='tpus', priority='high', spot=True),
  'gke_gpu': dict(accelerator='h100-80gb-8', nodes=4, queue='gpus', namespace='lab', service_account='trainer'),
  'gke_gpu_mega': dict(accelerator='h100-mega-80gb-8', nodes=2),
  'gke_gpu_rdma': dict(accelerator='b200-8', nodes=2, networks=','.join(['default', *(f'r{i}' for i in range(8))])),
}


def expanded(text, env):
  """What Kubernetes makes of a command: $(NAME) is the variable where there is one, $$ is $."""
  replace = lambda m: '$' if m[0] == '$$' else env.get(m[1], m[0])
  return re.sub(r'\$\$|\$\(([^)]*)\)', replace, text)


@pytest.mark.parametrize('name', JOBS)
def test_manifests(name):
  text = job.manifest_yaml(job_of(**JOBS[name]), run_of(secrets=('WANDB_API_KEY',), env={'NOTE': 'a b'}))
  check(text)
  assert text == (GOLDEN / f'{name}.yaml').read_text()


def test_every_accelerator_has_a_manifest():
  for accelerator in accelerators.names():
    if accelerator.startswith(('v2', 'v3')):
      continue
    found = check(job.manifest_yaml(job_of(accelerator=accelerator), run_of()))
    spec = found['spec']['replicatedJobs'][0]['template']['spec']
    machine = accelerators.find(accelerator, 'gke')
    assert spec['parallelism'] == spec['completions'] == machine.hosts
    (chips,) = container(found)['resources']['limits'].values()
    assert chips == machine.chips


def test_schema_rejects_invalid_manifests():
  SCHEMA.check_schema(SCHEMA.schema)
  text = job.manifest_yaml(job_of(), run_of())
  for wrong in (
    text.replace('backoffLimit', 'backoffLimits'),
    text.replace('completionMode: Indexed', 'completionMode: 1'),
    text.replace('FailJobSet', 'Fail'),
    text.replace('maxRestarts: 3', "maxRestarts: '3'"),
    text.replace('- 75', '- x'),
    text.replace('image:', 'picture:'),
  ):
    assert wrong != text
    with pytest.raises(jsonschema.ValidationError):
      check(wrong)


@pytest.mark.parametrize('accelerator', ['v6e-16', 'h100-80gb-8'])
def test_arguments_survive_yaml_kubernetes_and_shell(accelerator, tmp_path):
  env = {'NOTE': '\n'.join(NASTY)}
  found = check(job.manifest_yaml(job_of(accelerator=accelerator), run_of('list', *NASTY, env=env)))
  python = tmp_path / 'python3'
  python.write_text('#!/bin/bash\nprintf "%s\\0" "$@" "$NOTE"\n')
  python.chmod(0o755)
  words = [expanded(word, {'HOME': '/broken', 'x': 'y'}) for word in container(found)['command']]
  settings = {'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'JOB_COMPLETION_INDEX': '0'}
  ran = subprocess.run(words, capture_output=True, text=True, check=True, env=settings)
  assert ran.stdout.split('\0')[:-1] == ['-m', 'lmx.cli.main', 'list', *NASTY, '\n'.join(NASTY)]


def test_processes_get_coordinator_address(tmp_path):
  text = job.shell(job_of(accelerator='h100-80gb-8', nodes=4), run_of())
  assert 'LMX_COORDINATOR=gpt2-slice-0-0.gpt2:8476 LMX_NUM_PROCESSES=4' in text
  assert 'LMX_PROCESS_ID="$JOB_COMPLETION_INDEX"' in text
  assert '--processes=4 --devices=8 --timeout=600' in text
  assert 'LMX_COORDINATOR=auto' in job.shell(job_of(slices=2), run_of())
  assert '--processes=8 --devices=4' in job.shell(job_of(slices=2), run_of())
  assert 'LMX_COORDINATOR' not in job.shell(job_of(accelerator='v6e-4'), run_of())
  assert 'preflight' not in job.shell(job_of(), run_of(preflight=False))


def test_restart_exit_codes_match_the_launchers():
  spec = job.manifest(job_of(), run_of())['spec']['replicatedJobs'][0]['template']['spec']
  rule = spec['podFailurePolicy']['rules'][1]
  again = rule['onExitCodes']['values']
  assert all(command.is_restartable(code) for code in again)
  assert {75, 137, 143} <= set(again) and not {2, 3, 130} & set(again)


def test_xpk(capsys, tmp_path):
  asked, run = job_of(slices=2), run_of('list', *NASTY, restarts=5)
  argv = job.xpk_command(asked, run, 'cluster')
  assert [word for word in argv if not word.startswith('--command')] == [
    'xpk',
    'workload',
    'create',
    '--workload=gpt2',
    '--cluster=cluster',
    '--tpu-type=v6e-16',
    '--num-slices=2',
    '--docker-image=europe-docker.pkg.dev/p/r/lmx:1',
    '--max-restarts=5',
    '--restart-on-exit-codes=75',
    '--termination-grace-period-seconds=120',
  ]
  text = next(word for word in argv if word.startswith('--command=')).removeprefix('--command=')
  found = re.fullmatch(r'bash <\(echo ([\w+/=]+) \| base64 -d\)', text)
  assert found and base64.b64decode(found[1]).decode() == job.shell(asked, run, 'slice-job')
  # As xpk has it: a line of a block of its YAML, which Kubernetes expands and bash reads.
  python = tmp_path / 'python3'
  python.write_text('#!/bin/bash\nprintf "%s\\0" "$@"\n')
  python.chmod(0o755)
  block = yaml.safe_load(f'command:\n- bash\n- -c\n- |\n  ({text}) & PID=$!;\n  wait $PID')['command']
  env = {'PATH': f'{tmp_path}:{os.environ["PATH"]}'}
  ran = subprocess.run([expanded(w, {}) for w in block], capture_output=True, text=True, check=True, env=env)
  assert ran.stdout.split('\0')[2:-1] == ['list', *NASTY]
  gpu = job.xpk_command(job_of(accelerator='h100-80gb-8', nodes=4), run_of(), 'cluster')
  assert '--device-type=h100-80gb-8' in gpu and '--num-nodes=4' in gpu


def test_zero_byte_is_rejected():
  with pytest.raises(InputError, match='zero byte'):
    run_of('a\0b')
