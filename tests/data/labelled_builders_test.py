"""TREC and IMDb from both of their layouts, their sizes, and a validation split cut from the training documents."""

from __future__ import annotations

import gzip

import pytest

from lmx.data import corpus, pipeline
from lmx.data.builders import generated
from lmx.errors import InputError


def read(directory, name, **options):
  options = {'check_sizes': False, 'lower_case': True, 'cache_dir': str(directory / 'cache')} | options
  return corpus.load(corpus.Config(dataset=name, tokenizer='words', manual_dir=str(directory), **options))


def documents(made, split):
  part = made.splits[split]
  names = made.manifest['label_names']
  texts = [made.tokenizer.decode(part.tokens[b : e - 1]) for b, e in zip(part.offsets, part.offsets[1:], strict=False)]
  return [(text, names[label] if label >= 0 else '') for text, label in zip(texts, part.labels, strict=True)]


def test_trec_from_its_published_files(tmp_path):
  lines = [f'{("DESC", "HUM")[i % 2]}:kind Who is number {i} ?\n' for i in range(20)]
  lines.append('LOC:city Where is Bogot\xe1 ?\n')
  (tmp_path / 'train_5500.label').write_bytes(''.join(lines).encode('latin-1'))
  (tmp_path / 'TREC_10.label').write_text('NUM:date When ?\n')
  made = read(tmp_path, 'trec', vocabulary_splits=('train', 'valid', 'test'))
  assert made.manifest['label_names'] == ['DESC', 'HUM', 'LOC', 'NUM']
  assert documents(made, 'valid') == [('who is number 9?', 'HUM'), ('who is number 19?', 'HUM')]
  assert len(documents(made, 'train')) == 19 and documents(made, 'train')[-1] == ('where is bogotá?', 'LOC')
  assert documents(made, 'test') == [('when?', 'NUM')]
  (tmp_path / 'TREC_10.label').write_text('NUM When ?\n')
  with pytest.raises(InputError, match='TREC_10.label, line 1: '):
    read(tmp_path, 'trec')


def test_trec_from_tables(tmp_path):
  rows = 'label\tfine_label\ttext\n' + ''.join(f'DESC\tDESC:x\tquestion {i} ?\n' for i in range(10))
  for name in ('train', 'test'):
    (tmp_path / f'{name}.tsv.gz').write_bytes(gzip.compress((rows + 'HUM\tHUM:x\tWho ?\n').encode()))
  made = read(tmp_path, 'trec', vocabulary_splits=('train', 'valid'))
  assert documents(made, 'valid') == [('question 9?', 'DESC')] and len(documents(made, 'test')) == 11
  (tmp_path / 'test.tsv.gz').write_bytes(gzip.compress(rows.replace('label\tfine', 'kind\tfine').encode()))
  with pytest.raises(InputError, match='no column label'):
    read(tmp_path, 'trec')
  (tmp_path / 'test.tsv.gz').write_bytes(gzip.compress(rows.replace('question 3', 'quest\tion 3').encode()))
  with pytest.raises(InputError, match='line 5: got 4 cells; expected 3'):
    read(tmp_path, 'trec')
  with pytest.raises(InputError, match='got 10 documents in'):
    read(tmp_path, 'trec', check_sizes=True)


def test_imdb_in_folders_and_in_tables_is_the_same(tmp_path):
  folders, tables = tmp_path / 'folders', tmp_path / 'tables'
  tables.mkdir()
  for part in ('train', 'test'):
    rows = ['label\trating\tid\ttext']
    for label, folder in (('1', 'pos'), ('0', 'neg')):
      (folders / 'aclImdb' / part / folder).mkdir(parents=True)
      (folders / 'aclImdb' / part / f'urls_{folder}.txt').write_text('http://\n')
      for i in range(12):
        (folders / 'aclImdb' / part / folder / f'{i}_8.txt').write_text(f'Film {i} is {folder}.<br />Yes')
        rows.append(f'{label}\t8\t{folder}_{i}\tFilm {i} is {folder}.<br />Yes')
    (tables / f'{part}.tsv').write_text('\n'.join(rows) + '\n')
  (folders / 'aclImdb' / 'train' / 'unsup').mkdir()
  (folders / 'aclImdb' / 'train' / 'unsup' / '0_0.txt').write_text('Film 0 is new.')
  one, two = read(folders, 'imdb'), read(tables, 'imdb')
  assert one.manifest['label_names'] == two.manifest['label_names'] == ['neg', 'pos']
  for split in ('train', 'valid', 'test'):
    assert documents(one, split) == documents(two, split)
  assert documents(one, 'valid') == [('film 9 is neg.\nyes', 'neg'), ('film 7 is pos.\nyes', 'pos')]
  assert len(documents(one, 'train')) == 22 and documents(one, 'test')[10][0] == 'film 10 is neg.\nyes'
  assert documents(one, 'unsupervised')[0][1] == '' and 'unsupervised' not in two.splits
  cfg = pipeline.Config(batching='documents', batch_size=2, length=16)
  assert pipeline.batches(cfg, one, 'train', 0, train=True)(0)['labels_B'].max() <= 1
  assert pipeline.batches(cfg, one, 'unsupervised', 0, train=False).unlabelled == 1
  before = one.hash
  (folders / 'aclImdb' / 'train' / 'pos' / '3_8.txt').write_text('Another text')
  assert read(folders, 'imdb').hash != before


def test_topics_of_the_embedded_prose_are_in_every_split(tmp_path):
  made = corpus.load(
    corpus.Config(dataset='embedded_topics', tokenizer='words', lower_case=True, cache_dir=str(tmp_path))
  )
  known = range(len(made.manifest['label_names']))
  assert len(known) > 5
  for name in ('train', 'valid', 'test'):
    assert set(made.splits[name].labels.tolist()) == set(known)


def test_embedded_pairs_label_word_membership(tmp_path):
  made = corpus.load(corpus.Config(dataset='embedded_pairs', tokenizer='words', cache_dir=str(tmp_path)))
  assert made.manifest['texts'] == 2 and made.manifest['label_names'] == ['contained', 'not_contained']
  for name in ('train', 'valid', 'test'):
    pairs = generated.generate_pairs(name)
    assert pairs == generated.generate_pairs(name) and len(pairs) >= 200
    assert made.splits[name].labels[::2].tolist() == [0, 1] * (len(pairs) // 2)
    assert set(made.splits[name].labels[1::2].tolist()) == {-1}
    wrong = [(label == 'contained') != (second in first) for first, second, label in pairs]
    assert sum(wrong) <= 0.01 * len(pairs)  # two sentences in a row may share words


@pytest.mark.real_data
def test_published_sizes(data_dir, tmp_path):
  made = read(data_dir, 'trec', check_sizes=True, cache_dir=str(tmp_path))
  sizes = {name: len(split.offsets) - 1 for name, split in made.splits.items()}
  assert sizes == {'train': 4907, 'valid': 545, 'test': 500}
  assert made.manifest['label_names'] == ['ABBR', 'DESC', 'ENTY', 'HUM', 'LOC', 'NUM']


@pytest.mark.slow
@pytest.mark.real_data
def test_published_sizes_of_imdb(data_dir, tmp_path):
  made = read(data_dir, 'imdb', check_sizes=True, cache_dir=str(tmp_path))
  sizes = {name: len(split.offsets) - 1 for name, split in made.splits.items()}
  assert sizes == {'train': 22_500, 'valid': 2_500, 'test': 25_000}
  for split in made.splits.values():
    assert split.labels.mean() == 0.5
