"""Token caches in a bucket: written once, read by ranges, shared part by part."""

import os

import numpy as np
import pytest
from etils import epath

from lmx.data import bucket as buckets
from lmx.data import corpus, pipeline, shared, text_files, worker
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
  with pytest.raises(InputError, match='train.tokens: .*block 0'):
    corpus.read(corpus.prepare(cfg))


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
