"""Token caches in a bucket: written once, read by ranges, shared part by part."""

import dataclasses
import errno
import gzip
import importlib.util
import json
import os
import subprocess
import sys

import fsspec
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from etils import epath

from lmx import storage
from lmx.data import batching, corpus, pipeline, shared, sources, text_files, token_file, worker
from lmx.data import bucket as buckets
from lmx.errors import InputError
from tests.data import shared_test
from tests.data.text_files_test import made_up


@pytest.fixture
def cfg(tmp_path, bucket, monkeypatch):
  (tmp_path / 'in').mkdir()
  (tmp_path / 'in' / 'a.txt').write_text('\n\n'.join(made_up(0, 300)))
  monkeypatch.setenv('LMX_CACHE', str(tmp_path / 'one'))
  return pipeline.Config(
    dataset='text_files',
    manual_dir=str(tmp_path / 'in'),
    cache_dir='gs://b/cache',
    tokenizer='bytes',
    batching='packed',
    batch_size=4,
    length=50,
  )


def test_corpus_of_a_bucket_has_the_batches_of_the_local_one(cfg, tmp_path, monkeypatch):
  made = pipeline.load(cfg)
  name = os.path.basename(made.dir)
  assert (epath.Path('gs://b/cache/tokens') / name / 'manifest.json').exists()
  monkeypatch.setenv('LMX_CACHE', str(tmp_path / 'two'))
  monkeypatch.setattr(buckets, '_BLOCK', 1024)
  monkeypatch.setattr(buckets, '_HELD', 3)
  read = pipeline.load(cfg)
  assert read.hash == made.hash and read.dir != made.dir
  assert not [file for file in os.listdir(read.dir) if file.endswith('.tokens')]
  for split in ('train', 'valid'):
    ours, theirs = (pipeline.batches(cfg, one, split, 0, train=True) for one in (read, made))
    for step in range(3):
      for key, x in theirs(step).items():
        np.testing.assert_array_equal(ours(step)[key], x)
  ids = read.splits['train'].tokens._ids
  assert isinstance(ids, buckets.Ids) and len(ids._blocks) <= 3


def blocks_read(corpus):
  """Return how many blocks of the training split this host has read, and how many it has."""
  there = np.fromfile(os.path.join(corpus.dir, 'train.tokens.read.blocks'), np.uint8)
  return int(there.sum()), len(there)


@pytest.mark.parametrize('row_parts', [True, False])
def test_host_reads_the_blocks_of_its_rows_once(cfg, tmp_path, monkeypatch, row_parts):
  cfg = dataclasses.replace(cfg, batching=batching.config('windows'), row_parts=row_parts)
  pipeline.load(cfg)
  monkeypatch.setattr(buckets, '_BLOCK', 256)
  monkeypatch.setattr(buckets, '_HELD', 2)
  monkeypatch.setattr(token_file.TokenFile, '_verify', lambda *args: None)  # of blocks of another size
  for host, rows in (('two', slice(0, 2)), ('three', slice(2, 4))):
    monkeypatch.setenv('LMX_CACHE', str(tmp_path / host))
    read = pipeline.load(cfg)
    batches = pipeline.batches(cfg, read, 'train', 0, train=True)
    first = [batches(step, rows)['tokens_BT'] for step in range(batches.steps)]
    count, total = blocks_read(read)
    assert total > 50 and (abs(count - total / 2) <= 4 if row_parts else count > 0.8 * total)
    monkeypatch.setattr(buckets.Ids, '_download', lambda *args: pytest.fail('read again'))
    again = pipeline.batches(cfg, pipeline.load(cfg), 'train', 0, train=True)  # after a restart
    np.testing.assert_array_equal(first, [again(step, rows)['tokens_BT'] for step in range(again.steps)])
    monkeypatch.undo()
    monkeypatch.setattr(buckets, '_BLOCK', 256)
    monkeypatch.setattr(token_file.TokenFile, '_verify', lambda *args: None)


def test_full_disk_keeps_blocks_in_memory(tmp_path, monkeypatch):
  x = np.arange(1000, dtype=np.uint16)
  (tmp_path / 'x').write_bytes(x.tobytes())
  monkeypatch.setattr(buckets, '_BLOCK', 64)

  def put(self, number, block):
    raise OSError(errno.ENOSPC, 'no space')

  monkeypatch.setattr(buckets._Held, 'put', put)
  ids = buckets.Ids(epath.Path(tmp_path / 'x'), x.dtype, 2000, str(tmp_path / 'held'))
  np.testing.assert_array_equal(ids[100:900], x[100:900])
  assert ids._held is None and len(ids._blocks) <= buckets._HELD
  missing = buckets.Ids(epath.Path(tmp_path / 'x'), x.dtype, 2000, str(tmp_path / 'absent/held'))
  np.testing.assert_array_equal(missing[100:900], x[100:900])


def test_texts_of_a_bucket_are_those_of_local_files(tmp_path, bucket, monkeypatch):
  monkeypatch.setenv('LMX_CACHE', str(tmp_path / 'cache'))
  texts, local = made_up(0, 120), tmp_path / 'in'
  (local / 'valid').mkdir(parents=True)
  (local / 'a2.txt').write_text('\n\n'.join(texts[:40]))
  (local / 'a10.jsonl.gz').write_bytes(
    gzip.compress(b''.join(b'%s\n' % json.dumps({'text': t}).encode() for t in texts))
  )
  pyarrow.parquet.write_table(pyarrow.table({'text': texts[40:80]}), local / 'b.parquet', row_group_size=10)
  (local / 'valid' / 'c.txt').write_text('\n\n'.join(texts[80:]))
  (local / '.hidden.txt').write_text('x')
  for path in [path for path in local.rglob('*') if path.is_file()]:
    (epath.Path('gs://b/in') / path.relative_to(local).as_posix()).write_bytes(path.read_bytes())
  for pattern in ('{}', '{}/*.txt', '{}/b.parquet,{}/a2.txt'):
    corpora = []
    for folder in (str(local), 'gs://b/in'):
      data = pipeline.Config(dataset='text_files', manual_dir=pattern.format(folder, folder), tokenizer='bytes')
      corpora.append(pipeline.load(data))
    here, there = corpora
    assert here.hash == there.hash, pattern  # of names and contents; Cloud Storage's own checksums would differ
  with pytest.raises(InputError, match='gs://b/none: got no text file'):
    pipeline.load(pipeline.Config(dataset='text_files', manual_dir='gs://b/none'))
  with pytest.raises(InputError, match='data.manual_dir: got gs://b/in with data set wikitext103'):
    pipeline.Config(dataset='wikitext103', manual_dir='gs://b/in')


def test_object_with_a_checksum_is_not_read_for_its_digest(bucket, monkeypatch):
  path = bucket / 'a.txt'
  path.write_bytes(b'text')
  assert storage.checksum(str(path)) == ''
  monkeypatch.setattr(fsspec.filesystem('gcs'), 'info', lambda path: {'crc32c': 'yZRlqg=='}, raising=False)
  monkeypatch.setattr(storage, 'open_file', lambda path: pytest.fail('read'))
  assert sources._digest(str(path)) == ['a.txt', 'crc32c:yZRlqg==']


@pytest.mark.skipif(importlib.util.find_spec('gcsfs') is not None, reason='checks the message without gcsfs')
def test_folder_stands_in_for_a_bucket(root, tmp_path):
  (tmp_path / 'buckets/b/in').mkdir(parents=True)
  (tmp_path / 'buckets/b/in/a.txt').write_text('\n\n'.join(made_up(0, 300)))
  words = ['prepare', '--config=experiments/gpt2/webtext.py:tiny', '--config.data.dataset=text_files']
  words += [
    '--config.data.manual_dir=gs://b/in',
    '--config.data.cache_dir=gs://b/cache',
    '--config.data.tokenizer=bytes',
  ]
  environment = os.environ | {'PYTHONPATH': str(root), 'LMX_CACHE': str(tmp_path / 'cache')}
  run = lambda **more: subprocess.run(
    [sys.executable, '-m', 'lmx.cli.main', *words], cwd=root, env=environment | more, capture_output=True, text=True
  )
  assert 'LMX_BUCKETS: got ' in run(LMX_BUCKETS=str(tmp_path / 'none')).stderr
  done = run(LMX_BUCKETS=str(tmp_path / 'buckets'))
  assert done.returncode == 0, done.stderr
  assert len([*(tmp_path / 'buckets/b/cache/tokens').glob('*/train.tokens')]) == 1


def test_indexing_matches_numpy(tmp_path, monkeypatch):
  monkeypatch.setattr(buckets, '_BLOCK', 64)
  x = np.arange(1000, dtype=np.uint16)
  path = epath.Path(tmp_path / 'x')
  path.write_bytes(x.tobytes())
  ids = buckets.Ids(path, x.dtype, 2000)
  for index in (
    slice(None),
    slice(5, 5),
    slice(40, 300),
    slice(-7, None),
    slice(900, 10, -3),
    np.array([[3, -1], [999, 0]]),
  ):
    np.testing.assert_array_equal(ids[index], x[index])
  np.testing.assert_array_equal(ids[x % 7 == 0], x[x % 7 == 0])
  assert ids[17] == 17 and ids[np.zeros(0, int)].size == 0
  with pytest.raises(IndexError):
    ids[np.array([1000])]


def test_damaged_object_is_reported(cfg, tmp_path, monkeypatch):
  made = pipeline.load(cfg)
  path = epath.Path('gs://b/cache/tokens') / os.path.basename(made.dir) / 'train.tokens'
  content = bytearray(path.read_bytes())
  content[7] ^= 1
  path.write_bytes(bytes(content))
  monkeypatch.setenv('LMX_CACHE', str(tmp_path / 'two'))
  tokens = corpus.read(corpus.prepare(cfg)).splits['train'].tokens
  with pytest.raises(InputError, match='train.tokens: .*block 0'):
    tokens[:9]


def test_hosts_share_tokenized_parts(cfg, tmp_path, monkeypatch):
  alone = corpus.load(cfg, processes=1).hash
  monkeypatch.setattr(shared, 'PART', 2000)
  monkeypatch.setattr(shared, 'LEAST', 0)
  monkeypatch.setattr(text_files, '_BLOCK', 500)
  epath.Path('gs://b/cache/tokens').rmtree()
  read, made = worker._encode, []
  name = lambda args: (args[1]._name, *args[3])

  def encode(*args):
    if len(made) == 4:
      raise InputError('this host stops')
    made.append(name(args))
    return read(*args)

  monkeypatch.setattr(shared, '_processes', shared_test.run_in_place)
  monkeypatch.setattr(worker, '_encode', encode)
  monkeypatch.setenv('LMX_CACHE', str(tmp_path / 'two'))
  with pytest.raises(InputError, match='this host stops'):
    corpus.load(cfg, processes=2)
  again = []
  monkeypatch.setattr(worker, '_encode', lambda *args: again.append(name(args)) or read(*args))
  monkeypatch.setenv('LMX_CACHE', str(tmp_path / 'three'))
  assert corpus.load(cfg, processes=2).hash == alone
  assert again and not [part for part in again if part in made] and len(made) == 4
  assert not epath.Path('gs://b/cache/parts').exists() or not [*epath.Path('gs://b/cache/parts').iterdir()]
