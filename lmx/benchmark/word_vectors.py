"""word2vec in words per second over whole epochs, alternating with gensim.

Both read the same synthetic text (`made_up_text`): 1,500,000 words of 60,000 types, of which about 30,000 occur five
times. The quickstarts' embedded prose is too small: its two tables would fit in a cache. Vectors have width 100, the
window is 5, with 5 noise words or the tree, and frequent words are subsampled by 1e-3. lmx trains like `lmx train`
(experiments/word2vec/quickstart.py) without logging. The centres per update are those of docs/notes/word2vec.md: 256,
skip-gram with the tree 128, CBOW with noise words 512. gensim reads a file with one thread per core. All words of the
text count, even rare or subsampled ones. Building the vocabulary is not timed. lmx's compilation is shown separately.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import tempfile
import time
from typing import Any

from lmx import host
from lmx.benchmark import made_up_text, row
from lmx.benchmark.peer import Peer

PACKAGES = ('gensim',)
PRESETS = {
  'word2vec_skipgram_negative': ('skipgram', 'negative'),
  'word2vec_cbow_negative': ('cbow', 'negative'),
  'word2vec_skipgram_tree': ('skipgram', 'hierarchical'),
  'word2vec_cbow_tree': ('cbow', 'hierarchical'),
}
CHUNKS = {  # centres of an update in each of 8 rows
  ('skipgram', 'negative'): 32,
  ('cbow', 'negative'): 64,
  ('skipgram', 'hierarchical'): 16,
  ('cbow', 'hierarchical'): 32,
}
LINE, TYPES = 1000, 60_000
WORDS = 1_500_000


class Training:
  """lmx's training on a text.

  Attributes:
    compile_seconds: time of the first update minus an ordinary one.
  """

  def __init__(self, folder: pathlib.Path, architecture: str, output: str):
    from lmx import train
    from lmx.config import resolve
    from lmx.runs import training

    changes = {
      'data.dataset': 'text_files',
      'data.documents': 'line',
      'data.manual_dir': str(folder),
      'data.cache_dir': str(folder / 'cache'),
      'data.batch_size': 8,
      'data.batching.chunk': CHUNKS[architecture, output],
      'data.length': 4096,
      'train.epochs': 100,  # the rate hardly changes meanwhile
    }
    overrides = [f'{name}={value}' for name, value in changes.items()]
    loaded = resolve.load(f'experiments/word2vec/quickstart.py:{architecture},output={output}', overrides)
    run = resolve.to_run(loaded)
    corpus = train.load_corpus(run)
    _, settled = resolve.with_corpus(loaded, corpus)
    self._session = train.Session(settled, corpus, training.make_engine(settled), None, '')
    self.vocabulary = settled.model.V
    first, other = self.run_steps(1), self.run_steps(1)
    self.compile_seconds = first - other

  def run_steps(self, count: int) -> float:
    """Run updates, as the training loop does; return their seconds."""
    from lmx.data import pipeline

    session = self._session
    data, done = session.run.data, session.done
    start = time.perf_counter()
    last: Any = None
    ahead = (data.prefetch, data.workers, data.processes)
    with pipeline.prefetch(session.batches, done, done + count, session.rows, *ahead) as stream:
      for _, batch in stream:
        session.state, session.model_state, metrics = session.train_step(
          session.state, session.model_state, session.engine.put_batch(batch), session.train_key
        )
        if last is not None:
          bool(last['finite'])  # the previous update's, as in the training loop
        last = metrics
    float(last['loss'])
    session.done += count
    return time.perf_counter() - start

  def run_epoch(self, share: float = 1.0) -> float:
    """Run a share of an epoch; return the words a second."""
    steps = max(1, int(self._session.batches.steps * share))
    seconds = self.run_steps(steps)
    return steps / self._session.batches.steps * WORDS / seconds


def measure(name: str, rounds: int, python: str | None) -> list[row.Row]:
  """Return the row of a preset."""
  architecture, output = PRESETS[name]
  ours: list[float] = []
  theirs: list[float] = []
  with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
    folder = pathlib.Path(directory)
    text = _write(folder)
    training = Training(folder, architecture, output)
    training.run_epoch(0.2)
    peer, about = None, None
    if python:
      peer = stack.enter_context(Peer(python, 'gensim_epochs.py'))
      options = {'sg': int(architecture == 'skipgram'), 'hs': int(output == 'hierarchical'), 'threads': host.cores()}
      about = peer.send({'kind': 'word2vec', 'file': str(text), **options})
    for _ in range(rounds):
      ours.append(training.run_epoch())
      if peer:
        theirs.append(WORDS / peer.send({'epochs': 1})['seconds'])
    peaks = host.process_peak(), peer.peak_bytes if peer else None
  details = {'words': WORDS, 'vocabulary': training.vocabulary}
  return [
    row.make(
      name,
      'words/s',
      ours,
      theirs,
      compile_seconds=training.compile_seconds,
      peaks=peaks,
      peer=about,
      details=details,
    )
  ]


def _write(folder: pathlib.Path) -> pathlib.Path:
  """Write the text and, since lmx wants them, a line for each of the other splits."""
  source = made_up_text.lines(TYPES, LINE)
  for name, count in (('valid', 1), ('test', 1), ('train', WORDS // LINE)):
    (folder / f'{name}.txt').write_text('\n'.join(itertools.islice(source, count)) + '\n', encoding='utf-8')
  return folder / 'train.txt'
