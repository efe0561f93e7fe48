"""`--wait=FILE` of launchers by ssh: start a run and wait for its end, recorded in FILE. Imports no JAX."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from typing import Any

from launch import command
from launch.remote.job import LOST, Launch, find_commit
from launch.wait import SignalCounter, open_record


def wait(machines: Any, run: command.Run, args: argparse.Namespace) -> int:
  """Start the run, or resume the recorded one, and wait for its end; return the exit code of lmx."""
  with open_record(pathlib.Path(args.wait), {'name': str, 'commit': str}) as record:
    fields = record.fields
    machines = dataclasses.replace(machines, name=fields.get('name', machines.name))
    commit = fields.get('commit') or find_commit(command.Runner(), args.commit)
    launch = Launch(machines, run, commit, args.logs, args.poll)
    launch.resumed, launch.runner.detached = bool(fields), True
    with SignalCounter(lambda count: launch.forward_signals()) as launch.signals:
      if 'code' not in fields:
        record.write(name=machines.name, commit=launch.commit)
        code = launch.run_to_end()
        again = code == LOST or launch.signals.count and command.is_restartable(code)
        record.write(code=command.PREEMPTED if again else code)
    if args.delete:
      machines.delete(launch.runner)
    code = record.fields['code']
    record.remove()
    return code
