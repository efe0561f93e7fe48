"""JobSets against the published schema, as golden text, and what a container would really run."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import jsonschema
import pytest
import yaml

from launch import accelerators, command, gke, gke_wait, waiting
from lmx.errors import InputError

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE / 'golden'
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


# Waited for, on a cluster that is played.

# Stands for python3 in the container.
PROGRAM = """#!/bin/bash
shift 2
echo "start $START: $1"
case "$1" in
  exit) exit "$2" ;;
  again) if [ "$START" -lt "$2" ]; then exit 75; fi ;;
  wait) trap 'echo told; exit 75' TERM; echo waiting; for i in {1..600}; do sleep 0.05; done ;;
  deaf) trap '' TERM; echo waiting; for i in {1..2400}; do sleep 0.05; done ;;
esac
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch, root):
  """The folder of a fake cluster, with its kubectl on PATH."""
  folder = tmp_path / 'cluster'
  (folder / 'bin').mkdir(parents=True)
  fake = f'#!/bin/sh\nexec {sys.executable} {root}/tests/launch/fake_kubectl.py "$@"\n'
  programs = {'bin/python3': PROGRAM, 'kubectl': fake}
  for name, text in programs.items():
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
  monkeypatch.setenv('FAKE_CLUSTER', str(folder))
  monkeypatch.setenv('PATH', f'{folder}:{os.environ["PATH"]}')
  return folder


def waiter(folder, *words, name='gpt2', own=()):
  """`python -m launch.gke --wait` in a process of its own."""
  argv = [
    f'--name={name}',
    '--image=i',
    '--accelerator=v6e-4',
    '--namespace=lab',
    '--poll=0.2',
    f'--wait={folder}/{name}.record',
    *own,
  ]
  return subprocess.Popen(
    [sys.executable, '-m', 'launch.gke', *argv, '--', *words],
    stdout=subprocess.PIPE,
    text=True,
    stderr=subprocess.PIPE,
    cwd=HERE.parents[1],
  )


def calls(folder, verb):
  return [argv for line in (folder / 'calls').read_text().splitlines() if (argv := json.loads(line))[0] == verb]


def saying(process, text):
  while (line := process.stdout.readline()) and line.strip() != text:
    pass
  assert line, f'it ended without saying {text}: {process.stderr.read()}'


def test_waiting_ends_as_lmx_ends(cluster):
  ways = {'ok': ('exit', '0'), 'bad': ('exit', '2'), 'again': ('again', '2'), 'often': ('exit', '75')}
  ends = {name: waiter(cluster, *words, name=name, own=['--restarts=2']) for name, words in ways.items()}
  said = {name: process.communicate(timeout=120)[0] for name, process in ends.items()}
  assert {name: process.returncode for name, process in ends.items()} == {'ok': 0, 'bad': 2, 'again': 0, 'often': 75}
  assert said['ok'].splitlines() == ['launch.gke: JobSet ok', 'start 0: exit']
  assert [line for line in said['again'].splitlines() if line == 'start 2: again'] == ['start 2: again']
  assert 'FailJobSetFailurePolicyAction' in said['bad'] and 'ReachedMaxRestarts' in said['often']
  assert not list(cluster.glob('*.state')) and not list(cluster.glob('*.record'))  # and the name is free again
  assert all(argv[1:3] == ['-n', 'lab'] for verb in ('get', 'delete', 'logs') for argv in calls(cluster, verb))


def test_a_waiting_launcher_that_was_killed_takes_up_its_jobset_and_passes_a_signal_on(cluster):
  first = waiter(cluster, 'wait')
  saying(first, 'waiting')
  check((cluster / 'gpt2.json').read_text())
  time.sleep(0.5)
  first.kill()
  first.communicate()
  (cluster / 'down').touch()
  second = waiter(cluster, 'wait')
  time.sleep(1)
  (cluster / 'down').unlink()
  time.sleep(1)
  second.send_signal(signal.SIGTERM)
  said, errors = second.communicate(timeout=60)
  assert second.returncode == 75 and 'i/o timeout' in errors
  assert 'waiting' not in said  # which the first had shown
  assert (cluster / 'gpt2-0.log').read_text().endswith(' told\n')
  assert len(calls(cluster, 'create')) == 1 and not (cluster / 'gpt2.record').exists()
  assert not (cluster / 'gpt2.state').exists()


def test_a_second_signal_ends_it_at_once_and_one_that_was_deleted_is_not_wanted_again(cluster):
  deaf, gone = waiter(cluster, 'deaf', name='deaf'), waiter(cluster, 'wait', name='gone')
  saying(deaf, 'waiting')
  saying(gone, 'waiting')
  deaf.send_signal(signal.SIGTERM)
  subprocess.run(['kubectl', 'delete', 'jobset', 'gone'], check=True)
  said, _ = gone.communicate(timeout=60)
  assert gone.returncode == command.INTERRUPTED and 'somebody has deleted it' in said
  assert deaf.poll() is None
  deaf.send_signal(signal.SIGTERM)
  deaf.communicate(timeout=30)
  assert deaf.returncode == 75 and not (cluster / 'deaf.state').exists()


def test_a_name_that_is_taken_and_a_record_that_is_held_are_said(cluster):
  one = waiter(cluster, 'wait')
  saying(one, 'waiting')
  other = waiter(cluster / 'bin', 'wait')
  _, errors = other.communicate(timeout=60)
  assert other.returncode == 2 and 'already exists' in errors and not (cluster / 'bin/gpt2.record').exists()
  with pytest.raises(InputError, match='another launcher waits for this job'):
    waiting.held(cluster / 'gpt2.record', 0.1).__enter__()
  one.send_signal(signal.SIGINT)
  one.communicate(timeout=60)
  assert one.returncode == 75


def test_of_several_pods_the_code_that_no_restart_mends_counts():
  def pod(index, code, **more):
    state = {'terminated': {'exitCode': code}} if code is not None else {'running': {}}
    return {'metadata': {'name': f'p{index}'}, 'status': {'containerStatuses': [{'state': state}], **more}}

  waited = gke_wait.Waited(job_of(), run_of(), 'kubectl', '')
  waited._logs = lambda *words: ''
  known, disrupted = {'name': 'gpt2', 'namespace': '', 'pod': ''}, [{'type': 'DisruptionTarget', 'status': 'True'}]
  for pods, code in (
    ([pod(0, 75), pod(1, 2), pod(2, None)], 2),
    ([pod(0, 143), pod(1, 0)], 143),
    ([], 75),
    ([pod(0, 0), pod(1, 137, conditions=disrupted)], 75),
  ):
    assert waited._failed(known, pods, []) == code


def test_times_of_kubectl_are_compared_as_times():
  times = ['', '2026-01-01T00:00:00Z', '2026-01-01T00:00:00.01Z', '2026-01-01T00:00:00.012Z', '2026-01-01T00:00:00.1Z']
  assert sorted(times, key=gke_wait._time) == times


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
