"""Reader of minimal pairs: BLiMP's folder, other tables, subsets, and the faults that it names."""

from __future__ import annotations

import gzip
import re

import pytest

from lmx.data import minimal_pairs
from lmx.errors import InputError, InputWarning
from tests.minimal_pairs import PARADIGMS, blimp


def test_blimp_folder_with_compressed_files(tmp_path):
  folder = tmp_path / 'blimp'
  blimp(folder)
  packed = folder / 'island_1.jsonl'
  (folder / 'island_1.jsonl.gz').write_bytes(gzip.compress(packed.read_bytes()))
  packed.unlink()
  found = minimal_pairs.read(str(folder))
  expected = [(*pair, name, *about) for name, (*about, pairs) in PARADIGMS.items() for pair in pairs]
  assert [pair[:5] for pair in found.pairs] == expected
  assert [pair.id for pair in found.pairs] == ['0', '1', '0', '1', '2', '0', '1'] and found.name == 'blimp'


def test_blimp_files_name_a_phenomenon_and_a_field_twice(tmp_path):
  path = tmp_path / 'a.jsonl'
  path.write_text(
    '{"sentence_good": "a", "sentence_bad": "b", "linguistics_term": "s-selection", "field": "syntax/semantics"}'
  )
  (pair,) = minimal_pairs.read(str(path)).pairs
  assert (pair.phenomenon, pair.field, pair.paradigm, pair.id) == (
    'argument_structure',
    'syntax_semantics',
    'a',
    'line 1',
  )


@pytest.mark.parametrize('ending, between', [('csv', ','), ('tsv', '\t')])
def test_tables_with_named_columns(tmp_path, ending, between):
  path = tmp_path / f'mine.{ending}'
  rows = [('ok', 'wrong', 'kind'), ('she sleeps', 'she sleep', 'verbs'), ('two cats', 'two cat', 'nouns')]
  path.write_text(''.join(between.join(row) + '\n' for row in rows))
  found = minimal_pairs.read(str(path), 'ok', 'wrong', 'kind')
  assert [(pair.good, pair.bad, pair.paradigm, pair.id) for pair in found.pairs] == [
    ('she sleeps', 'she sleep', 'verbs', 'line 2'),
    ('two cats', 'two cat', 'nouns', 'line 3'),
  ]
  assert {pair.paradigm for pair in minimal_pairs.read(str(path), 'ok', 'wrong').pairs} == {'mine'}


@pytest.mark.parametrize(
  'content, options, message',
  [
    ('a\tb\nx\ty\n', {}, r'mine\.tsv, line 2: no column "sentence_good".*name it by --good'),
    ('good\tb\nx\ty\n', {'good': 'goood'}, r'no column "goood".*did you mean "good"'),
    ('good\tbad\nx\ty\n', {'good': 'good', 'bad': 'bat'}, r'no column "bat".*name it by --bad'),
    ('good\tbad\nx\ty\nx\t \n', {'good': 'good', 'bad': 'bad'}, r'line 3: bad: got an empty sentence'),
    ('good\tbad\nx\n', {'good': 'good', 'bad': 'bad'}, r'line 2: got 1 cells; expected 2'),
    ('good\tbad\n', {'good': 'good', 'bad': 'bad'}, r'mine\.tsv: got no pairs; expected at least one row'),
    ('', {}, r'mine\.tsv: the file is empty'),
    ('good\tbad\tUID\nx\ty\t\n', {'good': 'good', 'bad': 'bad'}, r'line 2: UID: got no paradigm'),
    ('good\tbad\nx\ty\n', {'good': 'good', 'bad': 'bad', 'paradigm': 'kind'}, r'no column "kind".*--paradigm'),
    ('good\tbad\tpairID\nx\ty\t1\nu\tv\t1\n', {'good': 'good', 'bad': 'bad'}, r'line 3: pairID: got "1" twice.*line 2'),
    ('good\tbad\nx\ty\n', {'good': 'good', 'bad': 'good'}, r'--good, --bad: got good for both'),
    (
      'good\tbad\tUID\tlinguistics_term\nx\ty\tu\tp\nx\tz\tu\tq\n',
      {'good': 'good', 'bad': 'bad'},
      r'line 3: got phenomenon "q" .*in paradigm u; expected "p"',
    ),
  ],
)
def test_faults_name_file_line_and_column(tmp_path, content, options, message):
  path = tmp_path / 'mine.tsv'
  path.write_text(content)
  with pytest.raises(InputError, match=message):
    minimal_pairs.read(str(path), **options)


def test_other_faults(tmp_path):
  path = tmp_path / 'a.jsonl'
  for content, message in (
    ('{"sentence_good": 1, "sentence_bad": "b"}', 'line 1: sentence_good: got 1; expected a text'),
    ('{"sentence_good": "a"', 'line 1: not JSON'),
  ):
    path.write_text(content)
    with pytest.raises(InputError, match=message):
      minimal_pairs.read(str(path))
  empty = tmp_path / 'empty'
  empty.mkdir()
  with pytest.raises(InputError, match='a folder without'):
    minimal_pairs.read(str(empty))
  with pytest.raises(InputError, match=re.escape('expected a folder, or a file that ends in')):
    minimal_pairs.read(str(tmp_path / 'pairs.txt'))
  folder = tmp_path / 'blimp'
  blimp(folder)
  name = next(folder.glob('*.jsonl')).stem
  (folder / f'{name}.tsv').write_text('')
  with pytest.raises(InputError, match=rf'got {name}.jsonl and {name}.tsv; expected one file of each name'):
    minimal_pairs.read(str(folder))
  (folder / f'{name}.tsv').unlink()
  (folder / 'notes.txt').write_text('x')
  with pytest.warns(InputWarning, match='skipped, not a table of pairs: notes.txt'):
    assert len(minimal_pairs.read(str(folder)).pairs) == 7


def test_listed_pairs(tmp_path):
  found = minimal_pairs.read(blimp(tmp_path / 'blimp'))
  path = tmp_path / 'blimp_babylm_filtered.tsv.gz'
  with pytest.raises(InputError, match='--subset_file: got none'):
    minimal_pairs.keep_listed(found)
  path.write_bytes(gzip.compress(b'UID\tpairID\nagreement_1\t1\nisland_1\t0\nnot_here\t7\n'))
  kept = minimal_pairs.keep_listed(found)
  assert [(pair.paradigm, pair.id) for pair in kept.pairs] == [('agreement_1', '1'), ('island_1', '0')]
  assert kept.subset == 'babylm' and kept.dropped == ['agreement_2'] and kept.hash != found.hash
  other = tmp_path / 'other.tsv'
  other.write_text('UID\tpairID\nagreement_1\t9\n')
  with pytest.raises(InputError, match='line 2: got pair 9 of agreement_1, which is not in'):
    minimal_pairs.keep_listed(found, str(other))


def test_seen_pairs_have_every_word_twice(tmp_path):
  found = minimal_pairs.read(blimp(tmp_path / 'blimp'))
  texts = ["the cat's cat sits, the cat sit.", 'sits sit cats cats sit Dogs dogs run runs run runs']
  kept = minimal_pairs.keep_seen(found, texts, 'text.txt')
  assert [pair.good for pair in kept.pairs] == ['the cat sits', 'cats sit']  # "cat's" is another word, as is Dogs
  assert 'at least 2 times in text.txt' in kept.about and 'apostrophes' in kept.about
  with pytest.raises(InputError, match='--subset: got seen, which has none of the 7 pairs'):
    minimal_pairs.keep_seen(found, ['none of it'], 'text.txt')


@pytest.mark.real_data
def test_blimp_has_the_published_counts(data_dir):
  found = minimal_pairs.read(str(data_dir / 'eval' / 'blimp'))
  assert len(found.pairs) == 67_000 and sum(pair.good == pair.bad for pair in found.pairs) == 7
  assert [len({pair[i] for pair in found.pairs}) for i in (2, 3, 4)] == [67, 12, 4]
  assert len(minimal_pairs.keep_listed(found).pairs) == 59_869
