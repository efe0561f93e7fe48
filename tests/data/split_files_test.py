"""Files of a folder, and the splits that they belong to."""

import gzip
import lzma
import os
import socket

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from lmx import documents
from lmx.config import resolve
from lmx.data import sources
from lmx.data.builders import cells, files, parallel, questions, split_files, tables
from lmx.errors import InputError, InputWarning
from tests.config.resolve_test import SMALL

TEXT = 'text_files'
OWN = sources.NAMED_SPLITS


def write(root, *names, text='text\n'):
  for name in names:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def found(paths_of, root):
  return {split: [os.path.relpath(path, root) for path in paths] for split, paths in paths_of.items()}


@pytest.mark.parametrize(
  ('name', 'split'),
  [
    ('reviews_test.csv', 'test'),
    ('reviews-dev.csv', 'valid'),
    ('corpus.train.txt.gz', 'train'),
    ('books.train', 'train'),
    ('testset.txt', 'test'),
    ('wiki.test.raw.txt', 'test'),
    ('news.2017.dev.en.txt', 'valid'),
    ('Acid Test Results.txt', ''),
    ('electronics.csv', ''),
    ('latest.txt', ''),
  ],
)
def test_split_is_a_word_at_an_end_of_the_name_or_between_dots(name, split):
  assert split_files.named_split(f'test/{name}') == split


def test_one_name_with_the_endings_of_splits_is_a_file_of_each(tmp_path):
  write(tmp_path, 'x.train', 'x.dev', 'x.test')
  paths_of = files.find_texts(str(tmp_path))
  assert found(paths_of, tmp_path) == {'train': ['x.train'], 'valid': ['x.dev'], 'test': ['x.test']}
  write(tmp_path, 'x.train.gz')
  with pytest.raises(InputError, match='x.train.gz: got x.train'):
    files.find_texts(str(tmp_path))


def test_folders_named_as_splits_give_the_split_of_their_files(tmp_path):
  write(tmp_path, 'train/b.txt', 'train/a10.TXT', 'train/a2.txt', 'dev/x.txt', 'test/x.train', 'Test/../test/notes.pdf')
  with pytest.raises(InputError, match='x.train: got a file'):
    files.find_texts(str(tmp_path))
  (tmp_path / 'test/x.train').rename(tmp_path / 'test/y.txt')
  with pytest.warns(InputWarning, match='not read as data: notes.pdf'):
    paths_of = files.find_texts(str(tmp_path))
  assert found(paths_of, tmp_path) == {
    'train': ['train/a2.txt', 'train/a10.TXT', 'train/b.txt'],
    'valid': ['dev/x.txt'],
    'test': ['test/y.txt'],
  }
  write(tmp_path, 'valid.txt')
  with pytest.raises(InputError, match='both named as the valid split'):
    files.find_texts(str(tmp_path))


def test_folder_that_a_pattern_matches_gives_the_split(tmp_path):
  write(tmp_path, 'train/0.txt', 'test/0.txt')
  assert found(files.find_texts(f'{tmp_path}/*/*.txt'), tmp_path) == {'train': ['train/0.txt'], 'test': ['test/0.txt']}
  # The name of the given folder says nothing: a user may work in ~/test.
  assert found(files.find_texts(f'{tmp_path}/test/*.txt'), tmp_path) == {'train': ['test/0.txt']}


def test_folder_with_a_file_suffix_is_not_a_file(tmp_path):
  write(tmp_path, 'a.txt', 'x.txt/y.txt')
  with pytest.warns(InputWarning, match='not read as data: x.txt/;'):
    assert found(files.find_texts(str(tmp_path)), tmp_path) == {'train': ['a.txt']}


def test_without_data_the_folders_that_have_some_are_reported(tmp_path):
  write(tmp_path, 'data/en/a.txt', 'logo.png')
  with pytest.raises(InputError, match=r'got no text file, but data/, logo.png.*/\*/\*.txt reads those in its folders'):
    files.find_texts(str(tmp_path))


def test_shards_are_complete_and_in_the_order_of_their_numbers(tmp_path):
  names = [f'train-{i}-of-11.jsonl' for i in range(11)]
  write(tmp_path, *names, text='{"text": "a", "label": "b"}\n')
  assert found(tables.find_own(str(tmp_path)), tmp_path) == {'train': names}
  (tmp_path / names[7]).unlink()
  for pattern in (str(tmp_path), f'{tmp_path}/*.jsonl'):
    with pytest.raises(InputError, match='got no train-7-of-11.jsonl'):
      tables.find_own(pattern)
  assert len(tables.find_own(','.join(str(tmp_path / name) for name in names if '-7-' not in name))['train']) == 10


def test_broken_links_and_special_files_are_rejected(tmp_path):
  write(tmp_path, 'train.txt')
  (tmp_path / 'valid.txt').symlink_to(tmp_path / 'fetched-later')
  with pytest.raises(InputError, match='valid.txt: got a link to no file'):
    files.find_texts(str(tmp_path))
  (tmp_path / 'valid.txt').unlink()
  os.mkfifo(tmp_path / 'valid.txt')
  with pytest.raises(InputError, match='valid.txt: got a pipe'):
    files.find_texts(str(tmp_path))
  (tmp_path / 'train.txt').unlink()
  (tmp_path / 'train.txt').symlink_to('/dev/zero')
  for dataset in ('text_files', 'parallel_files'):
    with pytest.raises(InputError, match='got a device'):
      find = parallel.find_own if dataset == 'parallel_files' else lambda path, _: files.find_texts(path)
      find(str(tmp_path), ('txt', 'de'))
  with pytest.raises(InputError, match='got a device'):
    files.find_texts('/dev/zero')


def test_names_with_commas_and_repeated_files(tmp_path):
  write(tmp_path, 'a, b/train.txt', 'a, b/notes.txt')
  folder = str(tmp_path / 'a, b')
  with pytest.warns(InputWarning, match='notes.txt'):
    assert len(files.find_texts(folder)['train']) == 1
  os.rename(folder, tmp_path / 'c')
  both = files.find_texts(f'{tmp_path}/c,{tmp_path}/c/notes.txt,{tmp_path}/./c/train.txt')  # a named file is read
  assert [os.path.basename(path) for path in both['train']] == ['train.txt', 'notes.txt']


def test_tables_questions_and_translations_follow_the_same_names(tmp_path):
  write(tmp_path / 't', 'train.CSV', 'device_reviews.csv', 'sample_submission.csv', 'test.tsv.xz')
  with pytest.warns(InputWarning, match='device_reviews.csv, sample_submission.csv'):
    assert found(tables.find_own(str(tmp_path / 't')), tmp_path / 't') == {
      'train': ['train.CSV'],
      'test': ['test.tsv.xz'],
    }
  write(tmp_path / 'q', 'train-v1.json', 'developers.json', 'dev.jsonl.zst')
  with pytest.warns(InputWarning, match='developers.json'):
    splits = questions.find('squad_files', None, str(tmp_path / 'q'))
  assert found(splits, tmp_path / 'q') == {'train': ['train-v1.json'], 'valid': ['dev.jsonl.zst']}
  write(
    tmp_path / 'p', *(f'{name}.{side}' for name in ('train-2', 'train-10', 'dev/a', 'test/b') for side in ('en', 'DE'))
  )
  write(tmp_path / 'p', 'train.tsv', 'notes.fr')
  with pytest.warns(InputWarning, match='notes.fr'), pytest.warns(InputWarning, match='train.tsv'):
    splits = parallel.find_own(str(tmp_path / 'p'), ('en', 'de'))
  assert found({split: [group[1] for group in groups] for split, groups in splits.items()}, tmp_path / 'p') == {
    'train': ['train-2.DE', 'train-10.DE'],
    'valid': ['dev/a.DE'],
    'test': ['test/b.DE'],
  }


def test_run_started_by_an_earlier_version_keeps_its_files(tmp_path):
  write(tmp_path, 'train.txt', 'train.txt.gz', 'README.txt', 'Devil in the White City.txt', 'testimonials.txt', 'B.TXT')
  settings = ['data.dataset=text_files', f'data.manual_dir={tmp_path}', 'data.tokenizer_path=']
  new = resolve.resolve(SMALL, settings)
  old = resolve.resolve({**new.to_dict(), 'semantics': {}}, saved=True)
  assert new.semantics.split_names == 1 and old.data.split_names == 'prefixes'
  cfg = sources.Config(dataset=TEXT, manual_dir=str(tmp_path), split_names=old.data.split_names)
  names = {split: [name for name, _ in digests] for split, digests in cfg.identity()['files'].items()}
  assert names == {
    'test': ['testimonials.txt'],
    'train': ['README.txt', 'train.txt', 'train.txt.gz'],
    'valid': ['Devil in the White City.txt'],
  }
  with pytest.raises(InputError, match='data.split_names: got "prefixes"'):
    sources.Config(dataset='ptb', split_names='prefixes')


def test_files_found_by_both_rules_are_one_cache(tmp_path):
  write(tmp_path, 'train.txt', 'train1.txt', 'valid.txt', 'test.txt')
  identity = lambda names: sources.Config(dataset=TEXT, manual_dir=str(tmp_path), split_names=names).identity()
  assert identity('words') == identity('prefixes')


def test_folder_lists_its_files_by_split(tmp_path):
  write(tmp_path, *(f'train-{i}.txt' for i in range(7)), 'valid.txt')
  (note,) = sources.Config(dataset=TEXT, manual_dir=str(tmp_path)).file_notes()
  names = ', '.join(f'train-{i}.txt' for i in range(5))
  assert note == f'files of {tmp_path}: train 7 ({names} and 2 more); valid 1 (valid.txt)'


def test_socket_is_rejected(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)  # the path of a socket is short
  with socket.socket(socket.AF_UNIX) as server:
    server.bind('train.txt')
    with pytest.raises(InputError, match='train.txt: got a socket'):
      files.find_texts('train.txt')


def prepare(dataset, root, **options):
  return sources.open_splits(
    sources.Config(dataset=dataset, manual_dir=str(root), cache_dir=str(root.parent), **options)
  )


def test_held_out_split_without_rows_names_the_key(tmp_path):
  """Where the hash of the texts of a few rows chooses none."""
  write(tmp_path / 'in', 'train.csv', text='text,label\n' + 'the same,yes\n' * 9)
  with pytest.raises(InputError, match=r'split valid: .*give a file valid\.\*, or raise data.split_fraction'):
    prepare('table_files', tmp_path / 'in', hold_out_test=False)


@pytest.mark.parametrize(
  ('dataset', 'contents', 'message'),
  [
    ('squad_files', {'train.json': '{"data": []}'}, 'train.json: '),
    ('squad_files', {'train.jsonl': '{"context": "a", "qas": []}\n'}, 'train.jsonl: '),
    ('table_files', {'train.csv': 'text,label\n'}, 'train.csv: the file has no rows'),
    ('imdb', {'train/urls_pos.txt': '', 'test/urls_pos.txt': ''}, '/train/neg: cannot be read'),
    ('table_files', {'train.csv': ''}, 'train.csv: the file is empty'),
    ('parallel_files', {'train.tsv': '\n\n'}, r'split train: got no examples'),
    ('text_files', {'train.txt': ' \n'}, 'train.txt: the file has no text'),
    ('text_files', {'train.jsonl': ''}, 'train.jsonl: the file is empty'),
    (
      'sst2',
      {f'{n}.tsv': 'label\tsentence\n' for n in ('train_sentences', 'dev', 'test')},
      r'got no examples in .*dev.tsv',
    ),
    (
      'conll2003',
      {f'{n}.txt': '-DOCSTART- O\n\n' for n in ('train', 'valid', 'test')},
      'split train: got no examples in',
    ),
  ],
)
def test_data_without_examples_name_their_files(tmp_path, dataset, contents, message):
  for name, text in contents.items():
    write(tmp_path / 'in', name, text=text)
  with pytest.raises(InputError, match=message):
    for split in prepare(dataset, tmp_path / 'in', check_sizes=dataset in OWN, split_fraction=0.0).values():
      list(split)


def test_tables_in_parquet(tmp_path):
  (tmp_path / 'in').mkdir()
  labels = pa.array(['no', 'yes', 'no']).dictionary_encode()
  columns = {
    'text': pa.array(['a', 'b', 'c'], pa.large_string()),
    'label': labels,
    'when': pa.array([1, 2, 3], pa.date32()),
  }
  pq.write_table(pa.table(columns), tmp_path / 'in/train.parquet', row_group_size=2)
  pq.write_table(pa.table({'text': ['d'], 'label': [None]}), tmp_path / 'in/test.parquet')
  splits = prepare('table_files', tmp_path / 'in', split_fraction=0.0)
  assert [(text, label) for _, text, label in splits['train']] == [('a', 'no'), ('b', 'yes'), ('c', 'no')]
  assert [(text, label) for _, text, label in splits['test']] == [('d', '')]
  twice = pa.Table.from_arrays([pa.array(['a']), pa.array(['b']), pa.array(['no'])], ['text', 'text', 'label'])
  pq.write_table(twice, tmp_path / 'in/train.parquet')
  with pytest.raises(InputError, match='train.parquet: got two columns named "text"'):
    prepare('table_files', tmp_path / 'in', split_fraction=0.0)
  (tmp_path / 'in/train.parquet').write_bytes(b'PAR1')
  with pytest.raises(InputError, match='train.parquet: cannot be read'):
    prepare('table_files', tmp_path / 'in', split_fraction=0.0)


@pytest.mark.parametrize(
  ('column', 'message'),
  [(pa.nulls(2), 'which is empty'), (pa.array([b'a', b'b']), 'of type binary')],
)
def test_parquet_without_texts(tmp_path, column, message):
  pq.write_table(pa.table({'text': column}), tmp_path / 'train.parquet')
  with pytest.raises(InputError, match=f'data.column: got "text",? {message}'):
    list(prepare('text_files', tmp_path, split_fraction=0.0)['train'])


def test_parquet_with_large_and_string_view_texts(tmp_path):
  for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())):
    pq.write_table(pa.table({'text': pa.array(['a', None, 'b']).cast(kind)}), tmp_path / 'train.parquet')
    assert [text for _, text, _ in prepare('text_files', tmp_path, split_fraction=0.0)['train']] == ['a', 'b']


@pytest.mark.parametrize('unit', ['blank_line', 'file', 'line'])
@pytest.mark.parametrize('ending', ['', '.gz', '.xz', '.zst'])
def test_endless_text_is_rejected_before_memory_is_full(tmp_path, monkeypatch, unit, ending):
  monkeypatch.setattr(documents, 'LONGEST', 3 << 20)
  compress = {'': bytes, '.gz': gzip.compress, '.xz': lzma.compress, '.zst': documents._import_zstd().compress}[ending]
  path = tmp_path / f'train.txt{ending}'
  path.write_bytes(compress(b'a\n' + b'b' * (9 << 20)))
  with pytest.raises(InputError, match='train.txt.*, line 2: got a line'):
    list(prepare('text_files', tmp_path, split_fraction=0.0, documents=unit)['train'])
  if unit == 'line':
    return
  path.write_bytes(compress(b'b b b b b b b b\n' * (1 << 19)))
  with pytest.raises(InputError, match='got a document of more than'):
    list(prepare('text_files', tmp_path, split_fraction=0.0, documents=unit)['train'])


def test_endless_cell_is_rejected(tmp_path, monkeypatch):
  monkeypatch.setattr(cells, '_CELL', 1000)
  for text in ('text\n"' + 'a' * 2000 + '"\n', 'text\n"' + 'a\n' * 2000):
    write(tmp_path, 'train.csv', text=text)
    with pytest.raises(InputError, match='line 2: .*more than 1,000'):
      list(cells.read(str(tmp_path / 'train.csv')))


def test_tree_with_a_file_both_plain_and_compressed_is_rejected(tmp_path):
  write(tmp_path, 'a/x.gold_conll', 'b/y.gold_conll.gz', 'b/x.gold_conll', '.git/z.gold_conll')
  assert [os.path.relpath(path, tmp_path) for path in files.find_tree(str(tmp_path), files.GOLD)] == [
    'a/x.gold_conll',
    'b/x.gold_conll',
    'b/y.gold_conll.gz',
  ]
  write(tmp_path, 'b/y.gold_conll')
  with pytest.raises(InputError, match='y.gold_conll.gz: got y.gold_conll'):
    files.find_tree(str(tmp_path), files.GOLD)


def test_hidden_files_do_not_change_imdb_identity(tmp_path):
  write(
    tmp_path,
    *(f'{split}/{name}' for split in ('train', 'test') for name in ('urls_pos.txt', 'pos/0_9.txt', 'neg/1_1.txt')),
  )
  identity = sources.Config(dataset='imdb', manual_dir=str(tmp_path)).identity()
  write(tmp_path, 'train/pos/._0_9.txt', 'train/.DS_Store', 'test/__MACOSX/x', 'test/Thumbs.db')
  assert sources.Config(dataset='imdb', manual_dir=str(tmp_path)).identity() == identity


@pytest.mark.parametrize(
  ('names', 'message'),
  [
    (('part-00000.txt', 'part-00002.txt'), 'got no part-00001.txt'),
    (('part-00001.txt', 'part-00002.txt'), ''),
    (('train.txt', 'train (1).txt'), r'train \(1\).txt: got train.txt'),
    (('train.txt', 'train - Copy.txt'), 'train - Copy.txt: got train.txt'),
    (('train.txt', 'train_backup.txt'), 'train_backup.txt: got train.txt'),
    (('train_1.txt', 'train_2.txt', 'train (3).txt'), ''),
  ],
)
def test_missing_or_duplicate_shards_are_rejected(names, message, tmp_path):
  write(tmp_path, *names)
  if not message:
    assert len(files.find_texts(str(tmp_path))['train']) == len(names)
    return
  with pytest.raises(InputError, match=message):
    files.find_texts(str(tmp_path))
