"""JobSets against the published schema, as golden text, and what a container would really run."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
import subprocess
import sys

import jsonschema
import pytest
import yaml

from launch import accelerators, command, gke
from lmx.errors import InputError

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE / 'golden'
NASTY = ("it's", '"', '$(HOME)', '$$(HOME)', '$HOME', '`x`', 'a\nb: c', '- x', ';', '{{x}}', '&a', '#', '*', '%', '|',
         'é', '\t', '', ' ', 'no', '1e3', '\x07', 'a: b', '\u2028')  # fmt: skip
JOBS = {
  'gke_tpu': dict(accelerator='v6e-1'),
  'gke_multislice': dict(accelerator='v5litepod-16', slices=2, queue='tpus', priority='high', spot=True),
  'gke_gpu': dict(accelerator='h100-80gb-8', nodes=4, queue='gpus', namespace='lab', service_account='trainer'),
}


def job_of(**more):
  return gke.Job(**{'name': 'gpt2', 'image': 'europe-docker.pkg.dev/p/r/lmx:1', 'accelerator': 'v6e-16', **more})


def run_of(*words, **more):
  words = words or ('train', '--config=experiments/gpt2/webtext.py', '--workdir=gs://bucket/runs/a b')
  return command.Run(words, **more)


SCHEMA = jsonschema.Draft202012Validator(json.loads((HERE / 'schemas/jobset.json').read_text())['schema'])


def check(text):
  """The manifest of a YAML text, after the schema of JobSet, Job and Pod."""
  found = yaml.safe_load(text)
  SCHEMA.validate(found)
  return found


def container(found):
  return found['spec']['replicatedJobs'][0]['template']['spec']['template']['spec']['containers'][0]


def expanded(text, env):
  """What Kubernetes makes of a command: $(NAME) is the variable where there is one, $$ is $."""
  replace = lambda m: '$' if m[0] == '$$' else env.get(m[1], m[0])
  return re.sub(r'\$\$|\$\(([^)]*)\)', replace, text)


@pytest.mark.parametrize('name', JOBS)
def test_manifests(name):
  text = gke.text(job_of(**JOBS[name]), run_of(secrets=('WANDB_API_KEY',), env={'NOTE': 'a b'}))
  check(text)
  assert text == (GOLDEN / f'{name}.yaml').read_text()


def test_every_accelerator_has_a_manifest():
  for accelerator in accelerators.names():
    if accelerator.startswith(('v2', 'v3')):
      continue
    found = check(gke.text(job_of(accelerator=accelerator), run_of()))
    spec = found['spec']['replicatedJobs'][0]['template']['spec']
    machine = accelerators.find(accelerator, pool=True)
    assert spec['parallelism'] == spec['completions'] == machine.hosts
    (chips,) = container(found)['resources']['limits'].values()
    assert chips == machine.chips


def test_the_schema_refuses_what_is_wrong():
  SCHEMA.check_schema(SCHEMA.schema)
  text = gke.text(job_of(), run_of())
  for wrong in (
    text.replace('backoffLimit', 'backoffLimits'), text.replace('completionMode: Indexed', 'completionMode: 1'),
    text.replace('FailJobSet', 'Fail'), text.replace('maxRestarts: 3', "maxRestarts: '3'"),
    text.replace('- 75', '- x'), text.replace('image:', 'picture:'),
  ):  # fmt: skip
    assert wrong != text
    with pytest.raises(jsonschema.ValidationError):
      check(wrong)


@pytest.mark.parametrize('accelerator', ['v6e-16', 'h100-80gb-8'])
def test_words_come_through_yaml_kubernetes_and_the_shell(accelerator, tmp_path):
  env = {'NOTE': '\n'.join(NASTY)}
  found = check(gke.text(job_of(accelerator=accelerator), run_of('list', *NASTY, env=env)))
  python = tmp_path / 'python3'
  python.write_text('#!/bin/bash\nprintf "%s\\0" "$@" "$NOTE"\n')
  python.chmod(0o755)
  words = [expanded(word, {'HOME': '/broken', 'x': 'y'}) for word in container(found)['command']]
  settings = {'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'JOB_COMPLETION_INDEX': '0'}
  ran = subprocess.run(words, capture_output=True, text=True, check=True, env=settings)
  assert ran.stdout.split('\0')[:-1] == ['-m', 'lmx.cli.main', 'list', *NASTY, '\n'.join(NASTY)]


def test_processes_know_one_another(tmp_path):
  text = gke.shell(job_of(accelerator='h100-80gb-8', nodes=4), run_of())
  assert 'LMX_COORDINATOR=gpt2-slice-0-0.gpt2:8476 LMX_NUM_PROCESSES=4' in text
  assert 'LMX_PROCESS_ID="$JOB_COMPLETION_INDEX"' in text
  assert '--processes=4 --devices=8 --timeout=600' in text
  assert 'LMX_COORDINATOR=auto' in gke.shell(job_of(slices=2), run_of())
  assert '--processes=8 --devices=4' in gke.shell(job_of(slices=2), run_of())
  assert 'LMX_COORDINATOR' not in gke.shell(job_of(accelerator='v6e-4'), run_of())
  assert 'preflight' not in gke.shell(job_of(), run_of(preflight=False))


def test_codes_that_begin_again_are_those_of_the_launchers():
  spec = gke.manifest(job_of(), run_of())['spec']['replicatedJobs'][0]['template']['spec']
  rule = spec['podFailurePolicy']['rules'][1]
  again = rule['onExitCodes']['values']
  assert all(command.restartable(code) for code in again)
  assert {75, 137, 143} <= set(again) and not {2, 3, 130} & set(again)


def test_secrets_go_by_name(monkeypatch, capsys):
  monkeypatch.setenv('WANDB_API_KEY', 'hidden-value')
  argv = ['--name=a', '--image=i', '--accelerator=v6e-4', '--secret=WANDB_API_KEY', '--secrets_of=keys']
  assert gke.main([*argv, '--dry_run', '--', 'list']) == 0
  text = capsys.readouterr().out
  assert 'hidden-value' not in text
  wanted = {'name': 'WANDB_API_KEY', 'valueFrom': {'secretKeyRef': {'name': 'keys', 'key': 'WANDB_API_KEY'}}}
  assert container(check(text))['env'] == [wanted]
  assert gke.main([*argv, '--through=xpk', '--cluster=c', '--dry_run', '--', 'list']) == 2
  assert 'use kubectl' in capsys.readouterr().err


def test_xpk(capsys, tmp_path):
  job, run = job_of(slices=2), run_of('list', *NASTY, restarts=5)
  argv = gke.xpk(job, run, 'cluster')
  assert [word for word in argv if not word.startswith('--command')] == [
    'xpk', 'workload', 'create', '--workload=gpt2', '--cluster=cluster', '--tpu-type=v6e-16', '--num-slices=2',
    '--docker-image=europe-docker.pkg.dev/p/r/lmx:1', '--max-restarts=5', '--restart-on-exit-codes=75',
    '--termination-grace-period-seconds=120',
  ]  # fmt: skip
  text = next(word for word in argv if word.startswith('--command=')).removeprefix('--command=')
  found = re.fullmatch(r'bash <\(echo ([\w+/=]+) \| base64 -d\)', text)
  assert found and base64.b64decode(found[1]).decode() == gke.shell(job, run, 'slice-job')
  # As xpk has it: a line of a block of its YAML, which Kubernetes expands and bash reads.
  python = tmp_path / 'python3'
  python.write_text('#!/bin/bash\nprintf "%s\\0" "$@"\n')
  python.chmod(0o755)
  block = yaml.safe_load(f'command:\n- bash\n- -c\n- |\n  ({text}) & PID=$!;\n  wait $PID')['command']
  env = {'PATH': f'{tmp_path}:{os.environ["PATH"]}'}
  ran = subprocess.run([expanded(w, {}) for w in block], capture_output=True, text=True, check=True, env=env)
  assert ran.stdout.split('\0')[2:-1] == ['list', *NASTY]
  gpu = gke.xpk(job_of(accelerator='h100-80gb-8', nodes=4), run_of(), 'cluster')
  assert '--device-type=h100-80gb-8' in gpu and '--num-nodes=4' in gpu


def play(folder, name, code=0):
  """A program that notes its arguments and what it reads."""
  path = folder / name
  path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/{name}.argv\ncat > {folder}/{name}.stdin\nexit {code}\n')
  path.chmod(0o755)


def test_what_is_run(tmp_path, monkeypatch, capsys):
  monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
  play(tmp_path, 'kubectl')
  play(tmp_path, 'xpk', 1)
  argv = ['--name=a', '--image=i', '--accelerator=v6e-4', '--namespace=lab']
  assert gke.main([*argv, '--', 'list']) == 0
  assert (tmp_path / 'kubectl.argv').read_text().split() == ['create', '-f', '-']
  assert check((tmp_path / 'kubectl.stdin').read_text())['metadata']['namespace'] == 'lab'
  said = capsys.readouterr().out
  assert 'kubectl logs -n lab --follow' in said and 'kubectl delete -n lab jobset a' in said
  assert gke.main([*argv[:3], '--through=xpk', '--cluster=c', '--', 'list']) == 2
  assert (tmp_path / 'xpk.argv').read_text().startswith('workload\ncreate\n--workload=a\n')


@pytest.mark.parametrize(
  'argv, message',
  [
    (['--accelerator=v6e-17'], 'GKE: no accelerator "v6e-17"; did you mean "v6e-16"?'),
    (['--accelerator=h100-80gb-4x'], 'did you mean "h100-80gb-4"?'),
    (['--accelerator=v3-8'], 'GKE: no accelerator "v3-8"'),
    (['--accelerator=v6e-16', '--nodes=2'], '--nodes is for GPUs; v6e-16 has 4 machines'),
    (['--accelerator=l4-1', '--slices=2'], '--slices is for TPUs'),
    (['--accelerator=v6e-1', '--queue=a\nb'], '--queue is'),
    (['--accelerator=v6e-1', '--image=a b'], 'no name of an image'),
    (['--accelerator=v6e-1', '--through=xpk'], '--through=xpk needs --cluster'),
    (['--accelerator=v6e-1', '--through=xpk', '--cluster=c', '--spot'], '--spot is not passed on to xpk'),
    (['--accelerator=v6e-1'], 'there is no `kubectl` here: run `gcloud components install'),
    (['--accelerator=v6e-1', '--through=xpk', '--cluster=c'], 'there is no `xpk` here: run `pip install xpk`'),
  ],
)
def test_bad_input_is_said(argv, message, capsys, monkeypatch):
  monkeypatch.setenv('PATH', '/nowhere')
  assert gke.main(['--name=a', '--image=i', *argv, '--', 'list']) == 2
  assert message in capsys.readouterr().err


def test_a_zero_byte_is_refused():
  with pytest.raises(InputError, match='zero byte'):
    run_of('a\0b')


def test_starts_without_jax(root):
  code = 'import sys, launch.gke; sys.exit("jax" in sys.modules or "numpy" in sys.modules or "yaml" in sys.modules)'
  assert subprocess.run([sys.executable, '-c', code], cwd=root, check=False).returncode == 0
