"""Runs as `restore.load` returns them, of a config and given parameters, for tests that need no training."""

from __future__ import annotations

from etils import epath

from lmx.config import resolve
from lmx.data.tokenizers.characters import Bytes
from lmx.models import registry
from lmx.runs.restore import RestoredRun

BYTES = Bytes(eos=True)


def load(path: str, *overrides: str, tokenizer=BYTES, params=None, workdir='run', step=0) -> RestoredRun:
  """Return the run of an experiment with the vocabulary of `tokenizer`."""
  config = resolve.load(path, overrides)
  run = resolve.to_run(config, tokenizer.vocab_size)
  model = registry.get(run.model_name)
  return RestoredRun(model, run.model, params, tokenizer, config, run, step, epath.Path(workdir))
