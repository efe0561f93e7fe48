"""Data sets by name: identity, preparation that is complete or absent, errors."""

from __future__ import annotations

import dataclasses
import errno
import importlib
import json
import os
import shutil

import pytest
import tensorflow_datasets as tfds

from lmx.data import cache, corpus, sources
from lmx.errors import InputError, InputWarning

LM1B = """
import tensorflow_datasets as tfds


class Lm1b(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  VERSION = tfds.core.Version('1.1.0')

  def _info(self):
    return self.dataset_info_from_configs(
      features=tfds.features.FeaturesDict({'text': tfds.features.Text()}))

  def _split_generators(self, dl_manager):
    return {'train': self._generate_examples('train', 3), 'test': self._generate_examples('test', 100)}

  def _generate_examples(self, split, count):
    for n in range(count):
      yield str(n), {'text': f'A sentence of {split} .'}
"""


def test_names_and_options_are_checked(tmp_path):
  with pytest.raises(InputError, match='did you mean "wikitext2"'):
    sources.Config(dataset='wikitxt2')
  with pytest.raises(InputError, match='did you mean "line"'):
    sources.Config(dataset='text_files', documents='lines')
  with pytest.raises(InputError, match='split_fraction: got 0.5'):
    sources.Config(dataset='text_files', split_fraction=0.5)
  with pytest.raises(InputError, match=r'expected ptb.train.txt, ptb.valid.txt, ptb.test.txt'):
    sources.Config(dataset='ptb', manual_dir=str(tmp_path)).identity()
  with pytest.raises(InputError, match='data.manual_dir: got'):
    sources.Config(dataset='ptb', manual_dir=str(tmp_path / 'none')).identity()


def test_identity_depends_on_content(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_text('one\n')
  source = sources.Config(dataset='text_files', manual_dir=str(tmp_path))
  first = source.identity()
  assert source.identity() == first and str(tmp_path) not in str(first)
  path.write_text('two\n')
  assert source.identity() != first
  assert sources.Config(dataset='embedded').identity()['python']
  assert sources.Config(dataset='wikitext2').identity()['downloads']


def test_failed_download_suggests_a_fix(tmp_path, monkeypatch):
  def fail(self, urls):
    raise OSError('no network')

  monkeypatch.setattr(tfds.download.DownloadManager, 'download_and_extract', fail)
  with pytest.raises(InputError, match=r'could not be downloaded from https://.*data.manual_dir'):
    sources.open_splits(sources.Config(dataset='ptb', cache_dir=str(tmp_path)))


def test_unprepared_lm1b_suggests_a_fix(tmp_path):
  with pytest.raises(InputError, match=r'lmx\[tf\]'):
    sources.open_splits(sources.Config(dataset='lm1b', manual_dir=str(tmp_path), cache_dir=str(tmp_path)))


def test_lm1b_prepared_by_tfds_is_read(tmp_path, monkeypatch):
  package = tmp_path / 'tiny_lm1b'
  package.mkdir()
  (package / '__init__.py').touch()
  (package / 'builder.py').write_text(LM1B)
  monkeypatch.syspath_prepend(tmp_path)
  builder = importlib.import_module('tiny_lm1b.builder').Lm1b(data_dir=tmp_path / 'out')
  builder.download_and_prepare(file_format='array_record')
  for place in ('out', 'out/lm1b', 'out/lm1b/1.1.0'):
    splits = sources.open_splits(
      sources.Config(dataset='lm1b', manual_dir=str(tmp_path / place), cache_dir=str(tmp_path))
    )
    assert {split: len(examples) for split, examples in splits.items()} == {'train': 3, 'valid': 2, 'test': 98}
    assert next(iter(splits['train']))[1:] == ('A sentence of train .\n', '')


def put_ptb(folder):
  """Files of a data set that TFDS prepares."""
  folder.mkdir()
  for split in ('train', 'valid', 'test'):
    (folder / f'ptb.{split}.txt').write_text(' a b c .\n' * 30)
  return {'dataset': 'ptb', 'manual_dir': str(folder), 'check_sizes': False}


def test_killed_preparation_is_not_taken_as_complete(tmp_path, monkeypatch):
  source = sources.Config(**put_ptb(tmp_path / 'in'))
  rename = os.rename

  def killed(old, new):
    if '.tmp-' in os.path.basename(str(old)):
      raise KeyboardInterrupt
    return rename(old, new)

  monkeypatch.setattr(os, 'rename', killed)
  with pytest.raises(KeyboardInterrupt):
    sources.open_splits(dataclasses.replace(source, cache_dir=str(tmp_path / 'cache')))
  monkeypatch.undo()
  folder = tmp_path / 'cache' / 'datasets'
  assert [p for p in folder.iterdir() if not p.name.startswith('.tmp-')] == []
  (folder / f'.tmp-{os.uname().nodename}-999999999-x').mkdir()  # as SIGKILL would leave it
  assert len(sources.open_splits(dataclasses.replace(source, cache_dir=str(tmp_path / 'cache')))['train']) == 1
  assert [p.name[:4] for p in folder.iterdir()] == ['ptb-']


def _flip(path, at):
  content = bytearray(path.read_bytes())
  content[at] ^= 1
  path.write_bytes(content)


@pytest.mark.parametrize('damage', ['train', 'dataset_info', 'short', 'missing', 'sizes'])
def test_damaged_prepared_data_is_named_and_prepared_again(tmp_path, damage):
  source = sources.Config(**put_ptb(tmp_path / 'in'))
  texts = lambda: list(sources.open_splits(dataclasses.replace(source, cache_dir=str(tmp_path / 'cache')))['train'])
  made = texts()
  name = {'dataset_info': 'dataset_info.json', 'sizes': 'sizes.json'}.get(damage, '*train.array_record*')
  (path,) = (tmp_path / 'cache').rglob(name)
  content = path.read_bytes()
  if damage == 'missing':
    path.unlink()
  elif damage == 'short':
    path.write_bytes(content[: len(content) // 2])
  else:
    _flip(path, 80 if damage == 'train' else 0)
  with pytest.warns(InputWarning, match=rf'{path.name}.* damaged.*the directory .*ptb-\w+ is deleted and prep'):
    assert texts() == made
  assert path.read_bytes() == content or damage == 'dataset_info'


def test_damaged_data_of_before_the_checksums_are_prepared_again(tmp_path):
  cfg = corpus.Config(**put_ptb(tmp_path / 'in'), cache_dir=str(tmp_path / 'cache'))
  load = lambda: corpus.load(cfg)
  made = load()
  (path,) = (tmp_path / 'cache').rglob('sizes.json')
  path.write_text(json.dumps({name: size for name, (size, _) in json.loads(path.read_text()).items()}))
  (records,) = (tmp_path / 'cache').rglob('*train.array_record*')
  _flip(records, 80)
  shutil.rmtree(made.dir)
  with pytest.warns(InputWarning, match=r'train.array_record.*damaged'):
    assert load().hash == made.hash


def test_nothing_is_printed(tmp_path, capfd):
  list(sources.open_splits(sources.Config(**put_ptb(tmp_path / 'in'), cache_dir=str(tmp_path / 'c')))['train'])
  out, err = capfd.readouterr()
  assert out == '' and err == ''


@pytest.mark.parametrize('number', [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_full_or_read_only_disks_are_input_errors(number, tmp_path):
  def make(directory):
    raise OSError(number, os.strerror(number))

  with pytest.raises(InputError, match='LMX_CACHE'):
    cache.build(str(tmp_path / 'x' / 'y'), make)
  assert list((tmp_path / 'x').iterdir()) == []


def test_benchmark_reports_the_faster_process(tmp_path):
  target = tmp_path / 'x'

  def make(directory):
    (tmp_path / 'x').mkdir()
    (tmp_path / 'x' / 'theirs').write_text('1')

  assert not cache.build(str(target), make)
  assert [p.name for p in tmp_path.iterdir()] == ['x'] and (target / 'theirs').exists()
  assert not cache.build(str(target), lambda directory: pytest.fail('built twice'))


def test_cache_directory_is_chosen(monkeypatch, tmp_path):
  monkeypatch.setenv('LMX_CACHE', str(tmp_path))
  assert cache.root() == str(tmp_path) and cache.root('/elsewhere') == '/elsewhere'
  monkeypatch.delenv('LMX_CACHE')
  assert cache.root() == os.path.expanduser('~/.cache/lmx')


def test_lm1b_files_train_on_all_files_and_test_on_the_first_held_out(tmp_path):
  train = tmp_path / 'in' / 'training-monolingual.tokenized.shuffled'
  held_out = tmp_path / 'in' / 'heldout-monolingual.tokenized.shuffled'
  train.mkdir(parents=True)
  held_out.mkdir()
  for n in (2, 1):
    (train / f'news.en-0000{n}-of-00100').write_text(f'{n} .\n')
  for n in range(3):
    (held_out / f'news.en.heldout-0000{n}-of-00050').write_text(f'held out {n}\n')
  source = sources.Config(dataset='lm1b_files', manual_dir=str(tmp_path / 'in'), cache_dir=str(tmp_path / 'cache'))
  with pytest.raises(InputError, match='does not hold news.en-00003-of-00100'):
    sources.open_splits(source)
  source = dataclasses.replace(source, check_sizes=False)
  (train / '._news.en-00001-of-00100').write_text('hidden\n')
  (train / 'news.en-00001-of-00100.bak').write_text('old\n')
  splits = sources.open_splits(source)
  assert {name: [text for _, text, _ in split] for name, split in splits.items()} == {
    'train': ['1 .\n2 .\n'],
    'valid': ['held out 1\n'],
    'test': ['held out 0\n'],
  }
  before = source.identity()
  (train / 'news.en-00002-of-00100').write_text('changed\n')
  assert source.identity() != before
