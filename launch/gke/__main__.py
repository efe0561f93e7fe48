"""Train on Google Kubernetes Engine: a JobSet with Kueue's labels, by `kubectl`, or the same by `xpk`.

  python -m launch.gke --name=gpt2 --image=IMAGE --accelerator=v6e-16 --slices=2 --queue=QUEUE -- train --config=... --workdir=gs://...
  python -m launch.gke --name=gpt2 --image=IMAGE --accelerator=h100-80gb-8 --nodes=4 --queue=QUEUE -- train ...

IMAGE has lmx, with the project as its directory; the Dockerfile of this repository builds one. The cluster has JobSet
and Kueue. If a pod exits with code 75 or by a signal, or is preempted, all restart, up to --restarts times; any other
code ends the JobSet. A secret is the key of its name in the cluster's Secret --secrets_of:

  kubectl create secret generic lmx --from-env-file=<(printenv | grep ^WANDB_API_KEY=)

Several machines with 8 H100, H200 or B200 get NCCL's settings of the platform's examples (TCPX, TCPXO, RDMA) and its
networks (vpc1... or rdma-0...); --networks names others.

A JobSet of the same --name that has ended is deleted first, so the same command resumes its run; one that has not ended
is kept, and the command refused. `xpk` deletes none: `xpk workload delete` does.

With --wait=FILE the launcher waits for the end (launch/wait.py) and deletes the JobSet. --dry_run prints the
manifest, with --through=xpk the command line. Imports no JAX.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from launch import command, compile_first
from launch.gke.job import Job, start
from launch.gke.wait import Waiter
from launch.wait import check_outputs, keep_output, submit_and_wait
from lmx import ranges
from lmx.console import Console


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code."""
  return command.run_main('gke', lambda streams: _main(argv, streams), argv is None)


def _main(argv: Sequence[str] | None, streams: Console) -> int:
  own, words = command.split(argv)
  args = parser().parse_args(own)
  command.require_command(words)
  check_outputs(words, 'gke')
  job = Job(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Job)})
  run = command.parse_run(args, words, job.machine)
  keep_output(streams, args)
  if args.compile_first:
    number = max(job.slices, job.nodes)  # one of them is 1
    compile_first.check(words, job.machine, number, args.flags, dry_run=run.dry_run)
  if args.wait and not run.dry_run:
    command.search_path('kubectl')
    return submit_and_wait('gke', Waiter(job, run, args.through, args.cluster), args.wait, args.poll)
  start(job, run, args.through, args.cluster)
  return 0


def parser() -> argparse.ArgumentParser:
  """Return the parser of the launcher's own options."""
  parser = argparse.ArgumentParser(
    prog='python -m launch.gke', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--name', required=True, help='of the JobSet')
  parser.add_argument('--image', required=True, help='container image that holds lmx')
  parser.add_argument('--accelerator', required=True, help='such as v6e-16 or h100-80gb-8')
  parser.add_argument('--slices', type=ranges.integer(1, 100_000), default=1, help='TPU slices that train together')
  parser.add_argument('--nodes', type=ranges.integer(1, 100_000), default=1, help='machines with GPUs')
  for name in ('queue', 'priority', 'namespace', 'service_account'):
    parser.add_argument(f'--{name}', default='', help=f'{name.replace("_", " ")} of the cluster')
  parser.add_argument(
    '--networks', default='', metavar='NAME,...', help="the cluster's networks for NCCL, 'none' for the pods' own"
  )
  parser.add_argument('--spot', action='store_true', help='on machines that can be preempted')
  parser.add_argument(
    '--grace', type=ranges.integer(0, 1_000_000), default=120, help='seconds between SIGTERM and SIGKILL'
  )
  parser.add_argument('--secrets_of', default='lmx', help="the cluster's Secret that holds the values of --secret")
  parser.add_argument('--through', choices=('kubectl', 'xpk'), default='kubectl', help='what creates it')
  parser.add_argument('--cluster', default='', help='name of the cluster, for xpk')
  parser.add_argument('--compile_first', action='store_true', help='start nothing unless the step compiles and fits')
  command.add_arguments(parser)
  return parser


if __name__ == '__main__':
  sys.exit(main())
