"""Scores of texts: they sum to 1 over all strings, depend on no other text, and equal each method's equation."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from lmx.data.tokenizers import build, word_characters
from lmx.data.tokenizers.words import Words
from lmx.errors import InputError
from lmx.scoring import sentences
from lmx.scoring.scorer import METHODS, RunScorer, methods
from lmx.types import Features
from tests import drawn, untrained

LETTERS = Words(['<unk>', '<eos>', 'a', 'b'], 'space')
LINES = ['the cat sat on the mat', 'a cat', 'the dogs of the house sat', 'cat', 'the mat sat on a cat of the dog house']
CAUSAL = ('rnn_lm', 'gpt2', 'transformer_xl', 'nplm', 'awd_lstm', 'gpt')


def load(name, tokenizer, *overrides, std=0.2):
  if name == 'transformer_xl':
    overrides = (*overrides, 'model.cutoffs=()')
  run = untrained.load(f'experiments/{name}/quickstart.py:tiny', *overrides, tokenizer=tokenizer)
  return dataclasses.replace(run, params={'model': drawn.params(run.model.init, run.cfg, std=std)})


@pytest.fixture(scope='module')
def subwords():
  return build.train('wordpiece', LINES * 20, vocab_size=60)


def scores(scorer, texts):
  return list(sentences.score(scorer, texts))


@pytest.mark.parametrize('name', CAUSAL)
def test_probabilities_of_all_strings_sum_to_one(name):
  """Ended strings shorter than 3 and unended ones of length 3 share out the whole probability."""
  run = load(name, LETTERS)
  ended, unended = RunScorer(run, end=True), RunScorer(run)
  words = ['a', 'b', '<unk>']
  short = [' '.join(text) for n in (1, 2) for text in itertools.product(words, repeat=n)]
  total = sum(np.exp(one.sum) for one in scores(ended, short))
  total += sum(
    np.exp(one.sum) for one in scores(unended, [' '.join(text) for text in itertools.product(words, repeat=3)])
  )
  empty = 1 - sum(np.exp(one.sum) for one in scores(unended, words))  # the end comes first
  assert abs(total + empty - 1) < 1e-5


@pytest.mark.parametrize('name', [*CAUSAL, 'bert', 'xlnet'])
def test_scores_do_not_depend_on_other_texts(name, subwords):
  tokenizer = build.train('unigram', LINES * 20, vocab_size=400, marks='xlnet') if name == 'xlnet' else subwords
  run = load(name, tokenizer)
  for method in methods(run):
    scorer = RunScorer(run, method)
    together = scores(scorer, LINES)
    for text, one in zip(LINES[::-1], scores(scorer, LINES[::-1]), strict=True):
      (alone,) = scores(scorer, [text])
      other = next(score for score in together if score.text == text)
      np.testing.assert_allclose(one.log_p_T, alone.log_p_T, atol=1e-5)
      np.testing.assert_allclose(other.log_p_T, alone.log_p_T, atol=1e-5)


def log_p(run, batch, position, token, state=()):
  features, _ = run.model.apply(run.cfg, run.params['model'], batch, state)
  x = features.query_BPD if features.query_BPD is not None else features.last_BTD[:, position : position + 1]
  return float(jax.nn.log_softmax(run.model.logits(run.cfg, run.params['model'], Features(x))[0, 0])[token])


def test_bert_scores_follow_their_equations(subwords):
  run = load('bert', subwords)
  text = 'the catsat mathouse of dogs'
  ids = subwords.encode(text)
  starts = subwords.starts_word(ids)
  assert not starts.all()  # a word of several tokens
  for method in ('pll', 'pll_word_l2r'):
    (one,) = scores(RunScorer(run, method), [text])
    for t, token in enumerate(ids):
      masked = ids.copy()
      end = t + 1
      while method == 'pll_word_l2r' and end < len(ids) and not starts[end]:
        end += 1
      masked[t:end] = subwords.mask_id
      row = np.asarray([subwords.cls_id, *masked, subwords.sep_id])[None]
      assert one.log_p_T[t] == pytest.approx(log_p(run, {'tokens_BT': row}, t + 1, token), abs=1e-5)


def test_xlnet_scores_follow_their_equations():
  tokenizer = build.train('unigram', LINES * 20, vocab_size=400, marks='xlnet')
  run = load('xlnet', tokenizer)
  ids = tokenizer.encode(LINES[0])
  (forward,) = scores(RunScorer(run, 'left_to_right'), [LINES[0]])
  (pseudo,) = scores(RunScorer(run, 'permutation_pll'), [LINES[0]])
  row = np.asarray([*ids, tokenizer.sep_id, tokenizer.cls_id])[None]
  types = np.asarray([[0] * (len(ids) + 1) + [2]])
  for t, token in enumerate(ids):
    at = np.asarray([[t]])
    seen = {'tokens_BT': ids[None, : t + 1], 'positions_BP': at, 'order_BT': np.arange(1, t + 2)[None]}
    assert forward.log_p_T[t] == pytest.approx(log_p(run, seen, t, token), abs=1e-5)
    order = np.zeros_like(row)
    order[0, t] = 1
    batch = {'tokens_BT': row, 'types_BT': types, 'positions_BP': at, 'order_BT': order}
    assert pseudo.log_p_T[t] == pytest.approx(log_p(run, batch, t, token), abs=1e-5)


def test_elmo_reads_both_ways():
  tokenizer = build.train('words', LINES, vocab_size=12)
  run = load('elmo', tokenizer, 'data.characters=16', std=0.1)
  text = 'the cat zyzzyva'
  both, forward, backward = (scores(RunScorer(run, method), [text])[0] for method in ('both', 'forward', 'backward'))
  np.testing.assert_allclose(both.log_p_T, forward.log_p_T + backward.log_p_T, atol=1e-6)
  assert both.tokens == text.split() and both.unknown_T.tolist() == [False, False, True]
  # The state after nothing but the boundary predicts the first word, and read from the right the last one.
  assert forward.log_p_T[0] == pytest.approx(scores(RunScorer(run, 'forward'), ['the'])[0].log_p_T[0], abs=1e-5)
  assert backward.log_p_T[2] == pytest.approx(scores(RunScorer(run, 'backward'), ['zyzzyva'])[0].log_p_T[0], abs=1e-5)
  letters = word_characters.character_ids([b'the', b'cat', b'zyzzyva'], 16)
  features, _ = run.model.apply(
    run.cfg, run.params['model'], {'characters_BTC': letters[None]}, run.model.init_state(run.cfg, 1)
  )
  half = np.split(np.asarray(features.last_BTD), 2, axis=-1)[0][:, 1:2]  # after <S> the cat
  expected = jax.nn.log_softmax(run.model.logits(run.cfg, run.params['model'], Features(half))[0, 0])
  assert forward.log_p_T[2] == pytest.approx(float(expected[word_characters.UNKNOWN]), abs=1e-5)


@pytest.mark.parametrize('name', ['rnn_lm', 'transformer_xl', 'gpt2'])
def test_texts_continue_a_context(name, subwords):
  """The tokens of a context and a text are predicted as those of one text."""
  run = load(name, subwords)
  scorer = RunScorer(run)
  (whole,) = scores(scorer, [f'{LINES[0]} {LINES[1]}'])
  scorer.read_context(LINES[0])
  (continued,) = scores(scorer, [LINES[1]])
  np.testing.assert_allclose(continued.log_p_T, whole.log_p_T[-len(continued.log_p_T) :], atol=1e-5)


def test_without_a_start_the_first_token_has_no_score(subwords):
  run = load('gpt2', LETTERS)
  (one,) = scores(RunScorer(run, start='none'), ['a b a'])
  assert np.isnan(one.log_p_T[0]) and one.predicted == 2
  (after,) = scores(RunScorer(run), ['a b a'])
  assert after.predicted == 3 and not np.isnan(after.log_p_T).any()


@pytest.mark.parametrize(
  ('name', 'options', 'field'),
  [
    ('cfnet', {}, 'assigns no probability'),
    ('bert', {'method': 'causal'}, '--method'),
    ('bert', {'start': 'symbol'}, '--start'),
    ('bert', {'end': True}, '--end'),
    ('gpt2', {'start': 'symbol'}, '--start'),
  ],
)
def test_what_cannot_be_scored_is_refused(name, options, field, subwords):
  run = untrained.load(f'experiments/{name}/quickstart.py:tiny', tokenizer=subwords)
  with pytest.raises(InputError, match=field):
    RunScorer(run, **options)


def test_bad_texts_are_refused_by_their_line():
  run = load('gpt2', LETTERS)
  with pytest.raises(InputError, match='line 2: got a text without a token'):
    scores(RunScorer(run), ['a', ''])
  with pytest.raises(InputError, match='line 1: .*positions'):
    scores(RunScorer(run), ['a ' * 5000])
  broken = dataclasses.replace(run, params=jax.tree.map(lambda x: x * np.nan, run.params))
  with pytest.raises(InputError, match='line 1: got a score that is not finite'):
    scores(RunScorer(broken), ['a'])


def test_only_likelihoods_are_probabilities():
  assert [name for name, method in METHODS.items() if method.probability] == [
    'causal',
    'left_to_right',
    'forward',
    'backward',
  ]
