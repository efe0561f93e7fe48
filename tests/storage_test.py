"""A work directory on a bucket has the files of one on a disk; the bucket is one in memory."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess

import pytest
from etils import epath

from lmx import storage
from lmx.data.tokenizers import build
from lmx.errors import InputError
from lmx.interop.huggingface import folder as hf_folder
from lmx.reporting import run_log


def session(workdir, steps, start=0):
  with run_log.Logger(workdir, 10, start_step=start, tokens_per_step=8, every=1, terminal=False) as logger:
    for step in range(start + 1, steps + 1):
      logger.train(step, {'loss': 1.0 / step})
      logger.flush()
    logger.samples(f'sample of {steps}')
    logger.mirror.send()
    sent = logger.mirror.local
    if not start:
      logger.plot({})
    logger.results({'loss': 0.5, 'split': 'test'})
  return sent


def names(directory):
  return {path.name for path in directory.iterdir()}


def test_log_continues_in_a_bucket_as_on_a_disk(bucket, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for workdir in (bucket, tmp_path / 'disk'):
    local = session(workdir, 6)
    session(workdir, 9, start=4)  # what was logged after step 4 is dropped
    assert local.exists() == (workdir is not bucket)
  assert names(bucket) == names(tmp_path / 'disk') >= {'metrics.jsonl', 'samples.txt', 'results.json', 'loss.png'}
  assert list(tmp_path.iterdir()) == [tmp_path / 'disk']  # no directory 'gs:'
  for workdir in (bucket, tmp_path / 'disk'):
    records = [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]
    assert [record['step'] for record in records] == list(range(1, 10))
    assert (workdir / 'samples.txt').read_text() == '=== step 9 ===\nsample of 9\n\n'
    assert json.loads((workdir / 'results.json').read_text())['loss'] == 0.5


def test_results_are_uploaded_last(bucket, monkeypatch):
  sent = []
  monkeypatch.setattr(storage, 'copy', lambda path, to: sent.append(path.name))
  session(bucket, 2)
  before = sent[: sent.index('results.json')]
  assert {'metrics.jsonl', 'samples.txt', 'loss.png'} < set(before)


def test_only_changed_files_are_uploaded(bucket, monkeypatch):
  sent = []
  monkeypatch.setattr(storage, 'copy', lambda path, to: sent.append(path.name))
  kept = storage.Mirror(bucket)
  for text, wanted in (('a', ['x']), ('a', []), ('ab', ['x'])):
    if not sent or text != 'a':
      (kept.local / 'x').write_text(text)
    before = len(sent)
    kept.send()
    assert sent[before:] == wanted
  kept.close()
  assert not kept.local.exists()


def test_tokenizer_comes_back_from_a_bucket(bucket):
  tokenizer = build.train('words', ['the cat saw the dog'])
  storage.write_directory(bucket / 'tokenizer', tokenizer.save)
  again = build.load(storage.local_copy(bucket / 'tokenizer'))
  assert again.hash == tokenizer.hash


def test_local_directory_is_used_directly(tmp_path):
  kept = storage.Mirror(tmp_path)
  assert kept.local == pathlib.Path(tmp_path)
  (tmp_path / 'x').write_text('1')
  kept.close()
  assert (tmp_path / 'x').exists() and storage.local_copy(epath.Path(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize(
  ('path', 'message'),
  [
    ('a\0b', 'got a zero byte'),
    ('s3://b/x', 'expected a local path or gs://BUCKET/PATH'),
    ('foo://x', 'expected a local path or gs://BUCKET/PATH'),
    ('~no_such_user/x', 'expected a user of this machine'),
    ('x' * 256, 'names of at most 255 bytes'),
    ('x/' * 2500, 'a path of at most 4095'),
    ('', 'got no path; expected one'),
    ('file', 'got file, a file; expected a folder'),
    ('file/below', 'a part of it is a file'),
    ('loop/x', 'cannot be read .Too many levels of symbolic links'),
    ('\ud800', 'expected a name in UTF-8'),
    ('\udcff/x', 'expected a name in UTF-8'),
    ('**', r'expected a name without \*\*'),
    ('hub:', r'write ./hub:... for a folder'),
    ('hub:a/b', r'write ./hub:... for a folder'),
    ('gs:/b/x', r'expected a path or gs://BUCKET/PATH'),
    ('S3:/b', r'expected a path or gs://BUCKET/PATH'),
  ],
)
def test_paths_that_cannot_be_used_name_the_option(path, message, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'file').write_text('')
  (tmp_path / 'loop').symlink_to('loop')
  with pytest.raises(InputError, match=f'^--workdir: .*{message}'):
    storage.path('--workdir', path, storage.FOLDER)


def test_file_and_folder_are_distinguished(tmp_path):
  assert storage.path('--workdir', tmp_path, storage.FOLDER) == epath.Path(tmp_path)
  with pytest.raises(InputError, match=f'^--output: got {tmp_path}, a folder'):
    storage.path('--output', tmp_path, storage.FILE)


def test_tilde_is_the_home_directory(monkeypatch, tmp_path):
  monkeypatch.setenv('HOME', str(tmp_path))
  assert storage.check_path('x', '~/run') == f'{tmp_path}/run' and storage.check_path('x', './~/run') == './~/run'


def test_bucket_without_its_library_names_the_extra(monkeypatch):
  import fsspec

  def missing(name):
    raise ImportError(name)

  monkeypatch.setattr(fsspec, 'get_filesystem_class', missing)
  with pytest.raises(InputError, match='--to: got gs://b/x'):
    storage.check_path('--to', 'gs://b/x')


def test_parts_of_killed_processes_are_removed_by_the_next(tmp_path):
  ended = subprocess.Popen(['true'])
  ended.wait()
  here, parent = socket.gethostname(), os.getppid()
  left = [f'out.part-{here}-{ended.pid}', f'out.part-{here}-{os.getpid()}', f'out.part{ended.pid}']
  stay = [
    f'out.part-{here}-{parent}',
    f'out.part-other-{ended.pid}',
    f'out.part{parent}',
    f'in.part{ended.pid}',
    'out.part',
  ]
  young = f'out.part{ended.pid}0'
  for name in (*left, *stay, young):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'weights').write_text('')
    os.utime(tmp_path / name, (1e9, 1e9) if name != young else None)
  with hf_folder.whole(tmp_path / 'out') as part:
    assert names(tmp_path) == {*stay, young, part.name} and part.name == f'out.part-{here}-{os.getpid()}'
  assert names(tmp_path) == {*stay, young, 'out'}


def test_published_weights_are_named_where_they_are_read():
  assert storage.check_path('--from', 'hub:gpt2', hub=True) == 'hub:gpt2'
