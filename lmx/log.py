"""What a run shows and leaves behind: progress, metrics.jsonl, TensorBoard, results.json, loss.png, samples.txt.

Only process 0 writes. Numbers of a step are fetched from the device when the next step has been dispatched, so
logging never waits for the step just started. When a run is taken up again, what was logged after the step it goes
on from is dropped; so the files read as if the run had never been killed, provided that `flush` is called before a
checkpoint is saved (else the numbers of the step saved may still be on the device).
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import pathlib
import platform
import re
import sys
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from tensorboardX import SummaryWriter
from tqdm import tqdm

import lmx
from lmx import mirror, processor
from lmx.errors import InputError

Record = dict[str, Any]

_WORDS = {'NaN': math.nan, 'Infinity': math.inf, '-Infinity': -math.inf}  # JSON has no such numbers
_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'grain', 'numpy')
_SAMPLE = re.compile(r'^=== step (\d+) ===$', re.MULTILINE)


def versions() -> dict[str, str]:
  """Returns the versions of Python, lmx and what it computes with."""
  found = {name: importlib.metadata.version(name) for name in _PACKAGES}
  return {'python': platform.python_version(), 'lmx': lmx.__version__, **found}


def device() -> str:
  """Returns the devices in words, such as '8 x NVIDIA H100 (gpu), 2 processes'."""
  first = jax.devices()[0]
  text = f'{jax.device_count()} x {first.device_kind} ({first.platform})'
  if first.platform == 'cpu':
    text += f', {processor.cores()} cores'
  return text + (f', {jax.process_count()} processes' if jax.process_count() > 1 else '')


def to_json(value: Any) -> Any:
  """Returns `value` as strict JSON can hold it: arrays as lists, NaN and infinities as words."""
  if isinstance(value, Mapping):
    return {str(k): to_json(v) for k, v in value.items()}
  if isinstance(value, (list, tuple)):
    return [to_json(v) for v in value]
  if hasattr(value, 'tolist'):
    return to_json(np.asarray(value).tolist())
  if isinstance(value, float) and not math.isfinite(value):
    return 'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'
  return value if isinstance(value, (str, int, float, type(None))) else str(value)


def from_json(value: Any) -> Any:
  """Undoes what `to_json` does to NaN and infinities."""
  if isinstance(value, dict):
    return {k: from_json(v) for k, v in value.items()}
  if isinstance(value, list):
    return [from_json(v) for v in value]
  return _WORDS.get(value, value) if isinstance(value, str) else value


def _parse(text: str) -> list[Record]:
  """Returns the records of whole lines, the last for each (step, split)."""
  found: dict[tuple[int, str], Record] = {}
  for line in text.split('\n'):
    try:
      record = json.loads(line)
      key = (record['step'], record['split'])
    except (ValueError, KeyError, TypeError):
      continue  # a line that a killed run has left half-written
    found.pop(key, None)  # so that the last one is also last in order
    found[key] = record
  return list(found.values())


def read_metrics(workdir: str | os.PathLike[str]) -> list[Record]:
  """Returns the records of metrics.jsonl: `step`, `split` ('train', 'valid', ...) and values; [] without one."""
  path = pathlib.Path(workdir) / 'metrics.jsonl'
  return from_json(_parse(path.read_text(errors='replace'))) if path.exists() else []


def write_json(path: str, values: Any) -> None:
  """Writes figures where the user wants them. Raises InputError."""
  try:
    _replace(pathlib.Path(path), json.dumps(to_json(values), indent=1) + '\n')
  except OSError as error:
    raise InputError(f'{path}: cannot be written ({error.strerror})') from None


def _replace(path: pathlib.Path, text: str) -> None:
  """Writes a file in one go: a reader sees the old text or the new one."""
  part = path.with_name(path.name + '.part')
  with part.open('w') as file:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())
  part.replace(path)


def _scalars(metrics: Mapping[str, Any]) -> Record:
  """Returns numbers: a scalar as it is, a (sum, weight) pair as its mean, a flag not at all."""
  found: Record = {}
  for name, value in metrics.items():
    if isinstance(value, (tuple, list)):
      total, weight = (float(x) for x in value)
      found[name] = total / weight if weight else math.nan
    elif np.asarray(value).dtype != bool:
      found[name] = float(value)
  return found


def _duration(seconds: float) -> str:
  minutes, seconds = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  return f'{hours}:{minutes:02d}:{seconds:02d}' if hours else f'{minutes}:{seconds:02d}'


def _count(number: float) -> str:
  return f'{number / 1e6:.2f}M' if number >= 1e6 else f'{number / 1e3:.1f}k' if number >= 1e3 else f'{number:.0f}'


class Logger:
  """The log of one session of a run; a context manager."""

  def __init__(
    self, workdir: str | os.PathLike[str], total_steps: int, *, start_step: int = 0, tokens_per_step: int,
    primary: bool = True, every: int = 10, every_seconds: float = 10.0, terminal: bool | None = None,
  ) -> None:  # fmt: skip
    """Opens the files and drops what was logged after `start_step`.

    Args:
      workdir: directory of the run.
      total_steps: steps of the whole run.
      start_step: steps done before this session.
      tokens_per_step: tokens of a global batch, for tokens/s.
      primary: whether this process writes; the others do nothing.
      every: steps between two training records.
      every_seconds: least time between two plain lines, where there is no progress bar.
      terminal: draw a progress bar; None asks standard error.
    """
    self.mirror = mirror.Mirror(workdir, ('metrics.jsonl', 'samples.txt') if primary else ())
    self.workdir = self.mirror.local
    self.primary, self.total_steps, self.start_step = primary, total_steps, start_step
    self.tokens_per_step, self.every, self.every_seconds = tokens_per_step, every, every_seconds
    self._pending: tuple[int, float, float, Mapping[str, Any]] | None = None
    self._mark: tuple[int, float, float] | None = None  # step, time, waited: where the next rate begins
    self._opened, self._printed = time.monotonic(), -math.inf
    self._step, self._closed = start_step, False
    if not primary:
      return
    self.workdir.mkdir(parents=True, exist_ok=True)
    self._before = self._take_up()
    self._file = (self.workdir / 'metrics.jsonl').open('a')
    # Above `purge_step` TensorBoard forgets what earlier sessions have written.
    self._board = SummaryWriter(str(self.workdir / 'tensorboard'), purge_step=start_step + 1 if start_step else None)
    terminal = sys.stderr.isatty() if terminal is None else terminal
    self._bar = tqdm(
      total=total_steps, initial=start_step, disable=not terminal, dynamic_ncols=True,
      bar_format='{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]',
    )  # fmt: skip

  def __enter__(self) -> Logger:
    return self

  def __exit__(self, *_: Any) -> None:
    self.close()

  def _take_up(self) -> float:
    """Drops records and samples after `start_step`; returns the seconds of the sessions before."""
    path = self.workdir / 'metrics.jsonl'
    old = path.read_text(errors='replace') if path.exists() else ''
    records = _parse(old)
    kept = [r for r in records if r['step'] <= self.start_step]
    text = ''.join(json.dumps(r) + '\n' for r in kept)
    if text != old:
      _replace(path, text)
    path = self.workdir / 'samples.txt'
    old = path.read_text() if path.exists() else ''
    later = [m.start() for m in _SAMPLE.finditer(old) if int(m[1]) > self.start_step]
    if later:
      _replace(path, old[: later[0]])
    if not self.start_step:
      return 0.0
    return max((r['seconds'] for r in records if 'seconds' in r), default=0.0)

  def seconds(self) -> float:
    """Returns the seconds of all sessions, as far as their logs tell."""
    return self._before + time.monotonic() - self._opened

  def train(self, step: int, metrics: Mapping[str, Any], wait_seconds: float = 0.0) -> None:
    """Takes in the step just dispatched and writes down the one before, if it is due.

    Args:
      step: steps done, the one dispatched included.
      metrics: arrays on the device: scalars, or (sum, weight) pairs.
      wait_seconds: time that this session has waited for data so far.
    """
    if not self.primary:
      return
    now = time.monotonic()
    self.flush()
    if self._mark is None:
      self._mark = (step, now, wait_seconds)  # after the first, which compiles
    self._pending, self._step = (step, now, wait_seconds, metrics), step
    self._bar.update(step - self._bar.n)

  def flush(self) -> None:
    """Writes down the last step given to `train`, if it is due; waits until it is computed."""
    if self._pending is None:
      return
    (step, now, waited, metrics), self._pending = self._pending, None
    record = step % self.every == 0 or step in (1, self.total_steps)
    if not record and step != self.start_step + 1:
      return
    values = _scalars(jax.device_get(dict(metrics)))
    last_step, last, last_waited = self._mark or (step, now, waited)
    if step > last_step and now > last:
      values['tokens_per_second'] = (step - last_step) * self.tokens_per_step / (now - last)
      values['wait_share'] = (waited - last_waited) / (now - last)
    if record:
      self._mark = (step, now, waited)
      self._write(step, 'train', values | {'seconds': self._before + now - self._opened})
    self._show(step, values, now)

  def _show(self, step: int, values: Record, now: float) -> None:
    """Updates the bar, or prints a plain line if the last one is old enough."""
    rate = values.get('tokens_per_second')  # none for a session's first step
    shown = f'{_count(rate)} tokens/s' if rate else ''
    if not self._bar.disable:
      self._bar.set_postfix_str(', '.join(filter(None, [f'loss {values["loss"]:.3f}', shown])))
    elif now - self._printed >= self.every_seconds or step == self.total_steps:
      left = f'{_duration((self.total_steps - step) * self.tokens_per_step / rate)} left' if rate else ''
      parts = [f'step {step}/{self.total_steps}', f'loss {values["loss"]:.4f}']
      parts += [f'lr {values["lr"]:.2e}'] if 'lr' in values else []
      print('  '.join(filter(None, [*parts, shown, left])), file=sys.stderr, flush=True)
      self._printed = now

  def evaluation(self, step: int, split: str, values: Mapping[str, Any]) -> None:
    """Writes down and shows a measurement of `split` after `step` steps; its time does not count in tokens/s."""
    if not self.primary:
      return
    self.flush()
    if self._mark is not None:
      self._mark = (step, time.monotonic(), self._mark[2])
    found = _scalars(values)
    self._write(step, split, found | {'seconds': self.seconds()})
    shown = [f'{name.replace("_", " ")} {value:.4g}' for name, value in found.items()]
    self.note(f'step {step}/{self.total_steps}  {split}: ' + ', '.join(shown))

  def _write(self, step: int, split: str, values: Record) -> None:
    try:
      self._file.write(json.dumps(to_json({'step': step, 'split': split, **values})) + '\n')
      self._file.flush()  # to the kernel: what is written outlives a killed process
    except OSError as e:
      raise InputError(f'cannot write {self._file.name}: {e.strerror}') from None
    for name, value in values.items():
      self._board.add_scalar(f'{split}/{name}', value, step)

  def note(self, text: str) -> None:
    """Shows a text above the progress bar."""
    if self.primary:
      tqdm.write(text, file=sys.stderr)
      sys.stderr.flush()

  def samples(self, text: str, step: int | None = None) -> None:
    """Appends a text to samples.txt, under a header that names the step (by default the last one)."""
    if self.primary:
      with (self.workdir / 'samples.txt').open('a') as file:
        file.write(f'=== step {self._step if step is None else step} ===\n{text.rstrip()}\n\n')

  def results(self, values: Mapping[str, Any]) -> None:
    """Writes results.json: `values`, and the seconds of all sessions, versions and device."""
    if self.primary:
      self.flush()
      about = {'seconds': self.seconds(), 'versions': versions(), 'device': device()}
      _replace(self.workdir / 'results.json', json.dumps(to_json({**values, **about}), indent=2) + '\n')

  def plot(self) -> None:
    """Draws loss.png from metrics.jsonl and, once it is there, results.json."""
    if self.primary:
      self.flush()
      path = self.workdir / 'results.json'
      results = from_json(json.loads(path.read_text())) if path.exists() else {}
      draw(read_metrics(self.workdir), self.workdir / 'loss.png', results, self.tokens_per_step)

  def close(self) -> None:
    """Writes down what is pending and closes the files; safe to call twice, and after a failure."""
    if not self.primary or self._closed:
      return
    self._closed = True
    try:
      self.flush()
    except Exception as e:  # the step itself has failed, and its error is already on its way up
      self.note(f'the last step\'s numbers are lost: {type(e).__name__}')
    self._bar.close()
    for file in (self._file, self._board):
      try:
        file.close()
      except OSError as e:  # a full disk: the checkpoint or the last record has said so
        self.note(f'cannot close a file below {self.workdir}: {e.strerror}')
    self.mirror.close()


def smooth(values: np.ndarray) -> np.ndarray:
  """Returns the mean over a centred window, which grows from 1 to n / 20 values after the start.

  It does not lag behind a steep curve, as a moving average of the past does. What is not finite is left out.
  """
  n = len(values)
  finite = np.isfinite(values)
  sums = np.cumsum(np.append(0.0, np.where(finite, values, 0.0)))
  counts = np.cumsum(np.append(0, finite))
  index = np.arange(n)
  half = np.minimum(index // 4, n // 40)
  low, high = index - half, np.minimum(index + half + 1, n)
  with np.errstate(invalid='ignore'):
    return (sums[high] - sums[low]) / (counts[high] - counts[low])


def draw(
  records: list[Record], path: pathlib.Path, results: Mapping[str, Any], tokens_per_step: int = 0
) -> None:
  """Draws the losses of a run over its steps, with the baselines' as lines to beat.

  Args:
    records: from `read_metrics`.
    path: PNG file to write.
    results: of `results.json`, or {}: `name`, `model`, `dataset`, `split`, `metric`, the metric's value, and perhaps
      `baselines`, each with a `loss` in nats a token, and `trigger_step`, where averaging began.
    tokens_per_step: named under the horizontal axis.
  """
  from matplotlib.figure import Figure  # here: half a second that evaluation and generation need not pay

  curves = {
    split: np.asarray([(r['step'], r['loss']) for r in records if r['split'] == split and 'loss' in r], np.float64)
    for split in ('train', 'valid')
  }
  figure = Figure(figsize=(9, 5.2), dpi=140, layout='constrained')
  axes = figure.add_subplot()
  axes.grid(True, color='0.92', linewidth=0.8)
  axes.spines[['top', 'right', 'left', 'bottom']].set_visible(False)
  axes.tick_params(length=0, colors='0.3')
  _draw_curves(axes, curves, sampled=any(key.startswith('sampled_') for r in records[:1] for key in r))
  lines = {name: b for name, b in results.get('baselines', {}).items() if np.isfinite(b.get('loss', np.nan))}
  last = max((c[-1, 0] for c in curves.values() if len(c)), default=1.0)
  _draw_results(axes, lines, results, last)
  axes.set_ylim(*_limits(curves, [b['loss'] for b in lines.values()]))
  axes.set_xlim(0, last * 1.02)
  axes.xaxis.set_major_formatter(lambda x, _: f'{x:,.0f}')
  axes.set_xlabel('training step' + (f' ({tokens_per_step:,} tokens each)' if tokens_per_step else ''), color='0.3')
  if not results.get('metric', 'perplexity_per_token').startswith('perplexity_per_'):
    axes.set_ylabel('loss (nats)', color='0.3')
  else:
    axes.set_ylabel('loss (nats per token)', color='0.3')
    _draw_perplexity(axes)
  title = results.get('name') or path.parent.name
  axes.set_title(title, loc='left', fontsize=13, fontweight='bold', color='0.2', pad=24)
  axes.text(0, 1.025, _subtitle(results), transform=axes.transAxes, fontsize=10, color='0.4')
  figure.savefig(path)


def _subtitle(results: Mapping[str, Any]) -> str:
  """Returns the model, the data and the figure that counts; '' before there are results."""
  if not results:
    return ''
  metric = results['metric']
  figure = f'{results["split"]} {metric.replace("_", " ")} {results[metric]:,.2f}'
  return f'{results["model"]} on {results["dataset"]}, {figure}'


def _limits(curves: Mapping[str, np.ndarray], lines: list[float]) -> tuple[float, float]:
  """Returns the range of the losses; the first steep fall, 3 % of the points, may leave the frame."""
  seen = [c[np.isfinite(c[:, 1]), 1] for c in curves.values() if len(c)]
  seen = [c for c in seen if len(c)] or [np.ones(1)]
  low = min(min(c.min() for c in seen), *lines, math.inf)
  high = max(max(np.quantile(c, 0.97) for c in seen), *lines, low + 1e-3)
  margin = 0.07 * (high - low)
  return low - margin, high + margin


def _draw_curves(axes: Any, curves: Mapping[str, np.ndarray], sampled: bool) -> None:
  train, valid = curves['train'], curves['valid']
  if len(train):
    axes.plot(*train.T, color='#1f5fa8', alpha=0.22, linewidth=0.9)
    label = 'training, over sampled words (smoothed)' if sampled else 'training (smoothed)'
    axes.plot(train[:, 0], smooth(train[:, 1]), color='#1f5fa8', linewidth=2, label=label)
  if len(valid):
    axes.plot(
      *valid.T, color='#d9541e', linewidth=1.4, marker='o', markersize=5, markeredgecolor='white', label='validation'
    )  # fmt: skip
    if np.isfinite(valid[:, 1]).any():
      step, best = valid[np.nanargmin(valid[:, 1])]
      below = len(train) > 0 and np.interp(step, train[:, 0], smooth(train[:, 1])) > best  # where no curve is
      axes.annotate(
        f'{best:.3f}', (step, best), (0, -15 if below else 7), textcoords='offset points', ha='center',
        color='#d9541e', fontsize=9,
      )  # fmt: skip
  if len(train) or len(valid):
    axes.legend(loc='lower right', bbox_to_anchor=(1, 1.05), ncols=2, frameon=False, labelcolor='0.2')


def _draw_results(axes: Any, lines: Mapping[str, Any], results: Mapping[str, Any], last: float) -> None:
  for name, baseline in lines.items():
    label = {'kneser_ney': 'Kneser-Ney {order}-gram', 'unigram': 'unigram'}.get(name, name).format(**baseline)
    axes.axhline(baseline['loss'], color='0.45', linewidth=1.1, linestyle=(0, (5, 3)))
    axes.annotate(
      f'{label} ({results["split"]})  {baseline["loss"]:.3f}', (last, baseline['loss']), (0, 3),
      textcoords='offset points', color='0.35', fontsize=9, ha='right', va='bottom',
    )  # fmt: skip
  trigger = results.get('trigger_step')
  if trigger is not None and trigger < last:  # else it ended the run
    axes.axvline(trigger, color='0.45', linewidth=1.1, linestyle=(0, (1, 2)))
    axes.annotate(
      f'averaging begins ({trigger:,})', (trigger, 0.02), (4, 0), xycoords=('data', 'axes fraction'),
      textcoords='offset points', color='0.35', fontsize=9,
    )  # fmt: skip


def _draw_perplexity(axes: Any) -> None:
  """Adds a right axis with round perplexities, exp of the left one."""
  from matplotlib.ticker import MaxNLocator

  right = axes.secondary_yaxis('right', functions=(np.asarray, np.asarray))
  low, high = axes.get_ylim()
  ticks = [m * 10**e for e in range(7) for m in (1, 1.5, 2, 3, 5, 7) if low <= math.log(m * 10**e) <= high]
  if len(ticks) < 4:
    even = MaxNLocator(6).tick_values(*np.exp(np.minimum([low, high], 50)))
    ticks = [p for p in even if p > 0 and low <= math.log(p) <= high]
  ticks = ticks[:: 1 + len(ticks) // 11]
  right.set_yticks([math.log(p) for p in ticks], [f'{p:,.4g}' for p in ticks])
  right.tick_params(length=0, colors='0.3')
  right.spines['right'].set_visible(False)
  right.set_ylabel('perplexity per token', color='0.3')
