"""The files that identify a run: every damage of them is named, whichever command reads them."""

from __future__ import annotations

import json

import pytest

from lmx import train
from lmx.cli import describe
from lmx.config import resolve, run_files
from lmx.data import corpus
from lmx.data.tokenizers import build
from lmx.errors import InputError, InputWarning
from lmx.runs import restore, work_directory

SMALL = {'model': {'name': 'rnn_lm', 'variant': 'tiny'}, 'train': {'steps': 1}}


@pytest.fixture
def run(tmp_path):
  data = corpus.Corpus.from_texts({'train': ['a b c the']}, build.train('words', ['a b c the']))
  full = resolve.resolve(SMALL)
  run_files.write(tmp_path, full.to_dict(), {'hash': data.hash, **data.manifest}, data.tokenizer)
  return tmp_path


def test_json_values_survive_writing(run):
  assert run_files.read_config(run) == json.loads(json.dumps(resolve.resolve(SMALL).to_dict()))
  assert run_files.read_tokenizer(run).hash == run_files.read_data(run)['tokenizer']['hash']
  (run / 'checksums.json').unlink()  # as an earlier lmx left it
  assert run_files.read_tokenizer(run).hash == run_files.read_data(run)['tokenizer']['hash']


CONTENTS = {
  'not UTF-8': b'{"name": "\xff"}',
  'a list': b'[1]',
  'null': b'null',
  'empty': b'',
  'half': b'{"name": ',
}


@pytest.mark.parametrize('content', CONTENTS)
@pytest.mark.parametrize('summed', [True, False])
def test_malformed_config_is_reported(run, content, summed):
  if not summed:
    (run / 'checksums.json').unlink()
  (run / 'config.json').write_bytes(CONTENTS[content])
  for read in (restore.load, describe._run, lambda run: work_directory.resume_config(resolve.resolve(SMALL), run)):
    with pytest.raises(InputError, match='config.json'):
      read(run)


OBJECTS = {
  'an empty object': ({}, 'no field "hash"'),
  'no hash': ({'label_names': []}, 'no field "hash"'),
  'another hash': ({'hash': 3}, 'hash: got 3'),
  'an empty hash': ({'hash': ''}, 'no field "imported_from"'),
  'a hash alone': ({'hash': '0' * 64}, 'got content that differs from its "hash"'),
  'no tokenizer': ({'hash': corpus.manifest_hash({})}, 'no field "tokenizer"'),
}


@pytest.mark.parametrize('content', OBJECTS)
def test_unverified_tokenizer_is_not_read(run, content):
  (run / 'checksums.json').unlink()
  written, message = OBJECTS[content]
  (run / 'data.json').write_text(json.dumps(written))
  with pytest.raises(InputError, match=f'data.json: {message}'):
    run_files.read_tokenizer(run)


def test_unverified_files_of_an_imported_run_are_reported(run, recwarn):
  record = {'hash': '', 'imported_from': 'folder', 'label_names': []}
  imported = run / 'imported'
  run_files.write(imported, run_files.read_config(run), record, run_files.read_tokenizer(run))
  run_files.read_tokenizer(imported)
  assert not recwarn.list
  (imported / 'checksums.json').unlink()
  with pytest.warns(InputWarning, match='vocabulary.json: not verified'):
    run_files.read_tokenizer(imported)


def test_earlier_run_gets_checksums_when_resumed(run):
  made = corpus.Corpus.from_texts({'train': ['a b c the']}, build.train('words', ['a b c the']))
  before = json.loads((run / 'checksums.json').read_text())
  del before['run']  # the name that its checkpoints would have
  (run / 'checksums.json').unlink()
  full = resolve.resolve(SMALL)
  work_directory.check(run, full, made)
  work_directory.create(run, full, made)
  assert json.loads((run / 'checksums.json').read_text()) == before and not list(run.glob('*.part'))
  (run / 'data.json').write_text('{}')
  with pytest.raises(InputError, match='data.json: got content'):
    run_files.read_tokenizer(run)


@pytest.mark.parametrize('content', [*CONTENTS, 'no hash'])
def test_malformed_data_record_is_reported(run, content):
  (run / 'checksums.json').unlink()
  (run / 'data.json').write_bytes(CONTENTS.get(content, b'{"label_names": []}'))
  for read in (run_files.read_data, run_files.read_labels, run_files.read_tokenizer):
    with pytest.raises(InputError, match='data.json'):
      read(run)


@pytest.mark.parametrize(
  'name, read',
  [
    ('config.json', run_files.read_config),
    ('data.json', run_files.read_data),
    ('tokenizer/vocabulary.json', run_files.read_tokenizer),
  ],
)
def test_one_flipped_bit_is_reported(run, name, read):
  content = (run / name).read_text()
  old = {'config.json': '"steps": 1', 'data.json': '"words"', 'tokenizer/vocabulary.json': '"the"'}[name]
  assert old in content
  (run / name).write_text(content.replace(old, old[:-2] + chr(ord(old[-2]) ^ 1) + old[-1]))
  with pytest.raises(InputError, match=f'{name}: got content'):
    read(run)
  (run / 'checksums.json').unlink()
  if name == 'config.json':
    return  # of an earlier lmx: nothing to compare it with
  with pytest.raises(InputError, match=f'{name}: got .*restore'):
    read(run)


@pytest.mark.parametrize(
  'overrides',
  [
    ['model=1'],
    ['model.variant=0'],
    ['model.variant=[1]'],
    ['data=x'],
    ['optim=[1]'],
    ['seed=10'.ljust(27, '0')],
    ['seed=-1'],
    ['seed=4294967296'],
    ['train.steps=1e400'],
    ['optim.lr=1e999'],
    ['data.length=9999999999'],
    ['train.epochs=1e300'],
    ['train.eval_every=-5'],
    ['samples.temperature=1e-300'],
    ['data.batch_size=2000000000'],
    ['seed=nan'],
    ['model.D={1}'],
    ['evaluation.model={1: 2}'],
    ['model.N=1000000000'],
    ['objective=3'],
    ['data.batching=3'],
  ],
)
def test_overrides_of_another_type_or_out_of_range_are_input_errors(overrides):
  with pytest.raises(InputError, match=overrides[0].split('=')[0].split('.')[-1]):
    resolve.to_run(resolve.resolve(SMALL, overrides))


def test_work_directory_must_not_be_a_file(tmp_path):
  (tmp_path / 'file').write_text('x')
  for read in (restore.load, lambda run: train.train(resolve.resolve(SMALL), run)):
    with pytest.raises(InputError, match=f'--workdir: got {tmp_path}/file, a file'):
      read(tmp_path / 'file')
