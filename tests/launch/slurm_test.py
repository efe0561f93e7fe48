"""The job script as text, as bash runs it, and on a real Slurm of two nodes where one is installed.

On Debian `apt-get install slurm-wlm munge` brings it; the tests start its daemons on this machine's loopback.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

from launch import command, slurm, submitted
from lmx.errors import InputError

GOLDEN = pathlib.Path(__file__).parent / 'golden'
NASTY = ("it's", '"', '$(touch broken)', '`touch broken`', 'a\nb', ';', '&& touch broken', ' --', '--', '#', '*', '')
DAEMONS = ('munged', 'slurmctld', 'slurmd')

# Stands in for `python -m lmx.cli.main`: says what reaches it, and ends as its first word asks.
PROGRAM = """#!/bin/bash
shift 2
restart=${SLURM_RESTART_COUNT:-0}
printf 'process %s of %s, restart %s, secret %s, other %s\\n' "$LMX_PROCESS_ID" "$SLURM_NTASKS" "$restart" \
  "${WANDB_API_KEY:+given}" "${OTHER_SECRET:-none}"
printf '%s\\0' "$@" > "words-$SLURM_JOB_ID"
case "$1" in
  exit) exit "$2" ;;
  again) if [ "$restart" -lt "$2" ]; then exit 75; fi ;;
  wait)
    trap 'echo told; exit 75' TERM
    if [ "$restart" -eq 0 ]; then echo waiting; for i in {1..300}; do sleep 0.1; done; exit 9; fi ;;
  deaf) trap '' TERM; echo waiting; for i in {1..1200}; do sleep 0.1; done ;;
  mixed) if [ "$LMX_PROCESS_ID" = 1 ]; then exit 2; fi; trap '' TERM; sleep 30 ;;
esac
"""


def run_of(*words, **more) -> command.Run:
  return command.Run(words, **more)


def job_of(**more) -> slurm.Job:
  return slurm.Job(**{'directory': '/project', 'python': '/env/bin/python', **more})


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
  assert slurm.script(job, run) == (GOLDEN / 'slurm_nodes.sh').read_text()


def test_script_of_an_array_with_a_process_for_each_gpu():
  commands = [('train', '--config=a.py', f'--workdir=runs/{i}') for i in range(3)]
  job = job_of(gpus=4, per_gpu=True, jobs=2)
  text = slurm.script(job, run_of(restarts=0, preflight=False), commands)
  assert text == (GOLDEN / 'slurm_array.sh').read_text()


def test_script_of_a_job_that_is_waited_for():
  text = slurm.script(job_of(waited=True), run_of('train', '--config=a.py', '--workdir=runs/a'))
  assert text == (GOLDEN / 'slurm_waited.sh').read_text()


@pytest.mark.parametrize('name', ['slurm_nodes.sh', 'slurm_array.sh', 'slurm_waited.sh'])
def test_bash_can_read_the_scripts(name):
  subprocess.run(['bash', '-n', GOLDEN / name], check=True)


def test_words_come_through_the_shell_as_they_are(tmp_path):
  text = slurm.script(job_of(directory=str(tmp_path)), run_of(*NASTY, env={'NOTE': '\n'.join(NASTY)}))
  text = text[: text.index('told=')] + 'printf "%s\\0" "${command[@]}" "$NOTE"'
  found = subprocess.run(['bash', '-c', text], capture_output=True, text=True, check=True).stdout.split('\0')
  assert found[3:-1] == [*NASTY, '\n'.join(NASTY)]
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(('cores', 'given'), [('12', ['--cpus-per-task=12']), ('', [])])
def test_processes_get_the_cores_that_the_job_has(cores, given, tmp_path):
  """Since Slurm 22.05 srun begins a step with one core a process unless it is told."""
  (tmp_path / 'srun').write_text('#!/bin/bash\nprintf "%s\\n" "$@" >> srun.txt\n')
  (tmp_path / 'srun').chmod(0o755)
  text = slurm.script(job_of(directory=str(tmp_path)), run_of('list', preflight=False))
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
def test_a_gpu_has_cores_to_feed_it(fields, cores):
  job = job_of(**fields)
  found = [line for line in slurm.directives(job, run_of('list'), 0) if 'cpus-per-task' in line]
  assert found == [f'--cpus-per-task={cores}'] * (cores > 0)
  told = slurm.parameters(job, run_of('list'))
  assert told.get('cpus_per_task', 0) == cores
  assert (f'export SRUN_CPUS_PER_TASK={cores}' in told['setup']) == (cores > 0)


@pytest.mark.parametrize('field', ['name', 'partition', 'time', 'logs', 'account'])
@pytest.mark.parametrize('value', ['a\n#SBATCH --wrap=x', 'a b', 'a"', "a'", '$(x)', 'a\\'])
def test_options_of_sbatch_cannot_break_out_of_their_line(field, value):
  with pytest.raises(InputError, match='only letters'):
    slurm.script(job_of(**{field: value}), run_of('list'))
  with pytest.raises(InputError, match='only letters'):
    slurm.script(job_of(more=(f'comment={value}',)), run_of('list'))


def test_secrets_go_by_name_and_are_asked_for(monkeypatch, capsys):
  monkeypatch.setenv('WANDB_API_KEY', 'hidden-value')
  assert slurm.main(['--secret=WANDB_API_KEY', '--dry_run', '--', 'list']) == 0
  text = capsys.readouterr().out
  assert 'hidden-value' not in text and ',WANDB_API_KEY\n' in text
  monkeypatch.delenv('WANDB_API_KEY')
  assert slurm.main(['--secret=WANDB_API_KEY', '--', 'list']) == 2
  assert 'export it first' in capsys.readouterr().err
  assert slurm.main(['--secret=WANDB_API_KEY=hidden-value', '--', 'list']) == 2
  assert 'hidden-value' not in capsys.readouterr().err
  assert slurm.main(['--env=WANDB_API_KEY=hidden-value', '--', 'list']) == 2
  error = capsys.readouterr().err
  assert '--secret=WANDB_API_KEY' in error and 'hidden-value' not in error
  for url in (
    'postgresql://me:hidden-value@host/db',
    'redis://:hidden-value@host',
    'x=http://a:hidden-value@b:1/c d',
    'https://me@b.org:hidden-value@host/',
    'https://hidden-value@host/',
    'mysql://me:hidden-/value@host',
    'postgresql://host/db?user=me&password=hidden-value',
    'https://host/?access_token=hidden-value',
  ):
    assert slurm.main([f'--env=STORAGE={url}', '--dry_run', '--', 'list']) == 2
    error = capsys.readouterr().err
    assert '--env=STORAGE: got a URL with a password' in error and '--secret=STORAGE' in error
    assert 'hidden-value' not in error
  for url in ('postgresql://me@host:5432/db', 'gs://bucket/a:b@c', 'http://host:80/a@b?keys=c'):
    assert slurm.main([f'--env=STORAGE={url}', '--dry_run', '--', 'list']) == 0


@pytest.mark.parametrize(
  'argv, message',
  [
    ([], 'give either one lmx command'),
    (['--per_gpu', '--', 'list'], '--per_gpu needs --gpus'),
    (['--env=A', '--', 'list'], 'has no value'),
    (['--env=A B=c', '--', 'list'], 'no name of a variable'),
    (['--commands=no/such/file'], '--commands'),
    (['--commands=commands', '--wait=file'], '--wait is for one lmx command'),
    (['--', 'list'], 'there is no `sbatch` here: run this on a login node'),
  ],
)
def test_bad_input_is_said(argv, message, capsys, monkeypatch):
  monkeypatch.setenv('PATH', '/nowhere')
  assert slurm.main(argv) == 2
  assert message in capsys.readouterr().err


def test_commands_of_a_file():
  lines = ['# a comment', '', 'lmx train --a="x y"', "train '--b=$(z)'  # why"]
  assert command.commands_of(lines) == [('train', '--a=x y'), ('train', '--b=$(z)')]
  with pytest.raises(InputError, match='line 1'):
    command.commands_of(["train 'open"])


# On a real Slurm.


def wait(moment, seconds=60.0):
  """What `moment()` gives once it is true."""
  end = time.monotonic() + seconds
  while not (found := moment()):
    assert time.monotonic() < end, 'waited in vain'
    time.sleep(0.1)
  return found


def free_ports(count):
  sockets = [socket.socket() for _ in range(count)]
  for each in sockets:
    each.bind(('localhost', 0))
  found = [each.getsockname()[1] for each in sockets]
  for each in sockets:
    each.close()
  return found


class Cluster:
  """A Slurm of two nodes, both this machine."""

  def __init__(self, folder: pathlib.Path):
    self.folder, self.host = folder, socket.gethostname().partition('.')[0]
    self.nodes = (self.host, f'{self.host}b')
    self.environment = {**os.environ, 'SLURM_CONF': str(folder / 'slurm.conf')}
    self.daemons: list[subprocess.Popen] = []

  def configure(self) -> None:
    ports = free_ports(4)
    for name in ('state', 'run', *(f'spool-{node}' for node in self.nodes)):
      (self.folder / name).mkdir()
    nodes = [
      f'NodeName={node} NodeHostname={self.host} NodeAddr=127.0.0.1 Port={port} CPUs=2'
      for node, port in zip(self.nodes, ports[2:], strict=True)
    ]
    (self.folder / 'slurm.conf').write_text(f"""
ClusterName=test
SlurmctldHost={self.host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={self.folder}/run/munge,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/run/slurmctld.pid
SlurmdPidFile={self.folder}/run/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=5
{chr(10).join(nodes)}
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")
    (self.folder / 'cgroup.conf').write_text('CgroupAutomount=no\n')
    (self.folder / 'munge.key').write_bytes(os.urandom(1024))
    (self.folder / 'munge.key').chmod(stat.S_IRUSR)

  def start(self) -> None:
    run = self.folder / 'run'
    self.daemon(
      'munged',
      '--foreground',
      '--force',
      f'--key-file={self.folder}/munge.key',
      f'--socket={run}/munge',
      f'--pid-file={run}/munged.pid',
      f'--log-file={run}/munged.log',
      f'--seed-file={run}/seed',
    )
    wait((run / 'munge').exists)
    self.daemon('slurmctld', '-D', '-c')
    for node in self.nodes:
      self.daemon('slurmd', '-D', '-N', node)
    wait(lambda: self.ask('sinfo', '--noheader', '--format=%D %T').strip() == '2 idle')

  def daemon(self, *argv: str) -> None:
    with (self.folder / f'{argv[0]}-{len(self.daemons)}.log').open('w') as log:
      self.daemons.append(subprocess.Popen(argv, env=self.environment, stdout=log, stderr=log))

  def stop(self) -> None:
    self.ask('scancel', f'--user={os.environ.get("USER", "root")}')
    for daemon in reversed(self.daemons):
      daemon.terminate()
    for daemon in reversed(self.daemons):
      try:
        daemon.wait(10)
      except subprocess.TimeoutExpired:
        daemon.kill()

  def ask(self, *argv: str) -> str:
    return subprocess.run(argv, env=self.environment, capture_output=True, text=True, check=False).stdout

  def state(self, job: str) -> str:
    """As in 'FAILED 2:0 1': state, exit code, restarts."""
    words = self.ask('scontrol', 'show', 'job', '--oneliner', job).split()
    found = dict(word.partition('=')[::2] for word in words)
    return f'{found.get("JobState")} {found.get("ExitCode")} {found.get("Restarts")}'

  def ended(self, job: str, seconds=60.0) -> str:
    over = lambda: None if (s := self.state(job)).split()[0] in ('PENDING', 'RUNNING', 'COMPLETING') else s
    return wait(over, seconds)


@pytest.fixture(scope='module')
def cluster(tmp_path_factory):
  search = os.pathsep.join([os.environ['PATH'], '/usr/sbin', '/usr/local/sbin'])
  missing = [name for name in (*DAEMONS, 'sbatch') if not shutil.which(name, path=search)]
  if missing or os.geteuid():
    pytest.skip(f'needs {", ".join(missing) or "the rights of root"}: apt-get install slurm-wlm munge')
  found = Cluster(tmp_path_factory.mktemp('slurm'))
  found.environment['PATH'] = search
  found.configure()
  try:
    found.start()
    yield found
  finally:
    found.stop()


@pytest.fixture
def project(cluster, tmp_path, monkeypatch):
  """A directory to submit from, with a program that stands in for lmx."""
  monkeypatch.setenv('SLURM_CONF', cluster.environment['SLURM_CONF'])
  monkeypatch.setenv('PATH', cluster.environment['PATH'])
  monkeypatch.setenv('WANDB_API_KEY', 'hidden-value')
  monkeypatch.setenv('OTHER_SECRET', 'other-value')
  (tmp_path / 'program').write_text(PROGRAM)
  (tmp_path / 'program').chmod(0o755)
  return tmp_path


def submit(project, *words, commands=(), **more):
  job = slurm.Job(directory=str(project), python=str(project / 'program'), **more)
  return slurm.submit(job, run_of(*words, secrets=('WANDB_API_KEY',)), commands)


def output(project, job) -> str:
  return (project / f'runs/slurm/lmx-{job}.out').read_text()


def test_jobs_end_as_lmx_ends(cluster, project):
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
def test_a_job_goes_back_into_the_queue_as_often_as_asked(cluster, project):
  again, often = submit(project, 'again', '2'), submit(project, 'again', '9')
  assert cluster.ended(again) == 'COMPLETED 0:0 2'
  assert output(project, again).count('back into the queue') == 2
  assert cluster.ended(often) == 'FAILED 75:0 3'


@pytest.mark.slow
def test_notice_is_passed_on_and_the_job_goes_on_and_a_cancelled_one_does_not(cluster, project):
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
def test_an_array_runs_a_command_in_each_element(cluster, project):
  commands = [('exit', str(code), *NASTY) for code in (0, 3, 0)]
  job = submit(project, commands=commands, jobs=2)
  found = [cluster.ended(f'{job}_{i}') for i in range(3)]
  assert found == ['COMPLETED 0:0 0', 'FAILED 3:0 0', 'COMPLETED 0:0 0']
  words = [path.read_text().split('\0')[:-1] for path in project.glob('words-*')]
  assert sorted(words) == sorted([list(each) for each in commands])


def stand_in(project, root, program: str) -> None:
  """A project whose lmx is `program`, beside the real launchers."""
  (project / 'lmx/cli').mkdir(parents=True)
  (project / 'launch').symlink_to(root / 'launch')
  for name in ('__init__.py', 'cli/__init__.py'):
    (project / 'lmx' / name).touch()
  (project / 'lmx/errors.py').symlink_to(root / 'lmx/errors.py')
  (project / 'lmx/cli/main.py').write_text(program)


@pytest.mark.slow
def test_through_submitit(cluster, project, root):
  pytest.importorskip('submitit', reason='submitit is not installed: pip install lmx[slurm]')
  job = slurm.Job(directory=str(project), python=sys.executable, nodes=2)
  stand_in(
    project,
    root,
    'import os, sys\n'
    'print("words", sys.argv[1:], os.environ["LMX_PROCESS_ID"], os.environ["LMX_NUM_PROCESSES"],'
    ' os.environ["LMX_COORDINATOR"].partition(":")[0], os.environ["NOTE"], "WANDB_API_KEY" in os.environ,'
    ' "OTHER_SECRET" in os.environ)\n'
    'sys.exit(0 if os.environ.get("SLURM_RESTART_COUNT") else 75)\n',
  )
  run = run_of('list', *NASTY, env={'NOTE': 'a $(b)'}, secrets=('WANDB_API_KEY',))
  (number,) = slurm.submit_through_submitit(job, run)
  assert cluster.ended(number) == 'COMPLETED 0:0 1'
  said = [line for path in project.rglob('*.out') for line in path.read_text().splitlines()]
  for process in range(2):
    wanted = f'words {["list", *NASTY]} {process} 2 {cluster.host} a $(b) True False'
    assert said.count(wanted) == 2, said


def waiter(project, *words, wait='file', own=(), cwd=None) -> subprocess.Popen:
  """`python -m launch.slurm --wait` in a process of its own."""
  argv = [f'--wait={project / wait}', '--poll=0.3', f'--python={project / "program"}', f'--directory={project}', *own]
  return subprocess.Popen(
    [sys.executable, '-m', 'launch.slurm', *argv, '--', *words],
    stdout=subprocess.PIPE,
    text=True,
    cwd=cwd or pathlib.Path(slurm.__file__).parents[1],
  )


def saying(process: subprocess.Popen, text: str) -> None:
  """Reads what a process says up to a line."""
  while True:
    line = process.stdout.readline()
    assert line, f'it ended without saying {text}'
    if line.strip() == text:
      return


def jobs_of(cluster) -> list[str]:
  return [
    line.split()[0].partition('=')[2]
    for line in cluster.ask('scontrol', 'show', 'job', '-o').splitlines()
    if line.startswith('JobId=')
  ]


def test_waiting_ends_as_lmx_ends(cluster, project):
  """Two at once: one that fails, and one that goes back into the queue first."""
  failed, again = waiter(project, 'exit', '3', wait='a'), waiter(project, 'again', '1', wait='deep/b')
  (said, _), (more, _) = failed.communicate(timeout=120), again.communicate(timeout=120)
  assert (failed.returncode, again.returncode) == (3, 0), (said, more)
  lines = [line for line in said.splitlines() if line.startswith('process')]
  assert lines == ['process 0 of 1, restart 0, secret , other none']
  lines = [line.partition(', secret')[0] for line in more.splitlines() if line.startswith('process')]
  assert lines == ['process 0 of 1, restart 0', 'process 0 of 1, restart 1']
  assert not (project / 'a').exists() and not (project / 'deep/b').exists()
  assert not list((project / 'runs/slurm').glob('.code*'))


# Ends with 75 when it is told.
TOLD = """\
import os, signal, sys, time
def told(*_):
  print("told", flush=True)
  sys.exit(75)
signal.signal(signal.SIGTERM, told)
open(f"words-{os.environ['SLURM_JOB_ID']}", "a").write("begun ")
print("waiting", flush=True)
time.sleep(120)
"""


@pytest.mark.slow
@pytest.mark.parametrize('through', ['sbatch', 'submitit'])
def test_a_waiting_launcher_that_was_killed_takes_up_its_job_and_passes_a_signal_on(cluster, project, root, through):
  own = [f'--through={through}']
  if through == 'submitit':
    pytest.importorskip('submitit', reason='submitit is not installed: pip install lmx[slurm]')
    stand_in(project, root, TOLD)
    own.append(f'--python={sys.executable}')
  more = {'own': own, 'cwd': project if through == 'submitit' else None}
  before = jobs_of(cluster)
  first = waiter(project, 'wait', **more)
  saying(first, 'waiting')
  first.kill()
  first.communicate()
  second = waiter(project, 'wait', **more)
  time.sleep(2)
  assert second.poll() is None
  second.send_signal(signal.SIGTERM)
  said, _ = second.communicate(timeout=60)
  assert second.returncode == 75 and 'told' in said.split(), said
  (number,) = set(jobs_of(cluster)) - set(before)
  assert cluster.ended(number).endswith(' 0')  # and not once more into the queue
  assert not (project / 'file').exists() and not list((project / 'runs/slurm').glob('.code*'))


@pytest.mark.slow
def test_what_slurm_ends_has_a_code_too(cluster, project):
  """Cancelled by hand, cancelled while it waits in the queue, deaf to the first signal, and gone from the cluster."""
  hand, deaf = waiter(project, 'wait', wait='a'), waiter(project, 'deaf', wait='b')
  queued = waiter(project, 'exit', '0', wait='c', own=['--sbatch=begin=now+600'])
  saying(hand, 'waiting')
  saying(deaf, 'waiting')
  cluster.ask('scancel', json.loads((project / 'a').read_text())['job'])
  deaf.send_signal(signal.SIGTERM)
  wait(lambda: (project / 'c').exists())
  queued.send_signal(signal.SIGTERM)
  said, _ = hand.communicate(timeout=60)
  assert hand.returncode == command.INTERRUPTED and 'ended as CANCELLED' in said, said
  queued.communicate(timeout=60)
  assert queued.returncode == 75
  assert deaf.poll() is None
  deaf.send_signal(signal.SIGTERM)
  deaf.communicate(timeout=60)
  assert deaf.returncode == 75
  (project / 'd').write_text(json.dumps({'job': '99999', 'says': [], 'kept': str(project / 'no'), 'through': 'sbatch'}))
  gone = waiter(project, 'exit', '0', wait='d')
  said, _ = gone.communicate(timeout=60)
  assert gone.returncode == 75 and 'ended as nobody knows' in said


EXPERIMENT = """
from experiments import config
from experiments.rnn_lm import quickstart


def get_config(arg=''):
  return quickstart.get_config('tiny')


def sweep():
  yield from config.grid(optim__lr=[0.1, 0.01, 0.001, 0.5])
"""


@pytest.mark.slow
def test_a_sweep_of_jobs_that_is_killed_runs_every_trial_once(cluster, project, root):
  """SIGKILL to the sweep, and to one of the launchers that wait for its jobs."""
  pytest.importorskip('optuna', reason='needs the extra `sweep`')
  (project / 'bar.py').write_text(EXPERIMENT)
  child = shlex.join([sys.executable, str(root / 'tests/launch/sweep_child.py')])
  (project / 'program').write_text(f'#!/bin/sh\nshift 2\nexec {child} "$@"\n')
  options = f'--python={project}/program --directory={root} --logs={project}/logs --poll=0.3 --no-preflight'
  argv = [
    f'--config={project}/bar.py',
    f'--workdir={project}/sweep',
    '--poll=0.2',
    '--jobs=2',
    '--where=slurm',
    f'--launch={options} --name=worker{{job}}',
    '--env=SLOT={job}',
    '--env=CHILD=' + json.dumps({'steps': 12, 'seconds': 0.4}),
  ]
  before = jobs_of(cluster)
  start = lambda: subprocess.Popen(
    [sys.executable, '-m', 'launch.sweep', *argv], cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
  )
  process, trials = start(), project / 'sweep/trials'
  wait(lambda: len(list(trials.glob('*/metrics.jsonl'))) == 2 or process.poll() is not None, 120)
  process.kill()
  assert len(list(trials.glob('*/metrics.jsonl'))) == 2, process.communicate()
  os.kill(int((trials / '0001/.job').read_text()), signal.SIGKILL)
  process.communicate()
  process = start()
  said, _ = process.communicate(timeout=300)
  assert process.returncode == 0 and '4/4 trials' in said, said
  for number in range(4):
    folder = trials / f'{number:04d}'
    assert len((folder / 'begun.txt').read_text().splitlines()) == 1, said
    assert (folder / 'steps.txt').read_text().split() == [str(step) for step in range(1, 13)]
    assert not (folder / '.launched').exists()
  numbers = set(jobs_of(cluster)) - set(before)
  assert len(numbers) == 4
  names = {
    word
    for number in numbers
    for word in cluster.ask('scontrol', 'show', 'job', '-o', number).split()
    if word.startswith('JobName=')
  }
  assert names == {'JobName=worker0', 'JobName=worker1'}


def test_what_submitit_tells_lmx_of_the_others(monkeypatch):
  assert submitted.cluster({'SLURM_NTASKS': '1'}, False) == {}
  assert submitted.cluster({'SLURM_NTASKS': '8'}, True) == {'LMX_COORDINATOR': 'auto'}


@pytest.mark.slow
def test_a_training_of_two_nodes_is_that_of_one(cluster, project, root):
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
  job = slurm.Job(directory=str(root), python=sys.executable, nodes=2, logs=os.path.relpath(project, root))
  number = slurm.submit(job, run_of(*words, f'--workdir={project}/two', env=env))
  assert cluster.ended(number, 400) == 'COMPLETED 0:0 0', (project / f'lmx-{number}.out').read_text()
  assert 'all-reduce' in (project / f'lmx-{number}.out').read_text()
  one = [sys.executable, '-m', 'lmx.cli.main', *words, f'--workdir={project}/one']
  subprocess.run(one, cwd=root, env={**os.environ, **env, 'PYTHONPATH': str(root)}, check=True, capture_output=True)
  found = [manager.restore_params(project / name / 'checkpoints', None, 'last')[0] for name in ('one', 'two')]
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), *found)


def test_starts_without_jax(root):
  code = 'import sys, launch.slurm, launch.submitted; sys.exit("jax" in sys.modules or "numpy" in sys.modules)'
  assert subprocess.run([sys.executable, '-c', code], cwd=root, check=False).returncode == 0
