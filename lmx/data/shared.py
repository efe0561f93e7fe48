"""Tokenization of a corpus by several processes, on one host or on several with a shared directory.

The directory has a file for each finished piece of work, created by an atomic rename:

    data.json            the `data` section
    tokenizer/           its files
    plan.json            the parts of each split in order
    00012.tokens, .npz   the tokens of part 12, and its documents, sentences and labels
    00012.claim          a process is at part 12; it touches the file every few seconds

Hosts with a cache in a bucket have separate directories, and copy each other's parts.

So an interrupted preparation resumes with the missing parts, and a new host takes the next unclaimed one. A claim
expires if its process has not touched it for a minute. The corpus does not depend on the parts or on who tokenized
them: the last step joins them in order.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lmx import documents
from lmx import host as machine
from lmx.data import progress
from lmx.data.splits import Writer
from lmx.data.tokenizers import build
from lmx.data.tokenizers.base import Tokenizer
from lmx.errors import InputError

PART = 1 << 24  # bytes of text
LEAST = 1 << 26  # bytes of text below which one process is as fast
DATA, PLAN, TOKENIZER, ERROR = 'data.json', 'plan.json', 'tokenizer', 'error.json'
_TOUCH, _STALE, WAIT = 5.0, 60.0, 0.5  # seconds


def can_share(cfg: Any, splits: Mapping[str, Any]) -> bool:
  """Return True if a data set is so much text that processes share it, and parts of it can be tokenized apart."""
  rules = cfg.rules
  if rules.pair or rules.spans or rules.table or rules.token_labels or cfg.detokenize or cfg.all_words:
    return False
  return sum(one.size for one in splits.values()) >= LEAST and all(one.has_parts for one in splits.values())


class Claim:
  """A part that this process is at; used as a context manager that gives it back."""

  def __init__(self, path: str):
    self._path, self._stop = path, threading.Event()
    self._thread = threading.Thread(target=self._touch, daemon=True)
    self._thread.start()

  def _touch(self) -> None:
    while not self._stop.wait(_TOUCH):
      with contextlib.suppress(OSError):
        os.utime(self._path)

  def __enter__(self) -> Claim:
    return self

  def __exit__(self, *_: Any) -> None:
    self._stop.set()
    self._thread.join()
    with contextlib.suppress(OSError):
      os.remove(self._path)


def claim(path: str) -> Claim | None:
  """Return the claim of `path`, None if another process has it."""
  try:
    with open(path, 'x', encoding='utf-8') as file:
      file.write(f'{socket.gethostname()} {os.getpid()}\n')
    return Claim(path)
  except FileExistsError:
    pass
  with contextlib.suppress(OSError):
    if _is_stale(path):
      os.rename(path, aside := f'{path}.{socket.gethostname()}.{os.getpid()}')  # only one process succeeds
      os.remove(aside)
      return claim(path)
  return None


def _is_stale(path: str) -> bool:
  with open(path, encoding='utf-8') as file:
    host, _, pid = file.read().strip().partition(' ')
  if host == socket.gethostname() and pid.isdigit() and not machine.is_alive(int(pid)):
    return True
  return time.time() - os.stat(path).st_mtime > _STALE


class Shared:
  """The directory in which processes share the tokenization of a corpus; as a context manager it removes the directory
  at the end if the corpus is complete.

  Args:
    directory: see the docstring of the module.
    corpus: the directory of the complete corpus.
    cfg: the `data` section.
    fields: its fields that the processes need, `corpus.Config`.
    exchange: bucket folder through which hosts exchange finished parts, '' for none.
  """

  def __init__(self, directory: str, corpus: str, cfg: Any, fields: Mapping[str, Any], exchange: str = ''):
    self.directory, self._corpus, self._cfg, self._fields = directory, corpus, cfg, fields
    self._exchange = exchange
    self._parts: list[tuple[str, Any]] = []
    self._joining: Claim | None = None

  def __enter__(self) -> Shared:
    return self

  def __exit__(self, *_: Any) -> None:
    if self._joining:
      with self._joining:
        if os.path.isdir(self._corpus):
          shutil.rmtree(self.directory, ignore_errors=True)

  def _path(self, name: str) -> str:
    return os.path.join(self.directory, name)

  def _once(self, name: str, make: Callable[[str], object]) -> str:
    """Return the path of `name`, which one process, of whichever host, makes: `make(path)`."""
    path = self._path(name)
    while not os.path.exists(path):
      claimed = claim(f'{path}.claim')
      if claimed is None:
        time.sleep(WAIT)
        continue
      with claimed:
        if not os.path.exists(path):
          make(made := temporary(path))
          os.rename(made, path)
    return path

  def tokenizer(self) -> Tokenizer:
    """Return the corpus's tokenizer, trained by one process. It is a separate process, because this one may have a
    single heap (lmx/host.py), which is a lock for the training threads. Raises its InputError.
    """
    os.makedirs(self.directory, exist_ok=True)

    def write(path: str) -> None:
      with open(path, 'w', encoding='utf-8') as file:
        json.dump(self._fields, file)

    def make(path: str) -> None:
      self._forget_error()
      with _processes(self.directory, 1, path, TOKENIZERS_PARALLELISM='true') as (process,):
        self._check([process.wait()])

    self._once(DATA, write)
    return build.load(self._once(TOKENIZER, make))

  def _forget_error(self) -> None:
    with contextlib.suppress(FileNotFoundError):
      os.remove(self._path(ERROR))

  def _check(self, codes: Sequence[int | None]) -> None:
    """Raise the error of a process; `codes` were read first, because a process writes its error before it ends.

    A negative code is the signal that has ended a process.
    """
    if os.path.exists(self._path(ERROR)):
      raise InputError(documents.field(documents.read_json(self._path(ERROR)), 'message', str, self._path(ERROR)))
    if ended := [-code for code in codes if code is not None and code < 0]:
      full = (
        ', which the system sends when the memory is full; use fewer --processes' if signal.SIGKILL in ended else ''
      )
      raise InputError(
        f'a process that tokenises text was ended by {signal.Signals(ended[0]).name}{full}; `lmx prepare` continues '
        'where this one stopped'
      )
    if any(codes):
      raise RuntimeError(f'processes that prepare text ended with exit codes {codes}; see their messages above')

  def _plan(self, splits: Mapping[str, Any], tokenizer: Tokenizer) -> list[tuple[str, Any]]:
    """Return (split, part) of every part, in order."""
    divide = '' if tokenizer.kind == 'unigram' or tokenizer.space_first else 'after'
    divide = 'before' if tokenizer.kind == 'bpe' and divide else divide

    def write(path: str) -> None:
      parts = [(name, part) for name, examples in splits.items() for part in examples.parts(PART, divide)]
      with open(path, 'w', encoding='utf-8') as file:
        json.dump({'exchange': self._exchange, 'parts': parts}, file)

    return [(name, part) for name, part in documents.read_json(self._once(PLAN, write))['parts']]

  def tokenize(self, splits: Mapping[str, Any], tokenizer: Tokenizer, processes: int) -> None:
    """Tokenize all parts with `processes` on this host and those on others. Raises the InputError of any of them."""
    self._parts = self._plan(splits, tokenizer)
    sizes = [splits[name].part_size(part) for name, part in self._parts]
    done = lambda: [n for n in range(len(sizes)) if os.path.exists(self._path(f'{n:05}.npz'))]
    self._forget_error()
    already = sum(sizes[n] for n in done())
    with (
      progress.Bar('tokenising', sum(sizes), already) as bar,
      _processes(self.directory, processes, TOKENIZERS_PARALLELISM='false') as running,
    ):
      while len(finished := done()) < len(sizes):
        if os.path.isdir(self._corpus):
          return  # another host is first
        bar.update(sum(sizes[n] for n in finished))
        self._check([process.poll() for process in running])
        time.sleep(0.1)
      bar.update(sum(sizes))

  def claim_join(self) -> bool:
    """Return True if this process is to join the parts; False once another one has."""
    while not os.path.isdir(self._corpus):
      if os.path.isdir(self.directory) and (claimed := claim(self._path('join.claim'))):
        self._joining = claimed
        return True
      time.sleep(WAIT)
    return False

  def join(self, name: str, writer: Writer) -> None:
    """Write the parts of a split, in order."""
    for number, (split, _) in enumerate(self._parts):
      if split == name:
        with np.load(self._path(f'{number:05}.npz')) as arrays:
          writer.join(self._path(f'{number:05}.tokens'), arrays)
    if self._cfg.rules.stream:
      writer.end_document('')


def temporary(path: str) -> str:
  """Return the name under which this process makes a file."""
  return f'{path}.{socket.gethostname()}.{os.getpid()}.tmp'


@contextlib.contextmanager
def _processes(directory: str, count: int, *words: str, **variables: str) -> Iterator[list[subprocess.Popen[bytes]]]:
  command = [sys.executable, '-m', 'lmx.data.worker', directory, str(os.getpid()), *words]
  environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, sys.path)), **variables}
  running = [subprocess.Popen(command, env=environment) for _ in range(count)]
  try:
    yield running
  finally:
    for process in running:
      process.terminate()
    for process in running:
      process.wait()
