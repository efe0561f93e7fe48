"""Train on TPU instances of Compute Engine, the way to TPU7x and later: create, copy, start, follow, restart.

  python -m launch.gce --name=NAME --zone=ZONE --project=PROJECT --accelerator=tpu7x-128 --flex_start=7d -- train ...

A slice is a managed instance group: an instance template has the machine type, and a workload policy the topology of
several hosts. --flex_start=DURATION waits for capacity and rents it for at most that long (up to 7d), --reservation
takes it from a reservation, --spot may lose it. Everything else is as with launch.tpu_vm: the checked-out commit is
copied and installed, training continues if the launcher ends, the same command follows it again, and a lost group is
deleted and created again, up to --restarts times. When lmx has ended, the logs of all hosts are copied to --logs. With
--delete the groups, the template and the policy are then deleted; with --delete and no command, at once. Needs a gcloud
newer than 528.0.0. Never run on Google Cloud by its authors: see docs/launch.md for the checks. Imports no JAX.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from launch import command
from launch.gce.machine import Machine
from launch.remote import program


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code."""
  return command.run_main('gce', lambda streams: program.main(Machine, parser(), argv, streams), argv is None)


def parser() -> argparse.ArgumentParser:
  """Return the parser of the launcher's own options."""
  parser = argparse.ArgumentParser(
    prog='python -m launch.gce', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--project', required=True, help="Google's project")
  parser.add_argument('--flex_start', default='', metavar='DURATION', help='wait for capacity; rent it so long, as 7d')
  parser.add_argument('--reservation', default='', help='name of a reservation to take the machines from')
  parser.add_argument('--disk', default='200GB', help='size of the boot disk')
  for name in ('image', 'service_account', 'network', 'subnetwork'):
    parser.add_argument(f'--{name}', default='', help='as in gcloud; a default without')
  program.add_arguments(parser, 'tpu7x-128, v6e-16 or v5p-8')
  return parser


if __name__ == '__main__':
  sys.exit(main())
