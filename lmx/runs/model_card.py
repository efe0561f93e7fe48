"""Model card of an exported run: README.md, with the front matter that huggingface.co reads and a text for people.

The front matter has the licence, library, task, tags and `model-index`, the metrics of results.json. The text has the
model's sizes and paper, the command that trained it, its data, metrics and origin, and code that loads it.
"""

from __future__ import annotations

import math
import os
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import yaml

import lmx
from lmx import documents, objectives, records, storage
from lmx.config import paths, run_files
from lmx.data.datasets import DATA_SETS
from lmx.errors import InputError, writing
from lmx.interop.huggingface import folder as folders
from lmx.metrics import metric as metrics
from lmx.models import registry
from lmx.redaction import redact
from lmx.reporting import templates
from lmx.runs import front_matter, restore
from lmx.runs.front_matter import CARD

_IDENTIFIER = re.compile(r'[a-z0-9][a-z0-9.+-]*')
_PAPER = re.compile(r'arXiv (\d{4}\.\d{4,5})')
_TASKS = {  # ending of a class -> task of huggingface.co
  'ForSequenceClassification': 'text-classification',
  'ForTokenClassification': 'token-classification',
  'ForQuestionAnswering': 'question-answering',
  'ForQuestionAnsweringSimple': 'question-answering',
  'ForMultipleChoice': 'multiple-choice',
  'DoubleHeadsModel': 'multiple-choice',
  'ForMaskedLM': 'fill-mask',
  'ForPreTraining': 'fill-mask',
  'LMHeadModel': 'text-generation',
  'MTModel': 'translation',
  'ForConditionalGeneration': 'translation',
  'Model': 'feature-extraction',
}
_OWN = {  # library and task of files that are not a folder of transformers
  'awd_lstm': ('fastai', 'text-generation'),
  'elmo': ('allennlp', 'feature-extraction'),
  'transformer_xl': ('pytorch', 'text-generation'),
}
_VOCABULARIES = {'awd_lstm': '*.pkl', 'elmo': '*.hdf5', 'transformer_xl': 'cache.pt'}
_NAMES = {'matthews': 'matthews_correlation', 'pearson': 'pearsonr', 'spearman': 'spearmanr'}  # of the hub's metrics
_SIZES = {'N': 'layers', 'D': 'width', 'H': 'attention heads', 'F': 'feed-forward width', 'T': 'positions'}
_CALLS = {  # task -> call of a pipeline
  'text-classification': "'A text.'",
  'token-classification': "'A text.'",
  'fill-mask': "f'A text with a {pipe.tokenizer.mask_token}.'",
  'text-generation': "'A text'",
  'feature-extraction': "'A text.'",
}


class Options(NamedTuple):
  """Options of `lmx export`.

  Attributes:
    license: an identifier of huggingface.co, such as 'apache-2.0'; '' is the licence of the imported card.
    text: further text, with or without front matter, whose fields replace the generated ones.
    name: name of the model on huggingface.co; '' is the name of the folder.
  """

  license: str = ''
  text: str = ''
  name: str = ''


class _Source(NamedTuple):
  """A run, or published weights, that a run started from: its path, a description and its licence fields."""

  path: str
  about: str
  licence: Mapping[str, str] = {}


def options(license_id: str = '', card: str = '', name: str = '') -> Options:
  """Return options from `--license` and `--card`. Raises InputError for a malformed licence, or an unreadable file."""
  if license_id and not _IDENTIFIER.fullmatch(license_id):
    raise InputError(
      f"--license: got '{license_id}'; expected an identifier of huggingface.co in lower case, such as apache-2.0, mit "
      'or other'
    )
  text = documents.read_text(card) if card else ''
  front_matter.parse(text, f'--card: {card}')
  return Options(license_id, text, name)


class Card:
  """Card of a run.

  Attributes:
    omitted: why it has no metrics, '' if it has.
  """

  def __init__(self, loaded: restore.RestoredRun, chosen: Options) -> None:
    """Read the records of the run. Raises InputError if one is damaged."""
    self.loaded, self.run, self.chosen = loaded, loaded.run, chosen
    self.data = run_files.read_data(loaded.workdir)
    self.results = redact(records.read_results(loaded.workdir))
    self.sources = list(_sources(loaded.workdir))
    self.omitted = self._unmeasured()
    self.name = self.architecture = ''
    self.library, self.task, self.has_tokenizer = '', '', False

  def write(self, directory: Any, name: str = '') -> list[str]:
    """Write README.md beside exported weights; return lines for the user. Raises InputError if it cannot be written.

    Args:
      directory: the folder of the weights.
      name: of the model, if the options have none; '' is that of the folder.
    """
    directory = pathlib.Path(directory)
    self.name = self.chosen.name or name or directory.resolve().name
    if (config := directory / folders.CONFIG).exists():
      self.architecture = folders.read_json(config)['architectures'][0]
    model = '' if self.architecture else self.run.model_name
    self.library, self.task = _OWN.get(model, ('transformers', _task(self.architecture)))
    needed = _VOCABULARIES.get(model, 'tokenizer_config.json')
    self.has_tokenizer = any(directory.glob(needed))
    with writing(str(directory / CARD)):
      (directory / CARD).write_text(self.text(), encoding='utf-8', errors='replace')
    lines = [f'wrote {CARD}, the model card']
    if 'license' not in self.front():
      lines[0] += '; it names no licence: give one by --license=NAME, such as --license=apache-2.0'
    return lines + [self.omitted] * bool(self.omitted)

  def _unmeasured(self) -> str:
    step = self.results.get('step')
    if not self.results or (step == self.loaded.step and not self.loaded.averaged):
      return ''
    if self.loaded.averaged and list(self.loaded.averaged) == self.results.get('averaged_steps'):
      return ''
    return (
      f'{records.RESULTS} has the metrics of step {step}, and these weights are of step {self.loaded.step}; so '
      f'{CARD} has none'
    )

  def text(self) -> str:
    """Return the content of README.md."""
    front = yaml.safe_dump(self.front(), sort_keys=False, allow_unicode=True, width=1000)
    environment = templates.environment(pathlib.Path(__file__).parent)
    environment.filters |= {'cell': _cell, 'licence': front_matter.show_licence}
    body = environment.get_template('model_card.md.jinja').render(
      card=self,
      about=_first_line(self.run.model_name),
      papers=_PAPER.findall(registry.get(self.run.model_name).__doc__ or '')[:1],
      does=self._does(),
      model=dict(self._model()),
      transformers=self._transformers(),
      lmx=self._lmx(),
      training=dict(self._training()),
      command=_command(self.results),
      dataset=dict(self._dataset()),
      metrics=[] if self.omitted else list(self._metrics()),
      licence=self._licence(),
      extra=front_matter.parse(self.chosen.text, '--card')[1].strip(),
      version=lmx.__version__,
    )
    return f'---\n{front}---\n\n{body.strip()}\n'

  def front(self) -> dict[str, Any]:
    """Return the front matter."""
    base = [source.path.removeprefix('hub:').partition('@')[0] for source in self.sources if source.path[:4] == 'hub:']
    fields = {
      **self._licence(),
      'library_name': self.library,
      'pipeline_tag': self.task,
      'base_model': base[0] if base else None,
      'language': sorted({side for side in self._languages() if re.fullmatch('[a-z]{2,3}', side)}),
      'tags': list(dict.fromkeys(['lmx', self.run.model_name, self.run.objective_name])),
      'model-index': [] if self.omitted else self._model_index(),
    }
    return (
      {name: value for name, value in fields.items() if value}
      | front_matter.parse(self.chosen.text, '--card')[0]
      | ({'license': self.chosen.license} if self.chosen.license else {})
    )

  def _licence(self) -> dict[str, str]:
    """Return the licence fields: the user's, or those of imported weights that no update has changed."""
    if self.chosen.license:
      return {'license': self.chosen.license}
    return dict(self.data.get('licence', {})) if not self.loaded.step else {}

  def _model_index(self) -> list[dict[str, Any]]:
    measured = [
      {'type': _NAMES.get(name, name), 'name': name, 'value': value}
      | ({'args': {'interval': interval}} if interval else {})
      for name, value, interval in self._metrics()
      if math.isfinite(value)
    ]
    if not measured:
      return []
    where = {'type': self.results['dataset'], 'name': self.results['dataset'], 'split': self.results['split']}
    result = {'task': {'type': self.task}, 'dataset': where, 'metrics': measured}
    return [{'name': self.results['name'], 'results': [result]}]

  def _metrics(self) -> Iterator[tuple[str, float, list[float]]]:
    """Yield name, value and 95% interval ([] without one) of the metrics, the headline first."""
    headline = self.results.get('metric')
    declared = objectives.get(self.run.objective_name).METRICS
    shown = [one.name for one in declared if one.shown or one.name == 'majority_accuracy']
    for name in dict.fromkeys([headline, *shown]):
      if records.is_number(value := self.results.get(name)):
        yield str(name), value, self.results.get('interval', []) if name == headline else []

  def show(self, name: str, value: float) -> str:
    """Return the value of a metric as text."""
    declared = metrics.find(objectives.get(self.run.objective_name).METRICS, name)
    return f'{value:{declared.format if declared else ",.3f"}}'

  def _languages(self) -> tuple[str, ...]:
    pair = DATA_SETS[self.run.data.dataset].languages(self.run.data.source, self.run.data.target)
    return pair or ()

  def _does(self) -> str:
    labels = ', '.join(f'`{label}`' for label in self.loaded.labels)
    texts = 'a pair of texts' if self._are_pairs() else 'a text'
    languages = self._languages()
    return {
      'text-classification': f'assigns one of {labels} to {texts}' if labels else f'predicts a score of {texts}',
      'token-classification': f'labels each word of a text: {labels}',
      'question-answering': 'answers a question with a span of a passage',
      'multiple-choice': 'chooses one of several texts',
      'fill-mask': 'predicts masked tokens',
      'text-generation': 'predicts the next token of a text',
      'translation': 'translates' + (f' from {languages[0]} to {languages[1]}' if languages else ''),
      'feature-extraction': 'returns the hidden states of a text',
    }[self.task]

  def _are_pairs(self) -> bool:
    return self.task == 'text-classification' and len(self.run.data.texts) > 1

  def _model(self) -> Iterator[tuple[str, str]]:
    cfg = self.loaded.cfg
    yield 'Model', registry.label(self.run.model_name, self.run.variant, cfg)
    if self.architecture:
      yield 'Class of transformers', self.architecture
    yield 'Parameters', f'{sum(np.size(x) for x in jax.tree.leaves(self.loaded.params)):,}'
    sizes = [(text, getattr(cfg, name, 0)) for name, text in _SIZES.items()]
    yield 'Sizes', ', '.join(f'{text} {value:,}' for text, value in sizes if value)
    tokenizer = self.loaded.tokenizer
    case = ', lower-cased' if self.run.data.lower_case else ''
    yield 'Vocabulary', f'{tokenizer.vocab_size:,} tokens of {tokenizer.kind}{case}'

  def _training(self) -> Iterator[tuple[str, str]]:
    results = self.results
    if not self.loaded.step:
      return
    yield 'Updates', f'{self.loaded.step:,}'
    for title, field in (('Seed', 'seed'), ('Device', 'device'), ('Config', 'config_hash'), ('Commit', 'commit')):
      if results.get(field) not in (None, ''):
        yield title, str(results[field])
    if results.get('training_seconds'):
      yield 'Time', f'{results["training_seconds"]:,.0f} s'
    if results.get('versions'):
      yield 'Versions', ', '.join(f'{name} {version}' for name, version in results['versions'].items())

  def _dataset(self) -> Iterator[tuple[str, str]]:
    if not self.data['hash']:
      return
    record = self.data.get('dataset', {})
    yield 'Data set', str(record.get('name') or self.run.data.dataset)
    yield 'Description', ' '.join(DATA_SETS[self.run.data.dataset].about.split())
    if record.get('version'):
      yield 'Version', str(record['version'])
    yield 'Hash', self.data['hash']

  def _transformers(self) -> str:
    """Return code that loads the folder in transformers, '' for other libraries."""
    if not self.architecture:
      return ''
    kind, name = self.architecture, repr(self.name)
    if not self.has_tokenizer:
      note = '  # before version 5' * (self.run.model_name == 'transformer_xl')
      return f'from transformers import {kind}{note}\n\nmodel = {kind}.from_pretrained({name})'
    if self.task in _CALLS:
      call = "{'text': 'A text.', 'text_pair': 'Another text.'}" if self._are_pairs() else _CALLS[self.task]
      return f'from transformers import pipeline\n\npipe = pipeline({self.task!r}, model={name})\nprint(pipe({call}))'
    load = f'from transformers import AutoTokenizer, {kind}\n\ntokenizer = AutoTokenizer.from_pretrained({name})\n'
    return load + f'model = {kind}.from_pretrained({name})\n' + self._call()

  def _call(self) -> str:
    if self.task == 'question-answering':
      return "print(model(**tokenizer('A question?', 'A passage with the answer.', return_tensors='pt')))"
    if self.task == 'translation':
      output = 'model.generate(**tokenizer(["A text."], return_tensors="pt"))'.replace('"', "'")
      return f'print(tokenizer.batch_decode({output}, skip_special_tokens=True))'
    choices = "['A context.'] * 2, ['An ending.', 'Another ending.']"
    rows = f"rows = tokenizer({choices}, return_tensors='pt', padding=True)\n"
    if self.architecture.endswith('DoubleHeadsModel'):
      last = "rows['attention_mask'].sum(-1)[None] - 1"
      return rows + f"print(model(rows['input_ids'][None], mc_token_ids={last}).mc_logits)"
    return rows + 'print(model(**{name: x[None] for name, x in rows.items()}).logits)'

  def _lmx(self) -> str:
    """Return code that loads the folder in lmx, '' if it has no tokenizer."""
    if not self.has_tokenizer:
      return ''
    name = f'hub:{self.name}' if self.chosen.name else self.name
    pair = "[('A text.', 'Another text.')]"
    calls = {
      'text-classification': f'print(run.predict({pair if self._are_pairs() else "[" + repr("A text.") + "]"}))',
      'token-classification': "print(run.predict(['A text .']))",
      'question-answering': "print(run.predict([('A question?', 'A passage with the answer.')]))",
      'multiple-choice': f'print(run.predict([{self._choices()}]))',
      'text-generation': "print(run.generate('A text'))",
      'translation': "print(run.translate(['A text.']))",
    }
    call = calls.get(self.task, "print([embedding.tokens for embedding in run.embed(['A text.'])])")
    if self.run.model_name == 'xlnet' and self.task == 'text-generation':
      call = "print([embedding.tokens for embedding in run.embed(['A text.'])])"
    if self._are_pairs():
      columns = f'data.texts={tuple(self.run.data.texts)!r}'
      return f'from lmx import inference\n\nrun = inference.load({name!r}, overrides=[{columns!r}])\n{call}'
    return f'import lmx\n\nrun = lmx.load({name!r})\n{call}'

  def _choices(self) -> str:
    """Return a row of a task with choices: the columns that an imported run has."""
    columns = ('sent1', 'sent2', *(f'ending{i}' for i in range(4)))  # of swag
    return '{' + ', '.join(f"'{name}': 'A text.'" for name in columns) + '}'


def _task(architecture: str) -> str:
  return next((task for ending, task in _TASKS.items() if architecture.endswith(ending)), 'feature-extraction')


def _first_line(model: str) -> str:
  return (registry.get(model).__doc__ or model).strip().splitlines()[0].rstrip('.')


def _cell(text: Any) -> str:
  """Return a text as the cell of a table."""
  return ' '.join(str(text).replace('|', r'\|').split())


def _command(results: Mapping[str, Any]) -> str:
  """Return the command line of a run, with ~ for the home directory, '' if it is not recorded."""
  words = list(map(str, results.get('command', ())))
  return shlex.join(words).replace(os.path.expanduser('~') + '/', '~/') if len(words) > 1 else ''


def _sources(workdir: Any, seen: Sequence[str] = ()) -> Iterator[_Source]:
  """Yield the runs and weights that a run started from, the nearest first."""
  try:
    config, data = run_files.read_config(workdir), run_files.read_data(workdir)
  except InputError:
    return
  if not data['hash']:
    licence = data.get('licence', {})
    yield _Source(_public(data['imported_from']), 'imported', licence)
    return
  start = paths.locate(config, workdir).get('train', {}).get('init_from')
  if not start or str(start) in seen:
    return
  if storage.is_remote(start) or not os.path.isdir(start) or not run_files.exists(start):
    yield _Source(
      _public(start), 'the initial weights', front_matter.read_licence(start) if os.path.isdir(start) else {}
    )
    return
  command = _command(redact(records.read_results(storage.path('train.init_from', start))))
  yield _Source(_public(start), f'trained by `{command}`' if command else 'a run')
  yield from _sources(start, (*seen, str(start)))


def _public(path: Any) -> str:
  """Return a path without the folders above an absolute one."""
  path = redact(str(path))
  return path if not os.path.isabs(path) else os.path.basename(path.rstrip('/'))
