"""The first words of a training text, and BabyLM's folders."""

from __future__ import annotations

import os

import pytest

from lmx.cli import main
from lmx.data import corpus, pipeline, sources
from lmx.errors import InputError

NAMES = ('bnc_spoken', 'childes', 'switchboard')


@pytest.fixture
def babylm(tmp_path):
  """Folder of BabyLM: 6 words in each training file, 4 in each validation file, 2 in each test file."""
  folder = tmp_path / 'train_10M'
  folder.mkdir()
  for name in NAMES:
    for split, lines in (('train', 3), ('dev', 2), ('test', 1)):
      (folder / f'{name}.{split}').write_text(''.join(f'{name} {split}{n}\n' for n in range(lines)))
  (folder / 'README.md').write_text('about\n')
  return folder


def config(folder, **settings):
  options = {'dataset': 'text_files', 'manual_dir': str(folder), 'cache_dir': os.path.join(folder, '../cache')}
  return pipeline.Config(**{**options, 'tokenizer': 'bytes', **settings})


def texts(cfg, split='train'):
  return [text for _, text, _ in sources.open_splits(cfg)[split]]


def test_folder_of_babylm_has_its_splits(babylm, capsys):
  cfg = config(babylm)
  assert [text.split()[1] for text in texts(cfg)] == ['train0'] * 3
  splits = corpus.load(cfg).splits
  assert {name: split.counts['words'] for name, split in splits.items()} == {'train': 18, 'valid': 12, 'test': 6}
  options = [f'--config.data.manual_dir={babylm}', f'--config.data.cache_dir={babylm.parent}/cache']
  options += ['--config.data.dataset=text_files', '--config.data.tokenizer=bytes', '--config.data.words=10']
  assert main.main(['prepare', '--config=experiments/gpt2/quickstart.py:tiny', *options]) == 0
  out = capsys.readouterr().out
  assert 'train 3 (bnc_spoken.train, childes.train, switchboard.train)' in out
  assert 'valid 3 (bnc_spoken.dev, childes.dev, switchboard.dev)' in out
  assert 'training text: the first 10 words (data.words)' in out


def test_folders_of_splits_are_read_together(babylm):
  whole = {split: [path.rsplit('/', 1)[1] for path in paths] for split, paths in config(babylm)._own_files().items()}
  for split in ('dev', 'test'):
    (babylm.parent / split).mkdir()
    for name in NAMES:
      (babylm / f'{name}.{split}').rename(babylm.parent / split / f'{name}.{split}')
  parts = config(','.join(str(babylm.parent / name) for name in ('train_10M', 'dev', 'test')), cache_dir=str(babylm))
  found = parts._own_files()
  assert {split: [path.rsplit('/', 1)[1] for path in paths] for split, paths in found.items()} == whole
  assert len(found['valid']) == 3


def test_last_document_ends_with_the_budget(babylm):
  assert texts(config(babylm, words=6)) == texts(config(babylm))[:1]
  assert texts(config(babylm, words=7)) == [texts(config(babylm))[0], 'childes']
  assert texts(config(babylm, words=18)) == texts(config(babylm))
  assert texts(config(babylm, words=7), 'valid') == texts(config(babylm), 'valid')
  loaded = corpus.load(config(babylm, words=9))
  assert loaded.splits['train'].counts['words'] == 9 and loaded.manifest['dataset']['words'] == 9


def test_budget_is_part_of_the_identity_only_where_it_is_set(babylm):
  plain, limited = config(babylm), config(babylm, words=7)
  assert 'words' not in plain.identity() and limited.identity() == {**plain.identity(), 'words': 7}
  assert pipeline.directory(plain) != pipeline.directory(limited)
  own = dict(dataset='embedded', manual_dir='')
  assert sources.prepared_directory(config(babylm, **own)) == sources.prepared_directory(config(babylm, **own, words=7))


def test_other_text_has_a_budget(tmp_path):
  (tmp_path / 'ptb').mkdir()
  for split in ('train', 'valid', 'test'):
    (tmp_path / f'ptb/ptb.{split}.txt').write_text('a cat\nthe dog sat\n')
  cfg = config(tmp_path / 'ptb', dataset='ptb', check_sizes=False, words=4)
  assert ''.join(texts(cfg)).split() == 'a cat the dog'.split()
  assert ''.join(texts(cfg, 'valid')).split() == 'a cat the dog sat'.split()


def test_more_words_than_there_are_end_with_2(babylm, capsys):
  arguments = ['prepare', '--config=experiments/gpt2/quickstart.py:tiny', f'--config.data.manual_dir={babylm}']
  arguments += ['--config.data.dataset=text_files', f'--config.data.cache_dir={babylm.parent}/cache']
  assert main.main([*arguments, '--config.data.words=19', '--config.data.tokenizer=bytes']) == 2
  assert (
    f'data.words: got 19; expected at most 18, the words of the training text ({babylm})' in capsys.readouterr().err
  )


@pytest.mark.parametrize(
  'settings',
  [
    {'dataset': 'table_files', 'words': 5},
    {'dataset': 'embedded_pairs', 'words': 5},
    {'words': -1},
    {'words': 5, 'fraction': 0.5},
    {'words': 5, 'train_documents': 3},
    {'words': 5, 'train_splits': ('train', 'test')},
  ],
)
def test_budget_that_means_nothing_is_refused(babylm, settings):
  with pytest.raises(InputError, match='data.words: got'):
    config(babylm, **settings)


def test_held_out_text_is_not_in_the_budget(tmp_path):
  (tmp_path / 'text').mkdir()
  documents = [f'{n} one two' for n in range(400)]
  (tmp_path / 'text/a.txt').write_text('\n\n'.join(documents))
  cfg = config(tmp_path / 'text')
  limited = config(tmp_path / 'text', words=100)
  train = texts(cfg)
  assert texts(limited) == [*train[:33], train[33].split()[0]]
  assert texts(limited, 'valid') == texts(cfg, 'valid') and not set(texts(cfg, 'valid')) & set(train)
