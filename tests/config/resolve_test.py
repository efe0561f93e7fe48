"""From experiment to dataclasses: defaults, overrides, and what is refused."""

import dataclasses
import gzip
import json
import pathlib
import re

import jax
import numpy as np
import pytest

from launch.tables import plan
from lmx import storage
from lmx.cli import results
from lmx.config import resolve
from lmx.data import corpus as corpora
from lmx.data.tokenizers import characters
from lmx.errors import InputError, InputWarning
from lmx.layers import class_softmax
from lmx.runs import transfer, work_directory

SMALL = {'model': {'name': 'rnn_lm', 'variant': 'tiny'}, 'train': {'steps': 3}}


def test_defaults_are_filled_in_and_every_key_can_be_overridden():
  full = resolve.resolve(SMALL, ['optim.lr=3e-4', 'seed=7', 'data.batch_size=6', 'train.on_nan=skip'])
  assert full.optim.lr == 3e-4 and full.seed == 7 and full.data.batch_size == 6 and full.train.on_nan == 'skip'
  assert full.objective.name == 'causal_lm' and full.model.V == 0
  assert resolve.to_run(full, vocab_size=50).model.V == 50


def test_digests_of_earlier_versions_stay_valid():
  """Configs of 53 models, objectives and batchings, as resolved at commit 51e205d1, with their digests there."""
  file = pathlib.Path(__file__).parents[1] / 'fixtures/earlier_configs.json.gz'
  wrong = [
    one['name']
    for one in json.loads(gzip.decompress(file.read_bytes()))
    if resolve.digest(resolve.resolve(one['config'], saved=True)) != one['digest']
  ]
  assert not wrong


def test_resolving_twice_changes_nothing():
  once = resolve.resolve(SMALL)
  again = resolve.resolve(json.loads(json.dumps(once.to_dict())))
  assert resolve.flatten(once) == resolve.flatten(again)
  assert resolve.to_run(once, 9) == resolve.to_run(again, 9)


def test_left_to_right_needs_a_causal_model():
  pairs = {'name': 'pairs', 'masking': 'left_to_right'}
  small = {'model': {'name': 'bert', 'variant': 'tiny'}, 'data': {'batching': pairs}, 'train': {'steps': 3}}
  with pytest.raises(InputError, match='data.batching.masking: got'):
    resolve.to_run(resolve.resolve(small), 50)
  assert resolve.to_run(resolve.resolve(small, ['model.causal=true']), 50).model.causal


@pytest.mark.parametrize(('old', 'new'), [(True, 'full'), (False, 'none')])
def test_boolean_remat_is_read_as_a_policy(old, new):
  small = {'model': {'name': 'gpt2', 'variant': 'tiny'}, 'train': {'steps': 3}}
  saved = {**small, 'model': {**small['model'], 'remat': old}}
  assert resolve.resolve(saved).model.remat == resolve.resolve(small, [f'model.remat={old}']).model.remat == new
  with pytest.raises(InputError, match='model.remat: .*did you mean "dots"'):
    resolve.resolve(small, ['model.remat=dot'])


@pytest.mark.parametrize(
  'override, message',
  [
    ('optim.learning_rat=1', 'optim.learning_rat'),
    ('train.stepz=3', 'did you mean "steps"'),
    ('modle.D=3', 'did you mean "model"'),
    ('train.steps=many', 'expected type int'),
    ('train.steps=1.5', 'expected type int'),
    ('train.steps=True', 'expected type int'),
    ('optim.lr=fast', 'expected type float'),
    ('train.on_nan=ignore', '"stop" or "skip"'),
    ('model.variant=huge', 'no variant "huge"'),
    ('model.dtype=bf16', 'model.dtype: unknown "bf16"; did you mean "bfloat16"'),
    ('model.name=gpt2x', 'did you mean "gpt2"'),
    ('objective.name=causal', 'did you mean "causal_lm"'),
    ('seed', 'got no value'),
  ],
)
def test_wrong_override_is_rejected_with_a_hint(override, message):
  with pytest.raises(InputError) as error:
    resolve.resolve(SMALL, [override])
  assert message in str(error.value)


def test_batching_accepts_a_name_or_a_section():
  base = resolve.load('experiments/word2vec/quickstart.py')
  assert base.data.batching.name == 'skipgrams' and base.data.batching.window == 5
  changed = resolve.load('experiments/word2vec/quickstart.py', ['data.batching.window=3'])
  assert changed.data.batching.window == 3 and changed.data.batching.chunk == base.data.batching.chunk
  other = resolve.load('experiments/word2vec/quickstart.py', ['data.batching=windows', 'data.batching.stride=8'])
  assert other.data.batching.to_dict() == {'name': 'windows', 'stride': 8, 'ends': True, 'second': False, 'drawn': 0}
  assert resolve.digest(changed) != resolve.digest(base)
  with pytest.raises(InputError, match='data.batching.window: 5 in the run, 3'):
    resolve.check_same(base, changed, 'runs/x')
  with pytest.raises(InputError, match='data.batching.windw: got .*; did you mean "window"'):
    resolve.load('experiments/word2vec/quickstart.py', ['data.batching.windw=3'])
  with pytest.raises(InputError, match='data.batching: got 3'):
    resolve.load('experiments/word2vec/quickstart.py', ['data.batching=3'])
  with pytest.raises(InputError, match='data.batching.window: got'):
    resolve.load('experiments/word2vec/quickstart.py', ['data.batching.window=wide'])


def test_scalar_becomes_a_one_element_tuple():
  own = ['data.dataset=table_files', 'data.texts=premise']
  loaded = resolve.resolve(SMALL, [*own, 'samples.prompts=The cat, and', 'optim.milestones=0.5'])
  assert loaded.data.texts == ('premise',) and loaded.samples.prompts == ('The cat, and',)
  assert loaded.optim.milestones == (0.5,)
  with pytest.raises(InputError, match=r"optim.groups: got '.\*'"):
    resolve.resolve(SMALL, ['optim.groups=.*'])


def test_integral_floats_and_integers_convert():
  full = resolve.resolve(SMALL, ['train.steps=1e3', 'optim.lr=1'])
  assert full.train.steps == 1000 and isinstance(full.train.steps, int)
  assert full.optim.lr == 1.0 and isinstance(full.optim.lr, float)


def test_vocabulary_smaller_than_the_tokenizer_is_rejected():
  full = resolve.resolve(SMALL, ['model.V=10'])
  with pytest.raises(InputError, match='model.V: got 10'):
    resolve.to_run(full, vocab_size=11)


@pytest.mark.parametrize(
  ('model', 'objective', 'message'),
  [
    ('cfnet', 'classify', 'got classify with model cfnet'),
    ('ntm', 'classify', 'got classify with model ntm'),
    ('bert', 'segment', 'got segment with model bert'),
    ('bert', 'bits', 'got bits with model bert'),
  ],
)
def test_incompatible_objective_and_model_are_rejected(model, objective, message):
  sections = {'model': {'name': model, 'variant': 'tiny'}, 'objective': {'name': objective}}
  with pytest.raises(InputError, match=f'objective.name: {message}'):
    resolve.to_run(resolve.resolve({**SMALL, **sections}))


def test_digest_depends_only_on_what_is_computed():
  base = resolve.resolve(SMALL)
  assert resolve.digest(base) == resolve.digest(resolve.resolve(SMALL, ['train.log_every=3', 'data.cache_dir=x']))
  assert resolve.digest(base) != resolve.digest(resolve.resolve(SMALL, ['optim.lr=0.5']))
  assert resolve.digest(base) == resolve.digest(resolve.resolve(SMALL, ['data.other_rows=model']))
  assert resolve.digest(base) != resolve.digest(resolve.resolve(SMALL, ['train.best_by=headline']))
  assert resolve.digest(base) != resolve.digest(resolve.resolve(SMALL, ['objective.reduction=sum']))
  assert resolve.digest(base) == '600d716ceab9'  # as before these keys, data.column and optim.power
  poly = [resolve.digest(resolve.resolve(SMALL, ['optim.schedule=poly', f'optim.power={x}'])) for x in (0.9, 2.0)]
  assert poly[0] != poly[1] and resolve.digest(resolve.resolve(SMALL, ['optim.power=2.0'])) == '600d716ceab9'
  vectors = ['data.tokenizer=words', 'data.vectors=v.txt']
  digests = {resolve.digest(resolve.resolve(SMALL, [*vectors, f'data.other_rows={x}'])) for x in ('model', 'normal')}
  assert len(digests) == 2 and resolve.digest(resolve.resolve(SMALL, vectors[:1])) not in digests


@pytest.mark.parametrize('model', ['luong', 'transformer'])
def test_digest_of_one_vocabulary_is_as_before_there_were_two(model):
  path = f'experiments/{model}/quickstart.py:tiny'
  config = resolve.load(path)
  earlier = config.to_dict()
  del earlier['data']['vocabularies'], earlier['data']['target_vocab_size']
  if model != 'transformer':
    del earlier['model']['source_V']
  assert resolve.digest(config) == resolve.digest(earlier)
  assert resolve.digest(config) != resolve.digest(resolve.load(path, ['model.source_V=99']))
  assert resolve.digest(config) != resolve.digest(resolve.load(path, ['data.vocabularies=separate']))


def test_config_mismatch_names_the_differing_keys():
  base, other = resolve.resolve(SMALL), resolve.resolve(SMALL, ['optim.lr=0.5', 'train.log_every=2'])
  with pytest.raises(InputError) as error:
    resolve.check_same(base, other, 'DIR')
  assert 'optim.lr' in str(error.value) and 'log_every' not in str(error.value)
  resolve.check_same(base, resolve.resolve(SMALL, ['train.log_every=2']), 'DIR')


def test_config_mismatch_names_the_missing_run_that_set_the_sizes(tmp_path):
  """The same command as before, whose word vectors are gone: they set the width."""
  gone = f'train.init_from={tmp_path}/vectors'
  saved, now = (resolve.resolve(SMALL, [gone, *more]) for more in (['optim.lr=0.5'], []))
  with pytest.raises(InputError, match=f'train.init_from: {tmp_path}/vectors is missing.*--config=DIR/config.json'):
    resolve.check_same(saved, now, 'DIR')
  (tmp_path / 'vectors').mkdir()
  with pytest.raises(InputError) as error:
    resolve.check_same(saved, now, 'DIR')
  assert 'missing' not in str(error.value)


def test_experiment_file_without_config_is_rejected(tmp_path):
  with pytest.raises(InputError, match='--config: got'):
    resolve.load(str(tmp_path / 'none.py'))
  (tmp_path / 'empty.py').write_text('x = 1\n')
  with pytest.raises(InputError, match='without a function get_config'):
    resolve.load(str(tmp_path / 'empty.py'))


def test_sizes_and_tokenizer_come_from_the_initial_run(tmp_path):
  tuned = {
    'model': {'name': 'bert', 'variant': 'base'},
    'train': {'epochs': 1, 'like_init': True},
    'data': {'tokenizer': 'wordpiece', 'batching': 'texts'},
  }
  assert resolve.resolve(tuned).model.D == 768  # with nothing to begin from, its own
  start = resolve.resolve(
    {
      'model': {'name': 'bert', 'variant': 'mini', 'gelu': 'erf', 'T': 64, 'V': 99, 'attention': 'numba'},
      'train': {'steps': 1},
      'data': {'tokenizer': 'wordpiece', 'lower_case': False, 'length': 8},
    }
  )
  (tmp_path / 'config.json').write_text(json.dumps(start.to_dict()))
  full = resolve.resolve(tuned, [f'train.init_from={tmp_path}', 'model.dropout_hidden=0.2', 'data.length=32'])
  assert (full.model.variant, full.model.D, full.model.N, full.model.T, full.model.gelu) == ('mini', 256, 4, 64, 'erf')
  assert full.model.attention == 'auto'  # what that run found where it began
  assert full.model.dropout_hidden == 0.2 and full.model.V == 0  # what is given stays; V follows from the tokenizer
  assert full.data.tokenizer_path == str(tmp_path / 'tokenizer') and not full.data.lower_case
  longer = resolve.resolve({**tuned, 'data': {**tuned['data'], 'length': 512}}, [f'train.init_from={tmp_path}'])
  assert longer.data.length == 64  # as long as the positions taken
  for override, message in (
    ('data.lower_case=True', 'data.lower_case: got True'),
    ('data.tokenizer=words', 'data.tokenizer: got words'),
    ('data.vocab_size=77', 'data.vocab_size: got 77'),
    ('data.min_count=2', 'data.min_count: got 2'),
    ('model.variant=base', 'model.variant: got base'),
    ('data.length=512', 'data.length: got 512'),
  ):
    with pytest.raises(InputError, match=message):
      resolve.resolve(tuned, [f'train.init_from={tmp_path}', override])
  same = ['data.lower_case=False', 'data.tokenizer=wordpiece', 'data.vocab_size=0', 'model.variant=mini']
  assert resolve.resolve(tuned, [f'train.init_from={tmp_path}', *same]).model.D == 256
  other = {**tuned, 'data': {**tuned['data'], 'lower_case': True, 'vocab_size': 77}}  # what no command line gave
  assert not resolve.resolve(other, [f'train.init_from={tmp_path}']).data.lower_case
  assert resolve.resolve(tuned, [f'train.init_from={tmp_path}', 'data.length=512', 'model.T=512']).data.length == 512
  (tmp_path / 'config.json').unlink()
  assert resolve.resolve(full.to_dict()).to_dict() == full.to_dict()  # the run itself needs it no more
  with pytest.raises(InputError, match='train.init_from: .*config.json'):
    resolve.resolve(tuned, [f'train.init_from={tmp_path}'])
  (tmp_path / 'config.json').write_text(json.dumps(resolve.resolve(SMALL).to_dict()))
  with pytest.raises(InputError, match='train.init_from: got'):
    resolve.resolve(tuned, [f'train.init_from={tmp_path}'])


def test_model_mismatch_in_evaluation_is_reported():
  path = 'experiments/transformer_xl/quickstart.py'
  run = resolve.to_run(resolve.load(path, ['evaluation.model.M=100']), 4096)
  assert (run.model.M, run.measured.M, run.measured.clamp, run.measured.D) == (64, 100, 128, run.model.D)
  plain = resolve.to_run(resolve.load('experiments/rnn_lm/quickstart.py'), 4096)
  assert plain.measured is plain.model


@pytest.mark.parametrize(
  'override, message',
  [
    ('evaluation.model.clam=3', r'evaluation.model.clam: got .*; did you mean "clamp"'),
    ('evaluation.model.D=64', 'evaluation.model: got'),
    ('evaluation.model.M=long', 'evaluation.model.M: got'),
    ('evaluation.model.dtype=half', 'evaluation.model.dtype: unknown "half"'),
  ],
)
def test_evaluation_rejects_other_parameters(override, message):
  with pytest.raises(InputError, match=message):
    resolve.to_run(resolve.load('experiments/transformer_xl/quickstart.py', [override]), 4096)


def test_classes_of_words_come_from_the_training_text(tmp_path):
  config = resolve.load('experiments/rnn_lm/mikolov.py:tiny', ['model.classes=3'])
  corpus = corpora.Corpus.from_texts({'train': ['a b a c a d'], 'valid': ['d d d d']}, characters.Bytes(eos=True))
  settled, run = resolve.with_corpus(config, corpus)
  counts = np.bincount(corpus.splits['train'].tokens, minlength=run.model.V)
  assert run.model.class_starts == run.measured.class_starts == class_softmax.starts(counts, 3, 'root')
  assert tuple(settled.model.class_starts) == run.model.class_starts == resolve.to_run(settled).measured.class_starts
  saved = json.loads(json.dumps(settled.to_dict()))
  work_directory.create(storage.path('--workdir', tmp_path / 'run', storage.FOLDER), settled, corpus)
  assert resolve.with_records(config.to_dict(), saved, tmp_path / 'run').model.class_starts == run.model.class_starts
  other = corpora.Corpus.from_texts({'train': ['d d a c'], 'valid': ['d d d d']}, characters.Bytes(eos=True))
  again = resolve.load('experiments/rnn_lm/mikolov.py:tiny', ['model.classes=3', f'train.init_from={tmp_path / "run"}'])
  with pytest.raises(InputError, match='model.class_starts: got values of this training text'):
    transfer.take(resolve.with_corpus(again, other)[1], {}, other, jax.random.key(0))


def test_windows_of_images_have_the_sizes_of_the_training():
  run = lambda *options: resolve.to_run(resolve.load('experiments/cfnet/ade20k.py:resnet50', options))
  assert (run().objective.window, run().objective.base, run().evaluation.images) == (480, 520, 'windows')
  assert run('data.length=96', 'data.batching.base=100').objective.base == 100
  assert run('objective.window=64', 'objective.base=70').objective.sampling.window == 64
  assert run('evaluation.images=crop').objective.window == 0
  assert run('evaluation.images=', 'data.batching.evaluation=windows').objective.window == 480
  with pytest.raises(InputError, match='objective.window: got 64; expected 0'):
    run('evaluation.images=', 'objective.window=64')
  with pytest.raises(InputError, match='evaluation.images: got "whole" with data.batching "scenes"'):
    resolve.to_run(resolve.load('experiments/cfnet/quickstart.py:tiny', ['evaluation.images=whole']))


def labelled(texts=1, **splits):
  """A corpus of splits with these labels."""
  made = corpora.Corpus.from_texts(
    {name: ['a b'] * len(labels) for name, labels in splits.items()}, characters.Bytes(eos=True), labels=splits
  )
  return dataclasses.replace(made, manifest={**made.manifest, 'texts': texts, 'label_names': ['x', 'y']})


@pytest.mark.parametrize(
  'experiment',
  [
    'bert/tasks',
    'gpt/tasks',
    'xlnet/tasks',
    'quaternion_transformer/tasks',
    'ulmfit/classifier',
    'ulmfit/lm',
    'bert/squad',
    'xlnet/squad',
  ],
)
def test_user_data_is_evaluated_on_the_test_file(experiment):
  loaded = resolve.load(f'experiments/{experiment}.py:own')
  run = resolve.to_run(loaded, 260)
  assert resolve.measured_split(run, labelled(train=[0, 1], valid=[1], test=[0])) == 'test'
  assert resolve.measured_split(run, labelled(train=[0, 1], valid=[1])) == 'valid'
  if run.objective_name == 'classify':
    _, settled = resolve.with_corpus(loaded, labelled(train=[0, 1], valid=[1], test=[0]))
    assert settled.evaluation.split == 'test'
    with pytest.warns(InputWarning, match='evaluation.split: test has'):
      assert resolve.measured_split(run, labelled(train=[0, 1], valid=[1], test=[0, -1])) == 'valid'
    pairs = labelled(texts=2, valid=[1, -1], test=[0, -1])
    assert resolve.measured_split(run, pairs) == 'test'


@pytest.mark.parametrize(
  ('code', 'message'),
  [
    ('x = (\n', r'line 1: SyntaxError'),
    ('def get_config(arg):\n  return 1 / 0\n', r'line 2: ZeroDivisionError'),
    ('import nothing_there\n', r'line 1: ModuleNotFoundError'),
    ('get_config = 3\n', r"TypeError: 'int' object is not callable"),
    ('def get_config(arg):\n  return None\n', r'get_config: got'),
    ('def get_config(arg):\n  raise ValueError("no size x")\n', 'no size x'),
  ],
)
def test_experiment_with_an_error_is_named_with_its_line(code, message, tmp_path):
  path = tmp_path / 'own.py'
  path.write_text(code)
  with pytest.raises(InputError, match=f'^{path}(, |: ){message}'):
    resolve.load(str(path))


def test_epochs_that_the_updates_of_a_recipe_would_hide_are_refused():
  path = 'experiments/gpt2/quickstart.py:tiny'
  with pytest.raises(InputError, match='train.epochs: got 2 with train.steps=.* set train.steps=0 too'):
    resolve.load(path, ['train.epochs=2'])
  assert resolve.load(path, ['train.epochs=2', 'train.steps=0']).train.epochs == 2
  assert resolve.load(path, ['train.epochs=0']).train.steps > 0


def test_settings_that_may_change_on_resume_are_listed_and_divide_no_seeds(root):
  page = re.search(r'These are (.*?`)\.\s', (root / 'docs/configuration.md').read_text(), re.DOTALL)[1]
  assert sorted(re.findall(r'`([\w.]+)`', page)) == sorted(resolve.FREE)
  for key in set(resolve.FREE) - {'evaluation'}:  # which changes the metrics
    one = key if '.' in key else f'{key}.name'
    assert plan.is_free(one) and one.startswith(results.FREE), key
