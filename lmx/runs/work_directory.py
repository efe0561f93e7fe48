"""Work directory of a training run: check, write and lock its config and data."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import filelock
import jax

from lmx.checkpoint import orbax_format
from lmx.config import resolve as config_lib
from lmx.config import run_files, semantics
from lmx.engine import distributed
from lmx.errors import InputError, disk_fault, explain
from lmx.runs import origin


def resume_config(config: Any, workdir: Any) -> tuple[Any, list[str]]:
  """Return the config with the rules that the run in `workdir` started with, and a line for each outdated rule.

  Raises:
    InputError: its next updates would follow another rule than its first, or config.json is damaged.
  """
  saved = _read_saved_config(workdir)
  if saved is None:
    return config, []
  finished = (workdir / 'results.json').exists()
  fixed = semantics.fixed_since(saved)
  if fixed and not finished:
    raise InputError(
      f'--workdir: {workdir} holds a run that started before a fix of its computation: '
      f'{"; ".join(fixed)}. It cannot continue under another rule; start a new run in another '
      '--workdir, or finish it with the lmx version that started it'
    )
  notes = [
    f'continues under its earlier rule "{name}" (since then: {rule.fix})'
    for name, rule in semantics.earlier_rules(saved).items()
    if not finished
  ]
  config = config_lib.with_saved_rules(config, saved)
  changes = config_lib.evaluation_changes(saved, config)
  if finished:
    return config, [f'{line}; results.json stays as it is, `lmx evaluate` measures it' for line in changes]
  return config, notes + changes


def _read_saved_config(workdir: Any) -> Any:
  """Return the resolved config of the run in `workdir`, None if there is none. Raises InputError if it is damaged."""
  # Resolved, so that a run continues under a later lmx whose configs have more fields.
  return config_lib.resolve(run_files.read_config(workdir), saved=True) if run_files.exists(workdir) else None


def check(workdir: Any, config: Any, corpus: Any) -> None:
  """Check that the run in `workdir` has this config and data. Raises InputError, also if its files are damaged."""
  saved = _read_saved_config(workdir)
  if saved is None:
    return
  config_lib.check_same(saved, config, workdir)
  recorded = run_files.read_data(workdir)['hash']
  if recorded != corpus.hash:
    raise InputError(f'{workdir} was trained on other data (hash {recorded}, now {corpus.hash})')
  run_files.read_tokenizer(workdir)  # verified before the first update


def check_stage(workdir: Any, config: Any, directory: str) -> list[str]:
  """Check that the run in `workdir` has this config, from its own records; the data may be gone.

  Args:
    workdir: work directory of the run.
    config: resolved config.
    directory: folder that may have been moved since; paths in it match if their ends match.

  Returns:
    A line for each setting of the evaluation that differs.

  Raises:
    InputError: it has another config, or its files are damaged.
  """
  config, notes = resume_config(config, workdir)
  saved, settings = _read_saved_config(workdir), config.to_dict()
  for section, name in (('train', 'init_from'), ('data', 'tokenizer_path')):
    old, new = saved[section][name], settings[section][name]
    if new.startswith(directory) and old.endswith(new.removeprefix(directory)):
      settings[section][name] = old
  config_lib.check_same(saved, config_lib.with_records(settings, saved, workdir), workdir)
  return notes


def create(workdir: Any, config: Any, corpus: Any, init_from: str = '') -> None:
  """Write the config, the data manifest, the tokenizer and their checksums, if they are missing.

  Args:
    workdir: the work directory.
    config: resolved config.
    corpus: the data.
    init_from: the run whose parameters the run begins from, '' for none.
  """
  try:
    if jax.process_index() == 0 and not run_files.add_missing(workdir):
      origin.write(workdir, [init_from] if init_from else [])
      run_files.write(workdir, config.to_dict(), {'hash': corpus.hash, **corpus.manifest}, corpus.tokenizer)
  except OSError as error:
    raise InputError(f'cannot use work directory {workdir}: {explain(error)}') from None
  distributed.barrier('workdir')


@contextlib.contextmanager
def watch(workdir: Any) -> Iterator[None]:
  """Raise InputError for any failure inside if the work directory was deleted during the run, or its disk fails."""
  try:
    yield
  except Exception as error:
    if run_files.exists(workdir):
      if fault := disk_fault(error, os.fspath(workdir)):
        raise InputError(f'--workdir: {fault}; then start the same command again') from error
      raise
    for folder in (workdir / 'checkpoints', workdir):
      with contextlib.suppress(OSError, ValueError):  # ValueError: not empty
        folder.rmdir()  # recreated, empty, by a checkpoint write in progress
    raise InputError(
      f'--workdir: {workdir} was deleted during the run ({orbax_format.short(error)}); restart in another'
    ) from error


@contextlib.contextmanager
def lock(workdir: Any) -> Iterator[None]:
  """Lock a work directory for the duration of the block; one on a bucket cannot be locked.

  Raises:
    InputError: another process trains there.
  """
  with contextlib.ExitStack() as stack:
    if jax.process_index() == 0 and '://' not in os.fspath(workdir):
      try:
        stack.enter_context(filelock.FileLock(workdir / '.lock', blocking=False))
      except filelock.Timeout:
        raise InputError(
          f'{workdir} is in use by another training process; wait until it ends, or choose another --workdir'
        ) from None
      except (OSError, RuntimeError):
        pass  # a file system without locks
    yield
