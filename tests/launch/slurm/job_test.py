"""The job script as text, as bash runs it, and on a real Slurm of two nodes where one is installed."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

from launch.slurm import job as slurm_job
from launch.slurm import submitit_job
from launch.slurm.job import Job, directives, script
from lmx.errors import InputError
from tests.launch.slurm.cluster import NASTY, output, run_of, submit, wait

GOLDEN = pathlib.Path(__file__).parents[1] / 'golden'


def job_of(**more) -> Job:
  return Job(**{'directory': '/project', 'python': '/env/bin/python', **more})


def test_script_of_two_nodes():
  job = job_of(
    name='gpt2',
    nodes=2,
    gpus=8,
    cpus=12,
    time='1-00:00:00',
    partition='gpu',
    account='lab',
    setup=('module load cuda',),
    more=('exclusive', 'mail-type=END'),
  )
  run = run_of(
    'train',
    '--config=experiments/gpt2/webtext.py:124m',
    "--workdir=it's here",
    '--config.optim.lr',
    '1e-3',
    env={'NOTE': 'a b'},
    secrets=('WANDB_API_KEY',),
  )
  assert script(job, run) == (GOLDEN / 'slurm_nodes.sh').read_text()


def test_script_of_an_array_with_a_process_for_each_gpu():
  commands = [('train', '--config=a.py', f'--workdir=runs/{i}') for i in range(3)]
  job = job_of(gpus=4, per_gpu=True, jobs=2)
  text = script(job, run_of(restarts=0, preflight=False), commands)
  assert text == (GOLDEN / 'slurm_array.sh').read_text()


def test_script_of_a_job_that_is_waited_for():
  text = script(job_of(writes_code=True), run_of('train', '--config=a.py', '--workdir=runs/a'))
  assert text == (GOLDEN / 'slurm_waited.sh').read_text()


CONTAINERS = {
  'slurm_pyxis.sh': dict(container='nvcr.io#nvidia/jax:26.01-py3', nodes=2, mounts=('/data:/data:ro',)),
  'slurm_apptainer.sh': dict(container="/images/it's lmx.sif", runtime='apptainer', jobs=1),
}


def container_job(name, **more):
  return job_of(**{'gpus': 8, 'python': '', **CONTAINERS[name], **more})


@pytest.mark.parametrize('name', CONTAINERS)
def test_script_of_a_container(name):
  commands = [('train', '--config=a.py', f'--config.seed={seed}') for seed in (1, 2)] if 'apptainer' in name else []
  text = script(container_job(name), run_of('train', '--config=a.py', '--workdir=runs/a'), commands)
  assert text == (GOLDEN / name).read_text()


@pytest.mark.parametrize('name', CONTAINERS)
def test_processes_run_in_the_container(name, tmp_path):
  """The stand-ins for srun and apptainer note their words; srun runs the task, apptainer lmx."""
  after = {'srun': 'while [ "$1" != bash ]; do shift; done', 'apptainer': 'while [ "$1" != python3 ]; do shift; done'}
  for program, text in {**after, 'python3': 'exit 3'}.items():
    note = f'printf "%s\\0" {program} "$@" >> {tmp_path}/words'
    (tmp_path / program).write_text(f'#!/bin/bash\n{note}\n{text}\nexec "$@"\n')
    (tmp_path / program).chmod(0o755)
  commands = [('list', *NASTY)] * 2
  job = container_job(name, directory=str(tmp_path), nodes=1, logs=str(tmp_path))
  env = {
    'PATH': f'{tmp_path}:{os.environ["PATH"]}',
    'SLURM_JOB_ID': '7',
    'SLURM_ARRAY_TASK_ID': '1',
    'SLURM_PROCID': '0',
  }
  done = subprocess.run(['bash', '-c', script(job, run_of('list', preflight=False), commands)], env=env, check=False)
  assert done.returncode == 3
  words = (tmp_path / 'words').read_text().split('\0')[:-1]
  lmx = words[len(words) - words[::-1].index('python3') - 1 :]
  assert lmx == ['python3', '-m', 'lmx.cli.main', 'list', *NASTY]
  mounts = ','.join([f'{tmp_path}:{tmp_path}', *job.mounts])
  if job.runtime == 'pyxis':
    wanted = [f'--container-image={job.container}', f'--container-mounts={mounts}', f'--container-workdir={tmp_path}']
    assert words[2 : 2 + len(wanted)] == wanted and words[1] == '--kill-on-bad-exit=1'
  else:
    wanted = ['apptainer', 'exec', '--nv', '--bind', mounts, '--pwd', str(tmp_path), job.container, 'python3']
    at = words.index('lmx') + 1
    assert words[at : at + len(wanted)] == wanted


def test_bad_containers_are_reported():
  for more, message in (
    ({'mounts': ('/a:/b',)}, '--mount: got no --container'),
    ({'container': 'a', 'mounts': ('data',)}, '--mount: got "data"'),
    ({'runtime': 'apptainer'}, '--runtime=apptainer: got no --container'),
  ):
    with pytest.raises(InputError, match=message):
      job_of(**more)


@pytest.mark.parametrize(
  'time', ['90', '0', '90:30', '24:00:00', '1-0', '1-0:30', '7-00:00:00', 'UNLIMITED', 'infinite']
)
def test_time_of_slurm_is_accepted(time):
  assert f'--time={time}' in directives(job_of(time=time), run_of('list'), 0)
  assert f'--time={time}' in directives(job_of(more=(f'--time={time}',)), run_of('list'), 0)


@pytest.mark.parametrize('time', ['forever', '1d', '1-', '-1', '1:2:3:4', '1-2:3:4:5', '1:', '1.5', '٣', '90\n'])
def test_other_time_is_refused(time):
  with pytest.raises(InputError, match='(?s)--time: got .*; expected minutes, M:S'):
    job_of(time=time)
  for name in ('time', 'time-min'):
    with pytest.raises(InputError, match=f'(?s)--sbatch={name}: got .*; expected minutes, M:S'):
      job_of(more=('exclusive', f'{name}={time}'))


SCRIPTS = ['slurm_nodes.sh', 'slurm_array.sh', 'slurm_waited.sh', *CONTAINERS]


def sbatch(text, folder, *options):
  """The error of Slurm's own parser, which then does not reach a controller."""
  program = shutil.which('sbatch')
  if not program:
    pytest.skip('needs sbatch: apt-get install slurm-client')
  plugins = [f'PluginDir={path}\n' for path in pathlib.Path(program).parents[1].glob('lib/*/slurm-wlm')]
  (folder / 'slurm.conf').write_text(
    'ClusterName=test\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nAuthType=auth/none\nMessageTimeout=1\n'
    f'GresTypes=gpu\n{"".join(plugins)}NodeName=localhost CPUs=2\nPartitionName=test Nodes=ALL Default=YES\n'
  )
  (folder / 'job.sh').write_text(text)
  env = {**os.environ, 'SLURM_CONF': str(folder / 'slurm.conf')}
  words = [program, '--test-only', *options, 'job.sh']
  return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True).stderr


@pytest.mark.parametrize('name', SCRIPTS)
def test_slurm_parses_the_scripts(name, tmp_path):
  assert 'Unable to contact slurm controller' in sbatch((GOLDEN / name).read_text(), tmp_path)


def test_slurm_refuses_wrong_scripts(tmp_path):
  text = (GOLDEN / 'slurm_nodes.sh').read_text()
  assert 'Invalid --time specification' in sbatch(text.replace('--time=1-00:00:00', '--time=week'), tmp_path)
  assert 'unrecognized option' in sbatch(text.replace('--requeue', '--requeued'), tmp_path)


@pytest.mark.parametrize('name', SCRIPTS)
def test_bash_can_read_the_scripts(name):
  subprocess.run(['bash', '-n', GOLDEN / name], check=True)


def test_arguments_survive_the_shell(tmp_path):
  text = script(job_of(directory=str(tmp_path)), run_of(*NASTY, env={'NOTE': '\n'.join(NASTY)}))
  text = text[: text.index('told=')] + 'printf "%s\\0" "${command[@]}" "$NOTE"'
  found = subprocess.run(['bash', '-c', text], capture_output=True, text=True, check=True).stdout.split('\0')
  assert found[3:-1] == [*NASTY, '\n'.join(NASTY)]
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(('cores', 'given'), [('12', ['--cpus-per-task=12']), ('', [])])
def test_processes_get_the_cores_that_the_job_has(cores, given, tmp_path):
  """Since Slurm 22.05 srun begins a step with one core a process unless it is told."""
  (tmp_path / 'srun').write_text('#!/bin/bash\nprintf "%s\\n" "$@" >> srun.txt\n')
  (tmp_path / 'srun').chmod(0o755)
  text = script(job_of(directory=str(tmp_path)), run_of('list', preflight=False))
  env = {'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'SLURM_JOB_ID': '7'}
  env |= {'SLURM_CPUS_PER_TASK': cores} if cores else {}
  subprocess.run(['bash', '-c', text], check=True, env=env)
  words = (tmp_path / 'srun.txt').read_text().splitlines()
  assert words[: words.index('bash')] == [*given, '--kill-on-bad-exit=1']


@pytest.mark.parametrize(
  ('fields', 'cores'),
  [
    ({}, 0),
    ({'gpus': 8}, 32),
    ({'gpus': 8, 'per_gpu': True}, 4),
    ({'gpus': 8, 'cpus': 6}, 6),
    ({'gpus': 8, 'cpus': 0}, 0),
    ({'cpus': 3}, 3),
  ],
)
def test_gpu_job_requests_cpu_cores(fields, cores):
  job = job_of(**fields)
  found = [line for line in directives(job, run_of('list'), 0) if 'cpus-per-task' in line]
  assert found == [f'--cpus-per-task={cores}'] * (cores > 0)
  told = submitit_job.parameters(job, run_of('list'))
  assert told.get('cpus_per_task', 0) == cores
  assert (f'export SRUN_CPUS_PER_TASK={cores}' in told['setup']) == (cores > 0)


@pytest.mark.parametrize('field', ['name', 'partition', 'mem', 'logs', 'account'])
@pytest.mark.parametrize('value', ['a\n#SBATCH --wrap=x', 'a b', 'a"', "a'", '$(x)', 'a\\'])
def test_options_of_sbatch_cannot_break_out_of_their_line(field, value):
  with pytest.raises(InputError, match='only letters'):
    script(job_of(**{field: value}), run_of('list'))
  with pytest.raises(InputError, match='only letters'):
    script(job_of(more=(f'comment={value}',)), run_of('list'))


def test_job_exits_with_lmx_exit_code(cluster, project):
  """Submitted together, so that they wait together."""
  nasty = submit(project, 'exit', '0', *NASTY)
  failed = submit(project, 'exit', '2')
  mixed = submit(project, 'mixed', nodes=2)
  assert cluster.ended(nasty) == 'COMPLETED 0:0 0'
  assert (project / f'words-{nasty}').read_text().split('\0')[:-1] == ['exit', '0', *NASTY]
  assert not (project / 'broken').exists()
  assert 'secret given, other none' in output(project, nasty)
  written = [path.read_text(errors='replace') for path in project.rglob('*') if path.is_file()]
  assert not any('hidden-value' in text for text in written)
  assert cluster.ended(failed) == 'FAILED 2:0 0'  # bad input: not again
  assert cluster.ended(mixed) == 'FAILED 2:0 0'  # though Slurm kills the process that did not fail, with signal 9
  assert not list((project / 'runs/slurm').glob('.ended*'))
  assert {'process 0 of 2', 'process 1 of 2'} <= {x.partition(',')[0] for x in output(project, mixed).splitlines()}


@pytest.mark.slow
def test_job_is_requeued_up_to_the_limit(cluster, project):
  again, often = submit(project, 'again', '2'), submit(project, 'again', '9')
  assert cluster.ended(again) == 'COMPLETED 0:0 2'
  assert output(project, again).count('back into the queue') == 2
  assert cluster.ended(often) == 'FAILED 75:0 3'


@pytest.mark.slow
def test_only_a_job_that_is_not_cancelled_continues_after_the_notice(cluster, project):
  told, cancelled = submit(project, 'wait', nodes=2), None
  wait(lambda: (project / f'runs/slurm/lmx-{told}.out').exists() and output(project, told).count('waiting') == 2)
  cluster.ask('scancel', '--signal=TERM', '--batch', told)  # as Slurm does near the end of the time limit
  cancelled = submit(project, 'wait')
  assert cluster.ended(told) == 'COMPLETED 0:0 1'
  assert output(project, told).count('told\n') == 2
  wait(lambda: (project / f'runs/slurm/lmx-{cancelled}.out').exists() and 'waiting' in output(project, cancelled))
  cluster.ask('scancel', cancelled)
  assert cluster.ended(cancelled).startswith('CANCELLED')
  time.sleep(3)
  assert cluster.state(cancelled).startswith('CANCELLED') and cluster.state(cancelled).endswith(' 0')


@pytest.mark.slow
def test_array_runs_a_command_in_each_element(cluster, project):
  commands = [('exit', str(code), *NASTY) for code in (0, 3, 0)]
  job = submit(project, commands=commands, jobs=2)
  found = [cluster.ended(f'{job}_{i}') for i in range(3)]
  assert found == ['COMPLETED 0:0 0', 'FAILED 3:0 0', 'COMPLETED 0:0 0']
  words = [path.read_text().split('\0')[:-1] for path in project.glob('words-*')]
  assert sorted(words) == sorted([list(each) for each in commands])


@pytest.mark.slow
def test_array_runs_in_containers(cluster, project, monkeypatch):
  """The stand-in for apptainer is on the nodes' PATH, and runs what is behind the image."""
  (project / 'bin').mkdir()
  apptainer = project / 'bin/apptainer'
  apptainer.write_text(f'#!/bin/bash\necho "$1 $2 $3" >> {project}/bound\nshift 6\nexec "$@"\n')
  apptainer.chmod(0o755)
  monkeypatch.setenv('PATH', f'{project}/bin:{os.environ["PATH"]}')
  container = dict(container='lmx.sif', runtime='apptainer', mounts=('/data:/data',))
  job = submit(project, commands=[('exit', str(code), *NASTY) for code in (0, 3)], nodes=2, **container)
  assert [cluster.ended(f'{job}_{i}') for i in range(2)] == ['COMPLETED 0:0 0', 'FAILED 3:0 0']
  words = [path.read_text().split('\0')[:-1] for path in project.glob('words-*')]
  assert sorted(words) == [['exit', '0', *NASTY], ['exit', '3', *NASTY]]
  assert (project / 'bound').read_text().splitlines() == [f'exec --bind {project}:{project},/data:/data'] * 4
  again = submit(project, 'again', '1', **container)
  assert cluster.ended(again) == 'COMPLETED 0:0 1'


@pytest.mark.slow
def test_training_of_two_nodes_matches_one(cluster, project, root):
  """The real thing: preflight, two processes, and the parameters of one process."""
  import jax
  import numpy as np

  from lmx.checkpoint import manager

  words = [
    'train',
    '--config=experiments/rnn_lm/quickstart.py:tiny',
    '--config.train.steps=20',
    '--config.evaluation.baselines=false',
    '--config.samples.count=0',
    '--config.train.eval_every=10',
  ]
  env = {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': '--xla_force_host_platform_device_count=1', 'NPROC': '16'}
  env['LMX_CACHE'] = os.environ['LMX_CACHE']
  job = Job(directory=str(root), python=sys.executable, nodes=2, logs=os.path.relpath(project, root))
  number = slurm_job.submit(job, run_of(*words, f'--workdir={project}/two', env=env))
  assert cluster.ended(number, 400) == 'COMPLETED 0:0 0', (project / f'lmx-{number}.out').read_text()
  assert 'all-reduce' in (project / f'lmx-{number}.out').read_text()
  one = [sys.executable, '-m', 'lmx.cli.main', *words, f'--workdir={project}/one']
  subprocess.run(one, cwd=root, env={**os.environ, **env, 'PYTHONPATH': str(root)}, check=True, capture_output=True)
  found = [manager.restore_params(project / name / 'checkpoints', None, 'last')[0] for name in ('one', 'two')]
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), *found)
