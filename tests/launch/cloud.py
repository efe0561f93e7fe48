"""A simulated cloud with the gcloud of tests/launch/fake_gcloud.py."""

from __future__ import annotations

import json
import subprocess

from launch import command
from launch.gce import machine as gce
from launch.remote.job import Launch
from launch.tpu_vm.machine import Machine

# Stands in for lmx on a host: `-m lmx.cli.main WORDS`.
PROGRAM = """#!/bin/bash
shift 2
starts=$(ls -d "$FAKE_CLOUD/started-$WORKER"-* 2>/dev/null | wc -l)
printf '%s\\0' "$@" > "$FAKE_CLOUD/started-$WORKER-$starts"
echo "worker $WORKER start $starts secret ${WANDB_API_KEY:+given} coordinator $LMX_COORDINATOR note $NOTE"
if [ -n "$MEGASCALE_SLICE_ID" ]; then
  echo "slice $MEGASCALE_SLICE_ID of $MEGASCALE_NUM_SLICES at $MEGASCALE_COORDINATOR_ADDRESS"
fi
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


def slice_of(**more):
  return gce.Machine(
    **{'name': 'tpu', 'zone': 'us-central1-c', 'project': 'lab', 'accelerator': 'tpu7x-16', 'spot': True, **more}
  )


class Cloud:
  """The folder that the fake works on."""

  def __init__(self, folder):
    self.folder = folder

  def calls(self):
    """Kind and verb of each call; of one to Compute Engine all words without options, but the name."""
    return [' '.join(call[2:4] if call[1] == 'tpus' else words_of(call)) for call in self.argv()]

  def argv(self):
    return [json.loads(line) for line in (self.folder / 'calls').read_text().splitlines()]

  def launch(self, *words, machine=None, restarts=3, secrets=('WANDB_API_KEY',), **env):
    run = command.Run(words, env, secrets, restarts)
    head = subprocess.run(['git', 'rev-parse', 'HEAD'], capture_output=True, text=True, check=True).stdout.strip()
    return Launch(machine or machine_of(), run, head, str(self.folder / 'logs'), poll=0.05)


def words_of(call):
  words = [word for word in call[1:] if not word.startswith('--')]
  return words[:1] if words[0] in ('ssh', 'scp') else words[:-1]
