"""Every experiment builds: each variant, each option, each sweep point and each run of a table, without any memory.

And every field of a config does something: changed, it changes the traced computation, the schedule or the batches; a
field of the loop, which cannot be seen in those, must at least be read by the code.
"""

from __future__ import annotations

import ast
import csv
import dataclasses
import fnmatch
import functools
import hashlib
import importlib
import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from experiments import common, config, glue, spaces, tables
from experiments.gpt import recipe as gpt
from launch.tables import collection, printed, verdict
from launch.tables import plan as plans
from lmx import objectives
from lmx.cli import main
from lmx.config import resolve, schema, semantics
from lmx.data import batching, pipeline
from lmx.data import corpus as corpora
from lmx.data.tokenizers import build as tokenizers
from lmx.data.tokenizers import subword, words
from lmx.engine import state, step
from lmx.errors import InputError
from lmx.evaluation import evaluate, report
from lmx.models import registry
from lmx.optim import averaging, build
from tests import placed, small_images

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILES = sorted(
  str(p.relative_to(ROOT))
  for p in (ROOT / 'experiments').glob('*/*.py')
  if p.name not in ('__init__.py', 'recipe.py') and p.parent.name != 'tables'
)
LABELS = {'dataset': {'name': 'made up'}, 'label_names': ['a', 'b', 'c'], 'token_label_names': ['B-x', 'I-x', 'O']}
FOLDERS = sorted({path.split('/')[1] for path in FILES})
SECTIONS = ('data', 'optim', 'parallel', 'checkpoint', 'train', 'evaluation', 'samples', 'log')


@functools.cache
def module(path: str):
  return importlib.import_module(path.removesuffix('.py').replace('/', '.'))


def variants(folder: str = '*') -> list[tuple[str, str]]:
  paths = [path for path in FILES if fnmatch.fnmatch(path.split('/')[1], folder)]
  return [(path, variant) for path in paths for variant in module(path).VARIANTS]


@functools.cache
def small_corpus(batching: str, spelled: bool = False, pieces: bool = False):
  """Ten documents of made-up sentences; WordPiece for sentence pairs, words for windows, bytes for the rest."""
  if batching == 'images':
    return small_images.corpus(12, held_out=12)
  rng = np.random.default_rng(0)
  vocabulary = ['alpha', 'beta', 'gamma', 'delta', 'epsilon', 'zeta', 'eta', 'theta', 'iota', 'kappa']
  lines = [' '.join(rng.choice(vocabulary, 8)).capitalize() + '.' for _ in range(4000)]
  documents = ['\n'.join(lines[i::10]) + '\n' for i in range(10)]
  kinds = {**dict.fromkeys(('pairs', 'texts', 'questions', 'permutations'), 'wordpiece'), 'skipgrams': 'words'}
  kind = 'words' if spelled else 'wordpiece' if pieces else kinds.get(batching, 'bytes')
  tokenizer = tokenizers.train(kind, documents, vocab_size=200)
  if spelled:
    tokenizer = words.with_all_words(tokenizer, ['omega'])
  texts = {'train': documents, 'valid': documents[:2], 'test': documents[2:4]}
  if batching == 'translation':
    texts = {name: [line[: 1 + i % 30] for i, line in enumerate(lines[:120])] for name in texts}
  if batching == 'texts' and not spelled:
    tokenizer = subword.with_special(tokenizer, gpt.SPECIAL_TOKENS)
  if batching in ('documents', 'tagged', 'texts', 'questions', 'continuations'):
    count = {'continuations': 48, 'texts': 60}.get(batching, 42)  # rows of twelve documents, of two, five or six
    texts = {name: [line[: 1 + 3 * i] for i, line in enumerate(lines[:count])] for name in texts}
  made = corpora.Corpus.from_texts(
    texts,
    tokenizer,
    labels={name: [i % 3 for i in range(len(found))] for name, found in texts.items()},
    sides=('xx', 'yy') if batching == 'translation' else (),
  )
  if batching == 'continuations':
    return dataclasses.replace(made, manifest={**made.manifest, 'texts': 2, 'label_names': ['0', '1', '2']})
  if batching == 'texts':
    return dataclasses.replace(made, manifest={**made.manifest, 'texts': 2})
  if batching == 'questions':
    return dataclasses.replace(made, manifest={**made.manifest, 'spans': True})
  if batching not in ('pairs', 'both_ways', 'tagged'):
    return made
  splits = {}
  for name, split in made.splits.items():
    splits[name] = dataclasses.replace(split, token_labels=np.arange(len(split.tokens), dtype=np.int32) % 3)
    if batching == 'tagged':
      documents = np.arange(len(split.offsets) - 1, dtype=np.int32) // 2  # of two sentences
      splits[name] = dataclasses.replace(splits[name], file_documents=documents)
      continue
    lengths = [len(tokenizer.encode(line)) for line in ''.join(texts[name]).splitlines()]
    splits[name] = dataclasses.replace(split, sentences=np.cumsum([0, *lengths]))
  return dataclasses.replace(made, splits=splits)


@functools.cache
def one_batch(data: pipeline.Config, rows: int):
  """A batch of the config's kind and length, with few rows."""
  data = dataclasses.replace(data, batch_size=rows, eval_batch_size=0)
  if data.batching.name == 'pairs':
    data = dataclasses.replace(data, batching=dataclasses.replace(data.batching, dupe_factor=1))
  if data.batching.name == 'translation':
    data = dataclasses.replace(data, batching=dataclasses.replace(data.batching, tokens=0))
  batch = pipeline.batches(data, corpus_of(data), 'train', 0, train=True)(0)
  return batch | ({'scores_B': batch['labels_B'].astype(np.float32)} if 'labels_B' in batch else {})


def corpus_of(data: pipeline.Config):
  """A small corpus that suits a `data` section."""
  pieces = data.batching.name == 'tagged' and data.batching.form == 'bert'
  made = small_corpus(data.batching.name, data.characters > 0, pieces)
  if data.dataset in ('glue/cola', 'glue/sst2') or data.dataset == 'table_files' and len(data.texts) == 1:
    made = dataclasses.replace(made, manifest={**made.manifest, 'texts': 1})
  if data.dataset.startswith('cbt/'):
    made = dataclasses.replace(made, manifest={**made.manifest, 'texts': 12, 'choices': 10})
  if data.dataset in ('swag', 'race', 'story_cloze', 'race/joined'):
    texts = 5 if data.dataset == 'race/joined' else 6
    made = dataclasses.replace(made, manifest={**made.manifest, 'texts': texts, 'choices': 4})
  return made


def build_abstractly(run: schema.Run):
  """Traces initialisation, optimizer and one update; returns the shapes of what the update returns.

  The batch has few rows, at the run's own length. Layers are looped over (`scan`) where the model can, so that forty
  layers are traced once; so are runs that differ in nothing but their texts.
  """
  groups, buckets = getattr(run.data.batching, 'groups', 1), getattr(run.data.batching, 'buckets', ())
  k, lengths = run.optim.accumulate * groups, buckets[:1] if groups > 1 else ()
  rows = max(2, k)
  batch = one_batch(run.data, rows)
  shapes = tuple(sorted((name, jax.ShapeDtypeStruct(x.shape, x.dtype)) for name, x in batch.items()))
  cfg = dataclasses.replace(run.model, scan=True) if hasattr(run.model, 'scan') else run.model
  return traced_update((run.model_name, cfg), (run.objective_name, run.objective), run.optim, rows, k, lengths, shapes)


@functools.cache
def traced_update(named_model, named_objective, optim, rows: int, k: int, lengths, shapes):
  """What `build_abstractly` returns, by all that it depends on."""
  (name, cfg), (objective_name, objective_cfg) = named_model, named_objective
  model, objective = registry.get(name), objectives.get(objective_name)

  def init(key):
    return {'model': model.init(cfg, key), 'objective': objective.init(objective_cfg, model, cfg, key)}

  key = jax.eval_shape(lambda: jax.random.key(0))
  params = jax.eval_shape(init, key)
  tx = build.make(optim, params, functools.partial(model.depth, cfg), cfg.N, 1000, 100)
  train_step = step.make_train_step(
    model,
    cfg,
    objective,
    objective_cfg,
    tx,
    build.rate(optim, 1000, 100),
    accumulate=k,
    lengths=lengths,
    ema=optim.ema,
    lag=optim.asgd_lag,
    total_steps=1000,
  )

  def update(params, key, batch):
    ema = build.average(optim, params)
    return train_step(state.create(params, tx, ema), model.init_state(cfg, rows), batch, key)

  return jax.eval_shape(update, params, key, dict(shapes))


@functools.cache
def to_run(path_and_arg: str, *overrides: str) -> schema.Run:
  loaded = resolve.load(path_and_arg, overrides)
  found, source_size = pipeline.trained_sizes(loaded.data)
  found = found or max(8000, 2 * max(loaded.model.get('cutoffs') or (0,)))  # of a made-up tokenizer
  return settled(resolve.to_run(loaded, None if loaded.model.get('V', 0) else found, source_size=source_size))


def settled(run: schema.Run) -> schema.Run:
  """The run with what labels and counts of the data decide."""
  objective = objectives.get(run.objective_name)
  positive = getattr(run.objective, 'positive', '')
  two = positive or getattr(run.objective, 'metric', '') in ('f1', 'matthews')
  manifest = LABELS | {'scores': True, 'choices': 4, 'spans': True}
  manifest |= {'label_names': ['a', positive or 'b']} if two else {}
  if run.data.dataset == 'generated':
    manifest = pipeline.load(run.data).manifest
  run = resolve.with_counts(run, lambda: [1] * run.model.V)
  return dataclasses.replace(run, objective=objective.resolve(run.objective, manifest))


def check_update(run: schema.Run) -> None:
  after, _, metrics = build_abstractly(run)
  assert metrics['loss'].shape == () and metrics['loss'].dtype == jnp.float32
  assert {leaf.dtype for leaf in jax.tree.leaves(after.params)} == {jnp.dtype('float32')}


def test_variant_of_each_kind_builds():
  """One variant for each objective and optimizer, `tiny` where it has them; `slow` builds them all."""
  runs = [to_run(f'{path}:{variant}') for path, variant in variants()]
  assert all(run.train.steps or run.train.epochs for run in runs)
  runs.sort(key=lambda run: (run.variant == 'tiny', -run.model.N))
  kinds = {run.objective_name: run for run in runs}
  built = {run.optim.optimizer for run in kinds.values()}
  kinds |= {run.optim.optimizer: run for run in runs if run.optim.optimizer not in built}
  for run in kinds.values():
    check_update(shallow(run))


def shallow(run: schema.Run) -> schema.Run:
  """The run with two layers at most, where all are equal and the model can loop over them."""
  fields = type(run.model).__dataclass_fields__
  fewer = {'N': min(run.model.N, 2)} if {'N', 'scan'} <= fields.keys() else {}
  return dataclasses.replace(run, model=dataclasses.replace(run.model, **fewer))


@pytest.mark.slow
@pytest.mark.parametrize('path,variant', variants())
def test_variant_builds(path, variant):
  check_update(to_run(f'{path}:{variant}'))


OTHER_ROWS = ('squad.py', 'tagging.py', 'wnut17.py')  # whose `own` is questions or labels of words
OWN_TABLES = [(path, name) for path, name in variants() if name in glue.OWN and not path.endswith(OTHER_ROWS)]


def test_variants_for_users_tables_read_the_same_keys():
  files: dict[str, set[str]] = {name: set() for name in glue.OWN}
  for path, name in OWN_TABLES:
    run = to_run(f'{path}:{name}')
    files[name].add(path)
    assert run.data.dataset == 'table_files' and not run.data.hold_out_test, path
    assert run.data.scores == (name == 'own_scores') and run.evaluation.split == 'test,valid', path
    if path != 'experiments/ulmfit/lm.py':  # a language model of the table's texts
      assert run.objective_name == ('regress' if name == 'own_scores' else 'classify'), path
    pairs = name == 'own_pairs' or path == 'experiments/esim/pairs.py'
    assert run.data.texts == (glue.PAIR if pairs else ('text',)), path
  assert files['own'] == files['own_scores'] and len(files['own']) == 10
  one_text = {'experiments/self_attention/tasks.py', 'experiments/ulmfit/classifier.py', 'experiments/ulmfit/lm.py'}
  assert files['own_pairs'] == files['own'] - one_text


def test_variant_for_users_tables_that_a_model_cannot_do_names_others():
  cases = {
    'experiments/self_attention/tasks.py:own_pairs': 'experiments/esim/pairs.py:own_pairs',
    'experiments/ulmfit/classifier.py:own_pairs': 'experiments/esim/pairs.py:own_pairs',
    'experiments/transformer_xl/wikitext103.py:own': 'experiments/bcn/tasks.py:own',
    'experiments/gpt2/webtext.py:own_scores': 'experiments/bcn/tasks.py:own_scores',
  }
  for text, other in cases.items():
    with pytest.raises(InputError, match=rf'variant: got "{text.partition(":")[2]}".*{other}'):
      resolve.load(text)
    to_run(other)


def test_model_reads_as_many_texts_as_the_table_has_columns():
  two = "data.texts=('premise','hypothesis')"
  for text, texts, attention in (
    ('bcn/tasks.py:own', 1, None),
    ('bcn/tasks.py:own_scores', 1, None),
    ('glue_bilstm/tasks.py:own_pairs,elmo=false', 2, True),
    ('glue_bilstm/tasks.py:own,elmo=false', 1, False),
  ):
    model = resolve.load(f'experiments/{text}').model
    assert (model.texts, model.get('attention')) == (texts, attention), text
    assert resolve.load(f'experiments/{text}', [two]).model.texts == 2, text
  with pytest.raises(InputError, match='data.texts: got 1 .*experiments/bcn/tasks.py:own'):
    resolve.load('experiments/esim/pairs.py:own', ['data.texts=text'])
  with pytest.raises(InputError, match='model.texts: got 1 with 2 columns'):
    resolve.load('experiments/glue_bilstm/tasks.py:own_pairs', ['model.texts=1', 'model.attention=false'])


def test_default_is_the_first_variant():
  for path in FILES:
    first = module(path).VARIANTS[0]
    assert resolve.load(path) == resolve.load(f'{path}:{first}')


@pytest.mark.parametrize('folder', FOLDERS)
def test_end_of_a_run_is_possible_on_any_device_count(folder):
  """Its settings can be followed, and its evaluation has rows that 1, 4 and 8 devices share; devices_test runs some.

  Variants with one evaluation and one kind of rows are checked once.
  """
  seen = set()
  for path, variant in variants(folder):
    run = to_run(f'{path}:{variant}')
    kind = variant == 'tiny', run.model_name, run.objective, run.evaluation, run.data.batching, run.data.dataset
    if kind not in seen:
      check_end(run)
    seen.add(kind)


def check_end(run: schema.Run) -> None:
  corpus, batches, rows, shapes = shared_rows(evaluate.final_data(run))
  report.check(run, corpus, batches)
  if run.variant == 'tiny' and run.model_name not in ALIKE:
    models = (run.model_name, run.model, run.measured)
    evaluated_abstractly(models, (run.objective_name, run.objective), rows, shapes)


@functools.cache
def shared_rows(data: pipeline.Config):
  """(corpus, batches of the test split, rows for 8 devices, shapes of their first batch)."""
  corpus = pipeline.load(data) if data.dataset == 'generated' else corpus_of(data)
  batches = pipeline.batches(data, corpus, 'test', 0, train=False)
  for devices in (1, 4, 8):
    padded = batches.pad_rows(devices)
    batch, rows = padded(0), padded.padded_rows
    assert rows % devices == 0 and rows - devices < batches.batch_size <= rows
    assert all(len(x) % devices == 0 for x in batch.values())
  shapes = tuple(sorted((name, jax.ShapeDtypeStruct(x.shape, x.dtype)) for name, x in batch.items()))
  return corpus, batches, rows, shapes


@functools.cache
def evaluated_abstractly(models, named_objective, rows: int, shapes) -> None:
  """Traces the evaluation of a batch with a state of so many rows."""
  (name, cfg, measured), (objective_name, objective_cfg) = models, named_objective
  model, objective = registry.get(name), objectives.get(objective_name)

  def evaluated(key, batch):
    params = {'model': model.init(cfg, key), 'objective': objective.init(objective_cfg, model, cfg, key)}
    state = model.init_state(measured, rows)
    eval_step = step.make_eval_step(model, measured, objective, objective_cfg)
    return *eval_step(params, state, batch), state

  metrics, after, before = jax.eval_shape(evaluated, jax.random.key(0), dict(shapes))
  shapes = lambda tree: [x.shape for x in jax.tree.leaves(tree)]
  assert metrics and shapes(after) == shapes(before)


def test_tiny_variant_is_small():
  for path in FILES:
    run = to_run(f'{path}:tiny')
    assert run.variant == 'tiny' and run.data.dataset.startswith(('embedded', 'generated')), path
    assert not run.data.manual_dir, path
    assert 0 < run.train.steps <= 50 and run.data.batch_size * run.data.length <= 1024, path


@pytest.mark.parametrize('every', [False, pytest.param(True, marks=pytest.mark.slow)])
def test_resume_of_an_earlier_version_keeps_its_rules(every):
  """Its config.json has neither the rules nor the settings that keep them."""
  for path, variant in variants():
    if every or variant in (module(path).VARIANTS[0], 'tiny'):
      check_earlier_rules(f'{path}:{variant}')


def check_earlier_rules(text: str) -> None:
  now = resolve.load(text)
  flat = flatten_dict(now.to_dict(), keep_empty_nodes=True, sep='.')
  later = {key for name in now.semantics for key in semantics.RULES[name].old}
  older = {'model.alpha', 'model.attention', 'model.beta', 'model.mix_l2', 'optim.layer_decay_form'}  # than their rules
  kept = {key: x for key, x in flat.items() if key not in later - older and not key.startswith('semantics')}
  saved = resolve.resolve(unflatten_dict(kept, sep='.'), saved=True)
  assert saved.semantics.to_dict() == dict.fromkeys(now.semantics, 0)
  assert semantics.old_settings(saved).items() <= resolve.flatten(saved).items()
  resolve.check_same(saved, resolve.with_saved_rules(now, saved), text)


@pytest.mark.parametrize('folder', FOLDERS)
def test_sweep_points_are_different_runs(folder):
  """Each value of each setting is accepted once; `slow` builds every point."""
  for path in dict.fromkeys(path for path, _ in variants(folder)):
    seen, points, accepted = set(), spaces.points(module(path).sweep()), set()
    for point in points:
      overrides = [f'{key}={value}' for key, value in point.items()]
      loaded = resolve.load(path, overrides)
      flat = resolve.flatten(loaded)
      assert all(flat[key] == value for key, value in point.items())
      if not accepted.issuperset(overrides):
        to_run(f'{path}:tiny', *overrides)
        accepted.update(overrides)
      seen.add(resolve.digest(loaded))
    assert len(seen) == len(points) > 1, f'{path}: two points are one run'


@pytest.mark.slow
@pytest.mark.parametrize('path', FILES)
def test_sweep_points_build(path):
  runs = [
    to_run(f'{path}:tiny', *(f'{key}={value}' for key, value in point.items()))
    for point in spaces.points(module(path).sweep())
  ]
  for run in {(run.model, run.data): run for run in runs}.values():  # another rate or seed is the same computation
    build_abstractly(run)


# Rows of which no paper prints a figure.
UNPRINTED = (
  'quickstart/',
  'ntm/bits/',
  'lineage/',
  'self_attention/',
  'cfnet/scenes/',
  'gpt2/shakespeare_whole/',
  'ulmfit/folds/',
  'luong/multi30k/kinds/',
  'elmo/wnut17/',
  'bert/miniature/',
  'rnn_lm/ptb/5_small_released',
)


def test_table_rows_have_published_values_and_runs():
  for name in plans.names():
    check_rows(plans.table(name))


def check_rows(table: tables.Table) -> None:
  published = plans.published()
  ids, runs = [row.id for row in table.rows], {run.name: run for run in table.runs}
  assert len(set(ids)) == len(ids) and len(runs) == len(table.runs)
  for row in table.rows:
    commands = [command for name in row.runs for command in runs[name].then]
    for file in row.file.split(','):
      assert any(f'{file}.json' in command for command in commands) or file == 'results', row.id
    assert row.statistic in (tables.MEAN, tables.BEST, tables.MEDIAN) and (
      row.statistic == tables.MEAN or all(runs[name].seeds > 1 for name in row.runs)
    ), row.id
    assert row.id.startswith(UNPRINTED) or published[row.id].metric in tables.METRICS[row.metric].printed, row.id
    assert math.isfinite(verdict.band(row, published.get(row.id))) or row.id.startswith(UNPRINTED)
    assert not row.like or row.differs and row.id not in published and row.like in published, row.id
    assert not row.differs or row.id in published or row.like, row.id
  tries = [name for choice in table.choices for name in choice.tries if name in runs]
  used = {run.name for run in plans.sort_by_dependency([*plans.read_from(table.rows), *tries], runs)}
  assert used == set(runs), f'runs that no row is read from: {sorted(set(runs) - used)}'


def test_run_of_two_tables_is_the_same_run():
  seen: dict = {}
  for name in plans.names():
    for run in plans.table(name).runs:
      assert seen.setdefault(run.name, run) == run, run.name


def test_every_published_value_has_one_role():
  for name in plans.names():
    printed.roles(plans.table(name))


def test_every_table_of_a_paper_is_printed_once():
  places = [place for name in plans.names() for place in plans.table(name).prints]
  assert len(set(places)) == len(places)
  assert set(places) == {(line.paper, line.table) for line in plans.published().values()}


def test_published_values_include_slide_values():
  published = plans.published()
  with (plans.FOLDER / 'deck_figures.csv').open(newline='', encoding='utf-8') as file:
    figures = list(csv.DictReader(file))
  assert len({figure['id'] for figure in figures}) == len(figures) == 264
  for figure in figures:
    line = published[figure['id']]
    assert line.value == float(figure['value']), figure
    assert figure['id'].split('/')[0] == figure['system'] and line.table.split()[0] == figure['table'], figure


def test_rows_of_the_quickstart_table_are_of_the_model_that_they_name():
  models = {run.name.partition('/')[2]: to_run(run.config).model_name for run in plans.table('quickstart').runs}
  assert all(name == model for name, model in models.items()) and len(models) > 20


def overrides_of(run: tables.Run) -> list[str]:
  """Its settings but those that need a file; vectors are read by a training alone."""
  filled = [text.replace('{seed}', '3') for text in run.settings]
  return [text for text in filled if '{' not in text or text.startswith('data.vectors=')]


def test_config_of_each_table_run_has_the_settings_of_the_table():
  """Its commands parse too."""
  for name in plans.names():
    check_runs(plans.table(name))


def check_runs(table: tables.Table) -> None:
  plan, runs, seen = plans.Plan(), {run.name: run for run in table.runs}, set()
  for run in table.runs:
    kind = run.config, tuple(text.partition('=')[0] for text in run.settings)
    if kind in seen:
      continue  # a point of a grid, which differs from another in values alone
    seen.add(kind)
    for command in plans.commands(run, plans.seeds(run, plan)[0], runs, plan, shown=True):
      main.parse(list(command.words))
    if not run.config:
      continue
    loaded = resolve.load(run.config, [*overrides_of(run), 'seed=3'])
    assert not collection.compare_settings(resolve.flatten(loaded), plans.configs(run, plan)[''], 3)


@pytest.mark.slow
@pytest.mark.parametrize('name', plans.names())
def test_table_runs_build(name):
  built = set()
  for run in plans.table(name).runs:
    path, _, arg = run.config.partition(':')
    if not run.config or (arg in module(path).VARIANTS and not overrides_of(run)):
      continue  # a variant is built by a test of its own
    made = to_run(run.config, *overrides_of(run))
    if getattr(made.model, 'N', 0) > 24:  # equal layers
      made = dataclasses.replace(made, model=dataclasses.replace(made.model, N=4))
    if (made.model, made.objective) not in built:
      build_abstractly(made)
    built.add((made.model, made.objective))


def test_docstring_has_command_and_expected_result():
  for path in FILES:
    text = module(path).__doc__
    assert f'lmx train --config={path}' in text
    for variant in module(path).VARIANTS:
      if variant != 'tiny':
        assert variant in text or variant == 'fast', f'{path} does not describe {variant}'


# experiment and variant -> options, each of which gives another config
OPTIONS = {
  'rnn_lm/quickstart.py:fast': 'cell=gru',
  'rnn_lm/ptb.py:medium': 'fidelity=released',
  'gpt2/webtext.py:124m': 'recipe=paper',
  'gpt2/zero_shot.py:ptb': 'stride=32 size=355m',
  'nplm/brown.py:mlp9': 'rate=4e-3 epochs=6',
  'nplm/quickstart.py:fast': 'direct=true',
  'transformer/multi30k.py:en_de': 'cased',
  'quaternion_transformer/translation.py:full': 'pair=en_ro pair=en_de fidelity=released',
  'quaternion_transformer/quickstart.py:full': 'whole',
  'quaternion_transformer/tasks.py:imdb': 'quaternion=none whole',
  'bahdanau/quickstart.py:rnnsearch': 'reads=digits reading=hard',
  'luong/quickstart.py:luong': 'reads=digits reading=hard',
  'rnn_encdec/quickstart.py:rnnencdec': 'reads=digits',
  'bahdanau/multi30k.py:rnnsearch': 'recipe=paper',
  'luong/multi30k.py:luong': 'recipe=paper',
  'rnn_encdec/multi30k.py:rnnencdec': 'recipe=paper',
  'bahdanau/wmt14.py:rnnsearch': 'length=30',
  'rnn_encdec/wmt14.py:rnnencdec': 'length=30',
  'rnn_encdec/wmt14.py:sutskever': 'dropout=false reverse=false source=de paper=sutskever',
  'luong/wmt14.py:luong': 'score=dot window=local_m feed=false dropout=false reverse=false source=de',
  'memory_compressed/documents.py:t_dmca': 'length=2000 fidelity=released',
  'transformer/wmt14.py:big': 'pair=en_fr fidelity=released',
  'bert/pretrain.py:base': 'fidelity=paper length=512 whole_word no_nsp left_to_right masks=80_0_20',
  'bert/squad.py:squad': 'bilstm adam=corrected epochs=4 lr=3e-5',
  'bert/tasks.py:rte': 'left_to_right bilstm adam=corrected epochs=4 lr=5e-5',
  'bert/tagging.py:wnut17': 'features=sum_all adam=corrected crf epochs=4 lr=2e-5',
  'gpt/tasks.py:rte': 'fidelity=paper lm=false scratch lstm epochs=4 lr=5e-5',
  'gpt/tasks.py:race': 'level=high',
  'gpt/books.py:base': 'fidelity=released',
  'transformer_xl/wikitext103.py:base': 'fidelity=pytorch',
  'transformer_xl/wikitext103.py:alone': 'length=176',
  'transformer_xl/lm1b.py:base': 'marks=single',
  'xlnet/tasks.py:mnli': 'recipe=v2 epochs=2',
  'xlnet/tasks.py:race': 'recipe=v2 level=middle',
  'xlnet/tasks.py:yelp_full': 'recipe=v2',
  'xlnet/tasks.py:mnli,recipe=v2': 'adam=corrected',
  'xlnet/pretrain.py:large': 'adam=corrected recipe=v1 recipe=bert',
  'xlnet/squad.py:squad2': 'layer_decay=as_released layer_decay=none',
  'xlnet/ablation.py:xlnet': 'size=small steps=100 lr=1e-3',
  'sparse_transformer/enwik8.py:fixed': 'merge=alternate merge=heads fidelity=paper context=12160 init=released',
  'character_transformer/text8.py:t64': (
    'every_position=false every_layer=false second_target=false layer_positions=false optimizer=adam'
  ),
  'ntm/tasks.py:copy': 'network=ff network=baseline recipe=paper sequences=160 rate=2e-3',
  'glue_bilstm/tasks.py:rte': 'elmo=false attention=false bilm=small cells=200 lr=1e-3 fidelity=paper',
  'glue_bilstm/tasks.py:stsb,lr=1e-3': 'fidelity=paper',
  'glue_bilstm/tasks.py:rte,elmo=false': 'fixed',
  'esim/snli.py:base': 'fixed',
  'esim/snli.py:elmo': 'place=input bilm=small mix=last mix_l2=1.0 fine_tune',
  'esim/pairs.py:rte': 'place=both',
  'esim/pairs.py:rte,place=both': 'bilm=small fine_tune',
  'elmo/text.py:mini': 'epochs=2 optimizer=adam',
  'elmo/wnut17.py:elmo': 'place=both bilm=small fine_tune',
  'srl_lstm/conll2012.py:elmo': 'place=both bilm=small mix=last mix_l2=1 fine_tune',
  'bcn/sst.py:sst5_elmo,bilm=small': 'place=input bilm=mini phrases=all phrases=none classifier=maxout fine_tune fixed',
  'bcn/sst.py:sst2': 'phrases=all',
  'elmo/sst.py:elmo': 'place=both bilm=small fine_tune phrases',
  'ulmfit/general.py:small': 'direction=backward epochs=2',
  'ulmfit/general.py:wikitext103': 'fidelity=fastai dropmult=0',
  'ulmfit/lm.py:imdb': 'fidelity=fastai direction=backward size=small rates=full text=all epochs=2 dropmult=0.5',
  'ulmfit/classifier.py:trec': (
    'fidelity=fastai direction=backward size=small method=last method=full method=chain_thaw method=freez '
    'method=freez_discr method=freez_cos dropmult=0.5 epochs=2'
  ),
  'transformer/wmt14.py:base': ' '.join(
    f'row={row}' for row in module('experiments/transformer/wmt14.py').ROWS if row != 'base'
  ),
}


def test_every_option_gives_another_config():
  for text, options in OPTIONS.items():
    for option in options.split():
      plain, changed = resolve.load(f'experiments/{text}'), resolve.load(f'experiments/{text},{option}')
      assert resolve.digest(plain) != resolve.digest(changed), f'{text}: {option}'
      resolve.to_run(changed, vocab_size=changed.data.vocab_size)


# config of a slice -> batch_size (0: tokens decide), parallel.fsdp, parallel.pad_vocabulary, model.scan, model.remat.
PODS = {
  'experiments/gpt2/webtext.py:124m,pod': (512, 1, 128, False, 'none'),
  'experiments/gpt2/webtext.py:355m,pod': (512, 1, 128, False, 'none'),
  'experiments/gpt2/webtext.py:1558m,pod': (512, -1, 128, True, 'full'),
  'experiments/bert/pretrain.py:large,pod': (256, 1, 128, False, 'none'),
  'experiments/bert/pretrain.py:large,length=512,pod': (1024, 1, 128, False, 'none'),
  'experiments/xlnet/pretrain.py:large,pod': (8192, -1, 128, True, 'attention'),
  'experiments/transformer_xl/wikitext103.py:large,pod': (128, 1, 1, False, 'none'),
  'experiments/transformer_xl/lm1b.py:large,pod': (512, 1, 1, True, 'none'),
  'experiments/transformer/wmt14.py:big,pod': (0, 1, 128, True, 'full'),
  'experiments/sparse_transformer/enwik8.py:fixed,pod': (32, 1, 128, True, 'full'),
  'experiments/character_transformer/enwik8.py:t64,pod': (16, 1, 128, True, 'full'),
  'experiments/character_transformer/text8.py:t64,pod': (16, 1, 128, True, 'full'),
  'experiments/memory_compressed/documents.py:t_dmca,pod': (16, 1, 128, None, 'full'),
  'experiments/elmo/lm1b.py:original,pod': (384, 1, 1, None, False),
  'experiments/awd_lstm/ptb.py:released,pod': (20, 1, 128, None, False),
  'experiments/awd_lstm/wikitext2.py:released,pod': (80, 1, 128, None, False),
}


def test_pod_sets_slice_settings():
  for text, wanted in PODS.items():
    run = to_run(text)
    batch_size = 0 if run.data.batching.name == 'translation' else run.data.batch_size
    parallel, model = run.parallel, run.model
    scan = getattr(model, 'scan', None)  # None: a model without layers to scan over
    assert (batch_size, parallel.fsdp, parallel.pad_vocabulary, scan, model.remat) == wanted, text
    assert (model.dtype, run.optim.accumulate) == ('bfloat16', 1), text
    plain = to_run(text.removesuffix(',pod'))
    assert (plain.parallel.fsdp, plain.parallel.pad_vocabulary) == (1, 1), text
    assert not getattr(plain.model, 'scan', False), text


@pytest.mark.slow
@pytest.mark.parametrize('path', dict.fromkeys(text.split(':')[0] for text in PODS))
def test_tiny_pod_trains_on_a_cpu(path, tmp_path):
  settings = ('train.steps=1', 'train.eval_every=1', 'train.log_every=1')
  words = [f'--config={path}:tiny,pod', f'--workdir={tmp_path}', *(f'--config.{text}' for text in settings)]
  assert main.main(['train', *words]) == 0
  last = [json.loads(line) for line in (tmp_path / 'metrics.jsonl').read_text().splitlines()][-1]
  assert (last['step'], last['split']) == (1, 'valid') and math.isfinite(last['loss'])


@pytest.mark.parametrize(('fidelity', 'start'), [('released', 0), ('paper', 10_000)])
def test_berts_two_phases_are_one_schedule(fidelity, start):
  first, second = (
    resolve.to_run(resolve.load(f'experiments/bert/pretrain.py:base,fidelity={fidelity},length={length}'), 1000)
    for length in (128, 512)
  )
  rate, later = (build.rate(run.optim, run.train.steps, 1) for run in (first, second))
  wanted = lambda update: pytest.approx(1e-4 * (1_000_000 - update) / (1_000_000 - start), rel=1e-4, abs=1e-12)
  assert first.train.steps + second.train.steps == 1_000_000
  for update in (10_000, 500_000, 900_000):
    assert float(rate(update)) == wanted(update)
  for update in (900_000, 950_000, 1_000_000):
    assert float(later(update - 900_000)) == wanted(update)


def test_elmo_lambda_is_0_1_only_in_the_papers_tagger():
  paths = 'elmo/conll2003.py:elmo', 'elmo/wnut17.py:elmo', 'elmo/sst.py:elmo', 'lineage/systems.py:elmo,stage=task'
  lambdas = {path: resolve.load(f'experiments/{path}').model.mix_l2 for path in paths}
  assert lambdas == dict(zip(lambdas, (0.1, 0.0, 0.0, 0.0), strict=True))


def test_arguments_are_checked():
  variant, options = config.parse_arg('b,n=3,flag', ('a', 'b'), n=1, flag=False, kind=('x', 'y'))
  assert (variant, options.n, options.flag, options.kind) == ('b', 3, True, 'x')
  assert config.parse_arg('', ('a', 'b'))[0] == 'a'
  assert config.parse_arg('n=2', ('a',), n=1)[1].n == 2
  for arg, message in (
    ('c', 'no variant "c"'),
    ('medum', 'did you mean "medium"'),
    ('medium,m=1', 'no option "m"'),
    ('medium,n=x', 'expected the type int'),
    ('medium,flag=maybe', 'expected the type bool'),
    ('medium,kind=z', 'no kind called "z"'),
  ):
    with pytest.raises(ValueError, match=message):
      config.parse_arg(arg, ('medium',), n=1, flag=False, kind=('x', 'y'))


# Experiments with an option that their variant or their other options ignore.
IGNORED = (
  'srl_lstm/conll2005.py:base,place=output',
  'srl_lstm/conll2012.py:elmo,mix=last,mix_l2=1',
  'srl_lstm/conll2012.py:tiny,bilm=small',
  'bcn/sst.py:sst5,place=both',
  'bcn/sst.py:sst2,fine_tune',
  'bcn/sst.py:tiny,phrases=all',
  'bidaf/squad.py:seo,bilm=mini',
  'bidaf/squad.py:tiny,data=own',
  'esim/snli.py:chen,mix=last',
  'esim/snli.py:base,mix_l2=0.001',
  'esim/pairs.py:rte,bilm=small',
  'elmo/conll2003.py:base,bilm=mini',
  'elmo/wnut17.py:base,fine_tune',
  'elmo/sst.py:tiny,fine_tune',
  'glue_bilstm/tasks.py:rte,elmo=false,bilm=mini',
  'glue_bilstm/tasks.py:sst2,attention=false',
  'glue_bilstm/tasks.py:tiny,cells=20',
  'glue_bilstm/tasks.py:rte,fixed',
  'awd_lstm/ptb.py:paper,of=released',
  'gpt/tasks.py:rte,level=high',
  'rnn_encdec/wmt14.py:sutskever,paper=sutskever,dropout=false',
  'ulmfit/classifier.py:trec,rates=full',
)


def test_option_that_is_ignored_is_rejected():
  for text in IGNORED:
    option = text.rpartition(',')[2].partition('=')[0]
    with pytest.raises(InputError, match=f'option "{option}": got'):
      resolve.load(f'experiments/{text}')


def test_option_that_changes_nothing_is_rejected():
  @config.arguments(('a', 'b'), n=1, kind=('x', 'y', 'z'), loud=False)
  def get_config(variant, options):
    if options.n > 2 and variant == 'b':
      raise ValueError('too many')
    size = {'n': options.n, 'kind': options.kind == 'z'} if variant == 'b' else {}
    return config.merge({'name': f'{variant}_{options.kind}', 'model': size})

  assert get_config('').name == 'a_x'  # defaults that change nothing are not refused
  assert get_config('b,kind=y,n=2').model.to_dict() == {'n': 2, 'kind': False}
  assert get_config('b,n=1').model.n == 1
  for arg, message in (
    ('a,n=2', 'option "n": got 2 with a'),
    ('a,kind=x', 'option "kind": got x with a'),  # its name alone changes
    ('b,loud', 'option "loud": got true with b'),
    ('b,n=3', 'too many'),
  ):
    with pytest.raises(ValueError, match=message):
      get_config(arg)


def test_every_experiment_rejects_ignored_options():
  """But lineage: options of a table are given to each of its runs, pre-training or task."""
  unchecked = {path for path in FILES if 'options = config.parse_arg(' in (ROOT / path).read_text()}
  assert unchecked == {'experiments/lineage/systems.py'}


def test_merging_keeps_what_is_not_changed():
  merged = config.merge({'a': {'x': 1, 'y': 2}}, {'a': {'y': 3}, 'b': 4})
  assert merged.to_dict() == {'a': {'x': 1, 'y': 3}, 'b': 4}
  assert list(config.grid(a__b=[1, 2], c=[3])) == [{'a.b': 1, 'c': 3}, {'a.b': 2, 'c': 3}]


def test_moved_name_error_gives_the_new_name(tmp_path):
  """Experiment files of an earlier version, which import `experiments.common`."""
  file = tmp_path / 'mine.py'
  file.write_text('from experiments import common\n\n\ndef get_config(arg=""):\n  return common.config({})\n')
  with pytest.raises(InputError, match='mine.py: experiments.common.config: moved'):
    resolve.load(str(file))
  file.write_text('from experiments.common import XLNET_HEAD\n')
  with pytest.raises(InputError, match='mine.py: .*XLNET_HEAD: moved'):
    resolve.load(str(file))
  for old, new in common._MOVED.items():
    name, _, attribute = new.rpartition('.')
    assert hasattr(importlib.import_module(f'experiments.{name}'), attribute), old


# ---- every field does something ----


def read_outside_its_class() -> set[str]:
  """Names of attributes read anywhere in lmx, but for checks in `__post_init__`."""
  found = set()
  for path in (ROOT / 'lmx').rglob('*.py'):
    tree = ast.parse(path.read_text())
    checks = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == '__post_init__']
    inside = {id(n) for check in checks for n in ast.walk(check)}
    found |= {
      n.attr
      for n in ast.walk(tree)
      if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and id(n) not in inside
    }
  return found


def test_every_field_of_every_section_is_read():
  read = read_outside_its_class()
  classes = {name: type(getattr(to_run(FILES[0]), name)) for name in SECTIONS}
  classes |= {f'model {name}': registry.get(name).Config for name in registry.names()}
  classes |= {f'objective {name}': objectives.get(name).Config for name in objectives.names()}
  for section, cls in classes.items():
    dead = {field.name for field in dataclasses.fields(cls)} - read
    assert not dead, f'{section}: nothing reads {sorted(dead)}'


STAGES = ('initialisation', 'training', 'evaluation', 'gradient')


def initialise(run: schema.Run, key):
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  return {'model': model.init(run.model, key), 'objective': objective.init(run.objective, model, run.model, key)}


@functools.cache
def initialised(run: schema.Run):
  """(traced initialisation, shapes of the parameters)."""
  return jax.make_jaxpr(functools.partial(initialise, run), return_shape=True)(jax.random.key(0))


@functools.cache
def traced(run: schema.Run, stage: str) -> str:
  """Digest of the traced initialisation, losses or gradient; literals, constants and shapes included."""
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)

  def loss(params, batch, model_state, key):
    out = step.training_loss(model, run.model, objective, run.objective, params, batch, model_state, key)
    return sum(out.sums.values())

  def metrics(params, batch, model_state, key):
    return objective.loss(run.objective, model, run.model, params, batch, model_state).metrics

  made, params = initialised(run)
  if stage != 'initialisation':
    compute = {'training': loss, 'evaluation': metrics, 'gradient': jax.value_and_grad(loss)}[stage]
    start = jax.eval_shape(lambda: model.init_state(run.model, 2))
    made = jax.make_jaxpr(compute)(params, one_batch(run.data, 2), start, jax.random.key(0))
  constants = b''.join(np.asarray(x).tobytes() for x in made.consts)
  return hashlib.sha256(str(made).encode() + constants).hexdigest()


def same(before: schema.Run, after: schema.Run) -> bool:
  """Whether two runs compute the same, by the cheapest trace that tells; a few fields change the gradient alone."""
  with placed.on():  # without a placement every backend computes the same equations
    return all(traced(before, stage) == traced(after, stage) for stage in STAGES)


# What a field is changed to, where adding to a number or turning a switch would not do, and what must hold for it to
# matter. (model, field) or field -> (changes that make it matter, value).
MODEL_CHANGES: dict = {
  ('bert', 'F'): ({}, 24),  # 0 is 4 D
  ('gpt2', 'F'): ({}, 24),
  'dtype': ({}, 'bfloat16'),
  'dropout': ({'dropout': 0.0}, 0.5),
  'E': ({}, 24),
  'gelu': ({}, 'erf'),
  'cell': ({}, 'gru'),
  'window': ({}, 'local_m'),
  'reach': ({'window': 'local_p'}, 4),
  'backend': ({'backend': 'scan'}, 'custom'),
  'char_filters': ({}, ((2, 6),)),
  'bilm_filters': ({}, ((1, 4), (2, 8))),
  'elmo': ({}, 'input'),
  'mix': ({'mix_l2': 0.0}, 'last'),
  'cutoffs': ({}, (30,)),
  'clamp': ({}, 3),
  'init': ({}, 'released'),
  'fidelity': ({}, 'released'),
  'positions': ({}, 'halves'),
  ('bert', 'causal'): None,  # refused with the next sentence; tests/models/bert_test.py has its test
  'attention': ({'attention': 'xla'}, 'blocked'),
  ('word2vec', 'update_kernel'): None,  # on one CPU alone; tests/kernels/window_updates_test.py
  ('rnn_encdec', 'design'): ({'cell': 'lstm'}, 'sutskever'),
  ('rnn_encdec', 'bidirectional'): ({}, True),
  **{
    (name, field): change
    for name in ('bahdanau', 'luong', 'rnn_encdec')
    for field, change in (
      ('score', ({}, 'concat')),
      ('A', ({'score': 'additive'}, 20)),
      ('S', ({'score': 'location', 'S': 50}, 60)),
      ('reading', ({}, 'hard')),
      ('expected', ({'reading': 'hard'}, 0.25)),
      ('readout', ({}, 'current')),
      ('init', ({'init': 'uniform'}, 'paper')),
      ('backend', ({'cell': 'gru', 'backend': 'scan'}, 'custom')),
    )
  },
  ('bahdanau', 'reverse'): ({'bidirectional': False}, True),
  ('bahdanau', 'tied'): ({'E': 8}, True),
  ('luong', 'tied'): ({'E': 16}, True),
  ('rnn_encdec', 'tied'): ({'E': 8}, True),
  ('rnn_lm', 'bias'): ({}, 'double'),
  ('awd_lstm', 'E'): ({}, 20),
  ('awd_lstm', 'dropout_hidden'): ({}, 0.5),
  ('awd_lstm', 'cell'): ({}, 'qrnn'),
  ('word2vec', 'architecture'): ({}, 'cbow'),
  ('word2vec', 'cbow_gradient'): ({'architecture': 'cbow'}, 'mean'),
  ('rnn_lm', 'tied'): ({'E': 16, 'D': 16}, True),
  ('rnn_lm', 'input'): ({'E': 16, 'D': 16, 'cell': 'rnn'}, 'one_hot'),
  ('rnn_lm', 'classes'): ({}, 1),
  ('rnn_lm', 'class_mass'): None,  # tests/layers/class_softmax_test.py has its test
  ('rnn_lm', 'class_starts'): ({'classes': 2, 'class_starts': (3,)}, (5,)),
  ('elmo', 'filters'): ({}, ((1, 4), (2, 8))),
  ('bcn', 'texts'): ({}, 2),
  ('ntm', 'I'): None,
  ('ntm', 'O'): None,
  ('ntm', 'controller'): ({}, 'feedforward'),
  ('ntm', 'memory'): ({}, 'constant'),
  ('glue_bilstm', 'attention'): ({}, False),
  ('glue_bilstm', 'words'): ({'char_filters': ()}, False),
  ('glue_bilstm', 'texts'): None,  # tests/models/glue_bilstm_test.py
  ('srl_lstm', 'char_projection'): ({}, 4),
  ('bidaf', 'cell'): ({}, 'lstm'),
  ('bidaf', 'self_attention'): ({'no_alignment': False}, False),
  ('bidaf', 'highways'): ({}, 1),
  ('bidaf', 'initial'): ({'no_alignment': False, 'self_attention': False, 'cell': 'lstm'}, 'tensorflow'),
  ('transformer', 'norm'): ({}, 'pre'),
  ('memory_compressed', 'norm'): ({}, 'post'),
  ('memory_compressed', 'pattern'): ({}, 'ML'),
  ('memory_compressed', 'compress'): ({}, 'input'),
  ('memory_compressed', 'window'): ({}, 3),
  ('transformer', 'K'): ({}, 4),
  'source_V': ({}, 320),
  ('transformer', 'encoder_F'): ({}, 24),
  ('transformer', 'encoder_H'): ({}, 2),
  ('transformer', 'first_position'): ({}, 2),
  ('transformer', 'scale_embedding'): ({}, False),
  ('transformer', 'tied'): ({}, False),
  ('transformer', 'activation'): ({}, 'swish'),
  ('transformer', 'T'): ({'positions': 'learned', 'T': 64}, 80),
  ('character_transformer', 'norm'): ({}, 'pre'),
  ('character_transformer', 'positions'): ({}, 'sinusoids'),
  ('transformer', 'biases'): ({}, 'none'),
  ('sparse_transformer', 'T'): ({}, 128),
  ('xlnet', 'attention'): ({'attention': 'xla'}, 'scan'),
  ('sparse_transformer', 'attention'): ({'pattern': 'dense', 'attention': 'xla'}, 'blocked'),
  ('sparse_transformer', 'pattern'): ({}, 'strided'),
  ('sparse_transformer', 'merge'): ({}, 'heads'),
  **{
    (name, field): ({}, value)
    for name in ('quaternion_transformer', 'quaternion_text')
    for field, value in (
      ('quaternion', 'partial'),
      ('scores', 'whole'),
      ('grouping', 'contiguous'),
      ('initial', 'released'),
      ('norm', 'post'),
    )
  },
  ('quaternion_text', 'causal'): None,  # tests/models/quaternion_test.py
  ('cfnet', 'norm'): ({}, 'group'),
  ('cfnet', 'norm_groups'): ({'norm': 'group'}, 2),
  ('cfnet', 'norm_momentum'): None,  # of the running statistics alone; tests/models/cfnet_test.py has its test
  ('cfnet', 'block'): ({}, 'basic'),
  ('cfnet', 'blocks'): ({}, (1, 1, 2)),
  ('cfnet', 'widths'): ({}, (4, 6, 10)),
  ('cfnet', 'stem'): ({}, 'deep'),
  ('cfnet', 'head'): ({}, 'fcn'),
  ('cfnet', 'temperature'): ({}, 'split'),
  ('cfnet', 'stride'): ({}, 4),
  ('cfnet', 'mean'): ({}, (0.5, 0.5, 0.5)),
  ('cfnet', 'std'): ({}, (0.5, 0.5, 0.5)),
  ('self_attention', 'score'): ({}, 'dot'),
  ('self_attention', 'S'): ({'score': 'location'}, 60),
  ('xlnet', 'M'): ({}, 16),
  ('xlnet', 'reuse'): ({}, 3),
  ('xlnet', 'fidelity'): ({}, 'paper'),
  ('transformer_xl', 'recurrent'): ({}, 1),
  ('transformer_xl', 'tie_projections'): ({}, 'all'),
  ('transformer_xl', 'positions'): ({'clamp': 4}, 'shaw'),
  ('transformer_xl', 'fidelity'): ({}, 'tf'),
}
SPELLED = {  # what they need besides
  'both_ways': {'characters': 8},
  'tagged': {'characters': 8, 'length': 64},
  'algorithmic': {'dataset': 'generated'},
  'images': {'dataset': 'segmentation_files'},
  'scenes': {'dataset': 'generated', 'length': 32},
}
PIECES = {'questions': {'tokenizer': 'wordpiece', 'length': 80}}
LENGTHS = {'permutations': 16}
FEWER_LAYERS: dict = {
  **dict.fromkeys(
    ('bert', 'elmo', 'gpt', 'quaternion_text', 'self_attention', 'sparse_transformer', 'xlnet'), {'N': 1}
  ),
  'transformer': {'encoder_layers': 1, 'decoder_layers': 1},
}
CHUNKS = {
  'skipgrams': {'chunk': 8},
  'permutations': {'predictions': 2},
  'algorithmic': {'bits': 4},
  'scenes': {'size': 8},
}


ALIKE = {  # model -> another one with its fields but for a few
  'bidaf': 'elmo',
  'bilstm': 'elmo',
  'bcn': 'elmo',
  'character_transformer': 'gpt2',
  'glue_bilstm': 'elmo',
  'esim': 'elmo',
  'gpt': 'gpt2',
  'luong': 'bahdanau',
  'memory_compressed': 'sparse_transformer',
  'quaternion_transformer': 'quaternion_text',
  'rnn_encdec': 'bahdanau',
  'self_attention': 'bahdanau',
  'srl_lstm': 'bilstm',
}


# Slow besides: those that take longest, whose kinds bahdanau, bert, gpt2 and rnn_lm stand for.
LONG = ('awd_lstm', 'cfnet', 'quaternion_text', 'sparse_transformer', 'transformer', 'transformer_xl', 'xlnet')


@pytest.mark.parametrize(
  'name',
  [pytest.param(name, marks=pytest.mark.slow) if name in (*ALIKE, *LONG) else name for name in registry.names()],
)
def test_every_field_of_a_model_changes_what_is_computed(name):
  kinds = {
    'masked_lm': 'pairs',
    'skipgram': 'skipgrams',
    'bidirectional_lm': 'both_ways',
    'tag': 'tagged',
    'translation': 'translation',
    'bits': 'algorithmic',
    'permutation_lm': 'permutations',
    'character_aux': 'windows',
    'segment': 'scenes',
  }
  batching = kinds.get(registry.get(name).OBJECTIVE, 'streams')
  pairs = {}
  if registry.get(name).READS == 'characters' and registry.get(name).OBJECTIVE == 'classify':
    batching, pairs = 'texts', {'characters': 8, 'batching': {'name': 'texts', 'form': 'separate'}}
  if registry.get(name).OBJECTIVE == 'span':
    form = {'name': 'questions', 'form': 'separate', 'question_length': 8}
    batching, pairs = 'questions', {'characters': 8, 'length': 16, 'batching': form}
  base = {
    'model': {'name': name, 'variant': 'tiny', **FEWER_LAYERS.get(name, {})},
    'data': {
      'batching': {'name': batching, **CHUNKS.get(batching, {})},
      'length': LENGTHS.get(batching, 8),
      **SPELLED.get(batching, {}),
      **pairs,
    },
    'train': {'steps': 1},
  }
  vocabulary = small_corpus(batching, batching in SPELLED or bool(pairs)).tokenizer.vocab_size

  def run_with(**changes):
    return settled(resolve.to_run(resolve.resolve({**base, 'model': {**base['model'], **changes}}), vocabulary))

  for field in dataclasses.fields(registry.get(name).Config):
    default = getattr(run_with().model, field.name)
    change = MODEL_CHANGES.get((name, field.name), MODEL_CHANGES.get(field.name, ({}, None)))
    if change is None:
      continue  # follows from the data; the model's own tests refuse another value
    context, value = change
    if value is None and isinstance(default, bool):
      value = not default
    elif value is None and isinstance(default, int):
      value = default * 2
    elif value is None and isinstance(default, float):
      value = default * 0.5 + 0.125
    elif value is None and default == 'none':  # `remat`
      value = 'full'
    assert value is not None, f'{name}.{field.name}: say in MODEL_CHANGES what it may be changed to'
    before, after = run_with(**context), run_with(**{**context, field.name: value})
    assert not same(before, after), f'{name}.{field.name} changes nothing'


# Objective -> (a model, a batching) that it goes with, where these are not the LSTM and streams.
OBJECTIVE_SETTINGS = {
  'masked_lm': ('bert', 'pairs'),
  'classify': ('rnn_lm', 'documents'),
  'regress': ('rnn_lm', 'documents'),
  'multiple_choice': ('rnn_lm', 'documents'),
  'bidirectional_lm': ('elmo', 'both_ways'),
  'tag': ('bilstm', 'tagged'),
  'span': ('bert', 'questions'),
  'bits': ('ntm', 'algorithmic'),
  'translation': ('bahdanau', 'translation'),
  'permutation_lm': ('xlnet', 'permutations'),
  'character_aux': ('character_transformer', 'windows'),
  'segment': ('cfnet', 'scenes'),
}
# What the model must be for all fields to matter.
OBJECTIVE_MODELS = {'translation': {'reading': 'hard'}, 'bits': {'I': 10, 'O': 9}}
# As MODEL_CHANGES, for objectives; None where the data decides the field.
ROWS = ('classify', 'regress', 'multiple_choice')
OBJECTIVE_CHANGES: dict = {
  ('bidirectional_lm', 'samples'): ({'samples': 5}, 7),
  ('bidirectional_lm', 'correct_target'): ({'samples': 5}, False),
  ('bits', 'lengths'): ({}, (2, 3)),
  ('segment', 'classes'): None,
  ('segment', 'background'): ({}, 'out'),
  ('segment', 'scales'): ({}, (1.0, 1.5)),
  ('segment', 'distances'): ({}, (3.0,)),
  **{
    (name, field): None  # tests/objectives/head_input_test.py has their test
    for name in ('classify', 'regress', 'multiple_choice', 'span', 'tag')
    for field in ('features', 'frozen', 'lstm_layers', 'lstm_width')
  },
  ('tag', 'labels'): None,
  ('tag', 'scorer'): None,  # tests/objectives/tag_test.py has its test
  ('tag', 'dropout'): ({}, 0.5),
  ('translation', 'smoothing'): ({}, 0.2),
  ('translation', 'smoothing_form'): ({'smoothing': 0.1}, 'released'),
  ('translation', 'validation'): ({'smoothing': 0.1}, 'smoothed'),
  ('translation', 'reinforce'): ({}, 1.0),
  ('translation', 'entropy'): ({}, 0.1),
  ('translation', 'baseline_decay'): ({'reinforce': 1.0}, 0.5),
  ('span', 'head'): ({}, 'xlnet'),
  ('span', 'begins'): None,  # of predictions; tests/objectives/span_test.py has its test
  ('span', 'ends'): None,
  ('span', 'null_weight'): ({'head': 'xlnet'}, 1.0),
  ('span', 'dropout'): ({'head': 'xlnet'}, 0.5),
  ('span', 'eps'): ({'head': 'xlnet'}, 0.5),
  ('classify', 'classes'): None,
  ('multiple_choice', 'choices'): None,
  ('multiple_choice', 'one_mask'): None,  # tests/objectives/rows_test.py has its test
  ('segment', 'window'): None,  # tests/objectives/segment_test.py has its test
  ('segment', 'base'): None,
  ('classify', 'metric'): None,  # what is shown, not what is computed
  ('classify', 'positive'): None,
  ('classify', 'positive_index'): None,
  ('regress', 'metric'): None,
  **{(name, 'reduction'): None for name in objectives.names()},  # tests/engine/reduction_test.py
  **{(name, 'init_std'): ({}, 0.5) for name in ROWS},
  **{(name, 'pooling'): ({}, 'last') for name in ROWS},
  **{(name, 'head'): ({}, (9, 8)) for name in ROWS},
  **{(name, 'activation'): ({}, 'tanh') for name in ROWS},
  **{(name, 'pieces'): ({'activation': 'maxout'}, 2) for name in ROWS},
  **{(name, 'bptt'): ({}, 8) for name in ROWS},
  **{(name, 'pooled_length'): ({'bptt': 8}, 8) for name in ROWS},
  **{(name, 'remat'): ({'bptt': 8}, True) for name in ROWS},
  **{(name, 'lm_weight'): ({'bptt': 0}, 0.5) for name in ROWS},
}


@pytest.mark.parametrize('name', objectives.names())
def test_every_field_of_an_objective_changes_what_is_computed(name):
  model, batching = OBJECTIVE_SETTINGS.get(name, ('rnn_lm', 'streams'))
  base = {
    'model': {'name': model, 'variant': 'tiny', **OBJECTIVE_MODELS.get(name, {})},
    'data': {
      'batching': {'name': batching, **(CHUNKS[batching] if batching in ('permutations', 'scenes') else {})},
      'length': 16,
      **SPELLED.get(batching, {}),
      **PIECES.get(batching, {}),
    },
    'train': {'steps': 1},
  }
  vocabulary = small_corpus(batching, batching in SPELLED).tokenizer.vocab_size

  def run_with(**changes):
    return settled(resolve.to_run(resolve.resolve({**base, 'objective': {'name': name, **changes}}), vocabulary))

  for field in dataclasses.fields(run_with().objective):
    old = getattr(run_with().objective, field.name)
    new = not old if isinstance(old, bool) else old * 2
    change = OBJECTIVE_CHANGES.get((name, field.name), ({}, new))
    if change is not None:
      context, value = change
      before, after = run_with(**context), run_with(**{**context, field.name: value})
      assert not same(before, after), f'{name}.{field.name} changes nothing'


# field -> (what must hold for it to matter, value).
OPTIM_CHANGES: dict = {
  'optimizer': ({}, 'sgd'),
  'accumulator': ({'optimizer': 'adagrad'}, 1.0),
  'rms_decay': ({'optimizer': 'rmsprop_graves'}, 0.5),
  'clip_value': ({'optimizer': 'sgd'}, 0.01),
  'lr': ({}, 0.5),
  'b1': ({}, 0.5),
  'b2': ({}, 0.9),
  'eps': ({}, 0.1),
  'eps_form': ({'eps': 0.1}, 'uncorrected'),
  'decay_form': ({'weight_decay': 0.1}, 'bias_corrected'),
  'momentum': ({'optimizer': 'sgd'}, 0.9),
  'nesterov': ({'optimizer': 'sgd', 'momentum': 0.9}, True),
  'weight_decay': ({}, 0.1),
  'clip_norm': ({}, 0.01),
  'schedule': ({}, 'cosine'),
  'warmup_steps': ({}, 10),
  'warmup_fraction': ({}, 0.1),
  'end_fraction': ({'schedule': 'linear'}, 0.5),
  'schedule_origin': ({'schedule': 'linear', 'warmup_steps': 10}, 'from_zero'),
  'decay_after_epochs': ({'schedule': 'step_decay'}, 2),
  'milestones': ({'schedule': 'milestones'}, (5.0,)),
  'decay_rate': ({'schedule': 'step_decay'}, 3.0),
  'decrease': ({'schedule': 'inverse_time'}, 0.1),
  'power': ({'schedule': 'poly'}, 2.0),
  'patience': ({'schedule': 'plateau'}, 1),
  'factor': ({'schedule': 'plateau'}, 0.25),
  'min_lr': ({'schedule': 'plateau', 'lr': 1.0}, 0.9),
  'threshold': ({'schedule': 'plateau'}, 0.6),
  'plateau_by': None,  # as the next three: tests/runs/progress_test.py
  'restore_best': None,
  'max_reductions': None,
  'stop_lr': None,
  'cut_fraction': ({'schedule': 'slanted_triangular'}, 0.5),
  'ratio': ({'schedule': 'slanted_triangular'}, 4.0),
  'min_cut': ({'schedule': 'slanted_triangular'}, 20),
  'width': ({'schedule': 'inverse_sqrt', 'warmup_steps': 10}, 16),
  'groups': ({}, (('b', 0.5, 1.0), ('.*', 1.0, 1.0))),
  'layer_decay': ({}, 0.5),
  'layer_decay_form': ({'layer_decay': 0.5}, 'as_paper'),  # the other two: tests/optim/groups_test.py
  'unfreeze_every': ({}, 5.0),
  'stages': ({'schedule': 'slanted_triangular'}, ((1, 1.0, 1.0, 0.3), (0, 0.0, 0.5, 0.1))),
  'ema': ({}, 0.9),
  'ema_debias': ({'ema': 0.9}, False),
  'asgd': ({}, 'start'),
  'nonmono': ({}, 6),
  'asgd_lag': ({'asgd': 'start'}, True),
  'accumulate': None,  # tests/engine/step_test.py
}


@functools.cache
def updates(cfg: build.Config) -> np.ndarray:
  """Two updates, the average after them, the rate over a run, and the plateau's factor after three validations."""
  params = {'model': {'a': jnp.array([1.0, 2.0]), 'b': jnp.array([3.0])}, 'objective': {}}
  depth = {('a',): 0, ('b',): 1}.__getitem__
  tx, rate = build.make(cfg, params, depth, 1, 100, 10), build.rate(cfg, 100, 10)
  opt_state, seen = tx.init(params), []
  ema = build.average(cfg, params)
  for i in range(2):
    grads = jax.tree.map(lambda p, i=i: 0.1 * p + i, params)
    now = jnp.float32(1.0 + i)
    scale = averaging.factor(ema, now, cfg.asgd_lag)
    change, opt_state = tx.update(grads, opt_state, params, step=jnp.int32(i + 20), lr_scale=scale)
    params = jax.tree.map(jnp.add, params, change)
    seen += jax.tree.leaves(params)
    ema = averaging.update(ema, params, cfg.ema, now=now, lag=cfg.asgd_lag)
    seen += jax.tree.leaves(averaging.value(ema, params))
  plateau = build.schedules.Plateau()
  for metric in (2.0, 1.0, 3.0):
    plateau = build.plateau(cfg, plateau, metric)
  scale = plateau.scale if cfg.schedule == 'plateau' else 1.0
  triggered = averaging.is_triggered([3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0], 2.5, cfg.nonmono)
  return np.concatenate([np.ravel(x) for x in [*seen, [rate(s) for s in range(0, 100, 3)], [scale, triggered]]])


def test_every_field_of_optim_changes_an_update_or_a_rate():
  assert {field.name for field in dataclasses.fields(build.Config)} == OPTIM_CHANGES.keys()
  for field, change in OPTIM_CHANGES.items():
    if change is not None:
      context, value = change
      one, two = updates(build.Config(**context)), updates(build.Config(**{**context, field: value}))
      assert one.shape != two.shape or not np.array_equal(one, two), f'optim.{field} changes nothing'


# field -> (what must hold for it to matter, value); None: decides what text is read, or how, as tests/data tests.
DATA_CHANGES: dict = {
  'dataset': None,
  'manual_dir': None,
  'cache_dir': None,
  'check_sizes': None,
  'split_fraction': None,
  'fold': None,  # tests/data/folds_test.py
  'hold_out_test': None,
  'split_names': None,  # tests/data/split_files_test.py
  'label_forms': None,  # tests/data/labels_test.py
  'source': None,
  'target': None,
  'texts': None,
  'label': None,
  'scores': None,
  'detokenize': None,
  'special_tokens': None,
  'marks': None,
  'vocabulary_splits': None,
  'reverse': None,
  'train_splits': None,
  'train_documents': None,
  'fraction': None,
  'documents': None,
  'tokenizer': None,
  'tokenizer_path': None,
  'column': None,
  'words': None,  # tests/data/word_budget_test.py
  'vectors': None,
  'other_rows': None,  # initial parameters: tests/runs/word_table_test.py
  'vocabularies': None,  # tests/data/parallel_builders_test.py
  'vocab_size': None,
  'target_vocab_size': None,
  'min_count': None,
  'lower_case': None,
  'prefix_space': None,
  'batching': ({}, 'windows'),
  'characters': ({'batching': 'tagged', 'length': 64, 'characters': 8}, 6),
  'batch_size': ({}, 5),
  'eval_batch_size': ({}, 3),
  'length': ({}, 20),
  'eval_length': ({}, 24),
  'shuffle': ({'batching': 'windows'}, False),
  'prefetch': None,
  'workers': None,
  'processes': None,  # tests/data/worker_processes_test.py
  'row_parts': ({'batching': 'windows'}, True),
}


_TREE = {'chunk': 16, 'negative': 0, 'top_nodes': 1}
_ANY = tuple(range(1, 256))
# (batching, field) or field -> (what must hold for it to matter, value); None: cannot be seen in these data.
BATCHING_CHANGES: dict = {
  'pool': ({}, 0),
  'groups': ({'buckets': _ANY}, 2),
  'rows_per_bucket': None,  # tests/data/batching/bucketed_test.py
  ('permutations', 'reuse'): ({'predictions': 4}, 6),
  ('permutations', 'chunk'): ({'predictions': 4}, 4),
  ('permutations', 'predictions'): ({'predictions': 4}, 3),
  ('permutations', 'spans'): ({'predictions': 4}, 'single'),
  ('permutations', 'context'): ({'predictions': 4}, 2),
  ('permutations', 'bidirectional'): ({'predictions': 4}, False),
  ('permutations', 'random_next_prob'): ({'predictions': 4}, 0.0),
  ('permutations', 'unbroken'): ({'predictions': 4}, 'drawn'),
  ('both_ways', 'reset_every'): ({}, 2),
  ('both_ways', 'documents'): ({}, 'all'),
  ('streams', 'counted'): ({}, 0.5),
  ('streams', 'stride'): ({}, 8),
  ('documents', 'buckets'): ({}, (8, 16)),
  ('tagged', 'buckets'): ({}, (8, 32)),
  ('tagged', 'form'): None,
  ('tagged', 'context'): None,  # tests/data/batching/tagged_test.py
  ('questions', 'form'): ({'question_length': 8}, 'xlnet'),
  ('questions', 'stride'): ({'question_length': 8}, 3),
  ('questions', 'question_length'): ({'question_length': 8}, 5),
  ('questions', 'buckets'): ({'question_length': 8}, (16,)),
  ('questions', 'pool'): ({'question_length': 8}, 0),
  ('questions', 'groups'): None,  # every batch has a window of all places; what it does is the same for all
  ('texts', 'form'): ({}, 'gpt'),
  ('texts', 'both_orders'): ({}, True),
  ('texts', 'second_length'): ({}, 2),
  ('texts', 'empty_second'): None,  # no text is empty here
  ('texts', 'truncation'): None,  # no two texts are truncated together here; tests/runs/rows_test.py
  ('texts', 'pad_id'): None,  # no text ends with it here; tests/runs/rows_test.py
  ('texts', 'buckets'): ({}, (24, 48)),
  ('texts', 'packed'): ({}, True),
  ('translation', 'tokens'): ({}, 128),
  ('translation', 'rows_multiple'): ({'tokens': 128}, 3),
  ('translation', 'buckets'): ({}, (8, 12)),
  ('images', 'base'): ({}, 40),
  ('images', 'scales'): ({}, (1.0, 1.5)),
  ('images', 'flip'): ({}, False),
  ('images', 'blur'): ({}, True),
  ('images', 'evaluation'): ({}, 'whole'),
  ('algorithmic', 'task'): ({}, 'recall'),
  ('algorithmic', 'bits'): ({}, 5),
  ('algorithmic', 'min_length'): ({}, 7),
  ('algorithmic', 'repeats'): ({'task': 'repeat_copy'}, 4),
  ('algorithmic', 'returned'): ({'task': 'sort'}, 4),
  ('algorithmic', 'context'): ({'task': 'ngrams', 'min_length': 12}, 3),
  ('algorithmic', 'sequences'): ({}, 8),
  ('algorithmic', 'eval_sequences'): ({}, 10),
  ('algorithmic', 'test_lengths'): ({}, (3, 30)),
  ('algorithmic', 'test_repeats'): ({'task': 'repeat_copy'}, 3),
  ('scenes', 'size'): ({'size': 8}, 7),
  ('scenes', 'shuffled'): ({'size': 8}, True),
  ('scenes', 'examples'): ({'size': 8}, 8),
  ('scenes', 'eval_examples'): ({'size': 8}, 10),
  ('streams', 'random_length'): ({}, True),
  ('streams', 'scale_rate'): ({'random_length': True}, False),
  ('streams', 'length_multiple'): ({'random_length': True}, 8),
  ('windows', 'stride'): ({}, 8),
  ('windows', 'ends'): None,
  ('windows', 'second'): ({}, True),
  ('windows', 'drawn'): ({}, 16),
  ('continuations', 'stop_words'): ({}, False),
  ('continuations', 'buckets'): ({}, (64,)),
  ('packed', 'packing'): ({}, 'split'),
  ('pairs', 'masking'): ({}, 'dynamic'),
  ('pairs', 'dupe_factor'): ({}, 2),
  ('pairs', 'mask_prob'): ({}, 0.5),
  ('pairs', 'max_predictions'): ({'mask_prob': 0.5}, 3),
  ('pairs', 'whole_word'): ({}, True),
  ('pairs', 'mask_share'): ({'mask_prob': 0.9}, 0.5),
  ('pairs', 'random_share'): ({'mask_prob': 0.9}, 0.2),
  ('pairs', 'random_specials'): ({'mask_prob': 0.9}, False),
  ('pairs', 'short_seq_prob'): ({}, 0.9),
  ('pairs', 'random_next_prob'): ({}, 0.0),
  ('skipgrams', 'window'): ({'chunk': 16}, 3),
  ('skipgrams', 'chunk'): ({'chunk': 16}, 8),
  ('skipgrams', 'sample'): ({'chunk': 16}, 0.1),
  ('skipgrams', 'negative'): ({'chunk': 16}, 3),
  ('skipgrams', 'shared_negatives'): ({'chunk': 16}, 0),
  ('skipgrams', 'noise_power'): ({'chunk': 16}, 0.5),
  ('skipgrams', 'top_nodes'): (_TREE, 2),
  ('skipgrams', 'path_slots'): (_TREE, 1),
  ('skipgrams', 'words_only'): ({'chunk': 16}, True),
}


@functools.cache
def first_batches(cfg: pipeline.Config) -> str:
  """Digest of a few batches of two epochs of training and of the evaluations."""
  found = hashlib.sha256()
  for split in ('train', 'valid', 'test'):
    corpus, train = small_corpus(cfg.batching.name, cfg.characters > 0), split == 'train'
    made = pipeline.batches(cfg, corpus, split, 0, train=train)
    made = made.pack() if made.packable else made
    for at in (0, 1, 2, made.steps, made.steps + 1) if train else (0, 1, 2):
      for key, array in sorted(made(at).items()):
        found.update(f'{key}{array.shape}{array.dtype}'.encode() + np.ascontiguousarray(array).tobytes())
  return found.hexdigest()


def test_every_field_of_data_changes_a_batch():
  assert {field.name for field in dataclasses.fields(pipeline.Config)} == DATA_CHANGES.keys()
  for field, change in DATA_CHANGES.items():
    if change is not None:
      context, value = change
      base = {'batch_size': 4, 'length': 16, **context}
      before, after = pipeline.Config(**base), pipeline.Config(**{**base, field: value})
      assert first_batches(before) != first_batches(after), f'data.{field} changes nothing'


@pytest.mark.parametrize('name', batching.names())
def test_every_field_of_a_batching_changes_a_batch(name):
  def batches_with(**options):
    data = {'batch_size': 4, 'length': 32 if name == 'documents' else 16} | SPELLED.get(name, {})
    data |= {'tokenizer': 'wordpiece', 'special_tokens': gpt.SPECIAL_TOKENS, 'length': 64} if name == 'texts' else {}
    data |= {'tokenizer': 'wordpiece', 'length': 20} if name == 'questions' else {}
    data |= {'length': 256} if name == 'continuations' else {}
    options = ({'dupe_factor': 1} if name == 'pairs' else {}) | options
    return first_batches(pipeline.Config(batching={'name': name, **options}, **data))

  for field in {field.name for field in dataclasses.fields(batching.get(name).Config)} - {'name'}:
    key = (name, field) if (name, field) in BATCHING_CHANGES else field
    assert key in BATCHING_CHANGES, f'say in BATCHING_CHANGES what data.batching.{field} may be changed to'
    if BATCHING_CHANGES[key] is not None:
      context, value = BATCHING_CHANGES[key]
      assert batches_with(**context) != batches_with(**{**context, field: value}), f'data.batching.{field}'


def test_seq2seq_experiment_points_to_its_successors():
  with pytest.raises(
    InputError, match='expected experiments/bahdanau/quickstart.py or experiments/luong/quickstart.py'
  ):
    resolve.load('experiments/seq2seq/quickstart.py:rnnsearch')
