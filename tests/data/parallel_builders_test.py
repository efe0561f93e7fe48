"""Data sets of translations: where their files may lie, which languages are read, what is held out, what is refused."""

from __future__ import annotations

import dataclasses
import gzip
import importlib
import itertools
import os
import warnings

import pytest
import tensorflow_datasets as tfds

from lmx.data import corpus, sources
from lmx.data.builders import generated, parallel
from lmx.data.datasets import DATA_SETS
from lmx.errors import InputError, InputWarning

WMT14 = """
import tensorflow_datasets as tfds


class Wmt14Translate(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  VERSION = tfds.core.Version('1.0.0')
  BUILDER_CONFIGS = [tfds.core.BuilderConfig(name='de-en')]

  def _info(self):
    return self.dataset_info_from_configs(features=tfds.features.Translation(languages=('de', 'en')))

  def _split_generators(self, dl_manager):
    return {split: self._generate_examples(split[0], n) for split, n in (('train', 5), ('validation', 2), ('test', 3))}

  def _generate_examples(self, name, count):
    for n in range(count):
      yield n, {'de': f' {name} {n} deutsch', 'en': '' if n == 4 else f'{name} {n} english'}
"""


def write(folder, split, count, *languages, compressed=False):
  folder.mkdir(parents=True, exist_ok=True)
  for language in languages:
    text = ''.join(f' {split} {n} {language} \n' for n in range(count)).encode()
    path = folder / f'{split}.{language}'
    if compressed:
      path.with_name(path.name + '.gz').write_bytes(gzip.compress(text))
    else:
      path.write_bytes(text)


def read(name, directory, tmp_path, **options):
  options = {'check_sizes': False, 'cache_dir': str(tmp_path / 'cache')} | options
  splits = options.pop('vocabulary_splits', ('train', 'valid', 'test'))
  return corpus.load(
    corpus.Config(dataset=name, tokenizer='words', manual_dir=str(directory), vocabulary_splits=splits, **options)
  )


def pairs(made, split):
  part = made.splits[split]
  spans = zip(part.offsets, part.offsets[1:], strict=False)
  texts = [' '.join(made.tokenizer.ids_to_tokens(part.tokens[begin : end - 1])) for begin, end in spans]
  assert all(part.tokens[end - 1] == made.tokenizer.eos_id for end in part.offsets[1:])
  return list(zip(texts[::2], texts[1::2], strict=True))


def multi30k(folder, compressed=False, languages=('en', 'de', 'fr')):
  write(folder, 'train', 4, *languages, compressed=compressed)
  for split in ('val', 'test_2016_flickr', 'test_2017_flickr', 'test_2017_mscoco'):
    write(folder, split, 2, *languages, compressed=compressed)


def test_multi30k_with_every_split_in_both_layouts(tmp_path):
  multi30k(tmp_path / 'plain')
  multi30k(tmp_path / 'data' / 'translate' / 'multi30k', compressed=True)
  made = read('multi30k', tmp_path / 'plain', tmp_path)
  assert made.manifest['sides'] == ['en', 'de']
  assert {split: len(pairs(made, split)) for split in made.splits} == {
    'train': 4,
    'valid': 2,
    'test': 2,
    'test_2017': 2,
    'test_coco': 2,
  }
  assert pairs(made, 'train')[3] == ('train 3 en', 'train 3 de')
  other = read('multi30k', tmp_path / 'data', tmp_path)
  assert (
    pairs(other, 'test')
    == pairs(made, 'test')
    == [('test_2016_flickr 0 en', 'test_2016_flickr 0 de'), ('test_2016_flickr 1 en', 'test_2016_flickr 1 de')]
  )
  with pytest.raises(InputError, match=r'split train: got 4 pairs'):
    read('multi30k', tmp_path / 'plain', tmp_path, check_sizes=True)


def test_languages_are_picked_by_name(tmp_path):
  multi30k(tmp_path / 'in')
  seen = {}
  for source, target, sides in (
    ('', '', ['en', 'de']),
    ('de', '', ['de', 'en']),
    ('', 'en', ['de', 'en']),
    ('', 'fr', ['en', 'fr']),
    ('fr', 'de', ['fr', 'de']),
    ('fr', '', ['fr', 'de']),
  ):
    made = read('multi30k', tmp_path / 'in', tmp_path, source=source, target=target)
    assert made.manifest['sides'] == sides
    assert pairs(made, 'valid')[0] == (f'val 0 {sides[0]}', f'val 0 {sides[1]}')
    seen[tuple(sides)] = made.dir
  assert len(set(seen.values())) == len(seen) == 4  # the languages are a part of what the cache is known by
  for options, message in (
    ({'source': 'dee'}, 'got "dee", which multi30k .*; did you mean "de"'),
    ({'source': 'de', 'target': 'de'}, 'data.source and data.target: got "de"'),
  ):
    with pytest.raises(InputError, match=message):
      read('multi30k', tmp_path / 'in', tmp_path, **options)
  with pytest.raises(InputError, match=r'data.target: got data set ptb'):
    sources.Config(dataset='ptb', target='de')


def test_missing_files_are_reported(tmp_path):
  multi30k(tmp_path)
  (tmp_path / 'val.de').unlink()
  with pytest.raises(InputError, match=r'data.manual_dir: got .* val.en, val.de'):
    read('multi30k', tmp_path, tmp_path)
  write(tmp_path, 'val', 2, 'de')
  (tmp_path / 'test_2017_mscoco.de').unlink()  # Czech has no test sets of 2017
  assert 'test_coco' not in read('multi30k', tmp_path, tmp_path).splits
  with pytest.raises(InputError, match='data.manual_dir: got .*none; expected'):
    read('multi30k', tmp_path / 'none', tmp_path)


def test_multi30k_is_downloaded_where_no_directory_is_reported(tmp_path, monkeypatch):
  multi30k(tmp_path / 'web', compressed=True)
  asked = []

  def fetch(self, urls):
    asked.extend(urls.values())
    return {name: str(tmp_path / 'web' / f'{name}.gz') for name in urls}

  monkeypatch.setattr(tfds.download.DownloadManager, 'download', fetch)
  made = read('multi30k', '', tmp_path, source='fr', target='en', vocabulary_splits=('train', 'test_coco'))
  assert pairs(made, 'test_coco')[1] == ('test_2017_mscoco 1 fr', 'test_2017_mscoco 1 en')
  assert len(asked) == 10 and set(asked) <= set(DATA_SETS['multi30k'].urls.values())
  assert all(url.endswith(('.fr.gz', '.en.gz')) for url in asked)


def test_files_of_different_lengths_are_rejected_with_both_counts(tmp_path):
  multi30k(tmp_path)
  for language, counts in (('de', '4 lines, and .*train.de has 7'), ('en', '9 lines, and .*train.de has 7')):
    write(tmp_path, 'train', 7 if language == 'de' else 9, language)
    with pytest.raises(InputError, match=f'train.en: got {counts}'):
      read('multi30k', tmp_path, tmp_path)


@pytest.mark.filterwarnings('ignore:.*are skipped:UserWarning')  # again, where it is read again
def test_pair_with_an_empty_side_is_excluded_from_training_and_rejected_elsewhere(tmp_path):
  multi30k(tmp_path)
  (tmp_path / 'train.de').write_text('eins\n \ndrei\nvier\n')
  (tmp_path / 'train.en').write_text('one\ntwo\n\nfour\n')
  with pytest.warns(InputWarning, match='train.en and .*train.de: 2 pairs'):
    made = read('multi30k', tmp_path, tmp_path)
  assert pairs(made, 'train') == [('one', 'eins'), ('four', 'vier')]
  (tmp_path / 'val.de').write_text('eins\n\n')
  with pytest.raises(InputError, match='val.de, line 2: '):
    read('multi30k', tmp_path, tmp_path)


# ---- the user's own files ----


def test_own_files_with_their_splits(tmp_path):
  folder = tmp_path / 'in'
  for split, count in (('train', 3), ('train-more', 2), ('dev', 2), ('test', 1)):
    write(folder, split, count, 'xx', 'yy', compressed=split == 'dev')
  made = read('parallel_files', folder, tmp_path, source='yy', target='xx')
  assert made.manifest['sides'] == ['yy', 'xx']
  assert [source for source, _ in pairs(made, 'train')] == [
    'train 0 yy',
    'train 1 yy',
    'train 2 yy',
    'train-more 0 yy',
    'train-more 1 yy',
  ]
  assert pairs(made, 'valid')[1] == ('dev 1 yy', 'dev 1 xx') and len(pairs(made, 'test')) == 1
  before = made.hash
  (folder / 'test.xx').write_text('other\n')
  assert read('parallel_files', folder, tmp_path, source='yy', target='xx').hash != before


@pytest.mark.parametrize(('count', 'held_out'), [(400, None), (40, 2)])
def test_missing_splits_are_held_out(tmp_path, count, held_out):
  write(tmp_path / 'in', 'corpus', count, 'xx', 'yy')
  made = read('parallel_files', tmp_path / 'in', tmp_path, source='xx', target='yy')
  found = {split: pairs(made, split) for split in ('train', 'valid', 'test')}
  everything = [pair for part in found.values() for pair in part]
  assert len(everything) == len(set(everything)) == count
  assert all(source.replace('xx', 'yy') == target for source, target in everything)
  if held_out:  # few: the last ones
    assert [pair[0] for pair in found['test']] == ['corpus 38 xx', 'corpus 39 xx']
    assert len(found['valid']) == held_out
  else:
    assert 10 <= len(found['valid']) <= 30 and 10 <= len(found['test']) <= 30
  whole = read('parallel_files', tmp_path / 'in', tmp_path, source='xx', target='yy', split_fraction=0.0)
  assert set(whole.splits) == {'train'}


def test_tables(tmp_path):
  table = tmp_path / 'pairs.tsv'
  table.write_text(''.join(f'source {n}\tziel {n}\n' for n in range(40)))
  made = read('parallel_files', table, tmp_path)
  assert made.manifest['sides'] == ['source', 'target'] and pairs(made, 'train')[0] == ('source 0', 'ziel 0')
  named = tmp_path / 'named'
  named.mkdir()
  for split in ('train', 'valid', 'test'):
    (named / f'{split}.tsv.gz').write_bytes(gzip.compress(b'id\ten\tde\n1\tone\teins\n2\ttwo\tzwei\n'))
  made = read('parallel_files', named, tmp_path, source='de', target='en')
  assert pairs(made, 'test') == [('eins', 'one'), ('zwei', 'two')]
  table.write_text('a\tb\nc\td\te\n')
  with pytest.raises(InputError, match='pairs.tsv, line 2: got 3 columns'):
    read('parallel_files', table, tmp_path)


def test_unusable_user_files_are_rejected(tmp_path):
  sides = {'source': 'en', 'target': 'de'}
  own = lambda **options: read('parallel_files', tmp_path / 'in', tmp_path, **(sides | options))
  with pytest.raises(InputError, match='data.manual_dir: got .* a directory or a .tsv file'):
    own()
  write(tmp_path / 'in', 'train', 3, 'en', 'fr')
  with pytest.raises(InputError, match='train.en: got no train.de'):
    own()
  with pytest.raises(InputError, match=r'no pair of files, but train.en, train.fr'):
    own(source='it', target='es')
  with pytest.raises(InputError, match='3 pairs are too few|every file'):
    own(target='fr', split_fraction=0.4)
  write(tmp_path / 'in', 'test', 1, 'en', 'fr')
  write(tmp_path / 'in', 'test_2017', 1, 'en', 'fr')
  with pytest.raises(InputError, match='test.en, test_2017.en'):
    own(target='fr')


# ---- WMT 2014 ----


def test_wmt14_from_the_archives_and_as_one_file_a_split(tmp_path):
  folder = tmp_path / 'in'
  for stem in ('training/europarl-v7', 'commoncrawl', 'training/news-commentary-v9'):
    write(folder / os.path.dirname(stem), f'{os.path.basename(stem)}.de-en', 2, 'de', 'en')
  write(folder / 'dev', 'newstest2013', 3, 'de', 'en')
  (folder / 'test-full').mkdir()
  segment = '<doc>\n<seg id="1"> A &amp; {0} </seg>\n<hl><seg id="2">B {0}</seg></hl>\n</doc>\n'
  (folder / 'test-full' / 'newstest2014-deen-src.en.sgm').write_text(segment.format('en'))
  (folder / 'test-full' / 'newstest2014-deen-ref.de.sgm').write_text(segment.format('de'))
  made = read('wmt14_en_de', folder, tmp_path)
  assert [source for source, _ in pairs(made, 'train')] == [
    f'{stem}.de-en {n} en' for stem in ('europarl-v7', 'commoncrawl', 'news-commentary-v9') for n in range(2)
  ]
  assert pairs(made, 'test') == [('A & en', 'A & de'), ('B en', 'B de')]
  with pytest.raises(InputError, match='split valid: got 3 pairs in'):
    read('wmt14_en_de', folder, tmp_path, check_sizes=True)
  (folder / 'commoncrawl.de-en.de').unlink()
  with pytest.raises(InputError, match='expected commoncrawl.de-en.en, commoncrawl.de-en.de'):
    read('wmt14_en_de', folder, tmp_path, check_sizes=True)
  assert len(pairs(read('wmt14_en_de', folder, tmp_path), 'train')) == 4
  prepared = tmp_path / 'stanford'
  for split in ('train', 'newstest2013', 'newstest2014'):
    write(prepared, split, 2, 'fr', 'en')
  made = read('wmt14_en_fr', prepared, tmp_path, source='fr')
  assert pairs(made, 'test')[0] == ('newstest2014 0 fr', 'newstest2014 0 en')


@pytest.mark.filterwarnings('ignore:.*are skipped:UserWarning')  # again, where it is read again
def test_wmt14_prepared_by_tfds(tmp_path, monkeypatch):
  package = tmp_path / 'tiny_wmt14'
  package.mkdir()
  (package / '__init__.py').touch()
  (package / 'builder.py').write_text(WMT14)
  monkeypatch.syspath_prepend(tmp_path)
  out = tmp_path / 'out'
  module = importlib.import_module('tiny_wmt14.builder')
  module.Wmt14Translate(data_dir=out, config='de-en').download_and_prepare(file_format='array_record')
  with pytest.warns(InputWarning, match='split train: 1 pairs'):
    made = read('wmt14_en_de', out, tmp_path)
  assert made.manifest['sides'] == ['en', 'de'] and len(pairs(made, 'train')) == 4
  assert sorted(pairs(made, 'test')) == [(f't {n} english', f't {n} deutsch') for n in range(3)]
  back = read('wmt14_en_de', out / 'wmt14_translate', tmp_path, source='de')
  assert sorted(pairs(back, 'valid')) == [(f'v {n} deutsch', f'v {n} english') for n in range(2)]
  with pytest.raises(InputError, match=r'lmx\[tf\].*wmt14_translate/fr-en.*its text files'):
    read('wmt14_en_fr', '', tmp_path)


# ---- numbers ----


def test_numbers_in_words_and_digits(tmp_path, monkeypatch):
  known = {
    0: 'zero',
    7: 'seven',
    10: 'ten',
    21: 'twenty one',
    90: 'ninety',
    100: 'one hundred',
    312: 'three hundred and twelve',
    1000: 'one thousand',
    1005: 'one thousand and five',
    20_300: 'twenty thousand three hundred',
    999_999: 'nine hundred and ninety nine thousand nine hundred and ninety nine',
  }
  assert {number: generated.spell(number) for number in known} == known
  assert len({generated.spell(number) for number in range(20_000)}) == 20_000
  parts = {split: generated.draw_numbers(split) for split in generated.SIZES}
  assert {split: len(set(part)) for split, part in parts.items()} == generated.SIZES
  assert len({number for part in parts.values() for number in part}) == sum(generated.SIZES.values())
  assert all(0 <= number < 10**6 for part in parts.values() for number in part)
  monkeypatch.setattr(generated, 'SIZES', {'train': 200, 'valid': 20, 'test': 30})
  parts = {split: generated.draw_numbers(split) for split in generated.SIZES}
  made = corpus.load(corpus.Config(dataset='embedded_numbers', tokenizer='words', cache_dir=str(tmp_path)))
  assert made.manifest['sides'] == ['words', 'digits']
  found = pairs(made, 'test')
  assert found == [(generated.spell(n), ' '.join(str(n))) for n in parts['test']]
  back = corpus.load(
    corpus.Config(dataset='embedded_numbers', tokenizer='words', source='digits', cache_dir=str(tmp_path))
  )
  assert pairs(back, 'test') == [(target, source) for source, target in found]
  assert back.tokenizer.vocab_size == made.tokenizer.vocab_size < 50


# ---- what a tokenizer makes of pairs ----


@pytest.mark.parametrize('kind', ['bytes', 'characters', 'words', 'bpe', 'word_bpe', 'unigram'])
def test_vocabulary_covers_both_sides(tmp_path, kind):
  folder = tmp_path / 'in'
  folder.mkdir()
  for split in ('train', 'valid', 'test'):
    (folder / f'{split}.en').write_text('the quick brown fox\n' * 50)
    (folder / f'{split}.xx').write_text('žluťoučký kůň úpěl\n' * 50)
  made = corpus.load(
    corpus.Config(
      dataset='parallel_files',
      tokenizer=kind,
      manual_dir=str(folder),
      source='en',
      target='xx',
      vocab_size=600 if kind != 'words' else 0,
      cache_dir=str(tmp_path / 'cache'),
    )
  )
  part = made.splits['test']
  assert len(part.offsets) == 101 and made.tokenizer.eos_id is not None
  texts = [made.tokenizer.decode(part.tokens[b : e - 1]) for b, e in zip(part.offsets, part.offsets[1:], strict=False)]
  assert texts == ['the quick brown fox', 'žluťoučký kůň úpěl'] * 50
  pieces = made.tokenizer.ids_to_tokens(part.tokens[: part.offsets[2]])  # both sides were learned from:
  if kind in ('bpe', 'word_bpe'):  # they are read in whole words
    assert len(pieces) <= 12
  if kind == 'unigram':  # no character of theirs is spelled in bytes
    assert not [piece for piece in pieces if piece.startswith('<0x')]


@pytest.mark.parametrize('kind', ['characters', 'words', 'bpe', 'unigram'])
def test_separate_vocabularies_are_trained_on_the_texts_of_their_side(tmp_path, kind):
  folder, cache = tmp_path / 'in', str(tmp_path / 'cache')
  folder.mkdir()
  texts = {'en': 'the quick brown fox', 'xx': 'one one two'}
  for split, side in itertools.product(('train', 'valid', 'test'), texts):
    (folder / f'{split}.{side}').write_text(f'{texts[side]}\n' * 50)
  given = dict(dataset='parallel_files', manual_dir=str(folder), source='en', target='xx', cache_dir=cache)
  sizes = {'words': (4, 3), 'characters': (0, 0)}.get(kind, (600, 500))
  cfg = corpus.Config(tokenizer=kind, vocabularies='separate', vocab_size=sizes[0], target_vocab_size=sizes[1], **given)
  made = corpus.load(cfg)
  own, other, part = made.tokenizer, made.tokenizer.target, made.splits['test']
  assert own.is_separate and not other.is_separate and made.manifest['tokenizer']['target_vocab_size'] > 0
  rows = [part.tokens[begin:end] for begin, end in itertools.pairwise(part.offsets)]
  assert all(row[-1] == side.eos_id for row, side in zip(rows, [own, other] * 50, strict=True))
  assert made.tokenizer.start_id == other.eos_id
  read = [side.decode(row[:-1]) for row, side in zip(rows[:2], (own, other), strict=True)]
  if kind == 'words':  # two of four words, and one of two, are known
    assert set(own.tokens) == {'<eos>', '<unk>', 'brown', 'fox'} and set(other.tokens) == {'<eos>', '<unk>', 'one'}
    assert read == ['<unk> <unk> brown fox', 'one one <unk>']
  else:
    assert read == [*texts.values()]
  if kind == 'characters':
    assert set(own.tokens) - set(other.tokens) >= set('qk') and 'q' in own.tokens and 'q' not in other.tokens
  again = corpus.load(cfg)
  assert (again.hash, again.tokenizer.hash) == (made.hash, own.hash) and again.tokenizer.target.hash == other.hash
  other_size = dataclasses.replace(cfg, target_vocab_size=9)
  assert corpus.prepare(other_size, make=False) != corpus.prepare(cfg, make=False) == made.dir
  shared = corpus.load(corpus.Config(tokenizer=kind, vocab_size=sizes[0], **given)).tokenizer
  assert not shared.is_separate and shared.target is shared
  path = {'tokenizer': kind, 'tokenizer_path': made.dir}
  assert corpus.load(corpus.Config(vocabularies='separate', **path, **given)).tokenizer.hash == own.hash
  for size in ('vocab_size', 'target_vocab_size') if kind != 'characters' else ():
    with pytest.raises(InputError, match=rf'^data\.{size}: got 2'):
      corpus.load(dataclasses.replace(cfg, **{size: 2}))
  with pytest.raises(InputError, match='data.vocabularies: got "shared" with data.tokenizer_path'):
    corpus.load(corpus.Config(**path, **given))


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'vocabularies': 'two'}, 'data.vocabularies: unknown "two"'),
    ({'vocabularies': 'shared', 'target_vocab_size': 9}, 'data.target_vocab_size: got 9'),
    ({'dataset': 'embedded'}, 'data.vocabularies: got "separate" with data set embedded'),
    ({'tokenizer': 'bytes'}, 'data.vocabularies: got "separate" with data.tokenizer "bytes"'),
    ({'tokenizer': 'marian'}, 'data.vocabularies: got "separate" with data.tokenizer "marian"'),
  ],
)
def test_vocabularies_that_cannot_be_separate_are_rejected(changes, message):
  with pytest.raises(InputError, match=message):
    corpus.Config(**{'dataset': 'embedded_numbers', 'vocabularies': 'separate', **changes})


def test_no_warning_without_skipped_pairs(tmp_path):
  multi30k(tmp_path)
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    read('multi30k', tmp_path, tmp_path)


@pytest.mark.real_data
def test_files_of_multi30k(data_dir):
  for sides in (('en', 'de'), ('de', 'en'), ('en', 'fr')):
    found = parallel.find('multi30k', DATA_SETS['multi30k'].layout, str(data_dir), sides)
    sizes = {split: sum(1 for _ in parallel.read(paths, sides, drop=False)) for split, paths in found.items()}
    assert sizes == {split: size['pairs'] for split, size in DATA_SETS['multi30k'].sizes.items()}


@pytest.mark.slow
@pytest.mark.real_data
def test_published_sizes_of_multi30k(data_dir, tmp_path):
  made = read('multi30k', data_dir, tmp_path, check_sizes=True, source='de', target='en')
  sizes = {split: (len(part.offsets) - 1) / 2 for split, part in made.splits.items()}
  assert sizes == {'train': 29_000, 'valid': 1_014, 'test': 1_000, 'test_2017': 1_000, 'test_coco': 461}
  assert pairs(made, 'test')[1][1].startswith('A Boston Terrier is running on lush green grass')
