"""Checkpoints of a run: saving, restoring, retention, and handling of failed writes and reads.

Each save is one atomic commit (lmx/checkpoint/orbax_format.py). A checkpoint that cannot be read, or whose arrays
differ from their checksums, is never used: `restore` warns, names it and falls back to the previous one.
Retention deletes only after a newer commit is complete. So at least `keep_last` finished checkpoints exist at any
time once that many were written.

A checkpoint is planned if only its step triggered the save, and interim if the clock or a signal did. Interim
checkpoints do not displace planned ones, so an interrupted run leaves the same planned checkpoints as an uninterrupted
one. Checkpoints at given numbers of training words (`at_words`) are never deleted and displace none.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jax.experimental import multihost_utils

from lmx import storage
from lmx.checkpoint import Config, orbax_format
from lmx.checkpoint.orbax_format import Entry, Tree
from lmx.errors import InputError
from lmx.layout import Layout

Which = str | int  # 'last', 'best' or a step
Warn = Callable[[str], None]
Read = Callable[[epath.Path, dict[str, Any]], Any]  # takes a checkpoint's path and JSON

_TRASH = 'deleted_'
_BROADCAST = 64  # maximum number of checkpoints that process 0 broadcasts


class AllDamaged(InputError):
  """All requested checkpoints that exist are damaged."""


def stderr_warn(message: str) -> None:
  """Print a warning to standard error."""
  print(f'warning: {message}', file=sys.stderr, flush=True)


def _absolute(directory: str | os.PathLike[str]) -> epath.Path:
  path = storage.path('--workdir', directory)
  return path if storage.is_remote(path) else path.absolute()


def _best(documents: dict[Entry, dict[str, Any]]) -> list[Entry]:
  """Return the checkpoints with a finite metric, lowest first; ties go to the earlier one, or as they were saved."""
  metrics = {entry: document.get('metric') for entry, document in documents.items()}
  measured = {entry: metric for entry, metric in metrics.items() if metric is not None and math.isfinite(metric)}
  order = {entry: -entry[0] if documents[entry].get('ties') == 'later' else entry[0] for entry in measured}
  return sorted(measured, key=lambda entry: (measured[entry], order[entry], entry))


def _kept(documents: Mapping[Entry, Mapping[str, Any]]) -> dict[Entry, int]:
  """Return the checkpoints that are kept for good, with their numbers of training words, in ascending order."""
  return {entry: documents[entry]['words'] for entry in sorted(documents) if 'words' in documents[entry]}


def kept(workdir: str | os.PathLike[str]) -> list[tuple[int, int]]:
  """Return (step, training words) of each intact checkpoint of `checkpoint.at_words` in a work directory, in order."""
  directory = _absolute(workdir) / 'checkpoints'
  documents, _ = orbax_format.documents(directory, orbax_format.entries(directory))
  return sorted({(step, words) for (step, _), words in _kept(documents).items()})


def step_of(workdir: str | os.PathLike[str], which: Which) -> Which:
  """Return `which` with a step for 'words:N', which `checkpoint.at_words` has kept, and an int for a step in text."""
  text = str(which)
  if not text.startswith('words:'):
    return int(text) if text.isdecimal() else which
  steps = {f'words:{words}': step for step, words in kept(workdir)}
  if text not in steps:
    raise InputError(f'--which: got {text}; expected one of {", ".join(steps) or "none"} in {workdir}')
  return steps[text]


def _planned(documents: dict[Entry, dict[str, Any]]) -> list[Entry]:
  """Return the planned checkpoints in ascending order."""
  return sorted(entry for entry, document in documents.items() if document.get('planned', True))


def planned_steps(directory: str | os.PathLike[str]) -> list[int]:
  """Return the steps with a planned checkpoint in ascending order; all steps if there is no planned one."""
  directory = _absolute(directory)
  entries = orbax_format.entries(directory)
  documents, damaged = orbax_format.documents(directory, entries)
  return sorted({step for step, _ in [*_planned(documents), *damaged] or entries})


def _candidates(directory: epath.Path, which: Which) -> tuple[list[Entry], dict[Entry, str]]:
  """Return the checkpoints to try, in process 0's order; for 'best' also those without a metric, with the reason."""
  entries = [] if jax.process_index() else orbax_format.entries(directory)  # it may delete some while others look
  unknown: dict[Entry, str] = {}
  newest = entries[::-1]
  if which == 'last':
    order = newest
  elif which == 'best':
    documents, unknown = orbax_format.documents(directory, entries)
    best = _best(documents)
    order = best + [e for e in newest if e not in best]
  elif isinstance(which, int):
    order = [e for e in newest if e[0] == which]
  else:
    raise InputError(f"--which: got {which!r}; expected 'measured', 'best', 'last', 'average', a step or 'words:N'")
  table = np.full((_BROADCAST, 2), -1, np.int32)
  order = order[:_BROADCAST]
  table[: len(order)] = np.asarray(order, np.int32).reshape(-1, 2)
  order = [(int(step), int(attempt)) for step, attempt in _broadcast(table) if step >= 0]
  if not order:
    steps = sorted({step for step, _ in orbax_format.entries(directory)})
    raise InputError(f'no checkpoint ({which}) in {directory}; steps there: {steps or "none"}')
  return order, unknown


def _broadcast(value: np.ndarray) -> np.ndarray:
  """Return process 0's value."""
  if jax.process_count() == 1:
    return value
  return np.asarray(multihost_utils.broadcast_one_to_all(value))


def _all_agree(fine: bool) -> bool:
  if jax.process_count() == 1:
    return fine
  return bool(np.all(multihost_utils.process_allgather(np.asarray(fine))))


def _attempt(function: Callable[[], Any]) -> tuple[Any, str]:
  """Return (result, ''), or (None, reason) in all processes if one of them detects damage."""
  result, reason = None, ''
  try:
    result = function()
  except (InputError, MemoryError):
    raise
  except orbax_format.Damaged as e:
    reason = str(e)
  except Exception as e:  # any exception that the reader raises for broken files
    reason = f'cannot be read: {orbax_format.short(e)}'
  if _all_agree(not reason):
    return result, ''
  return None, reason or 'another process could not read it'


def _first_intact(directory: epath.Path, which: Which, verify: bool, warn: Warn, read: Read) -> tuple[Any, list[Entry]]:
  """Return the result of `read` on the first intact checkpoint, and the damaged ones; warn about both."""
  order, unknown = _candidates(directory, which)
  reasons: dict[Entry, str] = {}

  def note(entry: Entry, reason: str) -> None:
    if entry not in reasons:
      reasons[entry] = f'{directory / orbax_format.name(entry)}: {reason}'
      warn(f'checkpoint {directory / orbax_format.name(entry)} is damaged and ignored ({reason})')

  for entry, reason in unknown.items():
    note(entry, f'{reason}; its metric is unknown, so it may have been the best')
  for entry in order:
    path = directory / orbax_format.name(entry)

    def check(path: epath.Path = path) -> dict[str, Any]:
      if verify and jax.process_index() == 0:
        orbax_format.check_files(path)
      return orbax_format.read_document(path)

    body, reason = _attempt(check)
    if not reason:
      result, reason = _attempt(functools.partial(read, path, body))
      if not reason:
        if reasons:
          warn(f'checkpoint {which}: using step {entry[0]} (metric {body["metric"]}), the first intact one')
        return result, [*reasons]
    note(entry, reason)
  raise AllDamaged('every checkpoint is damaged; none can be restored:\n  ' + '\n  '.join(reasons.values()))


def read_meta(directory: str | os.PathLike[str], which: Which = 'last', warn: Warn = stderr_warn) -> dict[str, Any]:
  """Return the `meta` passed to `save` without reading any array. Raises InputError if there is no checkpoint."""
  return _first_intact(_absolute(directory), which, False, warn, lambda path, body: body['meta'])[0]


def newest_step(directory: str | os.PathLike[str]) -> int:
  """Return the step of the newest checkpoint, even if damaged; -1 without any."""
  return max((step for step, _ in orbax_format.entries(_absolute(directory))), default=-1)


def steps(directory: str | os.PathLike[str]) -> list[int]:
  """Return the steps that have a checkpoint, even a damaged one, in ascending order; [] without any."""
  return sorted({step for step, _ in orbax_format.entries(_absolute(directory))})


def read_metrics(directory: str | os.PathLike[str]) -> tuple[list[float | None], dict[str, Any]]:
  """Return the metrics of all checkpoints, oldest first, and the `meta` of the newest; ([], {}) if one is damaged."""
  directory = _absolute(directory)
  documents, damaged = orbax_format.documents(directory, orbax_format.entries(directory))
  if damaged or not documents:
    return [], {}
  return [one.get('metric') for one in documents.values()], documents[max(documents)]['meta']


def _subtree(rows: dict[str, Any], tree: str, path: epath.Path) -> tuple[str, ...]:
  """Return the shortest path that ends in `tree`."""
  prefixes = set()
  for name in rows:
    parts = tuple(name.split('/'))
    if tree in parts[:-1]:
      prefixes.add(parts[: parts.index(tree) + 1])
  if not prefixes:
    raise InputError(f'{path} has no "{tree}"; it has {sorted({n.split("/")[0] for n in rows})}')
  return min(prefixes, key=lambda parts: (len(parts), parts))


def _shapes(rows: orbax_format.Rows) -> dict[str, tuple[int, ...]]:
  return {name: tuple(row['shape']) for name, row in rows.items()}


def restore_params(
  directory: str | os.PathLike[str],
  abstract: Tree | None = None,
  which: Which = 'last',
  *,
  layout: Layout | None = None,
  tree: str = 'params',
  verify: bool = True,
  warn: Warn = stderr_warn,
) -> tuple[Tree, dict[str, Any], int]:
  """Return (parameters, meta, step), reading only the subtree called `tree` ('params' or 'ema').

  Args:
    directory: directory of the checkpoints.
    abstract: the parameters' shapes, dtypes and shardings (arrays or ShapeDtypeStructs); None reads
      them as a nested dict onto the first local device.
    which: 'last', 'best' or a step.
    layout: names and size of the vocabulary, if parameters that a run stored in another layout than that of `abstract`
      are converted to it (lmx/layout.py).
    tree: name of the subtree.
    verify: compare checksums.
    warn: called with each warning.

  Raises:
    InputError: there is no checkpoint, all are damaged, or `abstract` does not match.
  """

  def read(path: epath.Path, body: dict[str, Any]) -> tuple[Tree, dict[str, Any], int]:
    prefix = _subtree(body['leaves'], tree, path)
    start = '/'.join(prefix) + '/'
    rows = {name: row for name, row in body['leaves'].items() if name.startswith(start)}
    if abstract is None:
      flat = {
        tuple(name.split('/')): jax.ShapeDtypeStruct(tuple(row['shape']), jnp.dtype(row['dtype']))
        for name, row in rows.items()
      }
      leaves = orbax_format.read_arrays(path, flat, rows, verify)
      nested = orbax_format.nest(dict(zip(flat, leaves, strict=True)))
      return orbax_format.pick(nested, prefix), body['meta'], body['step']
    stored = Layout() if layout is None else layout.detect(_shapes(rows))
    expected, treedef = orbax_format.flatten(abstract if stored.is_own else jax.eval_shape(stored.store, abstract))
    flat = {prefix + key: leaf for key, leaf in expected.items()}
    orbax_format.check_structure(path, rows, orbax_format.describe(flat))
    params = jax.tree_util.tree_unflatten(treedef, orbax_format.read_arrays(path, flat, rows, verify))
    return params if stored.is_own else jax.jit(stored.view)(params), body['meta'], body['step']

  return _first_intact(_absolute(directory), which, verify, warn, read)[0]


def remove_leftovers(directory: str | os.PathLike[str]) -> None:
  """Remove the half-written and half-deleted checkpoints of killed runs; no run may be saving there."""
  folder = _absolute(directory)
  if jax.process_index() == 0 and folder.exists():
    for path in list(folder.iterdir()):
      if orbax_format.is_partial(path) or path.name.startswith(_TRASH):
        path.rmtree(missing_ok=True)


class Checkpoints:
  """The checkpoints of one run. Every process calls every method; process 0 deletes and renames."""

  def __init__(
    self,
    directory: str | os.PathLike[str],
    cfg: Config | None = None,
    warn: Warn = stderr_warn,
    words: Mapping[int, int] | None = None,
    ties: str = 'earlier',
  ) -> None:
    """Open a directory; entering the context creates it.

    Args:
      directory: where the checkpoints are.
      cfg: the `checkpoint` section.
      warn: called with each warning (a damaged checkpoint).
      words: number of training words of each step of `checkpoint.at_words`, whose checkpoint is kept for good.
      ties: of checkpoints with the same metric, the best one: 'earlier' or 'later'.
    """
    self.directory = _absolute(directory)
    self.cfg = Config() if cfg is None else cfg
    self._warn, self._words, self._ties = warn, dict(words or {}), ties
    self._writer = orbax_format.Writer(self.cfg.timeout_seconds, copies=self.cfg.asynchronous)
    self._pending: Entry | None = None
    self._needed = 0  # bytes of the write in progress
    self._damaged: set[Entry] = set()
    self._saved_at = time.monotonic()

  def __enter__(self) -> Checkpoints:
    """Create the directory; remove the half-written and half-deleted checkpoints of killed runs."""
    remove_leftovers(self.directory)
    self.directory.mkdir(parents=True, exist_ok=True)
    return self

  def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
    try:
      self.close()
    except InputError as e:
      if error is None:
        raise
      self._warn(str(e))

  def is_planned(self, step: int) -> bool:
    """Return True if `every_steps` requires a save after `step` steps."""
    return step % self.cfg.every_steps == 0

  def is_kept(self, step: int) -> bool:
    """Return True if `at_words` requires a save after `step` steps."""
    return step in self._words

  def is_late(self, step: int) -> bool:
    """Return True if `every_seconds` has passed since the last save.

    Several processes follow process 0's clock, which is broadcast at every tenth step only.
    """
    if not self.cfg.every_seconds:
      return False
    late = time.monotonic() - self._saved_at >= self.cfg.every_seconds
    if jax.process_count() == 1:
      return late
    return step % 10 == 0 and bool(_broadcast(np.asarray(late)))

  def steps(self) -> list[int]:
    """Return the steps with a finished checkpoint in ascending order."""
    return sorted({step for step, _ in orbax_format.entries(self.directory)})

  def save(
    self,
    step: int,
    state: Tree,
    meta: dict[str, Any],
    metric: float | None = None,
    block: bool = False,
    planned: bool = True,
    dtype: np.dtype | None = None,
  ) -> None:
    """Start one commit of `state` and `meta`; checkpoints of later steps become invalid.

    The arrays are copied before `save` returns, or written if `asynchronous` is False, so `state` may be donated to the
    next step.

    Args:
      step: number of completed steps.
      state: pytree of arrays (global ones if there are several processes), typed keys included.
      meta: JSON-serialisable dict.
      metric: value that ranks checkpoints for 'best'; lower is better.
      block: return only when the commit is complete.
      planned: False for an interim checkpoint, triggered by the clock or a signal.
      dtype: type in which the arrays are read again, if not in their own. They are stored in their own.

    Raises:
      InputError: this write, or the asynchronous one before it, failed (disk full, no permission).
    """
    self.wait()
    flat, _ = orbax_format.flatten(state)
    attempts = [attempt for other, attempt in orbax_format.entries(self.directory) if other == step]
    attempt = int(_broadcast(np.asarray(max(attempts, default=-1) + 1)))
    self._pending = (int(step), attempt)
    self._needed = sum(leaf.nbytes for leaf in flat.values())
    metric = None if metric is None else float(metric)
    body: dict[str, Any] = {'step': int(step), 'metric': metric, 'planned': planned, 'meta': meta}
    body |= {'words': self._words[step]} if self.is_kept(step) else {}
    body |= {'ties': self._ties} if self._ties != 'earlier' else {}
    try:
      self._writer.start(self.directory / orbax_format.name(self._pending), flat, body, dtype)
    except Exception as e:
      self._fail(e)
    self._saved_at = time.monotonic()
    if block or not self.cfg.asynchronous:
      self.wait()

  def restore(
    self, abstract_state: Tree | Callable[[dict[str, tuple[int, ...]]], Tree], which: Which = 'last'
  ) -> tuple[Tree, dict[str, Any], int]:
    """Return (state, meta, step) of the first intact checkpoint.

    Args:
      abstract_state: pytree of arrays or ShapeDtypeStructs with the state's structure. They give shapes, dtypes and
        shardings, which may be for another number of devices. Or a function that returns it from the shapes of the
        saved arrays by name, for a state that may be saved in another layout (lmx/layout.py).
      which: 'last' tries the newest, then the one before, and so on; 'best' the lowest metric, then
        the next; a step tries that step only.

    Raises:
      InputError: there is none, all are damaged, or the state has other leaves or shapes.
    """
    self.wait()

    def read(path: epath.Path, body: dict[str, Any]) -> tuple[Tree, dict[str, Any], int]:
      abstract = abstract_state(_shapes(body['leaves'])) if callable(abstract_state) else abstract_state
      expected, treedef = orbax_format.flatten(abstract)
      orbax_format.check_structure(path, body['leaves'], orbax_format.describe(expected))
      leaves = orbax_format.read_arrays(path, expected, body['leaves'], self.cfg.verify)
      return jax.tree_util.tree_unflatten(treedef, leaves), body['meta'], body['step']

    result, damaged = _first_intact(self.directory, which, self.cfg.verify, self._warn, read)
    self._damaged.update(damaged)
    return result

  def wait(self) -> None:
    """Wait for the write in progress, then apply retention. Raises InputError if that write failed."""
    if self._pending is None:
      return
    try:
      self._writer.wait()
    except Exception as e:
      self._fail(e)
    committed, self._pending = self._pending, None
    self._prune(committed)

  def prune(self) -> None:
    """Apply retention to existing checkpoints, because a kill may come between a save and its retention.

    Damaged checkpoints stay, with all others, until a newer one is complete.
    """
    entries = orbax_format.entries(self.directory)
    if entries and not self._damaged:
      self._prune(entries[-1])

  def close(self) -> None:
    """Wait as `wait` does and free the writer's threads."""
    try:
      self.wait()
    finally:
      self._writer.close()

  def _trusted(self) -> list[Entry]:
    return [entry for entry in orbax_format.entries(self.directory) if entry not in self._damaged]

  def _prune(self, committed: Entry) -> None:
    """Delete the checkpoints outside retention; `committed` is the newest complete one."""
    if jax.process_index():
      return
    newest = {step: attempt for step, attempt in self._trusted() if step <= committed[0]}
    entries, last = sorted(newest.items()), self.cfg.keep_last
    documents, damaged = orbax_format.documents(self.directory, entries)
    for entry, reason in damaged.items():
      self._damaged.add(entry)
      self._warn(
        f'checkpoint {self.directory / orbax_format.name(entry)} is damaged and does not count for keep_last ({reason})'
      )
    entries = [entry for entry in entries if entry not in damaged]
    retained = {*entries[-last:], *_planned(documents)[-last:], *_kept(documents), committed}
    if self.cfg.keep_best:
      retained |= set(_best(documents)[:1])
    for entry in orbax_format.entries(self.directory):
      if entry not in retained:
        self._delete(orbax_format.name(entry))

  def _delete(self, name: str) -> None:
    """Rename, then delete, so that a half-deleted directory is never mistaken for a checkpoint."""
    trash = self.directory / f'{_TRASH}{name}'
    (self.directory / name).rename(trash)
    trash.rmtree(missing_ok=True)

  def _fail(self, error: Exception) -> None:
    """Remove the partial write; raise InputError if the file system is the cause, else `error`."""
    assert self._pending is not None
    path = self.directory / orbax_format.name(self._pending)
    self._pending = None
    if jax.process_index() == 0:
      orbax_format.remove_partial(path)
    cause = orbax_format.file_system_error(error)
    if cause is None:
      raise error
    steps = self.steps()
    left = f'the last good checkpoint is step {steps[-1]}' if steps else 'there is no earlier one'
    raise InputError(
      f'cannot write checkpoint {path}: {cause}; it needs up to'
      f' {self._needed / 1e6:,.1f} MB and {orbax_format.free(self.directory)} are free; {left}'
    ) from error
