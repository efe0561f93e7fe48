"""Cloud TPU VM: its gcloud commands, and the shell scripts of its hosts. Imports no JAX."""

from __future__ import annotations

import dataclasses
import re

from launch import accelerators
from lmx.errors import InputError

# Ubuntu 22.04's own python3.11 is a release candidate. Shortly after boot another program may hold apt's lock.
INSTALL = r"""
set -e
cd "$HOME"
test -e {folder}/.installed && exit 0
tar xzf {folder}.tar.gz
python=
for each in python3.13 python3.12 python3.11; do
  if "$each" -c 'import ensurepip, sys; sys.exit(sys.version_info.releaselevel != "final")' 2> /dev/null; then
    python="$each"
    break
  fi
done
if [ -z "$python" ]; then
  sudo add-apt-repository -y -n ppa:deadsnakes/ppa
  sudo apt-get -o DPkg::Lock::Timeout=600 update -qq
  sudo apt-get -o DPkg::Lock::Timeout=600 install -y -qq python3.12 python3.12-venv
  python=python3.12
fi
"$python" -m venv {folder}/.venv
cd {folder}
.venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tpu,gcs]'
touch .installed
""".strip()

# A comment in the script names the run, for checking a process's arguments. {taken} is TAKEN or empty.
START = r"""
{secrets}cd "$HOME/{folder}" || exit 2
mkdir -p .run
if [ -e .run/pid ] && grep -qs lmx.cli.main "/proc/$(cat .run/pid)/cmdline"; then
  if grep -qs 'run {run}' "/proc/$(cat .run/pid)/cmdline"; then exit 0; fi
  echo 'another run of lmx is on this machine; give another --name' >&2
  exit {busy}
fi
{taken}rm -f .run/code
echo {run} > .run/run
setsid nohup bash -c {script} > .run/log 2>&1 < /dev/null &
echo "$!" > .run/pid
""".strip()
BUSY = 98

# A resumed run that has ended since is not started again.
TAKEN = r"""
if [ -e .run/code ] && [ "$(cat .run/run)" = {run} ]; then exit 0; fi
""".lstrip()

SCRIPT = r"""
trap : TERM  # run {run}
{exports}{check}{command}
code=$?
echo "$code" > .run/part && mv .run/part .run/code
""".strip()

# Lines from {line} on are numbered, so that no line is printed twice after a reconnection. By grep, because mawk,
# Ubuntu's awk, buffers 4 KiB.
FOLLOW = r"""
cd "$HOME/{folder}/.run" || exit 2
pid="$(cat pid)"
tail -n +{line} --pid="$pid" -f log | grep --text --line-buffered --line-number ''
if [ -e code ] && [ "$(cat run)" = {run} ]; then exit "$(cat code)"; fi
exit 137
""".strip()

STOP = 'cd "$HOME/{folder}/.run" && kill -{signal} -- "-$(cat pid)"'


@dataclasses.dataclass(frozen=True)
class Machine:
  """TPU VM.

  Attributes:
    name, zone, project: identity of the machine; project '' is gcloud's own.
    accelerator: type of TPU VM, such as 'v5litepod-16'.
    version: software version, '' for the default.
    queued: request a queued resource, which waits for capacity.
    spot: preemptible machine.
    reserved: machine of a reservation.
    internal: connect by internal addresses.
    service_account, network, subnetwork: as in gcloud, '' to leave out.
  """

  name: str
  zone: str
  accelerator: str
  project: str = ''
  version: str = ''
  queued: bool = False
  spot: bool = False
  reserved: bool = False
  internal: bool = False
  service_account: str = ''
  network: str = ''
  subnetwork: str = ''

  def __post_init__(self):
    if not re.fullmatch(r'[a-z]([a-z0-9-]{0,60}[a-z0-9])?', self.name):
      raise InputError(f'--name: got "{self.name}"; expected small letters, digits and -, a letter first')
    accelerators.find(self.accelerator, pool=False)

  def gcloud(self, kind: str, verb: str, *more: str, about: str = '') -> list[str]:
    """Return a command of `gcloud compute tpus` about this machine, or about `about`."""
    where = [f'--zone={self.zone}', *([f'--project={self.project}'] if self.project else []), '--quiet']
    return ['gcloud', 'compute', 'tpus', kind, verb, *([about] if about else [self.name]), *where, *more]

  def create(self) -> list[str]:
    """Return the command that creates it."""
    version = self.version or accelerators.find(self.accelerator, pool=False).runtime
    options = [f'--accelerator-type={self.accelerator}']
    options += [
      f'--{name.replace("_", "-")}={getattr(self, name)}'
      for name in ('service_account', 'network', 'subnetwork')
      if getattr(self, name)
    ]
    options += [f'--{name}' for name in ('spot', 'reserved') if getattr(self, name)]
    if self.queued:
      return self.gcloud(
        'queued-resources', 'create', f'--node-id={self.name}', f'--runtime-version={version}', *options
      )
    return self.gcloud('tpu-vm', 'create', f'--version={version}', *options)

  def delete(self) -> list[str]:
    """Return the command that deletes it."""
    if self.queued:
      return self.gcloud('queued-resources', 'delete', '--force')
    return self.gcloud('tpu-vm', 'delete')

  def ssh(self, worker: int | str, text: str) -> list[str]:
    """Return the command that runs a shell script on one host, or on 'all'."""
    inside = ['--internal-ip'] if self.internal else []
    return self.gcloud('tpu-vm', 'ssh', f'--worker={worker}', *inside, f'--command={text}')

  def scp(self, file: str) -> list[str]:
    """Return the command that copies a file to the home of all hosts."""
    inside = ['--internal-ip'] if self.internal else []
    base = self.gcloud('tpu-vm', 'scp', '--worker=all', *inside, about=file)
    return [*base[: base.index(file) + 1], f'{self.name}:', *base[base.index(file) + 1 :]]
