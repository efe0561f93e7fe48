"""A process that prepares a corpus with others, see lmx/data/shared.py.

`python -m lmx.data.worker DIRECTORY PARENT` tokenizes parts of it, with a third argument it makes the tokenizer there.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import socket
import sys
import threading
import time
import warnings
from typing import Any

import numpy as np

from lmx import documents
from lmx.data import bucket, corpus, document_reader, encoding, sentences, shared, sources
from lmx.data.splits import Writer
from lmx.data.tokenizers import build
from lmx.data.tokenizers.base import Tokenizer
from lmx.errors import InputError, InputWarning, disk_fault


def _config(directory: str) -> corpus.Config:
  fields = documents.read_json(os.path.join(directory, shared.DATA))
  values: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in fields.items()}
  return corpus.Config(**values)


def make_tokenizer(directory: str, path: str) -> None:
  """Write the tokenizer of the corpus of a shared directory to `path`."""
  corpus.make_tokenizer(_config(directory)).save(path)


def work(directory: str) -> None:
  """Tokenize the parts of a shared directory that nobody else has claimed, until none is left."""
  plan = documents.read_json(os.path.join(directory, shared.PLAN))
  cfg = _config(directory)
  tokenizer = build.load(os.path.join(directory, shared.TOKENIZER))
  splits = sources.open_splits(cfg, verify=False)
  missing = list(range(len(plan['parts'])))
  if plan['exchange']:  # hosts begin with different parts
    random.Random(socket.gethostname()).shuffle(missing)
  while missing:
    for number in missing:
      path = os.path.join(directory, f'{number:05}')
      if os.path.exists(f'{path}.npz') or (claimed := shared.claim(f'{path}.claim')) is None:
        continue
      with claimed:
        if not os.path.exists(f'{path}.npz') and not _fetch(plan['exchange'], path):
          split, part = plan['parts'][number]
          _tokenize(cfg, path, split, splits[split], part, tokenizer)
          _leave(plan['exchange'], path)
    missing = [number for number in missing if not os.path.exists(os.path.join(directory, f'{number:05}.npz'))]
    if missing:  # other processes are at these, or have died
      time.sleep(shared.WAIT)


def _fetch(exchange: str, path: str) -> bool:
  """Copy a part that another host has left in the bucket; return whether it has."""
  name = os.path.basename(path)
  if not exchange or not (bucket.path(exchange) / f'{name}.npz').exists():
    return False
  for ending in ('.tokens', '.npz'):
    bucket.copy(bucket.path(exchange) / f'{name}{ending}', bucket.path(temporary := shared.temporary(path)))
    os.rename(temporary, f'{path}{ending}')
  return True


def _leave(exchange: str, path: str) -> None:
  for ending in ('.tokens', '.npz') if exchange else ():
    bucket.copy(bucket.path(f'{path}{ending}'), bucket.path(exchange) / f'{os.path.basename(path)}{ending}')


def _tokenize(cfg: Any, path: str, split: str, examples: Any, part: Any, tokenizer: Tokenizer) -> None:
  temporary = shared.temporary(path)
  with open(temporary, 'wb') as file:
    arrays = _encode(cfg, encoding.writer(cfg, split, file, tokenizer), examples, part, tokenizer)
  os.rename(temporary, f'{path}.tokens')
  with open(temporary, 'wb') as file:
    np.savez(file, **arrays)  # type: ignore[arg-type]
  os.rename(temporary, f'{path}.npz')


def _encode(cfg: Any, writer: Writer, examples: Any, part: Any, tokenizer: Tokenizer) -> dict[str, np.ndarray]:
  """Write a part; return its other arrays."""
  rows = document_reader.create(cfg, cfg.detokenize)(examples.read(part))
  first = next(rows, None)
  ends = examples.ends(part) and not cfg.rules.stream
  encoding.write(cfg, writer, itertools.chain([first] if first else [], rows), tokenizer, ends=ends)
  # A sentence goes on where a document of wrapped lines is divided.
  wrapped = first is not None and sentences.infer_mode(first[1], lines=True) == 'wrapped'
  return writer.arrays(without_first_sentence=wrapped and examples.continues(part))


def main(directory: str, parent: int, tokenizer: str = '') -> int:
  """Run `work`, or `make_tokenizer` if it has a path, until the parent process is gone; return the exit code.

  An InputError, a full memory and a disk that fails are written to the directory.
  """

  def watch() -> None:
    while os.getppid() == parent:
      time.sleep(1)
    os._exit(1)

  warnings.filterwarnings('ignore', '.*: not read as data: ', InputWarning)  # the parent process has warned
  threading.Thread(target=watch, daemon=True).start()
  try:
    make_tokenizer(directory, tokenizer) if tokenizer else work(directory)
  except (InputError, MemoryError, OSError) as error:
    memory = 'out of memory; run `lmx prepare` with fewer --processes: it continues where this one stopped'
    message = memory if isinstance(error, MemoryError) else str(error)
    if isinstance(error, OSError) and not (message := disk_fault(error, directory)):
      raise
    temporary = shared.temporary(os.path.join(directory, shared.ERROR))
    with open(temporary, 'w', encoding='utf-8') as file:
      json.dump({'message': message}, file)
    os.rename(temporary, os.path.join(directory, shared.ERROR))
    return 2
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
