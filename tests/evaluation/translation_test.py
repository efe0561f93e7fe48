"""A run that translates its split at the end, its checkpoints averaged, and the same through `lmx evaluate`."""

from __future__ import annotations

import json
import shutil

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

import lmx
from lmx import train
from lmx.checkpoint import manager
from lmx.cli import translate as cli
from lmx.cli.main import main
from lmx.config import resolve
from lmx.data import pipeline
from lmx.data.corpus import Corpus
from lmx.data.tokenizers import characters, words
from lmx.decoding import translate
from lmx.errors import InputError
from lmx.evaluation import report, translation
from lmx.layout import Layout
from lmx.metrics import translation as metrics
from lmx.reporting import run_log
from lmx.runs import restore
from tests import small_text

BASE = 'experiments/transformer/quickstart.py:tiny'
QUICK = (
  'parallel.data=1',
  'train.steps=6',
  'train.eval_every=2',
  'checkpoint.every_steps=2',
  'checkpoint.keep_last=3',
  'evaluation.which=average',
  'evaluation.average=3',
  'evaluation.beam=2',
  'evaluation.max_extra=4',
  'data.fraction=0.5',
  'data.batch_size=16',
  'data.batching.buckets=()',
  'model.encoder_layers=1',
  'model.decoder_layers=1',
  'model.dropout=0.0',
  'samples.count=2',
)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """Work directory of a run of six updates."""
  workdir = tmp_path_factory.mktemp('run')
  numbers = small_text.numbers(tmp_path_factory.mktemp('numbers'))
  assert train.train(resolve.load(BASE, [*QUICK, *numbers, 'train.best_by=bleu']), workdir) == 0
  return workdir


def figures(workdir):
  return json.loads((workdir / 'results.json').read_text())


def saved(workdir, step):
  params, _, _ = manager.restore_params(workdir / 'checkpoints', None, step)
  return jax.tree.map(np.asarray, params)


def test_end_of_a_run_translates_the_split(run):
  found = figures(run)
  written = (run / 'translations.txt').read_text().splitlines()
  run_cfg = resolve.to_run(json.loads((run / 'config.json').read_text()))
  corpus = pipeline.load(run_cfg.data)
  lines, references = translation.read_pairs(run_cfg, corpus, 'test')
  # The texts are those that the corpus holds tokens of, in its order, though only a part of them is used.
  split = corpus.splits['test']
  assert len(lines) == len(written) == found['sentences'] == (len(split.offsets) - 1) // 2 < 60
  for i, text in enumerate(text for pair in zip(lines, references, strict=True) for text in pair):
    ids = np.append(corpus.tokenizer.encode(text), corpus.tokenizer.eos_id)
    np.testing.assert_array_equal(split.tokens[split.offsets[i] : split.offsets[i + 1]], ids)
  expected = metrics.bleu(written, references)
  assert found['metric'] == 'bleu' and found['bleu'] == pytest.approx(expected.score)
  assert found['bleu_signature'] == expected.signature and 'version' in found['bleu_signature']
  assert found['exact_match'] == np.mean([a == b for a, b in zip(written, references, strict=True)])
  assert sum(row['sentences'] for row in found['bleu_by_length']) == len(lines)
  assert found['perplexity_per_token'] > 1 and 'beam 2' in found['decoding']
  assert found['protocol'].endswith(f'; translated with {found["decoding"]}')
  assert (run / 'bleu_by_length.png').stat().st_size > 1000
  assert (run / 'samples.txt').read_text().count('translation  ') == 2
  loaded = lmx.load(run, 'average')
  translator = translate.build_translator(loaded.run, loaded.params['model'], loaded.tokenizer)
  again = translate.translate(translator, lines, translation.decoding_options(run_cfg))
  assert [one[0].text for one in again] == written


def test_validations_translate_where_bleu_selects(run):
  found = {one['step']: one['bleu'] for one in run_log.read_metrics(run) if one['split'] == 'valid'}
  assert list(found) == [2, 4, 6] and figures(run)['validation_bleu'] == max(found.values())
  again = report.evaluate_restored(restore.load(run, 4), 'valid').metrics
  assert again['bleu'] == pytest.approx(found[4])


def test_search_matches_the_evaluation_section():
  chosen = {'evaluation.beam': 3, 'evaluation.alpha': 0.9, 'evaluation.penalty': 'power', 'evaluation.stop': 'full'}
  run_cfg = resolve.load(BASE, [f'{name}={value}' for name, value in chosen.items()])
  found = translation.decoding_options(run_cfg)
  assert (found.beam, found.alpha, found.penalty, found.stop) == tuple(chosen.values())
  assert found.search(()).stop == 'full'
  with pytest.raises(InputError, match='evaluation.stop'):
    resolve.load(BASE, ['evaluation.stop=soon'])


def test_parameters_measured_are_the_mean_of_the_checkpoints(run, tmp_path, capsys):
  assert figures(run)['averaged_steps'] == [2, 4, 6]
  trees = [saved(run, step) for step in (2, 4, 6)]
  loaded = lmx.load(run, 'average')
  assert loaded.averaged == (2, 4, 6) and loaded.step == 6
  for path, leaf in jax.tree_util.tree_leaves_with_path(loaded.params):
    each = [_at(tree, path) for tree in trees]
    assert leaf.dtype == np.float32
    np.testing.assert_allclose(leaf, np.mean(each, axis=0), rtol=1e-6, atol=1e-7)
  last = lmx.load(run, 'last')
  table = ('model', 'embed', 'tokens')
  assert last.averaged == () and not np.allclose(*(flatten_dict(x.params)[table] for x in (last, loaded)))
  # More are asked for than there are: those there are, and a warning.
  shapes = jax.eval_shape(lambda x: x, last.params)
  mean, steps = restore.average(run / 'checkpoints', shapes, Layout(), 9)
  jax.tree.map(np.testing.assert_array_equal, mean, loaded.params)
  assert steps == (2, 4, 6) and 'averaging 3 checkpoints instead of 9' in capsys.readouterr().err
  mean, steps = restore.average(run / 'checkpoints', shapes, Layout(), 1)
  assert steps == (6,)
  jax.tree.map(np.testing.assert_array_equal, mean, last.params)
  with pytest.raises(InputError, match='no intact checkpoint'):
    restore.average(tmp_path, shapes, Layout(), 2)


def _at(tree, path):
  for part in path:
    tree = tree[part.key]
  return tree


def test_mean_skips_a_damaged_checkpoint(run, tmp_path, capsys):
  copy = tmp_path / 'copy'
  shutil.copytree(run, copy)
  (entry,) = [path for path in (copy / 'checkpoints').iterdir() if '4' in path.name]
  for file in entry.rglob('*'):
    if file.is_file() and file.stat().st_size > 500:
      file.write_bytes(file.read_bytes()[:-9])
  assert lmx.load(copy, 'average').averaged == (2, 6)
  said = capsys.readouterr().err
  assert 'is damaged' in said and 'averaging 2 checkpoints instead of 3, steps 2, 6' in said


@pytest.mark.slow
def test_evaluate_measures_another_split_and_plots(run, tmp_path, capsys):
  call = ['evaluate', f'--workdir={run}', '--which=last', '--config.evaluation.beam=1', '--json']
  texts, picture = tmp_path / 'valid.txt', tmp_path / 'picture.png'
  assert main([*call, '--split=valid', f'--translations={texts}', '--config.evaluation.penalty=power']) == 0
  found = json.loads(capsys.readouterr().out)
  assert found['split'] == 'valid' and 'averaged_steps' not in found and 'beam 1, power' in found['decoding']
  assert len(texts.read_text().splitlines()) == found['sentences']
  assert main([*call, f'--by_length={picture}', f'--beside={run}']) == 0
  assert picture.stat().st_size > 1000
  capsys.readouterr()
  assert main([*call, '--split=valid', f'--by_length={picture}', f'--beside={run}']) == 2
  said = capsys.readouterr()
  assert 'was measured on parallel_files/test' in said.err and json.loads(said.out)['split'] == 'valid'
  assert main([*call, f'--beside={run}']) == 2
  assert '--beside: got it without --by_length' in capsys.readouterr().err
  assert main([*call[:3], '--config.evaluation.beam=0', f'--translations={texts}']) == 2
  assert 'need a beam' in capsys.readouterr().err
  assert main(['evaluate', f'--workdir={run}', '--which=average', '--config.evaluation.beam=0']) == 0
  assert 'mean of 3 checkpoints: 2, 4, 6' in capsys.readouterr().out


def test_path_that_cannot_be_written_is_rejected_before_the_measurement(run, tmp_path, monkeypatch, capsys):
  monkeypatch.delattr(report, 'evaluate_restored')
  call = ['evaluate', f'--workdir={run}', '--which=last', '--config.evaluation.beam=1']
  assert main([*call, f'--translations={tmp_path / "nowhere" / "x.txt"}']) == 2
  assert '--translations: got' in capsys.readouterr().err
  (tmp_path / 'x.txt').write_text('ein Haus\n')
  with pytest.raises(AttributeError):
    main([*call, f'--translations={tmp_path / "x.txt"}'])
  assert (tmp_path / 'x.txt').read_text() == 'ein Haus\n'


def test_runs_on_a_bucket_are_read(bucket, tmp_path):
  rows = [{'words': '1 to 10', 'above': 0, 'up_to': 10, 'bleu': 5.0, 'sentences': 3}]
  found = {'name': 'one', 'dataset': 'numbers', 'split': 'test', 'bleu_by_length': rows}
  (bucket / 'results.json').write_text(json.dumps(found | {'name': 'other'}))
  (bucket / 'data.json').write_text('{"hash": "", "imported_from": "x", "sides": ["en", "de"]}')
  translation.draw(tmp_path / 'picture.png', found, [str(bucket)])
  assert (tmp_path / 'picture.png').stat().st_size > 1000
  assert cli._sides(bucket) == ('en', 'de')


@pytest.mark.parametrize(
  ('overrides', 'message'),
  [
    (['evaluation.average=4'], 'set checkpoint.keep_last=4'),
    (['evaluation.which=mean'], 'evaluation.which'),
    (['evaluation.beam=-1'], 'evaluation.beam'),
    (['evaluation.penalty=none'], 'evaluation.penalty'),
    (['optim.ema=0.9'], 'average'),
    (['evaluation.average=0'], 'evaluation.average'),
  ],
)
def test_invalid_settings_are_rejected(overrides, message):
  with pytest.raises(InputError, match=message):
    resolve.to_run(resolve.load(BASE, [*QUICK, *overrides]))


def test_only_an_encoder_decoder_translates():
  with pytest.raises(InputError, match='gpt2 reads no source'):
    resolve.to_run(resolve.load('experiments/gpt2/quickstart.py:tiny', ['evaluation.beam=4']))


@pytest.mark.parametrize(
  ('path', 'most'),
  [
    ('bahdanau/wmt14.py', 3.0),
    ('rnn_encdec/wmt14.py', 3.0),
    ('rnn_encdec/wmt14.py:sutskever', 1.5),
    ('luong/wmt14.py', 1.5),
  ],
)
def test_recurrent_models_decode_as_their_papers_did(path, most):
  run = resolve.to_run(resolve.load(f'experiments/{path}'), 100)
  options = translation.decoding_options(run)
  assert (options.alpha, options.min_ratio, options.max_ratio, options.allow_unk) == (0, 0.5, most, True)
  assert translation.describe_decoding(options) == (
    f'beam 12, no length penalty, up to {most:g} times the source, at least 0.5 times, <unk> allowed'
  )


def test_pairs_without_unknown_words_are_selected():
  tokenizer = words.Words(['<eos>', '<unk>', 'a', 'b'], 'space')
  corpus = Corpus(tokenizer, {}, {}, '')
  lines, references = ['a b', 'a', 'x', 'b'], ['b', 'x', 'a', 'b a']
  assert translation._select_known(corpus, lines, references) == (['a b', 'b'], ['b', 'b a'])
  with pytest.raises(InputError, match='evaluation.known_only: got'):
    translation._select_known(corpus, lines[1:3], references[1:3])


def test_options_of_translations_reach_the_search(tmp_path):
  (tmp_path / 'words').write_text('a b\n')
  chosen = ['replace_unknown=true', 'allow_unk=true', 'coverage_penalty=0.2', f'dictionary={tmp_path}/words', 'beam=3']
  options = translation.decoding_options(resolve.load(BASE, [f'evaluation.{text}' for text in chosen]))
  assert options.aligns and options.dictionary == {'a': 'b'}
  assert 'coverage penalty 0.2, <unk> replaced by a dictionary' in translation.describe_decoding(options)
  for text, needed in (('known_only=true', 'evaluation.beam'), ('coverage_penalty=-1', 'evaluation.coverage_penalty')):
    with pytest.raises(InputError, match=needed):
      resolve.to_run(resolve.load(BASE, ['evaluation.beam=0', f'evaluation.{text}']))


def test_german_metrics_match_the_paper():
  texts = ['Der Hund läuft - schnell.', 'Ein Auto-Rennen beginnt heute Abend.']
  found = translation.compute_scores(texts, texts, ['a dog runs', 'a race'], ('en', 'de'))
  assert found['bleu'] == found['bleu_tokenised'] == pytest.approx(100) and found['exact_match'] == 1
  assert 'compounds:split' in found['bleu_tokenised_signature']
  shown = '\n'.join(translation.summary(found))
  assert 'bleu tokenised' in shown and 'chrf' in shown and 'exact match' in shown and '100.0%' in shown
  assert 'bleu_tokenised' not in translation.compute_scores(texts, texts, (), ('words', 'digits'))
  lowered = [text.lower() for text in texts]
  cased, plain = (translation.compute_scores(lowered, texts, ['a b', 'c'], lower_case=lower) for lower in (False, True))
  assert cased['bleu'] < 60 and plain['bleu'] == pytest.approx(100) and 'case:lc' in plain['bleu_signature']
  assert plain['bleu_by_length'][0]['bleu'] == pytest.approx(100)
  assert cased['chrf'] < 95 and plain['chrf'] == pytest.approx(100) and 'case:lc' in plain['chrf_signature']
  assert (cased['exact_match'], plain['exact_match']) == (0, 1)


@pytest.mark.parametrize(
  ('override', 'sides', 'eos', 'message'),
  [
    ('evaluation.alpha=10', ('a', 'b'), True, 'beam alpha'),
    ('evaluation.alpha=1', (), True, 'has no pairs'),
    ('evaluation.alpha=1', ('a', 'b'), False, 'no end-of-text token'),
  ],
)
def test_invalid_inputs_are_rejected_before_translating(override, sides, eos, message):
  run = resolve.to_run(resolve.load(BASE, [override, 'evaluation.penalty=power', 'evaluation.max_length=10000']), 300)
  with pytest.raises(InputError, match=message):
    translation.check(run, Corpus.from_texts({}, characters.Bytes(eos=eos), sides=sides))
