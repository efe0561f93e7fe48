"""The pages of docs/: messages are those printed, their numbers are those of the data, and the site is whole."""

from __future__ import annotations

import csv
import dataclasses
import functools
import importlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from lmx.cli import main
from lmx.config import schema
from lmx.data import datasets
from lmx.models import registry
from tests import documents_test

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / 'docs'
PRINTED = re.findall(r'(?ms)^```text\n\$ (.*?)\n(.*?)\n```', (DOCS / 'first_error.md').read_text())
LONG = ('runs/reviews', 'optim.lr=3e-3', 'optim.lr=1e30', 'model.F=', 'JAX_PLATFORMS', 'parallel.data', 'preflight')


@pytest.mark.parametrize('command, message', [p for p in PRINTED if not any(name in p[0] for name in LONG)])
def test_error_message_matches_the_page(command, message, tmp_path, monkeypatch, capsys):
  (tmp_path / 'bad.csv').write_text('text,labell\na,b\n')
  (tmp_path / 'data/two').mkdir(parents=True)
  for name in ('train.txt', 'train.txt.gz'):
    (tmp_path / 'data/two' / name).write_text('')
  (tmp_path / 'experiments').symlink_to(ROOT / 'experiments')
  monkeypatch.chdir(tmp_path)
  assert main.main(shlex.split(command)[1:]) == 2
  assert without_start(capsys.readouterr().err) == message


def without_start(text: str) -> str:
  """Return the messages of a command without the first lines of a training, which name its config and its data."""
  return re.sub(r'\Atrain .*\n(data: .*\n)?', '', text).strip()


def run(command: str, folder: pathlib.Path, **variables: str) -> subprocess.CompletedProcess:
  """Run a command of a page in a folder, as its reader would."""
  (folder / 'experiments').is_symlink() or (folder / 'experiments').symlink_to(ROOT / 'experiments')
  words = shlex.split(command)
  while '=' in words[0]:
    name, _, value = words.pop(0).partition('=')
    variables[name] = value
  assert words[0] == 'lmx', command
  settings = os.environ | {'PYTHONPATH': str(ROOT), 'XLA_FLAGS': '', 'JAX_PLATFORMS': 'cpu'} | variables
  words = [sys.executable, '-m', 'lmx.cli.main', *words[1:]]
  return subprocess.run(words, cwd=folder, env=settings, capture_output=True, text=True, timeout=500)


@pytest.mark.slow
@pytest.mark.parametrize('command, message', [p for p in PRINTED if any(name in p[0] for name in LONG)])
def test_failed_run_message_matches_the_page(command, message, tmp_path):
  if 'runs/reviews' in command:
    assert run('lmx train --config=experiments/bert/tasks.py:tiny --workdir=runs/reviews', tmp_path).returncode == 0
  elif 'lr=3e-3' in command:
    command = command.replace('quickstart.py', 'quickstart.py:tiny')
    assert run(command.replace('optim.lr=3e-3', 'train.steps=2'), tmp_path).returncode == 0
    (tmp_path / 'runs/a/results.json').unlink()
    command += ' --config.train.steps=2'
  elif 'preflight' in command or 'parallel' in command:
    command = command.replace('quickstart.py', 'quickstart.py:tiny')
  done = run(command, tmp_path)
  assert done.returncode == (3 if '1e30' in command else 0 if 'preflight' in command else 2), done.stderr
  assert message in done.stdout + done.stderr


def test_pages_count_nothing_that_a_new_part_changes():
  readme, first = (ROOT / 'README.md').read_text(), (DOCS / 'index.md').read_text()
  assert not re.search(r'\d (models|recipes|printed|measured|data sets)', readme + first)
  assert {*re.findall(r'(?m)^\| `(\w+)` \|', readme)} <= {*registry.names()}
  assert len(readme.splitlines()) <= 180 and len((ROOT / 'CONTRIBUTING.md').read_text().splitlines()) <= 60


@functools.cache
def hook(name: str):
  """A module of docs/hooks, which imports others from its folder."""
  if name in ('generated', 'model_pages', 'notebooks'):
    pytest.importorskip('latex2mathml', reason='needs the extra "docs"')
  sys.path.insert(0, str(DOCS / 'hooks'))
  try:
    return importlib.import_module(name)
  finally:
    sys.path.remove(str(DOCS / 'hooks'))


def test_links_lead_to_pages_of_the_site():
  rewrite = hook('links').rewrite
  assert rewrite('[a](../CONTRIBUTING.md#x) [b](../setup.cfg) [c](notes/speed.md)', 'code.md') == (
    '[a](contributing.md#x) b (`setup.cfg`) [c](notes/speed.md)'
  )
  file = rewrite('[a](../setup.cfg#x) [b](../lmx)', 'code.md', 'https://host/lmx')
  assert file == '[a](https://host/lmx/blob/main/setup.cfg#x) [b](https://host/lmx/tree/main/lmx)'
  assert rewrite('[a](docs/code.md) `[x](y)`\n```\n[b](../z)\n```\n', 'contributing.md').startswith('[a](code.md)')
  assert rewrite('[a](../../notebooks/ulmfit.ipynb)', 'notebooks/index.md') == '[a](ulmfit.md)'
  results = '[a](../../experiments/tables/measured.csv) [b](../../experiments/tables/measured.csv#ntm)'
  assert rewrite(results, 'notes/ntm.md') == '[a](../results/README.md) [b](../results/ntm.md)'


def test_generated_parts_are_in_the_checkout():
  """`python docs/hooks/generated.py` writes them again."""
  generated, found = hook('generated'), {}
  for path in documents_test.DOCUMENTS:
    text = (ROOT / path).read_text()
    found |= (own := generated.parts(text))
    assert len(own) == text.count('\n<!-- generated: '), path
  assert set(found) == set(generated.PARTS)
  for name, part in found.items():
    assert part.strip() and part == generated.in_checkout(name), f'{name}: run python docs/hooks/generated.py'


def test_every_option_and_program_is_generated():
  commands, generated = hook('command_pages'), hook('generated')
  pages = commands.pages()
  assert list(pages) == [f'commands/{name}.md' for name in main.COMMANDS]
  assert '### `--workdir=WORKDIR` { #workdir .lmx-key }\n\nRequired\n\nWork directory' in pages['commands/evaluate.md']
  text = commands.launchers()
  assert re.findall(r'(?m)^## launch\.(\w+)', text) == list(commands.LAUNCHERS)
  programs = {p.parent.name for p in (ROOT / 'launch').glob('*/__main__.py')}
  programs |= {p.stem for p in (ROOT / 'launch').glob('*.py') if "__name__ == '__main__'" in p.read_text()}
  assert programs == set(commands.LAUNCHERS)
  assert [f'| `{name}` | ' in generated.data_sets() for name in datasets.DATA_SETS] == [True] * len(datasets.DATA_SETS)


def test_every_key_has_its_heading():
  pages = {page.path: page.text for page in hook('configuration_pages').pages()}
  assert {f'configuration/models/{name}.md' for name in registry.names()} < set(pages)
  assert '### `optim.lr` { #optim.lr .lmx-key }\n\n`lr: float = 0.0003`\n' in pages['configuration/optim.md']
  for section, cls in schema.SECTIONS.items():
    for field in dataclasses.fields(cls):
      assert f'{{ #{section}.{field.name} .lmx-key }}' in pages[f'configuration/{section}.md'], field.name
  for text in pages.values():
    anchors = re.findall(r'\{ #(\S+) ', text)
    assert len(anchors) == len(set(anchors))


def test_every_command_page_has_an_example():
  commands, examples = hook('command_pages'), hook('examples')
  without = {name for name in main.COMMANDS if not any(one.output for one in commands.examples().get(name, ()))}
  assert without == WITHOUT_EXAMPLE
  assert all(len(one.output.splitlines()) <= examples.LINES + 1 for one in examples.recorded())


WITHOUT_EXAMPLE = {'compile', 'harness'}  # need libtpu and lm-evaluation-harness


@pytest.mark.slow
@pytest.mark.timeout(3_000)
def test_examples_print_what_the_command_pages_show(tmp_path):
  examples = hook('examples')
  printed = hook('command_pages').read_examples(examples.run_all(examples.recorded(), tmp_path))
  for now, shown in zip(printed, examples.recorded(), strict=True):
    assert examples.comparable(now.output) == examples.comparable(shown.output), now.command


def test_programs_of_the_pages_parse(bucket):
  """Every `python -m launch.NAME ...` of a page, and the lmx command after its `--`."""
  parsers = dict(hook('command_pages').launcher_parsers())
  seen = set()
  for document in documents_test.DOCUMENTS:
    written = hook('generated').PART.sub('', (ROOT / document).read_text())  # without the usage of the programs
    text = re.sub(r'\s*\\\n\s*', ' ', written)
    for command in re.findall(r'python -m launch\.(\w+ [^`\n]+)', text):
      name, *words = shlex.split(command.partition('  #')[0].rstrip(' .,;:'))
      at = words.index('--') if '--' in words else len(words)
      own = [word for word in words[:at] if not word.startswith('--config.')]
      parsers[name].parse_args(own)
      documents_test.check_commands(f'lmx {shlex.join(words[at + 1 :])}')
      seen.add(name)
  assert seen == {'local', 'slurm', 'tpu_vm', 'gce', 'gke', 'sweep', 'tables'}


def test_notebook_becomes_a_page():
  source = {'cells': [
    {'cell_type': 'markdown', 'source': ['# Title\n', 'With $x_i$.']},
    {'cell_type': 'code', 'source': ['print(1)'], 'outputs': [
      {'text': ['1 < 2\n']}, {'name': 'stderr', 'text': ['hidden']}, {'data': {'image/png': 'aGk=', 'text/plain': 'x'}},
    ]},
  ]}  # fmt: skip
  text, pictures = hook('notebooks').page('n', source)
  assert text.startswith('# Title\n\nThis notebook') and '<msub><mi>x</mi><mi>i</mi></msub>' in text
  assert (
    '```python\nprint(1)\n```' in text and '1 &lt; 2</pre>' in text and '(n_0.png)' in text and 'hidden' not in text
  )
  assert pictures == {'n_0.png': b'hi'}


@pytest.mark.slow
def test_notebook_is_shown_with_its_outputs(monkeypatch):
  for name in ('nbclient', 'nbformat', 'ipykernel'):
    pytest.importorskip(name, reason='needs the extra "notebooks"')
  monkeypatch.setenv('XLA_FLAGS', '')  # one device, as a reader of the notebook has
  monkeypatch.delenv('LMX_RUN', raising=False)
  notebooks = hook('notebooks')
  text, pictures = notebooks.page('quickstart', notebooks.execute(ROOT / 'notebooks/quickstart.ipynb'))
  assert text.count('<pre class="lmx-output">') >= 3 and 'updates, vocabulary' in text
  assert all(picture.startswith(b'\x89PNG') for picture in pictures.values()) and len(pictures) == 1


FINE_TUNE = DOCS / 'fine_tune.md'


BLOCKS = re.findall(r'(?ms)^```([^\n]*)\n(.*?)^```', FINE_TUNE.read_text())
OTHERS = ('gpt', 'xlnet', 'ulmfit')


def code(word: str) -> str:
  """The Python of the page with a word in it."""
  return next(text for kind, text in BLOCKS if kind == 'python' and word in text)


@pytest.mark.slow
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize('model', ['bert', *OTHERS])
def test_own_labels_page_runs_unchanged(model, tmp_path, monkeypatch):
  """All but the import by name, which needs a network; LMX_TRANSFORMERS is a Python that has transformers."""
  monkeypatch.chdir(tmp_path)
  exec(code('import csv'), {})
  commands = [line for kind, text in BLOCKS if not kind for line in text.splitlines()]
  assert len(commands) == 19 and all(line.startswith('lmx ') for line in commands)
  kinds = [next((name for name in OTHERS if f'/{name}' in line or f'_{name}' in line), 'bert') for line in commands]
  for command in [line for line, kind in zip(commands, kinds, strict=True) if kind == model and 'hub:' not in line]:
    done = run(command, tmp_path)
    assert done.returncode == 0, f'{command}\n{done.stderr[-3000:]}'
  name = '' if model == 'bert' else f'_{model}'
  predicted = [json.loads(line) for line in (tmp_path / f'predictions{name}.jsonl').read_text().splitlines()]
  assert len(predicted) == 16 and {row['label'] for row in predicted} <= {'negative', 'positive'}
  exported = {path.name for path in (tmp_path / f'exported{name}').iterdir()}
  if model == 'ulmfit':
    assert exported == {'README.md', 'lmx_fwd.pth'}
    return
  assert {'config.json', 'model.safetensors'} <= exported
  results = json.loads((tmp_path / f'runs/reviews{name}/results.json').read_text())
  assert results['labels'] == ['negative', 'positive'] and sum(map(sum, results['confusion'])) == 16
  assert (tmp_path / f'runs/reviews{name}/confusion.png').exists()
  rows = [row['text'] for row in csv.DictReader(open(tmp_path / 'data/reviews/test.csv'))]
  if model == 'bert':
    assert results['accuracy'] == 1
    scope: dict = {}
    exec(code('lmx.load'), scope)
    assert [row['label'] for row in scope['predictions']] == ['positive', 'negative']
  python = os.environ.get('LMX_TRANSFORMERS', '')
  if python:
    text = code('from transformers').replace("'exported'", repr(f'exported{name}'))
    rows = [f'_start_{row}_classify_' for row in rows] if model == 'gpt' else rows
    text += f"print([row['label'] for row in classify({rows})])"
    done = subprocess.run([python, '-c', text], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == str([row['label'] for row in predicted]), done.stderr[-2000:]
