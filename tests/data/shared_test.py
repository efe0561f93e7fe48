"""Tokenization shared by processes: the corpus of one, whoever tokenized which part, and whenever it stopped."""

import contextlib
import errno
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from lmx.data import corpus, shared, sources, text_files, worker
from lmx.errors import InputError
from tests.data.text_files_test import made_up

TOKENIZERS = {
  'bpe': {'vocab_size': 300},
  'words': {},
  'bytes': {},
  'wordpiece': {'vocab_size': 200},
  'unigram': {'vocab_size': 500},
}


@pytest.fixture
def small_parts(monkeypatch):
  """Parts of 2 KB, of any corpus, each tokenized in this process."""
  monkeypatch.setattr(shared, 'PART', 2000)
  monkeypatch.setattr(shared, 'LEAST', 0)
  monkeypatch.setattr(text_files, '_BLOCK', 500)
  monkeypatch.setattr(shared, '_processes', run_in_place)


class _Ended:
  def poll(self):
    return 0

  wait = poll


def run_in_place(directory, count, *words, **variables):
  """Do in this process what `shared._processes` starts others for."""
  worker.make_tokenizer(directory, *words) if words else worker.work(directory)
  return contextlib.nullcontext([_Ended()] * count)


def write(folder: pathlib.Path, kind: str) -> pathlib.Path:
  folder.mkdir()
  if kind == 'documents':
    (folder / 'a.txt').write_text('\n\n'.join(made_up(0, 300)))
  elif kind == 'long':
    wrapped = ' '.join(made_up(2, 60)).replace('.', '').replace('!', '').replace(' cat', '\n  cat')
    (folder / 'train.txt').write_text('\n\n'.join([made_up(1, 1, 400)[0], wrapped, *made_up(3, 5)]))
    (folder / 'valid.txt').write_text('one\n')
  else:
    (folder / 'ptb.train.txt').write_text('\n'.join(' '.join(made_up(4, 200)).split('.')))
    for split in ('valid', 'test'):
      (folder / f'ptb.{split}.txt').write_text('a cat\nthe dog\n')
  return folder


def config(folder: pathlib.Path, cache: pathlib.Path, tokenizer: str = 'bpe', **options) -> corpus.Config:
  given = {'dataset': 'text_files', 'hold_out_test': False, **TOKENIZERS[tokenizer], **options}
  return corpus.Config(manual_dir=str(folder), cache_dir=str(cache), tokenizer=tokenizer, **given)


@pytest.mark.parametrize('tokenizer', TOKENIZERS)
@pytest.mark.parametrize('kind', ['documents', 'long'])
def test_corpus_does_not_depend_on_the_parts(kind, tokenizer, tmp_path, small_parts):
  folder = write(tmp_path / 'in', kind)
  alone = corpus.load(config(folder, tmp_path / 'alone', tokenizer), processes=1)
  together = corpus.load(config(folder, tmp_path / 'shared', tokenizer), processes=2)
  for name, split in alone.splits.items():
    for field in ('tokens', 'offsets', 'sentences'):
      if getattr(split, field) is not None:
        np.testing.assert_array_equal(
          np.asarray(getattr(together.splits[name], field)), np.asarray(getattr(split, field))
        )
  assert together.hash == alone.hash
  assert os.listdir(tmp_path / 'shared' / 'tokens') == os.listdir(tmp_path / 'alone' / 'tokens')


@pytest.mark.parametrize('words', [40, 333, 1111])
@pytest.mark.parametrize('kind', ['documents', 'long'])
def test_word_budget_does_not_depend_on_the_parts(kind, words, tmp_path, small_parts):
  folder = write(tmp_path / 'in', kind)
  alone = corpus.load(config(folder, tmp_path / 'alone', words=words), processes=1)
  together = corpus.load(config(folder, tmp_path / 'shared', words=words), processes=2)
  assert together.hash == alone.hash and together.splits['train'].counts['words'] == words
  with pytest.raises(InputError, match='data.words: got 1,000,000; expected at most [0-9,]+, the words'):
    corpus.load(config(folder, tmp_path / 'shared', 'bytes', words=1_000_000), processes=2)


def test_prepared_records_are_shared_too(tmp_path, small_parts, monkeypatch):
  folder = write(tmp_path / 'in', 'stream')
  monkeypatch.setattr('lmx.data.builders.streams.EXAMPLE_SIZE', 700)
  options = {'dataset': 'ptb', 'check_sizes': False, 'hold_out_test': True, 'vocab_size': 0}
  alone = corpus.load(config(folder, tmp_path / 'alone', 'words', **options), processes=1)
  plans = []
  plan = shared.Shared._plan
  monkeypatch.setattr(shared.Shared, '_plan', lambda *args: plans.append(plan(*args)) or plans[-1])
  together = corpus.load(config(folder, tmp_path / 'shared', 'words', **options), processes=2)
  assert together.hash == alone.hash and len(plans[0]) > 6 and len(together.splits['train'].offsets) == 2


def test_bad_part_is_an_input_error_and_others_are_kept(tmp_path, small_parts, monkeypatch):
  folder = write(tmp_path / 'in', 'documents')
  (folder / 'b.jsonl').write_text('{"text": "fine"}\n')
  cfg = config(folder, tmp_path / 'cache', split_fraction=0.0)
  read = worker._encode
  reads = []

  def fault(cfg, writer, examples, part, tokenizer):
    reads.append(part)
    if len(reads) == 3:
      raise InputError('a.txt, line 7: not UTF-8')
    return read(cfg, writer, examples, part, tokenizer)

  monkeypatch.setattr(worker, '_encode', fault)
  with pytest.raises(InputError, match='a.txt, line 7'):
    corpus.load(cfg, processes=2)
  (parts,) = (tmp_path / 'cache' / 'tokens').glob('.parts-*')
  assert len([*parts.glob('*.npz')]) == 2 and not [*parts.glob('*.claim')]
  count = sum(len(one.parts(shared.PART, 'before')) for one in sources.open_splits(cfg).values())
  resumed = corpus.load(cfg, processes=2)
  assert len(reads) == 3 + count - 2 and count > 5 and not parts.exists()
  assert resumed.hash == corpus.load(config(folder, tmp_path / 'alone', split_fraction=0.0), processes=1).hash


def test_vocabulary_is_learned_by_a_process_whose_errors_are_shown(tmp_path, monkeypatch):
  monkeypatch.setattr(shared, 'LEAST', 0)
  folder = write(tmp_path / 'in', 'documents')
  started = []
  processes = shared._processes

  def count(*args, **variables):
    started.append(args[2:])
    return processes(*args, **variables)

  monkeypatch.setattr(shared, '_processes', count)
  monkeypatch.setattr(corpus.build, 'train', lambda *args, **options: pytest.fail('learned in this process'))
  (folder / 'a.txt').write_bytes(b'\xff\xfe\xfd' * 3)
  with pytest.raises(InputError, match='UTF-8'):
    corpus.load(config(folder, tmp_path / 'cache', split_fraction=0.0), processes=2)
  (folder / 'a.txt').write_text('a cat\n\nthe dog\n')
  together = corpus.load(config(folder, tmp_path / 'cache', split_fraction=0.0), processes=2)
  monkeypatch.undo()
  assert together.hash == corpus.load(config(folder, tmp_path / 'alone', split_fraction=0.0), processes=1).hash
  assert [len(words) for words in started] == [1, 1, 0]


@pytest.mark.parametrize('during', ['vocabulary', 'parts'])
def test_killed_process_is_named_and_the_next_call_continues(during, tmp_path, small_parts, monkeypatch):
  folder = write(tmp_path / 'in', 'documents')
  cfg = config(folder, tmp_path / 'cache')

  def killed(directory, count, *words, **variables):
    if bool(words) != (during == 'vocabulary'):
      return run_in_place(directory, count, *words)
    return contextlib.nullcontext([subprocess.Popen(['sh', '-c', 'kill -KILL $$'])])

  with monkeypatch.context() as patch:
    patch.setattr(shared, '_processes', killed)
    with pytest.raises(InputError, match='ended by SIGKILL, .* memory is full'):
      corpus.load(cfg, processes=2)
  alone = corpus.load(config(folder, tmp_path / 'alone'), processes=1)
  assert corpus.load(cfg, processes=2).hash == alone.hash


@pytest.mark.parametrize(
  ('error', 'message'),
  [
    (MemoryError(), 'out of memory'),
    (OSError(errno.ENOSPC, 'No space left on device'), 'No space left on device'),
  ],
)
def test_process_without_memory_or_disk_is_reported(error, message, tmp_path, small_parts, monkeypatch):
  def fail(*_):
    raise error

  monkeypatch.setattr(shared, '_processes', lambda directory, *_, **__: run_main(directory))
  monkeypatch.setattr(worker, 'make_tokenizer', fail)
  with pytest.raises(InputError, match=message):
    corpus.load(config(write(tmp_path / 'in', 'documents'), tmp_path / 'cache'), processes=2)


def run_main(directory):
  assert worker.main(directory, os.getppid(), 'tokenizer') == 2
  return contextlib.nullcontext([_Ended()])


def test_claim_belongs_to_one_process_until_it_ends(tmp_path):
  path = str(tmp_path / 'x.claim')
  first = shared.claim(path)
  assert first and shared.claim(path) is None
  with first:
    pass
  assert not os.path.exists(path)
  for content, age, free in (
    (f'{os.uname().nodename} 999999999', 0, True),
    ('elsewhere 1', 0, False),
    ('elsewhere 1', 61, True),
  ):
    pathlib.Path(path).write_text(content)
    os.utime(path, (time.time() - age,) * 2)
    taken = shared.claim(path)
    assert bool(taken) == free
    if taken:
      with taken:
        assert os.uname().nodename in pathlib.Path(path).read_text()


PREPARE = (
  'import sys\n'
  'from lmx.data import corpus, shared\n'
  'shared.PART, shared.LEAST = 60_000, 0\n'
  'cfg = corpus.Config(dataset="text_files", manual_dir=sys.argv[1], cache_dir=sys.argv[2], tokenizer="bytes")\n'
  'print(corpus.load(cfg, processes=2).hash)\n'
)


@pytest.mark.slow
def test_killed_preparations_and_two_at_once_make_the_same_corpus(tmp_path):
  draw = random.Random(0)
  write(tmp_path / 'in', 'documents')
  (tmp_path / 'in' / 'a.txt').write_text('\n\n'.join(made_up(0, 40_000)))
  cfg = corpus.Config(
    dataset='text_files', manual_dir=str(tmp_path / 'in'), cache_dir=str(tmp_path / 'a'), tokenizer='bytes'
  )
  expected = corpus.load(cfg, processes=1).hash
  command = [sys.executable, '-c', PREPARE, str(tmp_path / 'in')]
  for attempt in range(8):
    running = subprocess.Popen([*command, str(tmp_path / 'b')])
    time.sleep(draw.uniform(0.5, 6))
    running.send_signal(signal.SIGKILL if attempt % 2 else signal.SIGTERM)
    running.wait()
  both = [subprocess.Popen([*command, str(tmp_path / 'b')], stdout=subprocess.PIPE, text=True) for _ in range(2)]
  assert {process.communicate()[0].strip() for process in both} == {expected}
  assert len(os.listdir(tmp_path / 'b' / 'tokens')) == 1
