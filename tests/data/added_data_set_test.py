"""The rows and the test of docs/add_data_set.md, run as they are."""

from __future__ import annotations

import re
import textwrap

from lmx.data import datasets, sources


def test_added_data_set_of_the_guide_works(root, tmp_path, monkeypatch):
  text = (root / 'docs/add_data_set.md').read_text()
  blocks = [textwrap.dedent(block) for block in re.findall(r'^ *```python\n(.*?)^ *```', text, re.S | re.M)]
  rows = eval('{' + ''.join(block for block in blocks if block.startswith("'")) + '}', vars(datasets))
  for name, row in rows.items():
    monkeypatch.setitem(datasets.DATA_SETS, name, row)
  scope: dict = {}
  exec(next(block for block in blocks if 'def test' in block), scope)
  scope['test_reviews_have_texts_and_classes'](tmp_path)
  for split in ('train', 'valid', 'test'):
    (tmp_path / f'{split}.txt').write_text(' a letter \n of two lines \n')
  cfg = sources.Config('letters', manual_dir=str(tmp_path), check_sizes=False, cache_dir=str(tmp_path / 'cache'))
  assert [text for _, text, _ in sources.open_splits(cfg)['test']] == [' a letter \n of two lines \n']
