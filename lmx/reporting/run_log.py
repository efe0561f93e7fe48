"""Outputs of a run: progress, metrics.jsonl, TensorBoard, results.json, loss.png, samples.txt.

Only process 0 writes. A step's metrics are fetched from the device after the next step is dispatched, so logging never
waits for the step just started. A resumed run drops all records after the step it resumes from. Its files then equal
those of an uninterrupted run, if `flush` is called before each checkpoint. Otherwise the metrics of the saved step may
still be on the device.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.metadata
import json
import logging
import math
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

import lmx
from lmx import documents, host, records, storage
from lmx.errors import InputWarning, explain, writing
from lmx.records import Record, read_metrics
from lmx.redaction import redact
from lmx.reporting import ledger as ledgers
from lmx.reporting import loss_curve, tensorboard, utilisation, waiting

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'grain', 'numpy')
_FILES = {  # files of a finished run
  'results.json': 'results',
  'loss.png': 'loss curve',
  'confusion.png': 'confusions',
  'segmentations.png': 'segmented images',
  'samples.txt': 'samples',
  'translations.txt': 'translations',
  'predictions.json': 'answers',
  'rows.jsonl': 'rows',
  'metrics.jsonl': 'log',
  'tensorboard': 'tensorboard --logdir',
  'checkpoints': 'checkpoints',
}
_LOG = logging.getLogger('lmx.host')
_NUMBER = re.compile(r'_\d+$')
SAMPLE = re.compile(r'^=== step ([0-9]{1,18}) ===$', re.MULTILINE)  # header of samples.txt


def versions() -> dict[str, str]:
  """Return the versions of Python, lmx and its numerical packages."""
  packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
  return {'python': platform.python_version(), 'lmx': lmx.__version__, **packages}


def flags() -> dict[str, str]:
  """Return the variables with flags of XLA and libtpu, and their values."""
  return {name: value for name in ('XLA_FLAGS', 'LIBTPU_INIT_ARGS') if (value := os.environ.get(name))}


def commit() -> str:
  """Return lmx's short commit hash, with '-dirty' for uncommitted changes; '' outside a git checkout."""
  root = pathlib.Path(lmx.__file__).resolve().parents[1]
  if not (root / '.git').exists():
    return ''
  words = ['git', '-C', str(root), 'describe', '--always', '--dirty', '--exclude=*']
  try:
    done = subprocess.run(words, capture_output=True, encoding='utf-8', errors='replace', check=False, timeout=20)
  except (OSError, subprocess.TimeoutExpired):
    return ''
  return done.stdout.strip() if done.returncode == 0 else ''


def device() -> str:
  """Return a description of the devices, such as '8 x NVIDIA H100 (gpu), 2 processes'."""
  first = jax.devices()[0]
  text = f'{jax.device_count()} x {first.device_kind} ({first.platform})'
  if first.platform == 'cpu':
    text += f', {host.cores()} cores'
  return text + (f', {jax.process_count()} processes' if jax.process_count() > 1 else '')


def to_json(value: Any) -> Any:
  """Return `value` as strict JSON: arrays as lists, NaN and infinities as strings."""
  if isinstance(value, Mapping):
    return {str(k): to_json(v) for k, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [to_json(v) for v in value]
  if hasattr(value, 'tolist'):
    return to_json(np.asarray(value).tolist())
  if isinstance(value, float) and not math.isfinite(value):
    return 'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'
  return value if isinstance(value, (str, int, float, type(None))) else str(value)


def write_json(path: str, values: Any) -> None:
  """Write `values` as JSON to `path`, which may be a link or a pipe. Raises InputError."""
  write_text(path, json.dumps(to_json(values), indent=1) + '\n')


def write_text(path: str, text: str) -> None:
  """Write a text to `path`, which may be a link or a pipe. Raises InputError.

  Files are written atomically, and compressed if the name ends in .gz, .xz or .zst.
  """
  where = pathlib.Path(path)
  with writing(str(path)):
    if where.exists() and not where.is_file():  # such as /dev/stdout
      where.write_text(text, encoding='utf-8')
    else:
      _replace(where.resolve(), text)


def _replace(path: pathlib.Path, text: str) -> None:
  """Write a file atomically: readers see the old text or the new text."""
  part = path.with_name(path.name + '.part')
  with writing(str(path)):
    with documents.open_to_write(part, like=path) as file:
      file.write(text)
    with part.open('rb+') as written:  # whose compressed data is complete
      os.fsync(written.fileno())
    part.replace(path)


def _read_text(path: pathlib.Path) -> str:
  """Return the text of a file, '' without one; bytes that are not UTF-8 are replaced."""
  return path.read_text(encoding='utf-8', errors='replace') if path.exists() else ''


def _scalars(metrics: Mapping[str, Any]) -> Record:
  """Return metrics as floats: a (sum, weight) pair as its mean; booleans are skipped."""
  scalars: Record = {}
  for name, value in metrics.items():
    if isinstance(value, (tuple, list)):
      total, weight = (float(x) for x in value)
      scalars[name] = total / weight if weight else math.nan
    elif np.asarray(value).dtype != bool:
      scalars[name] = float(value)
  return scalars


def _short(names: Iterable[str]) -> list[str]:
  """Return the names without series of more than ten that differ only in their final number."""
  stems = {name: _NUMBER.sub('', name) for name in names}
  counts = collections.Counter(stems.values())
  return [name for name, stem in stems.items() if counts[stem] <= 10]


def _count(number: float) -> str:
  return f'{number / 1e6:.2f}M' if number >= 1e6 else f'{number / 1e3:.1f}k' if number >= 1e3 else f'{number:.0f}'


class Logger:
  """The log of one session of a run; a context manager."""

  def __init__(
    self,
    workdir: str | os.PathLike[str],
    total_steps: int,
    *,
    start_step: int = 0,
    tokens_per_step: int,
    unit: str = 'tokens',
    primary: bool = True,
    every: int = 10,
    every_seconds: float = 10.0,
    terminal: bool | None = None,
    settings: Mapping[str, Any] = types.MappingProxyType({}),
    meter: utilisation.Meter | None = None,
    ledger: ledgers.Ledger | None = None,
  ) -> None:
    """Open the files and drop the records after `start_step`.

    Args:
      workdir: directory of the run.
      total_steps: steps of the whole run.
      start_step: steps done before this session.
      tokens_per_step: tokens per global batch, for tokens/s.
      unit: unit of these tokens, such as 'pixels'.
      primary: whether this process writes; other processes do nothing.
      every: steps between training records.
      every_seconds: minimum seconds between plain lines, without a progress bar.
      terminal: draw a progress bar; None draws one if standard error is a terminal.
      settings: settings of the run by 'section.key', for TensorBoard.
      meter: counter of the utilisation, None for none.
      ledger: clock of the session; None starts one.
    """
    self.ledger = ledgers.Ledger() if ledger is None else ledger
    self.mirror = storage.Mirror(workdir, ('metrics.jsonl', 'samples.txt') if primary else ())
    self.workdir, self.path = self.mirror.local, str(workdir).rstrip('/')
    self.primary, self.total_steps, self.start_step = primary, total_steps, start_step
    self.tokens_per_step, self.unit, self.every, self.every_seconds = tokens_per_step, unit, every, every_seconds
    self._pending: tuple[int, float, float, Mapping[str, Any]] | None = None
    # (step, time, seconds waited) from which the next rate is measured
    self._rate_start: tuple[int, float, float] | None = None
    self._opened, self._printed = time.monotonic(), -math.inf
    self._step, self._closed, self._settings, self._meter = start_step, False, settings, meter
    self._compiled: set[Any] = set()  # shapes of batches
    self._validated = ''  # the loss of the last validation
    if not primary:
      return
    self.workdir.mkdir(parents=True, exist_ok=True)
    with writing(str(self.workdir / records.METRICS)):
      self._earlier_seconds = self._drop_later_records()
      self._file = (self.workdir / records.METRICS).open('a', encoding='utf-8')
    _replace(self.workdir / records.PROGRESS, json.dumps({'steps': total_steps}) + '\n')
    self._board = tensorboard.Board(self.workdir / 'tensorboard', start_step + 1 if start_step else None)
    terminal = waiting.is_terminal() if terminal is None else terminal
    self._bar = tqdm(
      total=total_steps,
      initial=start_step,
      disable=not terminal,
      dynamic_ncols=True,
      bar_format='{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]',
    )

  def __enter__(self) -> Logger:
    return self

  def __exit__(self, *_: Any) -> None:
    self.close()

  def _drop_later_records(self) -> float:
    """Drop records and samples after `start_step`; return the seconds of earlier sessions."""
    path = self.workdir / records.METRICS
    old = _read_text(path)
    faults: list[str] = []
    found = records.parse_metrics(old, str(path), faults.append)
    if faults:
      more = f', and {len(faults) - 1} more lines' if faults[1:] else ''
      warnings.warn(f'{faults[0]}; the line is dropped{more}', InputWarning, stacklevel=2)
    remaining = [r for r in found if r['step'] <= self.start_step]
    text = ''.join(json.dumps(to_json(r)) + '\n' for r in remaining)
    if text != old:
      _replace(path, text)
    path, written = self.workdir / 'samples.txt', self._samples(self.start_step)
    if written != _read_text(path):
      _replace(path, written)
    if not self.start_step:
      return 0.0
    return max((r['seconds'] for r in found if 'seconds' in r), default=0.0)

  def seconds(self) -> float:
    """Return the seconds of all sessions in the log."""
    return self._earlier_seconds + time.monotonic() - self._opened

  def train(self, step: int, metrics: Mapping[str, Any], wait_seconds: float = 0.0) -> None:
    """Record the dispatched step, and write the previous one if it is due.

    Args:
      step: number of steps, including the dispatched one.
      metrics: arrays on the device: scalars, or (sum, weight) pairs.
      wait_seconds: seconds that this session has waited for data.
    """
    self.ledger.update(step)
    if not self.primary:
      return
    now = time.monotonic()
    self._write_pending()
    if self._rate_start is None:  # after the first step, which compiles
      self._begin_interval(step, now, wait_seconds)
    elif self._meter:
      self._meter.step(now)
      self._count_work(metrics)
    self._pending, self._step = (step, now, wait_seconds, metrics), step
    self._bar.update(step - self._bar.n)

  def _begin_interval(self, step: int, now: float, waited: float) -> None:
    """Measure the next rates from here."""
    self._rate_start = (step, now, waited)
    if self._meter:
      self._meter.restart()

  def _skip_to(self, step: int) -> None:
    """Measure the next rates from now, after `step` steps, and do not time the step that waits for this."""
    if self._rate_start is not None:
      self._begin_interval(step, time.monotonic(), self._rate_start[2])
    if self._meter:
      self._meter.pause()

  def _count_work(self, metrics: Mapping[str, Any]) -> None:
    """Count operations from now on, if it is time; rates exclude the time that this takes."""
    if self._meter and self._meter.is_due():
      jax.block_until_ready(dict(metrics))
      with self.paused():
        self._meter.count()

  @contextlib.contextmanager
  def paused(self) -> Iterator[None]:
    """Exclude a block from the rates, and the step from the times of steps."""
    began = time.monotonic()
    yield
    if self._rate_start is not None:
      step, last, waited = self._rate_start
      self._rate_start = (step, last + time.monotonic() - began, waited)
    if self._meter:
      self._meter.pause()

  @contextlib.contextmanager
  def compiling(self, step: int, batch: Mapping[str, Any]) -> Iterator[None]:
    """Show that the block compiles, if no earlier batch had these shapes; tokens/s excludes its time.

    Args:
      step: number of the update, from 1.
      batch: arrays by name.
    """
    if self._meter and self.primary:
      self._meter.read(batch)
    shapes = frozenset((name, tuple(x.shape)) for name, x in batch.items())
    if shapes in self._compiled:
      yield
      return
    self._compiled.add(shapes)
    if not self.primary:
      with self.ledger.compiling():
        yield
      return
    show = None if self._bar.disable else lambda text: self._bar.set_description_str(text and f'{text}: ')
    text = f'compiling batches of {waiting.shape_text(batch)} (step {step} of {self.total_steps})'
    with self.ledger.compiling(), self.paused(), waiting.waiting(text, show):
      yield

  def flush(self) -> None:
    """Write all records to disk; wait until the last step given to `train` is computed."""
    if not self.primary:
      return
    self._write_pending()
    if self._meter:
      self._meter.pause()  # what follows, such as saving, is no step
    with writing(self._board.name):
      self._board.flush()

  def _write_pending(self) -> None:
    """Write the last step given to `train`, if it is due."""
    if self._pending is None:
      return
    (step, now, waited, metrics), self._pending = self._pending, None
    record = step % self.every == 0 or step in (1, self.total_steps)
    if not record and step != self.start_step + 1:
      return
    values = _scalars(jax.device_get(dict(metrics)))
    last_step, last, last_waited = self._rate_start or (step, now, waited)
    if step > last_step and now > last:
      values[f'{self.unit}_per_second'] = rate = (step - last_step) * self.tokens_per_step / (now - last)
      values['wait_share'] = (waited - last_waited) / (now - last)
      values |= self._meter.values(self.unit, rate, now - last) if self._meter else {}
    if record:
      self._begin_interval(step, now, waited)
      self._write(step, 'train', values | {'seconds': self._earlier_seconds + now - self._opened})
    self._show_progress(step, values, now)

  def _show_progress(self, step: int, values: Record, now: float) -> None:
    """Update the progress bar, or print a plain line if the last one is at least `every_seconds` old."""
    rate = values.get(f'{self.unit}_per_second')  # None at a session's first step
    shown = f'{_count(rate)} {self.unit}/s' if rate else ''
    shown += f', MFU {values["mfu"]:.1%}' if 'mfu' in values else ''
    after = (self.total_steps - step) * self.tokens_per_step / rate if rate else 0
    left = f'{waiting.duration(after)} left' if after else ''
    if not self._bar.disable:
      self._bar.set_postfix_str(', '.join(filter(None, [f'loss {values["loss"]:.3f}', self._validated, shown, left])))
    elif now - self._printed >= self.every_seconds or step == self.total_steps:
      parts = [f'step {step}/{self.total_steps}', f'loss {values["loss"]:.4f}']
      parts += [f'lr {values["lr"]:.2e}'] if 'lr' in values else []
      print('  '.join(filter(None, [*parts, shown, left])), file=sys.stderr, flush=True)
      self._printed = now

  def evaluation(
    self,
    step: int,
    split: str,
    values: Mapping[str, Any],
    captions: Mapping[str, str] = types.MappingProxyType({}),
    *,
    best_by: str = '',
  ) -> None:
    """Write and show the metrics of `split` after `step` steps; tokens/s excludes the evaluation's time.

    Long series of metrics, such as one per class, are written but not shown.

    Args:
      captions: labels shown instead of metric names; '' hides a metric.
      best_by: name of the score if this is the best validation so far.
    """
    if not self.primary:
      return
    self._write_pending()
    self._skip_to(step)
    metrics = _scalars(values)
    self._write(step, split, metrics | {'seconds': self.seconds()})
    self._validated = f'{split} {metrics["loss"]:.3f}' if 'loss' in metrics else ''
    texts = {name: captions.get(name, name.replace('_', ' ')) for name in _short(metrics)}
    shown = [f'{text} {metrics[name]:.4g}' for name, text in texts.items() if text]
    best = f' (the best {best_by.replace("_", " ")} so far)' if best_by else ''
    self.note(f'step {step}/{self.total_steps}  {split}: ' + ', '.join(shown) + best)

  def _write(self, step: int, split: str, values: Record) -> None:
    with writing(self._file.name):
      self._file.write(json.dumps(to_json({'step': step, 'split': split, **values})) + '\n')
      self._file.flush()  # to the kernel: the line survives if this process is killed
    with writing(self._board.name):
      for name, value in values.items():
        self._board.add(f'{split}/{name}', value, step)

  def note(self, text: str) -> None:
    """Show a text above the progress bar, and write it to the log of this host."""
    _LOG.info(redact(text))
    if self.primary:
      tqdm.write(redact(text), file=sys.stderr)
      sys.stderr.flush()

  def samples(self, text: str, step: int | None = None) -> None:
    """Add a text to samples.txt under a header with the step (by default the last one).

    It replaces the texts of this and later steps. tokens/s excludes the time of the samples.
    """
    if self.primary:
      self._write_pending()
      self._skip_to(self._step)
      step = self._step if step is None else step
      _replace(self.workdir / 'samples.txt', self._samples(step - 1) + f'=== step {step} ===\n{text.rstrip()}\n\n')

  def _samples(self, last: int) -> str:
    """Return the text of samples.txt up to step `last`."""
    path = self.workdir / 'samples.txt'
    text = _read_text(path)
    return text[: next((m.start() for m in SAMPLE.finditer(text) if int(m[1]) > last), len(text))]

  def results(self, values: Mapping[str, Any]) -> None:
    """Write results.json: `values`, the seconds of all sessions by parts, versions, the commit and devices.

    A run with results.json counts as finished, so the file is written last, also to a bucket.
    """
    if self.primary:
      self.flush()
      self.mirror.send()
      about = {'seconds': self.seconds(), 'time': self.ledger.totals()}
      about['utilisation'] = utilisation.summarize(read_metrics(self.workdir))
      about |= {'versions': versions(), 'commit': commit(), 'device': device()}
      about |= {'flags': flags()} if flags() else {}
      self._add_results(values)
      _replace(self.workdir / 'results.json', json.dumps(to_json({**values, **about}), indent=2) + '\n')

  def _add_results(self, values: Mapping[str, Any]) -> None:
    """Add the final metrics, the settings, and the pictures and samples of the work directory to TensorBoard."""
    numbers = {k: v for k, v in values.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    with writing(self._board.name):
      self._board.add_results(self._settings, {f'results/{k}': numbers[k] for k in _short(numbers)}, self._step)
      for path in sorted(self.workdir.glob('*.png')):
        self._board.add_picture(path, self._step)
      if (self.workdir / 'samples.txt').exists():
        self._board.add_text('samples', _read_text(self.workdir / 'samples.txt'), self._step)
      self._board.flush()

  def files(self) -> list[str]:
    """Return one line per output file of a finished run."""
    lines = [(name, text) for name, text in _FILES.items() if (self.workdir / name).exists()]
    width = max((len(text) for _, text in lines), default=0)
    return [f'  {text:{width}}  {self.path}/{name}' for name, text in lines]

  def plot(self, results: Mapping[str, Any]) -> None:
    """Draw loss.png from metrics.jsonl and the values of results.json, {} before these exist."""
    if self.primary:
      self.flush()
      size = f'{self.tokens_per_step:,} {self.unit}'
      loss_curve.draw(read_metrics(self.workdir), self.workdir / 'loss.png', results, size)

  def close(self) -> None:
    """Write the pending record and close the files; safe to call twice, and after a failure."""
    if not self.primary or self._closed:
      return
    self._closed = True
    try:
      self._write_pending()
    except Exception as e:  # the step failed and raised its own error
      self.note(f'the metrics of the last step are lost: {type(e).__name__}')
    self._bar.close()
    for file in (self._file, self._board):
      try:
        file.close()
      except OSError as e:  # a full disk, already reported by the checkpoint or the last record
        self.note(f'cannot close a file in {self.workdir}: {explain(e)}')
    self.mirror.close()
