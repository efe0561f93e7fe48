"""The pages of the models: complete, parsable, and with figures that agree with the code."""

from __future__ import annotations

import pathlib
import re
import string
import xml.etree.ElementTree

import jax.numpy as jnp
import numpy as np
import pytest

from lmx.cli import list as list_command
from lmx.cli import main
from lmx.models import registry, xlnet
from lmx.ops.masks import AttentionMask
from lmx.ops.patterns import Compressed
from tests import pages_test
from tests.reference import sparse_transformer

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = registry.names()
KEYS = {'group', 'paper', 'line', 'idea', 'equations', 'figure'}


@pytest.fixture(scope='module')
def pages():
  return pages_test.hook('model_pages')


def test_every_model_is_described_by_its_own_words(pages):
  described = {path.stem for path in (ROOT / 'docs/models').glob('*.yml')}
  assert described == set(NAMES), 'a model has docs/models/NAME.yml, see docs/add_model.md'
  for name in NAMES:
    about = pages.description(name)
    assert about.keys() >= KEYS and not about.keys() - KEYS - {'arxiv', 'weights'}, name
    assert about.get('arxiv', '') in pages.docstring(name), name
    assert len(about['line']) < 120, name
  ideas = {pages.description(name)['idea'] for name in NAMES}
  assert len(ideas) == len(NAMES)


def test_figures_draw_the_model(pages):
  """Labels name fields of the Config, and masks are those of the model."""
  for name in NAMES:
    module, figure = registry.get(name), pages.description(name)['figure']
    variant, values = pages.sizes(name)
    svg = pages.architecture.figure(figure, values, name)
    shown = ' '.join(xml.etree.ElementTree.fromstring(svg).itertext())
    assert '{' not in shown, name
    labels = [text for block in pages.architecture.walk(figure) for text in block.values() if isinstance(text, str)]
    fields = {part[1] for text in labels for part in string.Formatter().parse(text) if part[1]}
    assert fields and fields <= values.keys(), (name, fields - values.keys())
    kinds = set(pages.architecture.masks_in(figure))
    assert not kinds & {'causal', 'memory', 'fixed', 'local', 'compressed'} or module.CAUSAL, name
    if 'attention' in values and module.CAUSAL:  # self-attention of a language model or a decoder
      assert kinds & {'causal', 'memory', 'fixed', 'local'}, name
    repeats = [block['repeat'] for block in pages.architecture.walk(figure) if 'repeat' in block]
    if 'scan' in values:  # layers of one kind
      assert repeats, name
  with pytest.raises(ValueError, match='expected one of table'):
    pages.architecture.figure([{'tabel': 'x'}], {}, '')


def test_drawn_masks_are_those_of_the_operations(pages):
  mask = pages.architecture.mask
  causal = AttentionMask().allowed(True, (0, 9), (0, 9))[0]
  np.testing.assert_array_equal(mask('causal'), causal)
  np.testing.assert_array_equal(mask('memory'), np.concatenate([np.ones((9, 4), bool), causal], axis=1))
  np.testing.assert_array_equal(mask('compressed'), Compressed(3)(np.arange(9)[:, None], np.arange(3)))
  fixed = [set.union(*sparse_transformer.fixed(i, 3, 1, 0, released=False)) for i in range(9)]
  np.testing.assert_array_equal(mask('fixed'), [[key in fixed[i] for key in range(9)] for i in range(9)])
  order = np.array(pages.architecture._ORDER)
  batch = {'tokens_BT': jnp.zeros((1, 9), int), 'order_BT': jnp.asarray(order)[None] + 1}
  batch['positions_BP'] = jnp.arange(9)[None]
  seen = np.asarray(xlnet.permutation_visible(batch, 0, None).mask())[0]
  np.testing.assert_array_equal(mask('content'), seen[:9])
  np.testing.assert_array_equal(mask('query'), seen[9:])


def test_pages_name_every_experiment_size_and_command(pages):
  text = {name: pages.page(name) for name in NAMES}
  files = [path for path, _ in list_command.experiments()]
  for path in files:
    assert any(f'`{path}`' in page or f'[{path}](' in page for page in text.values()), path
  for name, page in text.items():
    assert page.startswith(f'# {pages.title(name)}\n') and '<math ' in page and '<svg ' in page, name
    for variant, number in list_command.parameters(ROOT / f'lmx/models/{name}.py').items():
      assert f'| `{variant}` | {number:,} |' in page, (name, variant)
    use = page.partition('## Use a run')[2].partition('\n## ')[0]
    for command in re.findall(r'(?m)^lmx (.*)$', use):
      main.parse(re.sub('"[^"]*"', 'x', command).split())
    assert not re.search(r'(?m)^\|(---\|){4}', page), f'{name}: a table of more than three columns'
  assert 'lmx generate' in text['gpt2'] and 'lmx generate' not in text['bert']
  assert 'lmx translate' in text['transformer'] and 'lmx vectors' in text['word2vec']
  assert '`XLNetForMultipleChoice`' in text['xlnet'] and 'Marian' in text['transformer']
  assert 'GPT-2 as released' in text['gpt2'] and 'GPT-2 as released' not in text['gpt']
  cards = pages.cards()
  assert all(f'(models/{name}.md)' in cards for name in NAMES) and '|---' not in cards


def test_measured_rows_are_on_the_pages_of_their_models(pages):
  lines = pages.measurements()
  assert {one.row for one in lines['gpt2'] if one.system == 'quickstart'} == {'gpt2'}
  assert {one.system for one in lines['awd_lstm']} == {'awd_lstm', 'quickstart', 'ulmfit'}
  page = pages.page('ntm')
  assert '✓ printed' in page and '../results/ntm.md' in page


def test_model_without_a_description_has_a_page(pages, monkeypatch):
  monkeypatch.setattr(pages, 'description', lambda name: {})
  page = pages.page('gpt2')
  assert page.startswith('# GPT-2\n\nGPT-2: Radford') and '| `124m` | 124,439,808 |' in page
  assert f'## {pages.OTHERS}' in pages.cards()
