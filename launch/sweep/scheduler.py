"""Loop of a sweep, which gives trials to workers until every trial has ended."""

from __future__ import annotations

import argparse
import signal
import time
from typing import Any

from launch import jobs
from launch.command import INPUT_ERROR, PREEMPTED
from launch.sweep import metrics, report, study, trial
from lmx.redaction import redact

SHOWN = 60.0  # seconds between two lines on a running trial


class Scheduler:
  """Loop over the workers of a sweep.

  Attributes:
    workers: by slot.
    signals: number of SIGINT and SIGTERM so far.
    number: the first of them.
    refused: input error that two trials ended with, '' before; no further trial is begun.
  """

  def __init__(self, args: argparse.Namespace, plan: trial.Plan, store: study.Store, search: study.Search):
    self.args, self.plan, self.store, self.search = args, plan, store, search
    self.launcher = jobs.Local(is_remote=args.where != 'local')
    self.workers: dict[int, trial.Worker] = {}
    self.signals = self.number = 0
    self.refused = ''
    self._input_errors: set[str] = set()
    self._last_claim = self._last_beat = -1e9
    self._last_shown = time.monotonic()

  def run(self) -> int:
    """Run until every trial has ended.

    Returns:
      0; 2 if two trials end with the same input error, which the others would too; 75 after SIGTERM, 130 after Ctrl-C.
    """
    old = {number: signal.signal(number, self._handle_signal) for number in jobs.SIGNALS}
    try:
      while not self._is_done():
        self._fill()
        self._advance()
        self._beat()
        self._show_progress()
        time.sleep(self.args.poll)
    finally:
      for worker in self.workers.values():
        if worker.job is not None:
          worker.job.stop()  # only after an error, such as a lost database
      for number, handler in old.items():
        signal.signal(number, handler)
    if self.signals:
      self._log(f'stopped; `{self.args.command}` continues')
    if self.refused and not self.signals:
      self._log(f'two trials ended with the same input error, so no further trial is begun: {self.refused}')
      return 2
    return {0: 0, signal.SIGINT: 130}.get(self.number, PREEMPTED)

  def _handle_signal(self, number: int, frame: Any) -> None:
    del frame
    self.signals, self.number = self.signals + 1, self.number or number
    for worker in self.workers.values():
      worker.end()
      if self.signals > 1 and worker.job is not None:
        worker.job.kill()

  def _is_done(self) -> bool:
    if self.workers:
      return False
    if self.signals or self.refused:
      return True
    left = [t for t in self.store.trials('WAITING', 'RUNNING') if t.number < self.args.trials]
    if left and not self._may_claim():
      time.sleep(min(1.0, self.args.stale / 10))  # wait for trials of other machines
    return not left

  def _may_claim(self) -> bool:
    return time.monotonic() - self._last_claim > min(5.0, self.args.stale / 10)

  def _fill(self) -> None:
    """Give a trial to every free slot."""
    free = [slot for slot in range(self.args.jobs) if slot not in self.workers]
    if not free or self.signals or self.refused or not self._may_claim():
      return
    while free:
      claimed = self.store.claim(self.args.trials, {worker.number for worker in self.workers.values()})
      if claimed is None:
        self._last_claim = time.monotonic()  # ask again later: another machine may stop
        return
      first_slot = claimed.user_attrs.get('slot')  # of its first start: {job} may name that worker's machine
      slot = first_slot if first_slot in free else free[0]
      free.remove(slot)
      claimed.set_user_attr('slot', slot)
      worker = trial.Worker(self.plan, self.store, claimed, self.search, self.launcher, slot)
      self.workers[slot] = worker
      self._log(f'trial {claimed.number:04d}: ' + ' '.join(f'{k}={v}' for k, v in worker.parameters.items()))

  def _advance(self) -> None:
    for slot, worker in list(self.workers.items()):
      state = worker.advance()
      if not state:
        continue
      del self.workers[slot]
      self._last_claim = -1e9
      if state != 'LEFT':
        self._report(worker, state)
      if state == 'FAIL':
        self._note_input_error(worker)

  def _note_input_error(self, worker: trial.Worker) -> None:
    """Remember the message of a trial that exited with code 2, without its work directory."""
    if worker.exit_code != INPUT_ERROR:
      return
    message = worker.error.splitlines()[-1].replace(str(worker.workdirs[worker.seed]), 'WORKDIR')
    if message in self._input_errors:
      self.refused = message
    self._input_errors.add(message)

  def _report(self, worker: trial.Worker, state: str) -> None:
    """Print the end of a trial and the state of the sweep, and rewrite the table."""
    rows = report.rows(self.store, self.plan, self.args.trials)
    row = next(row for row in rows if row.number == worker.number)
    how = {'COMPLETE': 'done', 'PRUNED': f'pruned at step {row.step}', 'FAIL': 'failed'}[state]
    value = f', {self.plan.metric.name} {row.value:.6g}' if row.value is not None and state != 'FAIL' else ''
    text = f'trial {worker.number:04d}: {how}{value}'
    if state == 'FAIL':
      lines = worker.error.splitlines()
      text += f' ({": ".join(dict.fromkeys([lines[0], lines[-1]]))})'
    self._log(text)
    ended = sum(row.state in ('COMPLETE', 'PRUNED', 'FAIL') for row in rows)
    best = next((f'; best {row.value:.6g}, trial {row.number:04d}' for row in rows if row.rank == 1), '')
    self._log(f'{ended}/{self.args.trials} trials{best}')
    report.write(self.plan.folder.parent, rows, self.plan, self.args.command)

  def _beat(self) -> None:
    """Renew the heartbeat that other machines watch."""
    now = time.monotonic()
    if now - self._last_beat > self.args.stale / 6:
      for worker in self.workers.values():
        worker.trial.set_user_attr('pulse', round(now, 3))
      self._last_beat = now

  def _show_progress(self) -> None:
    """Print a line for each running trial, every `SHOWN` seconds."""
    if time.monotonic() - self._last_shown < SHOWN:
      return
    for worker in self.workers.values():
      seed = f', seed {worker.seed + 1} of {len(worker.runs)}' if len(worker.runs) > 1 else ''
      self._log(f'trial {worker.number:04d}{seed}: {metrics.progress(worker.workdirs[worker.seed])}')
    self._last_shown = time.monotonic()

  def _log(self, words: str) -> None:
    print(f'[{time.strftime("%H:%M:%S")}] {redact(words)}', flush=True)
