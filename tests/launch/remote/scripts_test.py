"""The shell scripts of a host, with stand-ins for programs."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from launch.remote.scripts import INSTALL


def on_a_host(folder, text, **programs):
  """Runs a shell's text with stand-ins for programs, on a host that has no Python; returns the calls of sudo."""
  (folder / 'bin').mkdir()
  sudo = '#!/bin/bash\necho "$*" >> "$HOME/sudo.txt"\ncp "$HOME/released" "$HOME/bin/python3.12"\n'
  for name, program in {'sudo': sudo, **programs}.items():
    (folder / 'bin' / name).write_text(program)
    (folder / 'bin' / name).chmod(0o755)
  for name in ('bash', 'cp', 'mkdir', 'chmod', 'touch', 'tar'):
    (folder / 'bin' / name).symlink_to('/bin/true' if name == 'tar' else shutil.which(name))
  subprocess.run(['bash', '-c', text], check=True, env={'HOME': str(folder), 'PATH': str(folder / 'bin')})
  return (folder / 'sudo.txt').read_text().splitlines() if (folder / 'sudo.txt').exists() else []


@pytest.mark.parametrize('released', [True, False])
def test_released_python_is_used_and_the_lock_of_apt_is_waited_for(released, tmp_path):
  text = INSTALL.format(folder='code')
  (tmp_path / 'code').mkdir()
  venv = 'mkdir -p code/.venv/bin; printf "#!/bin/bash\\n" > code/.venv/bin/pip; chmod +x code/.venv/bin/pip\n'
  python = lambda code, name: f'#!/bin/bash\nif [ "$1" = -c ]; then exit {code}; fi\necho {name} > used.txt\n{venv}'
  (tmp_path / 'released').write_text(python(0, 'new'))
  (tmp_path / 'released').chmod(0o755)
  called = on_a_host(tmp_path, text, **{'python3.11': python(0 if released else 1, 'old')})
  assert (tmp_path / 'used.txt').read_text().strip() == ('old' if released else 'new')
  names = [] if released else ['add-apt-repository', 'apt-get', 'apt-get']
  assert [line.partition(' ')[0] for line in called] == names
  assert all('-o DPkg::Lock::Timeout=600 ' in line for line in called if line.startswith('apt-get'))
