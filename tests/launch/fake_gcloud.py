"""Stands in for gcloud in tests of launch.tpu_vm and launch.gce: notes each call, answers as gcloud (recorded 2026).

$FAKE_CLOUD is a folder: `calls` has a line of JSON for each call, `vm` and `queued` the state of the machines and of
the queued resource where there are any, `hosts` the number of hosts of a slice, `slices` the number of slices,
`worker-N` is the home of a host. What is sent to a host by ssh is run by bash there. Of Compute Engine, `template` and
`policy` exist once created, and `group-NAME` has the template of a managed instance group, whose instances are in the
state `vm`.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence

ROOT = pathlib.Path(os.environ['FAKE_CLOUD'])
VM, QUEUED = ROOT / 'vm', ROOT / 'queued'
# Brings a venv whose python is $FAKE_CLOUD/program.
PYTHON = """#!/bin/bash
if [ "$1" = -c ]; then exit 0; fi  # a released Python
mkdir -p "$3/bin"
printf '#!/bin/bash\\nexec "$FAKE_CLOUD/program" "$@"\\n' > "$3/bin/python"
printf '#!/bin/bash\\necho "$PWD $*" >> "$FAKE_CLOUD/pip"\\n' > "$3/bin/pip"
chmod +x "$3/bin/python" "$3/bin/pip"
"""
# The metadata server of Compute Engine, which names the workers of the first slice.
METADATA = '#!/bin/bash\necho tpu-0-w0,tpu-0-w1\n'


def main(argv: list[str]) -> int:
  """One call."""
  with (ROOT / 'calls').open('a') as file:
    file.write(json.dumps(argv) + '\n')
  assert argv[0] == 'compute', argv
  return tpu(argv[2:]) if argv[1] == 'tpus' else compute_engine(argv[1:])


def tpu(words: list[str]) -> int:
  """A call of `gcloud compute tpus`."""
  kind, verb, *rest = words
  options = options_of(rest)
  hosts = int((ROOT / 'hosts').read_text())
  if (kind, verb) == ('tpu-vm', 'describe'):
    return described(
      VM,
      'nodes',
      lambda state: {
        'acceleratorType': (ROOT / 'accelerator').read_text(),
        'state': state,
        'networkEndpoints': [{'ipAddress': f'10.0.0.{i}', 'port': 8470} for i in range(hosts)],
      },
    )
  if (kind, verb) == ('queued-resources', 'describe'):
    answer = described(QUEUED, 'queuedResources', lambda state: {'state': {'state': state}})
    following = {'WAITING_FOR_RESOURCES': 'PROVISIONING', 'PROVISIONING': 'ACTIVE'}
    if QUEUED.exists() and QUEUED.read_text() in following:
      QUEUED.write_text(following[QUEUED.read_text()])
      if QUEUED.read_text() == 'ACTIVE':
        created()
    return answer
  if (kind, verb) == ('tpu-vm', 'create'):
    return created()
  if (kind, verb) == ('queued-resources', 'create'):
    QUEUED.write_text('WAITING_FOR_RESOURCES')
    return 0
  if verb == 'delete':
    if not (QUEUED if kind == 'queued-resources' else VM).exists():
      return absent('nodes')
    return deleted(VM, QUEUED)
  first = hosts * number_of(rest[0] if verb == 'ssh' else next(word for word in rest if ':' in word).partition(':')[0])
  workers = range(first, first + hosts) if options['worker'] == 'all' else [first + int(options['worker'])]
  return connected(verb, rest, options, workers)


def compute_engine(words: list[str]) -> int:
  """A call of `gcloud compute` about instances."""
  rest = [word for word in words if not word.startswith('--')]
  options, name = options_of(words), rest[-1]
  hosts, group = int((ROOT / 'hosts').read_text()), ROOT / f'group-{name}'
  if words[0] in ('ssh', 'scp'):
    node = rest[1] if words[0] == 'ssh' else next(word for word in rest if ':' in word).partition(':')[0]
    group, _, worker = node.rpartition('-w')
    return connected(words[0], rest[1:], options, [hosts * number_of(group) + int(worker)])
  thing = {'instance-templates': ROOT / 'template', 'resource-policies': ROOT / 'policy'}.get(words[0], group)
  if 'delete' in words:
    if not thing.exists():
      return absent(words[0])
    thing.unlink()
    return deleted(VM) if words[0] == 'instance-groups' else 0
  if 'create' in words:
    if thing.exists():
      sys.stderr.write(f"ERROR: (gcloud.compute) Could not fetch resource:\n - '{name}' already exists\n")
      return 1
    thing.write_text(options.get('template', ''))
    if words[0] == 'instance-groups' and not (ROOT / 'full').exists():
      created()
    return 0
  assert 'list-instances' in words, words
  if not group.exists():
    return absent('instanceGroupManagers')
  waits = ROOT / 'waits'  # looks until the instances run
  left = int(waits.read_text()) if waits.exists() else 0
  if left:
    waits.write_text(str(left - 1))
  state = {'currentAction': 'CREATING'} if left else {'currentAction': 'NONE', 'instanceStatus': running()}
  version = {'version': {'instanceTemplate': f'projects/p/global/instanceTemplates/{group.read_text()}'}}
  url = 'https://compute/projects/p/zones/z/instances'
  print(json.dumps([{'instance': f'{url}/{name}-w{i}', **state, **version} for i in reversed(range(hosts))]))
  return 0


def running() -> str:
  return {'READY': 'RUNNING', 'PREEMPTED': 'TERMINATED'}[VM.read_text()] if VM.exists() else 'STAGING'


def options_of(words: list[str]) -> dict[str, str]:
  return dict(word[2:].partition('=')[::2] for word in words if word.startswith('--'))


def number_of(name: str) -> int:
  """Number of the slice of a machine: 1 of tpu-1, 0 of tpu."""
  number = name.rpartition('-')[2]
  return int(number) if number.isdecimal() else 0


def connected(verb: str, rest: list[str], options: dict[str, str], workers: Sequence[int]) -> int:
  """A call of ssh or scp."""
  if verb == 'scp':
    source, target, *_ = rest
    for worker in workers:
      if ':' not in source:
        shutil.copy(source, ROOT / f'worker-{worker}')
      else:
        file = ROOT / f'worker-{worker}' / source.partition(':')[2]
        if (code := on_host(worker, 'true')) or not file.exists():
          return code or 1
        shutil.copy(file, target)
    return 0
  assert verb == 'ssh', verb
  codes = [on_host(worker, options['command']) for worker in workers]
  return next(filter(None, codes), 0)


def absent(collection: str) -> int:
  sys.stderr.write(
    'ERROR: (gcloud.compute) NOT_FOUND: Could not fetch resource:\n'
    f" - The resource 'projects/p/zones/z/{collection}/n' was not found\n"
  )
  return 1


def deleted(*paths: pathlib.Path) -> int:
  for path in paths:
    path.unlink(missing_ok=True)
  for home in ROOT.glob('worker-*'):
    shutil.rmtree(home)
  return 0


def described(path: pathlib.Path, collection: str, answer) -> int:
  if not path.exists():
    return absent(collection)
  print(json.dumps(answer(path.read_text())))
  return 0


def created() -> int:
  VM.write_text('READY')
  slices = int((ROOT / 'slices').read_text()) if (ROOT / 'slices').exists() else 1
  for worker in range(slices * int((ROOT / 'hosts').read_text())):
    folder = ROOT / f'worker-{worker}' / 'bin'
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (('python3.13', PYTHON), ('curl', METADATA)):
      (folder / name).write_text(text)
      (folder / name).chmod(0o755)
  return 0


def on_host(worker: int, text: str) -> int:
  if not VM.exists() or VM.read_text() != 'READY':
    sys.stderr.write('ssh: connect to host 10.0.0.1 port 22: Connection timed out\n')
    return 255
  home = ROOT / f'worker-{worker}'
  keep = ('FAKE_CLOUD', 'LANG', 'TMPDIR')
  env = {name: os.environ[name] for name in keep if name in os.environ}
  env |= {'HOME': str(home), 'WORKER': str(worker), 'PATH': f'{home}/bin:/usr/local/bin:/usr/bin:/bin'}
  child = subprocess.Popen(['bash', '-c', text], env=env, cwd=home)
  breaks = ROOT / f'break-{worker}'  # the connection is to break after so many seconds, once
  if 'tail -n' in text and breaks.exists():
    seconds = float(breaks.read_text())
    breaks.unlink()
    try:
      return child.wait(seconds)
    except subprocess.TimeoutExpired:
      child.kill()
      return 255
  code = child.wait()
  return code if VM.exists() and VM.read_text() == 'READY' else 255


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
