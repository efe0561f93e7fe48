"""Write the quickstart's run into the pages: README.md, docs/quickstart.md and docs/loss.png.

  python tests/quickstart_pages.py [--workdir=DIR]   trains in DIR, or resumes; about 4 minutes on two cores

The blocks between the markers `quickstart: begin` and `quickstart: end` of both pages are the output of this one
run. The backend is that of an installation without extras, as the pages recommend it.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

from lmx import objectives
from lmx.evaluation import report

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = {'README.md': 2, 'docs/quickstart.md': 6}  # page -> lines of generated text
PICTURE = 'docs/loss.png'
PROMPT = 'The method returns'
BLOCK = re.compile(r'(?<=<!-- quickstart: begin)( on [^\n]*)? -->\n.*?(?=<!-- quickstart: end -->)', re.DOTALL)
TRAIN = ['train', '--config=experiments/rnn_lm/quickstart.py', '--config.model.backend=xla']


def train(workdir: pathlib.Path) -> None:
  """Train the quickstart in a work directory; a finished run stays as it is."""
  command = [sys.executable, '-m', 'lmx.cli.main', *TRAIN, f'--workdir={workdir}']
  subprocess.run(command, cwd=ROOT, check=True)


def cpu() -> str:
  """Return the kind of this CPU: two machines of one kind give the same metrics to the last digit."""
  try:
    text = pathlib.Path('/proc/cpuinfo').read_text()
  except OSError:
    text = ''
  name = re.search(r'^model name\s*: (.*)$', text, re.MULTILINE)
  widest = [f'{isa}' for isa in ('avx512f', 'avx2') if f' {isa}' in text][:1]
  return ', '.join([name[1] if name else platform.machine(), *widest])


def block(workdir: pathlib.Path, page: str) -> str:
  """Return the block of a page: the last validation, the table, generated text and the picture."""
  results = json.loads((workdir / 'results.json').read_text())
  records = [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]
  step, valid = next((r['step'], r) for r in reversed(records) if r['split'] == 'valid')
  names = ('loss', 'perplexity_per_token', 'perplexity_per_word')
  shown = ', '.join(f'{name.replace("_", " ")} {valid[name]:.4g}' for name in names)
  table = report.summary(results, objectives.get('causal_lm')).splitlines()
  rows = table[: 2 + len(results['baselines'])]
  samples = (workdir / 'samples.txt').read_text()
  text = samples[samples.index(PROMPT) :].splitlines()[: PAGES[page]]
  link = pathlib.PurePosixPath(PICTURE).relative_to('docs' if page.startswith('docs/') else '.')
  lines = [
    *('```', f'step {step}/{results["steps"]}  valid: {shown}, ...', *rows, '  ...', *text, '...', '```', ''),
    f'![loss over training steps, with the n-gram models as lines to beat]({link})',
  ]
  return f' on {cpu()} -->\n' + '\n'.join(lines) + '\n'


def main() -> None:
  """Train, and replace the blocks and the picture."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--workdir', type=pathlib.Path, help='work directory of the run; default: a temporary one')
  args = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    workdir = (args.workdir or pathlib.Path(folder) / 'run').resolve()
    train(workdir)
    for page in PAGES:
      path = ROOT / page
      path.write_text(BLOCK.sub(lambda _, page=page: block(workdir, page), path.read_text()))
    shutil.copy(workdir / 'loss.png', ROOT / PICTURE)


if __name__ == '__main__':
  main()
