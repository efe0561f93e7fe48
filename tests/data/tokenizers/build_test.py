"""Every kind of tokenizer: round trips, rules of the data sets, determinism, files, errors."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lmx.data.tokenizers import build, library_files, words
from lmx.errors import InputError, InputWarning

PROSE = [
  'The cat sat on the mat. "Why not?" said the dog (a big one).\nIt wasn\'t a built-in mat, e.g. os.path.',
  "Cats and dogs sit on mats; they're often sitting... Naïve café — 3.5 pounds!\n\nThe end of the cats.",
] * 3


@pytest.fixture(scope='module', params=[kind for kind in build.KINDS if kind not in ('marian', 'moses')])
def trained(request):
  return build.train(request.param, PROSE, vocab_size=320 if request.param == 'bpe' else 0)


def test_encode_decode_round_trips(trained):
  for text in PROSE:
    ids = trained.encode(text)
    assert ids.dtype == np.int32 and ids.max() < trained.vocab_size
    back = trained.decode(ids)
    if trained.kind == 'wordpiece':
      assert back.replace(' ', '') == ''.join(text.split())
    elif trained.kind == 'gpt_bpe':
      assert back.replace(' ', '') == ''.join(text.lower().replace('é', 'e').replace('ï', 'i').split())
    elif trained.kind in ('words', 'word_bpe'):
      assert words.split(back, 'prose') == words.split(text, 'prose')
    else:
      assert back == text


def test_batch_encoding_matches_single(trained):
  for ids, text in zip(trained.encode_batch(PROSE), PROSE, strict=True):
    np.testing.assert_array_equal(ids, trained.encode(text))


def test_training_is_deterministic_and_saved(trained, tmp_path):
  size = 320 if trained.kind == 'bpe' else 0
  again = build.train(trained.kind, iter(PROSE), vocab_size=size)
  assert again.hash == trained.hash
  changed = build.train(
    trained.kind, PROSE, lower_case=True, document_eos=False, vocab_size=100 if trained.kind.endswith('_bpe') else 360
  )
  assert changed.hash != trained.hash
  trained.save(str(tmp_path))
  loaded = build.load(str(tmp_path))
  assert loaded.hash == trained.hash and loaded.kind == trained.kind
  assert library_files.read(trained.kind, str(tmp_path)).hash == trained.hash
  np.testing.assert_array_equal(loaded.encode(PROSE[1]), trained.encode(PROSE[1]))
  assert (loaded.eos_id, loaded.unk_id, loaded.mask_id) == (trained.eos_id, trained.unk_id, trained.mask_id)


@pytest.mark.parametrize('bad', [-1, 10**6])
def test_ids_outside_the_vocabulary_are_an_error(trained, bad):
  with pytest.raises(InputError, match=f'token id: got {bad}; expected below {trained.vocab_size}'):
    trained.decode([0, bad])


def test_starts_word_groups_subwords(trained):
  text = 'The cat sat on the mat'
  ids = trained.encode(text)
  starts = trained.starts_word(ids)
  assert starts.dtype == bool and starts.shape == ids.shape and starts[0]
  groups = np.split(ids, np.flatnonzero(starts)[1:])
  glued = [trained.decode(group).strip() for group in groups]
  assert [word for word in glued if word] == (text.lower() if trained.kind == 'gpt_bpe' else text).split()


@pytest.mark.parametrize('kind', ['bytes', 'characters', 'bpe'])
def test_line_end_is_followed_by_a_word(kind):
  made = build.train(kind, ['ab\ncd'], vocab_size=300 if kind == 'bpe' else 0)
  np.testing.assert_array_equal(made.starts_word(made.encode('ab\ncd')), [True, False, True, True, False])


@pytest.mark.parametrize('kind', ['bytes', 'characters', 'bpe'])
def test_space_token_begins_the_word_after_it(kind):
  made = build.train(kind, ['ab cd\na'], vocab_size=257 if kind == 'bpe' else 0)
  ids = made.encode('ab cd\na')
  assert made.ids_to_tokens(ids)[2:4] == ['Ġ' if kind == 'bpe' else ' ', 'c']
  np.testing.assert_array_equal(made.starts_word(ids), [1, 0, 1, 1, 0, 1, 1])
  np.testing.assert_array_equal(made.starts_word(ids, joins_space=True), [1, 0, 1, 0, 0, 1, 1])


def test_bpe_of_words_marks_their_ends(tmp_path):
  made = build.train('gpt_bpe', ['low lower lowest low low'] * 3, vocab_size=0)
  assert made.ids_to_tokens(made.encode('Low lowest')) == ['low</w>', 'lowest</w>']
  assert made.decode(made.encode('Low')) == 'low'
  assert made.ids_to_tokens(made.encode('lowlow')) == ['lo', 'w', 'low</w>']  # 'low' was seen at the end of words
  assert made.ids_to_tokens(made.encode('löw 7')) == ['low</w>', '<unk>']  # accents go, as in BERT's rule
  made._model.model.save(str(tmp_path))  # vocab.json and merges.txt, as the release has them
  np.testing.assert_array_equal(library_files.read('gpt_bpe', str(tmp_path)).encode('lowest'), made.encode('lowest'))
  with pytest.raises(InputError, match='data.vocab_size: got 12'):
    build.train('gpt_bpe', ['lowest'], vocab_size=12)


def test_compound_ends_with_its_word_subword():
  text = ['der hut, die hütte, die fischerhütte <unk>.\n"ein rot-weißes z.b. t-shirt"'] * 3
  made = build.train('word_bpe', text, vocab_size=100, lower_case=True)
  assert made.ids_to_tokens([made.eos_id, made.unk_id]) == ['<|endoftext|>', '<unk>']
  pieces = made.ids_to_tokens(made.encode('Hütte, Rothütte.'))
  assert pieces[:2] == ['hütte</w>', ',</w>'] and pieces[-2:] == ['hütte</w>', '.</w>']
  assert made.decode(made.encode('die  Rothütte ,"hut"\nein z.b.')) == 'die rothütte, "hut"\nein z.b.'
  hut = made.encode('hut')
  starts = made.starts_word(np.concatenate([hut, [made.eos_id], hut]))
  assert starts[len(hut)] and starts[len(hut) + 1]  # the end of a text is a word
  assert made.unk_id in made.encode('q') and made.unk_id not in made.encode('<unk> <unk>')
  with pytest.raises(InputError, match='data.vocab_size: got 40'):
    build.train('word_bpe', text, vocab_size=40)
  with pytest.raises(InputError, match='prefix_space: got True'):
    build.train('word_bpe', text, prefix_space=True)


@pytest.mark.parametrize('kind', ['words', 'word_bpe'])
def test_combining_marks_and_joiners_are_word_characters(kind):
  text = 'हिन्दी भाषा, ที่นี่ e\u0301te\u0301 می\u200cخواهم क्\u200dष.'
  made = build.train(kind, [text] * 3)
  assert made.decode(made.encode(text)) == text and len(made.encode(text)) == 8


def test_word_bpe_keeps_attached_hyphens():
  text = 'Obst- und Gemüse, Innen-, (-außen) 3- bis 4-mal „neu“ -alt - x--y -- ein T-Shirt.'
  made = build.train('word_bpe', [text] * 3)
  assert made.decode(made.encode(text)) == text.replace('x--y', 'x -- y')
  found = {piece.removesuffix('</w>') for piece in made.ids_to_tokens(made.encode(text))}
  assert {'Obst-', 'Innen-', '-außen', '3-', '4-mal', '-alt', '-', 'x', '--', 'y', 'T-Shirt'} <= found
  assert words.split('Obst- und -alt', 'prose') == ['Obst', '-', 'und', '-', 'alt']  # as vocabularies of words have it


def test_subwords_have_offsets_in_the_text():
  text = 'Naïve  cats'
  for kind in ('bpe', 'word_bpe', 'gpt_bpe', 'wordpiece'):
    made = build.train(kind, PROSE, vocab_size=0 if kind != 'bpe' else 300, lower_case=kind == 'wordpiece')
    ids, spans = made.encode_spans(text)
    np.testing.assert_array_equal(ids, made.encode(text))
    assert spans.shape == (len(ids), 2) and ''.join(text[a:b] for a, b in spans[spans[:, 1] > 7]).strip() == 'cats'


@pytest.mark.parametrize('lower_case', [False, True])
@pytest.mark.parametrize('rule', ['prose', 'space', 'lines'])
def test_words_have_offsets_in_the_text(rule, lower_case):
  text = "İnce 12,000  Naïve-İ cats'\n\u2003(U.S.A.) ... end"
  made = words.Words(['<unk>', '<eos>'], rule, lower_case=lower_case)
  ids, spans = made.encode_spans(text)
  np.testing.assert_array_equal(ids, made.encode(text))
  read = [text[a:b].lower() if lower_case else text[a:b] for a, b in spans]
  assert ['<eos>' if rule == 'lines' and word == '\n' else word for word in read] == made.split(text)
  assert made.encode_spans('')[1].shape == (0, 2)
  with pytest.raises(InputError, match='"double", whose words have no offsets'):
    words.Words(['<unk>', '<eos>'], 'double').encode_spans(text)


@pytest.mark.parametrize('kind', ['bpe', 'unigram'])
@pytest.mark.parametrize('lower_case', [False, True])
def test_bytes_come_from_their_own_character(kind, lower_case):
  made = build.train(kind, PROSE, vocab_size=600, lower_case=lower_case)
  for text in ('the 今天是İ cat 大阪', '今今', 'x😀y👩\u200d👧 ÉÉ'):
    ids, spans = made.encode_spans(text)
    np.testing.assert_array_equal(ids, made.encode(text))
    for at, character in enumerate(text):
      if not character.isascii():
        own = ids[(spans[:, 0] == at) & (spans[:, 1] == at + 1)]
        wanted = [character.lower(), character][not lower_case]
        assert made.decode(own).strip() == wanted, (text, character)


def test_special_tokens_written_in_text_are_text():
  bpe = build.train('bpe', PROSE, vocab_size=300)
  assert bpe.eos_id not in bpe.encode('a <|endoftext|> b')
  piece = build.train('wordpiece', PROSE)
  assert piece.mask_id not in piece.encode('a [MASK] b')


@pytest.mark.parametrize(
  ('rule', 'text', 'pieces'),
  [
    ('lines', ' a <unk> N \n\n b \n', ['a', '<unk>', 'N', '<eos>', '<eos>', 'b', '<eos>']),
    ('space', 'a b\nc', ['a', 'b', 'c']),
    ('prose', 'A b-c, "d".\n', ['A', 'b-c', ',', '"', 'd', '"', '.', '\n']),
  ],
)
def test_word_rules_split_as_documented(rule, text, pieces):
  made = build.train('words', [text], rule=rule)
  assert made.ids_to_tokens(made.encode(text)) == pieces
  assert made.eos_id is None if rule == 'space' else made.id_to_token(made.eos_id) == '<eos>'


def test_vocabulary_is_sorted_by_frequency_with_unk():
  texts = ['b b b a a c d <unk>\n']
  full = build.train('words', texts, rule='lines')
  assert full.tokens == ['b', 'a', '<eos>', '<unk>', 'c', 'd']
  assert build.train('words', texts, rule='lines', min_count=2).tokens == ['<unk>', 'b', 'a', '<eos>']
  assert build.train('words', texts, rule='lines', vocab_size=4).tokens == ['<unk>', 'b', 'a', '<eos>']
  few = build.train('words', texts, rule='lines', vocab_size=3)
  assert few.ids_to_tokens(few.encode('a b zebra\n')) == ['<unk>', 'b', '<unk>', '<eos>']


def test_character_vocabulary_has_unk_only_if_needed():
  assert build.train('characters', ['aab'], others=['ba'], document_eos=False).tokens == ['a', 'b']
  made = build.train('characters', ['aab'], others=['bc'])
  assert made.tokens == ['<eos>', '<unk>', 'a', 'b']
  np.testing.assert_array_equal(made.encode('cab'), [1, 2, 3])
  with pytest.raises(InputError, match="text: got the character 'c'"):
    build.train('characters', ['ab']).encode('abc')


def test_bytes_preserve_split_characters():
  raw = 'é'.encode()
  halves = [raw[:1].decode('utf-8', 'surrogateescape'), raw[1:].decode('utf-8', 'surrogateescape')]
  ids = np.concatenate(build.train('bytes', []).encode_batch(halves))
  np.testing.assert_array_equal(ids, list(raw))


def test_bpe_preserves_bytes_of_split_characters():
  escaped = lambda raw: raw.decode('utf-8', 'surrogateescape')
  made = build.train('bpe', ['abc', escaped(b'ab\xc3')], vocab_size=300)
  for text in ('é', '€', '😀', *map(chr, range(0x80, 0x800, 7))):
    raw = text.encode()
    lone = [escaped(raw[i : i + 1]) for i in range(len(raw))]
    np.testing.assert_array_equal(np.concatenate(made.encode_batch(lone)), made.encode(text))
  ids = made.encode_batch([escaped(b'abc \xe2\x82'), escaped(b'\xac abc'), ''])
  assert made.decode(np.concatenate(ids)) == 'abc € abc' and ids[2].size == 0 and ids[0].dtype == np.int32


@pytest.mark.parametrize('kind', ['word_bpe', 'gpt_bpe', 'unigram', 'wordpiece', 'bpe'])
def test_lone_surrogate_is_unknown(kind):
  made = build.train(kind, ['ab cd ab'] * 3, vocab_size=400)
  for text in ('ab \ud83d cd', 'ab \udcff cd'):  # of JSON that was cut, and a byte that is no UTF-8
    if kind == 'bpe' and '\udcff' in text:
      continue  # a token of its own
    known = text.translate({0xD83D: 0xFFFD, 0xDCFF: 0xFFFD})
    for ids in (made.encode(text), *made.encode_batch([text]), made.encode_spans(text)[0]):
      np.testing.assert_array_equal(ids, made.encode(known))


def test_decoded_prose_has_normal_spacing():
  text = 'The "quick" fox (or `dog`), isn\'t it? No: it\'s 3.5 at os.path.join!\nNext line.'
  assert words.join(words.split(text, 'prose')) == text
  for text in (
    'Er sagt: „Guten Tag“, sie „nein“.',
    'He said “hello” (“a” and “b”).',
    '”Hej”, sade hon. ”Nej.”',
    'mówi „tak” i „nie”',
    '„ab\n“cd” "e"',
  ):
    assert words.join(words.split(text, 'prose')) == text


def test_wordpiece_splits_and_lower_cases(tmp_path):
  vocabulary = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'un', '##aff', '##able', 'naive', '!']
  (tmp_path / 'vocab.txt').write_text('\n'.join(vocabulary) + '\n')
  made = library_files.read('wordpiece', str(tmp_path), lower_case=True)
  assert made.ids_to_tokens(made.encode('UNaffable naïve! xyz')) == ['un', '##aff', '##able', 'naive', '!', '[UNK]']
  assert (made.pad_id, made.unk_id, made.cls_id, made.sep_id, made.mask_id) == (0, 1, 2, 3, 4)
  np.testing.assert_array_equal(made.starts_word([5, 6, 7, 8]), [True, False, False, True])
  cased = library_files.read('wordpiece', str(tmp_path / 'vocab.txt'))
  assert cased.ids_to_tokens(cased.encode('UNaffable')) == ['[UNK]']


def test_bpe_reads_gpt2_files(tmp_path):
  alphabet = sorted({*'abcdeĠ.'})
  pieces = [*alphabet, 'ab', 'Ġc', '<|endoftext|>']
  (tmp_path / 'vocab.json').write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
  (tmp_path / 'merges.txt').write_text('#version: 0.2\na b\nĠ c\n')
  made = library_files.read('bpe', str(tmp_path))
  assert made.ids_to_tokens(made.encode('ab cab.')) == ['ab', 'Ġc', 'ab', '.']
  assert made.eos_id == pieces.index('<|endoftext|>') and made.vocab_size == len(pieces)
  np.testing.assert_array_equal(made.starts_word(made.encode('ab cab')), [True, True, False])


def test_invalid_options_are_reported(tmp_path):
  with pytest.raises(InputError, match='did you mean "words"'):
    build.train('word', [])
  with pytest.raises(InputError, match='data.vocab_size: got 2'):
    build.train('words', ['a'], vocab_size=2)
  with pytest.raises(InputError, match='data.vocab_size: got 100'):
    build.train('bpe', ['a'], vocab_size=100)
  with pytest.raises(InputError, match='no tokenizer of kind bpe'):
    library_files.read('bpe', str(tmp_path))
  (tmp_path / 'vocab.txt').write_text('a\nb\n')
  with pytest.raises(InputError, match=r'without \[UNK\]'):
    library_files.read('wordpiece', str(tmp_path))
  (tmp_path / 'tokenizer.json').write_text('{')
  with pytest.raises(InputError, match=r'tokenizer.json: not a bpe tokenizer'):
    library_files.read('bpe', str(tmp_path))


@pytest.mark.parametrize('kind', ['bpe', 'unigram'])
@pytest.mark.parametrize(
  'text',
  [' leading and  double spaces ', 'tab\tand\nend\r\n', '日本語 ☃ — naïve', '<|endoftext|> <unk> <0x41> </s>', '', ' '],
)
def test_subwords_decode_to_any_text(kind, text):
  made = build.train(kind, PROSE, vocab_size=380)
  ids = made.encode(text)
  assert made.decode(ids) == text and not {made.eos_id, made.unk_id} & set(ids.tolist())


def test_unigram_subwords_are_the_likeliest_and_the_rest_is_bytes():
  endings = ['', 's', 'ing', 'ed'] * 40  # pieces are parts that several words share
  texts = [f'number{end} count{end} add{end} the{end}' for end in endings]
  made = build.train('unigram', texts, vocab_size=500)
  assert made.ids_to_tokens(made.encode('number counts')) == ['▁number', '▁count', 's'] and made.vocab_size <= 500
  assert made.ids_to_tokens(made.encode('add☃')) == ['▁add', '<0xE2>', '<0x98>', '<0x83>']
  assert (made.eos_id, made.bos_id, made.unk_id, made.pad_id) == (0, 0, 1, None)
  assert made.decode([*made.encode('add cats'), made.eos_id]) == 'add cats<|endoftext|>'
  with pytest.raises(InputError, match='vocab_size: got 300'):
    build.train('unigram', texts, vocab_size=300)
  many = ['多' * 9 + ' ' + chr(0x4E00 + i) + ' ' + chr(0x4E01 + i) for i in range(300)]  # more than there is room for
  few = build.train('unigram', many, vocab_size=372)
  assert few.vocab_size <= 372 and few.decode(few.encode(many[0])) == many[0]
  assert '多' in ''.join(few.ids_to_tokens(few.encode(many[0])))


@pytest.mark.parametrize('text', ['İİ北', '北İ京', 'aİ北京', 'ẞ北京ΣΑ', '北京'])
def test_bytes_of_a_lowered_text_have_the_offsets_of_their_character(text):
  made = build.train('unigram', ['the quick brown fox is at a lazy dog'] * 9, vocab_size=400, lower_case=True)
  ids, spans = made.encode_spans(text)
  for at, character in enumerate(text):
    own = [piece for piece, span in zip(made.ids_to_tokens(ids), spans.tolist(), strict=True) if span == [at, at + 1]]
    if character in '北京':
      assert own[-3:] == [f'<0x{byte:02X}>' for byte in character.encode()], character
  assert (np.diff(spans, axis=1) == 1).all()  # none has those of several characters


def test_bytes_without_offsets_of_their_own_are_reported(tmp_path):
  made = build.train('unigram', ['the quick brown fox'] * 9, vocab_size=400)
  content = made.content()
  content['model']['normalizer'] = {'type': 'NFC'}  # composes e and an accent, which are two characters of the text
  (tmp_path / 'tokenizer.json').write_text(json.dumps(content['model']))
  composing = library_files.read('unigram', str(tmp_path))
  with pytest.warns(InputWarning, match='normalises characters in context'):
    composing.encode_spans('北e\u0301京')


@pytest.mark.parametrize('kind', ['words', 'bpe', 'wordpiece', 'unigram'])
def test_lower_case(kind):
  made = build.train(kind, PROSE, vocab_size=380, lower_case=True)
  np.testing.assert_array_equal(made.encode('The CAT Ä'), made.encode('the cat ä'))
  assert made.decode(made.encode('The CAT')).replace(' ', '') == 'thecat'


@pytest.mark.parametrize('lower_case', [False, True])
def test_prefix_space_encodes_the_first_word_like_others(lower_case, tmp_path):
  texts = ['the cat saw the cat', 'cat and cat. the end'] * 4
  plain = build.train('bpe', texts, vocab_size=300, lower_case=lower_case)
  made = build.train('bpe', texts, vocab_size=300, lower_case=lower_case, prefix_space=True)
  word = lambda tokenizer, text: tokenizer.ids_to_tokens(tokenizer.encode(text))
  assert word(plain, 'cat') != word(plain, 'a cat')[-len(word(plain, 'cat')) :] and not plain.space_first
  assert word(made, 'cat') == word(made, 'a cat')[-1:] == ['Ġcat'] and made.space_first
  made.save(str(tmp_path))
  again = build.load(str(tmp_path))
  assert again.hash == made.hash and again.space_first
  for text in ['cat', ' cat', '', '  the  cat ', '\n the cat', 'höhe']:
    np.testing.assert_array_equal(again.encode(text), made.encode(text))
    assert again.decode(again.encode(text)) == text
  _, spans = made.encode_spans('the cat.')
  assert ['the cat.'[a:b] for a, b in spans] == ['the', ' cat', '.']
  with pytest.raises(InputError, match='prefix_space: got True'):
    build.train('unigram', texts, prefix_space=True)
