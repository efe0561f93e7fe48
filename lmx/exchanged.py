"""Weights that others trained become a run, and a run becomes a folder that others load.

An imported run is a work directory like any other: it is loaded, measured, written with, and named in
`train.init_from`. It has made no updates.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict

from lmx import checkpoint, log, restored
from lmx import config as config_lib
from lmx.data import tokenizers
from lmx.errors import InputError
from lmx.interop import huggingface, openai
from lmx.interop.huggingface import folder as folders
from lmx.models import registry

HUB = 'hub:'


def import_run(source: str, workdir: Any, overrides: Iterable[str] = ()) -> list[str]:
  """Makes a work directory of a folder of Hugging Face's (lmx/interop/huggingface/folder.py), or of GPT's release.

  Args:
    source: the folder, or 'hub:NAME' to fetch one from huggingface.co.
    workdir: where; it must not be there, or be empty. It appears whole or not at all.
    overrides: `section.key=value`, such as model.attention=xla.

  Returns:
    Lines that say what was read, and what of the model the files did not hold and is drawn anew.

  Raises:
    InputError: see `folder.read`; tensors missing, unknown or of another shape; a vocabulary larger than the model's.
  """
  workdir = epath.Path(workdir)
  if workdir.exists() and (not workdir.is_dir() or any(workdir.iterdir())):
    raise InputError(f'{workdir} is there already; choose another --workdir')
  directory = fetch(source.removeprefix(HUB)) if source.startswith(HUB) else source
  released = (epath.Path(directory) / openai.SHAPES).exists()
  folder = openai.read(directory) if released else folders.read(directory)
  tokenizer = tokenizers.read(folder.tokenizer, str(directory), lower_case=folder.lower_case)
  config = config_lib.resolve(_config(folder, str(workdir / 'tokenizer')), overrides)
  run = config_lib.to_run(config, tokenizer.vocab_size)
  found = huggingface.from_hf(folder.name, run.model, folder.tensors)
  if not found['objective'] and 'next_sentence' in config.objective:
    config.unlock()
    config.objective.next_sentence = False
    run = config_lib.to_run(config.lock(), tokenizer.vocab_size)
  params, drawn = _complete(run, found)
  part = workdir.parent / f'{workdir.name}.part{os.getpid()}'
  try:
    tokenizer.save(str(part / 'tokenizer'))
    with checkpoint.Checkpoints(part / 'checkpoints') as checkpoints:
      checkpoints.save(0, {'params': params}, {'versions': log.versions(), 'imported_from': source}, block=True)
    record = {'hash': '', 'imported_from': source, 'label_names': []}
    (part / 'data.json').write_text(json.dumps(record, indent=1) + '\n')
    (part / 'config.json').write_text(json.dumps(config.to_dict(), indent=1) + '\n')
    if workdir.exists():
      workdir.rmdir()
    part.rename(workdir)
  except OSError as error:
    raise InputError(f'{workdir} cannot be written: {error}') from None
  finally:
    if part.exists():
      part.rmtree()
  sizes = [np.size(x) for x in jax.tree.leaves(params)]
  lines = [f'{folder.name} with {sum(sizes):,} parameters in {len(sizes)} arrays, {tokenizer.vocab_size:,} entries of '
           f'{tokenizer.kind}']  # fmt: skip
  return lines + ([f'not in the files, so drawn anew: {", ".join(drawn)}'] if drawn else [])


def _config(folder: folders.Folder, tokenizer: str) -> dict[str, Any]:
  """What an imported run is configured as; nothing is trained, and data is named when it is measured."""
  variants = registry.get(folder.name).VARIANTS
  named = (name for name, sizes in variants.items() if all(folder.fields.get(k) == v for k, v in sizes.items()))
  length = min(folder.fields['T'], 512)
  return {
    'name': f'{folder.name}_imported',
    'model': {'name': folder.name, 'variant': next(named, next(iter(variants))), **folder.fields},
    'data': {
      'tokenizer': folder.tokenizer, 'tokenizer_path': tokenizer, 'lower_case': folder.lower_case,
      'batching': 'windows' if registry.get(folder.name).CAUSAL else 'pairs', 'length': length, 'batch_size': 8,
    },
    'train': {'steps': 1},
  }  # fmt: skip


def _complete(run: config_lib.Run, found: dict[str, Any]) -> tuple[Any, list[str]]:
  """(parameters of the run, those that are not found drawn anew; the parts that are drawn)."""
  key = jax.random.key(run.seed)
  wanted = jax.eval_shape(lambda: restored.init_params(run, key))
  there = flatten_dict(found)
  missing = sorted({'/'.join(path[:2]) for path in flatten_dict(wanted) if path not in there})
  return (restored.merged(restored.init_params(run, key), found) if missing else found), missing


def fetch(name: str) -> str:
  """Downloads a model's files from huggingface.co, or finds them in its cache; InputError without a network."""
  from huggingface_hub import errors, snapshot_download

  try:
    return snapshot_download(name, allow_patterns=list(folders.NEEDED))
  except (errors.HfHubHTTPError, errors.HFValidationError, errors.LocalEntryNotFoundError, OSError) as error:
    short = str(error).strip().splitlines()[0]
    raise InputError(f'{name} could not be fetched from huggingface.co ({short}); where there is no network, give a '
                     'folder with its files instead') from None  # fmt: skip


def export_run(workdir: Any, to: str, which: str | int = 'best') -> list[str]:
  """Writes a run's weights, config and tokenizer as a folder that transformers loads.

  Args:
    workdir: the run.
    to: the folder; it must not be there, or be empty.
    which: see `lmx.restored.load`.

  Returns:
    Lines that say what was written.

  Raises:
    InputError: no run is there, or its model has no such form.
  """
  loaded = restored.load(workdir, which)
  cfg = loaded.cfg if loaded.cfg.V else dataclasses.replace(loaded.cfg, V=loaded.tokenizer.vocab_size)
  names = folders.write(
    to, loaded.run.model_name, cfg, loaded.params, loaded.tokenizer.content(), loaded.run.data.lower_case
  )
  lines = [f'wrote {", ".join(names)} to {to}']
  if 'tokenizer.json' not in names:
    lines.append(f'a tokenizer of kind {loaded.tokenizer.kind} has no form there and was left out')
  return lines

