"""Loop of a sweep, which gives trials to workers until every trial has ended."""

from __future__ import annotations

import argparse
import math
import signal
import time
from typing import Any

from launch import jobs
from launch.command import INPUT_ERROR, PREEMPTED
from launch.sweep import budget, metrics, report, study, trial
from lmx.redaction import redact

FAILURES = 10  # trials that fail in a row, which end a sweep without a number of trials
SHOWN = 60.0  # seconds between two lines on a running trial


class Scheduler:
  """Loop over the workers of a sweep.

  Attributes:
    workers: by slot.
    signals: number of SIGINT and SIGTERM so far.
    number: the first of them.
    refused: reason to begin no further trial after an error, '' before.
    exit_code: of a refused sweep.
  """

  def __init__(self, args: argparse.Namespace, plan: trial.Plan, store: study.Store, search: study.Search):
    self.args, self.plan, self.store, self.search = args, plan, store, search
    self.launcher = jobs.Local(is_remote=args.where != 'local')
    self.workers: dict[int, trial.Worker] = {}
    self.signals = self.number = 0
    self.refused, self.exit_code = '', 0
    self._input_errors: dict[str, int] = {}  # message -> trial, of earlier sessions too
    for one in store.trials('FAIL'):
      if one.user_attrs.get('exit_code') == INPUT_ERROR:
        self._input_errors.setdefault(self._message(one.number, one.user_attrs.get('error', '')), one.number)
    self._failures, self._flops = 0, dict[int, float]()  # failures in a row, and FLOPs of trials that did not keep them
    self._end = math.inf if args.timeout is None else time.monotonic() + args.timeout
    self._last_claim = self._last_beat = -1e9
    self._last_shown = time.monotonic()

  def run(self) -> int:
    """Run until every trial has ended.

    Returns:
      0; 2 if two trials end with the same input error, which the others would too; 1 if trial after trial fails without
      a bound on their number; 75 after SIGTERM or --timeout, 130 after Ctrl-C.
    """
    old = {number: signal.signal(number, self._handle_signal) for number in jobs.SIGNALS}
    try:
      while not self._is_done():
        self._fill()
        self._advance()
        self._beat()
        self._show_progress()
        self._check_timeout()
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
      self._log(self.refused)
      return self.exit_code
    if self.args.budget is not None:
      self._log(f'budget: {self.args.budget.show(self._spent())}')
    return {0: 0, signal.SIGINT: 130}.get(self.number, PREEMPTED)

  def _handle_signal(self, number: int, frame: Any) -> None:
    del frame
    self.signals, self.number = self.signals + 1, self.number or number
    for worker in self.workers.values():
      worker.end()
      if self.signals > 1 and worker.job is not None:
        worker.job.kill()

  def _check_timeout(self) -> None:
    """Let the runs save and stop once the time of --timeout is over."""
    if time.monotonic() > self._end and not self.signals:
      self._log('the time of --timeout is over')
      self._handle_signal(signal.SIGTERM, None)

  def _spent(self) -> float:
    """Return the spent part of the budget, in its unit, by all sessions."""
    total, own = 0.0, {worker.number: worker.busy() for worker in self.workers.values()}
    for one in self.store.trials():
      attrs = one.user_attrs
      if self.args.budget.unit == 'h':
        total += own.get(one.number, max(attrs.get('busy', 0.0), attrs.get('seconds', 0.0)))
      elif 'flops' in attrs or not one.state.is_finished():
        total += attrs.get('flops', 0.0)
      else:  # ended in a session that counted none
        if one.number not in self._flops:
          self._flops[one.number] = budget.count_flops(self.plan.workdirs(one.number))
        total += self._flops[one.number]
    return total

  def _is_spent(self) -> bool:
    return self.args.budget is not None and self._spent() >= self.args.budget.amount

  def _is_done(self) -> bool:
    if self.workers:
      return False
    if self.signals or self.refused:
      return True
    is_spent = self._is_spent()
    if self.args.open_ended and not is_spent:
      return False
    left = [t for t in self.store.trials('WAITING', 'RUNNING') if t.number < self.args.trials]
    left = [t for t in left if study.is_begun(t)] if is_spent else left
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
      claimed = self._claim()
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

  def _claim(self) -> Any:
    """Claim a trial, once the budget is spent only one that has begun; add one if their number is open."""
    own, is_spent = {worker.number for worker in self.workers.values()}, self._is_spent()
    claimed = self.store.claim(self.args.trials, own, only_begun=is_spent)
    if claimed is None and self.args.open_ended and not is_spent:
      self.store.add()
      claimed = self.store.claim(self.args.trials, own)
    return claimed

  def _advance(self) -> None:
    for slot, worker in list(self.workers.items()):
      state = worker.advance()
      if not state:
        continue
      del self.workers[slot]
      self._last_claim = -1e9
      if state != 'LEFT':
        self._report(worker, state)
      self._failures = self._failures + 1 if state == 'FAIL' else 0
      if self.args.open_ended and self._failures == FAILURES and not self.refused:
        self.refused, self.exit_code = f'{FAILURES} trials in a row failed, so no further trial is begun', 1

  def _message(self, number: int, error: str) -> str:
    """Return the last line of a trial's error, without its work directories."""
    message = ''.join(error.splitlines()[-1:])
    for folder in self.plan.workdirs(number):
      message = message.replace(str(folder), 'WORKDIR')
    return message

  def _is_known(self, worker: trial.Worker) -> bool:
    """Return whether a failed trial ended with the input error of an earlier one; then begin no further trial."""
    if worker.exit_code != INPUT_ERROR:
      return False
    message = self._message(worker.number, worker.error)
    first = self._input_errors.setdefault(message, worker.number)
    if first == worker.number:
      return False
    if not self.refused:
      self.refused, self.exit_code = (
        f'trials {first:04d} and {worker.number:04d} ended with the same input error, so no further trial is begun: '
        f'{message}',
        INPUT_ERROR,
      )
    return True

  def _report(self, worker: trial.Worker, state: str) -> None:
    """Print the end of a trial and the state of the sweep, and rewrite the table."""
    rows = report.rows(self.store, self.plan, self.args.trials)
    row = next(row for row in rows if row.number == worker.number)
    how = {'COMPLETE': 'done', 'PRUNED': f'pruned at step {row.step}', 'FAIL': 'failed'}[state]
    value = f', {self.plan.metric.name} {row.value:.6g}' if row.value is not None and state != 'FAIL' else ''
    text = f'trial {worker.number:04d}: {how}{value}'
    if state == 'FAIL':
      lines = worker.error.splitlines()
      shown = lines[:1] if self._is_known(worker) else dict.fromkeys([lines[0], lines[-1]])
      text += f' ({": ".join(shown)})'
    self._log(text)
    ended = sum(row.state in ('COMPLETE', 'PRUNED', 'FAIL') for row in rows)
    best = next((f'; best {row.value:.6g}, trial {row.number:04d}' for row in rows if row.rank == 1), '')
    count = f'{ended} trial{"s" * (ended != 1)}' if self.args.open_ended else f'{ended}/{self.args.trials} trials'
    spent = '' if self.args.budget is None else f', {self.args.budget.show(self._spent())}'
    self._log(f'{count}{spent}{best}')
    report.write(self.plan.folder.parent, rows, self.plan, self.args.command)

  def _beat(self) -> None:
    """Renew the heartbeat that other machines watch."""
    now = time.monotonic()
    if now - self._last_beat > self.args.stale / 6:
      for worker in self.workers.values():
        worker.trial.set_user_attr('pulse', round(now, 3))
        worker.trial.set_user_attr('busy', worker.busy())
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
