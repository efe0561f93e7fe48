"""`lmx bench`: times the training step, alone or in turns with the same step in PyTorch.

Of the training step three things can be timed: a model at given sizes (MODEL[:variant], random tokens, one device), a
preset of these, and a run with its own data, devices and optimizer (--config). --attention times factorized and dense
attention by themselves at several lengths (lmx/cli/lengths.py), --evaluation how a model with a memory is measured
(lmx/cli/sliding.py). With --peer the step of transformers or torch.nn runs in
another interpreter (lmx/cli/peer.py), in rounds that alternate, so that both meet the same state of the machine.

The step is the whole update: forward, backward, clipping, optimizer. Utilisation (MFU) counts three times the
operations of the forward pass, without what is computed twice (Chowdhery et al. 2022, PaLM, appendix B).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

from lmx.cli import describe, lengths, sliding
from lmx.errors import InputError, nearest

_DROPOUT = {  # the fields that peer's one rate stands for
  'gpt': ('dropout_embedding', 'dropout_attention', 'dropout_residual'),
  'gpt2': ('dropout_embedding', 'dropout_attention', 'dropout_residual'),
  'bert': ('dropout_hidden', 'dropout_attention'),
  'rnn_lm': ('dropout',),
}


@dataclasses.dataclass(frozen=True)
class Preset:
  """A step to time: model, changes of its fields, rows, tokens a row, optimizer and gradient clipping."""

  model: str
  changes: tuple[str, ...]
  batch: int
  length: int
  optimizer: str = 'adamw'
  clip: float = 1.0


PRESETS = {
  'gpt2_quickstart': Preset('gpt2:124m', ('V=4096', 'T=128', 'D=192', 'H=6', 'N=4'), 16, 128),
  'gpt2_124m': Preset('gpt2:124m', ('T=256',), 2, 256),
  'bert_base': Preset('bert:base', (), 4, 128),
  'lstm650': Preset('rnn_lm:medium', (), 20, 35, 'sgd', 5.0),  # arXiv 1409.2329, section 4.1
  'awd_lstm': Preset('awd_lstm:ptb', (), 20, 70, 'sgd', 0.25),  # arXiv 1708.02182, section 5; batch as released
  'transformer': Preset(
    'transformer:tiny', ('V=8000', 'D=256', 'F=1024', 'encoder_layers=3', 'decoder_layers=3'), 32, 32, 'adam'
  ),
  'rnnsearch': Preset('seq2seq:rnnsearch_small', ('V=10000',), 64, 16, 'adam'),
  'transformer_xl': Preset(
    'transformer_xl:wt103_base',
    ('V=10000', 'cutoffs=(2000,5000)', 'D=256', 'H=8', 'F=1024', 'N=6', 'M=128'), 8, 128, 'adam', 0.25,
  ),
  'xlnet': Preset(
    'xlnet:base', ('V=8000', 'D=256', 'H=8', 'F=1024', 'N=6', 'M=64', 'reuse=64', 'gelu=erf'), 8, 128, 'adamw'
  ),
  'lstm1150': Preset('rnn_lm:medium', ('E=1150', 'D=1150'), 40, 70, 'sgd', 0.25),  # width of arXiv 1708.02182
}


@dataclasses.dataclass
class Subject:
  """A compiled training step.

  Attributes:
    name: what is timed.
    task: the cost.Task.
    batch, length: rows and tokens a row, of all devices.
    optimizer, clip: as the peer is told.
    devices: how many.
    compile_seconds: tracing and compiling.
    planned_bytes: memory that XLA plans for the step, None if it does not say.
    steps: runs k steps; returns (seconds of each, seconds waited for data in all).
  """

  name: str
  task: Any
  batch: int
  length: int
  optimizer: str
  clip: float
  devices: int
  compile_seconds: float
  planned_bytes: int | None
  steps: Callable[[int], tuple[list[float], float]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('model', nargs='?', metavar='MODEL[:variant]', help='a model on random tokens')
  parser.add_argument('--config', help='a run with its own data, as `lmx train` takes it')
  parser.add_argument('--preset', help='all, or one of ' + ', '.join(PRESETS))
  parser.add_argument('--attention', metavar='T,T,...', help='factorized and dense attention at these lengths')
  parser.add_argument('--set', action='append', default=[], metavar='FIELD=VALUE', help='change a field of MODEL')
  parser.add_argument('--batch', type=int, default=8, help='rows, for MODEL (default %(default)s)')
  parser.add_argument('--length', type=int, default=0, help="tokens a row, for MODEL (default: the model's window)")
  parser.add_argument('--optimizer', default='adamw', help='adamw, adam or sgd, for MODEL (default %(default)s)')
  parser.add_argument('--steps', type=int, default=10, help='timed steps, in each round (default %(default)s)')
  parser.add_argument('--warmup', type=int, default=3, help='steps before, not timed (default %(default)s)')
  parser.add_argument('--rounds', type=int, default=3, help='turns with the peer (default %(default)s)')
  parser.add_argument('--peer', metavar='PYTHON', help='interpreter with torch and transformers to compare with')
  parser.add_argument(
    '--evaluation', metavar='LENGTHS', help='time not the step but evaluation, with a memory and by windows: attention '
    'lengths, commas between, for MODEL',
  )  # fmt: skip
  parser.add_argument('--json', metavar='FILE', help='write the figures there')


def run(args: argparse.Namespace) -> int:
  if sum(x is not None for x in (args.model, args.config, args.preset, args.attention)) != 1:
    raise InputError('say what to time: MODEL[:variant], --preset=NAME, --config=FILE or --attention=T, one of them')
  if args.steps < 1 or args.warmup < 0 or args.rounds < 1:
    raise InputError('--steps and --rounds must be at least 1, --warmup at least 0')
  found: list[dict[str, Any]] = []
  if args.attention:
    found = lengths.measure(lengths.parse(args.attention), args.steps)
  elif args.evaluation is not None:
    found = sliding.run(args)
  for make in _subjects(args) if not args.attention and args.evaluation is None else ():
    subject = make()
    figures = measure(subject, args)
    for line in lines(figures):
      print(line, flush=True)
    found.append(figures)
  if args.json:
    try:
      pathlib.Path(args.json).write_text(json.dumps(found, indent=1) + '\n')
    except OSError as error:
      raise InputError(f'cannot write {args.json}: {error}') from None
  return 0


def _subjects(args: argparse.Namespace) -> list[Callable[[], Subject]]:
  if args.config:
    return [functools.partial(of_config, args.config, args.overrides)]
  if args.model:
    task, _ = describe.task_of(args.model, args.set)
    length = describe.length_of(task.cfg, args.batch, args.length)
    preset = Preset(args.model, tuple(args.set), args.batch, length, args.optimizer)
    return [functools.partial(of_preset, args.model, preset)]
  if args.preset != 'all' and args.preset not in PRESETS:
    raise InputError(f'unknown preset "{args.preset}"{nearest(args.preset, ["all", *PRESETS])}')
  names = PRESETS if args.preset == 'all' else [args.preset]
  return [functools.partial(of_preset, name, PRESETS[name]) for name in names]


def of_preset(name: str, preset: Preset) -> Subject:
  """Compiles the step of a preset for the first device, on random tokens."""
  import jax

  from lmx import cost, parallel, sparse_step, state, step
  from lmx.optim import build

  task, _ = describe.task_of(preset.model, preset.changes)
  # 0.01 is the default of torch.optim.AdamW, which the peer uses; it costs nothing measurable.
  decay = 0.01 if preset.optimizer == 'adamw' else 0.0
  cfg = build.Config(optimizer=preset.optimizer, lr=1e-4, clip_norm=preset.clip, weight_decay=decay)
  if hasattr(task.model, 'rows'):
    cfg = build.Config(optimizer='sgd', lr=1e-4)  # what such models are trained with
  tx = build.make(cfg, task.shapes(), functools.partial(task.model.depth, task.cfg), task.cfg.N, 1000, 100)
  parts = (task.model, task.cfg, task.objective, task.objective_cfg)
  if sparse_step.suits(task.model, cfg):
    train_step = sparse_step.make(*parts, build.rate(cfg, 1000, 100))
  else:
    train_step = step.make_train_step(*parts, tx, build.rate(cfg, 1000, 100), total_steps=1000)
  engine = parallel.Engine(parallel.Config(), jax.devices()[:1])
  held = engine.build(lambda key: state.create(task.init(key), tx), jax.random.key(0))
  rows = engine.build_rows(lambda: task.model.init_state(task.cfg, preset.batch), preset.batch)
  batch = engine.put_batch(cost.random_batch(task, preset.batch, preset.length))
  key = engine.replicate(jax.random.key(1))
  begin = time.perf_counter()
  compiled = engine.compile_train(train_step, held).lower(held, rows, batch, key).compile()
  seconds = time.perf_counter() - begin

  def steps(k: int) -> tuple[list[float], float]:
    nonlocal held, rows
    times = []
    for _ in range(k):
      start = time.perf_counter()
      held, rows, metrics = compiled(held, rows, batch, key)
      jax.block_until_ready(metrics['loss'])
      times.append(time.perf_counter() - start)
    return times, 0.0

  return Subject(
    name, task, preset.batch, preset.length, preset.optimizer, preset.clip, 1, seconds,
    cost.compiled_memory(compiled), steps,
  )  # fmt: skip


def of_config(path: str, overrides: list[str]) -> Subject:
  """Compiles the step of a run, on its own devices, and feeds it from its own data."""
  import jax

  from lmx import config, cost, parallel, train
  from lmx.data import pipeline

  loaded = config.load(path, overrides)
  corpus = train.load_corpus(config.to_run(loaded))
  _, settled = config.with_corpus(loaded, corpus)
  engine = parallel.Engine(settled.parallel)
  session = train.Session(settled, corpus, engine, None, '')
  data, batches = settled.data, session.batches
  done = 0
  first = engine.put_batch(batches(0, session.rows))
  begin = time.perf_counter()
  compiled = session.train_step.lower(session.state, session.model_state, first, session.train_key).compile()
  seconds = time.perf_counter() - begin

  def steps(k: int) -> tuple[list[float], float]:
    nonlocal done
    times = []
    with pipeline.prefetch(batches, done, done + k, session.rows, data.prefetch, data.workers) as stream:
      start = time.perf_counter()
      for _, batch in stream:
        session.state, session.model_state, metrics = compiled(
          session.state, session.model_state, engine.put_batch(batch), session.train_key
        )
        jax.block_until_ready(metrics['loss'])
        times.append(time.perf_counter() - start)
        start = time.perf_counter()
    done += k
    return times, stream.wait_seconds

  task = cost.Task(session.model, settled.model, session.objective, settled.objective)
  optim = settled.optim
  return Subject(
    path, task, batches.batch_size, data.length, optim.optimizer, optim.clip_norm, engine.mesh.size, seconds,
    cost.compiled_memory(compiled), steps,
  )  # fmt: skip


def peer_spec(subject: Subject) -> dict[str, Any]:
  """What the peer is told to build; InputError if it has no such model or not these dropout rates."""
  cfg, name = subject.task.cfg, subject.task.model.__name__.rsplit('.', 1)[-1]
  if name == 'awd_lstm' and cfg.cell == 'lstm' and cfg.tied:
    return _awd_lstm_spec(subject)
  if name == 'transformer' and cfg.norm == 'post' and cfg.encoder_layers == cfg.decoder_layers:
    return _translator_spec(subject, 'marian', cfg.dropout) | {'N': cfg.encoder_layers, 'H': cfg.H, 'F': cfg.F}
  if name == 'seq2seq' and (cfg.design, cfg.cell, cfg.score, cfg.N) == ('bahdanau', 'gru', 'additive', 2):
    return _translator_spec(subject, 'rnnsearch', 0.0) | {field: getattr(cfg, field) for field in ('E', 'A', 'maxout')}
  if name == 'xlnet' or (name == 'transformer_xl' and not cfg.untie and cfg.positions == 'sinusoids'):
    return _with_memory_spec(subject, name)
  if name not in _DROPOUT:
    others = (
      'awd_lstm (LSTM, tied)', 'transformer (post-norm)', 'seq2seq (rnnsearch with the cell gru)', 'xlnet',
      'transformer_xl (sinusoids, untie=false)',
    )  # fmt: skip
    raise InputError(f'the peer has no model "{name}" like this one; it has {", ".join([*_DROPOUT, *others])}')
  rates = {getattr(cfg, field) for field in _DROPOUT[name]}
  optimizer = {'bert_adam': 'adamw'}.get(subject.optimizer, subject.optimizer)
  if len(rates) > 1:
    raise InputError(f'the peer has one dropout rate, and {name} is given {sorted(rates)}')
  names = ('V', 'E', 'D', 'N', 'tied') if name == 'rnn_lm' else ('V', 'D', 'N', 'H')
  return {
    'kind': cfg.cell if name == 'rnn_lm' else name,
    **{field: getattr(cfg, field) for field in names},
    'dropout': rates.pop(),
    'batch': subject.batch,
    'length': subject.length,
    'optimizer': optimizer,
    'clip': subject.clip or 1e9,  # the peer always clips; this leaves the gradient as it is
    'threads': _cores(),
  }


def _translator_spec(subject: Subject, kind: str, dropout: float) -> dict[str, Any]:
  cfg = subject.task.cfg
  return {
    'kind': kind, 'V': cfg.V, 'D': cfg.D, 'dropout': dropout, 'batch': subject.batch, 'length': subject.length,
    'optimizer': subject.optimizer, 'clip': subject.clip or 1e9, 'threads': _cores(),
  }  # fmt: skip


def _with_memory_spec(subject: Subject, kind: str) -> dict[str, Any]:
  cfg = subject.task.cfg
  fields = ('N', 'H', 'F', 'M') + (('cutoffs', 'div_val') if kind == 'transformer_xl' else ('reuse',))
  return _translator_spec(subject, kind, cfg.dropout) | {field: getattr(cfg, field) for field in fields}


def _awd_lstm_spec(subject: Subject) -> dict[str, Any]:
  cfg = subject.task.cfg
  rates = ('input', 'hidden', 'output', 'embedding', 'weight')
  return {
    'kind': 'awd_lstm', **{field: getattr(cfg, field) for field in ('V', 'E', 'D', 'N', 'alpha', 'beta')},
    'dropout': {rate: getattr(cfg, f'dropout_{rate}') for rate in rates}, 'batch': subject.batch,
    'length': subject.length, 'optimizer': subject.optimizer, 'clip': subject.clip or 1e9, 'threads': _cores(),
  }  # fmt: skip


def _cores() -> int:
  return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


class Peer:
  """The other interpreter; a context manager."""

  def __init__(self, python: str):
    program = pathlib.Path(__file__).with_name('peer.py')
    try:
      self._process = subprocess.Popen(
        [python, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_plain_environment()
      )
    except OSError as error:
      raise InputError(f'cannot run the peer {python}: {error}') from None
    self._input: Any = self._process.stdin
    self._output: Any = self._process.stdout

  def __enter__(self) -> Peer:
    return self

  def __exit__(self, *_: Any) -> None:
    with contextlib.suppress(BrokenPipeError):  # it may have ended already
      self._input.close()
    self._process.wait(timeout=60)

  def ask(self, request: dict[str, Any]) -> dict[str, Any]:
    """Sends a request and returns the answer; InputError with what the peer says is wrong."""
    try:
      self._input.write(json.dumps(request) + '\n')
      self._input.flush()
      line = self._output.readline()
    except BrokenPipeError:
      line = ''
    if not line:
      raise InputError('the peer ended before it answered; what it printed stands above')
    answer = json.loads(line)
    if 'error' in answer:
      raise InputError(f'the peer cannot do this: {answer["error"]}')
    return answer


def _plain_environment() -> dict[str, str]:
  """The environment without this interpreter's module path, which is not the peer's."""
  return {k: v for k, v in os.environ.items() if k not in ('PYTHONPATH', 'PYTHONHOME')}


def measure(subject: Subject, args: argparse.Namespace) -> dict[str, Any]:
  """Runs the rounds and returns the figures, JSON-able."""
  subject.steps(args.warmup)
  if not args.peer:
    times, waited = subject.steps(args.steps)
    return figures(subject, times, waited)
  times, theirs, ratios, waited = [], [], [], 0.0
  with Peer(args.peer) as peer:
    about = peer.ask(peer_spec(subject))
    peer.ask({'steps': max(args.warmup, 1)})
    for _ in range(args.rounds):
      ours, wait = subject.steps(args.steps)
      other = peer.ask({'steps': args.steps})['seconds']
      times += ours
      theirs += other
      waited += wait
      ratios.append(statistics.median(other) / statistics.median(ours))
  found = figures(subject, times, waited)
  found['peer'] = {
    'torch': about['torch'], 'threads': about['threads'], 'parameters': about['parameters'],
    **_spread(theirs), 'ratio': statistics.median(theirs) / found['step_seconds'], 'ratio_of_rounds': ratios,
  }  # fmt: skip
  return found


def _spread(times: list[float]) -> dict[str, float]:
  quarters = statistics.quantiles(times, n=4) if len(times) > 1 else [times[0]] * 3
  return {'step_seconds': statistics.median(times), 'quartile_1': quarters[0], 'quartile_3': quarters[2]}


def figures(subject: Subject, times: list[float], waited: float) -> dict[str, Any]:
  """The figures of one subject; None stands for what the device does not tell."""
  import jax

  from lmx import cost, log

  tokens = subject.batch * subject.length
  spread = _spread(times)
  forward = cost.flops_per_token(subject.task, subject.batch, subject.length, training=False)
  rate = 3 * forward * tokens / spread['step_seconds']
  peak = cost.peak_flops(jax.devices()[0].device_kind, subject.task.cfg.dtype)
  stats = jax.local_devices()[0].memory_stats() or {}
  return {
    'name': subject.name, 'batch': subject.batch, 'length': subject.length, 'optimizer': subject.optimizer,
    'parameters': cost.count(subject.task.shapes()), **spread, 'steps': len(times),
    'tokens_per_second': tokens / spread['step_seconds'], 'compile_seconds': subject.compile_seconds,
    'planned_bytes': subject.planned_bytes, 'peak_device_bytes': stats.get('peak_bytes_in_use'),
    'peak_process_bytes': cost.process_peak(), 'waiting_share': waited / sum(times),
    'flops_per_second': rate, 'mfu': rate / (peak * subject.devices) if peak else None,
    'device': log.device(), 'versions': log.versions(),
  }  # fmt: skip


def lines(found: dict[str, Any]) -> list[str]:
  """The figures for a reader."""
  size = lambda x: 'unknown' if x is None else f'{x / 2**20:,.0f} MiB'
  milli = lambda x: '{:,.1f} ms ({:,.1f} to {:,.1f})'.format(
    *(1000 * x[name] for name in ('step_seconds', 'quartile_1', 'quartile_3'))
  )
  mfu = 'peak of the device unknown' if found['mfu'] is None else f'{found["mfu"]:.1%} of the peak'
  rows = [
    ('parameters', f'{found["parameters"]:,}'),
    ('step', f'{milli(found)}, median and quartiles of {found["steps"]}'),
    ('tokens a second', f'{found["tokens_per_second"]:,.0f}'),
    ('compiling', f'{found["compile_seconds"]:.1f} s'),
    ('memory planned by XLA', size(found['planned_bytes'])),
    ('peak memory, device', size(found['peak_device_bytes'])),
    ('peak memory, process', size(found['peak_process_bytes'])),
    ('waiting for data', f'{found["waiting_share"]:.1%}'),
    ('utilisation', f'{found["flops_per_second"] / 1e9:,.1f} GFLOP/s, {mfu}'),
  ]
  if 'peer' in found:
    peer = found['peer']
    rounds = ', '.join(f'{ratio:.2f}' for ratio in peer['ratio_of_rounds'])
    about = f'{peer["threads"]} threads, {peer["parameters"]:,} parameters'
    rows.append((f'torch {peer["torch"]}', f'{milli(peer)}, {about}'))
    rows.append(('times as fast', f'{peer["ratio"]:.2f} (rounds {rounds})'))
  title = f'{found["name"]}: batch {found["batch"]} x {found["length"]} on {found["device"]}'
  return [title, *(f'  {name:24} {text}' for name, text in rows)]
