"""Every recipe's variants for the user's own data, from a table to predictions: `own`, `own_pairs`, `own_scores`."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest

from lmx import inference
from lmx.cli import main
from lmx.config import resolve
from lmx.interop import huggingface
from tests import experiments_test, questions_test

VARIANTS = [(path, name) for path, name in experiments_test.variants() if name.startswith('own')]
OPTIONS = {
  'experiments/glue_bilstm/tasks.py': ',elmo=false',  # which otherwise needs a run of ELMo
  'experiments/xlnet/squad.py': ',epochs=1',  # instead of the paper's updates
}
ROWS = {'train': 48, 'valid': 8, 'test': 8}
FIRST = {  # what train.init_from names, by the folder of the recipe
  'bert': 'experiments/bert/pretrain.py:tiny',
  'gpt': 'experiments/gpt/books.py:tiny',
  'xlnet': 'experiments/xlnet/pretrain.py:tiny',
  'elmo': 'experiments/elmo/text.py:mini',
}
WORDS = 'ba be bi bo bu da de di do du fa fe fi fo fu'.split()


def _table(folder, split, count, rng, texts, scores):
  with open(folder / f'{split}.csv', 'w', newline='') as file:
    writer = csv.writer(file)
    writer.writerow([*texts, 'label'])
    for _ in range(count):
      row = [' '.join(rng.choice(WORDS, rng.integers(3, 9))) for _ in texts]
      writer.writerow([*row, len(row[0]) / 4 if scores else ('yes', 'no', 'so')[row[-1].count(' ') % 3]])


def _tags(folder, split, count, rng):
  sentences = [rng.choice(WORDS, rng.integers(3, 9)) for _ in range(count)]
  lines = ['\n'.join(f'{word}\t{"B-X" if word[0] == "d" else "O"}' for word in words) for words in sentences]
  (folder / f'{split}.conll').write_text('\n\n'.join(lines) + '\n')


def _questions(folder, split, count):
  found = [questions_test.paragraph(tag=f'{split}{i}') for i in range(count // len(questions_test.ASKED))]
  (folder / f'{split}.json').write_text(json.dumps({'data': [{'title': 'x', 'paragraphs': found}]}))


def write(folder, data):
  """Write the files of a data set of the user's, as section `data` reads them; return the one with new rows."""
  rng = np.random.default_rng(0)
  for split, count in ROWS.items():
    if data.dataset == 'table_files':
      _table(folder, split, count, rng, data.texts, data.scores)
    elif data.dataset == 'tagged_files':
      _tags(folder, split, count, rng)
    else:
      assert data.dataset == 'squad_files'
      _questions(folder, split, count)
  return next(folder.glob('test.*'))


def sizes(path, config):
  """The sizes of the recipe's tiny variant, as overrides of another one."""
  tiny = resolve.load(f'{path}:tiny').model
  smaller = {name: x for name, x in tiny.items() if type(x) is int and 0 < x < (config.model.get(name) or 0)}
  return {f'model.{name}': x for name, x in smaller.items() if name != 'texts'}


def lmx(*words):
  assert main.main([*map(str, words)]) == 0, words


def options(changes):
  return [f'--config.{name}={value}' for name, value in changes.items()]


@pytest.fixture(scope='module')
def first(tmp_path_factory):
  """Trains a run for train.init_from, once for all variants of a folder of recipes, and copies it."""
  made = tmp_path_factory.mktemp('first')

  def copy(folder, to):
    if not (made / folder).exists():
      short = {'data.dataset': 'embedded', 'train.steps': 2, 'train.eval_every': 2, 'samples.count': 0}
      lmx('train', f'--config={FIRST[folder]}', f'--workdir={made / folder}', *options(short))
    return shutil.copytree(made / folder, to)

  return copy


@pytest.mark.slow
@pytest.mark.parametrize('path,variant', VARIANTS)
def test_own_table_is_trained_on_evaluated_and_predicted(path, variant, first, tmp_path, capsys):
  recipe = f'{path}:{variant}{OPTIONS.get(path, "")}'
  config, data, workdir = resolve.load(recipe), tmp_path / 'data', tmp_path / 'run'
  data.mkdir()
  new = write(data, config.data)
  length = 24 if config.data.dataset == 'table_files' else 96
  changes = {'data.batch_size': 8, 'data.length': length, 'train.epochs': 1}
  if config.optim.warmup_steps:
    changes['optim.warmup_steps'] = 1
  if config.train.init_parts:
    changes['train.init_from'] = first(path.split('/')[1], tmp_path / 'first')
  else:
    changes |= {'data.vocab_size': 300, **sizes(path, config)}
  lmx('train', f'--config={recipe}', f'--workdir={workdir}', f'--config.data.manual_dir={data}', *options(changes))
  results = json.loads((workdir / 'results.json').read_text())
  assert results['split'] == 'test' and np.isfinite(results[results['metric']]) and results['steps'] >= 1
  shutil.rmtree(tmp_path / 'first', ignore_errors=True)  # a run needs it only to begin
  lmx('evaluate', f'--workdir={workdir}', '--split=valid')
  capsys.readouterr()
  loaded = inference.load(workdir, results['step'])
  if 'predict' in loaded.abilities():
    check_predictions(loaded, new, results)
  if loaded.run.model_name in huggingface.MODELS:
    return
  assert main.main(['export', f'--workdir={workdir}', f'--to={tmp_path}/out']) == 2
  message = capsys.readouterr().err
  assert 'model: got' in message and f'lmx predict --workdir={workdir}' in message


def check_predictions(loaded, new, results):
  """A file with the test rows, or the same rows in Python, have the predictions of the test split."""
  predictions, measured = loaded.predict(new), loaded.predict(split='test')
  assert len(predictions) == len(measured) >= 8
  if loaded.run.data.dataset != 'table_files':
    return
  rows = list(csv.DictReader(new.open(newline='')))
  again = loaded.predict([tuple(row[name] for name in loaded.run.data.texts) for row in rows])
  if loaded.run.objective.is_scored:
    np.testing.assert_allclose([row['score'] for row in predictions], [row['score'] for row in measured], atol=1e-5)
    np.testing.assert_allclose([row['score'] for row in predictions], [row['score'] for row in again], atol=1e-5)
    return
  found = [row['label'] for row in predictions]
  assert found == [row['label'] for row in measured] == [row['label'] for row in again]
  right = np.mean([label == row['label'] for label, row in zip(found, rows, strict=True)])
  assert abs(right - results['accuracy']) < 1e-6
