"""Scores of texts: they sum to 1 over all strings, depend on no other text, and equal each method's equation."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import jax
import numpy as np
import pytest

from lmx.data.tokenizers import build, subword, word_characters
from lmx.data.tokenizers.words import Words
from lmx.errors import InputError
from lmx.scoring import sentences
from lmx.scoring.rows import Row
from lmx.scoring.scorer import METHODS, RunScorer
from lmx.types import Features
from tests import drawn, untrained
from tests.reference import transformer_xl as reference

LETTERS = Words(['<unk>', '<eos>', 'a', 'b'], 'space')
LINES = ['the cat sat on the mat', 'a cat', 'the catsat mathouse of dogs']
CAUSAL = [*('rnn_lm', 'gpt2', 'transformer_xl'), *(pytest.param(n, marks=pytest.mark.slow) for n in ('nplm', 'gpt'))]


@functools.cache
def subwords():
  return build.train('wordpiece', LINES * 20, vocab_size=40)


@functools.cache
def load(name, tokenizer=None, *overrides, std=0.2):
  tokenizer = tokenizer or subwords()
  if name == 'transformer_xl':
    overrides = (*overrides, 'model.cutoffs=()', 'model.div_val=1', 'model.fidelity=pytorch', 'model.N=2')
  overrides = (*overrides, 'model.N=2') if name in ('bert', 'xlnet') else overrides
  run = untrained.load(f'experiments/{name}/quickstart.py:tiny', *overrides, tokenizer=tokenizer)
  return dataclasses.replace(run, params={'model': drawn.params(run.model.init, run.cfg, std=std)})


def scores(scorer, texts):
  return list(sentences.score(scorer, texts))


def check_equations(scorer, expected, lines=LINES):
  """Compare scores with `expected(text)`, which reads the text alone, and those in another order and batch."""
  there, back = scores(scorer, lines), scores(scorer, lines[:0:-1])[::-1]
  np.testing.assert_allclose(there[2].log_p_T, expected(lines[2]), atol=1e-5)
  for one, other in zip(there[1:], back, strict=True):
    np.testing.assert_allclose(other.log_p_T, one.log_p_T, atol=1e-5)


@functools.cache
def log_softmax(model, cfg):
  """Compiled (params, batch, state) -> log-probabilities of all positions, or of those that the batch predicts."""

  def read(params, batch, state):
    features, _ = model.apply(cfg, params, batch, state)
    x = features.query_BPD if features.query_BPD is not None else features.last_BTD
    return jax.nn.log_softmax(model.logits(cfg, params, Features(x)))

  return jax.jit(read)


def log_p(run, batch, state=()):
  return np.asarray(log_softmax(run.model, run.cfg)(run.params['model'], batch, state))


@pytest.mark.parametrize('name', CAUSAL)
def test_probabilities_of_all_strings_sum_to_one(name):
  """Ended strings shorter than 3 and unended ones of length 3 share out the whole probability."""
  run = load(name, LETTERS)
  ended, unended = RunScorer(run, end=True), RunScorer(run)
  words = ['a', 'b', '<unk>']
  rows = [ended.row(' '.join(text)) for n in (1, 2) for text in itertools.product(words, repeat=n)]
  rows += [unended.row(' '.join(text)) for text in itertools.product(words, repeat=3)]
  end = np.asarray([LETTERS.eos_id], np.int32)
  rows.append(Row(end, end))  # the empty string
  assert abs(sum(np.exp(one.log_p_T.sum()) for one in unended.score(rows)) - 1) < 1e-5


@pytest.mark.parametrize('name', [name for name in CAUSAL if name != 'transformer_xl'])
def test_causal_scores_follow_the_chain_rule(name):
  run = load(name, LETTERS if name == 'gpt' else None)
  lines = ['a b a', 'b', 'a b b b a'] if name == 'gpt' else LINES

  def expected(text):
    ids = run.tokenizer.encode(text)
    before = [] if run.tokenizer.eos_id is None else [run.tokenizer.eos_id]
    row = np.asarray([[*before, *ids]], np.int32)
    each = log_p(run, {'tokens_BT': row}, run.model.init_state(run.cfg, 1))[0]
    known = each[np.arange(len(before), row.size) - 1, row[0, len(before) :]]
    return known if before else [np.nan, *known[1:]]

  check_equations(RunScorer(run), expected, lines)


def test_transformer_xl_scores_equal_the_numpy_reference():
  run = load('transformer_xl', LETTERS)
  params = run.params['model']

  def expected(text):
    ids = [LETTERS.eos_id, *LETTERS.encode(text)]
    x_LD = np.sqrt(run.cfg.D) * params['embed']['tokens'][ids].astype(np.float64)
    bias = params['bias']['u_HK'], params['bias']['v_HK']
    last = reference.segments(params, x_LD, len(ids), run.cfg.M, lambda i: bias)
    head = params['embed'], params['output'], (), run.cfg.V
    return [-reference.word_nll(*head, x_D, token) for x_D, token in zip(last[:-1], ids[1:], strict=True)]

  check_equations(RunScorer(run), expected, ['a b a', 'b', 'a b <unk> b a'])


def test_bert_scores_follow_their_equations():
  run, tokenizer = load('bert'), subwords()
  assert not tokenizer.starts_word(tokenizer.encode(LINES[2])).all()  # a word of several tokens
  for method in ('pll', 'pll_word_l2r'):

    def expected(text, method=method):
      ids = tokenizer.encode(text)
      starts = tokenizer.starts_word(ids)
      rows = np.tile([tokenizer.cls_id, *ids, tokenizer.sep_id], (len(ids), 1))
      for t in range(len(ids)):
        end = t + 1
        while method == 'pll_word_l2r' and end < len(ids) and not starts[end]:
          end += 1
        rows[t, 1 + t : 1 + end] = tokenizer.mask_id
      t = np.arange(len(ids))
      return log_p(run, {'tokens_BT': rows})[t, 1 + t, ids]

    check_equations(RunScorer(run, method), expected)


def test_rest_of_a_word_is_masked_after_its_space():
  """A space that byte-level BPE does not merge is part of the word after it."""
  tokenizer = subword.with_special(build.train('bpe', ['ab cd'], vocab_size=257), ('<pad>', '<cls>', '<sep>', '<mask>'))
  run = load('bert', tokenizer, 'data.tokenizer=bpe', 'model.V=261')
  scorer = RunScorer(run, 'pll_word_l2r')
  row = scorer.row('ab cd')
  assert scorer.tokens(row) == ['a', 'b', 'Ġ', 'c', 'd'] and scorer.starts_word(row).tolist() == [1, 0, 1, 0, 0]
  rows = np.tile([tokenizer.cls_id, *row.ids_T, tokenizer.sep_id], (5, 1))
  for t, end in enumerate((2, 2, 5, 5, 5)):
    rows[t, 1 + t : 1 + end] = tokenizer.mask_id
  expected = log_p(run, {'tokens_BT': rows})[np.arange(5), 1 + np.arange(5), row.ids_T]
  np.testing.assert_allclose(scorer.score([row])[0].log_p_T, expected, atol=1e-5)


def test_xlnet_scores_follow_their_equations():
  run, tokenizer = load('xlnet'), subwords()

  def in_order(text):
    ids = tokenizer.encode(text)
    T = np.arange(len(ids))
    # Row t ends with token t, padded with tokens that come later in the order.
    batch = {
      'tokens_BT': np.tile(ids, (len(ids), 1)),
      'positions_BP': T[:, None],
      'order_BT': np.tile(T + 1, (len(ids), 1)),
    }
    return log_p(run, batch)[T, 0, ids]

  def from_others(text):
    ids = tokenizer.encode(text)
    T = np.arange(len(ids))
    rows = np.tile([*ids, tokenizer.sep_id, tokenizer.cls_id], (len(ids), 1))
    order = np.zeros_like(rows)
    order[T, T] = 1
    types = np.tile([*[0] * (len(ids) + 1), 2], (len(ids), 1))
    return log_p(run, {'tokens_BT': rows, 'types_BT': types, 'positions_BP': T[:, None], 'order_BT': order})[T, 0, ids]

  check_equations(RunScorer(run, 'left_to_right'), in_order)
  check_equations(RunScorer(run, 'permutation_pll'), from_others)
  # Left to right, no token sees those after it.
  (short,) = scores(RunScorer(run, 'left_to_right'), ['the catsat'])
  np.testing.assert_allclose(short.log_p_T, in_order(LINES[2])[: len(short.tokens)], atol=1e-5)


def test_elmo_reads_both_ways():
  tokenizer = build.train('words', LINES, vocab_size=9)
  run = load('elmo', tokenizer, 'data.characters=16', std=0.1)
  text = 'the cat zyzzyva'
  both, forward, backward = (
    scores(RunScorer(run, method), [text, 'a cat'])[0] for method in ('both', 'forward', 'backward')
  )
  np.testing.assert_allclose(both.log_p_T, forward.log_p_T + backward.log_p_T, atol=1e-6)
  (one, _) = sentences.score(RunScorer(run, 'forward'), [text, 'a cat'], detail='words')
  assert [word for word, _ in one.words] == text.split() and one.unknown == (1, 7)
  assert [word.surprisal for word in one.words] == pytest.approx((-forward.log_p_T).tolist())
  assert both.tokens == text.split() and both.unknown_T.tolist() == [False, False, True]
  letters = word_characters.character_ids([b'', *(word.encode() for word in text.split()), b''], 16)
  letters[[0, -1], 1] = word_characters.BEGIN_SENTENCE, word_characters.END_SENTENCE
  letters[[0, -1], 2] = word_characters.END_WORD
  ids = word_characters.create(tokenizer, 16).word_ids(tokenizer.encode(text))
  assert ids[2] == word_characters.UNKNOWN

  def read(params, characters_BTC, backward_characters_BTC):
    batch = {'characters_BTC': characters_BTC, 'backward_characters_BTC': backward_characters_BTC}
    features, _ = run.model.apply(run.cfg, params, batch, run.model.init_state(run.cfg, 1))
    halves = jax.numpy.split(features.last_BTD, 2, axis=-1)
    return [jax.nn.log_softmax(run.model.logits(run.cfg, params, Features(half))[0]) for half in halves]

  ahead, behind = jax.jit(read)(run.params['model'], letters[None, :-1], letters[None, :0:-1])
  np.testing.assert_allclose(forward.log_p_T, [ahead[t, i] for t, i in enumerate(ids)], atol=1e-5)
  np.testing.assert_allclose(backward.log_p_T, [behind[t, i] for t, i in enumerate(ids[::-1])][::-1], atol=1e-5)
  ends = {'forward': ('</S>', ahead[3, word_characters.END]), 'backward': ('<S>', behind[3, word_characters.BEGIN])}
  for method, without in (('forward', forward), ('backward', backward), ('both', both)):
    name, end = ends.get(method, ('</S>', ahead[3, word_characters.END] + behind[3, word_characters.BEGIN]))
    scorer = RunScorer(run, method, end=True)
    (one, _) = sentences.score(scorer, [text, 'a cat'], detail='words')
    np.testing.assert_allclose(one.log_p_T, [*without.log_p_T, end], atol=1e-5)
    assert one.tokens == [*text.split(), name] and one.predicted == 4 and one.unknown == (1, 7)
    assert [word for word, _ in one.words] == one.tokens
    assert one.words[-1].surprisal == pytest.approx(float(-end), abs=1e-5)


def test_elmo_of_subwords_shares_out_the_whole_probability():
  tokenizer = build.train('word_bpe', ['ab a b'] * 3, vocab_size=7)
  run = load('elmo', tokenizer, 'data.tokenizer=word_bpe', 'data.characters=6', 'model.V=8', std=0.5)
  known = word_characters.create(tokenizer, 6)
  assert run.cfg.V == known.vocab_size == len(word_characters.vocabulary(tokenizer))
  letters = np.tile(known.boundaries[0], (known.vocab_size, 1))  # <S> and <unk> are classes, but no text has them
  letters[known.word_ids(np.arange(tokenizer.vocab_size))] = known.character_ids(np.arange(tokenizer.vocab_size))
  for method, end in (('forward', word_characters.END), ('backward', word_characters.BEGIN)):
    words = [i for i in range(known.vocab_size) if i != end]
    totals = []
    for count, ended in ((1, False), (1, True), (2, False)):
      rows = [
        Row(np.asarray([*ids, *[end] * ended]), characters_TC=letters[list(ids)])
        for ids in itertools.product(words, repeat=count)
      ]
      totals.append(sum(np.exp(one.log_p_T.sum()) for one in RunScorer(run, method, end=ended).score(rows)))
    empty = 1 - totals[0]  # the end comes first
    assert 0.01 < empty < 0.9 and abs(empty + totals[1] + totals[2] - 1) < 1e-5


def test_elmo_scores_subwords_by_their_bytes():
  tokenizer = build.train('bpe', LINES * 20, vocab_size=270)
  run = load('elmo', tokenizer, 'data.tokenizer=bpe', 'data.characters=24', 'model.V=274', std=0.1)
  scorer = RunScorer(run, 'forward')
  row = scorer.row(' the catzy mat')
  ids = tokenizer.encode(' the catzy mat')
  assert scorer.tokens(row) == tokenizer.ids_to_tokens(ids) and not scorer.is_unknown(row).any()
  assert scorer.starts_word(row).tolist() == tokenizer.starts_word(ids, joins_space=True).tolist()
  letters = word_characters.create(tokenizer, 24).character_ids(ids)
  apply = jax.jit(
    lambda batch: run.model.apply(run.cfg, run.params['model'], batch, run.model.init_state(run.cfg, 1))[0].last_BTD
  )
  half = np.split(np.asarray(apply({'characters_BTC': letters[None]})), 2, axis=-1)[0]
  log_p_TV = jax.nn.log_softmax(run.model.logits(run.cfg, run.params['model'], Features(half))[0])
  expected = [float(log_p_TV[t, row.ids_T[t + 1]]) for t in range(len(ids) - 1)]
  np.testing.assert_allclose(scorer.score([row])[0].log_p_T[1:], expected, atol=1e-5)


@pytest.mark.parametrize('name', ['transformer_xl', 'gpt2', pytest.param('rnn_lm', marks=pytest.mark.slow)])
def test_texts_continue_a_context(name):
  """The tokens of a context and a text are predicted as those of one text."""
  run = load(name, LETTERS)
  scorer = RunScorer(run)
  (whole,) = scores(scorer, ['a b b a'])
  scorer.read_context('a b')
  (continued,) = scores(scorer, ['b a'])
  np.testing.assert_allclose(continued.log_p_T, whole.log_p_T[-2:], atol=1e-5)
  assert scorer.protocol == 'log-likelihood, after a context'


def test_without_a_start_the_first_token_has_no_score():
  run = load('gpt2', LETTERS)
  (one,) = scores(RunScorer(run, start='none'), ['a b a'])
  assert np.isnan(one.log_p_T[0]) and one.predicted == 2
  (after,) = scores(RunScorer(run), ['a b a'])
  assert after.predicted == 3 and not np.isnan(after.log_p_T).any()


@pytest.mark.parametrize(
  ('name', 'options', 'field'),
  [
    ('cfnet', {}, 'cannot score: .*assigns no probability'),
    ('bert', {'method': 'causal'}, '--method'),
    ('bert', {'start': 'symbol'}, '--start'),
    ('bert', {'end': True}, '--end'),
    ('gpt2', {'start': 'symbol'}, '--start'),
  ],
)
def test_what_cannot_be_scored_is_refused(name, options, field):
  run = untrained.load(f'experiments/{name}/quickstart.py:tiny', tokenizer=subwords())
  with pytest.raises(InputError, match=field):
    RunScorer(run, **options)


def test_bad_texts_are_refused_by_their_line_before_any_is_scored():
  scorer = RunScorer(load('gpt2', LETTERS))
  scorer.score = None
  for text, message in (
    (' ', 'line 2: got an empty text'),
    ('a ' * 5000, 'line 2: .*positions'),
    ('a \ud800', 'line 2: got half a surrogate'),
  ):
    with pytest.raises(InputError, match=message):
      scores(scorer, ['a', text])
  with pytest.raises(InputError, match='--context: got a text without a token'):
    scorer.read_context('')
  for method in ('left_to_right', 'permutation_pll'):
    with pytest.raises(InputError, match='line 2: got 5,000 tokens; expected at most 4,096'):
      scores(RunScorer(load('xlnet', LETTERS), method=method), ['a', 'a ' * 5000])


def test_scores_that_are_not_finite_are_refused():
  run = load('gpt2', LETTERS)
  broken = dataclasses.replace(run, params=jax.tree.map(lambda x: x * np.nan, run.params))
  with pytest.raises(InputError, match='line 1: got a score that is not finite'):
    scores(RunScorer(broken), ['a b a'])


def test_only_likelihoods_are_probabilities():
  assert [name for name, method in METHODS.items() if method.probability] == [
    'causal',
    'left_to_right',
    'forward',
    'backward',
  ]
