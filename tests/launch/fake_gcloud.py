"""Stands in for gcloud in tests/launch/tpu_vm: notes each call, and answers as gcloud does (recorded 2026).

$FAKE_CLOUD is a folder: `calls` has a line of JSON for each call, `vm` and `queued` the state of the machine and of the
queued resource where there are any, `hosts` their number, `worker-N` is the home of a host. What is sent to a host by
ssh is run by bash there.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

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


def main(argv: list[str]) -> int:
  """One call."""
  assert argv[:2] == ['compute', 'tpus'], argv
  kind, verb, *rest = argv[2:]
  options = dict(word[2:].partition('=')[::2] for word in rest if word.startswith('--'))
  with (ROOT / 'calls').open('a') as file:
    file.write(json.dumps(argv) + '\n')
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
        created(hosts)
    return answer
  if (kind, verb) == ('tpu-vm', 'create'):
    return created(hosts)
  if (kind, verb) == ('queued-resources', 'create'):
    QUEUED.write_text('WAITING_FOR_RESOURCES')
    return 0
  if verb == 'delete':
    for path in (VM, QUEUED):
      path.unlink(missing_ok=True)
    for home in ROOT.glob('worker-*'):
      shutil.rmtree(home)
    return 0
  workers = range(hosts) if options['worker'] == 'all' else [int(options['worker'])]
  if verb == 'scp':
    for worker in workers:
      shutil.copy(rest[0], ROOT / f'worker-{worker}')
    return 0
  assert verb == 'ssh', verb
  codes = [on_host(worker, options['command']) for worker in workers]
  return next(filter(None, codes), 0)


def described(path: pathlib.Path, collection: str, answer) -> int:
  if not path.exists():
    sys.stderr.write(
      'ERROR: (gcloud.compute.tpus.tpu-vm.describe) NOT_FOUND: Resource '
      f"'projects/p/locations/z/{collection}/n' was not found. This command is authenticated as a@b.c\n"
    )
    return 1
  print(json.dumps(answer(path.read_text())))
  return 0


def created(hosts: int) -> int:
  VM.write_text('READY')
  for worker in range(hosts):
    folder = ROOT / f'worker-{worker}' / 'bin'
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'python3.13').write_text(PYTHON)
    (folder / 'python3.13').chmod(0o755)
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
