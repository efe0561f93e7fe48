"""Shell scripts of a host: install the code, start lmx, follow its output, stop it. Imports no JAX."""

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
