"""Jobs of the tests of launch/gke, and their manifests against the schema of JobSet, Job and Pod."""

from __future__ import annotations

import json
import pathlib

import jsonschema
import yaml

from launch import command
from launch.gke import job

LAUNCH = pathlib.Path(__file__).parents[1]


def job_of(**more):
  return job.Job(**{'name': 'gpt2', 'image': 'europe-docker.pkg.dev/p/r/lmx:1', 'accelerator': 'v6e-16', **more})


def run_of(*words, **more):
  words = words or ('train', '--config=experiments/gpt2/webtext.py', '--workdir=gs://bucket/runs/a b')
  return command.Run(words, **more)


SCHEMA = jsonschema.Draft202012Validator(json.loads((LAUNCH / 'schemas/jobset.json').read_text())['schema'])


def check(text):
  """The manifest of a YAML text, after the schema of JobSet, Job and Pod."""
  found = yaml.safe_load(text)
  SCHEMA.validate(found)
  return found


def container(found):
  return found['spec']['replicatedJobs'][0]['template']['spec']['template']['spec']['containers'][0]
