"""Runs that begin from pre-trained word vectors: their first rows, what is refused, and that the file is read once."""

from __future__ import annotations

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

import lmx
from lmx.checkpoint import manager
from lmx.cli import main
from lmx.config import resolve, run_files
from lmx.data import pipeline, vectors
from lmx.data.tokenizers import words as words_lib
from lmx.errors import InputError
from lmx.interop import word2vec
from lmx.models import registry
from lmx.objectives import classify
from lmx.runs import init, restore, start, word_table
from lmx.runs.restore import RestoredRun
from tests.interop import fasttext_test

CONFIG = 'experiments/elmo/wnut17.py:tiny'
SENTENCES = {
  'train.conll': 'the\tO\nCat\tB-x\nsat\tO\n\nthe\tO\nodd\tO\ncat\tB-x\n\n' * 8,
  'dev.conll': 'The\tO\ndog\tB-x\n\n',
  'test.conll': 'the\tO\nmat\tB-x\nzebra\tB-x\n\n',
}
FILE = 'the 0.5 0.25 -1\ncat 1 2 3\ncat 9 9 9\ndog 3 2 1\nmat 4 5 6\n'
KNOWN = {'the': [0.5, 0.25, -1], 'The': [0.5, 0.25, -1], 'cat': [1, 2, 3], 'Cat': [1, 2, 3], 'dog': [3, 2, 1]}
KNOWN |= {'mat': [4, 5, 6]}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('tags')
  for name, text in SENTENCES.items():
    (folder / name).write_text(text)
  (folder / 'v.txt').write_text(FILE)
  return folder


def settings(folder, **changes):
  given = {
    'model.elmo': 'none',
    'model.E': 3,
    'model.char_filters': '()',
    'data.dataset': 'wnut17',
    'data.manual_dir': folder,
    'data.check_sizes': 'false',
    'data.vectors': folder / 'v.txt',
    'data.characters': 8,
    'data.length': 8,
    'data.batching.buckets': '()',
    'train.steps': 2,
    'train.eval_every': 1,
    'optim.groups': "(('^model/embed/table$',0.0,0.0),('.*',1.0,1.0))",
    'parallel.data': 1,
  }
  return [f'{key}={value}' for key, value in {**given, **changes}.items()]


def shapes_of(run):
  return jax.eval_shape(lambda key: init.init_params(run, key), jax.random.key(0))


def begun(folder, taken=None, **changes):
  """The parameters of `add` and its note."""
  config = resolve.load(CONFIG, settings(folder, **changes))
  corpus = pipeline.load(resolve.to_run(config).data)
  _, run = resolve.with_corpus(config, corpus)
  params, note = word_table.add(taken or {}, run, shapes_of(run), corpus, jax.random.key(3))
  own = jax.jit(lambda key: init.init_params(run, key)['model']['embed']['table'])(jax.random.key(3))
  return pipeline.words(run.data, corpus.tokenizer), params['model'], np.asarray(own), note


def rows_of(words, table_VE):
  np.testing.assert_array_equal([table_VE[words.index(word)] for word in KNOWN], np.float32(list(KNOWN.values())))
  others = [i for i, word in enumerate(words) if word not in KNOWN]
  return others, table_VE[others]


def test_missing_rows_get_the_mean_and_deviation_of_the_file(folder):
  words, params, own, note = begun(folder, taken={'model': {'bilm': {'x': np.ones(2)}}})
  assert words[:3] == ['<S>', '</S>', '<unk>'] and 'zebra' not in words and set(KNOWN) < set(words)
  others, rows = rows_of(words, params['embed']['table'])
  vectors = np.float64([KNOWN[word] for word in words if word in KNOWN])
  wanted = (own - own.mean()) / own.std() * vectors.std() + vectors.mean()
  np.testing.assert_allclose(rows, wanted[others], rtol=1e-5, atol=1e-5)
  assert set(params) == {'bilm', 'embed'} and set(params['embed']) == {'table'}  # with those of train.init_from
  assert note.startswith(f'model/embed/table: 6 of {len(words)} rows found in {folder}/v.txt')
  assert note.endswith('(4 as written, 2 in lower case); 1 lines repeat a word, whose first vector is taken')


@pytest.mark.parametrize('characters', [0, 8])
def test_other_rows_can_keep_the_models_initialisation(characters, folder):
  words, params, own, _ = begun(folder, **{'data.other_rows': 'model', 'data.characters': characters})
  others, rows = rows_of(words, params['embed']['table'])
  assert ('<S>' in words) == (characters > 0) and len(others) >= 3
  np.testing.assert_array_equal(rows, own[others])


def test_incompatible_settings_are_rejected(folder, tmp_path):
  table = {'model': {'embed': {'table': np.zeros((3, 3))}}}
  with pytest.raises(InputError, match='data.vectors: got'):
    begun(folder, taken=table)
  with pytest.raises(InputError, match='model.E: got 4'):
    begun(folder, **{'model.E': 4})
  (tmp_path / 'v.txt').write_text('unseen 1 2 3\n')
  with pytest.raises(InputError, match='data.vectors: got .* without a vector for any of the'):
    begun(folder, **{'data.vectors': tmp_path / 'v.txt'})
  with pytest.raises(InputError, match=r'data.vectors: got V'):
    resolve.to_run(resolve.load('experiments/rnn_lm/ptb.py:tiny', ['data.vectors=V']))


def test_file_that_changed_since_the_vocabulary_was_made_is_rejected(folder):
  config = resolve.load(CONFIG, settings(folder))
  corpus = pipeline.load(resolve.to_run(config).data)
  _, run = resolve.with_corpus(config, corpus)
  other = dataclasses.replace(corpus, manifest={**corpus.manifest, 'vectors': [['v.txt', 'another']]})
  with pytest.raises(InputError, match='data.vectors: got'):
    word_table.add({}, run, shapes_of(run), other, jax.random.key(0))


def test_model_with_only_elmo_vectors_has_no_table(folder):
  config = resolve.load(CONFIG, settings(folder))
  corpus = pipeline.load(resolve.to_run(config).data)
  _, run = resolve.with_corpus(config, corpus)
  model = registry.config('glue_bilstm', 'tiny', words=False, char_filters=())
  objective = classify.Config(classes=2, **registry.get('glue_bilstm').OBJECTIVE_FIELDS)
  parts = {'model_name': 'glue_bilstm', 'model': model, 'objective_name': 'classify', 'objective': objective}
  with pytest.raises(InputError, match='data.vectors: got .* with a model without model/embed/table'):
    other = dataclasses.replace(run, **parts)
    word_table.add({}, other, shapes_of(other), corpus, jax.random.key(0))


@pytest.fixture(scope='module')
def language_model(tmp_path_factory):
  """(run, corpus) of a language model over words, whose table is named by its VOCABULARY alone."""
  folder = tmp_path_factory.mktemp('text')
  for split in ('train', 'valid', 'test'):
    (folder / f'{split}.txt').write_text('the cat sat on the mat\n' * 40)
  changes = ['data.dataset=text_files', f'data.manual_dir={folder}', 'data.tokenizer=words']
  changes += ['model.E=3', 'model.D=3', 'model.V=0']
  config = resolve.load('experiments/rnn_lm/quickstart.py:tiny', changes)
  corpus = pipeline.load(resolve.to_run(config).data)
  return resolve.with_corpus(config, corpus)[1], corpus


def beginning_from(run, source, **more):
  return dataclasses.replace(run, train=dataclasses.replace(run.train, init_from=str(source), **more))


def written(folder, kind):
  """A file with vectors of two words of the text and of one that it has not, in one of the formats."""
  words, table_VE = ['the', 'cat', 'zebra'], np.float32([[1, 2, 3], [0.5, -1, 2], [7, 7, 7]])
  if kind == 'fasttext':
    (folder / kind).write_bytes(fasttext_test.model(table_VE, words=words, buckets=0))
  elif kind == 'glove':
    (folder / kind).write_text(''.join(f'{w} {" ".join(map(str, x))}\n' for w, x in zip(words, table_VE, strict=True)))
  else:
    word2vec.write(str(folder / kind), words, table_VE, binary=kind.startswith('binary'))
  return folder / kind


@pytest.mark.parametrize('kind', ['glove', 'text', 'text.gz', 'binary', 'binary.gz', 'fasttext'])
def test_run_starts_from_a_file_of_vectors(kind, language_model, tmp_path):
  run, corpus = language_model
  taken, note = word_table.take(beginning_from(run, written(tmp_path, kind)), shapes_of(run), corpus, jax.random.key(3))
  table_VE, words = taken['model']['embed']['table'], corpus.tokenizer.tokens
  own = jax.jit(lambda key: init.init_params(run, key)['model']['embed']['table'])(jax.random.key(3))
  known = {'the': [1, 2, 3], 'cat': [0.5, -1, 2]}
  for i, word in enumerate(words):
    np.testing.assert_array_equal(table_VE[i], np.float32(known[word]) if word in known else own[i])
  assert table_VE.shape == own.shape and f'2 of {len(words)} rows found in' in note


@pytest.fixture
def word2vec_run(tmp_path):
  """Work directory of a run of word2vec, with its words' vectors of width 16."""
  config = resolve.load('experiments/word2vec/quickstart.py:tiny', ['model.D=16'])
  tokenizer = words_lib.Words(['<unk>', 'the', 'cat', 'zebra'], 'prose')
  run = resolve.to_run(config, tokenizer.vocab_size)
  table_VE = np.arange(4 * 16, dtype=np.float32).reshape(4, 16)
  params = {'model': {'embed': {'table': table_VE}, 'output': {'table': table_VE}}, 'objective': {}}
  loaded = RestoredRun(registry.get('word2vec'), run.model, params, tokenizer, config, run, 1, tmp_path)
  (tmp_path / 'vectors').mkdir()
  run_files.write(tmp_path / 'vectors', config.to_dict(), {'dataset': {'name': 'embedded'}}, tokenizer)
  return tmp_path / 'vectors', loaded


def test_run_starts_from_the_vectors_of_a_word2vec_run(word2vec_run, language_model, monkeypatch):
  workdir, loaded = word2vec_run
  monkeypatch.setattr(restore, 'load', lambda path, which: loaded)
  run, corpus = language_model
  run = dataclasses.replace(run, model=dataclasses.replace(run.model, E=16, D=16))
  taken, notes = start.take(beginning_from(run, workdir), shapes_of(run), corpus, jax.random.key(3))
  table_VE, words = taken['model']['embed']['table'], corpus.tokenizer.tokens
  known = {word: loaded.params['model']['embed']['table'][i] for i, word in enumerate(loaded.tokenizer.tokens)}
  own = jax.jit(lambda key: init.init_params(run, key)['model']['embed']['table'])(jax.random.key(3))
  for i, word in enumerate(words):
    np.testing.assert_array_equal(table_VE[i], known[word] if word in known else own[i])
  assert notes[0].startswith(f'model/embed/table: 3 of {len(words)} rows found in {workdir}')
  with pytest.raises(InputError, match='model.E: got 3; expected 16.* set model.E=16'):
    start.take(beginning_from(language_model[0], workdir), shapes_of(language_model[0]), corpus, jax.random.key(3))


def test_width_of_the_vectors_becomes_the_models(word2vec_run, tmp_path):
  workdir, _ = word2vec_run
  sources = {f'train.init_from={workdir}': 16, f'train.init_from={written(tmp_path, "binary.gz")}': 3}
  sources |= {f'train.init_from={written(tmp_path, "fasttext")}': 3, f'data.vectors={written(tmp_path, "glove")}': 3}
  for source, width in sources.items():
    assert resolve.load('experiments/esim/pairs.py:own_pairs', [source]).model.E == width, source
    assert resolve.load('experiments/esim/pairs.py:own_pairs', [source, 'model.E=7']).model.E == 7, source
  named = ['train.init_parts=("model",)', f'train.init_from={workdir}']  # the parameters of a run, not its vectors
  assert resolve.load('experiments/esim/pairs.py:own_pairs', named).model.E == 100


@pytest.mark.parametrize(
  ('recipe', 'width'),
  [
    ('esim/pairs.py:own_pairs', 'E'),
    ('bcn/tasks.py:own', 'E'),
    ('glue_bilstm/tasks.py:own,elmo=false', 'E'),
    ('elmo/tagging.py:own', 'E'),
    ('self_attention/tasks.py:own', 'D'),
  ],
)
def test_option_vectors_names_a_run_or_a_file_and_sets_the_width(word2vec_run, tmp_path, recipe, width):
  for source, size in ((word2vec_run[0], 16), (written(tmp_path, 'glove'), 4)):
    if size == 4:
      source.write_text('the 1 2 3 4\n')
    run = resolve.load(f'experiments/{recipe},vectors={source}')
    assert run.train.init_from == str(source) and getattr(run.model, width) == size


def test_option_vectors_with_elmo_takes_a_text_and_leaves_the_run_to_elmo(word2vec_run):
  recipe = 'experiments/bcn/tasks.py:own,place=both,bilm=mini,vectors='
  run = resolve.load(f'{recipe}glove.txt', ['train.init_from=elmo'])
  assert (run.data.vectors, run.train.init_from) == ('glove.txt', 'elmo')
  with pytest.raises(InputError, match='data.vectors: got .* lmx vectors --workdir=.* --export=FILE'):
    vectors.digest(resolve.load(f'{recipe}{word2vec_run[0]}').data.vectors)


def test_file_of_vectors_that_does_not_fit_is_rejected(language_model, tmp_path):
  run, corpus = language_model
  take = lambda run: word_table.take(run, shapes_of(run), corpus, jax.random.key(3))
  with pytest.raises(InputError, match=r'train.init_parts: got model'):
    take(beginning_from(run, written(tmp_path, 'text'), init_parts=('model',)))
  for kind, width in (('binary', 2), ('text', 2), ('fasttext', 2)):
    (path := tmp_path / kind).write_bytes(fasttext_test.model(np.ones((1, width)), words=['the'], buckets=0))
    if kind != 'fasttext':
      word2vec.write(str(path), ['the'], np.ones((1, width)), binary=kind == 'binary')
    with pytest.raises(InputError, match='model.E: got 3'):
      take(beginning_from(run, path))
  word2vec.write(str(tmp_path / 'other'), ['zebra'], np.ones((1, 3)), binary=True)
  with pytest.raises(InputError, match='train.init_from: got .* without a vector for any of the'):
    take(beginning_from(run, tmp_path / 'other'))
  elmo = dataclasses.replace(run, model_name='elmo', model=registry.config('elmo', 'tiny'))
  with pytest.raises(InputError, match='train.init_from: got .* with a model without a table of words'):
    take(beginning_from(elmo, tmp_path / 'other'))


def command(name, workdir, options):
  return main.main([name, f'--config={CONFIG}', *workdir, *(f'--config.{option}' for option in options)])


def last(workdir):
  params, _, step = manager.restore_params(workdir / 'checkpoints', None, 'last')
  return jax.tree.map(np.asarray, params), step


@pytest.fixture
def trained(folder, tmp_path, capsys):
  """(settings, work directory, log) of a finished run, whose file of vectors is gone."""
  (tmp_path / 'v.txt').write_text(FILE)
  options = settings(folder, **{'data.vectors': tmp_path / 'v.txt'})
  assert command('train', [f'--workdir={tmp_path / "run"}'], options) == 0
  (tmp_path / 'v.txt').unlink()
  return options, tmp_path / 'run', capsys.readouterr().err


def test_run_starts_from_the_file_and_needs_it_no_more(trained, tmp_path, capsys):
  options, run, log = trained
  assert 'model/embed/table: 6 of ' in log
  loaded = lmx.load(run)
  rows_of(pipeline.words(loaded.run.data, loaded.tokenizer), last(run)[0]['model']['embed']['table'])  # frozen
  config, data = (json.loads((run / name).read_text()) for name in ('config.json', 'data.json'))
  assert config['data']['vectors'] == f'{tmp_path}/v.txt' and data['vectors'][0][0] == 'v.txt'
  assert loaded.corpus().tokenizer.tokens == loaded.tokenizer.tokens
  assert command('train', [f'--workdir={run}'], options) == 0
  assert 'this run is finished' in capsys.readouterr().err

  assert command('train', [f'--workdir={tmp_path / "new"}'], options) == 2
  assert f'lmx: data.vectors: got {tmp_path}/v.txt; there is no such file or folder' in capsys.readouterr().err
  with pytest.warns(UserWarning, match='data.vectors: got .*v.txt'):
    assert command('prepare', [], options) == 0


@pytest.mark.slow
def test_run_resumes_and_is_evaluated_without_the_file(trained, capsys):
  options, run, _ = trained
  params, step = last(run)
  (run / 'results.json').unlink()
  shutil.rmtree(run / 'checkpoints' / f'step_{step:09d}')
  assert last(run)[1] == step - 1
  assert command('preflight', [f'--workdir={run}', '--prepare'], options) == 0
  assert command('train', [f'--workdir={run}'], options) == 0
  assert 'rows found' not in capsys.readouterr().err
  again, steps = last(run)
  jax.tree.map(np.testing.assert_array_equal, params, again)
  assert steps == step == 2 and (run / 'results.json').exists()
  assert main.main(['evaluate', f'--workdir={run}', '--split=test', '--no-baselines']) == 0
  assert main.main(['predict', f'--workdir={run}', '--split=test', f'--output={run}/out.txt']) == 0
