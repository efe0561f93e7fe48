"""What the documents say can be done: links lead somewhere, commands parse, examples run."""

from __future__ import annotations

import importlib
import pathlib
import re
import shlex
import sys
import textwrap
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import config
from lmx.cli import main, pipeline

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = ('README.md', 'CONTRIBUTING.md', 'docs/results.md')
EXPERIMENTS = sorted(p for p in (ROOT / 'experiments').glob('*/*.py') if p.parent.name != 'tables')


def commands(text: str) -> list[list[str]]:
  """Every `lmx ...` command written out in a text, as words."""
  text = re.sub(r'\s*\\+\n\s*', ' ', text)  # commands that go on in the next line
  found = re.findall(rf'(?:^|[`\s/&])(lmx (?:{"|".join(main.COMMANDS)})\b[^`|\n]*)', text)
  found = [command.split('  ')[0].rstrip('.,;:') for command in found]
  whole = [c for c in found if len(c.split()) > 2 and not re.search(r'FILE|MODEL|bag', c)]
  return [shlex.split(c)[1:] for c in whole]


@pytest.mark.parametrize('document', DOCUMENTS)
def test_links_lead_somewhere(document):
  text = (ROOT / document).read_text()
  for target in re.findall(r'\]\((?!https?:|#)([^)#]+)', text):
    assert ((ROOT / document).parent / target).exists(), target


def check_commands(text: str) -> None:
  """Every command of a text parses, and its config loads."""
  for words in commands(text):
    args = main.parse(words)
    if args.command == 'pipeline':
      pipeline.plan(args.config, pathlib.Path(args.workdir), args.overrides)
    elif getattr(args, 'config', None):
      # The run that a document begins from is not there to take sizes from.
      config.load(args.config, [re.sub(r'^(train.init_from=).*', r'\1', text) for text in args.overrides])


@pytest.mark.parametrize('path', [*DOCUMENTS, *(str(p.relative_to(ROOT)) for p in EXPERIMENTS)])
def test_commands_parse_and_their_configs_load(path):
  check_commands((ROOT / path).read_text())


def test_readme_shows_every_command_and_exit_code():
  text = (ROOT / 'README.md').read_text()
  for command in main.COMMANDS:
    assert f'| `lmx {command}' in text, command
  for code in re.findall(r'\b(\d+) (?:done|bad input|the loss|stopped|interrupted)', main.__doc__):
    assert f'| {code} |' in text, f'exit code {code}'


def blocks(document: str) -> list[str]:
  """The Python code of a document, one string a block."""
  text = (ROOT / document).read_text()
  return [textwrap.dedent(b) for b in re.findall(r'^ *```python\n(.*?)^ *```', text, re.S | re.M)]


def test_the_worked_example_is_a_causal_model_with_a_state():
  source = next(b for b in blocks('CONTRIBUTING.md') if 'class Config' in b and 'bag' not in b[:3] and 'Running' in b)
  bag = types.ModuleType('bag')
  sys.modules['bag'] = bag  # dataclasses look their module up
  try:
    exec(compile(source, 'CONTRIBUTING.md', 'exec'), bag.__dict__)
  finally:
    del sys.modules['bag']
  cfg = bag.Config(V=7, **bag.VARIANTS['tiny'])
  params = bag.init(cfg, jax.random.key(0))
  tokens_BT = np.arange(12).reshape(2, 6) % 7

  def nll(tokens_BT, state):
    features, state = bag.apply(cfg, params, {'tokens_BT': jnp.asarray(tokens_BT)}, state)
    return np.asarray(bag.nll(cfg, params, features, jnp.asarray(tokens_BT))), state

  whole, _ = nll(tokens_BT, bag.init_state(cfg, 2))
  first, state = nll(tokens_BT[:, :3], bag.init_state(cfg, 2))
  second, _ = nll(tokens_BT[:, 3:], state)
  np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, rtol=1e-5)
  assert whole.shape == (2, 6) and {bag.depth(cfg, (name,)) for name in params} == {0, 1}


def test_the_worked_experiment_is_a_config_file():
  source = next(b for b in blocks('CONTRIBUTING.md') if 'def get_config' in b)
  bar = types.ModuleType('bar')
  exec(compile(source, 'CONTRIBUTING.md', 'exec'), bar.__dict__)
  for variant in ('', *bar.VARIANTS):
    given = bar.get_config(variant)
    given.model.name = 'rnn_lm'  # the example's model does not exist
    given.model.variant = 'tiny'
    config.resolve(given)
  assert all('optim.lr' in point for point in bar.sweep())


def test_names_in_the_python_example_exist():
  source = next(b for b in blocks('README.md') if 'lmx.load' in b)
  restored = importlib.import_module('lmx.restored')
  known = set(restored.Restored.__dataclass_fields__) | set(dir(restored.Restored))
  assert set(re.findall(r'\brun\.(\w+)', source)) <= known
