"""Time of the training step, optionally alternating with the same step in PyTorch.

The step is the whole update: forward, backward, clipping, optimizer. Tokens per second are the positions that it reads,
padding included; groups of rows of similar length (`data.batching.groups`) count with their truncated length, packed
rows (`data.batching.packed`) with their sequences.
Utilisation (MFU) counts three times the operations of the forward pass, without rematerialisation (Chowdhery et al.
2022, PaLM, appendix B). PyTorch's step runs in another interpreter (`torch_step.py`), in alternating rounds, so that
both see the same load of the machine.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from lmx import host
from lmx.benchmark import peer as peer_lib
from lmx.benchmark import torch_client
from lmx.benchmark.task import build_task, split_changes
from lmx.errors import InputError


@dataclasses.dataclass(frozen=True)
class Preset:
  """A step to time: model, changes (`split_changes`), rows, tokens per row, optimizer, clipping, steps a round."""

  model: str
  changes: tuple[str, ...]
  batch: int
  length: int
  optimizer: str = 'adamw'
  clip: float = 1.0
  steps: int = 5


PRESETS = {
  'gpt2_quickstart': Preset('gpt2:124m', ('V=4096', 'T=128', 'D=192', 'H=6', 'N=4'), 16, 128),
  'gpt2_124m': Preset('gpt2:124m', ('T=256',), 2, 256, steps=2),
  'bert_base': Preset('bert:base', (), 4, 128, steps=2),
  'lstm650': Preset('rnn_lm:medium', (), 20, 35, 'sgd', 5.0),  # arXiv 1409.2329, section 4.1
  'awd_lstm': Preset('awd_lstm:ptb', (), 20, 70, 'sgd', 0.25, 4),  # arXiv 1708.02182, section 5; batch as released
  'transformer': Preset(
    'transformer:tiny', ('V=8000', 'D=256', 'F=1024', 'encoder_layers=3', 'decoder_layers=3'), 32, 32, 'adam'
  ),
  'rnnsearch': Preset('bahdanau:rnnsearch_small', ('V=10000',), 64, 16, 'adam'),
  'transformer_xl': Preset(
    'transformer_xl:wt103_base',
    ('V=10000', 'cutoffs=(2000,5000)', 'D=256', 'H=8', 'F=1024', 'N=6', 'M=128'),
    8,
    128,
    'adam',
    0.25,
  ),
  'xlnet': Preset(
    'xlnet:base', ('V=8000', 'D=256', 'H=8', 'F=1024', 'N=6', 'M=64', 'reuse=64', 'gelu=erf'), 8, 128, 'adamw'
  ),
  'lstm1150': Preset('rnn_lm:medium', ('E=1150', 'D=1150'), 40, 70, 'sgd', 0.25, 2),  # width of arXiv 1708.02182
}


class Step(NamedTuple):
  """A timed step: seconds without compilation, and (rows, tokens per row) of each part that it reads."""

  seconds: float
  parts: tuple[tuple[int, int], ...]


@dataclasses.dataclass
class Subject:
  """A training step to time.

  Attributes:
    name: name of the step.
    task: the flops.Task.
    batch, length: maximum number of rows and of tokens per row (pixels per image side), over all devices.
    optimizer, clip: the peer's settings.
    devices: number of devices.
    programs: the step compiled for every shape of a batch so far.
    steps: runs k steps; returns them, and the total seconds of waiting for data.
  """

  name: str
  task: Any
  batch: int
  length: int
  optimizer: str
  clip: float
  devices: int
  programs: Programs
  steps: Callable[[int], tuple[list[Step], float]]


class Programs:
  """A jitted step, compiled ahead for each shape of a batch.

  Attributes:
    seconds: time of tracing and compiling all of them.
    planned_bytes: maximum memory of XLA's plans, None if unknown or nothing is compiled.
  """

  def __init__(self, jitted: Any):
    self._jitted, self._compiled = jitted, dict[Any, Any]()
    self.seconds = 0.0
    self.planned_bytes: int | None = None

  def __len__(self) -> int:
    return len(self._compiled)

  def compile(self, train_state: Any, rows: Any, batch: Any, key: Any) -> Any:
    """Return the program for a batch of these shapes; the other arguments always have the same."""
    from lmx.engine import flops

    shapes = tuple((name, array.shape) for name, array in batch.items())
    if shapes not in self._compiled:
      begin = time.perf_counter()
      self._compiled[shapes] = self._jitted.lower(train_state, rows, batch, key).compile()
      self.seconds += time.perf_counter() - begin
      planned = flops.compiled_memory(self._compiled[shapes])
      self.planned_bytes = max(filter(None, (self.planned_bytes, planned)), default=None)
    return self._compiled[shapes]


def subject_from_preset(name: str, preset: Preset) -> Subject:
  """Return the step of a preset for the first device, on random tokens."""
  import jax

  from lmx.engine import flops, precision, sharding, sparse_step, state, step
  from lmx.optim import build

  changes, parallel = split_changes(preset.changes)
  task, _ = build_task(preset.model, changes)
  task = dataclasses.replace(task, cfg=task.model.settle(task.cfg))
  # 0.01 is the default of torch.optim.AdamW, which the peer uses; it costs nothing measurable.
  decay = 0.01 if preset.optimizer == 'adamw' else 0.0
  cfg = build.Config(optimizer=preset.optimizer, lr=1e-4, clip_norm=preset.clip, weight_decay=decay)
  if task.model.rows is not None:
    cfg = build.Config(optimizer='sgd', lr=1e-4)  # plain SGD, as such models are trained
  tx = build.make(cfg, task.shapes(), functools.partial(task.model.depth, task.cfg), task.cfg.N, 1000, 100)
  parts = (task.model, task.cfg, task.objective, task.objective_cfg)
  if task.model.rows is not None and sparse_step.is_sparse(cfg):
    train_step = sparse_step.make(*parts, build.rate(cfg, 1000, 100))
  else:
    train_step = step.make_train_step(*parts, tx, build.rate(cfg, 1000, 100), total_steps=1000)
  row_tables = task.model.ROW_TABLES
  engine = sharding.Engine(parallel, jax.devices()[:1], precision.default([task.cfg.dtype]), row_tables)
  train_state = engine.build(lambda key: state.create(task.init(key), tx), jax.random.key(0))
  rows = engine.build_rows(lambda: task.model.init_state(task.cfg, preset.batch), preset.batch)
  batch = engine.put_batch(flops.random_batch(task, preset.batch, preset.length))
  key = engine.replicate(jax.random.key(1))
  programs = Programs(engine.compile_train(train_step, train_state))

  def steps(k: int) -> tuple[list[Step], float]:
    nonlocal train_state, rows
    timed = []
    program = programs.compile(train_state, rows, batch, key)
    for _ in range(k):
      start = time.perf_counter()
      train_state, rows, metrics = program(train_state, rows, batch, key)
      jax.block_until_ready(metrics['loss'])
      timed.append(Step(time.perf_counter() - start, ((preset.batch, preset.length),)))
    return timed, 0.0

  return Subject(name, task, preset.batch, preset.length, preset.optimizer, preset.clip, 1, programs, steps)


def subject_from_config(path: str, overrides: list[str]) -> Subject:
  """Return the step of a run, on its own devices, with its own data."""
  import jax

  from lmx import train
  from lmx.config import resolve
  from lmx.data import pipeline
  from lmx.runs import training

  loaded = resolve.load(path, overrides)
  run = resolve.to_run(loaded)
  corpus = train.load_corpus(dataclasses.replace(run, data=pipeline.without_missing_vectors(run.data)))
  _, settled = resolve.with_corpus(loaded, corpus)
  engine = training.make_engine(settled)
  session = train.Session(settled, corpus, engine, None, '')
  data, batches = settled.data, session.batches
  done = 0
  programs = Programs(session.train_step)

  def steps(k: int) -> tuple[list[Step], float]:
    nonlocal done
    timed = []
    ahead = (data.prefetch, data.workers, data.processes)
    with pipeline.prefetch(batches, done, done + k, session.rows, *ahead) as stream:
      start = time.perf_counter()
      for _, batch in stream:
        args = session.state, session.model_state, engine.put_batch(batch), session.train_key
        compiled = programs.seconds
        program = programs.compile(*args)
        start += programs.seconds - compiled
        session.state, session.model_state, metrics = program(*args)
        jax.block_until_ready(metrics['loss'])
        timed.append(Step(time.perf_counter() - start, session.step_parts(batch)))
        start = time.perf_counter()
    done += k
    return timed, stream.wait_seconds

  optim = settled.optim
  return Subject(
    path,
    session.task,
    batches.batch_size,
    batches.length,
    optim.optimizer,
    optim.clip_norm,
    engine.mesh.size,
    programs,
    steps,
  )


def measure(subject: Subject, *, steps: int, warmup: int, rounds: int = 1, peer: str | None = None) -> dict[str, Any]:
  """Time a step and return its metrics, serialisable as JSON.

  Args:
    subject: the step.
    steps: timed steps per round.
    warmup: untimed steps before them.
    rounds: number of rounds, alternating with the peer.
    peer: interpreters, separated by commas; the first that has its library is used; None for no comparison.

  Raises:
    InputError: the run is compared with the peer, but its batches have several shapes.
  """
  subject.steps(warmup)
  if not peer:
    return compute_metrics(subject, *subject.steps(steps))
  timed, theirs, ratios, waited = list[Step](), [], [], 0.0
  spec = torch_client.spec(subject)
  with peer_lib.Peer(peer_lib.choose(peer, torch_client.packages(subject))) as process:
    about = process.send(spec)
    process.send({'steps': max(warmup, 1)})
    for _ in range(rounds):
      ours, wait = subject.steps(steps)
      if any(step.parts != ((subject.batch, subject.length),) for step in ours):
        raise InputError(
          'the peer needs batches of one shape, but this run has several; set data.batching.buckets to (), '
          'data.batching.groups to 1 and data.batching.packed to False'
        )
      other = process.send({'steps': steps})['seconds']
      timed += ours
      theirs += other
      waited += wait
      ratios.append(statistics.median(other) / statistics.median(step.seconds for step in ours))
    peak = process.peak_bytes
  metrics = compute_metrics(subject, timed, waited)
  metrics['peer'] = {
    'torch': about['torch'],
    'threads': about['threads'],
    'parameters': about['parameters'],
    **_spread(theirs),
    'ratio': statistics.median(theirs) / metrics['step_seconds'],
    'ratio_of_rounds': ratios,
    'peak_process_bytes': peak,
  }
  return metrics


def _spread(times: list[float]) -> dict[str, float]:
  quarters = statistics.quantiles(times, n=4) if len(times) > 1 else [times[0]] * 3
  return {'step_seconds': statistics.median(times), 'quartile_1': quarters[0], 'quartile_3': quarters[2]}


def compute_metrics(subject: Subject, steps: list[Step], waited: float) -> dict[str, Any]:
  """Return the metrics of one subject, rates as medians over steps; None where the device does not report one."""
  import jax

  from lmx.engine import flops, peaks
  from lmx.reporting import run_log

  spread = _spread([step.seconds for step in steps])
  shapes = sorted({part for step in steps for part in step.parts}, key=lambda shape: shape[1])
  task = subject.task
  count = lambda n, T: n * task.positions(T)
  work = {part: flops.part_flops(task, part) for part in shapes}
  tokens = statistics.median(sum(count(n, T) for n, T in step.parts) / step.seconds for step in steps)
  rate = statistics.median(sum(work[part] for part in step.parts) / step.seconds for step in steps)
  peak = peaks.run_peak(subject.task.cfg.dtype, subject.devices)
  stats = jax.local_devices()[0].memory_stats() or {}
  return {
    'name': subject.name,
    'shapes': shapes,
    'batch': subject.batch,
    'length': subject.length,
    'optimizer': subject.optimizer,
    'parameters': flops.count(subject.task.shapes()),
    **spread,
    'steps': len(steps),
    'unit': task.unit,  # 'pixel' for images; the next value counts pixels
    'tokens_per_second': tokens,
    'compile_seconds': subject.programs.seconds,
    'programs': len(subject.programs),
    'planned_bytes': subject.programs.planned_bytes,
    'peak_device_bytes': stats.get('peak_bytes_in_use'),
    'peak_process_bytes': host.process_peak(),
    'waiting_share': waited / sum(step.seconds for step in steps),
    'flops_per_second': rate,
    'mfu': rate / peak if peak else None,
    'device': run_log.device(),
    'versions': run_log.versions(),
  }


def format_lines(metrics: dict[str, Any]) -> list[str]:
  """Return the metrics as lines for a reader."""
  size = lambda x: 'unknown' if x is None else f'{x / 2**20:,.0f} MiB'
  milli = lambda x: '{:,.1f} ms ({:,.1f} to {:,.1f})'.format(
    *(1000 * x[name] for name in ('step_seconds', 'quartile_1', 'quartile_3'))
  )
  mfu = 'peak of the device unknown' if metrics['mfu'] is None else f'{metrics["mfu"]:.1%} of the peak'
  programs = metrics['programs']
  rows = [
    ('parameters', f'{metrics["parameters"]:,}'),
    ('step', f'{milli(metrics)}, median and quartiles of {metrics["steps"]}'),
    (f'{metrics["unit"]}s a second', f'{metrics["tokens_per_second"]:,.0f}'),
    ('compiling', f'{metrics["compile_seconds"]:.1f} s' + (f', {programs} programs' if programs > 1 else '')),
    ('memory planned by XLA', size(metrics['planned_bytes'])),
    ('peak memory, device', size(metrics['peak_device_bytes'])),
    ('peak memory, process', size(metrics['peak_process_bytes'])),
    ('waiting for data', f'{metrics["waiting_share"]:.1%}'),
    ('utilisation', f'{metrics["flops_per_second"] / 1e9:,.1f} GFLOP/s, {mfu}'),
  ]
  if 'peer' in metrics:
    peer = metrics['peer']
    rounds = ', '.join(f'{ratio:.2f}' for ratio in peer['ratio_of_rounds'])
    about = f'{peer["threads"]} threads, {peer["parameters"]:,} parameters'
    rows.append((f'torch {peer["torch"]}', f'{milli(peer)}, {about}'))
    rows.append(("peak memory, peer's process", size(peer['peak_process_bytes'])))
    rows.append(('times as fast', f'{peer["ratio"]:.2f} (rounds {rounds})'))
  first, last = (' x '.join(map(str, metrics['shapes'][i])) for i in (0, -1))
  title = f'{metrics["name"]}: batch {first if first == last else f"{first} to {last}"} on {metrics["device"]}'
  return [title, *(f'  {name:27} {text}' for name, text in rows)]
