"""Train from a config, read the figures, and write with the run: `python examples/train.py WORKDIR`."""

import json
import pathlib
import sys

import lmx
from lmx import train
from lmx.config import resolve

workdir = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else 'runs/example')

# Any key of the config can be changed; `lmx config experiments/rnn_lm/quickstart.py` shows all of them.
config = resolve.load('experiments/rnn_lm/quickstart.py', ['train.steps=300', 'optim.lr=3e-3', 'samples.count=0'])
code = train.train(config, workdir)  # the same call resumes what was stopped
if code:
  sys.exit(code)

results = json.loads((workdir / 'results.json').read_text(encoding='utf-8'))
print(f'perplexity per word {results["perplexity_per_word"]:.1f} on {results["tokens_counted"]:,} words')
print(f'a 5-gram has {results["baselines"]["kneser_ney"]["perplexity_per_word"]:.1f}')

run = lmx.load(workdir)
for text in run.generate('The method returns', tokens=20, samples=2, seed=1):
  print('-', text)
