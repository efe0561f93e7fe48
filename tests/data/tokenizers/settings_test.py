"""Settings in folders of transformers' tokenizers, and the tokens that follow from them."""

from __future__ import annotations

import json
import random

import pytest
import tokenizers as hf

from lmx.data.tokenizers import build, library_files, settings
from lmx.data.tokenizers.subword import with_special
from lmx.errors import InputError
from tests.data.tokenizers import sentencepiece_test

SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
PIECES = ('the', 'café', 'cafe', '中', '文', '中文', 'The', ',')


@pytest.fixture
def folder(tmp_path):
  """Writes a folder with a vocab.txt: pieces, and content by name of file."""

  def write(pieces=PIECES, special=SPECIAL, **files):
    (tmp_path / 'vocab.txt').write_text('\n'.join((*special, *pieces)) + '\n')
    for name, content in files.items():
      (tmp_path / f'{name}.json').write_text(json.dumps(content))
    return str(tmp_path)

  return write


def tokens(path, text, **options):
  tokenizer = library_files.read('wordpiece', path, **options)
  return tokenizer.ids_to_tokens(tokenizer.encode(text))


def test_bert_cleaning_options_change_tokens(folder):
  lower = {'lower_case': True}
  assert tokens(folder(), 'The café', **lower) == ['the', 'cafe']
  path = folder(tokenizer_config={'do_lower_case': True, 'strip_accents': False})
  assert tokens(path, 'The café', **lower) == ['the', 'café']
  path = folder(tokenizer_config={'do_lower_case': False, 'strip_accents': True})
  assert tokens(path, 'The café') == ['The', 'cafe']
  assert tokens(path, '中文') == ['中', '文']
  path = folder(tokenizer_config={'do_lower_case': False, 'tokenize_chinese_chars': False})
  assert tokens(path, '中文 café') == ['中文', 'café']


def test_case_mismatch_with_settings_is_an_error(folder):
  path = folder(tokenizer_config={'do_lower_case': True})
  with pytest.raises(InputError, match='data.lower_case: got False'):
    library_files.read('wordpiece', path)


def test_added_tokens_are_read_whole(folder):
  path = folder(added_tokens={'<num>': len(PIECES) + 5, 'foo bar': len(PIECES) + 6})
  assert tokens(path, 'the <num>, foo bar') == ['the', '<num>', ',', 'foo bar']
  decoder = {
    '2': {'content': '[CLS]', 'special': True},
    str(len(PIECES) + 5): {'content': '<num>', 'special': False},
    str(len(PIECES) + 6): {'content': '<hide>', 'special': True},
  }
  path = folder(added_tokens={}, tokenizer_config={'added_tokens_decoder': decoder})
  assert tokens(path, 'the <num>') == ['the', '<num>']
  assert '<hide>' not in tokens(path, 'the <hide>')  # special tokens in a text are ordinary text
  assert tokens(path, 'the<hide>[CLS]the <num> [cls]', special_in_text=True)[:5] == [
    'the',
    '<hide>',
    '[CLS]',
    'the',
    '<num>',
  ]
  assert library_files.read('wordpiece', path).token_id('<hide>') == len(PIECES) + 6
  with pytest.raises(InputError, match='added token "<num>": got id 99'):
    library_files.read('wordpiece', folder(tokenizer_config={}, added_tokens={'<num>': 99}))


def test_special_tokens_of_other_names_survive_saving(folder, tmp_path):
  names = {
    'pad_token': '<pad>',
    'unk_token': {'content': '<unk>', 'lstrip': False},
    'cls_token': '<s>',
    'sep_token': '</s>',
    'mask_token': '<mask>',
  }
  special = ('<pad>', '<unk>', '<s>', '</s>', '<mask>')
  path = folder(special=special, special_tokens_map=names)
  made = library_files.read('wordpiece', path)
  assert (made.pad_id, made.unk_id, made.cls_id, made.sep_id, made.mask_id) == (0, 1, 2, 3, 4)
  assert made.ids_to_tokens(made.encode('the zebra')) == ['the', '<unk>']
  made.save(str(tmp_path / 'saved'))
  again = build.load(str(tmp_path / 'saved'))
  assert again.hash == made.hash and again.mask_id == 4
  assert with_special(made, ['<x>']).mask_id == 4
  with pytest.raises(InputError, match=r'without \[UNK\]'):
    library_files.read('wordpiece', folder(special=special, special_tokens_map={}))
  with pytest.raises(InputError, match='pad_token: got <pad> and <padding> in tokenizer_config.json and special_tok'):
    library_files.read('wordpiece', folder(special_tokens_map=names, tokenizer_config={'pad_token': '<padding>'}))


@pytest.mark.parametrize(
  'given,words',
  [
    ({'do_basic_tokenize': False}, 'do_basic_tokenize: got false'),
    ({'never_split': ['a']}, 'never_split: got a list of 1'),
    ({'strip_acents': False}, 'unknown key "strip_acents"; did you mean "strip_accents"'),
    ({'strip_accents': 'no'}, 'strip_accents: got "no"'),
    ({'do_lower_case': 1}, 'do_lower_case: got 1'),
    ({'auto_map': {'AutoTokenizer': ['own.Code', None]}}, 'unknown key "auto_map"'),
    ({'tokenizer_class': 'BertJapaneseTokenizer'}, 'tokenizer_class: got "BertJapaneseTokenizer"'),
    ({'pad_token': 5}, 'pad_token: got 5'),
    ({'added_tokens_decoder': {'x': {}}}, 'added_tokens_decoder: x: expected the id'),
    ({'added_tokens_decoder': {'9': {}}}, 'no field "content"'),
    ({'additional_special_tokens': 'x'}, 'additional_special_tokens: got "x"'),
    ([], 'expected an object'),
  ],
)
def test_unsupported_tokenizer_settings_are_rejected(given, words, folder):
  with pytest.raises(InputError, match=words):
    library_files.read('wordpiece', folder(tokenizer_config=given))


def test_keys_without_effect_are_ignored(folder):
  given = {
    'model_max_length': 512,
    'init_inputs': [],
    'name_or_path': 'x',
    'tokenizer_class': 'BertTokenizer',
    'do_basic_tokenize': True,
    'clean_up_tokenization_spaces': True,
    '_commit_hash': 'x',
    'never_split': None,
  }
  assert tokens(folder(tokenizer_config=given), 'The') == ['The']


def test_settings_override_tokenizer_json_as_in_transformers(folder, tmp_path):
  plain = library_files.read('wordpiece', folder(), lower_case=True)
  (tmp_path / 'vocab.txt').unlink()
  plain._model.save(str(tmp_path / 'tokenizer.json'))
  assert tokens(str(tmp_path), 'The café') == ['the', 'cafe']
  (tmp_path / 'tokenizer_config.json').write_text('{"do_lower_case": false, "strip_accents": null, "other": 1}')
  assert tokens(str(tmp_path), 'The café') == ['The', 'café']
  given = {'do_lower_case': False, 'strip_accents': False}
  for name in ('PreTrainedTokenizerFast', 'TokenizersBackend'):  # classes for any model replace nothing
    (tmp_path / 'tokenizer_config.json').write_text(json.dumps(given | {'tokenizer_class': name}))
    assert tokens(str(tmp_path), 'The café') == ['the', 'cafe']
    assert tokens(str(tmp_path), 'The café', special_in_text=True) == ['the', 'cafe']


def test_import_takes_missing_keys_of_bert_from_its_class(folder, tmp_path):
  cased = hf.normalizers.BertNormalizer(lowercase=False, strip_accents=False, handle_chinese_chars=False)
  plain = library_files.read('wordpiece', folder())
  (tmp_path / 'vocab.txt').unlink()
  plain._model.normalizer = cased
  plain._model.save(str(tmp_path / 'tokenizer.json'))
  for settings_of, whole in (
    ({}, ['the', 'cafe', '中', '文']),
    ({'do_lower_case': False, 'tokenizer_class': 'BertTokenizer'}, ['The', 'café', '中', '文']),
    ({'strip_accents': False, 'tokenize_chinese_chars': False}, ['the', 'café', '中文']),
    ({'tokenizer_class': 'PreTrainedTokenizerFast'}, ['The', 'café', '中文']),
  ):
    (tmp_path / 'tokenizer_config.json').write_text(json.dumps(settings_of))
    assert tokens(str(tmp_path), 'The café 中文', special_in_text=True) == whole
  (tmp_path / 'tokenizer_config.json').unlink()
  assert tokens(str(tmp_path), 'The café 中文') == ['The', 'café', '中文']  # data.tokenizer_path


@pytest.mark.parametrize('kind', ['bpe', 'gpt_bpe'])
def test_dropout_of_a_bpe_is_rejected(kind, tmp_path):
  state = json.loads(build.train(kind, ['a name is a name'] * 9, vocab_size=270)._model.to_str())
  write = lambda dropout: (tmp_path / 'tokenizer.json').write_text(
    json.dumps(state | {'model': state['model'] | {'dropout': dropout}})
  )
  for dropout in (None, 0.0):
    write(dropout)
    library_files.read(kind, str(tmp_path))
  write(0.5)
  with pytest.raises(InputError, match='tokenizer.json: model.dropout: got 0.5, .* expected null'):
    library_files.read(kind, str(tmp_path))


@pytest.mark.parametrize('side', ['left', 'right'])
def test_texts_are_truncated_at_their_end_and_padded_on_either_side(side, folder, tmp_path):
  read = lambda: tokens(str(tmp_path), 'The', lower_case=True)
  folder(tokenizer_config={'padding_side': side})
  assert read() == ['the']
  for in_json in (False, True):
    if in_json:
      model = library_files.read('wordpiece', folder(tokenizer_config={}), lower_case=True)._model
      model.enable_truncation(2, direction=side)
      model.save(str(tmp_path / 'tokenizer.json'))
    else:
      folder(tokenizer_config={'truncation_side': side})
    if side == 'right':
      assert read() == ['the']
      continue
    with pytest.raises(InputError, match='truncation_side: got "left"'):
      read()
  folder(tokenizer_config={'truncation_side': 'right'})  # it goes before that of tokenizer.json
  assert read() == ['the']
  folder(tokenizer_config={'padding_side': 'middle'})
  with pytest.raises(InputError, match='padding_side: got "middle"'):
    read()


def test_options_and_special_tokens_of_gpt2(tmp_path):
  made = build.train('bpe', ['a name is a name'] * 9, vocab_size=270)
  made._model.model.save(str(tmp_path))
  vocabulary = json.loads((tmp_path / 'vocab.json').read_text())
  (tmp_path / 'vocab.json').write_text(json.dumps({**vocabulary, '</s>': len(vocabulary)}))
  write = lambda **given: (tmp_path / 'tokenizer_config.json').write_text(json.dumps(given))
  read = lambda: library_files.read('bpe', str(tmp_path))
  assert not read().space_first
  write(add_prefix_space=True, eos_token='</s>', bos_token='</s>')
  found = read()
  assert found.eos_id == found.bos_id == len(vocabulary) and found.space_first
  assert found.encode('name').tolist() == found.encode(' name').tolist() == made.encode(' name').tolist()
  write(add_eos_token=True)
  with pytest.raises(InputError, match='add_eos_token: got true'):
    read()


@pytest.mark.parametrize('there', [True, False])
def test_first_space_of_gpt2_matches_its_class_or_of_both_files(there, tmp_path):
  model = hf.Tokenizer.from_str(build.train('bpe', ['a name is a name'] * 9, vocab_size=270)._model.to_str())
  model.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=there)
  model.save(str(tmp_path / 'tokenizer.json'))
  write = lambda **given: (tmp_path / 'tokenizer_config.json').write_text(json.dumps(given))
  read = lambda: library_files.read('bpe', str(tmp_path))
  assert library_files.read('bpe', str(tmp_path / 'tokenizer.json')).space_first == there
  assert not read().space_first
  write(tokenizer_class='GPT2TokenizerFast', add_prefix_space=True)
  assert read().space_first
  write(tokenizer_class='PreTrainedTokenizerFast', add_prefix_space=there)
  assert read().space_first == there
  write(tokenizer_class='PreTrainedTokenizerFast', add_prefix_space=not there)
  with pytest.raises(InputError, match='add_prefix_space: got'):
    read()


def test_xlnet_options(tmp_path):
  for given, words in (
    ({'remove_space': False}, 'remove_space: got false'),
    ({'sep_token': '[SEP]'}, 'expected <sep>'),
    ({'sp_model_kwargs': {'alpha': 1}}, 'sp_model_kwargs: got'),
  ):
    (tmp_path / 'tokenizer_config.json').write_text(json.dumps(given))
    with pytest.raises(InputError, match=words):
      settings.read(tmp_path, 'unigram')


# Kind -> files without a tokenizer.json, a text with special tokens, its tokens.
IN_TEXT = {
  'wordpiece': ('[E1] the [/E1][MASK]  [mask]', ['[E1]', 'the', '[/E1]', '[MASK]', '[UNK]', '[UNK]', '[UNK]']),
  'bpe': ('a <x><|endoftext|>a', ['a', 'Ġ', '<x>', '<|endoftext|>', 'a']),
  'gpt_bpe': ('a<x> <unk>', ['a</w>', '<x>', '<unk>']),
  'unigram': ('the <mask> the<sep>', ['▁', 'th', 'e', '<mask>', '▁', 'th', 'e', '<sep>']),
}


@pytest.mark.parametrize('declared', ['decoder', 'map'])
@pytest.mark.parametrize('kind', IN_TEXT)
def test_special_tokens_in_a_text_are_found_where_they_are_requested(kind, declared, folder, tmp_path):
  extra = {'wordpiece': ('[E1]', '[/E1]'), 'unigram': ()}.get(kind, ('<x>',))
  if kind == 'wordpiece':
    folder()
    size = len(SPECIAL) + len(PIECES)
  elif kind == 'unigram':
    sentencepiece_test.write(tmp_path / 'spiece.model', sentencepiece_test.learned())
    size = 10**6
  else:
    made = build.train(kind, ['a name is a name'] * 9, vocab_size=270)
    made._model.model.save(str(tmp_path))
    size = made.vocab_size
  as_token = {'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False}
  if declared == 'map':
    (tmp_path / 'special_tokens_map.json').write_text(
      json.dumps({'additional_special_tokens': [as_token | {'content': name} for name in extra]})
    )
  else:
    given = {str(size + i): as_token | {'content': name, 'special': True} for i, name in enumerate(extra)}
    (tmp_path / 'tokenizer_config.json').write_text(json.dumps({'added_tokens_decoder': given}))
  text, expected = IN_TEXT[kind]
  read = library_files.read(kind, str(tmp_path), special_in_text=True)
  assert read.ids_to_tokens(read.encode(text)) == expected
  ids, spans = read.encode_spans(text)
  assert ids.tolist() == read.encode(text).tolist() == read.encode_batch([text])[0].tolist()
  assert text[slice(*spans[expected.index([*extra, '<sep>'][0])])].strip() == [*extra, '<sep>'][0]
  plain = library_files.read(kind, str(tmp_path))
  assert not {*extra} & {*plain.ids_to_tokens(plain.encode(text))}
  for one in (read, plain):  # what is saved keeps either
    one.save(str(tmp_path / 'saved'))
    again = build.load(str(tmp_path / 'saved'))
    assert again.hash == one.hash and again.encode(text).tolist() == one.encode(text).tolist()
  assert read.hash != plain.hash and 'special_in_text' not in plain.content()
  changed = with_special(read, ['<new>'])
  assert changed.encode(f'{text}<new>').tolist() == [*ids.tolist(), changed.token_id('<new>')]


@pytest.mark.peer
def test_tokens_match_transformers(folder):
  transformers = pytest.importorskip('transformers')
  rng = random.Random(0)
  others = ('<pad>', '<unk>', '<s>', '</s>', '<mask>')
  pieces = (*PIECES, 'É', 'é', '##s', 'num', '<', '>', 'foo', 'bar')
  texts = ('The café É é', '中文 the中文s', 'thes <num> the, <num>! foo bar', '<NUM> Foo Bar foo  bar', 'the<num>the')
  for _ in range(100):
    special = rng.choice((SPECIAL, others))
    switches = {'do_lower_case': 2, 'strip_accents': 3, 'tokenize_chinese_chars': 2}
    given = {name: (True, False, None)[rng.randrange(kinds)] for name, kinds in switches.items() if rng.random() < 0.7}
    given |= {f'{name[1:-1].lower()}_token': other for name, other in zip(SPECIAL, special, strict=True)}
    options = {name: rng.random() < 0.5 for name in ('lstrip', 'rstrip', 'single_word', 'normalized')}
    size = len(special) + len(pieces)
    decoder = {str(size): {'content': '<num>', **options}, str(size + 1): {'content': 'foo bar', 'normalized': True}}
    given |= rng.choice(({}, {'added_tokens_decoder': decoder}))
    path = folder(pieces, special, tokenizer_config=given, added_tokens=rng.choice(({}, {'<num>': size})))
    ours = library_files.read('wordpiece', path, lower_case=given.get('do_lower_case', True))
    theirs = transformers.BertTokenizerFast.from_pretrained(path)  # version 4's other one lower-cases before it splits
    for text in texts:
      assert ours.encode(text).tolist() == theirs(text, add_special_tokens=False)['input_ids'], (given, text)
    assert (ours.pad_id, ours.mask_id) == (theirs.pad_token_id, theirs.mask_token_id)
