"""Rows of tables as BERT and GPT read them: marks, types, cutting, both orders, labels, and what is refused."""

from __future__ import annotations

import collections
import itertools
import json
import warnings

import numpy as np
import pytest

from lmx.data import pipeline
from lmx.data.batching import texts
from lmx.errors import InputError, InputWarning

WORDS = [f'{a}{b}' for a, b in itertools.product('bcdfg', 'aeiou')]
MARKS = ('_start_', '_delimiter_', '_classify_')


def rows(count=30):
  for i in range(count):
    first = ' '.join(WORDS[(i + j) % 25] for j in range(1 + i * 3 % 11))
    second = ' '.join(WORDS[(i * 2 + j) % 25] for j in range(1 + i * 5 % 7))
    yield {'one': first, 'two': second, 'label': 'yes' if i % 3 else 'no', 'score': str(i / 4)}


@pytest.fixture
def folder(tmp_path):
  for split in ('train', 'valid', 'test'):
    (tmp_path / f'{split}.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows()))
  return tmp_path


def load(folder, form='bert', columns=('one', 'two'), train=True, split='train', **changes):
  own = dict(tokenizer='wordpiece') if form == 'bert' else dict(tokenizer='bpe', special_tokens=MARKS, vocab_size=300)
  batching = {'name': 'texts', 'form': form, 'buckets': (8, 16), **changes.pop('batching', {})}
  given = {
    'dataset': 'table_files',
    'manual_dir': str(folder),
    'cache_dir': str(folder / 'cache'),
    'texts': columns,
    'batch_size': 4,
    'length': 32,
    **own,
    **changes,
  }
  cfg = pipeline.Config(**given, batching=batching)
  corpus = pipeline.load(cfg)
  return corpus, pipeline.batches(cfg, corpus, split, 0, train=train)


def by_index(batches):
  """index -> {key: row} of an evaluation."""
  found = {}
  for step in range(batches.steps):
    batch = batches(step)
    for b, index in enumerate(batch['index_B']):
      if index >= 0:
        found[int(index)] = {key: x[b] for key, x in batch.items()}
      else:
        assert batch['row_weights_B'][b] == 0
  return found


def pieces(corpus, row):
  return [corpus.tokenizer.id_to_token(int(i)) for i in row['tokens_BT'][row['valid_BT']]]


def test_bert_form_reads_byte_level_bpe_with_its_special_tokens(folder):
  subwords = dict(tokenizer='bpe', special_tokens=('<pad>', '<cls>', '<sep>', '<mask>'), vocab_size=300)
  corpus, batches = load(folder, train=False, **subwords)
  tokenizer = corpus.tokenizer
  ids = (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
  assert tokenizer.ids_to_tokens(ids) == ['<pad>', '<cls>', '<sep>', '<mask>']
  first = pieces(corpus, by_index(batches)[0])
  assert (first[0], first[-1], first.count('<sep>')) == ('<cls>', '<sep>', 2)
  with pytest.raises(InputError, match='<cls> and <sep> in data.special_tokens'):
    load(folder, tokenizer='bpe')


def test_bert_pairs_have_special_tokens_and_types(folder):
  corpus, batches = load(folder, train=False)
  found = by_index(batches)
  assert sorted(found) == list(range(30))
  for i, row in enumerate(rows()):
    a, b = (list(map(corpus.tokenizer.id_to_token, corpus.tokenizer.encode(row[key]))) for key in ('one', 'two'))
    assert pieces(corpus, found[i]) == ['[CLS]', *a, '[SEP]', *b, '[SEP]']
    types = found[i]['types_BT'][found[i]['valid_BT']].tolist()
    assert types == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert corpus.manifest['label_names'][found[i]['labels_B']] == row['label']
    assert not found[i]['tokens_BT'][~found[i]['valid_BT']].any()


def test_bert_reads_one_text(folder):
  corpus, batches = load(folder, columns=('one',), train=False)
  row = by_index(batches)[1]
  assert pieces(corpus, row)[0] == '[CLS]' and pieces(corpus, row)[-1] == '[SEP]' and not row['types_BT'].any()


@pytest.mark.filterwarnings('ignore:8 of 30 rows')
@pytest.mark.parametrize('characters', [0, 6])
def test_separate_texts_are_separate_arrays(folder, characters):
  own = {'tokenizer': 'words', 'special_tokens': (), 'vocab_size': 0, 'characters': characters, 'length': 8}
  corpus, batches = load(folder, 'separate', train=False, **own)
  found, whole = by_index(batches), corpus.tokenizer.tokens
  assert sorted(found) == list(range(30))
  for i, row in enumerate(rows()):
    for axes, key in (('BT', 'one'), ('BS', 'two')):
      words, valid = row[key].split()[:8], found[i][f'valid_{axes}']
      assert valid.tolist() == [j < len(words) for j in range(8)]
      if characters:
        letters = found[i][f'characters_{axes}C']
        assert [bytes((ids[ids < 257] - 1).tolist()).decode() for ids in letters[valid]] == words
        assert not letters[~valid].any()
      else:
        assert [whole[token] for token in found[i][f'tokens_{axes}'][valid]] == words
        assert not found[i][f'tokens_{axes}'][~valid].any()
    assert 'types_BT' not in found[i] and corpus.manifest['label_names'][found[i]['labels_B']] == row['label']
  assert batches.tokens_per_epoch == sum(min(len(row[key].split()), 8) for row in rows() for key in ('one', 'two'))
  assert batches.positions() == 2 * 8 * 32


@pytest.mark.parametrize('field', [{'both_orders': True}, {'second_length': 4}])
def test_separate_texts_are_not_joined(folder, field):
  with pytest.raises(InputError, match='form "separate"'):
    load(folder, 'separate', tokenizer='words', special_tokens=(), batching=field)


def test_gpt_reads_start_delimiter_classify(folder):
  corpus, batches = load(folder, 'gpt', train=False)
  size = corpus.tokenizer.vocab_size
  assert [corpus.tokenizer.token_id(name) for name in MARKS] == [size - 3, size - 2, size - 1]
  found, first = by_index(batches), next(rows())
  a, b = (corpus.tokenizer.encode(first[key]).tolist() for key in ('one', 'two'))
  assert found[0]['tokens_BT'][found[0]['valid_BT']].tolist() == [size - 3, *a, size - 2, *b, size - 1]
  assert all('<|endoftext|>' not in pieces(corpus, row) for row in found.values())
  assert size - 3 not in corpus.tokenizer.encode('_start_')  # written in a text it is text


@pytest.mark.parametrize(
  ('form', 'empty_second', 'wanted', 'types'),
  [
    ('bert', 'dropped', '[CLS] a a a a a a [SEP]', [0] * 8),
    ('bert', 'marked', '[CLS] a a a a a [SEP] [SEP]', [0] * 7 + [1]),
    ('xlnet', 'dropped', 'a a a a a a <sep> <cls>', [0] * 7 + [2]),
    ('gpt', 'dropped', '_start_ a a a a a _delimiter_ _classify_', [0] * 8),
  ],
)
@pytest.mark.filterwarnings('ignore:2 of 2 rows')
def test_pair_with_an_empty_second_text_is_one_text(form, empty_second, wanted, types, tmp_path):
  row = {'one': 'a ' * 9, 'two': '', 'label': 'yes'}
  (tmp_path / 'train.jsonl').write_text(json.dumps(row) + '\n' + json.dumps({**row, 'two': 'a'}) + '\n')
  own = {} if form != 'xlnet' else dict(special_tokens=('<cls>', '<sep>'))
  batching = {'empty_second': empty_second, 'buckets': ()}
  corpus, batches = load(tmp_path, form, train=False, length=8, batching=batching, split_fraction=0, **own)
  found = by_index(batches)
  assert [piece.strip('Ġ') for piece in pieces(corpus, found[0])] == wanted.split()
  assert found[0]['types_BT'][:8].tolist() == types if form != 'gpt' else True
  assert len(pieces(corpus, found[1])) == 8 and batches.notes == ()


@pytest.mark.parametrize(
  ('form', 'wanted'),
  [
    ('bert', ['[CLS] a [SEP]'] * 2),
    ('xlnet', ['a <sep> <cls>'] * 2),
    ('gpt', ['_start_ a _delimiter_ _classify_', '_start_ _delimiter_ a _classify_']),
  ],
)
def test_both_orders_of_one_text_are_identical(form, wanted, tmp_path):
  (tmp_path / 'train.jsonl').write_text(json.dumps({'one': 'a', 'two': '', 'label': 'yes'}) + '\n')
  own = {} if form != 'xlnet' else dict(special_tokens=('<cls>', '<sep>'))
  batching = {'both_orders': True, 'buckets': ()}
  corpus, batches = load(tmp_path, form, train=False, length=8, batching=batching, split_fraction=0, **own)
  batch = batches(0)
  for g, pieces_ in enumerate(wanted):
    found = {key: batch[key.replace('_BT', '_BGT')][0, g] for key in ('tokens_BT', 'valid_BT', 'types_BT')}
    assert [piece.strip('Ġ') for piece in pieces(corpus, found)] == pieces_.split()
    assert not found['types_BT'][:2].any()


@pytest.mark.parametrize('columns', [('one', 'two'), ('one',)])
def test_xlnet_special_tokens_are_at_the_end(columns, folder):
  corpus, batches = load(folder, 'xlnet', columns, train=False, tokenizer='bpe', special_tokens=('<cls>', '<sep>'))
  cls, sep = (corpus.tokenizer.token_id(name) for name in ('<cls>', '<sep>'))
  for i, row in enumerate(rows()):
    texts_ = [corpus.tokenizer.encode(row[key]).tolist() for key in columns]
    found = by_index(batches)[i]
    assert found['tokens_BT'][found['valid_BT']].tolist() == [*sum(([*text, sep] for text in texts_), []), cls]
    types = [n for n, text in enumerate(texts_) for _ in range(len(text) + 1)]
    assert found['types_BT'][found['valid_BT']].tolist() == [*types, 2]
  with pytest.raises(InputError, match='data.batching: got'):
    load(folder, 'xlnet', columns, tokenizer='bpe', special_tokens=())


def test_plain_rows_have_no_special_tokens(folder):
  corpus, batches = load(folder, 'plain', train=False)
  for i, row in enumerate(rows()):
    a, b = (corpus.tokenizer.encode(row[key]).tolist() for key in ('one', 'two'))
    found = by_index(batches)[i]
    assert found['tokens_BT'][found['valid_BT']].tolist() == a + b and found['tokens_BT'].dtype == np.int32


def test_existing_special_tokens_keep_their_ids(folder):
  corpus, _ = load(folder, 'gpt', train=False)
  corpus.tokenizer.save(str(folder / 'tokenizer'))
  again, _ = load(folder, 'gpt', train=False, tokenizer_path=str(folder / 'tokenizer'))
  assert again.tokenizer.hash == corpus.tokenizer.hash
  with pytest.raises(InputError, match='data.special_tokens: got b, x'):
    load(folder, 'gpt', train=False, tokenizer_path=str(folder / 'tokenizer'), special_tokens=('_start_', 'b', 'x'))


def test_both_orders(folder):
  _, one = load(folder, 'gpt', train=False)
  _, two = load(folder, 'gpt', train=False, batching={'both_orders': True})
  batch, alone = two(0), one(0)
  assert batch['tokens_BGT'].shape[:2] == (4, 2) and 'tokens_BT' not in batch
  np.testing.assert_array_equal(batch['tokens_BGT'][:, 0], alone['tokens_BT'])
  size = alone['valid_BT'].sum(1)
  np.testing.assert_array_equal(batch['valid_BGT'].sum(2), np.stack([size, size], 1))
  for b in range(4):
    forth, back = (batch['tokens_BGT'][b, g, : size[b]].tolist() for g in (0, 1))
    middle = forth.index(forth[-1] - 1)  # the delimiter
    assert back == [forth[0], *forth[middle + 1 : -1], forth[middle], *forth[1:middle], forth[-1]]


@pytest.mark.parametrize('most', [3, 4, 7, 12])
def test_longer_text_is_truncated_as_released(most):
  for a, b in itertools.product(range(1, 15), range(1, 15)):
    first, second = ['a'] * a, ['b'] * b
    while len(first) + len(second) > most:  # create_pretraining_data.py and run_classifier.py
      (first if len(first) > len(second) else second).pop()
    np.testing.assert_array_equal(texts.truncate_sizes(np.array([[a, b]]), most), [[len(first), len(second)]])
  np.testing.assert_array_equal(texts.truncate_sizes(np.array([[2], [9]]), 5), [[2], [5]])


def choices(folder, form, **changes):
  """A table of SWAG's form: a sentence, the beginning of the next, four endings."""
  (folder / 'swag').mkdir(exist_ok=True)
  lines = ['sent1,sent2,ending0,ending1,ending2,ending3,label']
  for i in range(20):
    words = lambda n, i=i: ' '.join(WORDS[(i + n + j) % 25] for j in range(1 + (i + n) % 4))
    lines.append(','.join([words(0), words(1) if i % 5 else '', *(words(n) for n in range(2, 6)), str(i % 4)]))
  for name in ('train', 'val', 'test'):
    (folder / f'swag/{name}.csv').write_text('\n'.join(lines) + '\n')
  corpus, batches = load(folder, form, columns=('text',), dataset='swag', check_sizes=False, train=False, **changes)
  assert corpus.manifest['choices'] == 4 and corpus.manifest['texts'] == 6
  return corpus, batches, [line.split(',') for line in lines[1:]]


@pytest.mark.parametrize('form', ['bert', 'gpt'])
def test_question_is_read_once_with_each_choice(form, folder):
  corpus, batches, table = choices(folder, form)
  found = by_index(batches)
  encode = lambda text: [corpus.tokenizer.id_to_token(int(i)) for i in corpus.tokenizer.encode(text)]
  for i, (context, question, *endings, label) in enumerate(table):
    assert int(corpus.manifest['label_names'][found[i]['labels_B']]) == int(label)
    for g, ending in enumerate(endings):
      tokens, valid = found[i]['tokens_BGT'][g], found[i]['valid_BGT'][g]
      read = [corpus.tokenizer.id_to_token(int(t)) for t in tokens[valid]]
      if form == 'bert':
        assert read == ['[CLS]', *encode(context), '[SEP]', *encode(question), *encode(ending), '[SEP]']
        assert found[i]['types_BGT'][g][valid].sum() == len(encode(question)) + len(encode(ending)) + 1
      else:
        assert read == [MARKS[0], *encode(context), *encode(question), MARKS[1], *encode(ending), MARKS[2]]


def test_composed_text_truncates_its_first_part(folder):
  with pytest.warns(InputWarning, match='split train are longer than 9'):
    corpus, batches, table = choices(folder, 'gpt', length=9)
  row = by_index(batches)[3]
  context, question, *endings, _ = table[3]
  sizes = [len(corpus.tokenizer.encode(text)) for text in (context, question, endings[0])]
  kept = texts.truncate_sizes(np.array([[sizes[0] + sizes[1], sizes[2]]]), 6)[0]
  tokens = row['tokens_BGT'][0][row['valid_BGT'][0]].tolist()
  a, b = corpus.tokenizer.encode(context).tolist(), corpus.tokenizer.encode(question).tolist()
  assert tokens[1 : 1 + kept[0]] == (a[: max(kept[0] - len(b), 0)] + b[: kept[0]])
  assert len(tokens) == kept.sum() + 3


def test_context_is_truncated_before_question_and_choice(folder):
  """zihangdai/xlnet, run_race.py: max_qa_length, then max_seq_length at the cost of the passage."""
  with pytest.warns(InputWarning, match='split train are longer than 8'):
    corpus, batches, table = choices(
      folder, 'xlnet', length=8, special_tokens=('<cls>', '<sep>'), batching={'second_length': 3}
    )
  encode = lambda text: corpus.tokenizer.encode(text).tolist()
  marks = [corpus.tokenizer.token_id(name) for name in ('<sep>', '<cls>')]
  for i, row in by_index(batches).items():
    context, question, *endings, _ = table[i]
    for g, ending in enumerate(endings):
      second = (encode(question) + encode(ending))[-3:]
      first = encode(context)[: 8 - 3 - len(second)]
      wanted = [*first, marks[0], *second, *marks]
      assert row['tokens_BGT'][g][row['valid_BGT'][g]].tolist() == wanted


def test_choices_without_a_question_are_accepted():
  wanted = {'xlnet': (((0,), (1,)), ((0,), (2,))), 'gpt': (((0,), (1,)), ((0,), (2,)))}
  for form, layout in wanted.items():
    assert texts.sequences(texts.Config(form=form), 3, 2) == layout


def test_truncated_rows_are_counted_and_reported(folder):
  corpus, batches = load(folder, length=9)
  full = [len(corpus.tokenizer.encode(r['one'])) + len(corpus.tokenizer.encode(r['two'])) + 3 for r in rows()]
  short = sum(n > 9 for n in full)
  assert batches.notes == (f'{short} of 30 rows of split train are longer than 9 and truncated',) and 0 < short < 30
  with pytest.warns(InputWarning, match=f'{short} of 30 rows of split valid'):
    _, held_out = load(folder, length=9, train=False, split='valid')
  row = by_index(held_out)[3]
  assert row['valid_BT'].sum() == min(full[3], 9) and pieces(corpus, row)[-1] == '[SEP]'
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    assert load(folder)[1].notes == ()


def test_scores(folder):
  corpus, batches = load(folder, label='score', scores=True, train=False)
  assert corpus.manifest['scores'] and corpus.manifest['label_names'] == []
  found = by_index(batches)
  np.testing.assert_allclose([found[i]['scores_B'] for i in range(30)], np.arange(30) / 4)
  assert 'labels_B' not in found[0]


def test_unsorted_batches_mix_lengths(folder):
  _, together = load(folder)
  _, mixed = load(folder, batching={'pool': 0})
  sizes = lambda batches: [batches(s)['valid_BT'].sum(1) for s in range(batches.steps)]
  spread = lambda found: np.mean([np.ptp(size) for size in found])
  assert spread(sizes(mixed)) > 2 * spread(sizes(together))
  seen = np.concatenate([mixed(s)['index_B'] for s in range(mixed.steps)])
  assert len(set(seen.tolist())) == len(seen) == 28


def test_group_padding_is_trimmed_in_the_step(folder):
  """Batches have one shape, and their positions are counted as the step will cut them."""
  buckets = {'pool': 0, 'buckets': (8, 12, 16)}
  _, alike = load(folder, batching=buckets, batch_size=6)
  _, grouped = load(folder, batching=buckets | {'groups': 3}, batch_size=6)
  assert (alike.groups, alike.lengths) == (1, ()) and grouped.groups == 3
  assert grouped.lengths == (8, 12, 16, grouped.length)
  counted = 0
  for s in range(grouped.steps):
    a, b = alike(s), grouped(s)
    assert b['tokens_BT'].shape == (grouped.batch_size, grouped.length)
    T = a['tokens_BT'].shape[1]
    np.testing.assert_array_equal(b['tokens_BT'][:, :T], a['tokens_BT'])
    assert not b['valid_BT'][:, T:].any() and (a['index_B'] == b['index_B']).all()
    for third in np.split(np.sort(b['valid_BT'].sum(1)), 3):
      counted += len(third) * next(n for n in grouped.lengths if n >= third.max())
  assert grouped.positions() == counted < alike.positions()
  _, held_out = load(folder, batching=buckets | {'groups': 3}, train=False)
  assert held_out.groups == 1 and held_out(0)['tokens_BT'].shape[1] < grouped.length


def test_packed_batches_place_every_token_once(folder):
  """Few numbers of sequences, each token of the batch once, the rows those of the batch in groups."""
  _, grouped = load(folder, batching={'pool': 0, 'groups': 3, 'packed': True}, batch_size=6)
  assert grouped.packable and 'packed_PT' not in grouped(0)
  packed = grouped.pack()
  assert (packed.groups, packed.lengths) == (1, ())
  shapes = collections.Counter()
  for s in range(9 * packed.steps):
    batch, own = packed(s), grouped(s)
    place_PT = batch.pop('packed_PT')
    assert all((batch[name] == own[name]).all() for name in own)
    used = np.sort(place_PT[place_PT >= 0])
    np.testing.assert_array_equal(used, np.flatnonzero(batch['valid_BT']))
    row_PT = np.where(place_PT < 0, -1, place_PT // packed.length)
    for b in range(6):  # a row is in one piece, in order
      at = np.argwhere(row_PT == b)
      assert len(set(at[:, 0])) == 1 and (np.diff(at[:, 1]) == 1).all()
      assert (np.diff(place_PT[tuple(at.T)]) == 1).all()
    shapes[place_PT.shape] += 1
  (common,) = shapes  # each is a compilation
  assert packed.positions() == packed.steps * np.prod(common) and common[0] < 6
  _, held_out = load(folder, batching={'packed': True}, train=False)
  assert not held_out.packable


def test_choices_of_a_question_can_be_packed(folder):
  _, batches = load(folder, batching={'pool': 0, 'packed': True, 'both_orders': True, 'form': 'bert'}, batch_size=4)
  batch = batches.pack()(0)
  place_PT = batch['packed_PT']
  assert batch['valid_BGT'].shape == (4, 2, 32)
  np.testing.assert_array_equal(np.sort(place_PT[place_PT >= 0]), np.flatnonzero(batch['valid_BGT']))


def test_separate_texts_cannot_be_packed(folder):
  with pytest.raises(InputError, match='data.batching.packed: got True'):
    load(folder, batching={'packed': True}, form='separate', tokenizer='words')


def test_data_fraction_keeps_both_texts_of_a_row(folder):
  corpus, batches = load(folder, train=False, fraction=0.5)
  some = by_index(batches)
  assert 5 < len(some) < 25
  whole = {tuple(pieces(corpus, row)) for row in by_index(load(folder, train=False)[1]).values()}
  assert {tuple(pieces(corpus, row)) for row in some.values()} < whole


def test_incompatible_settings_are_rejected(folder):
  with pytest.raises(InputError, match='data.tokenizer: got .* "bert"'):
    load(folder, tokenizer='bpe')
  with pytest.raises(InputError, match='three data.special_tokens'):
    load(folder, 'gpt', special_tokens=('a', 'b'))
  with pytest.raises(InputError, match='data.length: got 4'):
    load(folder, length=4)
  with pytest.raises(InputError, match='both_orders: got rows of'):
    load(folder, columns=('one',), batching={'both_orders': True})
  with pytest.raises(InputError, match='got rows without a label'):
    (folder / 'plain').mkdir()
    (folder / 'plain/train.txt').write_text('ba be bi\n\n' * 30)
    load(folder, dataset='text_files', manual_dir=str(folder / 'plain'), columns=('text',))
  with pytest.raises(InputError, match='data.texts'):
    load(folder, dataset='embedded', manual_dir='')
  (folder / 'train.jsonl').write_text('{"one": "ba", "two": "be"}\n' * 9)
  with pytest.raises(InputError, match='no column label'):
    load(folder)


def test_rows_without_labels_are_read_but_not_trained_on(folder):
  lines = [json.dumps({**row, 'label': '' if i == 4 else row['label']}) for i, row in enumerate(rows())]
  (folder / 'test.jsonl').write_text('\n'.join(lines))
  assert by_index(load(folder, train=False, split='test')[1])[4]['labels_B'] == -1
  with pytest.raises(InputError, match='rows without a label'):
    load(folder, split='test')
  (folder / 'train.jsonl').write_text('\n'.join(lines))
  with pytest.raises(InputError, match=r'got 1 training rows without a label \(line 5\)'):
    load(folder)


def test_corpus_records_the_number_of_texts_in_a_row(folder):
  corpus, _ = load(folder)
  assert corpus.manifest['texts'] == 2
  assert len(load(folder, columns=('one',))[0].splits['train'].offsets) == 31
