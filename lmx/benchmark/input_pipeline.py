"""Tokens per second that one of several hosts builds, compared with the training step's rate (`lmx bench --data`).

The batches are the training loop's: a host's rows, prefetched by `data.workers` threads or `data.processes` processes
(Grain), with masks, permutations, packing and padding. Nothing consumes them here, so they are taken as fast as they
are built. `tokens_per_core_second` counts the processor time of all threads and processes and does not depend on other
programs. Copies to the devices are not measured. Tokens are positions, padding included.
"""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from lmx import documents, host
from lmx.benchmark import synthetic
from lmx.config import resolve
from lmx.data import pipeline
from lmx.data.batching.base import Batches
from lmx.errors import InputError


@dataclasses.dataclass(frozen=True)
class Subject:
  """A run's batches on one of several hosts.

  Attributes:
    name: name of the config.
    data: the `data` section.
    batches: of the training split.
    hosts: number of hosts.
    source: description of the data.
    vocabulary: vocabulary size of random tokens; 0 takes the data's.
  """

  name: str
  data: pipeline.Config
  batches: Batches
  hosts: int
  source: str
  vocabulary: int

  @property
  def rows(self) -> slice:
    """Rows of the first host."""
    return slice(0, self.batches.padded_rows // self.hosts)


def subject(path: str, overrides: list[str], hosts: int) -> Subject:
  """Return the batches of a config, of random tokens if its data are not prepared on this machine.

  Raises:
    InputError: the hosts do not divide the rows of a batch, or the data can be neither read nor made up.
  """
  config = resolve.load(path, overrides)
  run = resolve.to_run(config)
  corpus, source, vocabulary = pipeline.load_prepared(run.data), f'prepared data of {run.data.dataset}', 0
  if corpus is None:
    vocabulary = getattr(run.model, 'V', 0) or run.data.vocab_size or synthetic.vocabulary(run.data.tokenizer)
    corpus = synthetic.corpus(run.data, vocabulary)
    source = (
      f'random tokens, {corpus.split("train").counts["tokens"]:,} of a vocabulary of {vocabulary:,}, because the data '
      f'of {run.data.dataset} are not prepared on this machine (lmx prepare)'
    )
  batches = pipeline.batches(run.data, corpus, 'train', run.seed, train=True)
  for rows in batches.row_counts():
    if rows % hosts:
      raise InputError(
        f'--hosts: got {hosts}; expected a divisor of the {rows:,} rows of a batch; set --hosts or data.batch_size'
      )
  return Subject(path, run.data, batches, hosts, source, vocabulary)


def measure(subject: Subject, *, steps: int, warmup: int, rounds: int) -> dict[str, Any]:
  """Build the batches of a host and return the metrics, serialisable as JSON.

  Args:
    subject: the batches.
    steps: batches of a round.
    warmup: batches before, not timed.
    rounds: number of rounds; rates are medians and quartiles over them.
  """
  data = subject.data
  timed: list[tuple[float, float, int]] = []  # seconds, seconds of cores and tokens of each round
  warmup = max(warmup, data.processes)  # which first start
  stop, ahead = warmup + steps * rounds, (data.prefetch, data.workers, data.processes)
  with pipeline.prefetch(subject.batches, 0, stop, subject.rows, *ahead) as stream:
    for _ in range(warmup):
      next(stream)
    for _ in range(rounds):
      began, began_core = time.perf_counter(), _core_seconds()
      built = sum(count_positions(batch, subject.batches.length) for _, batch in itertools.islice(stream, steps))
      timed.append((time.perf_counter() - began, _core_seconds() - began_core, built))
  walls, cores, tokens = zip(*timed, strict=True)
  rates = [n / wall for n, wall in zip(tokens, walls, strict=True)]
  quarters = statistics.quantiles(rates, n=4) if rounds > 1 else rates * 3
  return {
    'name': subject.name,
    'data': subject.source,
    'hosts': subject.hosts,
    'batch': subject.batches.padded_rows,
    'rows': subject.rows.stop,
    'length': subject.batches.length,
    'batch_tokens': sum(tokens) / (steps * rounds),
    'unit': subject.batches.unit,
    'steps': steps,
    'rounds': rounds,
    'workers': data.workers,
    'processes': data.processes,
    'prefetch': data.prefetch,
    'cores': host.cores(),
    'batch_seconds': statistics.median(walls) / steps,
    'tokens_per_second': statistics.median(rates),
    'quartile_1': quarters[0],
    'quartile_3': quarters[2],
    'tokens_per_core_second': statistics.median(n / core for n, core in zip(tokens, cores, strict=True)),
  }


def _core_seconds() -> float:
  """Return the time of cores of this process and its worker processes."""
  workers = (process.pid for process in multiprocessing.active_children())
  return time.process_time() + sum(host.cpu_seconds(pid) for pid in workers if pid is not None)


def count_positions(batch: Mapping[str, np.ndarray], length: int) -> int:
  """Return a batch's number of token or pixel positions; rows may be shorter than `length`."""
  for name in ('tokens_BT', 'tokens_BGT', 'labels_BYX'):
    if name in batch:
      return batch[name].size
  return len(batch['index_B']) * length


def step_of_report(subject: Subject, report: Any, where: str) -> tuple[float, str]:
  """Return the minimum step time, with collectives overlapped, and its source.

  Args:
    subject: the batches.
    report: of `lmx compile --json`.
    where: its file or topology.

  Raises:
    InputError: it is not such a report, it has no estimate, its batch differs, or the hosts do not divide its chips.
  """
  estimate = documents.field(report, 'estimate', dict, f'{where} (of lmx compile, without --partition)')
  compute, collectives = (
    documents.field(estimate, f'{name}_seconds', float, where) for name in ('compute', 'collective')
  )
  rows, length, chips = (documents.field(report, name, int, where) for name in ('rows', 'length', 'chips'))
  batches = subject.batches
  if not 0 <= rows - batches.batch_size < chips or length != batches.length:
    raise InputError(
      f'{where}: got a step of {rows:,} rows of {length:,}; expected the {batches.batch_size:,} rows of '
      f'{batches.length:,} of --config; compile the step of this config'
    )
  if chips % subject.hosts:
    raise InputError(f'--hosts: got {subject.hosts}; expected a divisor of the {chips} chips of {where}')
  return max(compute, collectives), f'{where}, estimate of lmx compile, {chips // subject.hosts} chips a host'


def compare(metrics: Mapping[str, Any], seconds: float, source: str) -> dict[str, Any]:
  """Return the tokens per second that a step of `seconds` reads from a host, and the host's rate relative to it."""
  needed = metrics['batch_tokens'] / seconds
  return {
    'source': source,
    'seconds': seconds,
    'tokens_per_second': needed,
    'ratio': metrics['tokens_per_second'] / needed,
    'ratio_of_a_core': metrics['tokens_per_core_second'] / needed,
  }


def _builders(metrics: Mapping[str, Any]) -> str:
  threads = f'{metrics["workers"]} threads (data.workers)'
  return f'{metrics["processes"]} processes (data.processes) of {threads}' if metrics['processes'] else threads


def format_lines(metrics: Mapping[str, Any]) -> list[str]:
  """Return the metrics as lines for a reader."""
  rates = '{:,.0f} ({:,.0f} to {:,.0f})'.format(
    *(metrics[name] for name in ('tokens_per_second', 'quartile_1', 'quartile_3'))
  )
  unit = metrics['unit']
  rows = [
    ('data', metrics['data']),
    ('built by', f'{_builders(metrics)}, {metrics["prefetch"]} batches ahead, {metrics["cores"]} cores'),
    ('a batch', f'{metrics["batch_tokens"]:,.0f} {unit} in {1000 * metrics["batch_seconds"]:,.1f} ms'),
    (f'{unit} a second', f'{rates}, median and quartiles of {metrics["rounds"]} rounds of {metrics["steps"]} batches'),
    (f'{unit} a core second', f'{metrics["tokens_per_core_second"]:,.0f}'),
  ]
  if step := metrics.get('step'):
    rows += [
      ('the step', f'{step["seconds"]:.4g} s ({step["source"]})'),
      ('it reads of a host', f'{step["tokens_per_second"]:,.0f} {unit} a second'),
      ('built / read', f'{step["ratio"]:,.1f}; of one core {step["ratio_of_a_core"]:,.1f}'),
    ]
  share = f'{metrics["rows"]:,} of {metrics["batch"]:,} rows of {metrics["length"]:,}'
  title = f'{metrics["name"]}: one host of {metrics["hosts"]:,}, {share}'
  return [title, *(f'  {name:24} {text}' for name, text in rows)]
