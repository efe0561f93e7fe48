"""Each builder, prepared by TFDS into ArrayRecord and read by as_data_source, without TensorFlow."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import pathlib
import sys
import tempfile

import pytest
import tensorflow_datasets as tfds

from lmx.data import sources
from lmx.data.builders import base, files, generated, prose, streams, wikitext
from lmx.data.datasets import DATA_SETS
from lmx.errors import InputError, InputWarning

ARTICLES = ' \n = One = \n \n Text of one . \n \n = = Part = = \n \n More . \n \n = Two = \n \n Text <unk> . \n'


def write(path, text):
  path.parent.mkdir(parents=True, exist_ok=True)
  data = text if isinstance(text, bytes) else text.encode()
  path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == '.gz' else data)


def write_three(folder, pattern, text):
  for part in ('train', 'valid', 'test'):
    write(folder / pattern.format(part), text)


def put_files(name, folder):
  """Writes tiny files of a data set, each in another of the common layouts."""
  if name in ('ptb', 'ptb_characters'):
    write_three(folder, 'simple-examples/data/ptb.{}.txt', ' a <unk> N \n b \n')
  elif name == 'wikitext2':
    write_three(folder, 'wikitext-2/wiki.{}.tokens', ARTICLES)
  elif name == 'wikitext103':
    write_three(folder, '{}.txt.gz', ARTICLES)
  elif name == 'lm1b_files':
    write(folder / 'training-monolingual.tokenized.shuffled/news.en-00002-of-00100', 'Two .\n')
    write(folder / 'training-monolingual.tokenized.shuffled/news.en-00001-of-00100', 'One .\n')
    for n, text in enumerate(('Test .\n', 'Valid .\n')):
      write(folder / f'heldout-monolingual.tokenized.shuffled/news.en.heldout-0000{n}-of-00050', text)
  elif name == 'text8':
    write(folder / 'text8', 'a bc def ' * 100)
  elif name == 'enwik8':
    write(folder / 'enwik8.gz', 'é &lt;\n' * 101)
  elif name == 'brown':
    write_three(folder, '{}.txt', 'One .\nTwo .\n\nThree .\n')
  elif name == 'brown_stream':
    # The names say the order of the corpus: press before fiction, whatever the split.
    write_three(folder, 'brown/{}.txt.gz', 'One .\nTwo .\n\nThree .\n')
    names = zip(('train', 'valid', 'test'), ('cr0', 'cb1', 'ca2'), strict=True)
    rows = [f'{split}\t{name}{n}\tx\t{2 - n}\t{4 - 2 * n}' for split, name in names for n in (0, 1)]
    write(folder / 'brown/index.tsv', '\n'.join(['split\tfile\tcategory\tsentences\ttokens', *rows]) + '\n')
  elif name == 'wnut17':
    write_three(folder, '{}.conll.gz', 'One\tO\nTwo\tB-x\n\nThree\tO\n')
    write(folder / 'dev.conll', 'One\tO\n')
  elif name == 'conll2003':
    write_three(folder, '{}.txt', 'One NN O O\nTwo NN O I-PER\n\nThree NN O O\n')
  elif name == 'conll2005':
    for file in ('train-set', 'dev-set', 'test-wsj', 'test-brown'):
      write(folder / f'{file}.gz', 'One - (A0*)\nTwo do (V*)\n\nNo -\n')
  elif name == 'conll2012':
    lines = 'd 0 0 One N * - - - - * (A0*) -\nd 0 1 Two V * do 01 - - * (V*) -\n'
    for split in ('train', 'development', 'test'):
      write(folder / f'data/{split}/a.gold_conll', f'#begin document (d)\n{lines}\n#end document\n')
  elif name == 'tagged_files':
    write_three(folder, '{}.conll.gz', 'One\tO\nTwo\tB-x\n\nThree\tO\n')
  elif name == 'ud_ewt':
    for file in ('train', 'dev', 'test'):
      write(folder / f'{file}.conllu.gz', '1\tOne\tone\tNUM\n2\tTwo\ttwo\tNUM\n\n1\tThree\tthree\tNUM\n')
  elif name == 'trec':
    lines = 'NUM:date When ?\nHUM:ind Who ?\n' * 10
    write(folder / 'train_5500.label', lines)
    write(folder / 'TREC_10.label', lines)
  elif name == 'imdb':
    write_three(folder, '{}.tsv.gz', 'label\trating\tid\ttext\n' + '1\t8\ta\tGood .\n0\t2\tb\tBad .\n' * 10)
  elif name == 'multi30k':
    for stem in ('train', 'val', 'test_2016_flickr', 'test_2017_flickr', 'test_2017_mscoco'):
      for side in ('en', 'de'):
        write(folder / f'data/task1/raw/{stem}.{side}.gz', 'One.\nTwo.\n')
  elif name == 'wmt14_en_fr':
    for stem in ('train', 'newstest2013', 'newstest2014'):
      for side in ('en', 'fr'):
        write(folder / f'{stem}.{side}', 'One.\nTwo.\n')
  elif name == 'wmt14_en_de':
    for stem in ('training/europarl-v7.de-en', 'dev/newstest2013', 'test-full/newstest2014'):
      for side in ('en', 'de'):
        write(folder / f'{stem}.{side}', 'One.\nTwo.\n')
  elif name == 'parallel_files':
    for side in ('en', 'de'):
      write_three(folder, '{}.' + side, 'One.\nTwo.\n')
  elif name.startswith('sst5'):
    for file in ('train', 'dev', 'test'):
      write(folder / f'trees/{file}.txt', '(3 (2 It) (4 works))\n(0 (2 It) (1 fails))\n')
  elif name in ('sst2', 'sst2_phrases'):
    for file in ('train_sentences', 'train', 'dev', 'test'):
      write(folder / f'glue/sst2/{file}.tsv.gz', 'label\tsentence\n1\tgood\n0\tbad\n')


@pytest.mark.parametrize(
  'name',
  [n for n, of in DATA_SETS.items() if not (of.table or of.images or n in ('lm1b', 'text_files') or n[:5] == 'squad')],
)
def test_prepared_and_read_without_tensorflow(name, tmp_path, little_prose, monkeypatch):
  monkeypatch.setattr(generated, 'SIZES', {'train': 50, 'valid': 10, 'test': 10})
  folder = tmp_path / 'in'
  put_files(name, folder)
  given = {} if name.startswith('embedded') else {'manual_dir': str(folder)}
  given |= {'source': 'en', 'target': 'de'} if name == 'parallel_files' else {}
  source = sources.Config(dataset=name, check_sizes=False, cache_dir=str(tmp_path / 'cache'), **given)
  sources.open_splits(source)
  (made,) = pathlib.Path(sources.prepared_directory(source), name).glob('*/1.0.0')
  found = tfds.builder_from_directory(made)
  assert found.info.description and bool(found.info.citation) == bool(DATA_SETS[name].cite)
  for split in ('train', 'valid', 'test'):
    records = found.as_data_source(split)
    assert {*records[0]} == {'id', 'text', 'label'} and records[0]['text']
  assert 'tensorflow' not in sys.modules


def test_builder_leaves_nothing_in_the_temporary_directory(tmp_path, monkeypatch):
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'tmp'))
  (tmp_path / 'tmp').mkdir()
  put_files('ptb', tmp_path / 'in')
  splits = sources.open_splits(
    sources.Config(dataset='ptb', manual_dir=str(tmp_path / 'in'), check_sizes=False, cache_dir=str(tmp_path / 'cache'))
  )
  assert len(splits['train']) == 1 and not list((tmp_path / 'tmp').iterdir())


def test_every_download_has_a_checksum():
  known = set(base.TextBuilder.url_infos)
  assert known == {url for data_set in DATA_SETS.values() for url in data_set.urls.values()}


@pytest.mark.parametrize(
  'name',
  [
    'ptb-875157bfa6566528',
    'wikitext103-528ed772cbb45c7e',
    'multi30k-d6d90be7707df4aa',
    'trec-1530945a9dc164de',
    'imdb-dd1ad4a5a0b809ef',
    'text8-2ebf0fa166b1fc16',
    'wnut17-ccdfd0671e84cae4',
    'lm1b_files-dfd370b3e49d84b6',
    'brown_stream-ed72f0f4f117545a',
  ],
)
def test_data_of_earlier_versions_is_found(name):
  dataset = name.rpartition('-')[0]
  assert os.path.basename(sources.prepared_directory(sources.Config(dataset=dataset))) == name


def test_articles_are_complete():
  lines = ARTICLES.splitlines(keepends=True)
  found = list(wikitext.articles(iter(lines)))
  assert ''.join(found) == ARTICLES
  assert [text.split(' = ')[1] for text in found] == ['One', 'Two']


def test_streams_are_split_between_words(monkeypatch, tmp_path):
  monkeypatch.setattr(streams, 'EXAMPLE_SIZE', 10)
  write(tmp_path / 'text8', 'ab cde fghi ' * 20)
  parts = list(streams.read_range(str(tmp_path / 'text8'), 7, 200))
  assert b''.join(parts) == (b'ab cde fghi ' * 20)[7:200]
  assert all(part.startswith(b' ') for part in parts[1:]) and len(parts) > 5
  assert ''.join(streams.join_lines(iter(['abc\n'] * 9))) == 'abc\n' * 9


def test_split_character_is_not_lost(tmp_path):
  text = ('é' * 101).encode()
  write(tmp_path / 'enwik8', text)
  source = sources.Config(dataset='enwik8', manual_dir=str(tmp_path), check_sizes=False)
  splits = sources.open_splits(dataclasses.replace(source, cache_dir=str(tmp_path / 'cache')))
  got = b''.join(t.encode('utf-8', 'surrogateescape') for s in splits.values() for _, t, _ in s)
  assert got == text and [*splits] == ['train', 'valid', 'test']


@pytest.mark.parametrize(
  'name', ['ptb', 'ptb_characters', 'wikitext2', 'wikitext103', 'text8', 'brown', 'brown_stream']
)
def test_wrong_sizes_are_reported(name, tmp_path):
  put_files(name, tmp_path / 'in')
  with pytest.raises(InputError, match=rf'data set {name}.*got [\d,]+ \w+ in'):
    sources.open_splits(
      sources.Config(dataset=name, manual_dir=str(tmp_path / 'in'), cache_dir=str(tmp_path / 'cache'))
    )
  left = list((tmp_path / 'cache').rglob('dataset_info.json'))
  assert not left, 'a refused data set was taken as prepared'


def stream_of(folder, cache, split=None):
  splits = sources.open_splits(
    sources.Config(dataset='brown_stream', manual_dir=str(folder), check_sizes=False, cache_dir=str(cache))
  )
  return ' '.join(text for name in ([split] if split else splits) for _, text, _ in splits[name]).split()


def test_brown_stream_keeps_corpus_order(tmp_path):
  put_files('brown_stream', tmp_path / 'in')
  one, three = 'One . Two . <text>'.split(), 'Three . <text>'.split()
  assert stream_of(tmp_path / 'in', tmp_path / 'cache') == (one + three) * 3
  for name, text in (('ca01', 'a/at b/nn\n'), ('cr09', 'c/nn\n'), ('cb02', '``/`` d/nn\n')):
    write(tmp_path / 'tagged' / name, text)
  write(tmp_path / 'tagged/cats.txt', 'cr09 humor\ncb02 editorial\nca01 news\n')
  whole = 'a b <text> " d <text> c <text>'.split()
  assert stream_of(tmp_path / 'tagged', tmp_path / 'cache') == whole
  assert stream_of(tmp_path / 'tagged', tmp_path / 'cache', 'train') == whole[:6]  # the share of the paper's cut


@pytest.mark.parametrize(
  'old, new, message',
  [
    ('split\tfile', 'file\tsplit', 'expected the columns split, file, category'),
    ('test\tca21\tx\t1\t2\n', '', 'got 2 documents; expected 1, as .*index.tsv'),
    ('cb10\tx\t2\t4', 'cb10\tx\t2\t5', 'document cb10: got 4 tokens; expected 5'),
  ],
)
def test_brown_with_an_index_that_does_not_fit(old, new, message, tmp_path):
  put_files('brown_stream', tmp_path / 'in')
  index = tmp_path / 'in/brown/index.tsv'
  write(index, index.read_text().replace(old, new))
  with pytest.raises(InputError, match=message):
    stream_of(tmp_path / 'in', tmp_path / 'cache')


def test_brown_stream_requires_an_index(tmp_path):
  put_files('brown', tmp_path)
  with pytest.raises(InputError, match='data.manual_dir: got .*expected brown.train.txt, .*index.tsv'):
    stream_of(tmp_path, tmp_path / 'cache')


def test_brown_from_tagged_files(tmp_path):
  names = [f'ca{n:02}' for n in range(1, 12)]
  write(tmp_path / 'cats.txt', ''.join(f'{name} news\n' for name in names))
  for name in names:
    write(tmp_path / name, f"\n\t``/`` {name}/np and/or/cc ''/'' ./.\n\n\n\tTwo/cd ./.\n")
  source = sources.Config(dataset='brown', manual_dir=str(tmp_path), check_sizes=False)
  splits = sources.open_splits(dataclasses.replace(source, cache_dir=str(tmp_path / 'cache')))
  ids = {split: [name for name, _, _ in examples] for split, examples in splits.items()}
  assert ids['valid'] == ['ca05'] and ids['test'] == ['ca10'] and len(ids['train']) == 9
  assert next(iter(splits['test'])) == ('ca10', '" ca10 and/or " .\nTwo .\n', 'news')


def test_embedded_splits_are_clean_and_disjoint():
  documents = prose.documents()
  texts = [text for _, text, _ in documents]
  ids = [name for name, _, _ in documents]
  assert len({*ids}) == len(ids) and len({*texts}) == len(texts) and len(ids) > 3000
  assert not any('>>>' in text or '::=' in text for text in texts)
  assert all(len(text.split()) >= 5 for text in texts)
  assert {label for _, _, label in documents} > {'pydoc_data', 'asyncio', 'email'}
  splits: dict[str, set[str]] = {}
  for name in ids:  # a module lies whole in one split
    splits.setdefault(name.partition(':')[0], set()).add(prose.split_of(name))
  assert splits.pop('pydoc_data.topics') == {'train', 'valid', 'test'}
  assert 200 < len(splits) < 0.2 * len(ids) and all(len(found) == 1 for found in splits.values())
  share = {s: sum(prose.split_of(i) == s for i in ids) / len(ids) for s in ('valid', 'test')}
  assert 0.03 < share['valid'] < 0.2 and 0.03 < share['test'] < 0.2
  lines = {
    s: {line for n, t, _ in documents for line in t.split('\n') if prose.split_of(n) == s and len(line) >= 80}
    for s in ('train', 'valid', 'test')
  }
  assert not lines['train'] & (lines['valid'] | lines['test']) and not lines['valid'] & lines['test']


def test_embedded_cleaning():
  doc = """Return the frobnicated value of the argument, which must be given when
    the option is set.

    >>> frob(1)
    2

    x = y[0] + z

    - The first item of the list that
      goes on here is a long one, and it is wrapped.
    - The second one of them.
    """
  assert prose.clean(doc) == [
    'Return the frobnicated value of the argument, which must be given when the option is set.',
    '- The first item of the list that',
    'goes on here is a long one, and it is wrapped.',
    '- The second one of them.',
  ]


def test_embedded_corpus_reads_sources_without_importing():
  assert any(name.startswith('turtle:') for name, _, _ in prose.documents())
  assert 'turtle' not in sys.modules


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('a.txt', b' \n\n', 'a.txt: the file has no text'),
    ('a.txt.gz', gzip.compress(b'hello\n' * 99, mtime=0)[:-9], 'a.txt.gz: got damaged gzip data'),
    ('a.jsonl', b'{"text": "a"}\n{"txt": "b"}\n', 'a.jsonl, line 2: no field "text"'),
    ('a.jsonl', b'{"text": "a"}\n\n{"text": 3}\n', 'a.jsonl, line 3: text: got 3; expected a text'),
    ('a.jsonl', b'{"text": "a"}\n{oops\n', 'a.jsonl, line 2: not JSON'),
    ('a.jsonl', b'{"text": "a", "label": ["x"]}\n', 'a.jsonl, line 1: label: got a list of 1; expected a text'),
    ('a.txt', b'one line only\n', 'too few to hold out valid and test'),
    ('valid.txt', b'text\n', 'expected training text too'),
    ('a.doc', b'text\n', 'got no text file'),
  ],
)
def test_bad_text_files_name_file_and_line(name, content, message, tmp_path):
  (tmp_path / name).write_bytes(content)
  with pytest.raises(InputError) as error:
    sources.open_splits(
      sources.Config(dataset='text_files', manual_dir=str(tmp_path), cache_dir=str(tmp_path / 'cache'))
    )
  assert message in str(error.value)


def texts_of(tmp_path, **options):
  source = sources.Config(dataset='text_files', manual_dir=str(tmp_path / 'in'), **options)
  splits = sources.open_splits(dataclasses.replace(source, cache_dir=str(tmp_path / 'cache')))
  return {split: [text for _, text, _ in examples] for split, examples in splits.items()}


def test_text_files_are_split_by_name(tmp_path):
  write(tmp_path / 'in' / 'train_1.txt.gz', 'one\ntwo\n\nthree')
  write(tmp_path / 'in' / 'dev.txt', '\ufefffour\r\n')
  write(tmp_path / 'in' / 'test.jsonl', json.dumps({'text': 'five\n\nsix', 'label': 'x'}) + '\n')
  got = texts_of(tmp_path)
  assert got == {'train': ['one\ntwo', 'three'], 'valid': ['four'], 'test': ['five\n\nsix']}
  assert texts_of(tmp_path, documents='line')['train'] == ['one', 'two', 'three']
  assert texts_of(tmp_path, documents='file')['train'] == ['one\ntwo\n\nthree']


def test_carriage_returns_end_lines_and_null_is_not_a_label(tmp_path):
  write(tmp_path / 'in' / 'train.txt', 'one\rtwo\r\rthree')
  lines = [{'text': 'four', 'label': None}, {'text': 'five', 'label': 2.0}, {'text': 'six', 'label': ' 2'}]
  write(tmp_path / 'in' / 'test.jsonl', '\n'.join(map(json.dumps, lines)))
  assert texts_of(tmp_path, split_fraction=0)['train'] == ['one\ntwo', 'three']
  source = sources.Config(dataset='text_files', manual_dir=str(tmp_path / 'in'), split_fraction=0)
  found = sources.open_splits(dataclasses.replace(source, cache_dir=str(tmp_path / 'cache')))
  assert [label for _, _, label in found['test']] == ['', '2', '2']


def test_text_files_are_held_out_by_hash_or_by_lines(tmp_path):
  write(tmp_path / 'in' / 'a.txt', ''.join(f'document {n}\n\n' for n in range(400)))
  got = texts_of(tmp_path)
  assert [len(got[s]) for s in ('valid', 'test')] != [0, 0] and 5 < len(got['valid']) < 40
  assert sorted(sum(got.values(), []), key=lambda t: int(t.split()[1])) == [f'document {n}' for n in range(400)]
  assert texts_of(tmp_path, split_fraction=0.0).keys() == {'train'}
  write(tmp_path / 'in' / 'a.txt', ''.join(f'line {n}\n' for n in range(40)))
  got = texts_of(tmp_path)
  assert got['train'] == ['\n'.join(f'line {n}' for n in range(36))]
  assert got['valid'] == ['line 36\nline 37'] and got['test'] == ['line 38\nline 39']
  write(tmp_path / 'in' / 'valid.txt', 'mine\n')
  assert texts_of(tmp_path, hold_out_test=False).keys() == {'train', 'valid'}
  got = texts_of(tmp_path)
  assert got['valid'] == ['mine'] and got['test'] == ['line 38\nline 39']


def test_files_are_put_into_splits_by_name():
  names = {
    'valid': (
      'val.txt',
      'val2017.de',
      'val_1.tsv',
      'VAL-a.txt',
      'validation.txt',
      'dev2.txt',
      'development.tsv',
      'x.dev',
    ),
    'test': ('test.txt', 'test_2016.en', 'corpus.test.txt', 'testing.csv'),
    'train': ('train.txt', 'value.txt', 'valör.txt', 'corpus.txt', 'Devil in the City.txt', 'testimonials.csv'),
  }
  for split, found in names.items():
    for name in found:
      assert files.split_of(f'in/{name}') == split, name


def test_non_data_files_are_reported_and_skipped(tmp_path):
  for name in ('train.TXT', 'valid.txt', 'README.txt', 'notes.txt', '._train.txt', 'train.txt~', 'Thumbs.db'):
    write(tmp_path / name, 'text\n')
  write(tmp_path / 'more' / 'x.txt', 'text\n')
  with pytest.warns(InputWarning, match='not read as data: more/, README.txt, notes.txt'):
    found = files.find_texts(str(tmp_path))
  assert {split: [os.path.basename(path) for path in paths] for split, paths in found.items()} == {
    'train': ['train.TXT'],
    'valid': ['valid.txt'],
  }
  named = files.find_texts(f'{tmp_path}/train.TXT,{tmp_path}/notes.txt')
  assert [os.path.basename(path) for path in named['train']] == ['train.TXT', 'notes.txt']
  # Without a file named train, other names are training text, but not those about the data.
  (tmp_path / 'train.TXT').unlink()
  with pytest.warns(InputWarning, match='more/, README.txt'):
    found = files.find_texts(str(tmp_path))
  assert [os.path.basename(path) for path in found['train']] == ['notes.txt']


@pytest.mark.parametrize('other', ['train.txt.gz', 'train.jsonl', 'train.parquet'])
def test_two_files_of_one_name_are_rejected(tmp_path, other):
  for name in ('train.txt', other):
    write(tmp_path / name, 'text\n')
  with pytest.raises(InputError, match='in the same folder'):
    files.find_texts(str(tmp_path))


def test_hidden_files_are_ignored(tmp_path):
  for name in ('a.gold_conll', '._a.gold_conll', '__MACOSX/a.gold_conll~'):
    write(tmp_path / name, 'x')
  assert files.find_tree(str(tmp_path), files.GOLD) == [str(tmp_path / 'a.gold_conll')]
