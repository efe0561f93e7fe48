"""A simulated cloud with the gcloud of tests/launch/fake_gcloud.py."""

from __future__ import annotations

import json
import subprocess

from launch import command
from launch.tpu_vm.job import Launch
from launch.tpu_vm.machine import Machine

# Stands in for lmx on a host: `-m lmx.cli.main WORDS`.
PROGRAM = """#!/bin/bash
shift 2
starts=$(ls -d "$FAKE_CLOUD/started-$WORKER"-* 2>/dev/null | wc -l)
printf '%s\\0' "$@" > "$FAKE_CLOUD/started-$WORKER-$starts"
echo "worker $WORKER start $starts secret ${WANDB_API_KEY:+given} coordinator $LMX_COORDINATOR note $NOTE"
case "$1" in
  exit) exit "$2" ;;
  again) if [ "$starts" -eq 0 ]; then exit 75; fi ;;
  fail) if [ "$WORKER" -eq 1 ]; then exit 2; fi
    trap 'echo stopped; exit 75' TERM; for i in {1..300}; do sleep 0.1; done ;;
  preempted) if [ "$starts" -eq 0 ]; then sleep 0.5; printf PREEMPTED > "$FAKE_CLOUD/vm"; exit 137; fi ;;
  wait) trap 'echo told; exit 75' TERM; echo waiting; for i in {1..600}; do sleep 0.05; done ;;
  deaf) trap '' TERM; echo waiting; for i in {1..2400}; do sleep 0.05; done ;;
  count) for i in {1..20}; do echo "line $i"; sleep 0.1; done ;;
esac
"""


def machine_of(**more):
  return Machine(**{'name': 'tpu', 'zone': 'us-central1-a', 'accelerator': 'v5litepod-16', **more})


class Cloud:
  """The folder that the fake works on."""

  def __init__(self, folder):
    self.folder = folder

  def calls(self):
    """Kind and verb of each call."""
    return [' '.join(call[2:4]) for call in self.argv()]

  def argv(self):
    return [json.loads(line) for line in (self.folder / 'calls').read_text().splitlines()]

  def launch(self, *words, machine=None, restarts=3, secrets=('WANDB_API_KEY',), **env):
    run = command.Run(words, env, secrets, restarts)
    head = subprocess.run(['git', 'rev-parse', 'HEAD'], capture_output=True, text=True, check=True).stdout.strip()
    return Launch(machine or machine_of(), run, head, poll=0.05)
