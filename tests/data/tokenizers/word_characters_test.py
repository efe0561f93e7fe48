"""Letters of words, two streams of sentences, and sentences with labels of words."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lmx.data import corpus, pipeline
from lmx.data.batching import both_ways, tagged
from lmx.data.tokenizers import build, word_characters
from lmx.data.tokenizers.words import Words, with_all_words
from lmx.errors import InputError
from lmx.layers import char_cnn

TEXTS = {'train': ['the cat saw the dog\nthe dog ran\na', 'the end\n'], 'valid': ['the zebra ran\n']}


def made(characters: int = 8, vocab_size: int = 5):
  train = build.train('words', TEXTS['train'], vocab_size=vocab_size, rule='lines')
  whole = with_all_words(train, [text for texts in TEXTS.values() for text in texts])
  return corpus.Corpus.from_texts(TEXTS, whole, sentences='lines'), word_characters.create(whole, characters)


def word_of(row) -> str:
  """Text of one word's characters; marks by name."""
  marks = {257: '<S>', 258: '</S>'}
  assert row[0] == 259 and 260 in row
  inside = row[1 : list(row).index(260)]
  assert (row[list(row).index(260) + 1 :] == 261).all()
  return marks.get(int(inside[0])) or bytes(int(i) - 1 for i in inside).decode('utf-8', 'replace')


def test_exported_special_tokens_match_the_model():
  names = ('BEGIN_SENTENCE', 'END_SENTENCE', 'BEGIN_WORD', 'END_WORD', 'PAD')
  assert [getattr(word_characters, n) for n in names] == [getattr(char_cnn, n) for n in names]


def test_words_are_spelled_as_released():
  found = word_characters.character_ids([b'cat', 'é'.encode(), b'abcdefgh', b''], 6)
  assert found[0].tolist() == [259, 100, 98, 117, 260, 261]
  assert found[1].tolist() == [259, 0xC3 + 1, 0xA9 + 1, 260, 261, 261]
  assert found[2].tolist() == [259, 98, 99, 100, 101, 260]  # cut to C - 2 bytes
  assert found[3].tolist() == [259, 260, 261, 261, 261, 261]


def test_words_are_read_back_from_their_characters():
  words = ['a', 'größe', 'longest word']
  ids = word_characters.character_ids([word.encode() for word in words], 9)
  assert word_characters.spelled(ids) == ['a', 'größe', 'longest']
  tokenizer = build.train('words', ['a word\n'], rule='lines')
  end = word_characters.create(tokenizer, 9).character_ids(np.array([tokenizer.eos_id]))
  assert word_characters.spelled(end) == ['</S>']


def test_oov_word_is_spelled_as_input_and_unk_as_target():
  data, spelled = made()
  tokens = np.asarray(data.splits['valid'].tokens)
  assert [word_of(row) for row in spelled.character_ids(tokens)] == ['the', 'zebra', 'ran', '</S>']
  assert data.tokenizer.known == 5 < data.tokenizer.vocab_size
  kept = [t for t in data.tokenizer.tokens[:5] if t not in ('<unk>', '<eos>')]
  assert spelled.vocab_size == 3 + len(kept)
  assert spelled.word_ids(tokens).tolist() == [
    3 + kept.index('the'),
    word_characters.UNKNOWN,
    word_characters.UNKNOWN,
    word_characters.END,
  ]
  again = Words(data.tokenizer.tokens, 'lines', known=5)
  assert again.hash == data.tokenizer.hash != Words(data.tokenizer.tokens, 'lines').hash


def test_saved_vocabulary_round_trips(tmp_path):
  data, _ = made()
  data.tokenizer.save(str(tmp_path))
  assert build.load(str(tmp_path)).known == 5


def batches(batch_size=2, length=3, train=False):
  data, spelled = made()
  skipped = (data.tokenizer.eos_id,)
  return (
    spelled,
    data,
    both_ways.BothWays(
      data.splits['train'],
      batch_size,
      length,
      words=spelled,
      skipped=skipped,
      vocab_size=data.tokenizer.vocab_size,
      seed=0,
      train=train,
    ),
  )


def read(prefix, batch_size, length):
  """(input, target id) of every position of the rows laid end to end."""
  spelled, _, made_ = batches(batch_size, length)
  found = [[] for _ in range(batch_size)]
  for step in range(made_.steps):
    batch = made_(step)
    assert batch['reset_B'].all() == (step == 0)
    for b in range(batch_size):
      for t in range(length):
        if batch['weights_BT'][b, t]:
          found[b].append((word_of(batch[f'{prefix}characters_BTC'][b, t]), int(batch[f'{prefix}targets_BT'][b, t])))
        else:
          assert not batch[f'{prefix}characters_BTC'][b, t].any()
  return [pair for row in found for pair in row]


@pytest.mark.parametrize('shape', [(1, 4), (2, 3), (3, 2)])
def test_both_streams_hold_every_sentence_whole_and_in_order(shape):
  spelled, data, _ = batches()
  sentences = [line.split() for text in TEXTS['train'] for line in text.splitlines()]
  number = lambda w: int(spelled.word_ids(np.array([data.tokenizer.tokens.index(w)]))[0])
  forward, backward = [], []
  for words in sentences:
    forward += zip(['<S>', *words], [*map(number, words), word_characters.END], strict=True)
    backward += zip(['</S>', *words[::-1]], [*map(number, words[::-1]), word_characters.BEGIN], strict=True)
  assert read('', *shape) == forward
  assert read('backward_', *shape) == backward


def test_training_stream_continues_where_it_ended():
  _, _, train = batches(train=True)
  words = [len(line.split()) + 1 for text in TEXTS['train'] for line in text.splitlines()]
  assert train.stateful and train.tokens_per_epoch == sum(words)
  a, b = train(0), train(train.steps)
  np.testing.assert_array_equal(a['characters_BTC'], b['characters_BTC'])
  np.testing.assert_array_equal(train(1, slice(1, 2))['targets_BT'], train(1)['targets_BT'][1:])


def test_rows_can_reset_state_in_turn():
  data, spelled = made()
  build_with = lambda train, every: both_ways.build(
    pipeline.Config(
      batching={'name': 'both_ways', 'reset_every': every}, characters=8, batch_size=2, eval_batch_size=2, length=1
    ),
    dataclasses.replace(data, splits={'train': data.splits['train']}),
    'train',
    0,
    train=train,
  )
  found = [build_with(True, 3)(step)['reset_B'].tolist() for step in range(6)]
  assert found == [[True, True], [False, False], [False, True], [True, False], [False, False], [False, True]]
  for kept in (build_with(True, 0), build_with(False, 3)):  # never in evaluation
    assert [kept(step)['reset_B'].tolist() for step in range(1, 6)] == [[False, False]] * 5
  with pytest.raises(InputError, match='data.batching.reset_every: got -1'):
    both_ways.Config(reset_every=-1)


SUBWORDS = {
  'train': ['The cat saw the dog.\nThe dog ran. \n\n A new dog\n', 'the end  \n'],
  'valid': ['the zebra ran\n'],
}


@pytest.fixture(scope='module')
def bpe():
  return build.train('bpe', SUBWORDS['train'] * 9, vocab_size=280)


@pytest.mark.parametrize('kind', ['bpe', 'word_bpe', 'gpt_bpe', 'wordpiece', 'unigram'])
def test_no_two_subwords_have_the_same_characters(kind):
  tokenizer = build.train(kind, [*SUBWORDS['train'] * 9, 'a <unk> ##g ▁x <s>'], vocab_size=400)
  spellings = tokenizer.spellings()
  assert len(set(spellings)) == len(spellings) == tokenizer.vocab_size
  text = 'the dog ran'
  joined = b''.join(spellings[i] for i in tokenizer.encode(text))
  assert joined.replace(b'##', b'').replace(b' ', b'') == text.replace(' ', '').encode()


def test_byte_level_subwords_are_spelled_by_their_bytes(bpe):
  spellings = bpe.spellings()
  assert {bytes([byte]) for byte in range(256)} < set(spellings)
  for text in SUBWORDS['train']:
    assert b''.join(spellings[i] for i in bpe.encode(text)) == text.encode()
  known = word_characters.create(bpe, 24)
  assert known.vocab_size == 3 + bpe.vocab_size - 1  # every subword, without <|endoftext|>
  ids = known.word_ids(np.arange(bpe.vocab_size))
  assert sorted(ids) == [word_characters.END, *range(word_characters.FIRST, known.vocab_size)]
  names = word_characters.vocabulary(bpe)
  assert [names[i] for i in known.word_ids(bpe.encode('the dog'))] == bpe.ids_to_tokens(bpe.encode('the dog'))


def test_both_streams_read_sentences_of_subwords(bpe):
  data = corpus.Corpus.from_texts(SUBWORDS, bpe, sentences='lines')
  cfg = pipeline.Config(batching='both_ways', tokenizer='bpe', characters=24, batch_size=1, length=100)
  batch = pipeline.batches(cfg, data, 'train', 0, train=False)(0)
  found = {name: [word_of(row) for row in batch[f'{name}characters_BTC'][0] if row.any()] for name in ('', 'backward_')}
  sentences = ['The cat saw the dog.', 'The dog ran.', ' A new dog', 'the end']
  assert ''.join(found['backward_'][:8]) == '</S>' + ''.join(found[''][7:0:-1])
  assert ''.join(found['']) == ''.join(f'<S>{sentence}' for sentence in sentences)
  known = word_characters.create(bpe, 24)
  ids = [int(i) for sentence in sentences for i in [*known.word_ids(bpe.encode(sentence)), word_characters.END]]
  assert batch['targets_BT'][0][: len(ids)].tolist() == ids and batch['weights_BT'].sum() == len(ids)


def labelled():
  tokenizer = with_all_words(build.train('words', ['a b'], rule='space'), ['c d e'])
  data = corpus.Corpus.from_texts({'train': ['a b c', 'd', 'e a']}, tokenizer)
  labels = np.array([0, 1, 2, 1, 2, 0], np.int32)
  return dataclasses.replace(data, splits={'train': dataclasses.replace(data.splits['train'], token_labels=labels)})


def test_sentences_come_with_the_label_of_each_word():
  data = labelled()
  cfg = pipeline.Config(batching='tagged', length=4, batch_size=2, characters=5)
  made_ = pipeline.batches(cfg, data, 'train', 0, train=False)
  seen = {}
  for step in range(made_.steps):
    batch = made_(step)
    assert 'labels_B' not in batch
    for b, index in enumerate(batch['index_B']):
      live = batch['valid_BT'][b]
      assert (batch['weights_BT'][b] == live).all() and not batch['characters_BTC'][b][~live].any()
      if index >= 0:
        words = ''.join(word_of(row) for row in batch['characters_BTC'][b][live])
        seen[int(index)] = (words, batch['labels_BT'][b][live].tolist(), batch['tokens_BT'][b][live].tolist())
  assert seen == {0: ('abc', [0, 1, 2], [3, 4, 2]), 1: ('d', [1], [2]), 2: ('ea', [2, 0], [2, 3])}


def test_missing_labels_or_characters_are_rejected():
  data = labelled()
  with pytest.raises(InputError, match='data.length: got 2'):
    pipeline.batches(pipeline.Config(batching='tagged', length=2, batch_size=1), data, 'train', 0, train=False)
  plain = dataclasses.replace(data.splits['train'], token_labels=None)
  with pytest.raises(InputError, match='no word labels'):
    own = dict(template=tagged.template('plain', None), end_id=None, cfg=tagged.Config(), vocab_size=9, seed=0)
    tagged.Tagged(plain, 1, 4, train=False, **own)
  with pytest.raises(InputError, match='data.characters: got 0'):
    pipeline.Config(batching='both_ways')
  with pytest.raises(InputError, match='data.characters: got 20 with data.tokenizer "bytes"'):
    pipeline.Config(characters=20, tokenizer='bytes')
  with pytest.raises(InputError, match='no sentences'):
    pipeline.batches(pipeline.Config(batching='both_ways', characters=8), data, 'train', 0, train=False)


def test_labels_must_be_as_many_as_words(tmp_path):
  import io

  from lmx.data.splits import Writer

  tokenizer = Words(['<unk>', 'a'], 'space')
  writer = Writer('train', io.BytesIO(), tokenizer, False, line_words=False, token_labels=True)
  writer.add('a a', [tokenizer.encode('a a')])
  with pytest.raises(InputError, match='got 1 labels; expected 2'):
    writer.end_document('O')
