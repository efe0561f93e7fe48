"""Labels of a data set in the numbers of a run."""

from __future__ import annotations

import types

import numpy as np
import pytest

from lmx.config import experiment, resolve
from lmx.data import labels, pipeline
from lmx.data.corpus import Corpus, Split
from lmx.data.tokenizers import build
from lmx.data.tokenizers.base import Absent
from lmx.errors import InputError, InputWarning


def corpus(manifest, splits):
  return Corpus(Absent(1), splits, manifest, '')


def split(labels=None, token_labels=None):
  return Split('train', np.zeros(0, int), np.zeros(1, int), None, labels, {}, token_labels)


def test_label_ids_match_the_run_and_missing_stays_missing():
  manifest = {'dataset': {'name': 'x'}, 'label_names': ['a', 'b', 'c']}
  made = corpus(manifest, {'train': split(np.array([0, 1, 2, -1])), 'test': split()})
  found = labels.renumber(made, ['c', 'a', 'z', 'b'])
  assert found.splits['train'].labels.tolist() == [1, 3, 0, -1] and found.splits['test'].labels is None
  assert labels.label_names(found.manifest) == ['c', 'a', 'z', 'b']
  assert labels.renumber(made, ['a', 'b', 'c']) is made
  with pytest.raises(InputError, match='data set x: got labels c'):
    labels.renumber(made, ['a', 'b'])


def test_tag_labels_match_the_run():
  manifest = {'dataset': {'name': 'x'}, 'label_names': [], 'token_label_names': ['B', 'O']}
  made = corpus(manifest, {'train': split(token_labels=np.array([1, -1, 0]))})
  found = labels.renumber(made, ['O', 'B'])
  assert found.splits['train'].token_labels.tolist() == [0, -1, 1] and found.manifest['label_names'] == []


def test_names_of_labels():
  assert labels.label_names(types.MappingProxyType({'label_names': ['a']})) == ['a']


@pytest.mark.parametrize('kind', ['bpe', 'unigram', 'wordpiece'])
def test_answer_label_is_its_characters(kind):
  tokenizer = build.train(kind, ['the cat sat in'] * 9, vocab_size=600)
  passage = 'the cat 今天在大阪 sat'
  ((_, _, label), _) = labels.TokenSpans([('a', passage, '11:13'), ('b', 'the', '')], tokenizer)
  first, last = map(int, label.split(':'))
  _, spans = tokenizer.encode_spans(passage)
  assert (spans[first][0], spans[last][1]) == (11, 13) and passage[11:13] == '大阪'


def test_labels_unseen_in_training_are_reported_with_counts():
  manifest = {'dataset': {'name': 'x'}, 'label_names': ['a', 'b', 'c']}
  splits = {'train': split(np.array([0, 0, -1])), 'valid': split(np.array([1, 1, 2, 0])), 'test': split(np.array([0]))}
  assert labels.untaught(corpus(manifest, splits)) == ('labels of "valid" that no training example has: b (2), c (1)',)
  assert labels.untaught(corpus(manifest, {**splits, 'train': split(np.array([2, 1, 0]))})) == ()
  assert labels.untaught(corpus({**manifest, 'label_names': []}, splits)) == ()  # scores
  words = {'train': split(token_labels=np.array([1, -1])), 'test': split(token_labels=np.array([0, -1, 1]))}
  found = labels.untaught(corpus({**manifest, 'label_names': [], 'token_label_names': ['B', 'O']}, words))
  assert found == ('labels of "test" that no training example has: B (1)',)


def test_long_list_of_labels_is_abbreviated():
  manifest = {'dataset': {'name': 'x'}, 'label_names': [f'{i:02d}' for i in range(23)]}
  splits = {'train': split(np.array([0])), 'valid': split(np.arange(23))}
  assert labels.untaught(corpus(manifest, splits))[0].endswith('20 (1) and 2 more')


def test_training_examples_of_one_label_are_rejected_with_their_file():
  manifest = {'dataset': {'name': 'x'}, 'label_names': ['a', 'b']}
  splits = {'train': split(np.array([0, 0, -1])), 'valid': split(np.array([0, 1]))}
  with pytest.raises(InputError, match='^DIR/train.csv: got only the label "a"'):
    labels.check_training(corpus(manifest, splits), 'DIR/train.csv')
  with pytest.raises(InputError, match='^DIR/train.csv: got no label'):
    labels.check_training(corpus(manifest, {'train': split(np.array([-1]))}), 'DIR/train.csv')
  labels.check_training(corpus(manifest, {'train': split(np.array([0, 1]))}), 'DIR/train.csv')
  labels.check_training(corpus({**manifest, 'label_names': []}, splits), 'DIR/train.csv')  # scores
  words = {'train': split(token_labels=np.array([1, -1]))}
  with pytest.raises(InputError, match='only the label "O"'):
    labels.check_training(corpus({**manifest, 'token_label_names': ['B', 'O']}, words), 'DIR/train.conllu')


@pytest.mark.parametrize(
  ('now', 'before', 'numbers'),
  [(['False', 'True'], ['false', 'true'], [0, 1, 0]), (['0', '1'], ['1.0', '0.0'], [1, 0, 1])],
)
def test_labels_of_earlier_versions_are_known(now, before, numbers):
  made = corpus({'label_names': now, 'dataset': {'name': 'own'}}, {'train': split(np.asarray([0, 1, 0]))})
  found = labels.renumber(made, before)
  assert found.splits['train'].labels.tolist() == numbers and found.manifest['label_names'] == before


def test_unicode_forms_of_a_label_are_one_class(tmp_path):
  names = ['caf\u00e9', 'cafe\u0301', 'tea', 'Tea'] * 10
  (tmp_path / 'train.csv').write_text('text,label\n' + ''.join(f'a b {i},{name}\n' for i, name in enumerate(names)))
  settings = [
    *('data.dataset=table_files', f'data.manual_dir={tmp_path}', f'data.cache_dir={tmp_path}/cache'),
    *('data.vocab_size=300', 'model.variant=tiny', 'data.split_fraction=0.2', 'data.length=16'),
  ]
  new = resolve.resolve(experiment.read('experiments/bert/tasks.py:own'), settings)
  old = resolve.resolve({**new.to_dict(), 'semantics': {}}, saved=True)
  assert new.semantics.label_forms == 1 and old.data.label_forms == 'as_written'
  with pytest.warns(InputWarning, match='got labels in two Unicode forms'):
    made = pipeline.load(resolve.to_run(new, 300).data)
  before = pipeline.load(resolve.to_run(old, 300).data)  # the same prepared data
  assert made.manifest['label_names'] == ['Tea', 'caf\u00e9', 'tea'] and made.hash != before.hash
  assert before.manifest['label_names'] == ['Tea', 'cafe\u0301', 'caf\u00e9', 'tea']
  counts = lambda made: sum(np.bincount(one.labels[one.labels >= 0], minlength=4) for one in made.splits.values())
  assert counts(made).tolist() == [10, 20, 10, 0] and counts(before).tolist() == [10, 10, 10, 10]
  found = labels.renumber(made, ['tea', 'cafe\u0301', 'Tea'])  # of an earlier version's run with one form
  assert counts(found).tolist() == [10, 20, 10, 0]
  with pytest.raises(InputError, match='data.label_forms: got "as_written"'):
    resolve.to_run(resolve.resolve(new.to_dict(), ['data.dataset=trec', 'data.label_forms=as_written']), 300)
