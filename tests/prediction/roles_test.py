"""Semantic roles predicted from the command line: a sentence with each of its predicates, and inputs that lack one."""

from __future__ import annotations

import json
import re

import pytest

from lmx.cli import main
from lmx.errors import InputError
from lmx.prediction import tagging
from lmx.runs import restore

SENTENCES = [('the', 'cat', 'sold', 'a', 'hat', '.'), ('a', 'man', 'saw', 'the', 'dog', '.')]
TEXT = ''.join(f'{w[0]} - (A0*\n{w[1]} - *)\n{w[2]} do (V*)\n{w[3]} - (A1*\n{w[4]} - *)\n. - *\n\n' for w in SENTENCES)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  folder = tmp_path_factory.mktemp('roles')
  for name in ('train-set', 'dev-set', 'test-wsj', 'test-brown'):
    (folder / name).write_text(TEXT)
  settings = {
    'model.elmo': 'none',
    'model.char_filters': '()',
    'model.mix_l2': 0,
    'model.D': 16,
    'model.dropout': 0.0,
    'data.dataset': 'conll2005',
    'data.manual_dir': folder,
    'data.check_sizes': False,
    'data.batch_size': 2,
    'data.length': 8,
    'data.batching.buckets': '()',
    'data.characters': 0,
    'train.steps': 40,
    'train.eval_every': 40,
    'optim.optimizer': 'adam',
    'optim.lr': 0.05,
    'parallel.data': 1,
  }
  command = ['train', '--config=experiments/srl_lstm/conll2005.py:tiny', f'--workdir={folder}/run']
  assert main.main([*command, *(f'--config.{key}={value}' for key, value in settings.items())]) == 0
  return folder / 'run'


@pytest.fixture(scope='module')
def loaded(run):
  return restore.load(run)


def test_sentence_is_labelled_for_the_predicate_given(run, tmp_path, capsys):
  rows = [{'tokens': SENTENCES[0], 'predicate': 2}, {'tokens': SENTENCES[0], 'predicate': 0}]
  (tmp_path / 'a.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
  capsys.readouterr()
  assert main.main(['predict', f'--workdir={run}', f'--input={tmp_path}/a.jsonl']) == 0
  found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert found[0] == {
    'tokens': list(SENTENCES[0]),
    'predicate': 2,
    'tags': ['B-A0', 'I-A0', 'B-V', 'B-A1', 'I-A1', 'O'],
  }
  assert found[1]['predicate'] == 0 and found[1]['tags'] != found[0]['tags']
  assert main.main(['predict', f'--workdir={run}', '--split=test_brown']) == 0
  out, err = capsys.readouterr()
  assert [json.loads(line)['predicate'] for line in out.splitlines()] == [2, 2]
  assert 'F1 of spans 100.00' in err and '100.00% of 12 words in 2 sentences' in err


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('a.txt', 'the cat\n', 'a.txt, line 1: got no predicate'),
    ('a.jsonl', '{"tokens": ["a"], "predicate": 0}\n{"tokens": ["a"]}\n', 'a.jsonl, line 2: got no predicate'),
    ('a.jsonl', '{"tokens": ["a"], "predicate": 1}\n', 'predicate: got 1'),
    ('a.jsonl', '{"tokens": ["a"], "predicate": "a"}\n', 'line 1: predicate: got "a"'),
    ('a.jsonl', json.dumps({'tokens': ['a'] * 9, 'predicate': 1}), 'line 1: got a sentence of 9 tokens'),
  ],
)
def test_unlabelable_sentences_are_rejected(loaded, tmp_path, name, content, message):
  (tmp_path / name).write_text(content)
  with pytest.raises(InputError, match=re.escape(message)):
    tagging.read_file(loaded, str(tmp_path / name))
