"""Folds of the training data: each document is held out for validation in one of them."""

from __future__ import annotations

import collections
import re

import pytest

from lmx.data import corpus, sources
from lmx.errors import InputError

ROWS = [('ab'[i % 2], f'row {i}') for i in range(107)]


def write(directory, name, rows=ROWS):
  (directory / name).write_text('label\ttext\n' + ''.join(f'{label}\t{text}\n' for label, text in rows))


def texts(directory, dataset='table_files', **options):
  """{split: texts} of a data set, each with its cache."""
  options = {'check_sizes': False, 'cache_dir': str(directory / 'cache')} | options
  opened = sources.open_splits(sources.Config(dataset=dataset, manual_dir=str(directory), **options))
  return {split: [text for _, text, _ in rows] for split, rows in opened.items()}


@pytest.mark.parametrize(('dataset', 'options'), [('trec', {}), ('table_files', {'split_fraction': 0.1})])
def test_each_row_is_held_out_once(tmp_path, dataset, options):
  write(tmp_path, 'train.tsv')
  write(tmp_path, 'test.tsv', [('a', 'tested')])
  folds = [texts(tmp_path, dataset, fold=fold, **options) for fold in range(10)]
  for found in folds:
    assert sorted(found['train'] + found['valid']) == sorted(text for _, text in ROWS) and found['test'] == ['tested']
  held_out = collections.Counter(text for found in folds for text in found['valid'])
  assert held_out == dict.fromkeys((text for _, text in ROWS), 1)
  assert folds[0] == texts(tmp_path, dataset, **options)


def test_last_folds_of_published_data_are_shorter_by_a_row(tmp_path):
  write(tmp_path, 'train.tsv')
  write(tmp_path, 'test.tsv', [('a', 'tested')])
  assert texts(tmp_path, 'trec')['valid'][:2] == ['row 9', 'row 19']
  assert texts(tmp_path, 'trec', fold=9)['valid'][:2] == ['row 0', 'row 10']
  assert [len(texts(tmp_path, 'trec', fold=fold)['valid']) for fold in (0, 2, 3, 9)] == [10, 10, 11, 11]


def test_sizes_of_a_fold_are_checked(tmp_path):
  write(tmp_path, 'train.tsv', [('a', f'row {i}') for i in range(5_452)])
  write(tmp_path, 'test.tsv', [('a', f'row {i}') for i in range(500)])
  assert [len(texts(tmp_path, 'trec', check_sizes=True, fold=fold)['valid']) for fold in (7, 8)] == [545, 546]
  write(tmp_path, 'train.tsv', [('a', f'row {i}') for i in range(5_451)])
  with pytest.raises(InputError, match='documents'):
    texts(tmp_path, 'trec', check_sizes=True, fold=8)


def test_test_rows_are_of_the_next_fold(tmp_path):
  write(tmp_path, 'rows.tsv')
  first, second = (texts(tmp_path, split_fraction=0.1, fold=fold) for fold in (0, 1))
  assert first['test'] == second['valid'] and not set(first['valid']) & set(second['valid'])


def test_words_with_labels_have_folds(tmp_path):
  (tmp_path / 'train.conll').write_text('\n'.join(f'word{i}\tO\n' for i in range(90)))
  held_out = [texts(tmp_path, 'tagged_files', split_fraction=0.25, fold=fold)['valid'] for fold in range(4)]
  assert sorted(sum(held_out, [])) == sorted(f'word{i}' for i in range(90))


def test_tokens_of_a_fold_have_a_cache_of_their_own(tmp_path):
  write(tmp_path, 'train.tsv')
  read = lambda fold: corpus.load(
    corpus.Config(
      dataset='table_files', tokenizer='words', manual_dir=str(tmp_path), cache_dir=str(tmp_path / 'c'), fold=fold
    )
  )
  assert read(0).hash != read(1).hash and read(1).hash == read(1).hash


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'dataset': 'ptb'}, 'data.fold: got 1; data set ptb has one validation split'),
    ({'dataset': 'text_files'}, 'data set text_files has one'),
    ({'dataset': 'trec', 'fold': 10}, 'got 10; data set trec has 10 folds, from 0'),
    ({'dataset': 'trec', 'fold': -1}, 'got -1; data set trec has 10 folds'),
    ({'dataset': 'table_files', 'fold': 20}, 'got 20; data set table_files has 20 folds, from 0, of data.split_frac'),
    ({'dataset': 'table_files', 'split_fraction': 0.0}, 'data set table_files has one'),
  ],
)
def test_fold_that_does_not_exist_is_an_error(options, message):
  with pytest.raises(InputError, match=re.escape(message)):
    sources.Config(**{'fold': 1, **options})


@pytest.mark.parametrize('dataset', ['table_files', 'glue/mrpc'])
def test_fold_beside_a_validation_file_is_an_error(tmp_path, dataset):
  if dataset == 'glue/mrpc':
    header, row = 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n', '1\t7\t8\tOne.\tTwo.\n'
    for name in ('train', 'dev', 'test'):
      (tmp_path / f'{name}.tsv').write_text(header + row)
  else:
    write(tmp_path, 'train.tsv')
    write(tmp_path, 'valid.tsv')
  with pytest.raises(InputError, match=r'data.fold: got 3, but the validation split .* has a file, .*(valid|dev)\.tsv'):
    texts(tmp_path, dataset, fold=3)
