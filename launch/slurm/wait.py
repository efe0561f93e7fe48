"""`launch.slurm --wait=FILE`: submit a Slurm job and wait for its exit code, which the job script writes to a file.

The file is missing if the job was cancelled or its node is lost. Then the state of the job is from `scontrol` for some
minutes, later from `sacct` if there is accounting. Imports no JAX.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

from launch import command
from launch.slurm import submitit_job
from launch.slurm.job import CODE_FILE, Job, submit
from launch.wait import Record
from lmx.errors import InputError

ENDED = (
  'COMPLETED',
  'FAILED',
  'CANCELLED',
  'TIMEOUT',
  'PREEMPTED',
  'NODE_FAIL',
  'BOOT_FAIL',
  'OUT_OF_MEMORY',
  'DEADLINE',
)
# State -> exit code of a job that ended without a file: one cancelled by the user is not restarted, one with an unknown
# end is.
CODES = {'COMPLETED': 0, 'CANCELLED': command.INTERRUPTED, 'OUT_OF_MEMORY': 137}


@dataclasses.dataclass
class Waiter:
  """Submission, polling and end of a Slurm job; a `launch.wait.Job`.

  Attributes:
    job: resources and options; its `writes_code` is true.
    run: the run.
    through: 'sbatch' or 'submitit'.
  """

  RECORD: ClassVar[Mapping[str, type]] = {'job': str, 'says': list, 'kept': str, 'through': str}
  job: Job
  run: command.Run
  through: str

  def __post_init__(self):
    self._runner = command.Runner(detached=True)
    self._before = ''  # final state at the last poll

  def submit(self) -> dict[str, Any]:
    """Submit it; return its number and the paths of its files."""
    logs = pathlib.Path(self.job.directory, self.job.logs).absolute()
    if self.through == 'submitit':
      number = submitit_job.submit(self.job, self.run)[0]
      outputs = [str(logs / number / f'{number}_0_log.{kind}') for kind in ('out', 'err')]
    else:
      number = submit(self.job, self.run)
      outputs = [str(logs / f'{self.job.name}-{number}.out')]
    print(f'launch.slurm: job {number}', flush=True)
    return {'job': number, 'says': outputs, 'kept': str(logs / CODE_FILE.format(number)), 'through': self.through}

  def poll(self, record: Record) -> int | None:
    """Print new output; return the exit code of lmx once it has ended, else None."""
    fields = record.fields
    state, code = self._state(fields['job'])
    show(record)
    if state not in (*ENDED, ''):
      return None
    stopped, code_file = fields.get('stopped'), pathlib.Path(fields['kept'])
    # A job that the user cancelled is not restarted, although lmx has saved.
    if code_file.exists() and (stopped or state != 'CANCELLED'):
      return int(code_file.read_text(encoding='utf-8'))
    if self._before != (state or 'gone'):  # it may be about to be requeued, or the file to appear
      self._before = state or 'gone'
      return None
    command.write(f'launch.slurm: job {fields["job"]} ended as {state or "unknown to Slurm"}')
    if stopped and state != 'COMPLETED':
      return command.PREEMPTED
    return CODES.get(state, code or command.PREEMPTED)

  def _state(self, number: str) -> tuple[str, int]:
    """Return the state of a job, '' if Slurm has forgotten it, and the exit code of the batch shell, else 0."""
    try:
      text = self._runner.read(['scontrol', 'show', 'job', '--oneliner', number])
    except command.Failed as error:
      if 'Invalid job id' not in error.stderr:
        raise
      return self._accounting_state(number)
    fields = dict(word.partition('=')[::2] for word in text.split())
    return fields['JobState'], _code(fields['JobState'], fields['ExitCode'])

  def _accounting_state(self, number: str) -> tuple[str, int]:
    try:
      text = self._runner.read(
        ['sacct', '--noheader', '--parsable2', '--allocations', '--format=State,ExitCode', f'--jobs={number}']
      )
      state, _, code = text.strip().splitlines()[-1].partition('|')
    except (command.Failed, InputError, IndexError):
      return '', 0
    return state.split()[0], _code(state.split()[0], code)  # as in 'CANCELLED by 1000'

  def stop(self, fields: dict[str, Any]) -> None:
    """Tell lmx to save and exit, without a requeue."""
    state = self._state(fields['job'])[0]
    if state == 'PENDING':
      self._runner.read(['scancel', '--state=PENDING', fields['job']])
    elif state not in (*ENDED, ''):
      shell = ['--batch'] if fields['through'] == 'sbatch' else []
      self._runner.read(['scancel', '--signal=USR1', *shell, fields['job']])

  def kill(self, fields: dict[str, Any]) -> None:
    """End the job at once."""
    self._runner.read(['scancel', fields['job']])

  def clear(self, fields: dict[str, Any]) -> None:
    """Delete the file of the exit code."""
    pathlib.Path(fields['kept']).unlink(missing_ok=True)


def _code(state: str, text: str) -> int:
  """Return the exit code in '2:0' (code:signal); 0 if it is not lmx's."""
  code, _, number = text.partition(':')
  return (int(code) or 128 + int(number or 0)) if state == 'FAILED' else 0


def show(record: Record) -> None:
  """Print the complete lines added to the files of a job since the last call."""
  shown = dict(record.fields.get('shown', {}))
  for name in record.fields['says']:
    path = pathlib.Path(name)
    if not path.exists():
      continue
    with path.open('rb') as file:
      file.seek(shown.get(name, 0))
      text = file.read()
    whole = text[: text.rfind(b'\n') + 1]
    for line in whole.decode(errors='replace').splitlines():
      command.write(line)
    shown[name] = shown.get(name, 0) + len(whole)
  if shown != record.fields.get('shown', {}):
    record.write(shown=shown)
