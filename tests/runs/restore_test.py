"""Parameters of one run as the start of another: parts, vocabularies that differ, and what does not fit."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from lmx import train
from lmx.checkpoint import manager
from lmx.config import resolve
from lmx.data import pipeline
from lmx.data.corpus import Corpus
from lmx.data.tokenizers import base, build, word_characters, words
from lmx.errors import InputError, InputWarning
from lmx.evaluation import training_words
from lmx.models import registry
from lmx.runs import init, restore, transfer
from tests import drawn, small_text, untrained

elmo = registry.get('elmo')
gpt = registry.get('gpt')

LM = 'experiments/ulmfit/lm.py:tiny'
CLASSIFIER = 'experiments/ulmfit/classifier.py:tiny'
SHORT = (
  'train.steps=2',
  'train.eval_every=2',
  'evaluation.split=valid',
  'evaluation.baselines=false',
  'samples.count=0',
  'parallel.data=1',
  *(f'model.dropout_{part}=0.0' for part in ('input', 'hidden', 'output', 'embedding', 'weight')),
)


@pytest.fixture(scope='module')
def text(tmp_path_factory):
  """Settings of a language model of 600 words, whose windows have one length."""
  words = [f'w{i}' for i in range(600)]
  settings = small_text.settings(tmp_path_factory.mktemp('text'), words, lines=800)
  return [*settings, 'data.batching.length_multiple=0']


@pytest.fixture(scope='module')
def first(text, tmp_path_factory):
  """A language model of two updates."""
  directory = tmp_path_factory.mktemp('first')
  assert train.train(resolve.load(LM, [*SHORT, *text, 'data.vocab_size=300']), directory) == 0
  return directory


def begun(workdir, *overrides, path=LM):
  """Parameters after one update of rate 0."""
  options = [*SHORT, 'train.steps=1', 'optim.lr=0', *overrides]
  assert train.train(resolve.load(path, options), workdir) == 0
  found, _, _ = manager.restore_params(workdir / 'checkpoints', None, 'last')
  return jax.tree.map(np.asarray, found)


def test_words_keep_their_rows_and_new_ones_get_the_mean_row(text, first, tmp_path, capsys):
  found = begun(tmp_path / 'run', *text, f'train.init_from={first}', 'data.vocab_size=500')['model']
  source = restore.load(first)
  theirs = jax.tree.map(np.asarray, source.params['model'])
  ours = build.load(str(tmp_path / 'run' / 'tokenizer'))
  known = {source.tokenizer.id_to_token(i): i for i in range(source.tokenizer.vocab_size)}
  both = 0
  for leaf, table in (('table', 'embed'), ('bias', 'output')):
    mine, other = found[table][leaf], theirs[table][leaf]
    assert len(mine) == ours.vocab_size == 500 and len(other) == 300
    for i in range(ours.vocab_size):
      word = ours.id_to_token(i)
      wanted = other[known[word]] if word in known else other.mean(0)
      np.testing.assert_allclose(mine[i], wanted, rtol=1e-5, atol=1e-7)
      both += word in known
  np.testing.assert_array_equal(found['layer_00']['recurrent'], theirs['layer_00']['recurrent'])
  said = capsys.readouterr().err
  assert f'{both // 2:,} of 500 vocabulary rows matched' in said and 200 < both // 2 <= 300


def test_character_model_keeps_rows_of_known_words(monkeypatch):
  """Its table has rows for the vocabulary proper alone, behind those of the ends of a sentence."""
  theirs = words.Words(['the', '<unk>', 'cat', '<eos>', 'mat', 'spelled'], 'prose', known=5)
  ours = words.Words(['mat', '<unk>', 'dog', '<eos>', 'the', 'cat', 'others'], 'prose', known=6)
  table = {'softmax': {'table': np.arange(12.0).reshape(6, 2), 'bias': np.arange(6.0)}}
  loaded = untrained.load('experiments/elmo/quickstart.py:tiny', params={'model': table}, tokenizer=theirs)
  monkeypatch.setattr(transfer.restore, 'load', lambda workdir, which: loaded)
  shapes = {'model': {'softmax': {'table': np.zeros((7, 2)), 'bias': np.zeros(7)}}}
  taken, note = transfer.copy('R', shapes, (), ours)
  np.testing.assert_allclose(taken['model']['softmax']['bias'], [0, 1, 2, 5, 2.5, 3, 4])  # <S> </S> <unk> mat dog ...
  np.testing.assert_allclose(taken['model']['softmax']['table'][:, 0], [0, 2, 4, 10, 5, 6, 8])
  assert '6 of 7 vocabulary rows matched' in note


def test_character_model_keeps_rows_of_known_subwords(monkeypatch):
  theirs, ours = (build.train('word_bpe', [text] * 3, vocab_size=12) for text in ('ab cd', 'cd ab x'))
  rows = 3 + theirs.vocab_size - 2
  table = {'softmax': {'table': np.ones((rows, 2)), 'bias': np.arange(float(rows))}}
  options = 'data.tokenizer=word_bpe', 'data.characters=8'
  loaded = untrained.load('experiments/elmo/quickstart.py:tiny', *options, params={'model': table}, tokenizer=theirs)
  monkeypatch.setattr(transfer.restore, 'load', lambda workdir, which: loaded)
  names = word_characters.vocabulary(ours)
  shapes = {'model': {'softmax': {'table': np.zeros((len(names), 2)), 'bias': np.zeros(len(names))}}}
  taken, _ = transfer.copy('R', shapes, (), ours)
  known = word_characters.vocabulary(theirs)
  expected = [known.index(name) if name in known else (rows - 1) / 2 for name in names]
  np.testing.assert_allclose(taken['model']['softmax']['bias'], expected)
  assert len({*expected}) > 4


def test_character_model_accepts_other_words(monkeypatch):
  own = words.Words(['the', '<unk>', 'cat', 'spelled'], 'prose', known=3)
  loaded = untrained.load('experiments/elmo/quickstart.py:tiny', tokenizer=own)
  corpus = Corpus(words.Words(['the', '<unk>', 'cat', 'others'], 'prose', known=3), {}, {}, '')
  monkeypatch.setattr(restore.pipeline, 'load', lambda data: corpus)
  assert loaded.corpus() is corpus
  without = dataclasses.replace(loaded, run=dataclasses.replace(loaded.run, data=pipeline.Config()))
  with pytest.raises(InputError, match='another tokenizer'):
    without.corpus()
  corpus = Corpus(words.Words(['the', '<unk>', 'dog', 'cat'], 'prose', known=3), {}, {}, '')
  with pytest.raises(InputError, match='another tokenizer'):
    loaded.corpus()


def test_other_images_than_those_of_the_run_are_reported(monkeypatch):
  texts = [words.Words([name, '<unk>'], 'prose') for name in ('a', 'b')]
  monkeypatch.setattr(
    restore.pipeline, 'load', lambda data: Corpus(texts[0], {}, {'dataset': {'name': 'generated'}}, '')
  )
  with pytest.raises(InputError, match='data set generated has other classes or images'):
    untrained.load('experiments/cfnet/quickstart.py:tiny', tokenizer=texts[1]).corpus()


def test_missing_initial_run_is_reported(tmp_path):
  with pytest.raises(InputError, match='nofile.pth: got no config.json'):
    restore.load(tmp_path / 'nofile.pth')


def test_partial_restore_initialises_the_rest(first, tmp_path):
  short = ('data.length=16', 'data.batching.buckets=()', f'data.tokenizer_path={first}/tokenizer')
  more = (f'train.init_from={first}', "train.init_parts=('model',)")
  found = begun(tmp_path / 'run', *short, *more, path=CLASSIFIER)
  jax.tree.map(np.testing.assert_array_equal, found['model'], dict(restore.load(first).params)['model'])
  scratch = begun(tmp_path / 'scratch', *short, path=CLASSIFIER)
  np.testing.assert_array_equal(found['objective']['block_0']['kernel'], scratch['objective']['block_0']['kernel'])


def shapes_of(params):
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), dict(params))


def test_tensor_may_map_to_another_path(first):
  loaded = restore.load(first)
  model = loaded.params['model']
  wanted = {'model': {'encoder': shapes_of(model), 'top': {'kernel': jax.ShapeDtypeStruct((2, 2), jnp.float32)}}}
  taken, note = transfer.copy(first, wanted, ('model=model/encoder',), loaded.tokenizer)
  assert set(taken['model']) == {'encoder'}
  jax.tree.map(np.testing.assert_array_equal, taken['model']['encoder'], jax.tree.map(np.asarray, dict(model)))
  assert 'of 11 arrays taken' in note and 'matched' not in note
  part, _ = transfer.copy(first, wanted, ('model/embed=model/encoder/embed',), loaded.tokenizer)
  assert set(part['model']['encoder']) == {'embed'}
  drawn = {'model': {'encoder': jax.tree.map(jnp.zeros_like, dict(model)), 'top': {'kernel': jnp.ones((2, 2))}}}
  whole = init.merge(drawn, part)
  assert np.abs(whole['model']['encoder']['embed']['table']).max() > 0
  assert whole['model']['top']['kernel'].min() == 1 and whole['model']['encoder']['layer_00']['recurrent'].max() == 0


def test_mismatched_tensors_are_reported(first):
  loaded = restore.load(first)
  assert restore.load(first, str(loaded.step)).step == loaded.step  # as a command line gives it
  wanted = shapes_of(loaded.params)
  with pytest.raises(InputError, match='this run has no parameters "modle"'):
    transfer.copy(first, wanted, ('modle',), loaded.tokenizer)
  wider = {'model': {**wanted['model'], 'layer_01': {**wanted['model']['layer_01']}}}
  wider['model']['layer_01']['recurrent'] = jax.ShapeDtypeStruct((16, 99), jnp.float32)
  with pytest.raises(InputError, match=r'got .*layer_01/recurrent \(\d+, \d+\); expected .*recurrent \(16, 99\)'):
    transfer.copy(first, wider, ('model',), loaded.tokenizer)
  more = {'model': {**wanted['model'], 'extra': {'kernel': wanted['model']['output']['bias']}}}
  with pytest.raises(InputError, match='lacks model/extra/kernel'):
    transfer.copy(first, more, ('model',), loaded.tokenizer)
  less = {'model': {k: v for k, v in wanted['model'].items() if k != 'layer_01'}}
  with pytest.raises(InputError, match=r'has model/layer_01/.*set train.init_parts="\(\'model\',\)"'):
    transfer.copy(first, less, (), loaded.tokenizer)
  strange = words.Words(['<unk0>', *(f'zz{i}' for i in range(298)), '<unk>'], 'prose')
  strange._ids.pop('<unk>')
  strange.tokens[-1] = 'zz298'
  with pytest.raises(InputError, match='no token in common'):
    transfer.copy(first, wanted, ('model',), strange)


def test_resumed_run_continues_its_state(text, first, tmp_path, capsys):
  more = (*SHORT, *text, 'data.vocab_size=300', f'train.init_from={first}', "train.init_parts=('model',)")
  assert train.train(resolve.load(LM, more), tmp_path / 'run') == 0
  assert 'initialised from step' in capsys.readouterr().err
  (tmp_path / 'run' / 'results.json').unlink()
  assert train.train(resolve.load(LM, more), tmp_path / 'run') == 0
  assert 'initialised from step' not in capsys.readouterr().err
  results, loaded = json.loads((tmp_path / 'run' / 'results.json').read_text()), restore.load(tmp_path / 'run')
  read = loaded.corpus().split('train').counts['words']
  assert results['steps'] == 2 and 0 < results['epochs'] < 1
  assert results['epochs'] == pytest.approx(training_words.at_steps(loaded, [2])[2] / read, abs=1e-3)


def test_positions_are_truncated_or_repeated(monkeypatch):
  small = lambda T: registry.config('gpt', 'tiny', V=11, T=T, N=1)
  params, tokenizer = drawn.params(gpt.init, small(8)), base.Absent(11)
  loaded = untrained.load('experiments/gpt/quickstart.py:tiny', params={'model': params}, tokenizer=tokenizer)
  monkeypatch.setattr(restore, 'load', lambda workdir, which: loaded)
  old = params['embed']['positions']
  for T in (5, 8, 20):
    wanted = jax.eval_shape(lambda T=T: gpt.init(small(T), jax.random.key(0)))
    taken, note = transfer.copy('DIR', {'model': wanted}, ('model',), tokenizer)
    np.testing.assert_array_equal(taken['model']['embed']['positions'], np.concatenate([old] * 3)[:T])
    assert (f'{T} positions of 8' in note) == (T != 8)


LAST = 'results.json is of 3 updates, whose last checkpoint is missing'
BEST = 'the checkpoint of the best validation is missing'
NONE = 'the last one; no validation has a finite score (train.best_by=pearson)'


@pytest.mark.parametrize(
  ('metrics', 'removed', 'which', 'note'),
  [
    ([2.0, 1.0, 3.0], 0, 'last', ''),
    ([2.0, 1.0, 3.0], 0, 'best', ''),
    ([2.0, 1.0, 3.0], 3, 'last', f'reads step 2; {LAST}'),
    ([2.0, 1.0, 3.0], 3, 'average', f'reads step 2; {LAST}'),
    ([2.0, 1.0, 3.0], 3, 2, ''),
    ([2.0, 1.0, 3.0], 3, 'best', ''),  # the results are those of step 2
    ([2.0, 1.0, 3.0], 2, 'best', f'reads step 1, the best one there; {BEST}'),
    ([None, 1.0, None], 2, 'best', f'reads step 3, the last one; {BEST}'),
    ([3.0, 2.0, 1.0], 3, 'best', f'reads step 2; {LAST}'),
    ([math.nan] * 3, 0, 'best', f'reads step 3, {NONE}'),
    ([None] * 3, 0, 'best', ''),
  ],
)
def test_missing_checkpoint_is_reported(metrics, removed, which, note, tmp_path):
  finite = [metric for metric in metrics if metric is not None and math.isfinite(metric)]
  with manager.Checkpoints(tmp_path / 'checkpoints', manager.Config(keep_last=3)) as checkpoints:
    for step, metric in enumerate(metrics, 1):
      progress = {'best': None, 'best_score': min((x for x in metrics[:step] if x in finite), default=None)}
      checkpoints.save(step, {'params': {'x': jnp.ones(1)}}, {'progress': progress}, metric)
  step = 1 + metrics.index(min(finite)) if finite else 3
  (tmp_path / 'results.json').write_text(json.dumps({'steps': 3, 'step': step}))
  if removed:
    shutil.rmtree(tmp_path / f'checkpoints/step_{removed:09d}')
  step = manager.restore_params(tmp_path / 'checkpoints', None, 'last' if which == 'average' else which)[2]
  assert restore.missing_note(epath.Path(tmp_path), which, step, 'pearson') == note


def test_log_of_a_run_without_results_tells_that_its_newest_checkpoint_is_missing(tmp_path):
  with manager.Checkpoints(tmp_path / 'checkpoints', manager.Config(keep_last=3)) as checkpoints:
    checkpoints.save(2, {'params': {'x': jnp.ones(1)}}, {})
  line = json.dumps({'step': 3, 'split': 'train', 'loss': 1.0})
  (tmp_path / 'metrics.jsonl').write_text(f'{line}\n')
  note = 'metrics.jsonl has updates until 3, whose checkpoint is missing'
  assert restore.missing_note(epath.Path(tmp_path), 'best', 2, 'loss') == f'reads step 2; {note}'
  shutil.rmtree(tmp_path / 'checkpoints/step_000000002')
  assert restore.missing_note(epath.Path(tmp_path), 'last', 0, '') == f'reads step 0; {note}'
  (tmp_path / 'metrics.jsonl').write_text(line.replace('3', '2') + '\n')
  assert not restore.missing_note(epath.Path(tmp_path), 'last', 2, '')


@pytest.mark.parametrize('selected', ['best', 'last'])
def test_checkpoint_of_the_results_is_the_default(first, monkeypatch, selected, tmp_path):
  shutil.copytree(first, run := tmp_path / 'run')
  config = json.loads((run / 'config.json').read_text())
  (run / 'checksums.json').unlink()
  (run / 'config.json').write_text(json.dumps(config | {'evaluation': config['evaluation'] | {'which': selected}}))
  read = []
  monkeypatch.setattr(manager, 'restore_params', lambda folder, shapes, which, **_: read.append(which) or 1 / 0)
  for given, expected in (((), selected), (('best',), 'best'), ((3,), 3)):
    with pytest.raises(ZeroDivisionError):
      restore.load(run, *given)
    assert read.pop() == expected


def test_other_held_out_rows_than_those_of_the_training_are_reported(first):
  with warnings.catch_warnings(action='error', category=InputWarning):
    restore.load(first, overrides=['data.split_fraction=0.05'])
  with pytest.warns(
    InputWarning, match=r'data.split_fraction is 0.2, 0.05 in training: rows held out here may be rows'
  ):
    restore.load(first, overrides=['data.split_fraction=0.2'])
