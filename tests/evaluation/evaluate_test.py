"""Metrics of a whole split: from the predictions where no sum tells, and the same for every evaluation batch."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
import scipy.stats

from lmx import objectives
from lmx.config import resolve
from lmx.data import pipeline
from lmx.data.batching import streams as streams_lib
from lmx.data.batching.base import Batches
from lmx.data.corpus import Corpus
from lmx.data.tokenizers.characters import Bytes
from lmx.engine import sharding, step
from lmx.errors import InputWarning
from lmx.evaluation import evaluate, parts, report
from lmx.evaluation.parts import ngrams
from lmx.metrics import language
from lmx.models import registry
from lmx.objectives import classify, rows, tag
from lmx.runs import init
from tests import untrained

regress = objectives.get('regress')

CONFIG = regress.Config(bptt=0)


class Rows(Batches):
  """Rows that are their own predictions."""

  def __init__(self, predictions_R, scores_R, batch_size):
    self.batch_size, self._train, self._shuffle, self.length = batch_size, False, False, 1
    self._values = {'x_B': predictions_R, 'scores_B': scores_R}
    self.examples, self.steps = len(scores_R), -(-len(scores_R) // batch_size)

  def _make(self, epoch, example_B, live_B):
    values = {name: x_R[example_B].astype(np.float32) for name, x_R in self._values.items()}
    return values | {'row_weights_B': live_B.astype(np.float32)}


def measured(monkeypatch, predictions_R, scores_R, batch_size, parallel_cfg, devices=1):
  """Metrics of a regression that predicts `predictions_R`."""
  monkeypatch.setattr(rows, 'read', lambda *given: rows.Read(given[4]['x_B'][:, None, None], None, None))
  engine = sharding.Engine(parallel_cfg, jax.devices()[:devices])
  eval_step = engine.compile_eval(step.make_eval_step(None, None, regress, CONFIG))
  batches = Rows(predictions_R, scores_R, batch_size)
  return regress.report(CONFIG, evaluate.measure(eval_step, (), lambda rows: (), batches, engine), {})


def drawn(offset):
  draw = np.random.default_rng(0)
  scores_R = offset + draw.normal(size=57)
  return (scores_R + 0.7 * draw.normal(size=57)).astype(np.float32), scores_R.astype(np.float32)


@pytest.mark.parametrize('offset', [0, 2_000, 50_000, 100_000])
def test_correlations_do_not_depend_on_the_mean(monkeypatch, offset):
  predictions_R, scores_R = drawn(offset)
  found = measured(monkeypatch, predictions_R, scores_R, 16, sharding.Config())
  pair = predictions_R.astype(np.float64), scores_R.astype(np.float64)
  assert found['pearson'] == pytest.approx(scipy.stats.pearsonr(*pair).statistic, abs=1e-12)
  assert found['spearman'] == pytest.approx(scipy.stats.spearmanr(*pair).statistic, abs=1e-12)
  assert 0.7 < found['pearson'] < 0.9


@pytest.mark.parametrize('mode', ['jit', 'pmap'])
def test_correlations_do_not_depend_on_batch_or_devices(monkeypatch, mode):
  given = drawn(50_000)
  expected = measured(monkeypatch, *given, 57, sharding.Config())
  for batch_size, devices in ((1, 1), (8, 4), (64, 8)):
    found = measured(monkeypatch, *given, batch_size, sharding.Config(mode=mode), devices)
    for name in ('pearson', 'spearman'):
      assert found[name] == pytest.approx(expected[name], abs=1e-12)


def test_constant_predictions_have_no_correlation(monkeypatch):
  scores_R = drawn(3)[1]
  for predictions_R in (np.full(57, 3.1), np.where(np.arange(57) % 2, 3.1, np.nextafter(np.float32(3.1), 4))):
    with pytest.warns(InputWarning, match='NaN: the 57 predictions are all 3.1'):
      found = measured(monkeypatch, predictions_R, scores_R, 8, sharding.Config())
    assert np.isnan([found['pearson'], found['spearman']]).all() and found['rmse'] > 0


def test_score_of_validations_is_found_without_a_warning(recwarn):
  """Its name is found by a report on values that are all equal."""
  run = untrained.load('experiments/self_attention/tasks.py:own_scores').run
  objective = objectives.get(run.objective_name)
  batches = type('Batches', (), {'batch_size': 4, '__call__': lambda *_: objective.shapes(run.objective, 4, 8)})()
  params = jax.eval_shape(lambda: init.init_params(run, jax.random.key(0)))
  assert evaluate.score_name(run, params, batches, {}) == 'pearson'
  assert not [one for one in recwarn if issubclass(one.category, InputWarning)]


def test_classes_are_shown_by_their_labels():
  for path, names in (
    ('gpt/tasks.py:tiny', {'accuracy_class_0': 'accuracy of World', 'accuracy_class_1': 'accuracy of Sports'}),
    ('cfnet/quickstart.py:tiny', {'iou_class_0': 'iou of World', 'iou_class_1': 'iou of Sports'}),
    ('rnn_lm/quickstart.py:tiny', {}),
  ):
    run = untrained.load(f'experiments/{path}').run
    assert evaluate.metric_captions(run, {'label_names': ['World', 'Sports']}, {}) == names


@pytest.mark.parametrize(('positives', 'message'), [(0, 'has no row of class "b"'), (4, 'has only rows of class "b"')])
def test_f1_names_its_class_and_warns_if_undefined(positives, message):
  objective = classify.Config(classes=2, positive_index=1)
  run = dataclasses.replace(untrained.load('experiments/gpt/tasks.py:tiny').run, objective=objective)
  assert evaluate.metric_captions(run, {'label_names': ['a', 'b']}, {'f1': 0.0})['f1'] == 'f1 of b'
  (note,) = classify.undefined(objective, {'is_positive': (float(positives), 4.0)}, ['a', 'b'], 'test')
  assert message in note and not classify.undefined(objective, {'is_positive': (2.0, 4.0)}, ['a', 'b'], 'test')
  (note,) = tag.undefined(None, {'spans_true': (0.0, 1.0)}, (), 'test')
  assert 'split test has no spans' in note


def test_overflowing_word_perplexity_is_hidden():
  run = untrained.load('experiments/rnn_lm/quickstart.py:tiny').run
  figures = {'perplexity_per_word': 3e13, 'bits_per_character': 7.5}
  assert evaluate.metric_captions(run, {}, figures) == {'perplexity_per_word': ''}
  assert evaluate.metric_captions(run, {}, {**figures, 'perplexity_per_word': 5e3}) == {}
  assert evaluate.metric_captions(run, {}, {'perplexity_per_word': 3e13}) == {}  # of a text of no characters


@pytest.mark.parametrize(
  ('text', 'has_words'),
  [
    ('我喜欢在公园里散步。今天的天气非常好', False),
    ('an even text', True),
    ('acgtacgtaggtccatagctacgactagctagc', False),
  ],
)
def test_text_without_spaces_has_no_count_of_words(text, has_words):
  corpus = Corpus.from_texts({'test': [text] * 3}, Bytes())
  counts = evaluate.text_counts(corpus, 'test')
  assert ('words' in counts) == has_words and counts['characters'] == 3 * len(text)
  corpus = dataclasses.replace(corpus, splits={'train': corpus.splits['test'], **corpus.splits})
  run = resolve.to_run(resolve.load('experiments/gpt2/quickstart.py:tiny', ['evaluation.order=2']))
  found = ngrams.measure(parts.Subject(run, corpus, {}, None, 'test')).metrics
  assert ('perplexity_per_word' in found['baselines']['unigram']) == has_words
  headline = language.headline(language.report(1.0, 1, counts))
  assert headline == ('perplexity_per_word' if has_words else 'bits_per_character')


def test_unknown_words_of_text_files_are_spelled(tmp_path, monkeypatch):
  """The metrics charge unknown words where their text is still there, and results say whether they do."""
  monkeypatch.setenv('LMX_CACHE', str(tmp_path / 'cache'))
  for split, text in (('train', 'a b a b c'), ('valid', 'a'), ('test', 'a zyx <unk> b\n\nκ a.')):
    (tmp_path / f'{split}.txt').write_text(f'{text}\n')
  settings = ['data.dataset=text_files', f'data.manual_dir={tmp_path}', 'data.eval_batch_size=1']
  run = resolve.to_run(resolve.load('experiments/rnn_lm/quickstart.py:tiny', settings), 6)
  corpus = pipeline.load(run.data)
  unknown = {'unknown_words': 3, 'unknown_bytes': 6}  # zyx, κ and the full stop
  assert unknown.items() <= evaluate.text_counts(corpus, 'test', run.data).items()
  assert evaluate.text_counts(corpus, 'valid', run.data)['unknown_words'] == 0
  found = evaluate.compute_results(run, corpus, 'test', {'nll': (20.0, 10.0)})
  assert found['unknown_charged'] and found['unknown_words'] == 3
  bits = (20 + 9 * np.log(257)) / np.log(2) / corpus.splits['test'].counts['bytes']
  assert found['bits_per_byte_with_spelling'] == pytest.approx(bits)
  shown = report.summary(found, objectives.get('causal_lm'))
  assert shown.partition('bits per byte with spelling')[2].split()[0] == f'{bits:.3f}'
  assert f'(perplexity per word counts {len(corpus.splits["test"].tokens)} tokens)' in shown
  assert '(3 unknown words not charged; metrics with spelling charge them)' in shown
  assert 'unknown_charged' not in evaluate.compute_results(run, corpus, 'valid', {'nll': (2.0, 1.0)})
  without = dataclasses.replace(corpus, splits={name: corpus.splits[name] for name in ('train', 'test')})
  baseline = ngrams.measure(parts.Subject(run, without, {}, None, 'test', False)).metrics['baselines']['unigram']
  assert baseline['unknown_words'] == 3
  (tmp_path / 'test.txt').write_text('a b\n')
  found = evaluate.compute_results(run, corpus, 'test', {'nll': (20.0, 10.0)})
  assert not found['unknown_charged'] and 'bits_per_byte_with_spelling' not in found
  (tmp_path / 'test.txt').unlink()
  assert 'unknown_words' not in evaluate.text_counts(corpus, 'test', run.data)


def test_drawn_windows_have_no_metric_of_the_whole_text(tmp_path, monkeypatch):
  """The words and bytes of a split are no denominators for the loss of some of its windows."""
  monkeypatch.setenv('LMX_CACHE', str(tmp_path / 'cache'))
  (tmp_path / 'train.txt').write_text('a b a b c ' * 40)
  (tmp_path / 'test.txt').write_text('a zyx b ' * 40)
  settings = ['data.dataset=text_files', f'data.manual_dir={tmp_path}', 'data.tokenizer=words', 'data.split_fraction=0']
  for drawn, names in ((0, {'perplexity_per_word', 'bits_per_byte'}), (6, set())):
    run = resolve.to_run(
      resolve.load('experiments/gpt2/quickstart.py:tiny', [*settings, f'data.batching.drawn={drawn}']), 6
    )
    found = evaluate.compute_results(run, pipeline.load(run.data), 'test', {'nll': (20.0, 10.0)})
    assert found.keys() & {'perplexity_per_word', 'bits_per_byte', 'bits_per_byte_with_spelling'} >= names
    assert (names == set()) == ('bits_per_byte' not in found) and found['loss'] == 2.0
    starts = [
      evaluate.final_batches(dataclasses.replace(run, seed=seed), pipeline.load(run.data), 'test')(0)[
        'tokens_BT'
      ].tolist()
      for seed in (0, 0, 1)
    ]
    assert starts[0] == starts[1] and (starts[0] == starts[2]) == (not drawn), 'another run draws other windows'
    assert found['unknown_charged'] == (not drawn) and ('6 windows at random places' in found['protocol']) == bool(
      drawn
    )


@pytest.fixture(scope='module')
def streams():
  """A tiny AWD-LSTM and the sums over its validation split in streams, one row after the other on one device."""
  run = resolve.to_run(resolve.load('experiments/awd_lstm/quickstart.py:tiny', ['data.eval_batch_size=3']))
  text = 'the cat sat on the mat and the dog saw it . ' * 40
  corpus = Corpus.from_texts({'valid': [text]}, Bytes())
  run = dataclasses.replace(
    run,
    model=dataclasses.replace(run.model, V=256),
    data=dataclasses.replace(run.data, batching=streams_lib.Config(), length=16),
  )
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  params = {'model': jax.jit(lambda: model.init(run.model, jax.random.key(0)))(), 'objective': {}}

  def totals(devices=1, **parallel_cfg):
    engine = sharding.Engine(sharding.Config(**parallel_cfg), jax.devices()[:devices])
    eval_step = engine.compile_eval(step.make_eval_step(model, run.model, objective, run.objective))
    batches = pipeline.batches(run.data, corpus, 'valid', 0, train=False)
    begin = lambda rows: model.init_state(run.model, rows)
    return evaluate.measure(eval_step, engine.build(lambda p: p, params), begin, batches, engine)

  return totals, totals()


@pytest.mark.parametrize(
  ('devices', 'cfg'), [(4, {}), (8, {'fsdp': 2}), (4, {'mode': 'pmap'}), (8, {'tensor': 2, 'fsdp': 4})]
)
def test_indivisible_rows_are_evaluated_exactly(streams, devices, cfg):
  totals, expected = streams
  found = totals(devices, **cfg)
  assert found['nll'][1] == expected['nll'][1] == 1759
  assert found['nll'][0] == pytest.approx(expected['nll'][0], rel=1e-6)
