"""Every token once, in any order, on any host; sentence pairs by BERT's rules."""

import itertools
import random

import numpy as np
import pytest

from lmx.data import noise, pipeline
from lmx.data.batching import packed, pairs, streams, windows
from lmx.data.corpus import Corpus, Split
from lmx.data.tokenizers.words import Words
from lmx.errors import InputError
from tests import numbered_tokens
from tests.reference import bert_data

V = 1000
TOKENIZER = numbered_tokens.wordpiece(V)


def split(n, offsets=None, sentences=None, ids=None):
  """A split whose token at position i is i, unless `ids` says otherwise."""
  tokens = np.arange(n, dtype=np.uint32) if ids is None else ids
  offsets = np.array([0, n]) if offsets is None else np.asarray(offsets)
  return Split('train', tokens, offsets, None if sentences is None else np.asarray(sentences), None, {'tokens': n})


def documents(D=60, most=12, seed=0):
  """A split of D documents of 1 to `most` sentences of 2 to 15 tokens; the token ids are random, from 5 up."""
  draw = np.random.default_rng(seed)
  sentences, offsets = [0], [0]
  for _ in range(D):
    sentences += (sentences[-1] + np.cumsum(draw.integers(2, 16, draw.integers(1, most + 1)))).tolist()
    offsets.append(sentences[-1])
  return split(sentences[-1], offsets, sentences, draw.integers(5, V, sentences[-1]).astype(np.uint16))


def make(kind, data, B=4, T=8, *, train, seed=1, **options):
  if kind == 'pairs':
    return pairs.Pairs(data, B, T, tokenizer=TOKENIZER, seed=seed, train=train, **options)
  cls = {'streams': streams.Streams, 'windows': windows.Windows, 'packed': packed.Packed}[kind]
  return cls(data, B, T, vocab_size=10**6, seed=seed, train=train, **options)


def counted(batches, steps=None):
  """(input, target) of every position with weight, over the given steps."""
  found = []
  for step in range(batches.steps) if steps is None else steps:
    batch = batches(step)
    live = batch['weights_BT'] > 0
    found += zip(batch['tokens_BT'][live].tolist(), batch['targets_BT'][live].tolist(), strict=True)
  return found


SIZES = list(itertools.product([2, 3, 17, 64, 65, 66, 129, 200], [1, 3, 4], [1, 5, 16]))


@pytest.mark.parametrize('kind', ['streams', 'windows'])
def test_evaluation_predicts_each_token_after_the_first_once(kind):
  for n, B, T in SIZES:
    batches = make(kind, split(n), B, T, train=False)
    assert sorted(counted(batches)) == [(i, i + 1) for i in range(n - 1)], (n, B, T)


def test_sliding_windows_predict_every_token_once_with_context():
  for n, B, T in SIZES:
    for stride in range(1, T + 1):
      batches = make('windows', split(n), B, T, train=False, stride=stride)
      assert sorted(counted(batches)) == [(i, i + 1) for i in range(n - 1)], (n, B, T, stride)
      for step in range(batches.steps):
        batch = batches(step)
        for start, weights_T in zip(batch['index_B'], batch['weights_BT'], strict=True):
          first = np.flatnonzero(weights_T)[:1]
          assert start <= 0 or not first.size or first[0] >= T - stride


def test_drawn_windows_start_anywhere_and_predict_all_of_their_tokens():
  batches = make('windows', split(20), 4, 8, train=False, drawn=90)
  found = np.array(counted(batches)).reshape(90, 8, 2)
  assert (found[:, :, 1] == found[:, :, 0] + 1).all() and (np.diff(found[:, :, 0]) == 1).all()
  assert {*found[:, 0, 0].tolist()} == {*range(12)}, 'the last of the 12 places predicts the last token'
  assert batches.tokens_per_epoch == 720 and '90 windows at random places' in batches.protocol
  assert counted(make('windows', split(20), 4, 8, train=False, drawn=90)) == counted(batches)
  assert len(counted(make('windows', split(5), 4, 8, train=False, drawn=3))) == 3 * 4, 'a split shorter than a window'


def test_streams_are_evaluated_in_overlapping_windows_from_an_empty_state():
  corpus = Corpus(TOKENIZER, {'test': split(66), 'train': split(66)}, {}, '')
  options = dict(batch_size=3, length=5, eval_length=8)
  data = pipeline.Config(batching={'name': 'streams', 'stride': 2}, **options)
  batches = pipeline.batches(data, corpus, 'test', 0, train=False)
  assert sorted(counted(batches)) == [(i, i + 1) for i in range(65)] and not batches.stateful
  for step in range(1, batches.steps):
    batch = batches(step)
    assert batch['reset_B'].all() and batch['tokens_BT'].shape == (3, 8) and not batch['weights_BT'][:, :6].any()
  assert isinstance(pipeline.batches(data, corpus, 'train', 0, train=True), streams.Streams)
  with pytest.raises(InputError, match='stride: got 9'):
    pipeline.Config(batching={'name': 'streams', 'stride': 9}, **options)


def test_streams_continue_from_step_to_step_and_lose_no_token_in_training():
  for n, B, T in SIZES:
    if n - 1 < B * T:
      continue
    batches = make('streams', split(n), B, T, train=True)
    assert sorted(counted(batches)) == [(i, i + 1) for i in range(n - 1)], (n, B, T)
    epoch = [batches(step) for step in range(batches.steps, 2 * batches.steps + 1)]
    assert all(batch['reset_B'].all() == (i % batches.steps == 0) for i, batch in enumerate(epoch))
    assert not any(batch['reset_B'].any() for batch in epoch[1:-1])
    for before, after in itertools.pairwise(epoch[:-1]):
      goes_on = after['weights_BT'][:, 0] > 0
      np.testing.assert_array_equal(before['targets_BT'][goes_on, -1], after['tokens_BT'][goes_on, 0])
      assert before['weights_BT'].all()  # padding is in the last step alone
    np.testing.assert_array_equal(epoch[0]['tokens_BT'], epoch[-1]['tokens_BT'])


def test_stream_rows_are_in_order():
  batch = make('streams', split(41), 4, 5, train=True)(1)
  np.testing.assert_array_equal(batch['tokens_BT'], [[5, 6, 7, 8, 9], *(np.arange(5) + [[15], [25], [35]])])
  np.testing.assert_array_equal(batch['targets_BT'], batch['tokens_BT'] + 1)
  np.testing.assert_array_equal(batch['index_B'], [4, 5, 6, 7])


def test_windows_are_disjoint_shuffled_and_shifted_each_epoch():
  n, B, T = 203, 4, 8
  batches = make('windows', split(n), B, T, train=True)
  offsets, orders = set(), []
  for epoch in range(20):
    steps = range(epoch * batches.steps, (epoch + 1) * batches.steps)
    found = counted(batches, steps)
    assert len(found) == len(set(found)) == batches.steps * B * T  # no padding, no token twice
    assert all(target == token + 1 for token, target in found)
    starts = np.concatenate([batches(step)['tokens_BT'][:, 0] for step in steps])
    assert len(set(starts % T)) == 1
    offsets.add(int(starts[0] % T))
    orders.append(tuple(starts // T))
    assert list(starts) != sorted(starts)
  assert len(offsets) > T // 2 and len(set(orders)) == 20
  plain = make('windows', split(n), B, T, train=True, shuffle=False)
  assert counted(plain) == [(i, i + 1) for i in range(plain.steps * B * T)]


def test_windows_cover_every_token_over_epochs():
  n, B, T = 150, 4, 8
  batches = make('windows', split(n), B, T, train=True)
  seen = {target for _, target in counted(batches, range(25 * batches.steps))}
  assert seen == set(range(1, n))


@pytest.mark.parametrize('method', ['best_fit', 'split'])
@pytest.mark.parametrize('start', [None, 777_777])
def test_packed_documents_are_predicted_once_and_isolated(method, start):
  draw = np.random.default_rng(0)
  for T, B, most in itertools.product([1, 4, 16], [1, 3], [1, 5, 40]):
    offsets = np.append(0, np.cumsum(draw.integers(0, most + 1, 15)))
    offsets[-1] += 2  # at least one document to predict
    batches = make('packed', split(offsets[-1], offsets), B, T, train=False, method=method, start_id=start)
    wanted = []
    for low, high in itertools.pairwise(offsets.tolist()):
      inputs = ([] if start is None else [start]) + list(range(low, high))
      wanted += zip(inputs, range(high - len(inputs) + 1, high), strict=False)
    assert sorted(counted(batches)) == sorted(wanted)
    for step in range(batches.steps):
      check_packed_rows(batches(step), offsets, T)


def check_packed_rows(batch, offsets, T):
  for tokens, targets, ids, position in zip(
    *(batch[k] for k in ('tokens_BT', 'targets_BT', 'documents_BT', 'position_BT')), strict=True
  ):
    assert (np.diff(ids[ids > 0]) >= 0).all() and not ids[np.argmin(ids > 0) :].any() or (ids > 0).all()
    for i in set(ids.tolist()) - {0}:
      piece = ids == i
      np.testing.assert_array_equal(position[piece], np.arange(piece.sum()))
      assert len(set(np.searchsorted(offsets, targets[piece], 'right'))) == 1
      np.testing.assert_array_equal(tokens[piece][1:], targets[piece][:-1])


def test_best_fit_packing_keeps_documents_whole():
  data = documents(200)
  cut = make('packed', data, 1, 64, train=False, method='split', start_id=5)
  whole = make('packed', data, 1, 64, train=False, method='best_fit', start_id=5)
  n = data.tokens.size
  assert cut.steps == -(-n // 64)
  sizes = np.diff(data.offsets)
  pieces = sum(int(whole(s)['documents_BT'].max()) for s in range(whole.steps))
  assert pieces == sum(-(-size // 64) for size in sizes)  # only documents above 64 are cut
  assert n / (whole.steps * 64) > 0.97


def test_best_fit_uses_the_fullest_row_that_fits():
  rows = packed.best_fit(np.array([6, 5, 4, 3, 2]), 10)
  np.testing.assert_array_equal(rows, [0, 1, 0, 1, 1])
  draw = np.random.default_rng(0)
  for capacity in (1, 7, 100):
    lengths = draw.integers(1, capacity + 1, 300)
    filled = np.bincount(packed.best_fit(lengths, capacity), lengths)
    assert filled.max() <= capacity and filled.min() > 0 and filled.sum() == lengths.sum()


KINDS = [
  ('streams', {}),
  ('windows', {}),
  ('windows', {'stride': 3}),
  ('packed', {'start_id': 5}),
  ('packed', {'method': 'split'}),
  ('pairs', {'dynamic': True}),
  ('pairs', {'duplicates': 3, 'whole_word': True}),
]


@pytest.mark.parametrize('kind, options', KINDS)
@pytest.mark.parametrize('train', [True, False])
def test_batch_depends_only_on_step_and_row(kind, options, train):
  data = documents()
  batches = make(kind, data, 6, 16, train=train, **options)
  steps = list(range(2 * batches.steps if train else batches.steps))[-40:]
  wanted = {step: batches(step) for step in steps}
  again = make(kind, data, 6, 16, train=train, **options)  # as after a restart: in any order, from the middle
  random.Random(0).shuffle(steps)
  for step in steps:
    parts = [again(step, rows) for rows in (slice(0, 3), slice(3, 4), slice(4, 6))]
    for key, value in wanted[step].items():
      assert value.dtype in (np.int32, np.float32, bool), key
      np.testing.assert_array_equal(np.concatenate([part[key] for part in parts]), value, err_msg=key)
  assert len({tuple((k, v.shape, v.dtype.str) for k, v in batch.items()) for batch in wanted.values()}) == 1


@pytest.mark.parametrize('kind, options', [k for k in KINDS if k[0] != 'streams'])
def test_seed_changes_training(kind, options):
  data = documents()
  a, b = (make(kind, data, 6, 16, train=True, seed=seed, **options)(0)['tokens_BT'] for seed in (1, 2))
  assert not np.array_equal(a, b)


@pytest.mark.parametrize('kind, options', [k for k in KINDS if k[0] in ('packed', 'pairs')])
def test_evaluation_pads_with_zero_weight_rows(kind, options):
  batches = make(kind, documents(), 7, 16, train=True, **options)
  seen = np.concatenate([batches(step)['index_B'] for step in range(batches.steps, 2 * batches.steps)])
  assert len(set(seen.tolist())) == len(seen) == batches.examples // 7 * 7 and seen.min() >= 0
  made = (make(kind, documents(), B, 16, train=False, **options) for B in (7, 11, 13))
  batches = next(batches for batches in made if batches.examples % batches.batch_size)
  seen = [batches(step) for step in range(batches.steps)]
  index = np.concatenate([batch['index_B'] for batch in seen])
  np.testing.assert_array_equal(index[: batches.examples], np.arange(batches.examples))
  assert (index[batches.examples :] == -1).all()
  for key, value in seen[-1].items():
    if key.startswith(('weights', 'row_weights')):
      assert not value[seen[-1]['index_B'] < 0].any() and value[seen[-1]['index_B'] >= 0].any()
  with pytest.raises(IndexError):
    batches(batches.steps)


def test_bert_rows_have_two_segments():
  data = documents()
  batches = make('pairs', data, 8, 32, train=True)
  for step in range(12):
    batch = batches(step)
    for b in range(8):
      tokens = batch['tokens_BT'][b].copy()
      used = batch['weights_BP'][b] > 0
      tokens[batch['positions_BP'][b][used]] = batch['targets_BP'][b][used]
      n = int(batch['valid_BT'][b].sum())
      seps = np.flatnonzero(tokens == 3)
      assert tokens[0] == 2 and len(seps) == 2 and seps[1] == n - 1 and seps[0] > 1 and n - 1 > seps[0] + 1
      assert batch['valid_BT'][b, :n].all() and not tokens[n:].any()
      np.testing.assert_array_equal(batch['types_BT'][b], (np.arange(32) > seps[0]) & (np.arange(32) < n))
      assert used.sum() == min(20, max(1, round(n * 0.15)))
      assert not np.isin(batch['positions_BP'][b][used], [0, *seps, *range(n, 32)]).any()
      for segment in (tokens[1 : seps[0]], tokens[seps[0] + 1 : n - 1]):
        assert segment.astype(np.uint16).tobytes() in data.tokens.tobytes()


def test_masks_are_fixed_or_new_each_epoch():
  for dynamic in (False, True):
    batches = make('pairs', documents(), 1, 32, train=True, shuffle=False, dynamic=dynamic)
    first, second = (batches(step) for step in (2, 2 + batches.steps))
    np.testing.assert_array_equal(first['types_BT'], second['types_BT'])
    assert np.array_equal(first['tokens_BT'], second['tokens_BT']) != dynamic


def spans(data, length, seed=0, short=0.1, random_next=0.5):
  return pairs.pair_spans(
    data.offsets,
    data.sentences,
    length,
    noise.generator(seed, 'pairs'),
    short_seq_prob=short,
    random_next_prob=random_next,
  )


def plain_documents(data):
  ids = data.tokens.tolist()
  cuts = data.sentences.tolist()
  texts = {low: ids[low:high] for low, high in itertools.pairwise(cuts)}
  return [[texts[s] for s in cuts if low <= s < high] for low, high in itertools.pairwise(data.offsets.tolist())]


def test_sentence_pairs_match_the_reference_distribution():
  length, data = 48, documents(150)
  texts, draw, plain, ours = plain_documents(data), random.Random(0), [], []
  for seed in range(6):
    for d in range(len(texts)):
      for pair in bert_data.pairs_of_document(texts, d, length, draw):
        plain.append((len(pair.a), len(pair.b), pair.is_random, len(pair.a) + len(pair.b) == length - 3))
    found = spans(data, length, seed)
    total = found.a_length_I + found.b_length_I
    ours.append(np.stack([found.a_length_I, found.b_length_I, found.random_I, total == length - 3], 1))
  plain, ours = np.array(plain, float), np.concatenate(ours).astype(float)
  rate = (len(ours) - len(plain)) / (len(ours) + len(plain)) ** 0.5
  assert abs(rate) < 4
  error = np.sqrt(plain.var(0) / len(plain) + ours.var(0) / len(ours))
  assert (np.abs(plain.mean(0) - ours.mean(0)) < 4 * error).all(), (plain.mean(0), ours.mean(0))
  for column in (0, 1):  # the whole distribution of the lengths, not only its mean
    a, b = (np.bincount(x[:, column].astype(int), minlength=length) for x in (plain, ours))
    assert (np.abs(a - b) <= 5 * np.sqrt(a + b + 1)).all()


def test_deterministic_sentence_pairs_match_the_reference():
  """With one aim and no random next, chunks are fixed: only where A ends within them is drawn."""
  data = documents(80, most=6)
  texts = plain_documents(data)
  plain = [p for d in range(80) for p in bert_data.pairs_of_document(texts, d, 1000, random.Random(0), 0, 0)]
  found = spans(data, 1000, short=0, random_next=0)
  np.testing.assert_array_equal([p.is_random for p in plain], found.random_I)
  follows = ~found.random_I  # nothing was cut: A and B are neighbours and fill the chunk
  whole = (found.a_length_I + found.b_length_I)[follows]
  np.testing.assert_array_equal([p.whole for p in plain if not p.is_random], whole)
  np.testing.assert_array_equal((found.a_start_I + found.a_length_I)[follows], found.b_start_I[follows])
  assert follows.any() and found.random_I.any()


def test_random_next_sentence_is_from_another_document():
  data = documents(40)
  found = spans(data, 1000, random_next=1, short=0)
  assert found.random_I.all()
  a_document, b_document = (np.searchsorted(data.offsets, x, 'right') for x in (found.a_start_I, found.b_start_I))
  assert (a_document != b_document).all()
  covered = np.concatenate([np.arange(s, s + n) for s, n in zip(found.a_start_I, found.a_length_I, strict=True)])
  np.testing.assert_array_equal(np.sort(covered), np.arange(data.tokens.size))


def test_documents_of_one_sentence_always_give_a_random_next():
  data = documents(50, most=1)
  assert spans(data, 64, random_next=0).random_I.all() and len(spans(data, 64).random_I) == 50


def test_long_pairs_are_truncated_on_the_longer_side():
  for a, b, limit in itertools.product([1, 4, 9, 30], [1, 5, 9, 30], [2, 7, 20]):
    plain_a, plain_b = list(range(a)), list(range(b))
    bert_data.cut(plain_a, plain_b, limit, random.Random(0))
    one = np.ones(400, np.int64)
    got = pairs._truncate(0 * one, a * one, 0 * one, b * one, one > 0, limit, noise.generator(0, 'cut'))
    assert (got.a_length_I == len(plain_a)).all() and (got.b_length_I == len(plain_b)).all()
    for start, n, kept in ((got.a_start_I, a, len(plain_a)), (got.b_start_I, b, len(plain_b))):
      assert start.min() >= 0 and start.max() <= n - kept
      assert abs(start.mean() - (n - kept) / 2) <= 5 * ((n - kept) / 4 / 400) ** 0.5


def test_too_small_split_is_rejected():
  cases = [
    ('streams', 40, '40 tokens; .* 41'),
    ('windows', 49, '49 tokens; .* 50'),
    ('packed', 12, '12 tokens; .*about 40'),
  ]
  for kind, n, message in cases:
    with pytest.raises(InputError, match=message):
      make(kind, split(n), 4, 10, train=True)
  make('streams', split(41), 4, 10, train=True)
  make('windows', split(50), 4, 10, train=True)
  with pytest.raises(InputError, match='got 1 tokens'):
    make('windows', split(1), train=False)
  with pytest.raises(InputError, match='too small'):
    make('pairs', documents(3, 2), 64, 32, train=True)


def test_pairs_need_sentences_documents_and_special_tokens():
  with pytest.raises(InputError, match='no sentences'):
    make('pairs', split(50), train=False)
  with pytest.raises(InputError, match='1 document'):
    make('pairs', split(50, sentences=[0, 20, 50]), train=False)
  words = Words(['<unk>', 'a'], 'space')
  with pytest.raises(InputError, match='pad, cls, sep, mask'):
    pairs.Pairs(documents(), 4, 16, tokenizer=words, seed=0, train=False)


@pytest.mark.parametrize('kind', ['streams', 'windows', 'packed', 'pairs'])
@pytest.mark.parametrize('bad', [V, -1])
def test_id_outside_the_vocabulary_is_rejected_with_its_position(kind, bad):
  data = documents()
  ids = data.tokens.astype(np.int32)
  ids[137] = bad
  data = split(len(ids), data.offsets, data.sentences, ids)
  options = dict(tokenizer=TOKENIZER) if kind == 'pairs' else dict(vocab_size=V)
  cls = {'streams': streams.Streams, 'windows': windows.Windows, 'packed': packed.Packed, 'pairs': pairs.Pairs}
  batches = cls[kind](data, 4, 16, seed=0, train=False, **options)
  with pytest.raises(InputError, match=f'id {bad} at position 137'):
    for step in range(batches.steps):
      batches(step)


def test_memory_maps_are_not_read_when_batches_are_made(tmp_path):
  n = 200_000_000  # the size of WikiText-103's tokens and more, as a file of holes
  with open(tmp_path / 'tokens.bin', 'wb') as f:
    f.truncate(2 * n)
  tokens = np.memmap(tmp_path / 'tokens.bin', np.uint16, 'r')
  for kind in ('streams', 'windows'):
    batches = make(kind, split(n, ids=tokens), 32, 128, train=True)
    assert np.shares_memory(batches._tokens, tokens)
    assert batches(10**9)['tokens_BT'].shape == (32, 128)  # any step at once


def test_tagged_sentences_have_bert_special_tokens(tmp_path):
  text = 'unbelievable\tB-x\nU.S.\tI-x\nnews\tO\n\nnews\tO\n'
  for name in ('train', 'dev', 'test'):
    (tmp_path / f'{name}.conll').write_text(text)
  given = dict(
    dataset='wnut17',
    manual_dir=str(tmp_path),
    cache_dir=str(tmp_path / 'cache'),
    check_sizes=False,
    tokenizer='wordpiece',
    vocab_size=40,
    batch_size=2,
    length=40,
  )
  cfg = pipeline.Config(**given, batching={'name': 'tagged', 'form': 'bert'})
  made = pipeline.load(cfg)
  batch = pipeline.batches(cfg, made, 'valid', 0, train=False)(0)
  long = int(np.flatnonzero(batch['index_B'] == 0)[0])
  words = [made.tokenizer.encode(word) for word in ('unbelievable', 'U.S.', 'news')]
  row = [made.tokenizer.cls_id, *np.concatenate(words), made.tokenizer.sep_id]
  assert batch['tokens_BT'][long][batch['valid_BT'][long]].tolist() == row
  first = 1 + np.cumsum([0, *map(len, words)])[:-1]
  assert np.flatnonzero(batch['weights_BT'][long]).tolist() == first.tolist()
  names = made.manifest['token_label_names']
  assert [names[i] for i in batch['labels_BT'][long][first]] == ['B-x', 'I-x', 'O']
  assert batch['weights_BT'].sum() == 4 and batch['labels_BT'].sum() == 1 + 2 + 2
  with pytest.raises(InputError, match='data.length: got 5'):
    pipeline.batches(pipeline.Config(**{**given, 'length': 5}, batching=cfg.batching), made, 'valid', 0, train=False)
  with pytest.raises(InputError, match='data.tokenizer: got .* "bert"'):
    pipeline.Config(**{**given, 'tokenizer': 'words'}, batching=cfg.batching)
