"""A run whose source and target have separate vocabularies: its training, resumption, evaluation and translations."""

from __future__ import annotations

import collections
import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from lmx import train
from lmx.cli.main import main
from lmx.config import resolve
from lmx.data import pipeline
from lmx.data.tokenizers import words
from lmx.decoding import translate
from lmx.errors import InputError
from lmx.prediction import word_vectors
from lmx.runs import init, restore, transfer, word_table
from tests import small_text

BASE = 'experiments/luong/quickstart.py:tiny'
QUICK = (
  'data.vocabularies=separate',
  'data.vocab_size=8',
  'data.target_vocab_size=24',
  'model.window=global',
  'train.steps=4',
  'train.eval_every=4',
  'checkpoint.every_steps=2',
  'evaluation.beam=1',
  'evaluation.max_extra=4',
  'evaluation.allow_unk=true',
  'evaluation.replace_unknown=true',
  'data.fraction=0.5',
  'samples.count=0',
)

DATA = [f'data.{name}' for name in ('dataset', 'manual_dir', 'source', 'target', 'vocabularies', 'vocab_size')]
DATA += ['data.target_vocab_size']


@pytest.fixture(scope='module')
def numbers(tmp_path_factory):
  """Settings of pairs of numbers in digits and in words."""
  settings = small_text.numbers(tmp_path_factory.mktemp('numbers'), train=300, held_out=30)
  return [*settings, 'data.source=digits', 'data.target=words']


@pytest.fixture(scope='module')
def run(numbers, tmp_path_factory):
  """Work directory of a run of four updates."""
  workdir = tmp_path_factory.mktemp('run')
  assert train.train(resolve.load(BASE, [*QUICK, *numbers]), workdir) == 0
  return workdir


@pytest.fixture(scope='module')
def loaded(run):
  return restore.load(run, 'last')


def test_each_side_has_its_vocabulary_and_its_table(run, loaded):
  source, target = loaded.tokenizer, loaded.tokenizer.target
  assert (loaded.cfg.source_V, loaded.cfg.V) == (source.vocab_size, target.vocab_size) == (8, 24)
  embed = loaded.params['model']['embed']
  assert (len(embed['source']), len(embed['target'])) == (8, 24)
  assert len(loaded.params['model']['output']['table']) == 24
  split = loaded.corpus().splits['test']
  for begin, middle, end in zip(split.offsets[:-1:2], split.offsets[1::2], split.offsets[2::2], strict=True):
    assert (split.tokens[begin:middle] < 8).all() and split.tokens[middle - 1] == source.eos_id
    assert (split.tokens[middle:end] < 24).all() and split.tokens[end - 1] == target.eos_id
  batch = pipeline.batches(loaded.run.data, loaded.corpus(), 'test', 0, train=False)(0)
  last_B = batch['source_valid_BS'].sum(1) - 1
  assert (batch['source_BS'][np.arange(len(last_B)), last_B] == source.eos_id).all()
  assert (batch['tokens_BT'][:, 0] == target.eos_id).all()


@pytest.mark.slow
def test_resumed_run_ends_with_the_same_parameters(run, loaded, numbers, tmp_path):
  shutil.copytree(run, tmp_path / 'run')
  shutil.rmtree(tmp_path / 'run' / 'checkpoints' / 'step_000000004')
  (tmp_path / 'run' / 'results.json').unlink()
  assert train.train(resolve.load(BASE, [*QUICK, *numbers]), tmp_path / 'run') == 0
  again = restore.load(tmp_path / 'run', 'last')
  assert again.step == loaded.step == 4
  jax.tree.map(np.testing.assert_array_equal, again.params, loaded.params)


def test_unknown_words_are_replaced_and_alignments_are_between_the_words_of_both_sides(run, loaded, tmp_path, capsys):
  """Of the translation's unknown words each becomes the source word with the greatest weight."""
  translator = translate.build_translator(loaded.run, loaded.params['model'], loaded.tokenizer)
  target = loaded.tokenizer.target
  biased = jax.tree.map(np.array, translator.params)
  biased['output']['bias'][[target.unk_id, target.eos_id]] += (2.0, -2.0)
  translator = dataclasses.replace(translator, params=biased)
  options = translate.Options(sample=True, max_extra=8, allow_unk=True)
  lines = ['3 1 2', '7']
  plain = translate.translate(translator, lines, options)
  replaced = translate.translate(translator, lines, dataclasses.replace(options, replace_unknown=True))
  weights = translate.alignments(translator, translator.sources(lines), [np.asarray(x[0].tokens) for x in plain])
  for line, one, other, a_TS in zip(lines, plain, replaced, weights, strict=True):
    ids = [i for i in one[0].tokens if i != target.eos_id]
    assert target.unk_id in ids and max(ids) >= 8 and one[0].text == ' '.join(map(target.id_to_token, ids))
    words = [line.split()[int(a_S[:-1].argmax())] for a_S in a_TS]
    expected = [words[t] if i == target.unk_id else target.id_to_token(i) for t, i in enumerate(ids)]
    assert other[0].text == ' '.join(expected)
  for name, text in (('source', '7\n1 2\n'), ('target', 'seven\ntwelve\n'), ('gold', '0-0\n0-0 1p0\n')):
    (tmp_path / name).write_text(text)
  command = ['translate', f'--workdir={run}', f'--input={tmp_path}/source', f'--reference={tmp_path}/target']
  command += [
    f'--alignments={tmp_path}/gold',
    f'--metrics={tmp_path}/out.json',
    f'--output={tmp_path}/hypotheses',
    '--beam=1',
  ]
  assert main(command) == 0
  assert 0 <= json.loads((tmp_path / 'out.json').read_text())['alignment_error_rate'] <= 1
  settings = [f'--config.{key}={getattr(loaded.run.data, key.partition(".")[2])}' for key in DATA]
  assert main(['ngrams', '--config=experiments/luong/quickstart.py:tiny', *settings, '--models=ikn3']) == 2
  assert 'data.vocabularies: got separate ones' in capsys.readouterr().err


def test_rows_of_each_table_are_matched_by_the_tokens_of_their_side(run, loaded):
  shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), loaded.params)
  source, target = (words.Words([*one.tokens[::-1]], one.rule) for one in (loaded.tokenizer, loaded.tokenizer.target))
  taken, note = transfer.copy(run, shapes, (), source.with_target(target))
  for side in ('source', 'target'):
    table = loaded.params['model']['embed'][side]
    np.testing.assert_array_equal(taken['model']['embed'][side], table[::-1])
  np.testing.assert_array_equal(taken['model']['output']['bias'], loaded.params['model']['output']['bias'][::-1])
  counts = [f'{V} of {V} vocabulary rows matched' for V in (8, 24)]
  assert all(count in note for count in counts)


@pytest.mark.parametrize('target', ['target', 'tokens'])  # the table of recurrent models, and of transformers
def test_word_vectors_pair_each_sides_words_with_its_table(target, loaded):
  tables = {'source': np.arange(16.0).reshape(8, 2), target: -np.arange(48.0).reshape(24, 2)}
  one = dataclasses.replace(loaded, params={'model': {'embed': tables}})
  split = loaded.corpus().splits['train']
  documents = np.split(np.asarray(split.tokens), split.offsets[1:-1])
  for start, side in enumerate(('source', 'target')):
    tokenizer = (loaded.tokenizer, loaded.tokenizer.target)[start]
    counts = collections.Counter(tokenizer.ids_to_tokens(np.concatenate(documents[start::2])))
    found = word_vectors.from_run(one, side)
    assert {*found.words} == {*counts} - {'<eos>', '<unk>'}
    assert [counts[word] for word in found.words] == sorted((counts[word] for word in found.words), reverse=True)
    rows = [tokenizer.tokens.index(word) for word in found.words]
    np.testing.assert_array_equal(found.raw_VD, tables[side if start == 0 else target][rows])


def test_vectors_needs_the_side_of_a_run_with_two_tables(run, tmp_path, capsys):
  assert main(['vectors', f'--workdir={run}', '--nearest=7']) == 2
  assert '--side: got none; expected source or target' in capsys.readouterr().err
  assert main(['vectors', f'--workdir={run}', '--side=target', f'--export={tmp_path}/v.txt']) == 0
  exported = {line.split()[0] for line in (tmp_path / 'v.txt').read_text().splitlines()[1:]}
  assert {'seven', 'hundred'} <= exported and not exported & set('0123456789')
  assert main(['vectors', f'--vectors={tmp_path}/v.txt', '--side=source']) == 2
  assert '--side: got source with --vectors' in capsys.readouterr().err


@pytest.mark.parametrize('model, target', [(BASE, 'target'), ('experiments/transformer/quickstart.py:tiny', 'tokens')])
def test_file_of_vectors_gives_rows_to_the_words_of_each_side(model, target, loaded, numbers, tmp_path):
  tokens = {'source': loaded.tokenizer.tokens, target: loaded.tokenizer.target.tokens}
  given = [word for word in tokens['source'] if word.isdigit()][:3] + ['seven', 'nine']
  settings = [*numbers, 'data.vocabularies=separate', f'train.init_from={tmp_path}/v.txt']
  of = resolve.to_run(resolve.load(model, settings), 24, source_size=8)
  shapes = jax.eval_shape(lambda key: init.init_params(of, key), jax.random.key(3))
  width = shapes['model']['embed']['source'].shape[1]
  (tmp_path / 'v.txt').write_text(''.join(f'{word}{f" {i}.5" * width}\n' for i, word in enumerate(given)))
  taken, note = word_table.take(of, shapes, loaded.corpus(), jax.random.key(3))
  assert {*taken['model']} == {'embed'} and {*taken['model']['embed']} == {'source', target}
  own = jax.jit(lambda key: init.init_params(of, key)['model']['embed'])(jax.random.key(3))
  for name, known in tokens.items():
    expected = np.array(own[name])
    for i, word in enumerate(given):
      if word in known:
        expected[known.index(word)] = i + 0.5
    np.testing.assert_array_equal(taken['model']['embed'][name], expected)
  assert "model/embed/source (source's words): 3 of 8 rows" in note
  assert f"model/embed/{target} (target's words): 2 of 24 rows" in note and '5 as written' in note


def test_models_and_sizes_that_separate_vocabularies_do_not_fit_are_rejected(numbers):
  with pytest.raises(InputError, match='data.vocabularies: got "separate" with model.shared=true'):
    resolve.to_run(resolve.load(BASE, [*QUICK, *numbers, 'model.shared=true']))
  for override, message in (('shared=true', 'model.shared: got true'), ('source_V=5', 'model.source_V: got 5; .* 30')):
    with pytest.raises(InputError, match=message):
      resolve.to_run(resolve.load(BASE, [*QUICK, *numbers, f'model.{override}']), 8, source_size=30)
  config = resolve.load('experiments/gpt2/quickstart.py:tiny')
  with pytest.raises(InputError, match='data.vocabularies: got "separate" with model gpt2'):
    resolve.to_run(config, 8, source_size=30)
  with pytest.raises(InputError, match='model.source_V: got 5; expected at least 8'):
    resolve.to_run(resolve.load('experiments/transformer/quickstart.py:tiny', ['model.source_V=5']), 8)
