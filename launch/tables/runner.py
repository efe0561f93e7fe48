"""Missing runs of a table: on this machine, several at once, or passed to another launcher.

Each command of lmx resumes by itself; one that exits with PREEMPTED is started again. The output of the commands goes
to a file next to the work directory, seedK.log.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from experiments.tables import Run
from launch import jobs, local
from launch.command import INPUT_ERROR, PREEMPTED
from launch.tables import launching, report
from launch.tables import plan as plans
from lmx import documents, records, storage
from lmx.redaction import redact

Key = tuple[str, int | None]


@dataclasses.dataclass
class Task:
  """Run at one seed: its remaining commands, the tasks that it depends on, and its log."""

  key: Key
  commands: list[plans.Command]
  after: list[Key]
  log: pathlib.Path
  missing: str = ''

  @property
  def title(self) -> str:
    """Return the run with its seed, for messages."""
    return self.key[0] + ('' if self.key[1] is None else f' seed {self.key[1]}')


def plan_tasks(
  selected: Sequence[Run], runs: Mapping[str, Run], plan: plans.Plan, *, shown: bool = False
) -> list[Task]:
  """Return the tasks of `selected` in an order that respects their dependencies; finished runs are skipped."""
  tasks: dict[Key, Task] = {}
  for name, seeds in plans.planned_seeds([run.name for run in selected], runs, plan).items():
    run = runs[name]
    for seed in seeds:
      where, missing = plans.directory(run, seed, plan), ''
      try:
        planned = plans.commands(run, seed, runs, plan, shown=shown)
      except plans.Missing as error:
        # Finished runs need no data.
        planned, missing = plans.commands(run, seed, runs, plan, shown=True), str(error)
      is_open = lambda command: (shown and storage.is_remote(command.proof)) or not command.proof.exists()
      left = [command for command in planned if is_open(command)]  # a dry run asks no bucket
      after = plans.prerequisites(run, seed, runs)
      if left:
        log = where.with_name(where.name + '.log')
        tasks[run.name, seed] = Task((run.name, seed), left, [key for key in after if key in tasks], log, missing)
  return list(tasks.values())


class Runner:
  """Runner of tasks in processes on this machine.

  Args:
    jobs: processes at once; each has its share of the cores.
    notify: printer of progress.
    program: program before the commands; lmx by default.
  """

  def __init__(self, jobs: int = 1, notify: Callable[[str], None] = print, program: Sequence[str] = ()):
    self.failed: dict[Key, str] = {}
    self._refused: dict[str, str] = {}  # name of a run -> reason not to begin its other seeds
    self._jobs, self._notify, self._program = jobs, notify, program or local.PROGRAM
    self._children: set[subprocess.Popen] = set()
    self._lock, self._free, self._stopping = threading.Lock(), list(range(jobs)), False

  def run(self, todo: Sequence[Task]) -> int:
    """Run all tasks; return 0, 1 after a failure, or 75 after SIGTERM or Ctrl-C."""
    old = {number: signal.signal(number, self._stop) for number in jobs.SIGNALS}
    try:
      with ThreadPoolExecutor(self._jobs) as pool:
        self._all(pool, list(todo))
    finally:
      for number, handler in old.items():
        signal.signal(number, handler)
    return PREEMPTED if self._stopping else 1 if self.failed else 0

  def _all(self, pool: ThreadPoolExecutor, waiting: list[Task]) -> None:
    running: dict[Future, Task] = {}
    while (waiting and not self._stopping) or running:
      for task in list(waiting):
        unfinished = {one.key for one in (*waiting, *running.values())}
        refused = self._refused.get(task.key[0], '')
        if self._stopping or task.missing or refused or any(key in self.failed for key in task.after):
          waiting.remove(task)
          if not self._stopping:
            needed = f'{task.title} needs {task.after[0][0] if task.after else ""}, which did not finish'
            self._fail(task, task.missing or refused or needed)
        elif len(running) < self._jobs and not unfinished & set(task.after):
          waiting.remove(task)
          running[pool.submit(self._one, task)] = task
      done, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
      for future in done:
        future.result()
        del running[future]

  def _one(self, task: Task) -> None:
    """Run the commands of a task until the first failure."""
    with self._lock:
      slot = self._free.pop()
    start = time.monotonic()
    try:
      for command in task.commands:
        code = PREEMPTED
        while code == PREEMPTED and not self._stopping:
          code = self._process(command, task.log, slot)
        if self._stopping:
          return
        if code or not command.proof.exists():
          self._fail(task, _describe_failure(task, command, code))
          if code == INPUT_ERROR:
            self._refused[task.key[0]] = f'not begun: {task.title} ended with an input error, which no seed changes'
          return
      self._notify(f'{task.title}: done in {report.duration(time.monotonic() - start)}')
    finally:
      with self._lock:
        self._free.append(slot)

  def _process(self, command: plans.Command, log: pathlib.Path, slot: int) -> int:
    words = [*self._program, *command.words]
    log.parent.mkdir(parents=True, exist_ok=True)
    command.proof.parent.mkdir(parents=True, exist_ok=True)
    with log.open('a', encoding='utf-8', errors='backslashreplace') as output:
      output.write(f'\n$ lmx {redact(shlex.join(command.words))}\n')
      output.flush()
      with self._lock:
        if self._stopping:
          return PREEMPTED
        child = subprocess.Popen(
          words,
          stdout=output,
          stderr=subprocess.STDOUT,
          stdin=subprocess.DEVNULL,
          start_new_session=True,
          env={**os.environ, 'PYTHONUNBUFFERED': '1'},
        )
        self._children.add(child)
      if self._jobs > 1 and hasattr(os, 'sched_setaffinity'):
        _pin(child.pid, slot, self._jobs)
      code = child.wait()
    with self._lock:
      self._children.discard(child)
    return code

  def _fail(self, task: Task, text: str) -> None:
    self.failed[task.key] = text
    self._notify(f'{task.title}: {text}')

  def _stop(self, number: int, frame) -> None:
    del number, frame
    self._stopping = True
    for child in list(self._children):
      if child.poll() is None:
        child.send_signal(signal.SIGTERM)


def _pin(pid: int, slot: int, jobs: int) -> None:
  """Pin a process to its share of the cores, so that jobs do not wait for one another's threads."""
  cores = sorted(os.sched_getaffinity(0))
  mine = cores[slot::jobs] or cores
  try:
    os.sched_setaffinity(pid, mine)
  except OSError:
    pass  # it has ended already


def _describe_failure(task: Task, command: plans.Command, code: int) -> str:
  """Return the last line of a failed command, and the path of its log."""
  lines = [line for line in task.log.read_text(errors='replace', encoding='utf-8').splitlines() if line.strip()]
  ending = f'exit code {code}' if code else f'left no {command.proof.name}'
  return f'failed ({ending}): {lines[-1].split(chr(13))[-1][:200]}; see {task.log}'


def _read_submitted(path: pathlib.Path) -> dict[str, dict[str, str]]:
  """Return where and when each command was submitted, {} before the first. Raises InputError for a damaged record."""
  found = records.read_if_exists(path)
  for name, one in found.items():
    for key in ('where', 'time'):
      documents.field(one, key, str, f'{path}: {name}')
  return found


def submit(todo: Sequence[Task], where: str, options: str, notify: Callable[[str], None], *, again: bool) -> int:
  """Pass the commands that can start now to `python -m launch.WHERE`; a later call passes those that depend on them.

  A command is passed once, unless `again`; seedK.submitted, next to the log, records the time.
  """
  open_keys, failed = {task.key for task in todo}, 0
  for task in todo:
    record = task.log.with_suffix('.submitted')
    before = _read_submitted(record)
    if task.missing or open_keys & set(task.after):
      notify(f'{task.title}: {task.missing or "waits for " + task.after[0][0]}')
      failed |= bool(task.missing)
      continue
    trains = task.commands[0].proof.name == 'results.json'  # its evaluations depend on the training
    for command in task.commands[:1] if trains else task.commands:
      if command.proof.name in before and not again:
        notify(
          f'{task.title}: {command.proof.name} was submitted to {before[command.proof.name]["where"]} at '
          f'{before[command.proof.name]["time"]}; --again submits it again'
        )
        continue
      code = subprocess.run(launching.launcher_command(where, options, *task.key, command)).returncode
      failed |= bool(code)
      if not code:
        before[command.proof.name] = {'where': where, 'time': time.strftime('%Y-%m-%d %H:%M:%S')}
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(before, indent=1) + '\n', encoding='utf-8')
  return 1 if failed else 0
