"""Embed lines with a trained or published model and group them: `python examples/cluster.py RUN [FILE]`."""

import pathlib
import sys

import numpy as np
from scipy.cluster.vq import kmeans2

import lmx

LINES = """the cat sleeps on the mat
a dog runs after a cat
the dog barks at the postman
return the list of names
the function returns a string
raise an error if the file is missing
the method takes a list of strings""".splitlines()

if len(sys.argv) < 2:
  sys.exit(
    'usage: python examples/cluster.py RUN [FILE]; RUN is a work directory, a folder of transformers or hub:NAME'
  )
lines = pathlib.Path(sys.argv[2]).read_text(encoding='utf-8').splitlines() if len(sys.argv) > 2 else LINES
run = lmx.load(sys.argv[1])

# Each line is the mean of its tokens' vectors in the middle layer, at length 1 around the mean of all lines.
embedded = [layers[len(layers) // 2].mean(axis=0) for _, layers in run.embed(lines)]
vectors = np.stack(embedded) - np.mean(embedded, axis=0)
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-9

groups = min(3, len(lines))
_, group_of = kmeans2(vectors, groups, minit='++', seed=0)
for group in range(groups):
  print(f'group {group + 1}')
  for line in np.array(lines)[group_of == group]:
    print(f'  {line}')
