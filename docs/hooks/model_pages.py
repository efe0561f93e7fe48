"""Pages of the models, models/NAME.md, and the cards of models.md: from the code, the experiments and measured.csv.

docs/models/NAME.yml describes a model for its page: `group`, `paper`, `arxiv`, `line` for the card, `idea`, `equations`
(label and LaTeX), `figure` (blocks of architecture.py), and `weights`, a pattern for rows of docs/notes/weights.md if
they do not have the model's title. Without the file, the page has what the module's docstring says.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import functools
import html
import importlib
import inspect
import pathlib
import re
from typing import Any, NamedTuple

import architecture
import latex2mathml.converter
import markup
import yaml

ROOT = pathlib.Path(__file__).parents[2]
OTHERS = 'Others'
_BOOST = '---\nsearch:\n  boost: 1.3\n---\n\n'  # the search for a name finds its page first
_SHARED = 3  # models of a recipe; with more it is a study, which their pages name in one line
_WIDTH = 84  # of a line of a command
_ROWS = 12  # measured rows without a printed metric
_COMMANDS = {
  'generate': 'lmx generate --workdir=DIR --prompt="The method returns"',
  'score': 'lmx score --workdir=DIR --input=FILE.txt',
  'predict': 'lmx predict --workdir=DIR --input=FILE',
  'translate': 'lmx translate --workdir=DIR --input=FILE.txt',
  'embed': 'lmx embed --workdir=DIR --input=FILE.txt --output=FILE.npz',
}
_PURPOSES = {
  'generate': 'continue a text',
  'score': 'log-probabilities of texts',
  'predict': 'labels, tags, answers or masks of a fine-tuned run',
  'translate': 'beam search',
  'embed': 'hidden states of every layer',
}


class Recipe(NamedTuple):
  """Experiment file.

  Attributes:
    path: in the repository.
    summary: first sentence of its docstring.
    variants: of the file, without tiny.
    commands: of its docstring, each with its remark.
    uses: (model, objective) of its variants; the objective '' is the model's own.
  """

  path: str
  summary: str
  variants: tuple[str, ...]
  commands: tuple[tuple[str, str], ...]
  uses: frozenset[tuple[str, str]]


def on_config(config: Any) -> Any:
  """List the pages of the models in the navigation, by group; an event of MkDocs."""
  part = next(part['Models'] for part in config.nav if 'Models' in part)
  part += [{group: [f'models/{name}.md' for name in names]} for group, names in groups().items()]
  return config


def on_files(files: Any, config: Any) -> Any:
  """Add a page for each model; an event of MkDocs."""
  from mkdocs.structure.files import File

  for name in _names():
    file = File.generated(config, f'models/{name}.md', content=_BOOST + page(name))
    source = f'docs/models/{name}.yml' if description(name) else f'lmx/models/{name}.py'
    file.edit_uri = f'../{source}'
    files.append(file)
  return files


def _names() -> list[str]:
  from lmx.models import registry

  return registry.names()


@functools.cache
def description(name: str) -> dict[str, Any]:
  """Return the content of a model's file in docs/models, {} without one."""
  path = ROOT / f'docs/models/{name}.yml'
  return yaml.load(path.read_text(encoding='utf-8'), yaml.CSafeLoader) if path.exists() else {}


@functools.cache
def docstring(name: str) -> str:
  """Return the docstring of a model's module."""
  return ast.get_docstring(ast.parse((ROOT / f'lmx/models/{name}.py').read_text(encoding='utf-8'))) or ''


def title(name: str) -> str:
  """Return the model's name as people write it."""
  from launch.tables import names

  return names.SYSTEMS.get(name, name)


def line(name: str) -> str:
  """Return the model's sentence on its card."""
  from lmx.cli import list as list_command

  return description(name).get('line') or html.escape(list_command.summary(docstring(name))) + '.'


def groups() -> dict[str, list[str]]:
  """Return the names of the models by group, both by the year of their first model."""
  found: dict[str, list[str]] = {}
  for name in sorted(_names(), key=lambda name: (year(name), name)):
    found.setdefault(description(name).get('group', OTHERS), []).append(name)
  return found


def year(name: str) -> str:
  """Return the year of the first paper of a model."""
  return min(re.findall(r'\b(?:19|20)\d\d\b', description(name).get('paper') or docstring(name)), default='')


def cards() -> str:
  """Return a card for each model, by group."""
  parts = []
  for group, names in groups().items():
    parts.append(f'## {group}\n\n<div class="lmx-cards" markdown>')
    for name in names:
      link = f'**[{title(name)}](models/{name}.md)** <small>{description(name).get("paper", year(name))}</small>'
      parts.append(f'<div markdown>\n{link}\n\n{line(name)}\n</div>')
    parts.append('</div>')
  return '\n'.join(parts)


def page(name: str) -> str:
  """Return the page of a model."""
  parts = [f'# {title(name)}', _paper(name), _idea(name), _figure(name), _equations(name), _sizes(name)]
  parts += [_recipes(name), _uses(name), _weights(name), _measured(name), _files(name)]
  return '\n\n'.join(filter(None, parts)) + '\n'


def _paper(name: str) -> str:
  about = description(name)
  link = f', [arXiv {about["arxiv"]}](https://arxiv.org/abs/{about["arxiv"]})' if 'arxiv' in about else ''
  return f'{about["paper"]}{link}. `lmx/models/{name}.py`' if about else ''


def _idea(name: str) -> str:
  about = description(name)
  return about['idea'].strip() if about else html.escape(docstring(name).partition('\n\n')[0])


def _figure(name: str) -> str:
  about = description(name)
  if not about:
    return ''
  variant, values = sizes(name)
  drawing = architecture.figure(about['figure'], values, f'Architecture of {title(name)}, from input to output')
  notes = [f'Sizes of `{name}:{variant}`.']
  if kinds := architecture.masks_in(about['figure']):
    notes.append('In the squares, rows are queries and columns are keys. A query attends to the blue keys')
    notes[-1] += ', and to the orange ones, which are in the memory.' if 'memory' in kinds else '.'
  return f'<figure markdown>\n{drawing}\n<figcaption markdown>\n{" ".join(notes)}\n</figcaption>\n</figure>'


def sizes(name: str) -> tuple[str, dict[str, Any]]:
  """Return a model's first variant and the fields of its Config, with widths that follow from others."""
  from lmx.models import registry

  variant = next(iter(registry.get(name).VARIANTS))
  cfg = registry.config(name, variant)
  values = {field.name: getattr(cfg, field.name) for field in dataclasses.fields(cfg)}
  if 'D' in values:
    values['F'] = values.get('F') or 4 * values['D']
    values['K'] = values.get('K') or values['D'] // (values.get('H') or 1)
  return variant, values


def _equations(name: str) -> str:
  equations = description(name).get('equations', ())
  formula = lambda tex: f'<div class="lmx-math">{latex2mathml.converter.convert(tex, display="block")}</div>'
  shown = [f'{label}:\n\n{formula(tex)}' for label, tex in equations]
  return '\n\n'.join([f'## The equation{"s" * (len(shown) > 1)}', *shown]) if shown else ''


def _sizes(name: str) -> str:
  from lmx.cli import list as list_command
  from lmx.models import registry

  variants = registry.get(name).VARIANTS
  rows = ['| Variant | Parameters | Sizes |', '|---|---|---|']
  for variant, parameters in list_command.parameters(ROOT / f'lmx/models/{name}.py').items():
    chosen = {field: value for field, value in variants[variant].items() if not isinstance(value, float)}
    fields = ', '.join(f'{field}={value}' for field, value in chosen.items())
    rows.append(f'| `{variant}` | {parameters:,} | {markup.cell(fields) or "the defaults"} |')
  more = f'`lmx describe {name}:{next(iter(variants))}` lists them by layer, with operations and memory.'
  return '\n'.join(['## Sizes', '', *rows, '', more])


@functools.cache
def recipes() -> tuple[Recipe, ...]:
  """Return all experiments."""
  from lmx.cli import list as list_command

  found = []
  for path, summary in list_command.experiments():
    module = importlib.import_module(path.removesuffix('.py').replace('/', '.'))
    uses = set()
    for variant in module.VARIANTS:
      config = module.get_config(variant)
      uses.add((config['model']['name'], config.get('objective', {}).get('name', '')))
    variants = tuple(variant for variant in module.VARIANTS if variant != 'tiny')
    found.append(Recipe(path, summary, variants, _commands(inspect.getdoc(module) or '', path), frozenset(uses)))
  return tuple(found)


def _commands(text: str, path: str) -> tuple[tuple[str, str], ...]:
  """Return the commands in a docstring, one per line, with what follows them after two spaces."""
  text = re.sub(r'[ \\]*\n {3,}(?=--)', ' ', text)
  found = re.findall(r'(?m)^ +((?:lmx|python -m) \S.*?)(?: {2,}(.*))?$', text)
  return tuple(found) or ((f'lmx train --config={path} --workdir=DIR', ''),)


def of_model(name: str) -> list[Recipe]:
  """Return the experiments that train a model."""
  return [recipe for recipe in recipes() if name in {model for model, _ in recipe.uses}]


def _is_study(recipe: Recipe) -> bool:
  return len({model for model, _ in recipe.uses}) > _SHARED


def _recipes(name: str) -> str:
  parts = []
  for recipe in of_model(name):
    if _is_study(recipe):
      continue
    label = recipe.path.removeprefix('experiments/').removesuffix('.py')
    variants = ' '.join(f'`{variant}`' for variant in recipe.variants)
    file = f'[{recipe.path}](../../{recipe.path})'
    text = f'{markup.plain(recipe.summary)}. Variants: {variants}. File: {file}.'
    parts.append(f'### {label}\n\n{text}\n\n{_block(recipe.commands)}')
  if studies := [f'[{recipe.path}](../../{recipe.path})' for recipe in of_model(name) if _is_study(recipe)]:
    parts.append(f'Part of a study with other models: {", ".join(studies)}; see [the lineage](../lineage.md).')
  if not parts:
    return ''
  text = 'Every recipe takes `:tiny`, which runs end to end in seconds. Its file has the paper, the hardware and the '
  return '\n\n'.join(['## Train', f'{text}expected metrics.', *parts])


def _block(commands: tuple[tuple[str, str], ...]) -> str:
  lines = []
  for command, remark in commands:
    lines += [f'# {remark}'] if remark else []
    lines.append(_wrap(command))
  return '\n'.join(['```bash', *lines, '```'])


def _wrap(command: str) -> str:
  """Return a command in lines of at most `_WIDTH` characters, where its options allow that."""
  lines = ['']
  for word in re.split(r' (?=--)', command):
    if lines[-1] and len(lines[-1]) + len(word) + 3 > _WIDTH:
      lines.append(f'  {word}')
    else:
      lines[-1] = f'{lines[-1]} {word}'.strip() if len(lines) == 1 else f'{lines[-1]} {word}'
  return ' \\\n'.join(lines)


def _uses(name: str) -> str:
  """Return the commands for a trained run, by the objectives of the experiments."""
  from lmx import inference
  from lmx.models import registry

  module = registry.get(name)
  objectives = {use[1] or module.OBJECTIVE for recipe in of_model(name) for use in recipe.uses if use[0] == name}
  able = [method for method in inference.METHODS if _can(module, name, objectives or {module.OBJECTIVE}, method)]
  shown = [(_COMMANDS[method], _PURPOSES[method]) for method in able]
  if module.READS == 'images':
    shown = [('lmx predict --workdir=DIR --input=FOLDER --output=MASKS', 'a mask for each image of a folder')]
  if module.OBJECTIVE == 'skipgram':
    shown.append(('lmx vectors --workdir=DIR --nearest=france', 'neighbours, analogies, similarity, export'))
  shown.append(('lmx evaluate --workdir=DIR --split=test', 'metrics of a split'))
  shown.append(('lmx report DIR', 'a page with curves, samples and metrics'))
  return f'## Use a run\n\n{_block(tuple(shown))}\n\n[Commands](../commands.md) has all options.'


def _can(module: Any, name: str, objectives: set[str], method: str) -> bool:
  from lmx import inference

  return any(not inference.obstacle(module, name, objective, method) for objective in objectives)


def _weights(name: str) -> str:
  """Return the released weights that are read for a model: rows of notes/weights.md, and classes of transformers."""
  from lmx.interop import huggingface
  from lmx.interop.huggingface import architectures

  pattern = description(name).get('weights') or rf'\b{re.escape(title(name))}\b(?!-)'
  text = (ROOT / 'docs/notes/weights.md').read_text(encoding='utf-8')
  table = text.partition('## Families')[2].partition('\n## ')[0]
  rows = [[cell.strip() for cell in row.strip('|').split(' | ')] for row in table.splitlines() if row.startswith('| ')]
  lines = [f'* {_relative(row[0])}: {_relative(row[1])}' for row in rows[1:] if re.search(pattern, row[0] + row[1])]
  family_of = lambda head: getattr(huggingface.FAMILIES[head.model], 'MODEL', head.model)
  classes = [key for key, head in architectures.HEADS.items() if family_of(head) == name]
  if classes:
    lines.append(f'* classes of `transformers`: {", ".join(f"`{key}`" for key in classes)}')
  if not lines:
    return ''
  how = 'The [page on weights](../notes/weights.md) has the command for each, and what can be exported.'
  return '\n'.join(['## Released weights', '', how, '', *lines])


def _relative(text: str) -> str:
  """Return text of a page in docs/notes for a page in docs/models."""
  return re.sub(r'\]\((?!https?:|#)', '](../notes/', text)


@functools.cache
def measurements() -> dict[str, list[Any]]:
  """Return lmx's lines of measured.csv by model."""
  from launch.tables import measured

  found: dict[str, list[Any]] = collections.defaultdict(list)
  models = {recipe.path: {model for model, _ in recipe.uses} for recipe in recipes()}
  for one in measured.measurements():
    paths = re.findall(r'experiments/\w+/\w+\.py', one.command)
    trained = set.union(set(), *(models.get(path, set()) for path in paths))
    if one.system == 'quickstart':
      trained = {one.row}
    elif one.system in _names() and (not trained or one.system in trained):
      trained = {one.system}
    if one.is_lmx and one.system != 'ngrams' and len(trained) == 1:
      found[trained.pop()].append(one)
  return found


def _measured(name: str) -> str:
  """Return what lmx has measured with a model, metrics with a printed one first."""
  from launch.tables import names, pages, printed, verdict

  lines = measurements()[name]
  results = sorted({one.system for one in lines} & {*pages.systems()})
  links = ', '.join(f'[{names.SYSTEMS[system]}](../results/{system}.md)' for system in results)
  if not lines:
    return ''
  compared = [one for one in lines if verdict.printed(one.id)]
  own = [one for one in lines if not verdict.printed(one.id)]
  own.sort(key=lambda one: (one.split != 'test', one.system == 'quickstart'))
  rows = ['| Run | Metric | lmx |', '|---|---|---|']
  for one in [*compared, *own[:_ROWS]]:
    line = verdict.printed(one.id)
    found = verdict.of(one, line)
    mark = {verdict.REPRODUCED: '✓ ', verdict.OUTSIDE: '✗ '}.get(found.kind, '')
    value = f'**{one.value}**' + (f' ± {one.spread}' if one.spread else '')
    if line:
      value += f'<br>{mark}printed {printed.figure(line)}'
      value += (
        f'; not comparable: <small>{markup.cell(found.why)}</small>' if found.kind == verdict.NOT_COMPARABLE else ''
      )
    metric = ', '.join(filter(None, (one.metric, one.dataset, one.split)))
    label = 'table of quickstarts' if one.system == 'quickstart' else one.row or names.label(one.id, name)
    rows.append(f'| {markup.cell(label)} | {markup.cell(metric)} | {value} |')
  shown = len(rows) - 2
  count = f'{shown} of {len(lines)} rows' if shown < len(lines) else f'{shown} row{"s" * (shown > 1)}'
  text = f'{count}; commands, seeds, hardware and verdicts: {links}.'
  if compared:
    text += ' ✓: the printed metric is in our 95% interval or, for a single run, its band. ✗: it is outside.'
  return '\n'.join(['## Measured', '', text, '', *rows])


def _files(name: str) -> str:
  lines = [f'* [lmx/models/{name}.py](../../lmx/models/{name}.py): the model']
  lines[0] += f'; [its docstrings](../api/models.md#lmx.models.{name}), with every deviation from the paper'
  lines.append(f'* [Keys of `model.name={name}`](../configuration/models/{name}.md)')
  tests = ROOT / f'tests/models/{name}_test.py'
  if tests.exists():
    lines.append(f'* [tests/models/{name}_test.py](../../tests/models/{name}_test.py): comparison with the equations')
  if (ROOT / f'docs/notes/{name}.md').exists():
    lines.append(f'* [Notes on its measurements](../notes/{name}.md)')
  return '\n'.join(['## Files', '', *lines])
