"""CoNLL-2005 and CoNLL-2012: columns of brackets to labels and predicates, layouts of files, and malformed files."""

from __future__ import annotations

import gzip
import re

import numpy as np
import pytest

from lmx.data import corpus, pipeline
from lmx.data.batching import tagged
from lmx.data.builders import generated, propositions
from lmx.errors import InputError

# Two verbs, one of two words whose second is the target; a sentence without a verb; a pound sign, which is no comment.
SENTENCES = """\
The    DT (S(NP*  *    -  -     (A0*  *
cat    NN *)      *    -  -     *)    *
rubber NN (VP*    *    -  -     (V*   *
stamps VB *       *    01 stamp *)    *
#      #  *       *    -  -     (A1*  (A1*
5      CD *       *    -  -     *)    *)
sold   VB *))     *    02 sell  *     (V*)

Yes    UH (S*)    *    -  -
\x20
# # (S* * - - (A1*)
fell VB *) * 01 fall (V*)
"""
ROWS = [
  (3, 'The cat rubber stamps # 5 sold', 'B-A0 I-A0 B-V I-V B-A1 I-A1 O'),
  (6, 'The cat rubber stamps # 5 sold', 'O O O O B-A1 I-A1 B-V'),
  (1, '# fell', 'B-A1 B-V'),
]
NAMES_2005 = ('train-set', 'dev-set', 'test-wsj', 'test-brown')


def columns(text, *kept):
  """A text with some of its first six columns, and the roles."""
  lines = [line.split() for line in text.splitlines()]
  return ''.join(' '.join([*(cells[i] for i in kept if cells), *cells[6:]]) + '\n' for cells in lines)


def gold(text, document='bn/a'):
  """Sentences of CoNLL-2005 as a file of CoNLL-2012."""
  lines = [f'#begin document ({document}); part 000\n']
  for i, line in enumerate(text.splitlines()):
    cells = line.split()
    lines.append(
      ' '.join([document, '0', str(i), cells[0], cells[1], '*', cells[5], '01', '-', '-', '*', *cells[6:], '-'])
      if cells
      else ''
    )
    lines.append('\n')
  return ''.join([*lines, '#end document\n'])


def load(directory, name, **options):
  cache = str(directory.parent / f'{directory.name}-cache')
  return corpus.load(
    corpus.Config(dataset=name, manual_dir=str(directory), cache_dir=cache, check_sizes=False, **options)
  )


def rows_of(made, split):
  """(index of the predicate, words, labels) of each row of a split."""
  part, names = made.splits[split], made.manifest['token_label_names']
  spans = list(zip(part.offsets[:-1], part.offsets[1:], strict=True))
  return [
    (
      int(predicate),
      ' '.join(made.tokenizer.ids_to_tokens(part.tokens[begin:end])),
      ' '.join(names[i] for i in part.token_labels[begin:end]),
    )
    for predicate, (begin, end) in zip(part.labels, spans, strict=True)
  ]


@pytest.mark.parametrize('kept', [(0, 1, 2, 3, 4, 5), (0, 1, 5), (0, 5)])
def test_conll_2005_rows_accept_any_columns(kept, tmp_path):
  for name in NAMES_2005[:3]:
    (tmp_path / name).write_text(columns(SENTENCES, *kept))
  (tmp_path / 'test-brown.gz').write_bytes(gzip.compress(columns(SENTENCES.split('\n\n')[0], *kept).encode()))
  made = load(tmp_path, 'conll2005')
  assert made.manifest['token_label_names'] == ['B-A0', 'B-A1', 'B-V', 'I-A0', 'I-A1', 'I-V', 'O']
  assert made.manifest['label_names'] == []
  assert rows_of(made, 'train') == ROWS and rows_of(made, 'test_brown') == ROWS[:2]
  again = corpus.read(made.dir)
  assert again.hash == made.hash and rows_of(again, 'valid') == ROWS


def test_sizes_of_2005_are_those_published(tmp_path):
  for name in NAMES_2005:
    (tmp_path / name).write_text(SENTENCES)
  with pytest.raises(InputError, match='split train: got 3 propositions'):
    corpus.load(corpus.Config(dataset='conll2005', manual_dir=str(tmp_path), cache_dir=str(tmp_path / 'c')))
  with pytest.raises(InputError, match='data.manual_dir: got .*; expected train-set, dev-set, test-wsj, test-brown'):
    load(tmp_path / '..', 'conll2005')


def test_rows_of_2012_come_from_a_tree_or_one_file(tmp_path):
  tree, flat = tmp_path / 'tree', tmp_path / 'flat'
  flat.mkdir()
  first, *others = SENTENCES.replace('\x20\n', '\n').split('\n\n')
  for split in ('train', 'development', 'conll-2012-test', 'test'):
    folder = tree / 'data' / split / 'data'
    (folder / 'english/annotations/bn').mkdir(parents=True)
    (folder / 'chinese').mkdir()
    (folder / 'chinese/x.v4_gold_conll').write_text('no columns\n')
    (folder / 'english/annotations/bn/a.v4_auto_conll').write_text('no columns\n')
    (folder / 'english/annotations/bn/a.v4_gold_conll').write_text(gold(first))
    b = gold('\n\n'.join(others) if split != 'conll-2012-test' else others[-1])
    (folder / 'english/annotations/bn/b.v4_gold_conll.gz').write_bytes(gzip.compress(b.encode()))
  for split in ('train', 'development', 'test'):
    (flat / f'{split}.gold_conll').write_text(gold(SENTENCES))
  rows = [(2, *ROWS[0][1:]), *ROWS[1:]]  # where V begins
  found, other = load(tree, 'conll2012'), load(flat, 'conll2012')
  assert rows_of(found, 'train') == rows_of(other, 'train') == rows_of(found, 'test') == rows
  (tree / 'data/train/data/english/annotations/bn/a.v4_gold_conll').unlink()
  assert rows_of(load(tree, 'conll2012'), 'train') == rows[2:]
  (tree / 'data/train/data/english/annotations/bn/b.v4_gold_conll.gz').unlink()
  with pytest.raises(InputError, match=r'train/: got no file'):
    load(tree, 'conll2012')


def test_sentence_of_2012_without_a_predicate_may_have_a_column(tmp_path):
  (tmp_path / 'a').write_text(gold('Yes UH * * - - *\n'))
  assert list(propositions.read_2012(str(tmp_path / 'a'))) == []


MALFORMED_2005 = [
  (
    '*)    *\nrubber',
    '*     *\nrubber',
    'line 3, column 7: got "(V*" inside of A0, which begins in line 1; expected *)',
  ),
  ('*)    *)\nsold', '*)    *\nsold', 'line 7, column 8: got "(V*)" inside of A1, which begins in line 5'),
  ('sell  *     (V*)', 'sell  *     (V*', 'line 7, column 8: got "(V*"; expected *) in the same sentence'),
  ('sell  *     (V*)', 'sell  *)    (V*)', 'line 7, column 7: got "*)"; expected a role that begins before it'),
  ('(A1*  (A1*', '(A1   (A1*', 'line 5, column 7: got "(A1"; expected a role in brackets'),
  ('(A1*  (A1*', '(A1*', 'line 5: got 7 columns; expected 8, as in line 1 of the same sentence'),
  ('01 stamp', '01 -    ', 'line 1: got 8 columns; expected the word, other columns, the target verb'),
  ('- - (A1*)\nfell', '- fall (A1*)\nfell', 'line 11: got 7 columns; expected 8: 6 up to the target verbs'),
  (
    'sell  *     (V*)',
    'sell  *     *',
    'line 7, column 8: got "*"; expected the predicate (V*), since "sell" is target verb 2',
  ),
  ('(A1*  (A1*', '(A1*  (V*)', 'line 6, column 8: got "*)"; expected a role'),
]


@pytest.mark.parametrize(('old', 'new', 'message'), MALFORMED_2005)
def test_malformed_files_of_2005(old, new, message, tmp_path):
  assert old in SENTENCES
  path = tmp_path / 'train-set'
  path.write_text(SENTENCES.replace(old, new, 1))
  with pytest.raises(InputError, match=re.escape(f'{path}, {message}')):
    list(propositions.read_2005(str(path)))


MALFORMED_2012 = [
  ('* (V*) -', '* * -', 'line 2, column 13: got 0 predicates in the sentence; expected one, as (V*)'),
  ('* (V*) -', '(V*) (V*) -', 'line 2, column 12: got 2 predicates in the sentence'),
  ('- - * * (V*) -', '- - * (V*) * -', 'line 2, column 12: got 2 predicates'),
  ('(V* * -', '(V* (V*) -', 'line 2, column 13: got 2 predicates'),
  ('stamp 01 - - * *) * -', 'stamp 01 - - * *) (V*) -', 'line 2, column 13: got 2 predicates'),
  ('bn/a 0 8 Yes UH * - 01 - - * -\n', 'bn/a 0 8 Yes UH *\n', 'line 10: got 6 columns; expected at least 12: 11 up to'),
]


@pytest.mark.parametrize(('old', 'new', 'message'), MALFORMED_2012)
def test_malformed_files_of_2012(old, new, message, tmp_path):
  path, text = tmp_path / 'a', gold(SENTENCES)
  assert old in text, text
  path.write_text(text.replace(old, new, 1))
  with pytest.raises(InputError, match=re.escape(f'{path}, {message}')):
    list(propositions.read_2012(str(path)))


def test_two_columns_of_2012_for_a_predicate(tmp_path):
  path = tmp_path / 'a'
  path.write_text(gold('I NN * * - - (A0*) *\ngo VB * * 01 go (V*) (V*)\n'))
  with pytest.raises(InputError, match='line 3, column 13: got'):
    list(propositions.read_2012(str(path)))


def test_predicate_of_a_row_is_in_its_batch(tmp_path):
  for name in NAMES_2005:
    (tmp_path / name).write_text(SENTENCES)
  for tokenizer, form in (('words', 'plain'), ('wordpiece', 'bert')):
    cfg = pipeline.Config(
      dataset='conll2005',
      manual_dir=str(tmp_path),
      cache_dir=str(tmp_path / 'c'),
      check_sizes=False,
      tokenizer=tokenizer,
      vocab_size=30 if tokenizer == 'wordpiece' else 0,
      length=40,
      batch_size=4,
      batching=tagged.Config(form=form),
    )
    made = pipeline.load(cfg)
    batch = pipeline.batches(cfg, made, 'valid', 0, train=False)(0)
    assert batch['predicate_BT'].dtype == np.int32 and batch['predicate_BT'].sum(1).tolist() == [1, 1, 1, 0]
    for b in range(3):
      at = int(batch['predicate_BT'][b].argmax())
      predicate, words, labels = ROWS[batch['index_B'][b]]
      starts = np.flatnonzero(batch['weights_BT'][b])
      assert at == starts[predicate]
      assert made.manifest['token_label_names'][batch['labels_BT'][b, at]] == labels.split()[predicate]
    assert (len(starts) < batch['valid_BT'][2].sum() - 2) == (tokenizer == 'wordpiece')


def test_roles_of_the_embedded_set():
  words = 'The module has two parts ( and uses them )'.split()
  assert generated.roles_of(words, 2) == 'B-A0 I-A0 B-V B-A1 I-A1 O O O O O'.split()
  assert generated.roles_of(words, 7) == 'O O O O O O B-A0 B-V B-A1 O'.split()
  assert generated.roles_of(['uses'], 0) == ['B-V']
