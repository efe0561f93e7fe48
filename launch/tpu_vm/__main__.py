"""Train on a Cloud TPU VM: create or reuse the machine, copy the code, start all hosts, follow the log, restart.

  python -m launch.tpu_vm --name=NAME --zone=ZONE --accelerator=v5litepod-16 --delete -- train --config=... --workdir=gs://...

It copies the checked-out commit. lmx runs independently of the connection: training continues if the launcher ends, and
the same command follows it again; with --wait=FILE a signal to the launcher reaches lmx (launch/wait.py). If the
machine is preempted or lmx exits with code 75, the run resumes on a new machine, up to --restarts times. With
--slices=N a queued resource gives N TPU VMs, and all of their hosts train together. When lmx has ended, the logs of all
hosts are copied to --logs. With --delete the machine is then deleted; with --delete and no command, at once. Secrets go
through the connection's standard input. The Cloud TPU API gets only fixes and has no TPU7x: see launch.gce. Imports no
JAX.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from launch import command
from launch.remote import program
from launch.tpu_vm.machine import Machine


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code."""
  return command.run_main('tpu_vm', lambda streams: program.main(Machine, parser(), argv, streams), argv is None)


def parser() -> argparse.ArgumentParser:
  """Return the parser of the launcher's own options."""
  parser = argparse.ArgumentParser(
    prog='python -m launch.tpu_vm', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  for name in ('project', 'version', 'service_account', 'network', 'subnetwork'):
    parser.add_argument(f'--{name}', default='', help='as in gcloud; its own choice without')
  parser.add_argument('--queued', action='store_true', help='ask by a queued resource, which waits for capacity')
  parser.add_argument('--reserved', action='store_true', help='a machine of a reservation')
  program.add_arguments(parser, 'v5litepod-16 or v6e-8')
  return parser


if __name__ == '__main__':
  sys.exit(main())
