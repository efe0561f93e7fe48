"""Train a byte-level BPE and encode a text with the `tokenizers` library, for `lmx bench --preset=prepare`.

  python tokenizers_encode.py FILE VOCABULARY

It imports nothing from lmx; its interpreter needs tokenizers. The library uses one thread per core. The last output
line is a JSON object: version, tokens, and the seconds of training and encoding.
"""

from __future__ import annotations

import itertools
import json
import sys
import time

_LINES = 10_000  # encoded at once, so that the text is never in memory as a whole


def main(path: str, vocabulary: int) -> None:
  """Train, encode, and print the result."""
  import tokenizers

  start = time.perf_counter()
  tokenizer = tokenizers.ByteLevelBPETokenizer(add_prefix_space=False)
  tokenizer.train([path], vocab_size=vocabulary, min_frequency=2, show_progress=False)
  learned, tokens = time.perf_counter(), 0
  with open(path, encoding='utf-8') as file:
    while block := list(itertools.islice(file, _LINES)):
      tokens += sum(len(encoding.ids) for encoding in tokenizer.encode_batch(block))
  seconds = {'learn_seconds': learned - start, 'encode_seconds': time.perf_counter() - learned}
  print(json.dumps({'tokenizers': tokenizers.__version__, 'tokens': tokens, **seconds}))


if __name__ == '__main__':
  if len(sys.argv) != 3:
    print(__doc__)
    sys.exit(2)
  main(sys.argv[1], int(sys.argv[2]))
