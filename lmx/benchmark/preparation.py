"""`lmx prepare` of a text with a byte-level BPE of 8,000, a whole process, in turns with the `tokenizers` library.

The text is made up (`made_up_text.write_sentences`). lmx learns the vocabulary, encodes the text and writes it. The
peer learns one of the same kind and size and encodes the text, and writes nothing.
"""

from __future__ import annotations

import pathlib
import shutil
import sys
import tempfile

from lmx.benchmark import made_up_text, row, whole_process
from lmx.benchmark.peer import environment, script

PACKAGES = ('tokenizers',)
PRESETS = ('prepare',)
VOCABULARY = 8000


def measure(name: str, rounds: int, python: str | None, megabytes: int) -> list[row.Row]:
  """Return the row; a round prepares `megabytes` of text from nothing."""
  ours: list[whole_process.Finished] = []
  theirs: list[whole_process.Finished] = []
  with tempfile.TemporaryDirectory() as directory:
    folder = pathlib.Path(directory)
    (folder / 'text').mkdir()
    file, cache = folder / 'text' / 'train.txt', folder / 'cache'
    size = made_up_text.write_sentences(file, megabytes * 10**6) / 10**6
    settings = {
      'dataset': 'text_files',
      'manual_dir': file.parent,
      'cache_dir': cache,
      'tokenizer': 'bpe',
      'vocab_size': VOCABULARY,
    }
    command = [sys.executable, '-m', 'lmx', 'prepare', '--config=experiments/gpt2/quickstart.py']
    command += [f'--config.data.{field}={value}' for field, value in settings.items()]
    for _ in range(rounds):
      ours.append(whole_process.run(command))
      shutil.rmtree(cache)
      if python:
        theirs.append(
          whole_process.run([python, script('tokenizers_encode.py'), str(file), str(VOCABULARY)], environment())
        )
  rate = lambda runs: [size / done.seconds for done in runs]
  peaks = whole_process.peak(ours), whole_process.peak(theirs)
  about = theirs[-1].answer() if theirs else None
  return [row.make(name, 'MB/s', rate(ours), rate(theirs), peaks=peaks, peer=about, details={'megabytes': size})]
