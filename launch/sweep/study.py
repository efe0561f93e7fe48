"""A sweep's Optuna study: its trials, their parameters and workers.

All N trials are enqueued at the start, so there are never more, and one worker claims each. Without N, a trial is added
when a worker is free and the budget is not spent. A trial with a lost worker is claimed again under the same number: it
keeps its parameters and work directory. Only one sweep uses a work directory on this machine, so workers from earlier
sessions are lost. A worker on another machine is lost if its heartbeat (`pulse`) has not changed for a while by this
machine's clock, because clocks may differ.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import pathlib
import socket
import time
import urllib.parse
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from experiments import spaces
from lmx import cast, documents, redaction
from lmx.errors import InputError

SAMPLERS = ('grid', 'random', 'tpe')
PRUNERS = ('none', 'asha', 'hyperband', 'median')
STARTUP_TRIALS = 10  # of Optuna's TPE
Axes = dict[str, spaces.Range | tuple[str, ...]]  # key -> range, or texts of values


def load() -> Any:
  """Import Optuna, without its log and its warnings about experimental features."""
  try:
    import optuna
  except ImportError:
    raise InputError('a sweep needs Optuna: install the extra, pip install "lmx[sweep]"') from None
  optuna.logging.set_verbosity(optuna.logging.WARNING)
  warnings.filterwarnings('ignore', category=optuna.exceptions.ExperimentalWarning)
  return optuna


def format_value(value: Any) -> str:
  """Format a value for `--config.key=...`: a string that would be parsed as another type is quoted."""
  return value if isinstance(value, str) and cast.parse(value) == value else repr(value)


@dataclasses.dataclass(frozen=True)
class Search:
  """Search space of a sweep.

  Attributes:
    axes: key -> range or values.
    points: points of a grid in order; () if there are ranges.
    lines: description of the axes for the output.
  """

  axes: Axes
  points: tuple[dict[str, str], ...] = ()
  lines: tuple[str, ...] = ()

  @classmethod
  def create(cls, space: spaces.Space | Iterable[dict[str, Any]], fixed: Sequence[str] = ()) -> Search:
    """Create it from the result of `sweep()`, without the keys in `fixed`."""
    if isinstance(space, spaces.Space) and any(isinstance(axis, spaces.Range) for axis in space.values()):
      axes: Axes = {
        key: axis if isinstance(axis, spaces.Range) else tuple(dict.fromkeys(map(format_value, axis)))
        for key, axis in space.items()
        if key not in fixed
      }
      return cls._check_axes(cls(axes))
    points = [{k: format_value(v) for k, v in point.items() if k not in fixed} for point in spaces.points(space)]
    points = [dict(pairs) for pairs in dict.fromkeys(tuple(point.items()) for point in points)]
    keys = dict.fromkeys(key for point in points for key in point)
    axes = {key: tuple(dict.fromkeys(point[key] for point in points if key in point)) for key in keys}
    return cls._check_axes(cls(axes, tuple(points)))

  @staticmethod
  def _check_axes(search: Search) -> Search:
    if not search.axes:
      raise InputError(
        'sweep(): every key is fixed by --config.* or --seeds; expected at least one to search, also by --space'
      )
    return search

  def check(self, sampler: str, trials: int) -> None:
    """Raise InputError if the sampler cannot draw `trials` points of this space."""
    ranges = [key for key, axis in self.axes.items() if isinstance(axis, spaces.Range)]
    if sampler == 'grid' and ranges:
      raise InputError(f'--sampler=grid: got ranges for {", ".join(ranges)}; use random or tpe')
    if sampler == 'grid' and trials > len(self.points):
      raise InputError(f'--trials={trials}: the grid of this config has {len(self.points)} points')
    if sampler != 'grid' and any(point.keys() != self.axes.keys() for point in self.points):
      raise InputError(f'--sampler={sampler}: the points of this sweep() differ in their keys; use grid')


@dataclasses.dataclass(frozen=True)
class Identity:
  """Identity of this process: `place` is its machine and work directory, `session` is unique."""

  place: str
  session: str

  @classmethod
  def create(cls, workdir: pathlib.Path) -> Identity:
    return cls(f'{socket.gethostname()}-{uuid.getnode():x}:{workdir.absolute()}', uuid.uuid4().hex)


class Store:
  """Optuna study in its storage."""

  def __init__(
    self,
    url: str,
    name: str,
    direction: str,
    sampler: str,
    seed: int,
    identity: Identity,
    stale: float,
    startup_trials: int = STARTUP_TRIALS,
  ):
    """Open the study, or create it.

    Args:
      url: 'journal:FILE' or a URL of SQLAlchemy; '' keeps it in memory.
      name: name of the study.
      direction: 'minimize' or 'maximize'.
      sampler: one of SAMPLERS.
      seed: seed of the sampler.
      identity: this process.
      stale: seconds without a heartbeat after which a worker on another machine is gone.
      startup_trials: trials that `tpe` draws at random before it proposes any.
    """
    self.optuna = load()
    self.startup_trials = startup_trials
    self.url, self.sampler, self.seed, self.identity, self.stale = url, sampler, seed, identity, stale
    self.shared = not url.startswith(('journal:', 'sqlite:')) and bool(url)
    make: Callable = self.optuna.create_study
    self.is_new = True
    with self._naming_journal():
      self.storage = self.optuna.storages.get_storage(self._storage())
      try:
        self.study = make(storage=self.storage, study_name=name, direction=direction, load_if_exists=False)
      except self.optuna.exceptions.DuplicatedStudyError:
        self.study, self.is_new = make(storage=self.storage, study_name=name, load_if_exists=True), False
    self.id = self.storage.get_study_id_from_name(name)
    self._pulses: dict[int, tuple[Any, float]] = {}

  @contextlib.contextmanager
  def _naming_journal(self) -> Iterator[None]:
    """Convert Optuna's errors on a damaged journal into an InputError."""
    try:
      yield
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
      if isinstance(error, InputError) or not self.url.startswith('journal:'):
        raise
      raise InputError(
        f'{self.url.removeprefix("journal:")}: got a damaged journal ({type(error).__name__}: {error}); expected it as '
        f'Optuna wrote it; restore the file from a copy, or give another --workdir'
      ) from None

  def _storage(self, attempts: int = 3) -> Any:
    storages = self.optuna.storages
    if not self.url:
      return storages.InMemoryStorage()
    if self.url.startswith('journal:'):
      file = self.url.removeprefix('journal:')
      guard = storages.journal.JournalFileSymlinkLock(file, grace_period=10)
      return storages.JournalStorage(storages.journal.JournalFileBackend(file, lock_obj=guard))
    options: dict = {'connect_args': {'timeout': 60}} if self.url.startswith('sqlite') else {'pool_pre_ping': True}
    try:
      return storages.RDBStorage(self.url, engine_kwargs=options)
    except Exception as error:  # SQLAlchemy's and each driver's own
      if attempts > 1 and type(error).__name__ in ('IntegrityError', 'ProgrammingError'):
        time.sleep(2)  # another machine is creating the tables
        return self._storage(attempts - 1)
      message = redact(f'{type(error).__name__}: {error}', self.url).strip()
      raise InputError(f'--storage={redact(self.url, self.url)} cannot be used ({message})') from None

  def check_settings(
    self, settings: Mapping[str, Any], show: Callable[[str, Any], str] = lambda name, value: repr(value)
  ) -> None:
    """Store the settings in the study; `show` formats one, by its name, for a message.

    Raises:
      InputError: the study was created with other settings.
    """
    saved = self._saved_settings(self.study)
    _compare_settings(saved, settings, show)
    if settings.keys() - saved.keys():  # a new study, or one of an earlier version
      self.study.set_user_attr('settings', {**settings, **saved})

  def check_saved_settings(
    self, url: str, name: str, settings: Mapping[str, Any], show: Callable[[str, Any], str]
  ) -> None:
    """Compare the settings with those of a study in the file of `url`, if it has that study; write nothing.

    Raises:
      InputError: the study was created with other settings.
    """
    other = copy.copy(self)
    other.url = url
    with other._naming_journal():
      storage = self.optuna.storages.get_storage(other._storage())
      if name in self.optuna.get_all_study_names(storage):
        found = self.optuna.load_study(study_name=name, storage=storage)
        _compare_settings(other._saved_settings(found), settings, show)

  def _saved_settings(self, found: Any) -> dict[str, Any]:
    saved = found.user_attrs.get('settings', {})
    documents.convert(saved, dict, f'{self.url}: settings')
    return {**({'startup_trials': STARTUP_TRIALS} if saved else {}), **saved}  # of earlier versions

  def enqueue(self, trials: int, search: Search) -> None:
    """Enqueue trials until there are `trials`."""
    count = len(self.trials())
    if self.shared and not self.is_new:  # another machine may be doing so
      before = -1
      while before < count < trials:
        time.sleep(3)
        before, count = count, len(self.trials())
    for number in range(count, trials):
      self.study.enqueue_trial(search.points[number] if self.sampler == 'grid' else {})

  def trials(self, *states: str) -> list[Any]:
    """Return the trials of Optuna by state ('WAITING', 'RUNNING', 'COMPLETE', 'PRUNED', 'FAIL'), by number."""
    wanted = tuple(self.optuna.trial.TrialState[state] for state in states) or None
    return sorted(self.study.get_trials(deepcopy=False, states=wanted), key=lambda trial: trial.number)

  def add(self) -> None:
    """Enqueue one trial more, of a sampler that draws."""
    self.study.enqueue_trial({})

  def claim(self, trials: int, own: set[int], *, only_begun: bool = False) -> Any:
    """Claim a waiting trial or one with a lost worker; return Optuna's Trial, or None.

    Args:
      trials: number of trials; higher trial numbers are skipped.
      own: trial numbers of this process.
      only_begun: claim no trial that never had a worker.
    """
    state = self.optuna.trial.TrialState
    for frozen in self.trials('WAITING', 'RUNNING'):
      left = frozen.state == state.RUNNING
      if frozen.number >= trials or frozen.number in own or left and not self._is_abandoned(frozen):
        continue
      if only_begun and not is_begun(frozen):
        continue
      number = self.storage.get_trial_id_from_study_id_trial_number(self.id, frozen.number)
      try:
        if left:
          self.storage.set_trial_state_values(number, state=state.WAITING)
        if not self.storage.set_trial_state_values(number, state=state.RUNNING):
          continue  # another was faster
      except self.optuna.exceptions.UpdateFinishedTrialError:
        continue
      self.study.sampler, self.study.pruner = self._sampler(frozen.number), self.optuna.pruners.NopPruner()
      trial = self.optuna.trial.Trial(self.study, number)
      trial.set_user_attr('worker', dataclasses.asdict(self.identity))
      if left and self.shared and not self._is_owner(number):
        continue
      return trial
    return None

  def _is_owner(self, number: int) -> bool:
    """Return whether no other machine has claimed the same trial at the same time: the last to write owns it."""
    time.sleep(2)
    return self.storage.get_trial(number).user_attrs['worker']['session'] == self.identity.session

  def _is_abandoned(self, frozen: Any) -> bool:
    """Return whether a running trial has no worker."""
    worker = frozen.user_attrs.get('worker', {})
    if worker.get('session') == self.identity.session:
      return False  # `_is_owner` has left it to another, which has not written yet
    if worker.get('place') == self.identity.place or not self.shared and not worker:
      return True
    pulse, now = (worker.get('session'), frozen.user_attrs.get('pulse')), time.monotonic()
    if self._pulses.get(frozen.number, (None, 0.0))[0] != pulse:
      self._pulses[frozen.number] = (pulse, now)
    # A claimed trial that has no worker after some seconds was abandoned between the two writes.
    return now - self._pulses[frozen.number][1] > (self.stale if worker else min(10.0, self.stale))

  def _sampler(self, number: int) -> Any:
    """Return the sampler of trial `number`: draws depend on seed, number and earlier results, not on kills."""
    seed = (1_000_003 * self.seed + number) % 2**32
    if self.sampler == 'tpe':
      return self.optuna.samplers.TPESampler(seed=seed, constant_liar=True, n_startup_trials=self.startup_trials)
    return self.optuna.samplers.RandomSampler(seed=seed)

  def parameters(self, trial: Any, search: Search) -> dict[str, str]:
    """Return a trial's parameters as command-line strings; they are sampled once."""
    keys = search.points[trial.number] if self.sampler == 'grid' else search.axes
    return {key: _suggest(trial, key, search.axes[key]) for key in keys}

  def pruner(self, kind: str, first: int, last: int, reduction: int) -> Any:
    """Return the pruner `kind` of PRUNERS for metrics from step `first` to step `last` (0: unknown)."""
    pruners = self.optuna.pruners
    if kind == 'asha':
      return pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=reduction)
    if kind == 'hyperband':
      return pruners.HyperbandPruner(min_resource=first, max_resource=last or 'auto', reduction_factor=reduction)
    if kind == 'median':
      return pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=first - 1)
    return pruners.NopPruner()

  def finish(self, number: int, state: str, value: float | None = None) -> None:
    """End a trial as 'COMPLETE' with its value, as 'PRUNED' or as 'FAIL'."""
    self.study.tell(number, value, state=self.optuna.trial.TrialState[state])

  def importances(self) -> tuple[str, dict[str, float]]:
    """Return the importance of each key: by fANOVA if scikit-learn is installed, else by PED-ANOVA."""
    done = [trial for trial in self.trials('COMPLETE') if math.isfinite(trial.value)]
    if len(done) < 4 or len({trial.value for trial in done}) < 2:
      return '', {}
    importance = self.optuna.importance
    try:
      name, evaluator = 'fANOVA', importance.FanovaImportanceEvaluator(seed=0)
    except ImportError:
      name, evaluator = 'PED-ANOVA', importance.PedAnovaImportanceEvaluator()
    scores = importance.get_param_importances(self.study, evaluator=evaluator)
    return name, {key: value for key, value in scores.items() if math.isfinite(value)}


def _compare_settings(saved: Mapping[str, Any], settings: Mapping[str, Any], show: Callable[[str, Any], str]) -> None:
  """Raise InputError if a study was created with other settings."""
  lines = [
    f'  {name}: {show(name, saved[name])} there, {show(name, value)} now'
    for name, value in settings.items()
    if saved.get(name, value) != value
  ]
  if lines:
    raise InputError(
      'the study was created with other settings; give another --workdir (and --study), or restore:\n'
      + '\n'.join(lines)
    )


def is_begun(frozen: Any) -> bool:
  """Return whether a trial has or had a worker."""
  return frozen.state.name == 'RUNNING' or 'worker' in frozen.user_attrs


def _suggest(trial: Any, key: str, axis: spaces.Range | tuple[str, ...]) -> str:
  if not isinstance(axis, spaces.Range):
    return trial.suggest_categorical(key, axis)
  whole = isinstance(axis.low, int) and isinstance(axis.high, int)
  suggest = trial.suggest_int if whole else trial.suggest_float
  return repr(suggest(key, axis.low, axis.high, log=axis.log))


def redact(words: str, url: str) -> str:
  """Replace the password of the URL in `words` by ***."""
  try:
    password = urllib.parse.urlsplit(url).password
  except ValueError:
    password = url.partition('://')[2].rpartition('@')[0].partition(':')[2]
  for secret in (password, urllib.parse.unquote(password or '')):
    words = words.replace(secret, redaction.MASK) if secret else words
  return redaction.redact(words)
