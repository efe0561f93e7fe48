"""Ensembles: the mean of the probabilities of language models and of encoder-decoders, and what has no ensemble."""

from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from lmx import train
from lmx.cli import main
from lmx.config import resolve
from lmx.data.tokenizers import characters, words
from lmx.decoding import translate
from lmx.errors import InputError
from lmx.evaluation import ensemble, evaluate
from lmx.registry import complete
from lmx.runs import restore
from lmx.types import Model
from tests import drawn, small_text, tiny_translator, untrained

tiny = complete(Model, tiny_translator)

QUICK = ('parallel.data=1', 'train.steps=2', 'train.eval_every=2', 'samples.count=0', 'evaluation.baselines=false')


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
  """Two seeds of a language model that carries its state over the whole split."""
  folder = tmp_path_factory.mktemp('runs')
  text = small_text.settings(folder, lines=40)
  data = ['data.tokenizer=words', 'data.vocab_size=0', 'data.eval_batch_size=1', 'data.eval_length=16']
  for seed in range(2):
    loaded = resolve.load('experiments/rnn_lm/quickstart.py:tiny', [*QUICK, *text, *data, f'seed={seed}'])
    assert train.train(loaded, folder / str(seed)) == 0
  return [folder / '0', folder / '1']


def probabilities(loaded, ids):
  """Return the probability of each token but the first given all before it: one pass, no batches."""
  tokens_BT = jnp.asarray(ids[None, :-1])
  features, _ = jax.jit(loaded.model.apply, static_argnums=0)(
    loaded.cfg, loaded.params['model'], {'tokens_BT': tokens_BT}, loaded.model.init_state(loaded.cfg, 1)
  )
  logits_TV = np.asarray(loaded.model.logits(loaded.cfg, loaded.params['model'], features))[0]
  return special.softmax(logits_TV.astype(np.float64), axis=-1)[np.arange(len(ids) - 1), ids[1:]]


def test_language_models_ensemble_is_the_mean_of_the_probabilities(runs, tmp_path, capsys):
  output = tmp_path / 'ensemble.json'
  command = ['evaluate', f'--workdir={runs[0]}', f'--ensemble={runs[1]}', '--split=valid', f'--output={output}']
  assert main.main(command) == 0
  assert 'mean of 2 language models' in capsys.readouterr().out
  metrics = json.loads(output.read_text())
  loaded = [restore.load(run) for run in runs]
  ids = np.asarray(loaded[0].corpus().splits['valid'].tokens)
  one, two = (probabilities(each, ids) for each in loaded)
  assert np.abs(one / two - 1).max() > 0.05
  assert metrics['perplexity_per_token'] == pytest.approx(np.exp(-np.log((one + two) / 2).mean()), rel=1e-5)
  assert [each['perplexity_per_token'] for each in metrics['members']] == pytest.approx(
    [np.exp(-np.log(p).mean()) for p in (one, two)], rel=1e-5
  )
  alone = tmp_path / 'alone.json'
  assert main.main(['evaluate', f'--workdir={runs[0]}', '--split=valid', f'--output={alone}', '--no-baselines']) == 0
  same, single = ensemble.evaluate([runs[0], runs[0]], 'valid').metrics, json.loads(alone.read_text())
  assert same['tokens_counted'] == single['tokens_counted'] == metrics['tokens_counted'] == len(ids) - 1
  for name in ('perplexity_per_token', 'perplexity_per_word', 'bits_per_character'):
    assert same[name] == pytest.approx(single[name], rel=1e-6)
  assert same['protocol'].startswith(single['protocol']) and 'mean of the probabilities of 2 runs' in same['protocol']


@pytest.mark.parametrize(
  ('config', 'change', 'message'),
  [
    ('rnn_lm/quickstart.py:tiny', 'evaluation.cache=(10,0.1,1.0)', 'evaluated without them'),
    ('bert/quickstart.py:tiny', 'evaluation.cache=()', 'got runs of the objective "masked_lm"'),
    ('xlnet/squad.py:tiny', 'evaluation.cache=()', 'objective "span" with the head "xlnet"'),
    ('transformer/quickstart.py:tiny', 'evaluation.beam=0', 'add --config.evaluation.beam=12'),
  ],
)
def test_objective_without_an_ensemble_is_rejected(config, change, message, monkeypatch):
  monkeypatch.setattr(restore, 'load', lambda *_: untrained.load(f'experiments/{config}', change))
  with pytest.raises(InputError, match=message):
    ensemble.evaluate(['a', 'b'], 'test')


def test_runs_that_differ_are_rejected(runs, monkeypatch, capsys):
  assert main.main(['evaluate', f'--workdir={runs[0]}', f'--ensemble={runs[1]}', '--cache=5,0.1,1']) == 2
  assert 'got it with --ensemble' in capsys.readouterr().err
  load = restore.load

  def changed(field, value):
    def other(workdir, *rest):
      loaded = load(workdir, *rest)
      return dataclasses.replace(loaded, **{field: value(loaded)}) if workdir == runs[1] else loaded

    return other

  for field, value, message in (
    ('tokenizer', lambda _: characters.Bytes(), f'has the vocabulary {characters.Bytes().hash[:12]}'),
    ('run', lambda one: dataclasses.replace(one.run, objective_name='tag'), 'has the objective tag'),
  ):
    monkeypatch.setattr(restore, 'load', changed(field, value))
    with pytest.raises(InputError, match=message):
      ensemble.evaluate(runs, 'valid')
  monkeypatch.setattr(restore, 'load', load)
  each = iter([np.array([np.nan, 1.0, 1.0]), np.array([np.nan, np.nan, 1.0])])
  monkeypatch.setattr(evaluate, 'token_nll', lambda *_: next(each))
  with pytest.raises(InputError, match='predicts other tokens'):
    ensemble.evaluate(runs, 'valid')


WORDS = [f'w{i}' for i in range(40)]
TOKENIZER = words.Words(['<eos>', '<unk>', *WORDS], 'prose')
LINES = ['w1 w2 w3 w9', 'w5', '', 'w20 w3 w3']


def _translator(seed):
  cfg = tiny.Config(V=TOKENIZER.vocab_size, T=30)
  return translate.Translator(tiny, cfg, drawn.params(tiny.init, cfg, seed=seed, std=0.6), TOKENIZER)


def test_beam_searches_the_mean_of_the_probabilities():
  one, two = _translator(0), _translator(1)
  both = translate.combine([one, two])
  options = translate.Options(beam=3, max_extra=5)
  found, alone = translate.translate(both, LINES, options), translate.translate(one, LINES, options)
  assert [h[0].text for h in found] != [h[0].text for h in alone]
  sources = both.sources(LINES)
  best = [np.asarray(h[0].tokens, np.int32) if h[0].tokens else np.zeros(1, np.int32) for h in found]
  first, second, mean = (translate.log_probabilities(each, sources, best) for each in (one, two, both))
  for a_T, b_T, m_T, h in zip(first, second, mean, found, strict=True):
    expected_T = np.log((np.exp(a_T.astype(np.float64)) + np.exp(b_T.astype(np.float64))) / 2)
    np.testing.assert_allclose(m_T, expected_T, rtol=1e-4, atol=1e-6)
    assert h[0].log_p == pytest.approx(expected_T.sum(), abs=1e-4)
  same = translate.translate(translate.combine([one, one]), LINES, options)
  assert [[h.tokens for h in each] for each in same] == [[h.tokens for h in each] for each in alone]
  np.testing.assert_allclose([h[0].log_p for h in same], [h[0].log_p for h in alone], rtol=1e-5, atol=1e-5)
