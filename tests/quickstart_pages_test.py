"""README.md, docs/quickstart.md and docs/loss.png are of the run that the quickstart's command gives."""

from __future__ import annotations

import re

import numpy as np
import pytest
from matplotlib import image

from tests import quickstart_pages

DRAWS = True  # of tests/conftest.py
NUMBER = re.compile(r'\d+\.\d+')
TOLERANCE = 0.03  # of perplexities on another kind of CPU, where sums have another order


def committed(page):
  (found,) = quickstart_pages.BLOCK.finditer((quickstart_pages.ROOT / page).read_text())
  return found[0]


def table(text):
  """Return the lines of a block from the validation to the last baseline."""
  return text.split('```')[1].strip().split('\n  ...\n')[0].splitlines()


def test_pages_show_the_same_run():
  """The table of README.md is that of docs/quickstart.md, whose model beats the Kneser-Ney model."""
  readme, page = map(committed, quickstart_pages.PAGES)
  assert table(readme) == table(page) and readme.split(' -->')[0] == page.split(' -->')[0]
  rows = {line.rsplit(maxsplit=1)[0].strip(): float(line.split()[-1]) for line in table(page)[2:]}
  model, kneser_ney, both, unigram = rows.values()
  assert list(rows)[1] == 'Kneser-Ney 5-gram' and both < model < kneser_ney < unigram


@pytest.mark.slow
def test_pages_show_what_the_command_gives(tmp_path):
  quickstart_pages.train(tmp_path / 'run')
  for page in quickstart_pages.PAGES:
    shown, found = committed(page), quickstart_pages.block(tmp_path / 'run', page)
    if f' on {quickstart_pages.cpu()} ' in shown:
      assert shown == found
      continue
    for one, two in zip(table(shown), table(found), strict=True):
      assert NUMBER.sub('', one) == NUMBER.sub('', two)
      numbers = [[float(number) for number in NUMBER.findall(line)] for line in (one, two)]
      np.testing.assert_allclose(*numbers, rtol=TOLERANCE, atol=0.06)
  same_cpu = f' on {quickstart_pages.cpu()} ' in committed('README.md')
  pictures = [image.imread(path) for path in (quickstart_pages.ROOT / 'docs/loss.png', tmp_path / 'run/loss.png')]
  assert pictures[0].shape == pictures[1].shape
  if same_cpu:
    np.testing.assert_allclose(*pictures, atol=0.02)
