"""Stands in for kubectl and a cluster in tests/launch/gke/wait_test.py: notes each call and answers as kubectl does.

$FAKE_CLUSTER is a folder: `calls` has a line of JSON for each call, NAME.json a JobSet and NAME.state how far it is.
The container of its first pod is a process of this machine, with $FAKE_CLUSTER/bin before its PATH; as JobSet has it,
it begins again after the codes of its podFailurePolicy, so many times.
"""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(os.environ['FAKE_CLUSTER'])


def main(argv: list[str]) -> int:
  """One call."""
  if argv[0] == 'run':
    return run(argv[1])
  with (ROOT / 'calls').open('a') as file:
    file.write(json.dumps(argv) + '\n')
  if (ROOT / 'down').exists():
    return refuse('Unable to connect to the server: dial tcp 10.0.0.1:443: i/o timeout')
  options = dict(word[2:].partition('=')[::2] for word in argv if word.startswith('--'))
  words = [word for word in argv if not word.startswith('-') and word != 'lab']
  if words[0] == 'create':
    return create()
  if words[0] == 'logs':
    return logs(words[1], options)
  name = words[2] if words[1] == 'jobset' else options['selector'].rpartition('=')[2]
  if words[0] == 'delete':
    return delete(name, words[1], options)
  if words[1] == 'pods':
    print(json.dumps({'kind': 'List', 'items': [pod(name)] if state(name) else []}))
    return 0
  found = state(name)
  if not found:
    return refuse(f'Error from server (NotFound): jobsets.jobset.x-k8s.io "{name}" not found')
  conditions = (
    [
      {
        'type': found['ended'],
        'status': 'True',
        'reason': found['reason'],
        'message': 'jobset ended',
        'lastTransitionTime': '2026-01-01T00:00:00Z',
      }
    ]
    if found['ended']
    else []
  )
  status = {'conditions': conditions, 'restarts': found['restarts']}
  print(json.dumps(json.loads((ROOT / f'{name}.json').read_text()) | {'status': status}))
  return 0


def refuse(message: str) -> int:
  print(message, file=sys.stderr)
  return 1


def state(name: str) -> dict:
  try:
    return json.loads((ROOT / f'{name}.state').read_text())
  except FileNotFoundError:  # never there, or deleted by another process meanwhile
    return {}


def put(name: str, **more) -> None:
  part = ROOT / f'{name}.part'
  part.write_text(json.dumps(state(name) | more))
  part.replace(ROOT / f'{name}.state')


def create() -> int:
  import yaml

  found = yaml.safe_load(sys.stdin)
  name = found['metadata']['name']
  if state(name):
    return refuse(f'Error from server (AlreadyExists): jobsets.jobset.x-k8s.io "{name}" already exists')
  (ROOT / f'{name}.json').write_text(json.dumps(found))
  put(name, restarts=0, ended='', reason='', code=None, pid=0)
  subprocess.Popen(
    [sys.executable, '-S', __file__, 'run', name],
    start_new_session=True,
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  print(f'jobset.jobset.x-k8s.io/{name} created')
  return 0


def run(name: str) -> int:
  """What the cluster does."""
  spec = json.loads((ROOT / f'{name}.json').read_text())['spec']
  job = spec['replicatedJobs'][0]['template']['spec']
  again = job['podFailurePolicy']['rules'][1]['onExitCodes']['values']
  command = [word.replace('$$', '$') for word in job['template']['spec']['containers'][0]['command']]
  for start in range(spec['failurePolicy']['maxRestarts'] + 1):
    env = {'PATH': f'{ROOT}/bin:{os.environ["PATH"]}', 'START': str(start), 'FAKE_CLUSTER': str(ROOT)}
    child = subprocess.Popen(
      command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    put(name, pid=child.pid, restarts=start, code=None)
    (ROOT / f'{name}-{start}.log').touch()
    for line in child.stdout:
      stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec='microseconds').replace('+00:00', '000Z')
      with (ROOT / f'{name}-{start}.log').open('a') as file:
        file.write(f'{stamp} {line}')
    code = child.wait()
    code = code if code >= 0 else 128 - code
    put(name, code=code)
    time.sleep(0.2)
    if deleted(name):
      return 0
    if code not in again:
      break
  reason = 'ReachedMaxRestarts' if code in again else 'FailJobSetFailurePolicyAction' if code else 'AllJobsCompleted'
  put(name, ended='Failed' if code else 'Completed', reason=reason)
  time.sleep(0.1)
  deleted(name)
  return 0


def deleted(name: str) -> bool:
  """Whether a JobSet was told to go while it ran; then it goes."""
  if not (ROOT / f'{name}.deleted').exists():
    return False
  (ROOT / f'{name}.deleted').unlink()
  (ROOT / f'{name}.state').unlink()
  return True


def pod(name: str) -> dict:
  found = state(name)
  code = found['code']
  ended = {'terminated': {'exitCode': code, 'reason': 'Error' if code else 'Completed'}}
  labels = {'jobset.sigs.k8s.io/job-index': '0', 'batch.kubernetes.io/job-completion-index': '0'}
  return {
    'metadata': {'name': f'{name}-slice-0-0-{found["restarts"]}', 'labels': labels},
    'status': {
      'phase': 'Running' if code is None else 'Failed' if code else 'Succeeded',
      'containerStatuses': [{'name': 'lmx', 'state': {'running': {}} if code is None else ended}],
    },
  }


def logs(name: str, options: dict[str, str]) -> int:
  jobset, _, start = name.replace('-slice-0-0', '').rpartition('-')
  path = ROOT / f'{jobset}-{start}.log'
  if not path.exists():
    return refuse(f'Error from server (NotFound): pods "{name}" not found')
  for line in path.read_text().splitlines():
    stamp, _, text = line.partition(' ')
    if stamp[:19] >= options.get('since-time', '')[:19]:  # whole seconds, as the kubelet has it
      print(line if 'timestamps' in options else text)
  return 0


def delete(name: str, what: str, options: dict[str, str]) -> int:
  found = state(name)
  if not found:
    return 0 if 'ignore-not-found' in options or what == 'pods' else refuse('Error from server (NotFound): not found')
  running = found['code'] is None and found['pid']
  if what == 'jobset' and found['ended']:
    (ROOT / f'{name}.state').unlink()
    return 0
  if what == 'jobset':
    (ROOT / f'{name}.deleted').touch()
  if running:
    os.killpg(found['pid'], signal.SIGKILL if what == 'pods' else signal.SIGTERM)
  while options.get('wait') != 'false' and what == 'jobset' and state(name):
    time.sleep(0.05)
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
