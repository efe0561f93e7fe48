"""Files spiece.model, XLNet's cleaning of text, and its marks in vocabularies of both kinds."""

from __future__ import annotations

import json
import random
import unicodedata

import numpy as np
import pytest
import sentencepiece as library
import tokenizers as hf
from sentencepiece import sentencepiece_model_pb2

from lmx.data import corpus
from lmx.data.tokenizers import build, library_files, sentencepiece, subword_models
from lmx.data.tokenizers.subword import Unigram, with_special
from lmx.errors import InputError
from tests.data.tokenizers import strings

PROSE = ['The method returns 1,000 items; it is the name (of a list).', 'Names are strings, and "so" are lists.'] * 30
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
TYPES = {'<unk>': UNKNOWN, '<eop>': USER_DEFINED, '.': USER_DEFINED} | dict.fromkeys(
  ('<s>', '</s>', '<cls>', '<sep>', '<pad>', '<mask>', '<eod>'), CONTROL
)


def write(path, pieces, *, unk_id=0, kind=1, characters=b''):
  """A spiece.model of pieces and their scores."""
  found = sentencepiece_model_pb2.ModelProto()
  for piece, score in pieces:
    found.pieces.add(piece=piece, score=score, type=TYPES.get(piece, 1))
  found.trainer_spec.unk_id, found.trainer_spec.model_type = unk_id, kind
  found.normalizer_spec.precompiled_charsmap = characters
  path.write_bytes(found.SerializeToString())
  return path


def learned(texts=PROSE, size=120, more=()):
  """Pieces of a text and their scores, XLNet's marks first and then `more`."""
  trainer = hf.trainers.UnigramTrainer(
    vocab_size=size, show_progress=False, special_tokens=['<unk>'], unk_token='<unk>'
  )
  model = hf.Tokenizer(hf.models.Unigram())
  model.pre_tokenizer = hf.pre_tokenizers.Metaspace()
  model.train_from_iterator(list(texts), trainer)
  found = model.get_vocab(with_added_tokens=False)
  scores = {piece: -3.0 - 0.01 * i for piece, i in found.items() if piece not in ('<unk>', '.')}
  marks = dict.fromkeys(subword_models.XLNET_SPECIALS, 0.0)
  return list((marks | {'.': 0.0} | dict(more) | scores).items())


@pytest.fixture(scope='module')
def file(tmp_path_factory):
  return write(tmp_path_factory.mktemp('spiece') / 'spiece.model', learned(more={'1,': -1.0, 'e': -4.0, 'E': -4.0}))


def test_special_token_ids_match_the_release(file):
  made = library_files.read('unigram', str(file))
  ids = (made.unk_id, made.cls_id, made.sep_id, made.pad_id, made.mask_id, made.eos_id, made.eop_id)
  assert ids == (0, 3, 4, 5, 6, 7, 8)
  assert made.token_id('<s>') == 1 and made.token_id('</s>') == 2 and made.bos_id == made.eos_id
  assert made.starts_word(np.array([9, 3, 9, 4])).tolist() == [True, True, True, True]


def test_file_is_parsed_once(file, monkeypatch):
  parsed, parse = [], sentencepiece.parse
  monkeypatch.setattr(sentencepiece, 'parse', lambda *given: parsed.append(given) or parse(*given))
  library_files.read('unigram', str(file))
  assert len(parsed) == 1


def test_text_is_cleaned_as_the_release_does(file, tmp_path):
  made, cased = (library_files.read('unigram', str(file), lower_case=lower) for lower in (True, False))
  (tmp_path / 'spiece.model').write_bytes(file.read_bytes())
  (tmp_path / 'tokenizer_config.json').write_text('{"keep_accents": true}')
  accents = library_files.read('unigram', str(tmp_path))
  same = lambda a, b, by=cased: np.testing.assert_array_equal(by.encode(a), by.encode(b))
  same("``the'' name", '"the" name')
  same('  the\t\nname \r\n', 'the name')
  same('thé ﬁ', 'the fi')
  same('THE', 'the', made)
  assert cased.encode('THE').tolist() != cased.encode('the').tolist()
  assert accents.unk_id in accents.encode('thé') and cased.unk_id not in cased.encode('thé')
  assert made.decode(made.encode('The  méthod')) == 'the method'
  assert '1,' not in cased.ids_to_tokens(cased.encode('1, 1,'))


def test_written_special_tokens_are_text_except_eop(file):
  made = library_files.read('unigram', str(file))
  for mark in subword_models.XLNET_SPECIALS:
    found = made.encode(f'name {mark}').tolist()
    assert (made.token_id(mark) in found) == (mark in ('<eop>', '<unk>')), mark  # < is no piece, so it is unknown
    assert made.token_id(mark) == 8 or len(found) > len(made.encode('name')) + 2


def test_offsets_refer_to_the_original_text(file):
  made = library_files.read('unigram', str(file))
  text = "the ``méthod''  returns"
  ids, spans = made.encode_spans(text)
  np.testing.assert_array_equal(ids, made.encode(text))
  assert text[slice(spans[0][0], spans[-1][1])] == text
  tokens = made.ids_to_tokens(ids)
  assert [text[start:end] for token, (start, end) in zip(tokens, spans.tolist(), strict=True) if token == '"'] == [
    '``',
    "''",
  ]


def test_offsets_within_user_symbols_that_contain_a_space(tmp_path, monkeypatch):
  symbols = 'the cat', 'cat sat on'
  for symbol in symbols:
    monkeypatch.setitem(TYPES, symbol, USER_DEFINED)
  letters = dict.fromkeys('abcdefghijklmnopqrstuvwxyzé', -4.0)
  pieces = learned(size=60, more=dict.fromkeys(symbols, 0.0) | letters)
  made = library_files.read('unigram', str(write(tmp_path / 'spiece.model', pieces)))
  for text in ('the cat', 'a  the  cats sat', 'm\u00e9thod the cat sat on', 'a cat sat on the cat.'):
    ids, spans = made.encode_spans(text)
    np.testing.assert_array_equal(ids, made.encode(text))
    found = [token.replace(subword_models.SPACE, '') for token in made.ids_to_tokens(ids)]
    read = [text[start:end].replace('\u00e9', 'e') for start, end in spans.tolist()]
    assert [(a, b) for a, b in zip(found, read, strict=True) if a and a != b] == [], text


def compiled(rules):
  """A character map as SentencePiece compiles one: a double array, here with 256 units for the children of a node."""
  texts, starts = b'', {}
  for value in rules.values():
    starts[value] = len(texts)
    texts += value.encode() + b'\0'
  units, nodes = [0] * 256, {b'': 0}
  for key, value in rules.items():
    for i, byte in enumerate(key.encode()):
      parent, node = key.encode()[:i], key.encode()[: i + 1]
      if units[nodes[parent]] >> 10 == 0:
        units[nodes[parent]] |= (nodes[parent] ^ len(units)) << 10
        units += [0] * 256
      if node not in nodes:
        nodes[node] = nodes[parent] ^ units[nodes[parent]] >> 10 ^ byte
        units[nodes[node]] |= byte
    place = nodes[key.encode()]
    if units[place] >> 10 == 0:
      units[place] |= (place ^ len(units)) << 10
      units += [0] * 256
    units[place] |= 1 << 8
    units[place ^ units[place] >> 10] = 1 << 31 | starts[value]
  array = np.asarray(units, '<u4').tobytes()
  return np.uint32(len(array)).tobytes() + array + texts


RULES = {'\x07': '', '\u200b': ' ', '\u1112\u1161': '\ud558', '\u1112\u1161\u11ab': '\ud55c'}
MORE = {
  '1': -4.0,
  '2': -4.0,
  '1,': -1.0,
  '▁1': -4.0,
  '▁2,': -1.0,
  '2,': -1.0,
  ',': -4.0,
  '\ud558': -4.0,
  '\ud55c': -4.0,
}
MORE |= {'\u0915': -4.0, '\u093f': -4.0, 'e': -4.0, 'b': -4.0}


def test_map_of_characters_is_applied_as_sentencepiece_does(tmp_path):
  file = write(tmp_path / 'spiece.model', learned(more=MORE), characters=compiled(RULES))
  made = library_files.read('unigram', str(file))
  tokens = lambda text: made.ids_to_tokens(made.encode(text))
  assert tokens('\u1112\u1161\u11ab\ud558')[-2:] == tokens('\ud55c\u1112\u1161')[-2:] == ['\ud55c', '\ud558']
  assert tokens('the\u200bname') == tokens('the name') == tokens('t\x07he\x1cname\x0b')
  assert tokens('\u0915\u093f\u094d')[-2:] == ['\u0915', '\u093f']  # a vowel sign is no accent, virama is one
  ids, spans = made.encode_spans('\x07b e\u0301b')
  assert made.ids_to_tokens(ids)[-1] == 'b' and spans[-1].tolist() == [5, 6]
  for rules, settings, words in (
    (RULES | {'A': 'a'}, {}, 'normalization_rule_name: got'),
    (RULES, {'keep_accents': True}, 'keep_accents: got true'),
  ):
    write(file, learned(), characters=compiled(rules))
    (tmp_path / 'tokenizer_config.json').write_text(json.dumps(settings))
    with pytest.raises(InputError, match=words):
      library_files.read('unigram', str(tmp_path))


def test_final_sigma_is_lower_cased_like_python(file):
  normalizer = library_files.read('unigram', str(file), lower_case=True)._model.normalizer
  for text in ('ΣΑΣ', "ΣΑΣ'Α ΣΑΣ' Σ", 'ΑΣ.Α', 'ΑΣ-Α', '1Σ', 'aΣ'):
    assert normalizer.normalize_str(text) == text.lower()


def unigram(content):
  """The tokenizer as work directories of versions before 0.3 have it, without the file."""
  return Unigram(hf.Tokenizer.from_str(json.dumps(content['model'])), None, content['split_commas'])


def test_number_and_its_comma_are_encoded_again(tmp_path):
  """Expected: encode_pieces of zihangdai/xlnet, worked out by hand from the subwords in MORE."""
  made = library_files.read('unigram', str(write(tmp_path / 'spiece.model', learned(more=MORE))))
  again = build.load(tmp_path) if made.save(str(tmp_path)) else None
  for text, expected, places in (
    ('b1,', ['▁', 'b', '1', ','], [(0, 1), (0, 1), (1, 2), (2, 3)]),
    ('2, b', ['▁', '2', ',', '▁', 'b'], [(0, 1), (0, 1), (1, 2), (3, 4), (3, 4)]),
    ('b2,', ['▁', 'b', '2', ','], [(0, 1), (0, 1), (1, 2), (2, 3)]),
    ('e1,1,', ['▁', 'e', '1', ',', '1', ','], [(0, 1), (0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
  ):
    earlier = unigram(made.content())
    for tokenizer in (made, again, with_special(made, ('<new>',)), earlier):
      ids, spans = tokenizer.encode_spans(text)
      assert tokenizer.ids_to_tokens(ids) == expected
      assert list(map(tuple, spans.tolist())) == places
      np.testing.assert_array_equal(ids, tokenizer.encode(text))
      np.testing.assert_array_equal(ids, tokenizer.encode_batch(['b', text])[1])


@pytest.mark.parametrize('field,part', [('add_dummy_prefix', 'normalizer_spec'), ('byte_fallback', 'trainer_spec')])
def test_unsupported_normalization_is_rejected(field, part, file, tmp_path):
  proto = sentencepiece_model_pb2.ModelProto.FromString(file.read_bytes())
  setattr(getattr(proto, part), field, not getattr(getattr(proto, part), field))
  (tmp_path / 'spiece.model').write_bytes(proto.SerializeToString())
  with pytest.raises(InputError, match=f'{field}: got'):
    library_files.read('unigram', str(tmp_path))


def test_invalid_character_map_is_rejected(tmp_path):
  """A map is a trie that SentencePiece compiles; the test by SentencePiece below has one."""
  with pytest.raises(InputError, match='not a unigram tokenizer'):
    library_files.read('unigram', str(write(tmp_path / 'spiece.model', learned(), characters=b'\x01')))


@pytest.mark.parametrize(
  'content,words',
  [
    (b'<html>no model</html>', 'spiece.model is not a SentencePiece model'),
    (b'', 'damaged: 0 subwords'),
    (None, r'spiece.model cannot be read|got no tokenizer of kind unigram'),
  ],
)
def test_bad_files_are_rejected(content, words, tmp_path):
  if content is not None:
    (tmp_path / 'spiece.model').write_bytes(content)
  with pytest.raises(InputError, match=words):
    library_files.read('unigram', str(tmp_path))


def test_other_models_of_sentencepiece_are_rejected(file, tmp_path):
  with pytest.raises(InputError, match='model_type: got 2'):
    sentencepiece.read(write(tmp_path / 'a', learned(), kind=2))
  with pytest.raises(InputError, match='unk_id 9999'):
    sentencepiece.read(write(tmp_path / 'b', learned(), unk_id=9999))
  cut = tmp_path / 'c'
  cut.write_bytes(file.read_bytes()[:-7])
  with pytest.raises(InputError, match='damaged or truncated'):
    sentencepiece.read(cut)
  with pytest.raises(InputError, match='no special token .* or <eod>'):
    library_files.read('unigram', str(write(tmp_path / 'spiece.model', [('<unk>', 0.0), ('▁a', -1.0)])))


def test_case_is_inferred_from_ordinary_subwords(tmp_path):
  assert sentencepiece.has_capitals(write(tmp_path / 'a', learned()))
  assert not sentencepiece.has_capitals(write(tmp_path / 'b', [(p, s) for p, s in learned() if p == p.lower()]))


def test_trained_vocabulary_starts_with_special_tokens():
  made = build.train('unigram', PROSE, vocab_size=400, marks='xlnet')
  assert made.ids_to_tokens(range(9)) == list(subword_models.XLNET_SPECIALS) and made.vocab_size <= 400
  ids = (made.unk_id, made.cls_id, made.sep_id, made.pad_id, made.mask_id, made.eos_id, made.eop_id)
  assert ids == (0, 3, 4, 5, 6, 7, 8)
  text = 'any text\n <cls> <eod> ☃ comes  back'
  assert made.decode(made.encode(text)) == text and not set(range(9)) & set(made.encode(text).tolist())
  assert made.decode([*made.encode('a'), 7]) == 'a<eod>'
  plain = build.train('unigram', PROSE, vocab_size=400)
  assert (plain.unk_id, plain.eos_id, plain.cls_id, plain.eop_id) == (1, 0, None, None)
  with pytest.raises(InputError, match='data.marks: got "xlnet"'):
    build.train('bpe', PROSE, marks='xlnet')
  with pytest.raises(InputError, match='data.marks: unknown "xlnt"'):
    corpus.Config(dataset='embedded', tokenizer='unigram', marks='xlnt')


def test_saved_vocabulary_keeps_special_tokens_and_names_its_cache(tmp_path):
  texts = tmp_path / 'text.txt'
  texts.write_text('\n\n'.join(PROSE))
  options = dict(manual_dir=str(texts), cache_dir=str(tmp_path / 'cache'), vocab_size=420, split_fraction=0.2)
  plain = corpus.load(corpus.Config(dataset='text_files', tokenizer='unigram', **options))
  marked = corpus.load(corpus.Config(dataset='text_files', tokenizer='unigram', marks='xlnet', **options))
  assert marked.hash != plain.hash and marked.tokenizer.sep_id == 4
  assert marked.splits['train'].tokens[-1] == 7 and plain.splits['train'].tokens[-1] == 0  # what ends a document
  assert build.load(marked.dir).hash == marked.tokenizer.hash


@pytest.mark.parametrize('count', [400, pytest.param(2000, marks=pytest.mark.slow)])
def test_ids_equal_the_releases(root, tmp_path, count):
  """A vocabulary learned as the release's (README.md), and its reading of text (prepro_utils.py)."""
  lines = [line for path in sorted((root / 'lmx').rglob('*.py')) for line in path.read_text().splitlines()]
  more = [strings.without_surrogates(text).replace('\x00', ' ') for text in strings.strings(1000, seed=7)]
  library.SentencePieceTrainer.train(
    sentence_iterator=iter([*lines[::8], *more]),
    model_prefix=str(tmp_path / 'spiece'),
    vocab_size=2000,
    model_type='unigram',
    character_coverage=0.99995,
    control_symbols=['<cls>', '<sep>', '<pad>', '<mask>', '<eod>'],
    user_defined_symbols=['<eop>', '.', '(', ')', '"', '-', '–', '£', '€'],
    minloglevel=2,
  )
  theirs = library.SentencePieceProcessor(model_file=str(tmp_path / 'spiece.model'))
  for lower in (False, True):
    ours = library_files.read('unigram', str(tmp_path), lower_case=lower)
    assert ours.ids_to_tokens(range(9)) == list(subword_models.XLNET_SPECIALS)
    texts = [*_strings(count, lines), *strings.strings(count), 'a' * 150, 'word' * 40, '\u32ff']
    for text, batched in zip(texts, ours.encode_batch(texts), strict=True):
      expected = _released(theirs, strings.without_surrogates(text), lower)
      np.testing.assert_array_equal(ours.encode(text), expected, err_msg=repr(text))
      np.testing.assert_array_equal(batched, expected, err_msg=repr(text))
      np.testing.assert_array_equal(ours.encode_spans(text)[0], expected, err_msg=repr(text))
    ours.save(str(tmp_path / str(lower)))
    assert build.load(str(tmp_path / str(lower))).hash == ours.hash


def _strings(count, lines):
  draw = random.Random(0)
  odd = (
    '1,000,000',
    'in 2000,',
    "``so''",
    'naïve',
    'ÅNGSTRÖM',
    'ﬁ',
    '½',
    'a.b.c',
    '(x)',
    '"y"',
    '<eop>',
    '€5',
    '£3',
    'x-y–z',
    '\u00a0',
    '\u200b',
    '\t',
    '  ',
    '中文',
    '👍🏽',
    'русский',
    '...',
    '☃',
    '_',
    'a' * 90,
  )
  found = ['', ' ', *odd]
  while len(found) < count:
    words = [draw.choice(odd) if draw.random() < 0.4 else draw.choice(lines)[:60] for _ in range(draw.randint(1, 8))]
    found.append(draw.choice(['', ' ']).join(words))
  return found


def _released(library, text, lower):
  text = ' '.join(text.split()).replace('``', '"').replace("''", '"')
  text = ''.join(c for c in unicodedata.normalize('NFKD', text) if not unicodedata.combining(c))
  ids = []
  for piece in library.EncodeAsPieces(text.lower() if lower else text):
    parts = [piece]
    if len(piece) > 1 and piece[-1] == ',' and piece[-2].isdigit():
      parts = library.EncodeAsPieces(piece[:-1].replace('▁', ''))
      if not piece.startswith('▁') and parts[0].startswith('▁'):
        parts = parts[1:] if parts[0] == '▁' else [parts[0][1:], *parts[1:]]
      parts = [*parts, ',']
    ids += [library.PieceToId(part) for part in parts]
  return ids
