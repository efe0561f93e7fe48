"""What the documents say can be done: links lead somewhere, commands parse, examples run."""

from __future__ import annotations

import configparser
import importlib
import os
import pathlib
import re
import shlex
import textwrap

from lmx.cli import main, pipeline
from lmx.config import resolve

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / 'docs/results'  # rendered by the site's build
DOCUMENTS = (
  *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob('*.md')),
  *sorted(str(p.relative_to(ROOT)) for p in (ROOT / 'docs').rglob('*.md') if p.parent != RESULTS),
)
EXPERIMENTS = sorted(
  str(p.relative_to(ROOT)) for p in (ROOT / 'experiments').glob('*/*.py') if p.parent.name != 'tables'
)


def commands(text: str) -> list[list[str]]:
  """Every `lmx ...` command written out in a text, as words."""
  text = re.sub(r'\s*\\+\n\s*', ' ', text)  # commands that go on in the next line
  text = re.sub(r'(?m)^\$ .*', '', text)  # shown with what they print, which tests/pages_test.py compares
  found = re.findall(rf'(?:^|[`\s/&])(lmx (?:{"|".join(main.COMMANDS)})\b[^`|\n]*)', text)
  found = [command.split('  ')[0].rstrip('.,;:') for command in found]
  whole = [c for c in found if len(c.split()) > 2 and not re.search(r'FILE|MODEL|bag', c)]
  return [shlex.split(c)[1:] for c in whole]


def test_links_resolve():
  for document in DOCUMENTS:
    for target in re.findall(r'\]\((?!https?:|#)([^)#]+)', (ROOT / document).read_text()):
      path = pathlib.Path(os.path.normpath((ROOT / document).parent / target))
      assert path.exists(), f'{document}: {target}'
      assert path.is_dir() or path.stat().st_size, f'{document}: {target} is empty'


def check_commands(text: str) -> None:
  """Every command of a text parses, and its config loads."""
  for words in commands(text):
    check_command(words)


def check_command(words: list[str]) -> None:
  """A command parses, and its config loads."""
  args = main.parse(words)
  if args.command == 'pipeline':
    pipeline.plan(args.config, pathlib.Path(args.workdir), args.overrides)
  elif getattr(args, 'config', None):
    # The run that a document begins from is not there to take sizes from.
    resolve.load(args.config, [re.sub(r'^(train.init_from=).*', r'\1', text) for text in args.overrides])


def test_commands_of_experiments_parse_and_their_configs_load():
  for path in EXPERIMENTS:
    check_commands((ROOT / path).read_text())


def test_commands_page_lists_every_command_and_exit_code():
  text = (ROOT / 'docs/commands.md').read_text()
  for command in main.COMMANDS:
    assert f'| `lmx {command}' in text, command
  for code in re.findall(r'\b(\d+) (?:done|bad input|the loss|stopped|interrupted)', main.__doc__):
    assert f'| {code} |' in text, f'exit code {code}'


def test_site_has_every_page_in_its_navigation():
  text = (ROOT / 'mkdocs.yml').read_text()
  listed = set(re.findall(r'(?m)^ +- (?:.*: )?(\S+\.md)$', text))
  written = {path.removeprefix('docs/') for path in DOCUMENTS if path.startswith('docs/')}
  assert not written - listed, f'add to nav of mkdocs.yml: {sorted(written - listed)}'
  generated = {'contributing.md', 'changelog.md', 'api/models.md', 'api/layers.md', 'api/ops.md', 'api/objectives.md'}
  generated |= {f'notebooks/{p.stem}.md' for p in (ROOT / 'notebooks').glob('*.ipynb')}
  assert listed - written == generated


def test_extras_that_the_documents_name_exist():
  metadata = configparser.ConfigParser()
  metadata.read(ROOT / 'setup.cfg')
  for document in DOCUMENTS:
    for names in re.findall(r'(?:\.|lmx)\[([a-z0-9,-]+)\]', (ROOT / document).read_text()):
      for name in names.split(','):
        assert name in metadata['options.extras_require'], f'{document}: extra {name}'


def test_extras_are_listed_once_and_all_of_them():
  """The table of the quickstart has every extra; README links to it."""
  metadata = configparser.ConfigParser()
  metadata.read(ROOT / 'setup.cfg')
  table = (ROOT / 'docs/quickstart.md').read_text().partition('\n## Extras\n')[2]
  rows = re.findall(r'(?m)^\| (`[^|]*`) \|', table)
  listed = [name for row in rows for name in re.findall(r'`([^`]+)`', row)]
  assert sorted(listed) == sorted(metadata['options.extras_require'])
  assert 'docs/quickstart.md#extras' in (ROOT / 'README.md').read_text()


def test_clone_line_needs_one_change():
  """A shell reads <...> as a redirection; a folder named lmx would hide the package from the folder above it."""
  for document in ('README.md', 'docs/index.md', 'docs/quickstart.md'):
    assert re.findall('git clone .*', (ROOT / document).read_text()) == ['git clone URL lmx-repo && cd lmx-repo']


def blocks(document: str) -> list[str]:
  """The Python code of a document, one string a block."""
  text = (ROOT / document).read_text()
  return [textwrap.dedent(b) for b in re.findall(r'^ *```python\n(.*?)^ *```', text, re.S | re.M)]


def test_names_in_the_python_example_exist():
  source = '\n'.join(b for page in ('README.md', 'docs/python.md') for b in blocks(page) if 'lmx.load' in b)
  run = importlib.import_module('lmx.inference').TrainedRun
  known = set(run.__dataclass_fields__) | set(dir(run))
  assert set(re.findall(r'\brun\.(\w+)', source)) <= known
